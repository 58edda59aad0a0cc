/* Allocation: see memory.h. Large blocks ask for huge pages: a head's tensors are megabytes that
 * are walked again and again, and faulting them in small pages costs as much as decoding them. */
#if defined(__linux__)
#define _DEFAULT_SOURCE /* madvise */
#include <sys/mman.h>
#endif

#include "kernels/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20, WORTH_ASKING = 256 << 20 };

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

/* Huge pages are advice, and only for whole ones. A block whose last one is not whole is extended
 * to it where that takes at most a quarter more: small pages would be asked for one by one. */
static void *aligned_block(size_t bytes)
{
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (bytes >= HUGE_PAGE) {
        void *memory = NULL;
        size_t const whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        if (whole - bytes <= bytes / 4) bytes = whole;
        if (posix_memalign(&memory, HUGE_PAGE, bytes) != 0) return NULL;
        (void)madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
        return memory;
    }
#endif
    return aligned_alloc(ALIGNMENT, bytes);
}

/* Linux grants more than it has and kills the process later; so large requests ask first. */
static bool is_there(size_t bytes)
{
#if defined(__linux__)
    char line[128];
    unsigned long long available_kib = 0;
    FILE *const file = bytes >= WORTH_ASKING ? fopen("/proc/meminfo", "r") : NULL;
    if (!file) return true;
    bool is_found = false;
    while (!is_found && fgets(line, sizeof line, file))
        is_found = sscanf(line, "MemAvailable: %llu kB", &available_kib) == 1;
    fclose(file);
    return !is_found || bytes / 1024 < available_kib;
#else
    (void)bytes;
    return true;
#endif
}

static kv_status allocate(void **out, size_t count, size_t size, bool is_set, kv_error *err)
{
    if (size != 0 && count > (SIZE_MAX - HUGE_PAGE) / size) return out_of_memory(err, count, size);
    allocation_count++;
    if (fail_countdown >= 0 && fail_countdown-- == 0) return out_of_memory(err, count, size);
    size_t const bytes = (count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *memory = is_there(bytes) ? aligned_block(bytes > 0 ? bytes : ALIGNMENT) : NULL;
    if (!memory) return out_of_memory(err, count, size);
    if (is_set) memset(memory, 0, bytes);
    *out = memory;
    return KV_OK;
}

static kv_status allocate3(void **out, const size_t extents[3], size_t size, bool is_set,
                           kv_error *err)
{
    size_t const a = extents[0], b = extents[1], c = extents[2];
    int64_t ab, abc;
    if (a > INT64_MAX || b > INT64_MAX || c > INT64_MAX ||
        !kv_multiply_sizes((int64_t)a, (int64_t)b, &ab) || !kv_multiply_sizes(ab, (int64_t)c, &abc))
        return KV_FAIL(err, KV_ENOMEM, "out of memory: %zu x %zu x %zu elements", a, b, c);
    return allocate(out, (size_t)abc, size, is_set, err);
}

kv_status kv_allocate(void **out, size_t count, size_t size, kv_error *err)
{
    return allocate(out, count, size, true, err);
}

kv_status kv_allocate3(void **out, size_t a, size_t b, size_t c, size_t size, kv_error *err)
{
    return allocate3(out, (const size_t[]){a, b, c}, size, true, err);
}

kv_status kv_allocate3_unset(void **out, size_t a, size_t b, size_t c, size_t size, kv_error *err)
{
    return allocate3(out, (const size_t[]){a, b, c}, size, false, err);
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
