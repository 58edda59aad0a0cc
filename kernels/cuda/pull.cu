/* Pulls of queries to their targets: pull.h has the search, pull.c is the same on the CPU.
 *
 * One block a row, one thread each of the KV_PULL_LANES sums over tokens; all threads do the same
 * search. A thread keeps to its channels, every THREADS-th, so that what a channel needs of others
 * is the one number after each barrier. Reductions take turns with two arrays and are functions of
 * their own, which their callers share.
 * Grid (rows of a launch, heads), block 256, shared 4 KiB; registers: at most 80, three blocks a
 * multiprocessor. */
#include "kernels/cuda/launch.h"

enum { THREADS = KV_PULL_LANES };

/* The row of a block, in the memory it works in. */
typedef struct {
    const float *key;
    const double *sum, *factor;
    double *query, *direction, *logit, *slope; /* [D], [D], [T], [T] */
    int64_t tokens, head_dim;
    double softmax_scale;
} row;

static __device__ __noinline__ double largest_of_all(double x, double *shared)
{
    return kv_block_max<THREADS>(x, shared);
}

static __device__ __noinline__ double sum_of_all(double x, double *shared)
{
    return kv_block_sum<THREADS>(x, shared);
}

/* x becomes C^-1 x, with C = factor * factor'; each channel is divided last of all that it takes
 * others off, downwards and then upwards. */
static __device__ __forceinline__ void divide(double *x, const double *factor, int64_t d)
{
    unsigned step = 0;
#pragma unroll 1
    do {
        const bool is_upwards = step >= d;
        const unsigned i = is_upwards ? 2 * (unsigned)d - 1 - step : step;
        if (threadIdx.x == i % THREADS) x[i] /= factor[i * d + i];
        __syncthreads();
#pragma unroll 1
        for (int64_t j = threadIdx.x; j < d; j += THREADS) {
            if (is_upwards ? j < i : j > i)
                x[j] -= factor[is_upwards ? i * d + j : j * d + i] * x[i];
        }
    } while (++step != 2 * d);
}

/* The direction of length 1 that sets tokens [begin, end) apart. */
static __device__ __forceinline__ void aim(const row &r, int64_t begin, int64_t end)
{
    const int64_t d = r.head_dim;
    double square = 0;
#pragma unroll 1
    for (int64_t c = threadIdx.x; c < d; c += THREADS) {
        double sum = 0;
        int64_t t = begin;
#pragma unroll 1
        do sum += (double)r.key[t * d + c];
        while (++t != end);
        r.direction[c] = sum / (double)(end - begin) - r.sum[c] / (double)r.tokens;
    }
    divide(r.direction, r.factor, d);
    __syncthreads();
    int64_t channel = 0;
#pragma unroll 1
    do square += r.direction[channel] * r.direction[channel];
    while (++channel != d);
    __syncthreads();
    const double length = square > 0 ? sqrt(square) : 1;
#pragma unroll 1
    for (int64_t c = threadIdx.x; c < d; c += THREADS) r.direction[c] /= length;
    __syncthreads();
}

/* Logit and slope of each token seen, and the search with the largest of each. */
static __device__ __forceinline__ kv_pull_search project(const row &r, const kv_pull &to,
                                                         double shared[2][THREADS])
{
    double logit = 0, slope = 0;
#pragma unroll 1
    for (int64_t t = to.seen_begin + threadIdx.x; t < to.seen_end; t += THREADS) {
        double l, s;
        kv_pull_products(&l, &s, r.query, r.direction, r.key + t * r.head_dim, r.head_dim);
        r.logit[t] = l *= r.softmax_scale, r.slope[t] = s *= r.softmax_scale;
        logit = kv_pull_larger(logit, fabs(l));
        slope = kv_pull_larger(slope, fabs(s));
    }
    logit = largest_of_all(logit, shared[0]);
    slope = largest_of_all(slope, shared[1]);
    return kv_pull_begin(slope, logit, to.target);
}

/* How far the row is from its target at factor a. */
static __device__ __forceinline__ double distance(const row &r, const kv_pull &to, double a,
                                                  double shared[2][THREADS])
{
    double in = -INFINITY, out = -INFINITY, inside = 0, outside = 0;
#pragma unroll 1
    for (int64_t t = to.seen_begin + threadIdx.x; t < to.seen_end; t += THREADS) {
        const double logit = r.logit[t] + a * r.slope[t];
        if (t >= to.begin && t < to.end)
            in = kv_pull_larger(in, logit);
        else
            out = kv_pull_larger(out, logit);
    }
    in = largest_of_all(in, shared[0]);
    out = largest_of_all(out, shared[1]);
    if (to.is_margin) return in - out - to.target;
    const double top = kv_pull_larger(in, out);
#pragma unroll 1
    for (int64_t t = to.seen_begin + threadIdx.x; t < to.seen_end; t += THREADS) {
        const double weight = kv_exp(r.logit[t] + a * r.slope[t] - top);
        if (t >= to.begin && t < to.end)
            inside += weight;
        else
            outside += weight;
    }
    inside = sum_of_all(inside, shared[0]);
    outside = sum_of_all(outside, shared[1]);
    return kv_pull_odds(inside, outside) - to.target;
}

/* Adds the pull to the query, or leaves it where the target is out of reach. */
static __device__ __forceinline__ kv_pull_result pull_to(const row &r, const kv_pull &to,
                                                         double shared[2][THREADS])
{
    const bool is_last = to.end == to.seen_end;
    double away = INFINITY;
    int64_t n = to.end - to.begin;
#pragma unroll 1
    do {
        aim(r, is_last ? to.end - n : to.begin, is_last ? to.end : to.begin + n);
        kv_pull_search s = project(r, to, shared);
#pragma unroll 1
        while (kv_pull_next(&s)) kv_pull_note(&s, distance(r, to, s.a, shared));
        if (s.is_across) {
#pragma unroll 1
            for (int64_t c = threadIdx.x; c < r.head_dim; c += THREADS)
                r.query[c] += s.high_a * r.direction[c];
            return {s.high_a, s.high_f, 1};
        }
        if (fabs(s.closest) < fabs(away)) away = s.closest;
    } while ((n /= 2) > 0);
    return {0, away, 0};
}

__global__ void __launch_bounds__(THREADS, 3) pull(const kv_cuda_pull a)
{
    __shared__ double shared[2][THREADS];
    const int64_t d = a.head_dim, head = blockIdx.y, at = head * a.rows + a.first_row + blockIdx.x;
    double *scratch = a.scratch + (head * a.n + blockIdx.x) * kv_pull_scratch(a.tokens, d);
    const row r = {a.key + head * a.tokens * d,
                   a.sum + head * d,
                   a.factor + head * d * d,
                   scratch,
                   scratch + d,
                   scratch + 2 * d,
                   scratch + 2 * d + a.tokens,
                   a.tokens,
                   d,
                   a.softmax_scale};
#pragma unroll 1
    for (int64_t c = threadIdx.x; c < d; c += THREADS) r.query[c] = (double)a.query[at * d + c];
#pragma unroll 1
    for (int i = 0; i < KV_PULLS; i++) {
        const kv_pull to = a.pulls[at * KV_PULLS + i];
        kv_pull_result result = {0, 0, 1};
        if (to.begin < to.end) result = pull_to(r, to, shared);
        if (threadIdx.x == 0) a.result[at * KV_PULLS + i] = result;
    }
#pragma unroll 1
    for (int64_t c = threadIdx.x; c < d; c += THREADS) a.query[at * d + c] = (float)r.query[c];
}

kv_status kv_cuda_launch_pull(const kv_cuda_pull *a, kv_error *err)
{
    if (a->heads < 1 || a->n < 1) return KV_OK;
    pull<<<dim3((unsigned)a->n, (unsigned)a->heads), THREADS>>>(*a);
    return kv_cuda_launched("pull", err);
}
