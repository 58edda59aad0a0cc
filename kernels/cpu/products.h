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
                            int64_t step, const float *panels, int64_t panel_stride, int64_t n)    \
    {                                                                                              \
        for (int r = 0; r < VEC_ROWS; r++)                                                         \
            for (int p = 0; p < PANELS; p++) acc[r][p] = vec_all(0);                               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            vec right[PANELS];                                                                     \
            for (int p = 0; p < PANELS; p++)                                                       \
                right[p] = vec_load(panels + p * panel_stride + i * VEC);                          \
            for (int r = 0; r < VEC_ROWS; r++) {                                                   \
                vec const x = vec_all(left[r * row_stride + i * step]);                            \
                for (int p = 0; p < PANELS; p++) acc[r][p] = vec_fma(x, right[p], acc[r][p]);      \
            }                                                                                      \
        }                                                                                          \
    }
TILE(tile_wide, VEC_PANELS)
#if defined(__AVX512F__)
TILE(tile_narrow, 1)
#else
#define tile_narrow tile_wide
#endif
#undef TILE

static void logits(float *restrict out, const float *key, int64_t rows, int64_t head_dim,
                   const float *panels, int64_t width, float scale)
{
    int64_t const panel_stride = head_dim * VEC, n_panels = width / VEC;
    vec const factor = vec_all(scale);
    for (int64_t r0 = 0; r0 < rows; r0 += VEC_ROWS) {
        const float *const left = key + r0 * head_dim;
        float *const to = out + r0 * width;
        int64_t p = 0;
        for (; p + VEC_PANELS <= n_panels; p += VEC_PANELS) {
            vec acc[VEC_ROWS][VEC_PANELS];
            tile_wide(acc, left, head_dim, 1, panels + p * panel_stride, panel_stride, head_dim);
            for (int r = 0; r < VEC_ROWS; r++)
                for (int j = 0; j < VEC_PANELS; j++)
                    vec_store(to + r * width + (p + j) * VEC, vec_mul(acc[r][j], factor));
        }
        for (; p < n_panels; p++) {
            vec acc[VEC_ROWS][1];
            tile_narrow(acc, left, head_dim, 1, panels + p * panel_stride, panel_stride, head_dim);
            for (int r = 0; r < VEC_ROWS; r++)
                vec_store(to + r * width + p * VEC, vec_mul(acc[r][0], factor));
        }
    }
}

static void outputs(float *restrict out, int64_t out_stride, const float *weights, int64_t n,
                    int64_t width, const float *panels, int64_t n_panels)
{
    int64_t const panel_stride = n * VEC;
    int64_t p = 0;
    for (; p + VEC_PANELS <= n_panels; p += VEC_PANELS)
        for (int64_t r0 = 0; r0 < width; r0 += VEC_ROWS) {
            vec acc[VEC_ROWS][VEC_PANELS];
            tile_wide(acc, weights + r0, 1, width, panels + p * panel_stride, panel_stride, n);
            for (int r = 0; r < VEC_ROWS; r++)
                for (int j = 0; j < VEC_PANELS; j++) {
                    float *const to = out + (r0 + r) * out_stride + (p + j) * VEC;
                    vec_store(to, vec_add(vec_load(to), acc[r][j]));
                }
        }
    for (; p < n_panels; p++)
        for (int64_t r0 = 0; r0 < width; r0 += VEC_ROWS) {
            vec acc[VEC_ROWS][1];
            tile_narrow(acc, weights + r0, 1, width, panels + p * panel_stride, panel_stride, n);
            for (int r = 0; r < VEC_ROWS; r++) {
                float *const to = out + (r0 + r) * out_stride + p * VEC;
                vec_store(to, vec_add(vec_load(to), acc[r][0]));
            }
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
