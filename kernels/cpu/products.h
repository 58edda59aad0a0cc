/* The two matrix products of attention: see kernels.h. Included by variant.c.
 *
 * Both are outer products in registers: VEC_ROWS numbers of the left operand are broadcast and
 * multiplied with VEC_PANELS vectors of the right one, every result accumulating sequentially, so
 * it does not depend on the tile's shape. */
#ifndef KVANT_KERNELS_CPU_PRODUCTS_H
#define KVANT_KERNELS_CPU_PRODUCTS_H

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vector.h"

/* acc[r][p] = sum_i left[r * row_stride + i * step] * panel_p[i][16] */
#define TILE(name, PANELS)                                                                         \
    static inline void name(vec acc[VEC_ROWS][PANELS], const float *left, int64_t row_stride,      \
                            int64_t step, const float *panels, int64_t panel_stride,               \
                            int64_t panel_step, int64_t n)                                         \
    {                                                                                              \
        for (int r = 0; r < VEC_ROWS; r++)                                                         \
            for (int p = 0; p < PANELS; p++) acc[r][p] = vec_all(0);                               \
        KV_UNROLL_4 for (int64_t i = 0; i < n; i++)                                                \
        {                                                                                          \
            vec right[PANELS];                                                                     \
            for (int p = 0; p < PANELS; p++)                                                       \
                right[p] = vec_load(panels + p * panel_stride + i * panel_step);                   \
            for (int r = 0; r < VEC_ROWS; r++) {                                                   \
                vec const x = vec_all(left[r * row_stride + i * step]);                            \
                for (int p = 0; p < PANELS; p++) acc[r][p] = vec_fma(x, right[p], acc[r][p]);      \
            }                                                                                      \
        }                                                                                          \
    }
/* Columns [p, p + PANELS) of both products. */
#define PRODUCTS(PANELS)                                                                           \
    TILE(tile_##PANELS, PANELS)                                                                    \
    static inline void logits_##PANELS(float *restrict out, const float *key, int64_t rows,        \
                                       int64_t head_dim, const float *panels,                      \
                                       int64_t panel_stride, int64_t row_stride, vec scale)        \
    {                                                                                              \
        for (int64_t r0 = 0; r0 < rows; r0 += VEC_ROWS) {                                          \
            vec acc[VEC_ROWS][PANELS];                                                             \
            tile_##PANELS(acc, key + r0 * head_dim, head_dim, 1, panels, head_dim * VEC, VEC,      \
                          head_dim);                                                               \
            for (int r = 0; r < VEC_ROWS; r++)                                                     \
                for (int j = 0; j < PANELS; j++)                                                   \
                    vec_store(out + (r0 + r) * row_stride + j * panel_stride,                      \
                              vec_mul(acc[r][j], scale));                                          \
        }                                                                                          \
    }                                                                                              \
    static inline void outputs_##PANELS(float *restrict out, int64_t out_stride,                   \
                                        const float *weights, int64_t n, int64_t width,            \
                                        const float *right, const kv_panels *panels)               \
    {                                                                                              \
        for (int64_t r0 = 0; r0 < width; r0 += VEC_ROWS) {                                         \
            vec acc[VEC_ROWS][PANELS];                                                             \
            tile_##PANELS(acc, weights + r0, 1, width, right, panels->stride, panels->step, n);    \
            for (int r = 0; r < VEC_ROWS; r++)                                                     \
                for (int j = 0; j < PANELS; j++) {                                                 \
                    float *const to = out + (r0 + r) * out_stride + j * VEC;                       \
                    vec_store(to, vec_add(vec_load(to), acc[r][j]));                               \
                }                                                                                  \
        }                                                                                          \
    }
PRODUCTS(1)
#if defined(__AVX512F__)
PRODUCTS(2)
PRODUCTS(3)
#endif
#undef PRODUCTS
#undef TILE

/* How many of `left` panels to take at once: threes, with twos so that no single one remains. */
static inline int64_t panels_at_once(int64_t left)
{
    if (VEC_PANELS == 1 || left == 1) return 1;
    return left == 2 || left == 4 ? 2 : 3;
}

/* The logit of row r and column i of panel p lies at out + p * panel_stride + r * row_stride + i.
 */
static inline void logits_to(float *out, int64_t panel_stride, int64_t row_stride, const float *key,
                             int64_t rows, int64_t head_dim, const float *panels, int64_t n_panels,
                             float scale)
{
    vec const factor = vec_all(scale);
    for (int64_t p = 0, step; p < n_panels; p += step) {
        float *const to = out + p * panel_stride;
        const float *const right = panels + p * head_dim * VEC;
        step = panels_at_once(n_panels - p);
#if defined(__AVX512F__)
        if (step == 3) logits_3(to, key, rows, head_dim, right, panel_stride, row_stride, factor);
        if (step == 2) logits_2(to, key, rows, head_dim, right, panel_stride, row_stride, factor);
#endif
        if (step == 1) logits_1(to, key, rows, head_dim, right, panel_stride, row_stride, factor);
    }
}

static void logits(float *out, const float *key, int64_t rows, int64_t head_dim,
                   const float *panels, int64_t width, float scale)
{
    logits_to(out, VEC, width, key, rows, head_dim, panels, width / VEC, scale);
}

static void logits_apart(float *out, int64_t stride, const float *key, int64_t rows,
                         int64_t head_dim, const float *panels, int64_t n_panels, float scale)
{
    logits_to(out, stride, VEC, key, rows, head_dim, panels, n_panels, scale);
}

static void outputs(float *out, int64_t out_stride, const float *weights, int64_t n, int64_t width,
                    const kv_panels *panels)
{
    for (int64_t p = 0, step; p < panels->n; p += step) {
        float *const to = out + p * VEC;
        const float *const right = panels->first + p * panels->stride;
        step = panels_at_once(panels->n - p);
#if defined(__AVX512F__)
        if (step == 3) outputs_3(to, out_stride, weights, n, width, right, panels);
        if (step == 2) outputs_2(to, out_stride, weights, n, width, right, panels);
#endif
        if (step == 1) outputs_1(to, out_stride, weights, n, width, right, panels);
    }
}

static void pack(float *restrict panels, int64_t n_panels, const float *x, int64_t n,
                 int64_t head_dim, int64_t first_column)
{
    for (int64_t p = 0; p < n_panels; p++) {
        int64_t const column = first_column + p * VEC;
        int64_t const columns = head_dim - column < VEC ? head_dim - column : VEC;
        float *const to = panels + p * n * VEC;
        if (columns == VEC)
            for (int64_t i = 0; i < n; i++)
                vec_store(to + i * VEC, vec_load(x + i * head_dim + column));
        else
            for (int64_t i = 0; i < n; i++)
                for (int64_t c = 0; c < VEC; c++)
                    to[i * VEC + c] = c < columns ? x[i * head_dim + column + c] : 0.0f;
    }
}

#endif
