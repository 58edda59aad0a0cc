/* Dequantized values of all schemes of a list, from one reading of the tensor.
 *
 * A block takes a tile of KV_CUDA_TOKENS tokens of one head through every scheme: decoded into
 * shared memory (decode.cuh), rotated where the scheme is in pre-RoPE position, its error added up,
 * stored. The tile comes from device memory for the first scheme and from the cache for the others.
 *
 * Grid (tiles, heads), block 128. Dynamic shared: two tiles, 33 KiB at head_dim 128, of which six
 * find room on a multiprocessor; registers: at most 64. */
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rope.cuh"

enum { THREADS = 128 };

static __device__ void rotate_tile(const kv_decode_room &room, const kv_cuda_rope &rope,
                                   int64_t first, int count)
{
    const int distance = (int)kv_rope_distance(rope);
    for (int t = threadIdx.x / KV_WARP; t < count; t += THREADS / KV_WARP)
#pragma unroll 1
        for (int i = threadIdx.x % KV_WARP; i < rope.pairs; i += KV_WARP) {
            float *const pair = room.y + t * room.stride + kv_rope_channel(rope, i);
            kv_rotate_pair(pair, pair + distance, rope, first + t, i);
        }
    __syncthreads();
}

/* Stores the tile's values from values[at] on, and adds up how far they are from x. */
static __device__ double store_tile(float *values, int64_t at, const kv_decode_room &room,
                                    const float *x, int count, bool *is_finite)
{
    double square = 0;
    for (int t = threadIdx.x / KV_WARP; t < count; t += THREADS / KV_WARP)
#pragma unroll 1
        for (int c = threadIdx.x % KV_WARP; c < room.d; c += KV_WARP) {
            const float y = room.y[t * room.stride + c], d = y - x[t * room.d + c];
            square += (double)d * (double)d;
            *is_finite = *is_finite && fabsf(y) < INFINITY;
            if (values) values[at + t * room.d + c] = y;
        }
    return square;
}

__global__ void __launch_bounds__(THREADS, 6) decode(const kv_cuda_decode a)
{
    extern __shared__ float4 memory[];
    __shared__ double sums[THREADS];
    const int d = (int)a.head_dim, stride = (int)kv_tile_stride(d);
    const int64_t head = blockIdx.y, first = (int64_t)blockIdx.x * KV_CUDA_TOKENS;
    const int count = (int)(a.tokens - first < KV_CUDA_TOKENS ? a.tokens - first : KV_CUDA_TOKENS);
    const int64_t plane = head * a.tokens * d, tile = plane + first * d;
    float *const y = (float *)memory, *const z = y + KV_CUDA_TOKENS * stride;
    const kv_decode_room room = {y, z, d, stride};
    bool is_finite = true;
    __builtin_assume(a.n > 0); /* else there is no launch */
    for (int64_t i = 0; i < a.n; i++) {
        const kv_cuda_scheme &s = a.schemes[i];
        kv_tile_decode(room, (s.is_pre_rope ? a.x_pre_rope : a.x) + plane, s, head, first, count);
        if (s.is_pre_rope) rotate_tile(room, a.rope, first, count);
        const int64_t at = i * a.heads * a.tokens * d + tile;
        const double square = store_tile(a.values, at, room, a.x + tile, count, &is_finite);
        const double sum = kv_block_sum<THREADS>(square, sums); /* and waits for the readers of y */
        if (a.error && threadIdx.x == 0)
            a.error[(i * a.heads + head) * gridDim.x + blockIdx.x] = sum;
    }
    if (!is_finite) atomicOr(a.flags, (uint32_t)KV_CUDA_UNFIT);
}

kv_status kv_cuda_launch_decode(const kv_cuda_decode *a, kv_error *err)
{
    const int64_t tile = KV_CUDA_TOKENS * kv_tile_stride(a->head_dim);
    const int64_t bytes = 2 * tile * (int64_t)sizeof(float);
    if (a->heads < 1 || a->tokens < 1 || a->n < 1) return KV_OK;
    const kv_status status = kv_cuda_shared((const void *)decode, "decode", bytes, err);
    if (status != KV_OK) return status;
    const dim3 grid(kv_cuda_blocks(a->tokens, KV_CUDA_TOKENS), (unsigned)a->heads);
    decode<<<grid, THREADS, (size_t)bytes>>>(*a);
    return kv_cuda_launched("decode", err);
}
