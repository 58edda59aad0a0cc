/* A scheme's transforms on a tile in shared memory, bit for bit as kernels/transforms have them.
 *
 * A tile is z [count][stride], of which head_dim columns are used. Throughout the kernels its row t
 * belongs to warp t modulo the block's warps and its channel c to lane c modulo 32, so that the
 * steps of a row need no barrier of the block: those that stay within a channel none at all, the
 * butterflies of a Hadamard matrix one of the warp. Blocks have one dimension, of whole warps.
 *
 * A new row of KV_TRANSFORM_TABLE needs kv_row_apply_NAME and kv_row_undo_NAME here. */
#ifndef KVANT_KERNELS_CUDA_TRANSFORM_CUH
#define KVANT_KERNELS_CUDA_TRANSFORM_CUH

#include "kernels/cuda/launch.h"
#include "kernels/stages.h"

static __device__ __forceinline__ void kv_row_apply_center(float *z, const kv_cuda_scheme &s,
                                                           int64_t head, int d)
{
    if (!s.mean) return;
#pragma unroll 1
    for (int c = threadIdx.x % KV_WARP; c < d; c += KV_WARP) z[c] -= s.mean[head * d + c];
}

static __device__ __forceinline__ void kv_row_undo_center(float *z, const kv_cuda_scheme &s,
                                                          int64_t head, int d)
{
    if (!s.mean) return;
#pragma unroll 1
    for (int c = threadIdx.x % KV_WARP; c < d; c += KV_WARP) z[c] += s.mean[head * d + c];
}

static __device__ __forceinline__ void kv_row_apply_smooth(float *z, const kv_cuda_scheme &s,
                                                           int64_t head, int d)
{
    if (!s.divisor) return;
#pragma unroll 1
    for (int c = threadIdx.x % KV_WARP; c < d; c += KV_WARP) z[c] /= s.divisor[head * d + c];
}

static __device__ __forceinline__ void kv_row_undo_smooth(float *z, const kv_cuda_scheme &s,
                                                          int64_t head, int d)
{
    if (!s.divisor) return;
#pragma unroll 1
    for (int c = threadIdx.x % KV_WARP; c < d; c += KV_WARP) z[c] *= s.divisor[head * d + c];
}

static __device__ __forceinline__ void kv_row_signs(float *z, const kv_cuda_scheme &s, int d)
{
    if (!s.signs) return;
#pragma unroll 1
    for (int c = threadIdx.x % KV_WARP; c < d; c += KV_WARP) z[c] *= s.signs[c];
}

/* In place, pairs n = 1, 2, 4 ... apart. Blocks of `hadamard` channels fill the row, so pair i of a
 * level is pair i of the whole row. */
static __device__ __forceinline__ void kv_row_butterflies(float *z, const kv_cuda_scheme &s, int d)
{
    const int size = (int)s.hadamard;
    __builtin_assume(size > 1);
    for (int n = 1; n < size; n *= 2) {
        __syncwarp();
#pragma unroll 1
        for (int i = threadIdx.x % KV_WARP; 2 * i < d; i += KV_WARP) {
            const int first = 2 * i - (i & (n - 1));
            const float a = z[first], b = z[first + n];
            z[first] = a + b;
            z[first + n] = a - b;
        }
    }
    __syncwarp();
#pragma unroll 1
    for (int c = threadIdx.x % KV_WARP; c < d; c += KV_WARP) z[c] *= s.hadamard_factor;
}

static __device__ __forceinline__ void kv_row_apply_hadamard(float *z, const kv_cuda_scheme &s,
                                                             int64_t head, int d)
{
    (void)head;
    if (s.hadamard == 0) return;
    kv_row_signs(z, s, d);
    kv_row_butterflies(z, s, d);
}

static __device__ __forceinline__ void kv_row_undo_hadamard(float *z, const kv_cuda_scheme &s,
                                                            int64_t head, int d)
{
    (void)head;
    if (s.hadamard == 0) return;
    kv_row_butterflies(z, s, d);
    kv_row_signs(z, s, d);
}

/* The first n transforms of the table, those that are on. Ends with a barrier; what a thread wrote
 * to its own elements before needs none. */
static __device__ __forceinline__ void kv_tile_apply(float *z, const kv_cuda_scheme &s, int n,
                                                     int64_t head, int count, int head_dim,
                                                     int stride)
{
    for (int t = threadIdx.x / KV_WARP; t < count; t += blockDim.x / KV_WARP) {
#define KV_ROW(name, NAME, ...)                                                                    \
    if (n > KV_TRANSFORM_##NAME) kv_row_apply_##name(z + t * stride, s, head, head_dim);
        KV_TRANSFORM_TABLE(KV_ROW)
#undef KV_ROW
    }
    __syncthreads();
}

/* Undoes all of them, the last one first; barriers as above. */
static __device__ __forceinline__ void kv_tile_undo(float *z, const kv_cuda_scheme &s, int64_t head,
                                                    int count, int head_dim, int stride)
{
    for (int t = threadIdx.x / KV_WARP; t < count; t += blockDim.x / KV_WARP) {
#pragma unroll
        for (int i = KV_TRANSFORM_COUNT - 1; i >= 0; i--) {
#define KV_ROW(name, NAME, ...)                                                                    \
    if (i == KV_TRANSFORM_##NAME) kv_row_undo_##name(z + t * stride, s, head, head_dim);
            KV_TRANSFORM_TABLE(KV_ROW)
#undef KV_ROW
        }
    }
    __syncthreads();
}

#endif
