/* The loops of quantize_rows.h, compiled once per instruction set (isa.h).
 *
 * Grids are one value function and one code function per format (grid.h); the loops around them are
 * written once and expanded over the format table. */
#include "kernels/quantize_rows.h"

#include <math.h>
#include <string.h>

#include "kernels/grid.h"

/* ---- loops over rows for one grid ---- */

#define KV_GRID_LOOPS(name)                                                                        \
    static void name##_decode_channels(float *restrict y, const float *restrict x,                 \
                                       const kv_grid_piece *p)                                     \
    {                                                                                              \
        const float *restrict scale = p->scale, *restrict inverse = p->inverse;                    \
        const float *restrict minimum = p->minimum;                                                \
        float const limit = p->limit;                                                              \
        for (int64_t t = 0; t < p->tokens; t++)                                                    \
            for (int64_t c = 0, i = t * p->stride, n = p->channels; c < n; c++)                    \
                y[i + c] = kv_##name##_value(x[i + c], scale[c], inverse[c], minimum[c], limit);   \
    }                                                                                              \
    static void name##_decode_tokens(float *restrict y, const float *restrict x,                   \
                                     const kv_grid_piece *p)                                       \
    {                                                                                              \
        float const limit = p->limit;                                                              \
        for (int64_t t = 0; t < p->tokens; t++) {                                                  \
            float const s = p->scale[t * p->step], m = p->minimum[t * p->step];                    \
            float const inverse = kv_int_inverse(s);                                               \
            for (int64_t c = 0, i = t * p->stride, n = p->channels; c < n; c++)                    \
                y[i + c] = kv_##name##_value(x[i + c], s, inverse, m, limit);                      \
        }                                                                                          \
    }                                                                                              \
    static void name##_codes(uint32_t *restrict codes, const float *restrict x,                    \
                             const kv_grid_piece *p)                                               \
    {                                                                                              \
        for (int64_t t = 0; t < p->tokens; t++)                                                    \
            for (int64_t c = 0, i = t * p->stride; c < p->channels; c++)                           \
                codes[i + c] = kv_##name##_code(x[i + c], p->scale[c], p->inverse[c],              \
                                                p->minimum[c], p->limit);                          \
    }                                                                                              \
    static void name##_errors(double *restrict error, const float *restrict x,                     \
                              const kv_grid_piece *p)                                              \
    {                                                                                              \
        const float *restrict scale = p->scale, *restrict inverse = p->inverse;                    \
        const float *restrict minimum = p->minimum;                                                \
        float const limit = p->limit;                                                              \
        for (int64_t t = 0; t < p->tokens; t++)                                                    \
            for (int64_t c = 0, i = t * p->stride, n = p->channels; c < n; c++) {                  \
                float const v =                                                                    \
                    kv_##name##_value(x[i + c], scale[c], inverse[c], minimum[c], limit);          \
                double const d = (double)v - (double)x[i + c];                                     \
                error[c] += x[i + c] == x[i + c] ? d * d : 0.0;                                    \
            }                                                                                      \
    }

KV_GRID_LOOPS(symmetric)
KV_GRID_LOOPS(asymmetric)

/* Blocks own scale and range; `decode_tokens` and `codes` alone, scale unused. */
#define KV_BLOCK_LOOPS(name)                                                                       \
    static void name##_decode_tokens(float *restrict y, const float *restrict x,                   \
                                     const kv_grid_piece *p)                                       \
    {                                                                                              \
        for (int64_t t = 0; t < p->tokens; t++)                                                    \
            for (int64_t c = 0, i = t * p->stride; c < p->channels; c += 32) {                     \
                struct kv_##name##_block block;                                                    \
                kv_##name##_encode_block(&block, x + i + c);                                       \
                kv_##name##_decode_block(y + i + c, &block);                                       \
            }                                                                                      \
    }                                                                                              \
    static void name##_codes(uint32_t *restrict codes, const float *restrict x,                    \
                             const kv_grid_piece *p)                                               \
    {                                                                                              \
        for (int64_t t = 0; t < p->tokens; t++)                                                    \
            for (int64_t c = 0, i = t * p->stride; c < p->channels; c += 32) {                     \
                struct kv_##name##_block block;                                                    \
                kv_##name##_encode_block(&block, x + i + c);                                       \
                kv_##name##_block_codes(codes + i + c, &block);                                    \
            }                                                                                      \
    }

#define KV_LOOPS_EXACT(name)
#define KV_LOOPS_INTEGER(name)
#define KV_LOOPS_FLOAT(name)          KV_GRID_LOOPS(grid_##name)
#define KV_LOOPS_BLOCK(name)          KV_BLOCK_LOOPS(name)
#define KV_ROW(name, NAME, KIND, ...) KV_LOOPS_##KIND(name)
KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW

/* ---- statistics ---- */

static inline int32_t magnitude_bits(float x)
{
    return (int32_t)(kv_float_bits(x) & 0x7fffffffu);
}

enum { INFINITE_BITS = 0x7f800000 };

static bool all_finite(const float *x, int64_t n)
{
    int32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t const bits = magnitude_bits(x[i]);
        largest = bits > largest ? bits : largest;
    }
    return largest < INFINITE_BITS;
}

static void round_f16(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = kv_f16_round(x[i]);
}

/* A comparison with NaN is false, so kept outliers leave the running value alone. */
static inline float larger(float running, float x)
{
    return x > running ? x : running;
}
static inline float smaller(float running, float x)
{
    return x < running ? x : running;
}

static void absmax_channels(float *restrict high, const float *restrict x, int64_t tokens,
                            int64_t channels)
{
    int64_t t = 0;
    for (; t + 4 <= tokens; t += 4) {
        const float *restrict a = x + t * channels, *restrict b = a + channels;
        const float *restrict d = b + channels, *restrict e = d + channels;
        for (int64_t c = 0; c < channels; c++) {
            float const h = larger(larger(high[c], fabsf(a[c])), fabsf(b[c]));
            high[c] = larger(larger(h, fabsf(d[c])), fabsf(e[c]));
        }
    }
    for (; t < tokens; t++)
        for (int64_t c = 0; c < channels; c++)
            high[c] = larger(high[c], fabsf(x[t * channels + c]));
}

static void extremes_channels(float *restrict low, float *restrict high, const float *restrict x,
                              int64_t tokens, int64_t channels)
{
    int64_t t = 0;
    for (; t + 2 <= tokens; t += 2) {
        const float *restrict a = x + t * channels, *restrict b = a + channels;
        for (int64_t c = 0; c < channels; c++) {
            low[c] = smaller(smaller(low[c], a[c]), b[c]);
            high[c] = larger(larger(high[c], a[c]), b[c]);
        }
    }
    for (; t < tokens; t++)
        for (int64_t c = 0; c < channels; c++) {
            low[c] = smaller(low[c], x[t * channels + c]);
            high[c] = larger(high[c], x[t * channels + c]);
        }
}

/* Integers whose order is that of the floats; reductions over integers vectorize by themselves. */
static inline int32_t order_bits(float x)
{
    int32_t const bits = (int32_t)kv_float_bits(x);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}
static inline float order_float(int32_t order)
{
    return kv_bits_float((uint32_t)(order ^ ((order >> 31) & 0x7fffffff)));
}

static void absmax_tokens(float *high, int64_t step, const float *restrict x, int64_t tokens,
                          int64_t channels, int64_t stride)
{
    for (int64_t t = 0; t < tokens; t++) {
        int32_t largest = 0;
        for (int64_t c = 0; c < channels; c++) {
            int32_t const bits = magnitude_bits(x[t * stride + c]);
            int32_t const plain = bits > INFINITE_BITS ? 0 : bits;
            largest = plain > largest ? plain : largest;
        }
        high[t * step] = larger(high[t * step], kv_bits_float((uint32_t)largest));
    }
}

static void extremes_tokens(float *low, float *high, int64_t step, const float *restrict x,
                            int64_t tokens, int64_t channels, int64_t stride)
{
    int32_t const most = INFINITE_BITS, least = order_bits(-INFINITY);
    for (int64_t t = 0; t < tokens; t++) {
        int32_t smallest = most, largest = least;
        for (int64_t c = 0; c < channels; c++) {
            float const value = x[t * stride + c];
            bool const is_kept = magnitude_bits(value) > INFINITE_BITS;
            int32_t const order = order_bits(value);
            int32_t const under = is_kept ? most : order, over = is_kept ? least : order;
            smallest = under < smallest ? under : smallest;
            largest = over > largest ? over : largest;
        }
        low[t * step] = smaller(low[t * step], order_float(smallest));
        high[t * step] = larger(high[t * step], order_float(largest));
    }
}

/* ---- transforms ---- */

static void sum_channels(double *restrict sum, const float *restrict x, int64_t tokens,
                         int64_t channels)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0; c < channels; c++) sum[c] += (double)x[t * channels + c];
}

#define KV_CHANNEL_LOOP(name, expression)                                                          \
    static void name(float *restrict x, const float *restrict p, int64_t tokens, int64_t channels) \
    {                                                                                              \
        for (int64_t t = 0; t < tokens; t++)                                                       \
            for (int64_t c = 0, i = t * channels; c < channels; c++) x[i + c] = expression;        \
    }
KV_CHANNEL_LOOP(add_channels, x[i + c] + p[c])
KV_CHANNEL_LOOP(subtract_channels, x[i + c] - p[c])
KV_CHANNEL_LOOP(multiply_channels, x[i + c] * p[c])
KV_CHANNEL_LOOP(divide_channels, x[i + c] / p[c])

/* One level of the transform in constant geometry (Pease): neighbours are added and subtracted, the
 * sums go to the lower half. After log2(size) levels every index bit was used once, lowest first,
 * and the order is natural again: each output has the additions of the textbook butterfly with
 * strides 1, 2, 4 ... */
static void hadamard_level(float *restrict out, const float *restrict in, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        float const a = in[2 * i], b = in[2 * i + 1];
        out[i] = a + b;
        out[half + i] = a - b;
    }
}

static void hadamard(float *x, float *swap, int64_t tokens, int64_t channels, int64_t size,
                     float factor)
{
    for (int64_t block = 0; block < tokens * channels; block += size) {
        float *from = x + block, *to = swap;
        for (int64_t n = 1; n < size; n *= 2) {
            hadamard_level(to, from, size / 2);
            float *const next = from;
            from = to, to = next;
        }
        float *const out = x + block;
        for (int64_t c = 0; c < size; c++) out[c] = from[c] * factor;
    }
}

/* ---- outliers ---- */

static inline bool is_outlier(float x, float low, float high)
{
    return (x <= low) | (x >= high);
}

static void mark_channels(float *restrict x, const float *restrict low, const float *restrict high,
                          int64_t tokens, int64_t channels)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0, i = t * channels; c < channels; c++)
            x[i + c] = is_outlier(x[i + c], low[c], high[c]) ? NAN : x[i + c];
}

static void mark_tokens(float *restrict x, const float *restrict low, const float *restrict high,
                        int64_t tokens, int64_t channels)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0, i = t * channels; c < channels; c++)
            x[i + c] = is_outlier(x[i + c], low[t], high[t]) ? NAN : x[i + c];
}

static void keep_channels(float *restrict y, const float *restrict x, const float *restrict low,
                          const float *restrict high, int64_t tokens, int64_t channels)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0, i = t * channels; c < channels; c++) {
            float const kept = kv_f16_round(x[i + c]);
            y[i + c] = is_outlier(x[i + c], low[c], high[c]) ? kept : y[i + c];
        }
}

static void keep_tokens(float *restrict y, const float *restrict x, const float *restrict low,
                        const float *restrict high, int64_t tokens, int64_t channels)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0, i = t * channels; c < channels; c++) {
            float const kept = kv_f16_round(x[i + c]);
            y[i + c] = is_outlier(x[i + c], low[t], high[t]) ? kept : y[i + c];
        }
}

/* ---- the table ---- */

#define KV_GRID(name)                                                                              \
    {                                                                                              \
        name##_decode_channels, name##_decode_tokens, name##_codes, name##_errors                  \
    }
#define KV_ENTRY_EXACT(name, NAME)
#define KV_ENTRY_INTEGER(name, NAME) [KV_FORMAT_##NAME] = {KV_GRID(symmetric), KV_GRID(asymmetric)},
#define KV_ENTRY_FLOAT(name, NAME)   [KV_FORMAT_##NAME] = {KV_GRID(grid_##name)},
#define KV_ENTRY_BLOCK(name, NAME)                                                                 \
    [KV_FORMAT_##NAME] = {{.decode_tokens = name##_decode_tokens, .codes = name##_codes}},

extern const kv_rows KV_ISA_NAME(kv_rows);
const kv_rows KV_ISA_NAME(kv_rows) = {
    .grids =
        {
#define KV_ROW(name, NAME, KIND, ...) KV_ENTRY_##KIND(name, NAME)
            KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
        },
    .all_finite = all_finite,
    .round_f16 = round_f16,
    .absmax_channels = absmax_channels,
    .extremes_channels = extremes_channels,
    .absmax_tokens = absmax_tokens,
    .extremes_tokens = extremes_tokens,
    .sum_channels = sum_channels,
    .add = add_channels,
    .subtract = subtract_channels,
    .multiply = multiply_channels,
    .divide = divide_channels,
    .hadamard = hadamard,
    .mark_channels = mark_channels,
    .mark_tokens = mark_tokens,
    .keep_channels = keep_channels,
    .keep_tokens = keep_tokens,
};
