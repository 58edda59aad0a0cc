/* range=mse: the clip factor of every tile with the least squared error (ranges/mse.c).
 *
 * One block a tile. The order of every sum is fixed: a channel's error over its tokens, the
 * channels by clip.h's interleaved sums, draws, heads. So a thread takes whole sums: one of a
 * factor and a channel, CHANNELS of them at a time, which it walks over the tokens; then one of a
 * factor and an interleaved sum, which goes on from channels to channels; then one of a factor.
 * Errors of channels are a function each value function, so that no element asks for the format,
 * and not inlined, so that all share the rest.
 * Grid (tiles), block 64 ... 256, shared at most 30 KiB; registers: at most 64, four blocks a
 * multiprocessor. */
#include "kernels/clip.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tiles.cuh"
#include "kernels/format.h"
#include "kernels/grid.h"

enum { LEAST = 64, THREADS = 256, CHANNELS = 64 };
static_assert(LEAST >= (int)KV_CLIP_FACTORS && CHANNELS % (int)KV_CLIP_LANES == 0,
              "a thread each factor");

typedef struct {
    float scale, inverse, minimum;
} grid;

typedef float value_function(float x, float s, float inverse, float m, float limit);

/* Sum of (value - x)^2 of a channel from z on; kept outliers are NaN and do not count. */
template <value_function VALUE>
static __device__ __noinline__ double channel_error(const float *z, int64_t tokens, int64_t d,
                                                    const grid g, float limit)
{
    double sum = 0;
#pragma unroll 4
    for (int64_t u = 0; u < tokens; u++) {
        const float x = z[u * d];
        const double e = (double)VALUE(x, g.scale, g.inverse, g.minimum, limit) - (double)x;
        sum += x == x ? e * e : 0.0;
    }
    return sum;
}

#define KV_SEARCH_EXACT(...)
#define KV_SEARCH_INTEGER(...)
#define KV_SEARCH_BLOCK(...)
#define KV_SEARCH_FLOAT(name, NAME, BITS, ...)                                                     \
    if constexpr (BITS < 16) /* the others have no scale */                                        \
        if (a.format == KV_FORMAT_##NAME)                                                          \
            return channel_error<kv_grid_##name##_value>(z, tokens, d, g, limit);
static __device__ __forceinline__ double error_of(const kv_cuda_search &a, const float *z,
                                                  int64_t tokens, const grid g)
{
    const int64_t d = a.tiles.head_dim;
    const float limit = a.rule.limit;
    if (a.rule.is_asymmetric) return channel_error<kv_asymmetric_value>(z, tokens, d, g, limit);
#define KV_ROW(name, NAME, KIND, ...) KV_SEARCH_##KIND(name, NAME, __VA_ARGS__)
    KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
    return channel_error<kv_symmetric_value>(z, tokens, d, g, limit);
}

/* Errors of the tile's channels in one head and draw, added to the interleaved sums `lanes`. z is
 * the tile's first element there. */
static __device__ __forceinline__ void add_errors(double *lanes, double *errors, const float *z,
                                                  const kv_cuda_search &a, const kv_tile_part &part,
                                                  const grid *grids)
{
    for (int64_t from = part.c; from < part.c_end; from += CHANNELS, z += CHANNELS) {
        const int left = part.c_end - from < CHANNELS ? (int)(part.c_end - from) : CHANNELS;
        for (int i = threadIdx.x; i < KV_CLIP_FACTORS * left; i += blockDim.x)
            errors[i] = error_of(a, z + i % left, part.u_end - part.u, grids[i / left]);
        __syncthreads();
        for (int i = threadIdx.x; i < KV_CLIP_FACTORS * KV_CLIP_LANES; i += blockDim.x) {
            const double *of_factor = errors + i / KV_CLIP_LANES * left;
            for (int c = i % KV_CLIP_LANES; c < left; c += KV_CLIP_LANES) lanes[i] += of_factor[c];
        }
        __syncthreads();
    }
}

/* Scales of all factors as they are stored. */
static __device__ __forceinline__ void fill_grids(grid *grids, const kv_cuda_search &a, float low,
                                                  float high)
{
    const int k = threadIdx.x;
    if (k >= KV_CLIP_FACTORS) return;
    kv_scale_rule rule = a.rule;
    if (rule.storage == KV_SCALE_E4M3) rule.global = *a.global;
    const float f = kv_clip_factor(k);
    kv_scale_store(&grids[k].scale, &grids[k].minimum, &rule, low * f, high * f);
    grids[k].inverse = kv_int_inverse(grids[k].scale);
}

/* The first factor with the least error. */
static __device__ __forceinline__ int best_factor(const double *error)
{
    int best = 0;
#pragma unroll 1
    for (int k = 1; k < KV_CLIP_FACTORS; k++) best = error[k] < error[best] ? k : best;
    return best;
}

__global__ void __launch_bounds__(THREADS, 4) search_factor(const kv_cuda_search a)
{
    extern __shared__ double errors[]; /* [KV_CLIP_FACTORS][at most CHANNELS] */
    __shared__ double lanes[KV_CLIP_FACTORS * KV_CLIP_LANES], total[KV_CLIP_FACTORS];
    __shared__ grid grids[KV_CLIP_FACTORS];
    const kv_cuda_tiles &t = a.tiles;
    const kv_tile_part part = kv_tile_part_of(t, blockIdx.x);
    const int k = threadIdx.x;
    double sum = 0;
    fill_grids(grids, a, a.low[blockIdx.x], a.high[blockIdx.x]);
    for (int i = k; i < KV_CLIP_FACTORS * KV_CLIP_LANES; i += blockDim.x) lanes[i] = 0;
    __syncthreads();
    for (int64_t head = part.head; head < part.head_end; head++) {
        double of_head = 0;
        int64_t draw = 0; /* there is one */
        do {
            const float *z = t.z + head * t.head_stride + draw * t.draw_stride;
            add_errors(lanes, errors, z + part.u * t.head_dim + part.c, a, part, grids);
            if (k < KV_CLIP_FACTORS) {
                of_head += kv_clip_pairs(lanes + k * KV_CLIP_LANES);
                for (int i = 0; i < KV_CLIP_LANES; i++) lanes[k * KV_CLIP_LANES + i] = 0;
            }
            __syncthreads();
        } while (++draw < t.draws);
        sum += of_head;
    }
    if (k < KV_CLIP_FACTORS) total[k] = sum;
    __syncthreads();
    if (k > 0) return;
    const int best = best_factor(total);
    const float f = kv_clip_factor(best);
    if (a.error) a.error[blockIdx.x] = total[best];
    a.low[blockIdx.x] *= f;
    a.high[blockIdx.x] *= f;
}

kv_status kv_cuda_launch_search(const kv_cuda_search *a, kv_error *err)
{
    const kv_cuda_tiles *t = &a->tiles;
    const int64_t tiles = kv_cuda_tile_count(t);
    if (tiles < 1) return KV_OK;
    const int width = t->tile_channels < CHANNELS ? (int)t->tile_channels : CHANNELS;
    const int items = (KV_CLIP_FACTORS * width + KV_WARP - 1) / KV_WARP * KV_WARP;
    const int threads = items < LEAST ? LEAST : items > THREADS ? THREADS : items;
    const size_t shared = sizeof(double) * KV_CLIP_FACTORS * (size_t)width;
    search_factor<<<(unsigned)tiles, threads, shared>>>(*a);
    return kv_cuda_launched("search", err);
}
