/* mse: the clip factor f of {1.00, 0.99 ... 0.50} with the least squared error of the tile, ties to
 * the larger; f multiplies amax, or both min and max. The search uses scales as they are stored.
 *
 * f_i = float(1 - 0.01 i). The error of a tile is the sum of (value - x)^2 in double: each
 * channel over its tokens in order, then the tile's channels by kv_clip_fold(), then calibration
 * draws and heads in order.
 *
 * Passes: one for the extremes, then as many as the memory for one error per tile and factor asks.
 */
#include <string.h>

#include "kernels/clip.h"
#include "kernels/memory.h"
#include "kernels/quantize_fit.h"

enum { ERROR_BUDGET = 1 << 20 };

static kv_status begin(kv_fit *fit, bool *is_done, kv_error *err)
{
    (void)is_done;
    kv_status status = KV_OK;
    int64_t const tiles = kv_grid_tiles(&fit->grid), found = fit->shape.heads * tiles;
    int64_t const fitting = ERROR_BUDGET / (found > 0 ? found : 1);
    fit->factors = fitting < 1 ? 1 : fitting > KV_CLIP_FACTORS ? KV_CLIP_FACTORS : (int)fitting;
    fit->job_doubles = fit->factors * fit->shape.head_dim;
    KV_TRY(kv_fit_start_extremes(fit, err));
    KV_TRY(kv_allocate3((void **)&fit->errors, (size_t)found, (size_t)fit->factors, 1,
                        sizeof *fit->errors, err));
    KV_TRY(kv_allocate3((void **)&fit->best_factor, (size_t)fit->grid.heads, (size_t)tiles, 1,
                        sizeof *fit->best_factor, err));
    KV_TRY(kv_allocate3((void **)&fit->best_error, (size_t)fit->grid.heads, (size_t)tiles, 1,
                        sizeof *fit->best_error, err));
done:
    return status;
}

static int factors_of_pass(const kv_fit *fit)
{
    int const left = KV_CLIP_FACTORS - fit->factor;
    return left < fit->factors ? left : fit->factors;
}

/* Scale, inverse and minimum [D] of a tile row whose range is scaled by f. */
static void expand_factor(const kv_fit *fit, kv_job *job, int64_t row, float f)
{
    const kv_tile_grid *const g = &fit->grid;
    kv_scale_rule const rule = kv_fit_scale_rule(fit);
    int64_t const base = kv_fit_tile_base(fit, job->head) + row * g->columns;
    for (int64_t column = 0; column < g->columns; column++) {
        float scale, minimum, low = fit->low[base + column], high = fit->high[base + column];
        kv_scale_store(&scale, &minimum, &rule, low * f, high * f);
        kv_fit_fill(fit, column, scale, minimum, job->scale, job->inverse, job->minimum);
    }
}

static void finish_row(kv_fit *fit, kv_job *job, int64_t row)
{
    const kv_tile_grid *const g = &fit->grid;
    int64_t const d = fit->shape.head_dim;
    for (int64_t column = 0; column < g->columns; column++)
        for (int k = 0; k < factors_of_pass(fit); k++) {
            int64_t const tile = (job->head * g->rows + row) * g->columns + column;
            int64_t const from = column * g->channels;
            fit->errors[tile * fit->factors + k] +=
                kv_clip_fold(job->sums + k * d + from, kv_minimum_size(g->channels, d - from));
        }
    memset(job->sums, 0, (size_t)fit->job_doubles * sizeof *job->sums);
}

static kv_status chunk(kv_fit *fit, kv_job *job, int64_t u, int64_t count, const float *z,
                       kv_error *err)
{
    (void)err;
    if (!fit->is_searching) {
        kv_fit_chunk_extremes(fit, job, u, count, z);
        return KV_OK;
    }
    int64_t const d = fit->shape.head_dim, end = kv_fit_range_tokens(fit);
    const kv_grid_rows *const grid = &fit->rows->grids[fit->q.format][fit->q.is_asymmetric];
    for (int64_t done = 0, n; done < count; done += n) {
        int64_t const at = u + done, row = at / fit->grid.tokens;
        n = kv_grid_segment(&fit->grid, at, count - done);
        kv_grid_piece piece = {.tokens = n, .channels = d, .stride = d, .limit = fit->limit};
        piece.scale = job->scale, piece.inverse = job->inverse, piece.minimum = job->minimum;
        for (int k = 0; k < factors_of_pass(fit); k++) {
            expand_factor(fit, job, row, kv_clip_factor(fit->factor + k));
            grid->errors(job->sums + k * d, z + done * d, &piece);
        }
        if (at + n == end || (at + n) % fit->grid.tokens == 0) finish_row(fit, job, row);
    }
    return KV_OK;
}

/* Errors of all heads of a tile, then the best factor so far. */
static void choose(kv_fit *fit)
{
    int64_t const tiles = kv_grid_tiles(&fit->grid), n = tiles * fit->factors;
    for (int64_t head = 1; fit->grid.heads == 1 && head < fit->shape.heads; head++)
        for (int64_t i = 0; i < n; i++) fit->errors[i] += fit->errors[head * n + i];
    for (int64_t i = 0; i < fit->grid.heads * tiles; i++)
        for (int k = 0; k < factors_of_pass(fit); k++) {
            double const error = fit->errors[i * fit->factors + k];
            if (fit->factor + k > 0 && !(error < fit->best_error[i])) continue;
            fit->best_error[i] = error;
            fit->best_factor[i] = kv_clip_factor(fit->factor + k);
        }
    memset(fit->errors, 0, (size_t)(fit->shape.heads * n) * sizeof *fit->errors);
}

static kv_status end(kv_fit *fit, bool *is_done, kv_error *err)
{
    if (!fit->is_searching) {
        kv_fit_combine_ranges(fit);
        fit->is_searching = true, *is_done = false;
        return kv_fit_set_global(fit, err);
    }
    choose(fit);
    fit->factor += fit->factors;
    *is_done = fit->factor >= KV_CLIP_FACTORS;
    if (!*is_done) return KV_OK;
    for (int64_t i = 0; i < fit->grid.heads * kv_grid_tiles(&fit->grid); i++) {
        fit->low[i] *= fit->best_factor[i];
        fit->high[i] *= fit->best_factor[i];
    }
    return kv_fit_store_scales(fit, err);
}

const kv_step kv_range_mse_step = {begin, chunk, end};
