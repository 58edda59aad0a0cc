/* outliers=p: in each vector the elements at or below the (p/2)-th percentile, or at or above the
 * (100 - p/2)-th, are kept at f16 with a 16-bit index (KVQuant, Hooper et al. 2024, section 3.4). A
 * vector is a channel of a kv head over its quantized tokens for tiles of one channel, otherwise a
 * token of a kv head.
 *
 * Thresholds are stored as the floats that decide the same as the percentile in double. While the
 * rest is quantized, kept elements are NaN in the chunk. */
#include <inttypes.h>
#include <math.h>

#include "kernels/memory.h"
#include "kernels/quantize_fit.h"

bool kv_outliers_by_channel(const kv_tile_grid *vectors)
{
    return vectors->channels == 1 && vectors->rows == 1;
}

static bool is_by_channel(const kv_fit *fit)
{
    return kv_outliers_by_channel(&fit->vectors);
}

kv_tile_grid kv_outlier_vectors(const kv_quantizer *q, const kv_tensor_shape *shape, int64_t span)
{
    bool const by_channel = kv_quantizer_grid(q, shape, span).channels == 1 &&
                            kv_format_has_scale(kv_format_at(q->format));
    return kv_tile_grid_of(shape->heads, span, shape->head_dim, by_channel ? span : 1,
                           by_channel ? 1 : shape->head_dim);
}

kv_outlier_percentiles kv_outlier_percentiles_of(const kv_quantizer *q)
{
    double const half = q->outliers_percent / 2;
    return (kv_outlier_percentiles){half, 100.0 - half};
}

/* In sorted order, those up to the lower percentile's place and those from the upper one's on. */
int64_t kv_outliers_of(const kv_quantizer *q, int64_t n)
{
    kv_outlier_percentiles const p = kv_outlier_percentiles_of(q);
    double const low = kv_percentile_place(p.low, n), high = kv_percentile_place(p.high, n);
    int64_t const last = n - 1;
    int64_t const below = low >= (double)last ? last : (int64_t)floor(low);
    int64_t const above = high >= (double)last ? last : (int64_t)ceil(high);
    int64_t const between = above - below - 1;
    return between > 0 ? n - between : n;
}

kv_status kv_fit_create_outliers(kv_fit *fit, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_tensor_shape *const shape = &fit->shape;
    fit->vectors = kv_outlier_vectors(&fit->q, shape, fit->span);
    size_t const heads = (size_t)shape->heads, n = (size_t)kv_grid_tiles(&fit->vectors);
    KV_TRY(kv_allocate3((void **)&fit->keep_low, heads, n, 1, sizeof(float), err));
    KV_TRY(kv_allocate3((void **)&fit->keep_high, heads, n, 1, sizeof(float), err));
    KV_TRY(kv_allocate((void **)&fit->kept, heads, sizeof *fit->kept, err));
done:
    return status;
}

static kv_status begin(kv_fit *fit, bool *is_done, kv_error *err)
{
    (void)is_done;
    kv_outlier_percentiles const of = kv_outlier_percentiles_of(&fit->q);
    double const p[] = {of.low, of.high};
    return kv_select_create(&fit->select, &fit->vectors, fit->shape.heads, fit->shape.head_dim,
                            false, 2, p, err);
}

static kv_status chunk(kv_fit *fit, kv_job *job, int64_t u, int64_t count, const float *z,
                       kv_error *err)
{
    (void)err;
    kv_select_count(fit->select, job->head, u, count, z);
    return KV_OK;
}

static kv_status end(kv_fit *fit, bool *is_done, kv_error *err)
{
    (void)err;
    *is_done = kv_select_end_pass(fit->select);
    if (!*is_done) return KV_OK;
    for (int64_t i = 0; i < fit->shape.heads * kv_grid_tiles(&fit->vectors); i++) {
        double low = 0, high = 0;
        kv_select_result(fit->select, i, 0, &low);
        kv_select_result(fit->select, i, 1, &high);
        fit->keep_low[i] = kv_float_below(low), fit->keep_high[i] = kv_float_above(high);
    }
    kv_select_free(fit->select);
    fit->select = NULL;
    return KV_OK;
}

const kv_step kv_outlier_step = {begin, chunk, end};

static const float *thresholds(const kv_fit *fit, const float *of, int64_t head, int64_t u)
{
    return of + head * kv_grid_tiles(&fit->vectors) + (is_by_channel(fit) ? 0 : u);
}

bool kv_fit_is_kept(const kv_fit *fit, int64_t head, int64_t u, int64_t c, float z)
{
    int64_t const i = is_by_channel(fit) ? c : 0;
    return z <= thresholds(fit, fit->keep_low, head, u)[i] ||
           z >= thresholds(fit, fit->keep_high, head, u)[i];
}

void kv_fit_mark(const kv_fit *fit, int64_t head, int64_t u, int64_t count, float *z)
{
    const kv_rows *const rows = fit->rows;
    (is_by_channel(fit) ? rows->mark_channels : rows->mark_tokens)(
        z, thresholds(fit, fit->keep_low, head, u), thresholds(fit, fit->keep_high, head, u), count,
        fit->shape.head_dim);
}

void kv_fit_keep(const kv_fit *fit, int64_t head, int64_t u, int64_t count, float *y,
                 const float *z)
{
    const kv_rows *const rows = fit->rows;
    (is_by_channel(fit) ? rows->keep_channels : rows->keep_tokens)(
        y, z, thresholds(fit, fit->keep_low, head, u), thresholds(fit, fit->keep_high, head, u),
        count, fit->shape.head_dim);
}

static kv_status count_chunk(kv_fit *fit, kv_job *job, int64_t u, int64_t count, const float *z,
                             kv_error *err)
{
    int64_t const d = fit->shape.head_dim, step = is_by_channel(fit);
    for (int64_t t = 0; t < count; t++) {
        const float *const low = thresholds(fit, fit->keep_low, job->head, u + t);
        const float *const high = thresholds(fit, fit->keep_high, job->head, u + t);
        for (int64_t c = 0; c < d; c++) {
            float const x = z[t * d + c];
            if (!(x <= low[c * step] || x >= high[c * step])) continue;
            fit->kept[job->head]++;
            if (!isfinite(kv_f16_round(x)))
                return KV_FAIL(err, KV_ENUMERIC,
                               "kv head %" PRId64 ", token %" PRId64 ", channel %" PRId64
                               ": outlier %g does not fit into f16",
                               job->head, fit->first + u + t, c, (double)x);
        }
    }
    return KV_OK;
}

const kv_step kv_outlier_count_step = {.chunk = count_chunk};
