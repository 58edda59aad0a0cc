/* Device memory of one call: see memory.h. */
#include "kernels/cuda/memory.h"

#include "kernels/memory.h"

kv_status kv_cuda_take(void **out, kv_cuda_memory *m, int64_t count, size_t size, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t bytes;
    void *items = m->items, *taken = NULL;
    if (!kv_multiply_sizes(count, (int64_t)size, &bytes))
        return KV_FAIL(err, KV_ENOMEM, "out of device memory: %lld elements of %zu bytes",
                       (long long)count, size);
    KV_TRY(kv_grow(&items, &m->capacity, m->n, m->n + 1, sizeof *m->items, err));
    m->items = items;
    KV_TRY(m->cuda->allocate(&taken, bytes, err));
    *out = m->items[m->n++] = taken;
done:
    return status;
}

kv_status kv_cuda_take_zeros(void **out, kv_cuda_memory *m, int64_t count, size_t size,
                             kv_error *err)
{
    kv_status const status = kv_cuda_take(out, m, count, size, err);
    return status == KV_OK ? m->cuda->zero(*out, count * (int64_t)size, err) : status;
}

kv_status kv_cuda_take_copy(void **out, kv_cuda_memory *m, const void *from, int64_t count,
                            size_t size, kv_error *err)
{
    kv_status const status = kv_cuda_take(out, m, count, size, err);
    return status == KV_OK ? m->cuda->upload(*out, from, count * (int64_t)size, err) : status;
}

void kv_cuda_give_back(kv_cuda_memory *m, size_t n)
{
    while (m->n > n) m->cuda->release(m->items[--m->n]);
    if (n > 0) return;
    kv_free(m->items);
    m->items = NULL, m->capacity = 0;
}
