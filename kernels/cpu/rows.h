/* Statistics of rows of logits, 16 queries at a time, and sums of squares: see kernels.h. Included
 * by variant.c. */
#ifndef KVANT_KERNELS_CPU_ROWS_H
#define KVANT_KERNELS_CPU_ROWS_H

#include <float.h>
#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vector.h"

static void row_hide(float *l, int64_t width, int64_t from, int64_t to, const float first[KV_LANES],
                     const float end[KV_LANES])
{
    vec const low = vec_load(first), high = vec_load(end), hidden = vec_all(KV_HIDDEN_LOGIT);
    for (int64_t t = from; t < to; t++) {
        vec const token = vec_all((float)t);
        vec const seen = vec_if_less(token, high, vec_load(l + t * width), hidden);
        vec_store(l + t * width, vec_if_less(token, low, hidden, seen));
    }
}

static void row_max(float max[KV_LANES], const float *l, int64_t width, int64_t n)
{
    vec m = vec_all(KV_HIDDEN_LOGIT);
    for (int64_t t = 0; t < n; t++) m = vec_max(m, vec_load(l + t * width));
    vec_store(max, m);
}

static void row_weights(float *weights, double sum[KV_LANES], const float *l,
                        const float max[KV_LANES], int64_t width, int64_t n)
{
    vec const m = vec_load(max);
    vecd s = vecd_zero();
    for (int64_t t = 0; t < n; t++) {
        vec const w = vec_exp(vec_sub(vec_load(l + t * width), m));
        vec_store(weights + t * width, w);
        s = vecd_add(s, w);
    }
    vecd_store(sum, s);
}

static void row_compare(kv_lane_sums *sums, float *quantized, const float *exact,
                        const float *exact_weights, int64_t width, int64_t n)
{
    vec const max = vec_load(sums->max);
    vec err_max = vec_all(0);
    vecd err_square = vecd_zero(), sum = vecd_zero(), cross = vecd_zero();
    for (int64_t t = 0; t < n; t++) {
        vec const q = vec_load(quantized + t * width);
        vec const d = vec_sub(q, vec_load(exact + t * width)), w = vec_exp(vec_sub(q, max));
        vec_store(quantized + t * width, w);
        err_max = vec_max(vec_abs(d), err_max);
        err_square = vecd_add_square(err_square, d);
        sum = vecd_add(sum, w);
        cross = vecd_add(cross, vec_mul(vec_load(exact_weights + t * width), d));
    }
    vec_store(sums->err_max, err_max);
    vecd_store(sums->err_square, err_square);
    vecd_store(sums->sum, sum);
    vecd_store(sums->cross, cross);
}

static void row_finish(double variation[KV_LANES], float *weights, const float *exact_weights,
                       const float exact_inverse[KV_LANES], const float inverse[KV_LANES],
                       int64_t width, int64_t n)
{
    vec const a = vec_load(exact_inverse), b = vec_load(inverse);
    vec const least = vec_all(KV_LEAST_WEIGHT), zero = vec_all(0);
    vecd sum = vecd_zero();
    for (int64_t t = 0; t < n; t++) {
        vec const w = vec_load(weights + t * width);
        vec const p = vec_mul(vec_load(exact_weights + t * width), a);
        sum = vecd_add(sum, vec_abs(vec_sub(p, vec_mul(w, b))));
        vec_store(weights + t * width, vec_if_less(w, least, zero, w));
    }
    vecd_store(variation, sum);
}

/* The k largest of `count` entries come first, entry[k - 1] the least of them (Hoare's selection);
 * entries differ. */
static void select_largest(uint64_t *entry, int count, int k)
{
    int low = 0, high = count - 1;
    while (low < high) {
        uint64_t const pivot = entry[low + (high - low) / 2];
        int i = low, j = high;
        while (i <= j) {
            while (entry[i] > pivot) i++;
            while (entry[j] < pivot) j--;
            if (i <= j) {
                uint64_t const swapped = entry[i];
                entry[i++] = entry[j], entry[j--] = swapped;
            }
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            return;
    }
}

/* A first threshold: tokens fall into GROUPS by their number; below the KV_TOP_KEPT largest maxima
 * of the groups lie none of the KV_TOP_KEPT largest logits. Bisection finds a number that at least
 * KV_TOP_KEPT maxima exceed, and not many more. */
static void start_top(kv_lane_top *top, const float *l, int64_t width, int64_t n)
{
    enum { GROUPS = 256, STEPS = 8 };
    float maxima[GROUPS][KV_LANES];
    vec const hidden = vec_all(KV_HIDDEN_LOGIT), zero = vec_all(0), one = vec_all(1);
    vec const wanted = vec_all(KV_TOP_KEPT), half = vec_all(0.5f);
    for (int g = 0; g < GROUPS; g++) vec_store(maxima[g], hidden);
    for (int64_t t0 = 0; t0 < n; t0 += GROUPS)
        for (int64_t t = t0; t < n && t < t0 + GROUPS; t++)
            vec_store(maxima[t - t0], vec_max(vec_load(maxima[t - t0]), vec_load(l + t * width)));
    vec low = vec_load(maxima[0]), high = low, threshold = hidden;
    for (int g = 1; g < GROUPS; g++) {
        vec const m = vec_load(maxima[g]);
        low = vec_if_less(m, low, m, low), high = vec_max(m, high);
    }
    for (int step = 0; step <= STEPS; step++) { /* the first step tries low itself */
        vec const middle = step == 0 ? low : vec_mul(vec_add(low, high), half);
        vec count = zero;
        for (int g = 0; g < GROUPS; g++)
            count = vec_add(count, vec_if_less(middle, vec_load(maxima[g]), one, zero));
        threshold = vec_if_less(count, wanted, threshold, middle);
        low = vec_if_less(count, wanted, low, middle);
        high = vec_if_less(count, wanted, middle, high);
    }
    vec_store(top->threshold, threshold);
    for (int lane = 0; lane < KV_LANES; lane++) top->count[lane] = 0;
}

/* For every k of kv_top_k, from the largest on: the k best come first, and which is the last. */
static void end_top(kv_lane_top *top, int lane)
{
    uint64_t *const entry = top->entry[lane];
    int count = top->count[lane];
    for (int e = KV_TOP_COUNT - 1; e >= 0; e--) {
        uint64_t least = UINT64_MAX;
        if (count > kv_top_k[e]) select_largest(entry, count, (int)kv_top_k[e]);
        if (count > kv_top_k[e]) count = (int)kv_top_k[e];
        for (int i = 0; i < count; i++) least = entry[i] < least ? entry[i] : least;
        top->least[e][lane] = least;
    }
    if (top->count[lane] > KV_TOP_KEPT) top->count[lane] = KV_TOP_KEPT;
}

/* A later token that only equals the least kept logit ranks behind it, so a strict comparison with
 * the threshold loses nothing. */
static void row_top(kv_lane_top *top, const float *l, int64_t width, int64_t n)
{
    start_top(top, l, width, n);
    for (int64_t t = 0; t < n; t++) {
        const float *const row = l + t * width;
        uint32_t bits = vec_greater(vec_load(row), vec_load(top->threshold));
        for (; bits; bits &= bits - 1) {
            uint32_t const lane = lowest_bit(bits);
            uint64_t *const entry = top->entry[lane];
            entry[top->count[lane]++] = kv_top_entry(row[lane], t);
            if (top->count[lane] < KV_TOP_ROOM) continue;
            select_largest(entry, KV_TOP_ROOM, KV_TOP_KEPT);
            top->count[lane] = KV_TOP_KEPT;
            top->threshold[lane] = kv_top_logit(entry[KV_TOP_KEPT - 1]);
        }
    }
    for (int lane = 0; lane < KV_LANES; lane++) end_top(top, lane);
}

static float largest_magnitude(const float *x, int64_t n)
{
    vec m = vec_all(0);
    float lanes[VEC], largest = 0;
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) { /* a NaN is not less than anything and stays */
        vec const magnitude = vec_abs(vec_load(x + i));
        m = vec_if_less(magnitude, m, m, magnitude);
        m = vec_if_less(vec_sub(magnitude, magnitude), vec_all(1), m, vec_all(INFINITY));
    }
    vec_store(lanes, m);
    for (; i < n; i++) {
        float const magnitude = fabsf(x[i]);
        lanes[0] = magnitude <= FLT_MAX ? fmaxf(lanes[0], magnitude) : INFINITY;
    }
    for (i = 0; i < VEC; i++) largest = fmaxf(largest, lanes[i]);
    return largest;
}

/* bins [KV_MAGNITUDE_BINS] count |x| of bits first ... last by (bits - first) >> shift; returns how
 * many lie below. The filter compares floats, 16 at a time; what passes is picked out. */
static int64_t count_magnitudes(uint32_t *bins, const float *x, int64_t n, uint32_t first,
                                uint32_t last, int shift)
{
    enum { PART = 1024 };
    float picked[PART + VEC], above = -1, up_to;
    uint32_t const before = first - 1;
    int64_t below = 0;
    if (first > 0) memcpy(&above, &before, sizeof above);
    memcpy(&up_to, &last, sizeof up_to);
    vec const low = vec_all(above), high = vec_all(up_to), zero = vec_all(0), one = vec_all(1);
    for (int64_t i = 0; i < n;) {
        int64_t const pause = n - i > PART ? i + PART : n;
        int n_picked = 0;
        vec count = zero;
        float lanes[VEC];
        for (; i + VEC <= pause; i += VEC) {
            vec const magnitude = vec_abs(vec_load(x + i));
            uint32_t const in = vec_greater(magnitude, low) & ~vec_greater(magnitude, high);
            count = vec_add(count, vec_if_less(low, magnitude, zero, one));
            n_picked += vec_pick(picked + n_picked, magnitude, in);
        }
        vec_store(lanes, count);
        for (int lane = 0; lane < VEC; lane++) below += (int64_t)lanes[lane];
        for (; i < pause; i++) {
            float const magnitude = fabsf(x[i]);
            below += !(magnitude > above);
            if (magnitude > above && !(magnitude > up_to)) picked[n_picked++] = magnitude;
        }
        for (int k = 0; k < n_picked; k++) {
            uint32_t bits;
            memcpy(&bits, &picked[k], sizeof bits);
            bins[(bits - first) >> shift]++;
        }
    }
    return below;
}

static inline double sum_lanes(const double s[VEC])
{
    double const a = (s[0] + s[1]) + (s[2] + s[3]), b = (s[4] + s[5]) + (s[6] + s[7]);
    double const c = (s[8] + s[9]) + (s[10] + s[11]), d = (s[12] + s[13]) + (s[14] + s[15]);
    return (a + b) + (c + d);
}

static double sum_square(const float *x, int64_t n)
{
    vecd s = vecd_zero();
    double lanes[VEC];
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) s = vecd_add_square(s, vec_load(x + i));
    vecd_store(lanes, s);
    for (; i < n; i++) lanes[i % VEC] += (double)x[i] * (double)x[i];
    return sum_lanes(lanes);
}

static double sum_square_difference(const float *x, const float *y, int64_t n)
{
    vecd s = vecd_zero();
    double lanes[VEC];
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        s = vecd_add_square(s, vec_sub(vec_load(x + i), vec_load(y + i)));
    vecd_store(lanes, s);
    for (; i < n; i++) {
        float const d = x[i] - y[i];
        lanes[i % VEC] += (double)d * (double)d;
    }
    return sum_lanes(lanes);
}

static double sum_square_scaled_difference(const float *x, double a, const float *y, double b,
                                           int64_t n)
{
    double lanes[VEC] = {0};
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        for (int64_t j = 0; j < VEC; j++) {
            double const d = (double)x[i + j] * a - (double)y[i + j] * b;
            lanes[j] += d * d;
        }
    for (; i < n; i++) {
        double const d = (double)x[i] * a - (double)y[i] * b;
        lanes[i % VEC] += d * d;
    }
    return sum_lanes(lanes);
}

#endif
