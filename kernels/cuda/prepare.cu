/* Quantized tokens transformed for the next step of a fit, checked, outliers marked and counted.
 *
 * A warp a token, as transform.cuh wants it: the row goes to shared memory, is transformed there
 * and comes back. A number that is not finite stays so under every transform, so one check behind
 * them serves. Tokens that stay at f16 are only checked.
 * Grid (heads * tokens / 8), block 256, shared 8 rows; registers: at most 64, four blocks a
 * multiprocessor. */
#include <float.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/transform.cuh"

enum { ROWS = 8, THREADS = ROWS * KV_WARP };

/* The least number that rounds to f16's infinity: half a step beyond the largest. */
#define F16_END (KV_F16_MAXIMUM + 16.0f)

/* Flags of one number, which is stored at f16 or not. */
static __device__ __forceinline__ uint32_t flags_of(float x, bool is_f16)
{
    if (!(fabsf(x) <= FLT_MAX)) return KV_CUDA_NOT_FINITE;
    return is_f16 && fabsf(x) >= F16_END ? KV_CUDA_UNFIT : 0;
}

/* Row z of quantized token u, transformed; returns flags and adds what is kept to *kept. */
static __device__ __forceinline__ uint32_t finish_row(const kv_cuda_prepare &a, const float *z,
                                                      int64_t head, int64_t u, int *kept)
{
    const kv_cuda_scheme &s = a.scheme;
    float *out = a.z + (head * s.span + u) * a.head_dim;
    uint32_t flags = 0;
#pragma unroll 1
    for (int c = threadIdx.x % KV_WARP; c < a.head_dim; c += KV_WARP) {
        const int64_t vector = head * s.vectors + (s.is_kept_by_channel ? c : u);
        const bool is_kept = a.marks && (z[c] <= s.keep_low[vector] || z[c] >= s.keep_high[vector]);
        flags |= flags_of(z[c], is_kept);
        *kept += is_kept;
        if (a.z) out[c] = is_kept ? NAN : z[c];
    }
    return flags;
}

__global__ void __launch_bounds__(THREADS, 4)
    prepare_rows(const kv_cuda_prepare a, int64_t first, int64_t end, unsigned blocks)
{
    extern __shared__ float tile[];
    __shared__ int kept;
    const int64_t head = blockIdx.x / blocks, d = a.head_dim;
    const int64_t token = first + (int64_t)(blockIdx.x % blocks) * ROWS;
    const int row = threadIdx.x / KV_WARP, rows = end - token < ROWS ? (int)(end - token) : ROWS;
    const int64_t u = token + row - a.scheme.first;
    const bool is_quantized = u >= 0 && u < a.scheme.span;
    float *z = tile + row * d;
    uint32_t flags = 0;
    int mine = 0;
    if (threadIdx.x == 0) kept = 0;
    if (row < rows)
#pragma unroll 1
        for (int c = threadIdx.x % KV_WARP; c < d; c += KV_WARP) {
            z[c] = a.x[(head * a.tokens + token + row) * d + c];
            if (!is_quantized) flags |= flags_of(z[c], true);
        }
    kv_tile_apply(tile, a.scheme, a.transforms, head, rows, (int)d, (int)d);
    if (row < rows && is_quantized) flags |= finish_row(a, z, head, u, &mine);
    if (flags) atomicOr(a.flags, flags);
    if (!a.kept) return;
    if (mine > 0) atomicAdd(&kept, mine);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&a.kept[head], (unsigned long long)kept);
}

kv_status kv_cuda_launch_prepare(const kv_cuda_prepare *a, kv_error *err)
{
    const int64_t first = a->checks_kept ? 0 : a->scheme.first;
    const int64_t end = a->checks_kept ? a->tokens : first + a->scheme.span;
    if (a->heads < 1 || first >= end) return KV_OK;
    const unsigned blocks = kv_cuda_blocks(end - first, ROWS);
    const int64_t bytes = ROWS * a->head_dim * (int64_t)sizeof(float);
    const kv_status status = kv_cuda_shared((const void *)prepare_rows, "prepare", bytes, err);
    if (status != KV_OK) return status;
    prepare_rows<<<(unsigned)a->heads * blocks, THREADS, (size_t)bytes>>>(*a, first, end, blocks);
    return kv_cuda_launched("prepare", err);
}
