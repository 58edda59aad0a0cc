/* Range of every tile: largest |x|, or smallest and largest x.
 *
 * A block walks SLICE tokens of one head and draw. Neighbouring threads take neighbouring channels,
 * `lanes` of them each tile of a row of tiles, whatever the tiles' shape: reads are contiguous, and
 * narrow tiles leave no thread idle. Where a row of tiles ends, the lanes of a tile are combined by
 * shuffles and go into the tile by an atomic maximum of integers that order like floats (order.h;
 * the smallest as the largest complement): so slices of large tiles meet in any order. A second
 * kernel makes floats of them, in place. Which zero is found where -0 and 0 meet is open; scale.h
 * makes nothing of it.
 * Grid (heads * draws * slices * parts of a row), block 32 ... 256; registers: at most 32. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tiles.cuh"
#include "kernels/order.h"

enum { THREADS = 256, SLICE = 64 };

/* A launch's shape: lanes of a tile, slices of a head, blocks that share a slice, tokens of a tile
 * (or of all, where there are fewer). */
typedef struct {
    unsigned lanes, slices, parts, tile_tokens;
} shape;

/* The extremes of a tile's lanes in the first of them; -0 and 0 may stand for each other. */
static __device__ __forceinline__ void combine(float *low, float *high, unsigned lanes)
{
    unsigned step = lanes;
    do {
        step /= 2;
        *low = fminf(*low, __shfl_down_sync(0xffffffffu, *low, step));
        *high = fmaxf(*high, __shfl_down_sync(0xffffffffu, *high, step));
    } while (step > 1);
}

__global__ void __launch_bounds__(THREADS) find_extremes(const kv_cuda_extremes a, const shape s)
{
    const kv_cuda_tiles &t = a.tiles;
    const unsigned place = blockIdx.x / s.parts, stretch = place / s.slices;
    const unsigned thread = blockIdx.x % s.parts * blockDim.x + threadIdx.x;
    const int64_t head = stretch / (unsigned)t.draws, draw = stretch % (unsigned)t.draws;
    const int64_t column = thread / s.lanes, lane = thread % s.lanes;
    const int64_t c = column * t.tile_channels, c_limit = c + t.tile_channels;
    const int64_t c_end = c_limit < t.head_dim ? c_limit : t.head_dim;
    const unsigned u = place % s.slices * SLICE, tokens = (unsigned)t.tokens;
    const unsigned u_end = u + SLICE < tokens ? u + SLICE : tokens;
    const uint32_t mask = a.is_asymmetric ? 0xffffffffu : 0x7fffffffu; /* of |x| */
    const bool writes = lane == 0 && column < t.columns;
    const float *z = t.z + head * t.head_stride + draw * t.draw_stride + u * t.head_dim;
    unsigned from = u, row = u / s.tile_tokens;
    int64_t tile = ((t.spans_heads ? 0 : head * t.rows) + row) * t.columns + column;
    do {
        const unsigned row_end = (row + 1) * s.tile_tokens;
        const unsigned end = row_end < u_end ? row_end : u_end;
        float low = INFINITY, high = -INFINITY;
        do {
            for (int64_t i = c + lane; i < c_end; i += s.lanes) {
                const float x = kv_bits_float(kv_float_bits(z[i]) & mask);
                low = fminf(low, x), high = fmaxf(high, x); /* NaN passes neither */
            }
            z += t.head_dim;
        } while (++from < end);
        combine(&low, &high, s.lanes);
        if (writes) {
            atomicMax((uint32_t *)a.low + tile, ~kv_order_key(low, false));
            atomicMax((uint32_t *)a.high + tile, kv_order_key(high, false));
        }
        row++, tile += t.columns;
    } while (from < u_end);
}

__global__ void __launch_bounds__(THREADS) finish_extremes(const kv_cuda_extremes a, int64_t tiles)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= tiles) return;
    const float low = kv_order_value(~kv_float_bits(a.low[i]), false);
    const float high = kv_order_value(kv_float_bits(a.high[i]), false);
    a.low[i] = a.is_asymmetric ? low : 0.0f;
    a.high[i] = a.is_asymmetric || high > 0.0f ? high : 0.0f;
}

kv_status kv_cuda_launch_extremes(const kv_cuda_extremes *a, kv_error *err)
{
    const kv_cuda_tiles *t = &a->tiles;
    const int64_t tiles = kv_cuda_tile_count(t);
    if (tiles < 1) return KV_OK;
    const unsigned lanes = (unsigned)kv_tile_lanes(t);
    const int64_t row = (t->columns * lanes + KV_WARP - 1) / KV_WARP * KV_WARP;
    const unsigned threads = (unsigned)(row < THREADS ? row : (int64_t)THREADS);
    const int64_t tile_tokens = t->tile_tokens < t->tokens ? t->tile_tokens : t->tokens;
    const shape s = {lanes, kv_cuda_blocks(t->tokens, SLICE), kv_cuda_blocks(row, threads),
                     (unsigned)tile_tokens};
    cudaMemsetAsync(a->low, 0, (size_t)tiles * sizeof *a->low);
    cudaMemsetAsync(a->high, 0, (size_t)tiles * sizeof *a->high);
    find_extremes<<<(unsigned)(t->heads * t->draws) * s.slices * s.parts, threads>>>(*a, s);
    finish_extremes<<<kv_cuda_blocks(tiles, THREADS), THREADS>>>(*a, tiles);
    return kv_cuda_launched("extremes", err);
}
