/* Order statistics of every tile by radix selection, and the percentiles between them.
 *
 * One block a tile. Keys that order like the floats (order.h) are found digit by digit from the
 * top: a pass over the tile counts the next digit of the elements that share the digits found so
 * far, for all targets at once; targets that still share theirs use the first one's counts. One
 * warp a target then finds its digit among the sums. Counting is exact, whatever order it has.
 * Grid (tiles), block 128 or, for tiles of more than SMALL elements, 1024; shared 4 KiB;
 * registers: at most 32. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tiles.cuh"
#include "kernels/order.h"

enum { TARGETS = 2 * KV_CUDA_PERCENTILES, BITS = 8, DIGITS = 1 << BITS };
enum { FEW = TARGETS * KV_WARP, MANY = 1024, SMALL = 4096, FIRST = 32 - BITS, THREADS = 256 };

/* One order statistic of the block's tile while it is being found. */
typedef struct {
    uint32_t rank;   /* among the elements that share `prefix` */
    uint32_t prefix; /* the key's leading digits */
} target;

/* The first target with these leading digits, or `targets`. */
static __device__ __forceinline__ int first_of(const target *target, int targets, uint32_t prefix)
{
    int k = 0;
    while (target[k].prefix != prefix && ++k < targets) continue;
    return k;
}

/* Counts the digits above bit `left` of the tile's elements. */
static __device__ __forceinline__ void count(uint32_t counts[TARGETS][DIGITS], const target *target,
                                             const kv_cuda_select &a, const kv_tile_part &p,
                                             int left, int lanes)
{
    const kv_cuda_tiles &t = a.tiles;
    const int64_t c = p.c + threadIdx.x % lanes, u = p.u + threadIdx.x / lanes;
    int64_t head = p.head;
    do {
        int64_t draw = 0;
        do {
            const float *z = t.z + head * t.head_stride + draw * t.draw_stride;
            for (int64_t token = u; token < p.u_end; token += blockDim.x / lanes)
                for (int64_t i = c; i < p.c_end; i += lanes) {
                    const float x = z[token * t.head_dim + i];
                    if (x != x) continue;
                    const uint32_t digits = kv_order_key(x, a.is_absolute) >> left;
                    const int k = first_of(target, 2 * a.n, digits >> BITS);
                    if (k < 2 * a.n) atomicAdd(&counts[k][digits % DIGITS], 1);
                }
        } while (++draw != t.draws);
    } while (++head != p.head_end);
}

/* How many elements up to and with this lane's digits there are, of `mine` each. */
static __device__ __forceinline__ uint32_t sum_up_to(uint32_t mine)
{
    const int lane = threadIdx.x % KV_WARP;
    for (int step = 1; step < KV_WARP; step *= 2) {
        const uint32_t before = __shfl_up_sync(0xffffffffu, mine, step);
        mine += lane >= step ? before : 0;
    }
    return mine;
}

/* Target k's first rank in n elements; the last two statistics may be one. */
static __device__ __forceinline__ uint32_t rank_of(const kv_cuda_select &a, int k, uint32_t n)
{
    const double place = kv_percentile_place(k < 2 ? a.p[0] : a.p[1], n);
    const int64_t rank = (int64_t)place + k % 2;
    return (uint32_t)(rank < n ? rank : (int64_t)n - 1);
}

/* Finds the digit of *target by one warp; returns how many elements were counted. */
static __device__ __forceinline__ uint32_t advance(target *target, const uint32_t counts[DIGITS],
                                                   const kv_cuda_select &a, int k, bool is_first)
{
    enum { EACH = DIGITS / KV_WARP };
    const int first = threadIdx.x % KV_WARP * EACH;
    uint32_t mine = 0;
    for (int i = 0; i < EACH; i++) mine += counts[first + i];
    const uint32_t end = sum_up_to(mine), n = __shfl_sync(0xffffffffu, end, KV_WARP - 1);
    uint32_t rank = is_first ? rank_of(a, k, n) : target->rank;
    __syncwarp(); /* all have read what one writes */
    if (rank < end && rank >= end - mine) {
        uint32_t digit = first;
        rank -= end - mine;
        while (rank >= counts[digit]) rank -= counts[digit++];
        target->rank = rank;
        target->prefix = target->prefix << BITS | digit;
    }
    return n;
}

__global__ void __launch_bounds__(MANY) find_statistics(const kv_cuda_select a, int lanes)
{
    __shared__ uint32_t counts[TARGETS][DIGITS];
    __shared__ target found[TARGETS];
    const unsigned k = threadIdx.x / KV_WARP, targets = 2 * a.n;
    const kv_tile_part part = kv_tile_part_of(a.tiles, blockIdx.x);
    if (threadIdx.x < TARGETS) found[threadIdx.x].prefix = 0;
    for (int left = FIRST; left != -BITS; left -= BITS) {
        unsigned i = threadIdx.x;
        do counts[0][i] = 0; /* of all targets */
        while ((i += blockDim.x) < TARGETS * DIGITS);
        __syncthreads();
        count(counts, found, a, part, left, lanes);
        int from; /* the target whose counts are k's */
        if (k < targets)
            for (from = 0; found[from].prefix != found[k].prefix;) from++;
        __syncthreads();
        if (k < targets) {
            const uint32_t n = advance(&found[k], counts[from], a, k, left == FIRST);
            if (threadIdx.x == 0 && left == FIRST) a.elements[blockIdx.x] = n;
        }
        __syncthreads();
    }
    if (threadIdx.x < targets)
        a.statistics[(int64_t)blockIdx.x * targets + threadIdx.x] =
            kv_order_value(found[threadIdx.x].prefix, a.is_absolute);
}

kv_status kv_cuda_launch_select(const kv_cuda_select *a, kv_error *err)
{
    const kv_cuda_tiles *t = &a->tiles;
    const int64_t tiles = kv_tiles_of(t);
    if (tiles < 1) return KV_OK;
    const int64_t tokens = t->tile_tokens < t->tokens ? t->tile_tokens : t->tokens;
    const int64_t elements = (t->spans_heads ? t->heads : 1) * t->draws * tokens * t->tile_channels;
    if (elements > UINT32_MAX)
        return KV_FAIL(err, KV_EUNSUPPORTED,
                       "CUDA: percentiles of tiles of %lld elements; at most 2^32 - 1 are counted",
                       (long long)elements);
    const unsigned threads = elements > SMALL ? MANY : FEW;
    find_statistics<<<(unsigned)tiles, threads>>>(*a, kv_tile_lanes(t));
    return kv_cuda_launched("select", err);
}

static __device__ __forceinline__ double percentile(const kv_cuda_percentiles &a, int64_t i,
                                                    int which)
{
    const float *beside = a.statistics + (i * a.n + which) * 2;
    return kv_percentile_between(kv_percentile_place(a.p[which], a.elements[i]), beside[0],
                                 beside[1]);
}

__global__ void __launch_bounds__(THREADS) find_percentiles(const kv_cuda_percentiles a)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.tiles) return;
    const bool is_pair = a.n == 2, is_empty = a.elements[i] == 0;
    const double first = percentile(a, i, 0), last = is_pair ? percentile(a, i, 1) : first;
    if (a.is_outliers) {
        a.low[i] = kv_float_below(first), a.high[i] = kv_float_above(last);
        return;
    }
    const float low = is_empty ? INFINITY : (float)first;
    const float high = is_empty ? -INFINITY : (float)last;
    a.low[i] = is_pair ? low : 0.0f;
    a.high[i] = is_pair || !is_empty ? high : 0.0f;
}

kv_status kv_cuda_launch_percentiles(const kv_cuda_percentiles *a, kv_error *err)
{
    if (a->tiles < 1) return KV_OK;
    find_percentiles<<<kv_cuda_blocks(a->tiles, THREADS), THREADS>>>(*a);
    return kv_cuda_launched("percentiles", err);
}
