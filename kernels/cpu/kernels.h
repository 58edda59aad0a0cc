/* The inner loops of the CPU backend, one table of them per instruction set.
 *
 * A lane is a query: queries are taken VEC (16) at a time, logits and weights of a block of W
 * queries (W a multiple of 16) lie token by token, [tokens][W], so that row statistics are sums
 * down a lane in token order, and a product reads its operands in the order they are stored. No
 * result depends on the instruction set, on W or on how queries are grouped.
 *
 * A panel is what a product multiplies with: 16 columns of a matrix, [n][16]. */
#ifndef KVANT_KERNELS_CPU_KERNELS_H
#define KVANT_KERNELS_CPU_KERNELS_H

#include <stdint.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/order.h"

enum {
    KV_LANES = 16,
    KV_ROW_STEP = 8, /* rows of the products' left operand are padded to this */
    KV_TOP_KEPT = 64,
    KV_TOP_ROOM = 256,
    KV_MAGNITUDE_BINS = 1 << 10
};

/* What a query does not see: far below every logit, but finite, so that differences of hidden
 * logits are 0 and their weights are exactly 0. */
#define KV_HIDDEN_LOGIT (-1e30f)

/* 16 rows of one key scheme. */
typedef struct {
    float max[KV_LANES];         /* in */
    float err_max[KV_LANES];     /* max |l^ - l| */
    double err_square[KV_LANES]; /* sum (l^ - l)^2 */
    double sum[KV_LANES];        /* sum exp(l^ - max) */
    double cross[KV_LANES];      /* sum exact weight * (l^ - l) */
} kv_lane_sums;

/* The best tokens of 16 rows while they are found: a larger entry is a larger logit, then a lower
 * token. */
typedef struct {
    float threshold[KV_LANES];
    int count[KV_LANES];
    uint64_t entry[KV_LANES][KV_TOP_ROOM];
    uint64_t least[KV_TOP_COUNT][KV_LANES]; /* the k-th largest of kv_top_k, or the last of fewer */
} kv_lane_top;

/* Row i of panel p begins at first + p * stride + i * step. */
typedef struct {
    const float *first;
    int64_t n, stride, step;
} kv_panels;

typedef struct {
    /* logits [rows][W] = scale * (key [rows][D] . query); rows a multiple of KV_ROW_STEP;
     * panels [W/16][D][16] hold the queries. Each product accumulates over channels with fmaf. */
    void (*logits)(float *logits, const float *key, int64_t rows, int64_t head_dim,
                   const float *panels, int64_t width, float scale);
    /* The same, each panel's logits [rows][16] apart: those of panel p begin at logits + p *
     * stride.
     */
    void (*logits_apart)(float *logits, int64_t stride, const float *key, int64_t rows,
                         int64_t head_dim, const float *panels, int64_t n_panels, float scale);
    /* out [W][panels->n * 16] += sum over n tokens of weight [n][W] * panels; the tile's sum is
     * formed first (fmaf in token order), then added. out_stride in floats. */
    void (*outputs)(float *out, int64_t out_stride, const float *weights, int64_t n, int64_t width,
                    const kv_panels *panels);
    /* panels [n_panels][n][16] = columns first ... of x [n][D], zero past D. */
    void (*pack)(float *panels, int64_t n_panels, const float *x, int64_t n, int64_t head_dim,
                 int64_t first_column);

    /* Down 16 lanes of l [n][W] (W is the stride): */
    void (*row_hide)(float *l, int64_t width, int64_t from, int64_t to, const float first[KV_LANES],
                     const float end[KV_LANES]);
    void (*row_max)(float max[KV_LANES], const float *l, int64_t width, int64_t n);
    /* weights = exp(l - max), and their sums */
    void (*row_weights)(float *weights, double sum[KV_LANES], const float *l,
                        const float max[KV_LANES], int64_t width, int64_t n);
    /* l^ becomes exp(l^ - max); sums as in kv_lane_sums */
    void (*row_compare)(kv_lane_sums *sums, float *quantized, const float *exact,
                        const float *exact_weights, int64_t width, int64_t n);
    /* sum |p - p^| of p = exact weight * exact_inverse, p^ = weight * inverse; then weights below
     * KV_LEAST_WEIGHT become 0 */
    void (*row_finish)(double variation[KV_LANES], float *weights, const float *exact_weights,
                       const float exact_inverse[KV_LANES], const float inverse[KV_LANES],
                       int64_t width, int64_t n);
    /* the KV_TOP_KEPT best tokens of each lane: for every k of kv_top_k the k best come first */
    void (*row_top)(kv_lane_top *top, const float *l, int64_t width, int64_t n);

    /* max |x|; infinite where a number is NaN or infinite */
    float (*largest_magnitude)(const float *x, int64_t n);
    /* bins [KV_MAGNITUDE_BINS] count the |x| whose bits lie in first ... last by
     * (bits - first) >> shift; returns how many lie below first */
    int64_t (*count_magnitudes)(uint32_t *bins, const float *x, int64_t n, uint32_t first,
                                uint32_t last, int shift);

    /* Sums in double, element i in lane i mod 16, lanes added pairwise. */
    double (*sum_square)(const float *x, int64_t n);
    double (*sum_square_difference)(const float *x, const float *y, int64_t n);
    /* sum (x * a - y * b)^2 in double */
    double (*sum_square_scaled_difference)(const float *x, double a, const float *y, double b,
                                           int64_t n);

    /* For the benchmarks: n rounds of independent register-only FMAs, returns flop done (*sink
     * keeps them alive); and a sum over x, all of it read. */
    double (*burn_fma)(float *sink, int64_t rounds);
    float (*read_all)(const float *x, int64_t n);
} kv_cpu_kernels;

/* The table of one instruction set; the caller answers for the processor having it. */
const kv_cpu_kernels *kv_cpu_kernels_of(kv_isa isa);

#endif
