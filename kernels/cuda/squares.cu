/* Sum of squares and largest magnitude of every head's numbers.
 *
 * One block a head, each thread every THREADS-th number, threads added pairwise. Who has few heads
 * and many numbers calls parts of a head heads.
 * Grid (heads), block 1024, shared 12 KiB; registers: at most 40. */
#include "kernels/cuda/launch.h"

enum { THREADS = 1024 };

__global__ void __launch_bounds__(THREADS) squares(const kv_cuda_squares a)
{
    __shared__ double sums[THREADS];
    __shared__ uint32_t largest[THREADS];
    const float *x = a.x + blockIdx.x * a.n;
    double sum = 0;
    uint32_t magnitude = 0;
    for (int64_t i = threadIdx.x; i < a.n; i += THREADS) {
        const uint32_t bits = kv_float_bits(x[i]) & 0x7fffffffu;
        magnitude = max(bits, magnitude);
        sum += (double)x[i] * (double)x[i];
    }
    sum = kv_block_sum<THREADS>(sum, sums);
    magnitude = kv_block_max<THREADS>(magnitude, largest);
    if (threadIdx.x > 0) return;
    a.sum[blockIdx.x] = sum;
    a.absmax[blockIdx.x] = magnitude;
}

kv_status kv_cuda_launch_squares(const kv_cuda_squares *a, kv_error *err)
{
    if (a->heads < 1) return KV_OK;
    squares<<<(unsigned)a->heads, THREADS>>>(*a);
    return kv_cuda_launched("squares", err);
}
