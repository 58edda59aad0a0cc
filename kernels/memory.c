/* Allocation: see memory.h. */
#include "kernels/memory.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

static KV_THREAD_LOCAL long fail_countdown = -1; /* test hook; per thread, so tests stay exact */
static KV_THREAD_LOCAL long allocation_count = 0;

long kv_fail_allocation(long k)
{
    long const made = allocation_count;
    allocation_count = 0, fail_countdown = k;
    return made;
}

int kv_multiply_sizes(int64_t a, int64_t b, int64_t *product)
{
    if (a < 0 || b < 0 || (b > 0 && a > INT64_MAX / b)) return 0;
    *product = a * b;
    return 1;
}

static kv_status out_of_memory(kv_error *err, size_t count, size_t size)
{
    return KV_FAIL(err, KV_ENOMEM, "out of memory: %zu elements of %zu bytes", count, size);
}

kv_status kv_allocate(void **out, size_t count, size_t size, kv_error *err)
{
    if (size != 0 && count > (SIZE_MAX - ALIGNMENT) / size) return out_of_memory(err, count, size);
    allocation_count++;
    if (fail_countdown >= 0 && fail_countdown-- == 0) return out_of_memory(err, count, size);
    size_t const bytes = (count * size / ALIGNMENT + 1) * ALIGNMENT;
    void *memory = aligned_alloc(ALIGNMENT, bytes);
    if (!memory) return out_of_memory(err, count, size);
    memset(memory, 0, bytes);
    *out = memory;
    return KV_OK;
}

kv_status kv_allocate3(void **out, size_t a, size_t b, size_t c, size_t size, kv_error *err)
{
    int64_t ab, abc;
    if (a > INT64_MAX || b > INT64_MAX || c > INT64_MAX ||
        !kv_multiply_sizes((int64_t)a, (int64_t)b, &ab) || !kv_multiply_sizes(ab, (int64_t)c, &abc))
        return KV_FAIL(err, KV_ENOMEM, "out of memory: %zu x %zu x %zu elements", a, b, c);
    return kv_allocate(out, (size_t)abc, size, err);
}

kv_status kv_grow(void **array, size_t *capacity, size_t count, size_t wanted, size_t size,
                  kv_error *err)
{
    if (wanted <= *capacity) return KV_OK;
    size_t const larger = wanted > *capacity * 2 ? wanted : *capacity * 2;
    void *memory = NULL;
    kv_status const status = kv_allocate(&memory, larger, size, err);
    if (status != KV_OK) return status;
    if (count) memcpy(memory, *array, count * size);
    kv_free(*array);
    *array = memory, *capacity = larger;
    return KV_OK;
}

kv_status kv_duplicate(char **out, const char *text, kv_error *err)
{
    return kv_duplicate_part(out, text, strlen(text), err);
}

kv_status kv_duplicate_part(char **out, const char *text, size_t length, kv_error *err)
{
    void *copy = NULL;
    kv_status const status = kv_allocate(&copy, length + 1, 1, err);
    if (status != KV_OK) return status;
    memcpy(copy, text, length);
    *out = copy;
    return KV_OK;
}

void kv_free(void *memory)
{
    free(memory);
}
