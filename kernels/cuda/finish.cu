/* From the products of splits to attention rows, and to their squares or squared distances.
 *
 * Splits are added in order in float; the rest is double, as store_row of cpu/attend_block.c and
 * sum_square_scaled_difference of cpu/rows.h have it. Channels are added pairwise.
 * Grid (outs, heads), block 128, shared 1 KiB; registers: at most 40. */
#include "kernels/cuda/launch.h"

enum { THREADS = 128 };

static __device__ float product(const kv_cuda_finish &a, int64_t out, int64_t c)
{
    float sum = 0;
    int64_t split = 0;
#pragma unroll 1
    do sum += a.partial[((blockIdx.y * a.splits + split) * a.outs + out) * a.head_dim + c];
    while (++split < a.splits);
    return sum;
}

static __device__ double sum_of_weights(const kv_cuda_finish &a, int64_t out)
{
    return a.row[blockIdx.y * a.rows + a.out_row[out]].sum;
}

__global__ void __launch_bounds__(THREADS) finish(const kv_cuda_finish a)
{
    __shared__ double sums[THREADS];
    const int64_t out = blockIdx.x, at = blockIdx.y * a.outs + out;
    const double sum = sum_of_weights(a, out);
    if (a.attention)
#pragma unroll 1
        for (int64_t c = threadIdx.x; c < a.head_dim; c += THREADS)
            a.attention[at * a.head_dim + c] = (float)((double)product(a, out, c) / sum);
    if (!a.square) return;

    const int64_t exact = a.out_exact[out];
    const int64_t other = exact < 0 ? out : exact; /* times 0 where there is none */
    const double inverse = 1 / sum, other_inverse = exact < 0 ? 0 : 1 / sum_of_weights(a, other);
    double square = 0;
#pragma unroll 1
    for (int64_t c = threadIdx.x; c < a.head_dim; c += THREADS) {
        const double x = (double)product(a, out, c) * inverse;
        const double d = x - (double)product(a, other, c) * other_inverse;
        square += d * d;
    }
    square = kv_block_sum<THREADS>(square, sums);
    if (threadIdx.x == 0) a.square[at] = square;
}

kv_status kv_cuda_launch_finish(const kv_cuda_finish *a, kv_error *err)
{
    if (a->heads < 1 || a->outs < 1) return KV_OK;
    const dim3 grid((unsigned)a->outs, (unsigned)a->heads);
    finish<<<grid, THREADS>>>(*a);
    return kv_cuda_launched("finish", err);
}
