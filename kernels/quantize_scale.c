/* From ranges to scales: extremes of tiles, and what of a fit's tiles is stored (scale.h). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/quantize_fit.h"

kv_scale_rule kv_fit_scale_rule(const kv_fit *fit)
{
    return (kv_scale_rule){.storage = (int32_t)fit->q.scale_storage,
                           .is_asymmetric = fit->q.is_asymmetric,
                           .limit = fit->limit,
                           .global = fit->global_scale};
}

kv_status kv_fit_start_extremes(kv_fit *fit, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const heads = (size_t)fit->shape.heads, tiles = (size_t)kv_grid_tiles(&fit->grid);
    KV_TRY(kv_allocate3((void **)&fit->low, heads, tiles, 1, sizeof(float), err));
    KV_TRY(kv_allocate3((void **)&fit->high, heads, tiles, 1, sizeof(float), err));
    KV_TRY(
        kv_allocate3((void **)&fit->scale, (size_t)fit->grid.heads, tiles, 1, sizeof(float), err));
    KV_TRY(kv_allocate3((void **)&fit->minimum, (size_t)fit->grid.heads, tiles, 1, sizeof(float),
                        err));
    for (size_t i = 0; fit->q.is_asymmetric && i < heads * tiles; i++)
        fit->low[i] = INFINITY, fit->high[i] = -INFINITY;
done:
    return status;
}

/* Extremes of the channels of a piece of one tile row, folded into its tiles. */
static void fold_columns(const kv_fit *fit, const kv_job *job, float *low, float *high)
{
    for (int64_t c = 0; c < fit->shape.head_dim; c++) {
        int64_t const column = c / fit->grid.channels;
        if (job->high[c] > high[column]) high[column] = job->high[c];
        if (job->low[c] < low[column]) low[column] = job->low[c];
    }
}

static void segment_extremes(const kv_fit *fit, kv_job *job, float *low, float *high, int64_t count,
                             const float *z)
{
    int64_t const d = fit->shape.head_dim;
    bool const is_direct = fit->grid.channels == 1, is_asymmetric = fit->q.is_asymmetric;
    float *const to_low = is_direct ? low : job->low, *const to_high = is_direct ? high : job->high;
    for (int64_t c = 0; !is_direct && c < d; c++) {
        job->low[c] = is_asymmetric ? INFINITY : 0.0f;
        job->high[c] = is_asymmetric ? -INFINITY : 0.0f;
    }
    if (is_asymmetric)
        fit->rows->extremes_channels(to_low, to_high, z, count, d);
    else
        fit->rows->absmax_channels(to_high, z, count, d);
    if (!is_direct) fold_columns(fit, job, low, high);
}

/* One-token tiles: each tile is one run of channels. */
static void token_extremes(const kv_fit *fit, float *low, float *high, int64_t count,
                           const float *z)
{
    int64_t const d = fit->shape.head_dim, columns = fit->grid.columns;
    for (int64_t column = 0; column < columns; column++) {
        int64_t const from = column * fit->grid.channels;
        int64_t const width = kv_minimum_size(fit->grid.channels, d - from);
        if (fit->q.is_asymmetric)
            fit->rows->extremes_tokens(low + column, high + column, columns, z + from, count, width,
                                       d);
        else
            fit->rows->absmax_tokens(high + column, columns, z + from, count, width, d);
    }
}

void kv_fit_chunk_extremes(kv_fit *fit, kv_job *job, int64_t u, int64_t count, const float *z)
{
    const kv_tile_grid *const g = &fit->grid;
    float *const low = fit->low + job->head * kv_grid_tiles(g);
    float *const high = fit->high + job->head * kv_grid_tiles(g);
    if (g->tokens == 1 && g->channels >= KV_WIDE) {
        token_extremes(fit, low + u * g->columns, high + u * g->columns, count, z);
        return;
    }
    for (int64_t done = 0, n; done < count; done += n) {
        int64_t const tile = (u + done) / g->tokens * g->columns;
        n = kv_grid_segment(g, u + done, count - done);
        segment_extremes(fit, job, low + tile, high + tile, n, z + done * fit->shape.head_dim);
    }
}

void kv_fit_combine_ranges(kv_fit *fit)
{
    int64_t const tiles = kv_grid_tiles(&fit->grid);
    for (int64_t head = 1; fit->grid.heads == 1 && head < fit->shape.heads; head++)
        for (int64_t i = 0; i < tiles; i++) {
            fit->low[i] = fminf(fit->low[i], fit->low[head * tiles + i]);
            fit->high[i] = fmaxf(fit->high[i], fit->high[head * tiles + i]);
        }
}

/* Names a tile in an error. */
static kv_status overflow(const kv_fit *fit, int64_t tile, const char *what, kv_error *err)
{
    int64_t const tiles = kv_grid_tiles(&fit->grid), columns = fit->grid.columns;
    int64_t const row = tile % tiles / columns, column = tile % columns;
    return KV_FAIL(err, KV_ENUMERIC,
                   "kv head %" PRId64 ", tile at token %" PRId64 ", channel %" PRId64
                   ": %s overflows float (values from %g to %g)",
                   tile / tiles, fit->first + row * fit->grid.tokens, column * fit->grid.channels,
                   what, fit->q.is_asymmetric ? (double)fit->low[tile] : -(double)fit->high[tile],
                   (double)fit->high[tile]);
}

kv_status kv_fit_set_global(kv_fit *fit, kv_error *err)
{
    kv_scale_rule const rule = kv_fit_scale_rule(fit);
    float largest = 0.0f;
    for (int64_t i = 0; i < fit->grid.heads * kv_grid_tiles(&fit->grid); i++) {
        float const plain = kv_scale_plain(&rule, fit->low[i], fit->high[i]);
        if (!isfinite(plain)) return overflow(fit, i, "max - min", err);
        largest = plain > largest ? plain : largest;
    }
    if (fit->q.scale_storage == KV_SCALE_E4M3) fit->global_scale = largest / KV_E4M3_MAXIMUM;
    return KV_OK;
}

kv_status kv_fit_store_scales(kv_fit *fit, kv_error *err)
{
    kv_scale_rule const rule = kv_fit_scale_rule(fit);
    for (int64_t i = 0; i < fit->grid.heads * kv_grid_tiles(&fit->grid); i++) {
        kv_scale_store(&fit->scale[i], &fit->minimum[i], &rule, fit->low[i], fit->high[i]);
        if (!isfinite(fmaf(fit->limit, fit->scale[i], fit->minimum[i])))
            return overflow(fit, i, "the largest dequantized value", err);
    }
    return KV_OK;
}

kv_status kv_fit_set_scales(kv_fit *fit, kv_error *err)
{
    kv_status const status = kv_fit_set_global(fit, err);
    return status != KV_OK ? status : kv_fit_store_scales(fit, err);
}

void kv_fit_fill(const kv_fit *fit, int64_t column, float s, float m, float *scale, float *inverse,
                 float *minimum)
{
    int64_t const from = column * fit->grid.channels;
    int64_t const end = kv_minimum_size(from + fit->grid.channels, fit->shape.head_dim);
    float const reciprocal = kv_int_inverse(s);
    for (int64_t c = from; c < end; c++) scale[c] = s, inverse[c] = reciprocal, minimum[c] = m;
}

void kv_fit_expand(const kv_fit *fit, int64_t head, int64_t row, float *scale, float *inverse,
                   float *minimum)
{
    const kv_tile_grid *const g = &fit->grid;
    int64_t const base = kv_fit_tile_base(fit, head) + row * g->columns, d = fit->shape.head_dim;
    if (fit->scale && g->channels == 1) {
        memcpy(scale, fit->scale + base, (size_t)d * sizeof *scale);
        memcpy(minimum, fit->minimum + base, (size_t)d * sizeof *minimum);
        for (int64_t c = 0; c < d; c++) inverse[c] = kv_int_inverse(scale[c]);
        return;
    }
    for (int64_t column = 0; column < g->columns; column++)
        kv_fit_fill(fit, column, fit->scale ? fit->scale[base + column] : 1.0f,
                    fit->scale ? fit->minimum[base + column] : 0.0f, scale, inverse, minimum);
}
