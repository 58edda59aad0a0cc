/* Codes and dequantized values from a fit: chunks of tokens are transformed, decoded in the
 * transformed space, completed with kept outliers, and transformed back. */
#include <string.h>

#include "kernels/formats.h"
#include "kernels/quantize_fit.h"
#include "kernels/real.h"

kv_job kv_job_of(int64_t head, float *rows, double *sums, int64_t d)
{
    float *const row = rows + KV_CHUNK * d;
    return (kv_job){head,        rows,        row,         row + d, row + 2 * d,
                    row + 3 * d, row + 4 * d, row + 5 * d, sums};
}

int64_t kv_fit_scratch_floats(const kv_fit *fit, int64_t count)
{
    (void)count;
    return KV_JOB_ROWS * fit->shape.head_dim;
}

static const kv_grid_rows *grid_of(const kv_fit *fit)
{
    return &fit->rows->grids[fit->q.format][fit->q.is_asymmetric];
}

static kv_grid_piece piece_of(const kv_fit *fit, const kv_job *job, int64_t tokens)
{
    kv_grid_piece const piece = {.tokens = tokens,
                                 .channels = fit->shape.head_dim,
                                 .stride = fit->shape.head_dim,
                                 .scale = job->scale,
                                 .inverse = job->inverse,
                                 .minimum = job->minimum,
                                 .limit = fit->limit};
    return piece;
}

/* One-token tiles of many channels: each column is a run with a scale per token. */
static void decode_tokens(const kv_fit *fit, const kv_job *job, int64_t u, int64_t count, float *y,
                          const float *z)
{
    const kv_tile_grid *const g = &fit->grid;
    int64_t const first = kv_fit_tile_base(fit, job->head) + u * g->columns;
    kv_grid_piece piece = piece_of(fit, job, count);
    piece.step = g->columns;
    for (int64_t column = 0; column < g->columns; column++) {
        int64_t const from = column * g->channels;
        piece.channels = kv_minimum_size(g->channels, fit->shape.head_dim - from);
        piece.scale = fit->scale + first + column;
        piece.minimum = fit->minimum + first + column;
        grid_of(fit)->decode_tokens(y + from, z + from, &piece);
    }
}

static void decode_channels(const kv_fit *fit, const kv_job *job, int64_t u, int64_t count,
                            float *y, const float *z)
{
    int64_t const d = fit->shape.head_dim;
    for (int64_t done = 0, n; done < count; done += n) {
        n = kv_grid_segment(&fit->grid, u + done, count - done);
        kv_fit_expand(fit, job->head, (u + done) / fit->grid.tokens, job->scale, job->inverse,
                      job->minimum);
        kv_grid_piece const piece = piece_of(fit, job, n);
        grid_of(fit)->decode_channels(y + done * d, z + done * d, &piece);
    }
}

/* Blocks find their own range, from which kept elements are left out as zeros. */
static const float *row_without_kept(const kv_fit *fit, const kv_job *job, int64_t u,
                                     const float *z)
{
    int64_t const d = fit->shape.head_dim;
    if (!fit->keep_low) return z;
    for (int64_t c = 0; c < d; c++)
        job->swap[c] = kv_fit_is_kept(fit, job->head, u, c, z[c]) ? 0.0f : z[c];
    return job->swap;
}

static void decode_blocks(const kv_fit *fit, const kv_job *job, int64_t u, int64_t count, float *y,
                          const float *z)
{
    int64_t const d = fit->shape.head_dim;
    kv_grid_piece const piece = piece_of(fit, job, 1);
    for (int64_t t = 0; t < count; t++)
        grid_of(fit)->decode_tokens(y + t * d, row_without_kept(fit, job, u + t, z + t * d),
                                    &piece);
}

void kv_fit_decode_chunk(const kv_fit *fit, const kv_job *job, int64_t u, int64_t count, float *y,
                         const float *z)
{
    if (fit->format->kind == KV_KIND_EXACT)
        memcpy(y, z, (size_t)(count * fit->shape.head_dim) * sizeof *y);
    else if (fit->format->kind == KV_KIND_BLOCK)
        decode_blocks(fit, job, u, count, y, z);
    else if (fit->scale && fit->grid.tokens == 1 && fit->grid.channels >= KV_WIDE)
        decode_tokens(fit, job, u, count, y, z);
    else
        decode_channels(fit, job, u, count, y, z);
    if (fit->keep_low) kv_fit_keep(fit, job->head, u, count, y, z);
}

static bool has_transforms(const kv_fit *fit)
{
    for (int i = 0; i < KV_TRANSFORM_COUNT; i++)
        if (fit->q.transforms[i].is_on) return true;
    return false;
}

/* The transformed chunk: x itself where nothing is on. */
static const float *transformed(const kv_fit *fit, const kv_job *job, int64_t count, const float *x)
{
    if (!has_transforms(fit)) return x;
    memcpy(job->z, x, (size_t)(count * fit->shape.head_dim) * sizeof *x);
    kv_fit_apply(fit, KV_TRANSFORM_COUNT, job->head, count, job->z, job->swap);
    return job->z;
}

/* How many tokens from t on are alike (kept at f16 or quantized), at most a chunk. */
static int64_t alike(const kv_fit *fit, int64_t t, int64_t end, bool *is_quantized)
{
    int64_t const first = fit->first, last = fit->first + fit->span;
    *is_quantized = t >= first && t < last;
    int64_t const until = t < first ? first : t < last ? last : end;
    return kv_minimum_size(KV_CHUNK, kv_minimum_size(until, end) - t);
}

void kv_fit_decode(const kv_fit *fit, int64_t head, const float *x, int64_t first, int64_t count,
                   float *y, float *scratch)
{
    int64_t const d = fit->shape.head_dim, end = first + count;
    kv_job const job = kv_job_of(head, scratch, NULL, d);
    bool is_quantized;
    for (int64_t t = first, n; t < end; t += n, y += n * d) {
        n = alike(fit, t, end, &is_quantized);
        if (!is_quantized) {
            fit->rows->round_f16(y, x + t * d, n * d);
            continue;
        }
        const float *const z = transformed(fit, &job, n, x + t * d);
        kv_fit_decode_chunk(fit, &job, t - fit->first, n, y, z);
        kv_fit_undo(fit, head, n, y, job.swap);
    }
}

static void codes_of_row(const kv_fit *fit, const kv_job *job, int64_t u, uint32_t *codes,
                         const float *z)
{
    int64_t const d = fit->shape.head_dim;
    kv_grid_piece const piece = piece_of(fit, job, 1);
    if (fit->format->kind == KV_KIND_EXACT) {
        for (int64_t c = 0; c < d; c++) codes[c] = kv_float_bits(z[c]);
    } else if (fit->format->kind == KV_KIND_BLOCK) {
        grid_of(fit)->codes(codes, row_without_kept(fit, job, u, z), &piece);
    } else {
        kv_fit_expand(fit, job->head, u / fit->grid.tokens, job->scale, job->inverse, job->minimum);
        grid_of(fit)->codes(codes, z, &piece);
    }
    for (int64_t c = 0; fit->keep_low && c < d; c++)
        if (kv_fit_is_kept(fit, job->head, u, c, z[c])) codes[c] = KV_CODE_KEPT;
}

void kv_fit_codes(const kv_fit *fit, int64_t head, const float *x, int64_t first, int64_t count,
                  uint32_t *codes, float *scratch)
{
    int64_t const d = fit->shape.head_dim;
    kv_job const job = kv_job_of(head, scratch, NULL, d);
    for (int64_t t = first; t < first + count; t++, codes += d) {
        bool const is_quantized = t >= fit->first && t < fit->first + fit->span;
        if (is_quantized)
            codes_of_row(fit, &job, t - fit->first, codes, transformed(fit, &job, 1, x + t * d));
        for (int64_t c = 0; !is_quantized && c < d; c++) codes[c] = KV_CODE_KEPT;
    }
}
