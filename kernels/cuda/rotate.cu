/* RoPE of whole heads, at positions 0, 1, ...: see rope.cuh for the arithmetic.
 *
 * One thread turns one pair of channels or copies one channel past them, so that y may be x.
 * Grid (blocks of 256 pairs and channels, heads), block 256, no shared memory; registers: at most
 * 32. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rope.cuh"

enum { THREADS = 256 };

__global__ void __launch_bounds__(THREADS) rotate(const kv_cuda_rotate a)
{
    const int64_t pairs = a.rope.pairs, units = a.head_dim - pairs; /* of a token */
    const int64_t unit = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t t = unit / units, i = unit % units;
    if (t >= a.tokens) return;
    const int64_t row = (blockIdx.y * a.tokens + t) * a.head_dim;
    if (i >= pairs) {
        a.y[row + pairs + i] = a.x[row + pairs + i];
        return;
    }
    const int64_t first = row + kv_rope_channel(a.rope, i);
    const int64_t second = first + kv_rope_distance(a.rope);
    float x = a.x[first], y = a.x[second];
    kv_rotate_pair(&x, &y, a.rope, t, i);
    a.y[first] = x;
    a.y[second] = y;
}

kv_status kv_cuda_launch_rotate(const kv_cuda_rotate *a, kv_error *err)
{
    const int64_t units = a->tokens * (a->head_dim - a->rope.pairs);
    if (a->heads < 1 || units < 1) return KV_OK;
    const dim3 grid(kv_cuda_blocks(units, THREADS), (unsigned)a->heads);
    rotate<<<grid, THREADS>>>(*a);
    return kv_cuda_launched("rotate", err);
}
