/* Every row of quantized logits against its exact row: see kv_cuda_comparison.
 *
 * Terms have the bits of kernels/cpu/rows.h (row_compare, row_finish): differences, weights and
 * probabilities are floats, which are added up in double, each thread every THREADS-th token,
 * threads pairwise.
 * Grid (rows - first_row, heads), block 256, shared 7.1 KiB; registers: at most 56. */
#include "kernels/cuda/launch.h"
#include "kernels/order.h"

enum { THREADS = 256 };

typedef struct {
    const float *logits; /* of token 0 */
    kv_cuda_row known;
    float inverse; /* of the sum of weights */
} row_tokens;

static __device__ row_tokens row_at(const kv_cuda_compare &a, int64_t row)
{
    const int64_t at = blockIdx.y * a.rows + row;
    const kv_cuda_row known = a.row[at];
    return {a.logits + at * a.stride - a.first_token, known, (float)(1 / known.sum)};
}

__global__ void __launch_bounds__(THREADS) compare(const kv_cuda_compare a)
{
    __shared__ double sums[3][THREADS];
    __shared__ float largest[THREADS];
    __shared__ unsigned long long common[KV_CUDA_TOPS];
    const int64_t number = a.first_row + blockIdx.x, at = blockIdx.y * a.rows + number;
    const row_tokens row = row_at(a, number), exact = row_at(a, a.row_exact[number]);
    const int64_t end = a.row_seen[2 * at + 1];
    if (threadIdx.x < KV_CUDA_TOPS) common[threadIdx.x] = 0;
    __syncthreads();

    float err_max = 0;
    double err_square = 0, cross = 0, variation = 0;
#pragma unroll 1
    for (int64_t t = a.row_seen[2 * at] + threadIdx.x; t < end; t += THREADS) {
        const float l = exact.logits[t], quantized = row.logits[t], d = quantized - l;
        const float weight = kv_expf(l - exact.known.max);
        err_max = fmaxf(fabsf(d), err_max);
        err_square += (double)d * (double)d;
        cross += (double)(weight * d);
        if (!a.want_rows) continue;
        const float p = weight * exact.inverse;
        variation += (double)fabsf(p - kv_expf(quantized - row.known.max) * row.inverse);
        for (int k = 0; k < KV_CUDA_TOPS; k++)
            if (kv_top_entry(l, t) >= exact.known.least[k] &&
                kv_top_entry(quantized, t) >= row.known.least[k])
                atomicAdd(&common[k], 1ull);
    }
    err_max = kv_block_max<THREADS>(err_max, largest);
    err_square = kv_block_sum<THREADS>(err_square, sums[0]);
    cross = kv_block_sum<THREADS>(cross, sums[1]);
    variation = kv_block_sum<THREADS>(variation, sums[2]);

    kv_cuda_comparison *const out = a.out + at;
    if (threadIdx.x < KV_CUDA_TOPS) out->common[threadIdx.x] = (int64_t)common[threadIdx.x];
    if (threadIdx.x > 0) return;
    out->logit_err_max = (double)err_max;
    out->logit_err_square = err_square;
    out->cross = cross;
    out->variation = variation;
}

kv_status kv_cuda_launch_compare(const kv_cuda_compare *a, kv_error *err)
{
    if (a->heads < 1 || a->rows <= a->first_row) return KV_OK;
    const dim3 grid((unsigned)(a->rows - a->first_row), (unsigned)a->heads);
    compare<<<grid, THREADS>>>(*a);
    return kv_cuda_launched("compare", err);
}
