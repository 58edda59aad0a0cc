/* Sum of every channel over its tokens, in double and in token order.
 *
 * The order leaves one thread a channel of a head; neighbouring threads take neighbouring channels.
 * BATCH tokens are loaded before they are added, so that their latencies overlap. Blocks are one
 * warp, to spread the few threads there are over many multiprocessors.
 * Grid (heads * head_dim / 32), block 32, no shared memory; registers: at most 64. */
#include "kernels/cuda/launch.h"

enum { THREADS = 32, BATCH = 16 };

__global__ void __launch_bounds__(THREADS) sum_channels(const kv_cuda_channels a)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x, d = (unsigned)a.head_dim;
    if (i >= a.heads * d) return;
    const float *z = a.z + i / d * a.head_stride + i % d;
    double sum = 0;
#pragma unroll 1
    for (unsigned n = (unsigned)a.tokens / BATCH; n > 0; n--) {
        float x[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++, z += a.head_dim) x[k] = *z;
#pragma unroll
        for (int k = 0; k < BATCH; k++) sum += (double)x[k];
    }
#pragma unroll 1
    for (unsigned n = (unsigned)a.tokens % BATCH; n > 0; n--, z += a.head_dim) sum += (double)*z;
    a.sum[i] = sum;
}

kv_status kv_cuda_launch_channels(const kv_cuda_channels *a, kv_error *err)
{
    const int64_t n = a->heads * a->head_dim;
    if (n < 1) return KV_OK;
    sum_channels<<<kv_cuda_blocks(n, THREADS), THREADS>>>(*a);
    return kv_cuda_launched("channels", err);
}
