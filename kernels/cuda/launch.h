/* What the kernel files share: checks after a launch, grids, reductions over a block.
 *
 *     kernel<<<grid, THREADS>>>(*a);
 *     return kv_cuda_launched("generate", err);
 */
#ifndef KVANT_KERNELS_CUDA_LAUNCH_H
#define KVANT_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#include "kernels/cuda/device.h"

enum { KV_WARP = 32 };

/* Names the kernel where its launch failed. */
kv_status kv_cuda_launched(const char *kernel, kv_error *err);

/* Lets a kernel have `bytes` of dynamic shared memory; KV_EUNSUPPORTED, with what there is, where
 * the device has less. */
kv_status kv_cuda_shared(const void *kernel, const char *name, int64_t bytes, kv_error *err);

/* Blocks of `step` that hold n, for grid.x. */
static inline unsigned kv_cuda_blocks(int64_t n, int64_t step)
{
    return (unsigned)((n + step - 1) / step);
}

/* Sum of one number of each thread of a block of THREADS (a power of two), the same in every
 * thread; pairs are added as i, i + THREADS / 2 and so on. shared [THREADS]; who uses it twice
 * waits in between. */
template <int THREADS> __device__ double kv_block_sum(double x, double *shared)
{
    shared[threadIdx.x] = x;
    for (int half = THREADS / 2; half > 1; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    __syncthreads();
    return shared[0] + shared[1];
}

/* The largest of them, for any type that max() knows; the same holds for shared. */
template <int THREADS, class T> __device__ T kv_block_max(T x, T *shared)
{
    shared[threadIdx.x] = x;
    for (int half = THREADS / 2; half > 1; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            shared[threadIdx.x] = max(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads();
    return max(shared[0], shared[1]);
}

#endif
