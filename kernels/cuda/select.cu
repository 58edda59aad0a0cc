/* Order statistics of every tile by radix selection, and the percentiles between them.
 *
 * Keys that order like the floats (order.h) are found digit by digit from the top: a pass over the
 * tile counts the next digit of the elements that share the digits found so far, for all targets at
 * once; targets that still share theirs use the first one's counts. One warp a target then finds
 * its digit among the sums. Counting is exact, whatever order it has. One block does all of that
 * for its tile; where tiles are few and large, several count a part each, and a launch between two
 * digits finds them.
 *  find_statistics  grid (tiles), block 128 or, for tiles of more than SMALL elements, 1024
 *  count_part       grid (tiles, parts), block 1024
 *  find_digit       grid (tiles), block 128
 *  find_percentiles grid (tiles / 256), block 256
 * Shared 4 KiB (find_digit: none); registers: at most 32 (find_digit: 40). */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tiles.cuh"
#include "kernels/order.h"

enum { TARGETS = KV_CUDA_TARGETS, BITS = 8, DIGITS = KV_CUDA_DIGITS };
enum { FEW = TARGETS * KV_WARP, MANY = 1024, SMALL = 4096, FIRST = 32 - BITS, THREADS = 256 };
static_assert(DIGITS == 1 << BITS, "as many as digits have bits");

typedef kv_cuda_target target;

/* The first target with these leading digits, or `targets`. */
static __device__ __forceinline__ int first_of(const target *target, int targets, uint32_t prefix)
{
    int k = 0;
    while (target[k].prefix != prefix && ++k < targets) continue;
    return k;
}

/* Counts the digits above bit `left` of the tile's elements, or of one of its parts. */
static __device__ __forceinline__ void count(uint32_t counts[TARGETS][DIGITS], const target *target,
                                             const kv_cuda_select &a, const kv_tile_part &p,
                                             int left, int lanes, unsigned part, unsigned parts)
{
    const kv_cuda_tiles &t = a.tiles;
    const int64_t c = p.c + threadIdx.x % lanes;
    const int64_t u = p.u + (part * blockDim.x + threadIdx.x) / lanes;
    int64_t head = p.head;
    do {
        int64_t draw = 0;
        do {
            const float *z = t.z + head * t.head_stride + draw * t.draw_stride;
            for (int64_t token = u; token < p.u_end; token += parts * blockDim.x / lanes)
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

/* The next digit of every target of a tile, by one warp each. */
static __device__ __forceinline__ void advance_all(target *found, uint32_t counts[TARGETS][DIGITS],
                                                   const kv_cuda_select &a, int left)
{
    const unsigned k = threadIdx.x / KV_WARP, targets = 2 * a.n;
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

static __device__ __forceinline__ void zero(uint32_t counts[TARGETS][DIGITS])
{
    unsigned i = threadIdx.x;
    do counts[0][i] = 0; /* of all targets */
    while ((i += blockDim.x) < TARGETS * DIGITS);
}

static __device__ __forceinline__ void store(const target *found, const kv_cuda_select &a)
{
    const unsigned targets = 2 * a.n;
    if (threadIdx.x < targets)
        a.statistics[(int64_t)blockIdx.x * targets + threadIdx.x] =
            kv_order_value(found[threadIdx.x].prefix, a.is_absolute);
}

__global__ void __launch_bounds__(MANY) find_statistics(const kv_cuda_select a, int lanes)
{
    __shared__ uint32_t counts[TARGETS][DIGITS];
    __shared__ target found[TARGETS];
    const kv_tile_part tile = kv_tile_part_of(a.tiles, blockIdx.x);
    if (threadIdx.x < TARGETS) found[threadIdx.x].prefix = 0;
    for (int left = FIRST; left != -BITS; left -= BITS) {
        zero(counts);
        __syncthreads();
        count(counts, found, a, tile, left, lanes, 0, 1);
        advance_all(found, counts, a, left);
    }
    store(found, a);
}

__global__ void __launch_bounds__(MANY) count_part(const kv_cuda_select a, int left, int lanes)
{
    __shared__ uint32_t counts[TARGETS][DIGITS];
    __shared__ target found[TARGETS];
    kv_cuda_select_work *work = a.work + blockIdx.x;
    if (threadIdx.x < TARGETS) found[threadIdx.x] = work->found[threadIdx.x];
    counts[0][threadIdx.x] = 0;
    __syncthreads();
    count(counts, found, a, kv_tile_part_of(a.tiles, blockIdx.x), left, lanes, blockIdx.y,
          gridDim.y);
    __syncthreads();
    atomicAdd(&work->counts[0][threadIdx.x], counts[0][threadIdx.x]);
}
static_assert(TARGETS * DIGITS == MANY, "a thread each count");

__global__ void __launch_bounds__(FEW) find_digit(const kv_cuda_select a, int left)
{
    kv_cuda_select_work *work = a.work + blockIdx.x;
    advance_all(work->found, work->counts, a, left);
    zero(work->counts);
    store(work->found, a);
}

static kv_status select_in_parts(const kv_cuda_select &a, unsigned tiles, kv_error *err)
{
    for (int left = FIRST; left != -BITS; left -= BITS) {
        count_part<<<dim3(tiles, (unsigned)a.parts), MANY>>>(a, left, kv_tile_lanes(&a.tiles));
        kv_status status = kv_cuda_launched("select (count_part)", err);
        if (status != KV_OK) return status;
        find_digit<<<tiles, FEW>>>(a, left);
        status = kv_cuda_launched("select (find_digit)", err);
        if (status != KV_OK) return status;
    }
    return KV_OK;
}

kv_status kv_cuda_launch_select(const kv_cuda_select *a, kv_error *err)
{
    const int64_t tiles = kv_cuda_tile_count(&a->tiles),
                  elements = kv_cuda_tile_elements(&a->tiles);
    if (tiles < 1) return KV_OK;
    if (elements > UINT32_MAX)
        return KV_FAIL(err, KV_EUNSUPPORTED,
                       "CUDA: percentiles of tiles of %lld elements; at most 2^32 - 1 are counted",
                       (long long)elements);
    if (a->parts > 1) return select_in_parts(*a, (unsigned)tiles, err);
    const unsigned threads = elements > SMALL ? MANY : FEW;
    find_statistics<<<(unsigned)tiles, threads>>>(*a, kv_tile_lanes(&a->tiles));
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
