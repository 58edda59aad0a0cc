/* Allocation: sizes multiply through one checked place, and a test can make the k-th one fail.
 *
 * All memory of kvant comes from kv_allocate (zeroed, aligned to 64 bytes) or kv_duplicate; all of
 * it goes back through kv_free. */
#ifndef KVANT_KERNELS_MEMORY_H
#define KVANT_KERNELS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/error.h"

KV_EXTERN_C_BEGIN

/* Zeroed memory for count * size bytes, aligned to 64 bytes; never NULL on success, also for 0.
 * *out is left alone on failure. Thread-safe. */
kv_status kv_allocate(void **out, size_t count, size_t size, kv_error *err);

/* The same for a product of three extents, each of which may come from a file. */
kv_status kv_allocate3(void **out, size_t a, size_t b, size_t c, size_t size, kv_error *err);

/* Without the zeros, for large arrays that are written before they are read. */
kv_status kv_allocate3_unset(void **out, size_t a, size_t b, size_t c, size_t size, kv_error *err);

/* Grows an array from `count` to at least `wanted` elements (doubling), keeping its contents; the
 * new part is zero. *array and *capacity change only on success. */
kv_status kv_grow(void **array, size_t *capacity, size_t count, size_t wanted, size_t size,
                  kv_error *err);

/* A copy of a string, or of its first `length` bytes with a terminator. */
kv_status kv_duplicate(char **out, const char *text, kv_error *err);
kv_status kv_duplicate_part(char **out, const char *text, size_t length, kv_error *err);

/* Frees what the functions above gave; NULL is fine. */
void kv_free(void *memory);

/* *product = a * b; false where that does not fit. Operands must not be negative. */
int kv_multiply_sizes(int64_t a, int64_t b, int64_t *product);

/* For tests: make the k-th allocation of this thread from now on fail (0 = the next); -1 never.
 * Returns how many allocations this thread has made since the last call. */
long kv_fail_allocation(long k);

KV_EXTERN_C_END

#endif
