/* The hot loops of quantization, over rows of channels: one table of functions per instruction set.
 *
 * Each loop is plain C that a compiler vectorizes over contiguous channels; kernels/cpu/
 * quantize_rows.c is compiled once per instruction set (cpu/isa.h) and every variant gives the same
 * bits, because each operation is correctly rounded and its order is fixed. Shapes: x and y are
 * [tokens][stride] of which `channels` columns are used. Elements that are NaN are kept outliers:
 * statistics skip them. Functions are re-entrant; x, y and parameters must not overlap. */
#ifndef KVANT_KERNELS_QUANTIZE_ROWS_H
#define KVANT_KERNELS_QUANTIZE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/isa.h"
#include "kernels/format.h"

KV_EXTERN_C_BEGIN

/* Parameters of a grid over a piece of rows. By channel: scale, inverse (kv_inverse_scale) and
 * minimum are [channels]. By token: row t has scale[t * step] and minimum[t * step]. minimum is
 * unused (but readable) for symmetric grids. */
typedef struct {
    int64_t tokens, channels, stride;
    const float *scale, *inverse, *minimum;
    int64_t step;
    float limit; /* largest code of an integer grid */
} kv_grid_piece;

/* One grid: a format, symmetric or not. NULL members: the format has no such loop. */
typedef struct {
    void (*decode_channels)(float *y, const float *x, const kv_grid_piece *p);
    void (*decode_tokens)(float *y, const float *x, const kv_grid_piece *p);
    void (*codes)(uint32_t *codes, const float *x, const kv_grid_piece *p); /* by channel */
    /* error[c] += (value - x)^2, tokens in order, for each channel. */
    void (*errors)(double *error, const float *x, const kv_grid_piece *p);
} kv_grid_rows;

typedef struct {
    kv_grid_rows grids[KV_FORMAT_COUNT][2]; /* [format][is asymmetric] */

    bool (*all_finite)(const float *x, int64_t n);
    void (*round_f16)(float *y, const float *x, int64_t n);

    /* high[c] = max(high[c], |x|), or low and high the running minimum and maximum. */
    void (*absmax_channels)(float *high, const float *x, int64_t tokens, int64_t channels);
    void (*extremes_channels)(float *low, float *high, const float *x, int64_t tokens,
                              int64_t channels);
    /* The same for row t into high[t * step]. */
    void (*absmax_tokens)(float *high, int64_t step, const float *x, int64_t tokens,
                          int64_t channels, int64_t stride);
    void (*extremes_tokens)(float *low, float *high, int64_t step, const float *x, int64_t tokens,
                            int64_t channels, int64_t stride);

    /* Transforms of x [tokens][channels], in place, with one factor per channel. */
    void (*sum_channels)(double *sum, const float *x, int64_t tokens, int64_t channels);
    void (*add)(float *x, const float *term, int64_t tokens, int64_t channels);
    void (*subtract)(float *x, const float *term, int64_t tokens, int64_t channels);
    void (*multiply)(float *x, const float *factor, int64_t tokens, int64_t channels);
    void (*divide)(float *x, const float *divisor, int64_t tokens, int64_t channels);
    /* Each block of `size` channels by the Sylvester-Hadamard matrix, times `factor`; see the
     * function for the order of additions. swap [size]. */
    void (*hadamard)(float *x, float *swap, int64_t tokens, int64_t channels, int64_t size,
                     float factor);

    /* Outliers x <= low or x >= high: NaN in x; f16(x) in y. By channel, or one pair per row. */
    void (*mark_channels)(float *x, const float *low, const float *high, int64_t tokens,
                          int64_t channels);
    void (*mark_tokens)(float *x, const float *low, const float *high, int64_t tokens,
                        int64_t channels);
    void (*keep_channels)(float *y, const float *x, const float *low, const float *high,
                          int64_t tokens, int64_t channels);
    void (*keep_tokens)(float *y, const float *x, const float *low, const float *high,
                        int64_t tokens, int64_t channels);
} kv_rows;

const kv_rows *kv_rows_at(kv_isa isa);
/* The variant of this processor; thread-safe. */
const kv_rows *kv_rows_best(void);

KV_EXTERN_C_END

#endif
