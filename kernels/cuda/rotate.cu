/* RoPE of whole heads, token by token: see rope.cuh for the arithmetic.
 *
 * One thread turns one pair of channels or copies one channel past them, so that y may be x; a warp
 * does so for a token.
 * Grid (blocks of 8 tokens, heads), block (32, 8), no shared memory; registers: at most 40. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rope.cuh"

enum { TOKENS = 8 };

__global__ void __launch_bounds__(KV_WARP *TOKENS) rotate(const kv_cuda_rotate a)
{
    const int64_t t = blockIdx.x * TOKENS + threadIdx.y, pairs = a.rope.pairs;
    if (t >= a.tokens) return;
    const int64_t position = a.position ? a.position[t] : t;
    const int64_t row = (blockIdx.y * a.tokens + t) * a.head_dim;
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < a.head_dim - pairs; i += KV_WARP) {
        if (i >= pairs) {
            a.y[row + pairs + i] = a.x[row + pairs + i];
            continue;
        }
        const int64_t first = row + kv_rope_channel(a.rope, i);
        const int64_t second = first + kv_rope_distance(a.rope);
        float x = a.x[first], y = a.x[second];
        kv_rotate_pair(&x, &y, a.rope, position, i);
        a.y[first] = x;
        a.y[second] = y;
    }
}

kv_status kv_cuda_launch_rotate(const kv_cuda_rotate *a, kv_error *err)
{
    if (a->heads < 1 || a->tokens < 1) return KV_OK;
    const dim3 grid(kv_cuda_blocks(a->tokens, TOKENS), (unsigned)a->heads);
    rotate<<<grid, dim3(KV_WARP, TOKENS)>>>(*a);
    return kv_cuda_launched("rotate", err);
}
