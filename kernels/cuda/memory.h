/* Device memory of one call: arrays are taken one by one and given back together.
 *
 *     kv_cuda_memory m = {.cuda = module};
 *     KV_TRY(kv_cuda_take((void **)&x, &m, count, sizeof *x, err));
 *     size_t const mark = m.n;                 ... temporary arrays ...
 *     kv_cuda_give_back(&m, mark);
 *     kv_cuda_give_back(&m, 0);
 *
 * What is given back is kept for the next array of about its size, since CUDA's own allocation
 * waits for all kernels: fits take the same arrays scheme after scheme. Never is more held than was
 * taken at some time. Work on it is in order on one stream, so an array may be written while the
 * kernels that were started on its former owner still run. */
#ifndef KVANT_KERNELS_CUDA_MEMORY_H
#define KVANT_KERNELS_CUDA_MEMORY_H

#include "kernels/cuda/device.h"

typedef struct {
    void *start;
    int64_t bytes;
} kv_cuda_array;
typedef struct {
    const kv_cuda_module *cuda;
    kv_cuda_array *taken, *idle;
    size_t n, n_idle, capacity, idle_capacity;
    int64_t taken_bytes, idle_bytes, most_bytes; /* most that were taken at a time */
} kv_cuda_memory;

/* Room for count elements, not initialised. */
kv_status kv_cuda_take(void **out, kv_cuda_memory *memory, int64_t count, size_t size,
                       kv_error *err);

/* The same, zeroed, or filled from host memory. */
kv_status kv_cuda_take_zeros(void **out, kv_cuda_memory *memory, int64_t count, size_t size,
                             kv_error *err);
kv_status kv_cuda_take_copy(void **out, kv_cuda_memory *memory, const void *from, int64_t count,
                            size_t size, kv_error *err);

/* Gives back what was taken when there were more than n arrays; with 0 everything goes back to
 * CUDA.
 */
void kv_cuda_give_back(kv_cuda_memory *memory, size_t n);

#endif
