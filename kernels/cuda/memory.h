/* Device memory of one call: arrays are taken one by one and given back together.
 *
 *     kv_cuda_memory m = {.cuda = module};
 *     KV_TRY(kv_cuda_take((void **)&x, &m, count, sizeof *x, err));
 *     size_t const mark = m.n;                 ... temporary arrays ...
 *     kv_cuda_give_back(&m, mark);
 *     kv_cuda_give_back(&m, 0);
 */
#ifndef KVANT_KERNELS_CUDA_MEMORY_H
#define KVANT_KERNELS_CUDA_MEMORY_H

#include "kernels/cuda/device.h"

typedef struct {
    const kv_cuda_module *cuda;
    void **items;
    size_t n, capacity;
} kv_cuda_memory;

/* Room for count elements, not initialised. */
kv_status kv_cuda_take(void **out, kv_cuda_memory *memory, int64_t count, size_t size,
                       kv_error *err);

/* The same, zeroed, or filled from host memory. */
kv_status kv_cuda_take_zeros(void **out, kv_cuda_memory *memory, int64_t count, size_t size,
                             kv_error *err);
kv_status kv_cuda_take_copy(void **out, kv_cuda_memory *memory, const void *from, int64_t count,
                            size_t size, kv_error *err);

/* Frees what was taken when there were more than n arrays; with 0 the list itself, too. */
void kv_cuda_give_back(kv_cuda_memory *memory, size_t n);

#endif
