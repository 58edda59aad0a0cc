/* Device memory of one call: see memory.h. */
#include "kernels/cuda/memory.h"

#include "kernels/memory.h"

/* The smallest idle array that holds so many bytes and is not twice as large, or n_idle. */
static size_t find_idle(const kv_cuda_memory *m, int64_t bytes)
{
    size_t found = m->n_idle;
    for (size_t i = 0; i < m->n_idle; i++) {
        int64_t const size = m->idle[i].bytes;
        if (size >= bytes && size / 2 <= bytes &&
            (found == m->n_idle || size < m->idle[found].bytes))
            found = i;
    }
    return found;
}

static kv_cuda_array leave_idle(kv_cuda_memory *m, size_t i)
{
    kv_cuda_array const array = m->idle[i];
    m->idle_bytes -= array.bytes;
    m->idle[i] = m->idle[--m->n_idle];
    return array;
}

/* An idle array, or a new one for which idle ones make room. */
static kv_status find_array(kv_cuda_array *out, kv_cuda_memory *m, int64_t bytes, kv_error *err)
{
    size_t const i = find_idle(m, bytes);
    if (i < m->n_idle) {
        *out = leave_idle(m, i);
        return KV_OK;
    }
    while (m->n_idle > 0 && m->taken_bytes + m->idle_bytes + bytes > m->most_bytes)
        m->cuda->release(leave_idle(m, m->n_idle - 1).start);
    out->bytes = bytes;
    return m->cuda->allocate(&out->start, bytes, err);
}

kv_status kv_cuda_take(void **out, kv_cuda_memory *m, int64_t count, size_t size, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t bytes;
    void *taken = m->taken, *idle = m->idle;
    kv_cuda_array array;
    if (!kv_multiply_sizes(count, (int64_t)size, &bytes))
        return KV_FAIL(err, KV_ENOMEM, "out of device memory: %lld elements of %zu bytes",
                       (long long)count, size);
    KV_TRY(kv_grow(&taken, &m->capacity, m->n, m->n + 1, sizeof *m->taken, err));
    m->taken = taken;
    /* room for all of them, so that giving back cannot fail */
    KV_TRY(
        kv_grow(&idle, &m->idle_capacity, m->n_idle, m->n + m->n_idle + 1, sizeof *m->idle, err));
    m->idle = idle;
    KV_TRY(find_array(&array, m, bytes, err));
    m->taken[m->n++] = array;
    m->taken_bytes += array.bytes;
    if (m->taken_bytes > m->most_bytes) m->most_bytes = m->taken_bytes;
    *out = array.start;
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
    while (m->n > n) {
        kv_cuda_array const array = m->taken[--m->n];
        m->taken_bytes -= array.bytes, m->idle_bytes += array.bytes;
        m->idle[m->n_idle++] = array;
    }
    if (n > 0) return;
    while (m->n_idle > 0) m->cuda->release(leave_idle(m, m->n_idle - 1).start);
    kv_free(m->taken);
    kv_free(m->idle);
    *m = (kv_cuda_memory){.cuda = m->cuda};
}
