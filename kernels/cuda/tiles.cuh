/* Where a tile of kv_cuda_tiles lies, and how the threads of a block share its elements. */
#ifndef KVANT_KERNELS_CUDA_TILES_CUH
#define KVANT_KERNELS_CUDA_TILES_CUH

#include "kernels/cuda/launch.h"

/* Heads [head, head_end), tokens [u, u_end), channels [c, c_end); every draw. */
typedef struct {
    int64_t head, head_end, u, u_end, c, c_end;
} kv_tile_part;

static __device__ __forceinline__ kv_tile_part kv_tile_part_of(const kv_cuda_tiles &t,
                                                               unsigned tile)
{
    const unsigned rows = (unsigned)t.rows, columns = (unsigned)t.columns; /* below 2^31 */
    const int64_t u = tile / columns % rows * t.tile_tokens;
    const int64_t c = tile % columns * t.tile_channels;
    const int64_t head = tile / columns / rows; /* 0 where tiles span heads */
    kv_tile_part part = {
        head, t.spans_heads ? t.heads : head + 1, u, u + t.tile_tokens, c, c + t.tile_channels};
    if (part.u_end > t.tokens) part.u_end = t.tokens;
    if (part.c_end > t.head_dim) part.c_end = t.head_dim;
    return part;
}

/* How many neighbouring threads share a row of a tile: a power of two, a warp at most. */
static inline int kv_tile_lanes(const kv_cuda_tiles *t)
{
    int lanes = 1;
    while (lanes < KV_WARP && lanes < t->tile_channels) lanes *= 2;
    return lanes;
}

#endif
