/* Quantizers and their fits: which settings go together, the list of steps, passes.
 * The interface and its rules are quantize.h; how steps work is quantize_fit.h. */
#include "kernels/quantize.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/formats.h"
#include "kernels/memory.h"
#include "kernels/quantize_fit.h"

static int64_t larger_size(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- the tile table ---- */

static const kv_tile_row tiles[] = {
    [KV_TILE_TENSOR] = {"tensor", "the layer's whole tensor: all kv heads, tokens, channels", true,
                        0, 0},
    [KV_TILE_HEAD] = {"head", "one kv head: all its tokens and channels", false, 0, 0},
    [KV_TILE_CHANNEL] = {"channel", "one channel of one kv head, all tokens", false, 0, 1},
    [KV_TILE_TOKEN] = {"token", "one token of one kv head, all channels", false, 1, 0},
    [KV_TILE_TOKEN_ALL] = {"token-all", "one token, all kv heads", true, 1, 0},
    [KV_TILE_BLOCK] = {"TxC", "T consecutive tokens by C consecutive channels of one kv head",
                       false, 0, 0},
};

const kv_tile_row *kv_tile_at(size_t id)
{
    return id < sizeof tiles / sizeof *tiles ? &tiles[id] : NULL;
}

/* Tokens and channels of a quantizer's tile, 0 meaning all. */
static int64_t tile_tokens(const kv_quantizer *q)
{
    return q->tile == KV_TILE_BLOCK ? q->tile_tokens : tiles[q->tile].tokens;
}
static int64_t tile_channels(const kv_quantizer *q)
{
    return q->tile == KV_TILE_BLOCK ? q->tile_channels : tiles[q->tile].channels;
}

kv_tile_grid kv_tile_grid_of(int64_t heads, int64_t span, int64_t head_dim, int64_t tokens,
                             int64_t channels)
{
    kv_tile_grid g = {.heads = heads};
    g.tokens = tokens > 0 ? tokens : larger_size(span, 1);
    g.channels = channels > 0 ? kv_minimum_size(channels, head_dim) : head_dim;
    g.rows = span / g.tokens + (span % g.tokens != 0);
    g.columns = head_dim / g.channels + (head_dim % g.channels != 0);
    return g;
}

kv_tile_grid kv_quantizer_grid(const kv_quantizer *q, const kv_tensor_shape *shape, int64_t span)
{
    return kv_tile_grid_of(tiles[q->tile].is_layer_wide ? 1 : shape->heads, span, shape->head_dim,
                           tile_tokens(q), tile_channels(q));
}

bool kv_quantizer_is_layer_wide(const kv_quantizer *q)
{
    return kv_format_has_scale(kv_format_at(q->format)) &&
           (tiles[q->tile].is_layer_wide || q->scale_storage == KV_SCALE_E4M3) &&
           q->range != KV_RANGE_UNIT;
}

void kv_quantizer_span(const kv_quantizer *q, int64_t tokens, int64_t *first, int64_t *end)
{
    int64_t const flushed = q->flush > 0 ? tokens % q->flush : 0;
    int64_t const recent = kv_minimum_size(larger_size(q->window, flushed), tokens);
    *first = kv_minimum_size(q->sinks, tokens);
    *end = larger_size(tokens - recent, *first);
}

/* ---- which settings go together ---- */

/* Formats without a scale of ours: the first option that would need one. */
static const char *range_option(const kv_quantizer *q)
{
    if (q->is_asymmetric) return "zero";
    if (q->range != KV_RANGE_EXTREMES && q->range != KV_RANGE_UNIT)
        return kv_range_at(q->range)->name;
    if (q->static_tokens || q->static_seeds) return "static";
    if (q->scale_storage != KV_SCALE_F32) return "scale";
    return NULL;
}

static kv_status check_numbers(const kv_quantizer *q, const kv_tensor_shape *shape, kv_error *err)
{
    struct {
        const char *name;
        int64_t value;
    } const counts[] = {{"window", q->window},
                        {"sinks", q->sinks},
                        {"flush", q->flush},
                        {"static", q->static_tokens},
                        {"static=seed", q->static_seeds},
                        {"tile tokens", q->tile_tokens},
                        {"tile channels", q->tile_channels}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 0)
            return KV_FAIL(err, KV_EREQUEST, "%s: %" PRId64 " is negative", counts[i].name,
                           counts[i].value);
    if (!(q->outliers_percent >= 0 && q->outliers_percent < 100))
        return KV_FAIL(err, KV_EREQUEST, "outliers: %g is not a percentage from 0 to below 100",
                       q->outliers_percent);
    const kv_stage_row *const range = kv_range_at(q->range);
    if (range->value == KV_VALUE_REQUIRED &&
        !(q->range_value >= range->minimum && q->range_value <= range->maximum))
        return KV_FAIL(err, KV_EREQUEST, "%s: %g is not between %g and %g", range->name,
                       q->range_value, range->minimum, range->maximum);
    if (shape->heads < 1 || shape->tokens < 0 || shape->head_dim < 1)
        return KV_FAIL(err, KV_EREQUEST,
                       "a tensor of %" PRId64 " kv heads, %" PRId64 " tokens and head_dim %" PRId64,
                       shape->heads, shape->tokens, shape->head_dim);
    if (shape->rotary_dim < 0 || shape->rotary_dim > shape->head_dim || shape->rotary_dim % 2)
        return KV_FAIL(err, KV_EREQUEST,
                       "rotary_dim %" PRId64 " is not an even number up to head_dim %" PRId64,
                       shape->rotary_dim, shape->head_dim);
    return KV_OK;
}

static kv_status check_block_format(const kv_quantizer *q, const kv_tensor_shape *shape,
                                    const kv_format *f, kv_error *err)
{
    bool const is_own_tile =
        q->tile == KV_TILE_BLOCK && q->tile_tokens == 1 && q->tile_channels == f->block_elements;
    if (q->tile != KV_TILE_TENSOR && !is_own_tile)
        return KV_FAIL(err, KV_EREQUEST, "%s has its own tile, 1x%d; leave the tile out", f->name,
                       f->block_elements);
    if (q->range == KV_RANGE_UNIT)
        return KV_FAIL(err, KV_EREQUEST, "%s has its own scale; unit does not go with it", f->name);
    if (shape->head_dim % f->block_elements != 0)
        return KV_FAIL(err, KV_EREQUEST, "%s: head_dim %" PRId64 " is not a multiple of %d",
                       f->name, shape->head_dim, f->block_elements);
    return KV_OK;
}

static kv_status check_range(const kv_quantizer *q, const kv_format *f, kv_error *err)
{
    if (q->is_asymmetric && f->kind != KV_KIND_INTEGER)
        return KV_FAIL(err, KV_EREQUEST, "zero goes with integer formats, not with %s", f->name);
    if (q->is_asymmetric &&
        (q->scale_storage == KV_SCALE_E8M0 || q->scale_storage == KV_SCALE_E4M3))
        return KV_FAIL(err, KV_EREQUEST,
                       "zero stores a minimum, which scale=%s cannot hold; use f32, f16 or bf16",
                       kv_scale_at(q->scale_storage)->name);
    if (q->static_tokens && q->static_seeds)
        return KV_FAIL(err, KV_EREQUEST, "static=N and static=seed:K exclude each other");
    bool const is_static = q->static_tokens || q->static_seeds;
    if (is_static && tile_tokens(q) != 0)
        return KV_FAIL(err, KV_EREQUEST,
                       "static scales need a tile over all tokens: tensor, head, channel or allxC");
    if (q->range == KV_RANGE_UNIT &&
        (is_static || q->is_asymmetric || q->scale_storage != KV_SCALE_F32))
        return KV_FAIL(err, KV_EREQUEST,
                       "unit has no scale; static, zero and scale= go without it");
    return KV_OK;
}

kv_status kv_quantizer_check(const kv_quantizer *q, const kv_tensor_shape *shape, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_format *const f = kv_format_at(q->format);
    if (!f || !kv_tile_at(q->tile) || !kv_range_at(q->range) || !kv_scale_at(q->scale_storage))
        return KV_FAIL(err, KV_EREQUEST, "a quantizer's format, tile, range or scale is unknown");
    KV_TRY(check_numbers(q, shape, err));
    const char *const option = range_option(q);
    if (!kv_format_has_scale(f) && option)
        return KV_FAIL(err, KV_EREQUEST, "%s has no scale that %s could change", f->name, option);
    if (f->kind == KV_KIND_BLOCK) KV_TRY(check_block_format(q, shape, f, err));
    KV_TRY(check_range(q, f, err));
    for (size_t i = 0; i < KV_TRANSFORM_COUNT; i++) {
        const kv_transform_setting *const s = &q->transforms[i];
        const kv_stage_row *const row = kv_transform_at(i);
        if (!s->is_on) continue;
        if (s->value != 0 && !(s->value >= row->minimum && s->value <= row->maximum))
            return KV_FAIL(err, KV_EREQUEST, "%s: %g is not between %g and %g", row->name, s->value,
                           row->minimum, row->maximum);
        if (kv_transform_ops(i)->check) KV_TRY(kv_transform_ops(i)->check(s, shape, err));
    }
done:
    return status;
}

/* ---- transforms ---- */

const kv_transform *kv_transform_ops(size_t id)
{
#define KV_ROW(name, ...) &kv_transform_##name,
    static const kv_transform *const ops[] = {KV_TRANSFORM_TABLE(KV_ROW)};
#undef KV_ROW
    return ops[id];
}

void kv_fit_apply(const kv_fit *fit, int n, int64_t head, int64_t count, float *z, float *swap)
{
    for (int i = 0; i < n; i++)
        if (fit->q.transforms[i].is_on)
            kv_transform_ops((size_t)i)->apply(fit, head, count, z, swap);
}

void kv_fit_undo(const kv_fit *fit, int64_t head, int64_t count, float *z, float *swap)
{
    for (int i = KV_TRANSFORM_COUNT - 1; i >= 0; i--)
        if (fit->q.transforms[i].is_on)
            kv_transform_ops((size_t)i)->undo(fit, head, count, z, swap);
}

/* ---- steps ---- */

/* Numbers that f16, bf16 or a block's f16 scale cannot hold come back infinite; say so here. */
static kv_status begin_check(kv_fit *fit, bool *is_done, kv_error *err)
{
    (void)is_done, (void)err;
    fit->job_doubles = KV_CHUNK * fit->shape.head_dim; /* room for a decoded chunk of floats */
    return KV_OK;
}

static kv_status check_chunk(kv_fit *fit, kv_job *job, int64_t u, int64_t count, const float *z,
                             kv_error *err)
{
    if (fit->format->kind == KV_KIND_EXACT || fit->has_range) return KV_OK;
    int64_t const d = fit->shape.head_dim;
    float *const y = (float *)job->sums;
    kv_fit_decode_chunk(fit, job, u, count, y, z);
    if (fit->rows->all_finite(y, count * d)) return KV_OK;
    int64_t bad = 0;
    while (isfinite(y[bad])) bad++;
    /* In a block the largest number is to blame for all. */
    int64_t const block = fit->format->block_elements, from = bad / block * block;
    for (int64_t i = from; i < from + block; i++)
        if (fabsf(z[i]) > fabsf(z[bad])) bad = i;
    return KV_FAIL(err, KV_ENUMERIC,
                   "kv head %" PRId64 ", token %" PRId64 ", channel %" PRId64
                   ": %g does not fit into %s",
                   job->head, fit->first + u + bad / d, bad % d, (double)z[bad], fit->format->name);
}

static const kv_step check_step = {.begin = begin_check, .chunk = check_chunk};

static void add_step(kv_fit *fit, const kv_step *step, int transforms, bool marks, bool is_range)
{
    fit->steps[fit->n_steps].step = step;
    fit->steps[fit->n_steps].transforms = transforms;
    fit->steps[fit->n_steps].marks = marks;
    fit->steps[fit->n_steps].is_range = is_range;
    fit->n_steps++;
}

static void list_steps(kv_fit *fit)
{
#define KV_ROW(name, ...) &kv_range_##name##_step,
    static const kv_step *const ranges[] = {KV_RANGE_TABLE(KV_ROW)};
#undef KV_ROW
    bool const has_outliers = fit->q.outliers_percent > 0;
    for (int i = 0; i < KV_TRANSFORM_COUNT; i++) {
        const kv_step *const learn = kv_transform_ops((size_t)i)->learn;
        if (fit->q.transforms[i].is_on && learn) add_step(fit, learn, i, false, false);
    }
    if (has_outliers) {
        add_step(fit, &kv_outlier_step, KV_TRANSFORM_COUNT, false, false);
        add_step(fit, &kv_outlier_count_step, KV_TRANSFORM_COUNT, false, false);
    }
    /* Every tensor is read once at least, so that NaN and infinity never pass. */
    if (!fit->has_range || fit->q.range == KV_RANGE_UNIT || fit->q.static_seeds > 0)
        add_step(fit, &check_step, KV_TRANSFORM_COUNT, false, false);
    if (fit->has_range) add_step(fit, ranges[fit->q.range], KV_TRANSFORM_COUNT, has_outliers, true);
}

/* Begins the next step that needs a pass. */
static kv_status begin_step(kv_fit *fit, kv_error *err)
{
    kv_status status = KV_OK;
    for (; fit->step < fit->n_steps; fit->step++) {
        const kv_step *const step = fit->steps[fit->step].step;
        bool is_done = false;
        fit->job_doubles = 0;
        if (step->begin) KV_TRY(step->begin(fit, &is_done, err));
        if (!is_done) break;
    }
done:
    return status;
}

/* ---- life ---- */

kv_status kv_fit_create(kv_fit **out, const kv_quantizer *q, const kv_tensor_shape *shape,
                        kv_error *err)
{
    kv_status status = KV_OK;
    kv_fit *fit = NULL;
    KV_TRY(kv_quantizer_check(q, shape, err));
    KV_TRY(kv_allocate((void **)&fit, 1, sizeof *fit, err));
    fit->q = *q, fit->shape = *shape;
    fit->format = kv_format_at(q->format), fit->rows = kv_rows_best();
    int64_t end;
    kv_quantizer_span(q, shape->tokens, &fit->first, &end);
    fit->span = end - fit->first;
    fit->has_range = kv_format_has_scale(fit->format);
    fit->grid = kv_quantizer_grid(q, shape, fit->span);
    fit->limit = q->is_asymmetric ? kv_int_levels(fit->format->bits) : fit->format->maximum;
    for (size_t i = 0; i < KV_TRANSFORM_COUNT; i++)
        if (q->transforms[i].is_on) KV_TRY(kv_transform_ops(i)->create(fit, err));
    if (q->outliers_percent > 0) KV_TRY(kv_fit_create_outliers(fit, err));
    list_steps(fit);
    KV_TRY(begin_step(fit, err));
    *out = fit, fit = NULL;
done:
    kv_fit_free(fit);
    return status;
}

void kv_fit_free(kv_fit *fit)
{
    if (!fit) return;
    for (size_t i = 0; i < KV_TRANSFORM_COUNT; i++) {
        kv_free(fit->transforms[i].channel);
        kv_free(fit->transforms[i].statistic);
    }
    kv_select_free(fit->select);
    void *const arrays[] = {fit->keep_low,   fit->keep_high, fit->kept,    fit->low,
                            fit->high,       fit->scale,     fit->minimum, fit->best_factor,
                            fit->best_error, fit->errors};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) kv_free(arrays[i]);
    kv_free(fit);
}

kv_fit_wants kv_fit_next(const kv_fit *fit)
{
    if (fit->step >= fit->n_steps) return KV_FIT_READY;
    bool const is_other = fit->steps[fit->step].is_range && fit->q.static_seeds > 0;
    return is_other ? KV_FIT_CALIBRATION : KV_FIT_TENSOR;
}

/* ---- passes ---- */

int64_t kv_fit_range_tokens(const kv_fit *fit)
{
    bool const is_static = fit->steps[fit->step].is_range && fit->q.static_tokens > 0;
    return is_static ? kv_minimum_size(fit->q.static_tokens, fit->span) : fit->span;
}

/* Finds the number that is not finite; x [count][D] starts at token `first`. */
static kv_status not_finite(const kv_fit *fit, int64_t head, int64_t first, const float *x,
                            int64_t count, const char *what, kv_error *err)
{
    int64_t const d = fit->shape.head_dim;
    for (int64_t i = 0; i < count * d; i++)
        if (!isfinite(x[i]))
            return KV_FAIL(err, KV_ENUMERIC,
                           "kv head %" PRId64 ", token %" PRId64 ", channel %" PRId64 ": %s%s",
                           head, first + i / d, i % d, isnan(x[i]) ? "NaN" : "infinity", what);
    return KV_OK;
}

/* Tokens that stay at f16 must be finite and fit. */
static kv_status check_kept_tokens(const kv_fit *fit, kv_job *job, const float *x, int64_t first,
                                   int64_t end, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const d = fit->shape.head_dim;
    for (int64_t t = first; t < end; t++) {
        KV_TRY(not_finite(fit, job->head, t, x + t * d, 1, "", err));
        fit->rows->round_f16(job->z, x + t * d, d);
        KV_TRY(not_finite(fit, job->head, t, job->z, 1, " after rounding to f16", err));
    }
done:
    return status;
}

static kv_status absorb_chunk(kv_fit *fit, kv_job *job, const float *x, int64_t u, int64_t count,
                              kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const d = fit->shape.head_dim, first = fit->first + u;
    int const n = fit->steps[fit->step].transforms;
    bool const marks = fit->steps[fit->step].marks;
    bool is_plain = !marks;
    for (int i = 0; i < n; i++) is_plain = is_plain && !fit->q.transforms[i].is_on;
    if (!fit->rows->all_finite(x, count * d))
        return not_finite(fit, job->head, first, x, count, "", err);
    int64_t const used = kv_minimum_size(count, kv_fit_range_tokens(fit) - u);
    if (used <= 0) return KV_OK;
    if (!is_plain) {
        memcpy(job->z, x, (size_t)(used * d) * sizeof *x);
        kv_fit_apply(fit, n, job->head, used, job->z, job->swap);
        if (!fit->rows->all_finite(job->z, used * d))
            return not_finite(fit, job->head, first, job->z, used, " after the transforms", err);
        if (marks) kv_fit_mark(fit, job->head, u, used, job->z);
    }
    KV_TRY(fit->steps[fit->step].step->chunk(fit, job, u, used, is_plain ? x : job->z, err));
done:
    return status;
}

kv_status kv_fit_absorb(kv_fit *fit, int64_t head, const float *x, kv_error *err)
{
    kv_status status = KV_OK;
    float *rows = NULL;
    double *sums = NULL;
    int64_t const d = fit->shape.head_dim, end = fit->first + fit->span;
    if (kv_fit_next(fit) == KV_FIT_READY || head < 0 || head >= fit->shape.heads)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "kv head %" PRId64 " is not wanted by this fit", head));
    KV_TRY(kv_allocate3((void **)&rows, KV_JOB_ROWS, (size_t)d, 1, sizeof *rows, err));
    KV_TRY(kv_allocate((void **)&sums, (size_t)fit->job_doubles, sizeof *sums, err));
    kv_job job = kv_job_of(head, rows, sums, d);
    if (kv_fit_next(fit) == KV_FIT_TENSOR) {
        KV_TRY(check_kept_tokens(fit, &job, x, 0, fit->first, err));
        KV_TRY(check_kept_tokens(fit, &job, x, end, fit->shape.tokens, err));
    }
    for (int64_t u = 0; u < fit->span; u += KV_CHUNK)
        KV_TRY(absorb_chunk(fit, &job, x + (fit->first + u) * d, u,
                            kv_minimum_size(KV_CHUNK, fit->span - u), err));
done:
    kv_free(rows);
    kv_free(sums);
    return status;
}

kv_status kv_fit_end_pass(kv_fit *fit, kv_error *err)
{
    kv_status status = KV_OK;
    bool is_done = true;
    if (kv_fit_next(fit) == KV_FIT_READY)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "the fit is ready; no pass is open"));
    const kv_step *const step = fit->steps[fit->step].step;
    if (step->end) KV_TRY(step->end(fit, &is_done, err));
    if (is_done) {
        fit->step++;
        KV_TRY(begin_step(fit, err));
    }
done:
    return status;
}

/* ---- what was learnt ---- */

kv_fit_scales kv_fit_scales_of(const kv_fit *fit)
{
    kv_fit_scales scales = {0};
    if (!fit->scale) return scales;
    scales.heads = fit->grid.heads, scales.rows = fit->grid.rows;
    scales.columns = fit->grid.columns;
    scales.scale = fit->scale;
    scales.minimum = fit->q.is_asymmetric ? fit->minimum : NULL;
    return scales;
}
