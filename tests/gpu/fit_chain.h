/* One fit on the device, step by step as quantize.c lists the steps, and beside it kv_fit: every
 * number that a step leaves behind is compared. For test_fit_kernels.c. */
#ifndef KVANT_TESTS_GPU_FIT_CHAIN_H
#define KVANT_TESTS_GPU_FIT_CHAIN_H

#include <float.h>

#include "kernels/quantize_fit.h"
#include "tests/gpu/kernels.h"

typedef struct {
    emulated *e;
    kv_quantizer q;
    kv_tensor_shape shape;
    const float *x; /* [draws][heads][T][D]: the tensor, then calibration draws */
    int64_t draws;
    char name[320];

    kv_fit *fit;
    uint32_t flags; /* after the last step */
    kv_cuda_scheme scheme;
    float *device_x, *z;
    uint32_t *device_flags;
} fit_chain;

/* ---- the CPU ---- */

static kv_status absorb_pass(fit_chain *c, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const n = c->shape.tokens * c->shape.head_dim;
    bool const is_other = kv_fit_next(c->fit) == KV_FIT_CALIBRATION;
    for (int64_t draw = is_other; draw < (is_other ? c->draws : 1); draw++)
        for (int64_t head = 0; head < c->shape.heads; head++)
            KV_TRY(kv_fit_absorb(c->fit, head, c->x + (draw * c->shape.heads + head) * n, err));
    KV_TRY(kv_fit_end_pass(c->fit, err));
done:
    return status;
}

/* The flag that stands for the CPU's error; 0 where there is none. */
static uint32_t fit_on_cpu(fit_chain *c)
{
    kv_error err = {0};
    kv_status status = kv_fit_create(&c->fit, &c->q, &c->shape, &err);
    while (status == KV_OK && kv_fit_next(c->fit) != KV_FIT_READY) status = absorb_pass(c, &err);
    if (status == KV_OK) return 0;
    CHECK(status == KV_ENUMERIC, "%s: %s", c->name, err.message);
    if (strstr(err.message, "overflows float")) return KV_CUDA_OVERFLOW;
    bool const is_unfit = strstr(err.message, "f16") != NULL;
    return is_unfit ? KV_CUDA_UNFIT : KV_CUDA_NOT_FINITE;
}

/* ---- comparison ---- */

static void check_bits(const fit_chain *c, const char *what, const void *found,
                       const void *expected, int64_t n, size_t size)
{
    for (int64_t i = 0; i < n; i++) {
        const char *const a = (const char *)found + (size_t)i * size;
        const char *const b = (const char *)expected + (size_t)i * size;
        if (memcmp(a, b, size) == 0) continue;
        double values[2] = {0};
        for (int k = 0; k < 2; k++) {
            float narrow;
            memcpy(&narrow, k ? b : a, sizeof narrow);
            values[k] = narrow;
            if (size == sizeof(double)) memcpy(&values[k], k ? b : a, size);
        }
        CHECK(false, "%s: %s %d of %d: %.9g, expected %.9g", c->name, what, (int)i, (int)n,
              values[0], values[1]);
        return;
    }
}

/* Floats on the device against the CPU's. Which zero a range has depends on order and is nothing
 * to anyone: with has_zeros -0 counts as 0. */
static void check_floats(const fit_chain *c, const char *what, const float *device,
                         const float *expected, int64_t n, bool has_zeros)
{
    float *const found = malloc((size_t)n * sizeof *found + 1);
    float *const wanted = malloc((size_t)n * sizeof *wanted + 1);
    if (n > 0) to_host(c->e, found, device, (size_t)n * sizeof *found);
    for (int64_t i = 0; i < n; i++) {
        wanted[i] = has_zeros ? expected[i] + 0.0f : expected[i];
        if (has_zeros) found[i] += 0.0f;
    }
    check_bits(c, what, found, wanted, n, sizeof *found);
    free(found), free(wanted);
}

/* Least errors of tiles, which the CPU sums in the same order. */
static void check_errors(const fit_chain *c, const double *device, int64_t n)
{
    double *const found = malloc((size_t)n * sizeof *found + 1);
    if (n > 0) to_host(c->e, found, device, (size_t)n * sizeof *found);
    check_bits(c, "error", found, c->fit->best_error, n, sizeof *found);
    free(found);
}

/* ---- steps ---- */

static bool is_flagged(fit_chain *c)
{
    to_host(c->e, &c->flags, c->device_flags, sizeof c->flags);
    return c->flags != 0;
}

static float *floats(const fit_chain *c, int64_t n)
{
    return room(c->e, (size_t)n * sizeof(float));
}

static int64_t per_head(const fit_chain *c)
{
    return c->scheme.span * c->shape.head_dim;
}

static kv_cuda_prepare preparation(const fit_chain *c, int64_t draw, int transforms, bool marks)
{
    int64_t const all = c->shape.heads * c->shape.tokens * c->shape.head_dim;
    return (kv_cuda_prepare){.z = c->z + draw * c->shape.heads * per_head(c),
                             .x = c->device_x + draw * all,
                             .heads = c->shape.heads,
                             .tokens = c->shape.tokens,
                             .head_dim = c->shape.head_dim,
                             .scheme = c->scheme,
                             .transforms = transforms,
                             .marks = marks,
                             .checks_kept = draw == 0,
                             .flags = c->device_flags};
}

/* Tiles of z, of the tensor itself or of the calibration draws. */
static kv_cuda_tiles tiles_of(const fit_chain *c, const kv_tile_grid *g, bool is_calibration)
{
    int64_t const draw_stride = c->shape.heads * per_head(c);
    return (kv_cuda_tiles){.z = c->z + (is_calibration ? draw_stride : 0),
                           .heads = c->shape.heads,
                           .draws = is_calibration ? c->draws - 1 : 1,
                           .tokens = c->scheme.span,
                           .head_dim = c->shape.head_dim,
                           .head_stride = per_head(c),
                           .draw_stride = draw_stride,
                           .tile_tokens = g->tokens,
                           .tile_channels = g->channels,
                           .rows = g->rows,
                           .columns = g->columns,
                           .spans_heads = g->heads == 1 && c->shape.heads > 1};
}

static void learn_center(fit_chain *c)
{
    const kv_transform_state *const learnt = &c->fit->transforms[KV_TRANSFORM_CENTER];
    int64_t const d = c->shape.head_dim, n = c->shape.heads * d;
    kv_cuda_prepare const p = preparation(c, 0, KV_TRANSFORM_CENTER, false);
    kv_cuda_channels const sums = {room(c->e, (size_t)n * sizeof(double)),
                                   c->z,
                                   c->shape.heads,
                                   c->scheme.span,
                                   d,
                                   per_head(c)};
    double *const sum = malloc((size_t)n * sizeof *sum);
    float *const mean = calloc((size_t)n, sizeof *mean);
    DO(c->e, prepare, &p);
    DO(c->e, channels, &sums);
    to_host(c->e, sum, sums.sum, (size_t)n * sizeof *sum);
    for (int64_t i = 0; i < n && c->scheme.span > 0; i++)
        mean[i] = kv_scale_round((float)(sum[i] / (double)c->scheme.span), KV_SCALE_F16);
    c->scheme.mean = to_device(c->e, mean, (size_t)n * sizeof *mean);
    if (is_flagged(c)) goto done;
    check_bits(c, "channel sum", sum, learnt->statistic, n, sizeof *sum);
    check_bits(c, "mean", mean, learnt->channel, n, sizeof *mean);
done:
    free(sum), free(mean);
}

/* The largest magnitudes; the power is the host's, and so the CPU's divisor is taken. */
static void learn_smooth(fit_chain *c)
{
    const kv_transform_state *const learnt = &c->fit->transforms[KV_TRANSFORM_SMOOTH];
    double const setting = c->q.transforms[KV_TRANSFORM_SMOOTH].value;
    double const a = setting != 0 ? setting : kv_transform_at(KV_TRANSFORM_SMOOTH)->preset;
    int64_t const d = c->shape.head_dim, n = c->shape.heads * d, half = c->shape.rotary_dim / 2;
    kv_tile_grid const g = {c->shape.heads, c->scheme.span, 1, 1, d};
    kv_cuda_prepare const p = preparation(c, 0, KV_TRANSFORM_SMOOTH, false);
    kv_cuda_extremes const most = {floats(c, n), floats(c, n), tiles_of(c, &g, false), false};
    float *const high = calloc((size_t)n, sizeof *high), *const divisor = malloc((size_t)n * 4);
    DO(c->e, prepare, &p);
    if (c->scheme.span > 0) {
        DO(c->e, extremes, &most);
        to_host(c->e, high, most.high, (size_t)n * sizeof *high);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t const k = i % d, left = k < half ? k + half : k - half;
        int64_t const other = k >= 2 * half ? k : c->shape.is_rope_interleaved ? (k ^ 1) : left;
        float const largest = fmaxf(high[i], high[i - k + other]);
        divisor[i] = largest > 0 ? (float)pow((double)largest, a) : 1.0f;
    }
    c->scheme.divisor = to_device(c->e, divisor, (size_t)n * sizeof *divisor);
    if (!is_flagged(c)) check_bits(c, "divisor", divisor, learnt->channel, n, sizeof *divisor);
    free(high), free(divisor);
}

static void set_hadamard(fit_chain *c)
{
    const kv_transform_setting *const s = &c->q.transforms[KV_TRANSFORM_HADAMARD];
    const float *const signs = c->fit->transforms[KV_TRANSFORM_HADAMARD].channel;
    size_t const bytes = (size_t)c->shape.head_dim * sizeof *signs;
    c->scheme.hadamard = s->value != 0 ? (int64_t)s->value : c->shape.head_dim;
    c->scheme.hadamard_factor = (float)(1.0 / sqrt((double)c->scheme.hadamard));
    if (s->has_signs) c->scheme.signs = to_device(c->e, signs, bytes);
}

static void find_outliers(fit_chain *c)
{
    const kv_tile_grid *const g = &c->fit->vectors;
    int64_t const vectors = g->rows * g->columns, heads = c->shape.heads, n = heads * vectors;
    double const half = c->q.outliers_percent / 2, p[] = {half, 100.0 - half};
    float *const low = floats(c, n), *const high = floats(c, n);
    unsigned long long kept[8];
    kv_cuda_select select = {.statistics = floats(c, 4 * n),
                             .elements = room(c->e, (size_t)n * sizeof(int64_t)),
                             .tiles = tiles_of(c, g, false),
                             .n = 2,
                             .p = {p[0], p[1]}};
    select.tiles.spans_heads = false;
    kv_cuda_percentiles const limits = {low, high, select.statistics, select.elements, n,
                                        2,   true, {p[0], p[1]}};
    kv_cuda_prepare prepare = preparation(c, 0, KV_TRANSFORM_COUNT, false);
    DO(c->e, prepare, &prepare);
    DO(c->e, select, &select);
    DO(c->e, percentiles, &limits);
    c->scheme.keep_low = low, c->scheme.keep_high = high, c->scheme.vectors = vectors;
    c->scheme.is_kept_by_channel = g->channels == 1 && g->rows == 1;
    if (is_flagged(c)) return;
    check_floats(c, "lower threshold", low, c->fit->keep_low, n, false);
    check_floats(c, "upper threshold", high, c->fit->keep_high, n, false);
    prepare.z = NULL, prepare.marks = true, prepare.scheme = c->scheme;
    prepare.kept = room(c->e, sizeof kept);
    CHECK(c->e->cuda->zero(prepare.kept, sizeof kept, &c->e->err) == KV_OK, "zero");
    DO(c->e, prepare, &prepare);
    to_host(c->e, kept, prepare.kept, sizeof kept);
    if (is_flagged(c)) return;
    check_bits(c, "kept", kept, c->fit->kept, heads, sizeof *kept);
}

/* error [tiles] is set where the range is searched. */
static void find_range(fit_chain *c, kv_cuda_global *g, double *error)
{
    kv_cuda_tiles t = tiles_of(c, &c->fit->grid, c->q.static_seeds > 0);
    bool const is_pair = c->q.is_asymmetric;
    double const p = c->q.range_value;
    if (c->q.static_tokens > 0) t.tokens = kv_minimum_size(c->q.static_tokens, t.tokens);
    if (c->q.range == KV_RANGE_PERCENTILE) {
        kv_cuda_select const select = {.statistics = floats(c, 4 * g->tiles),
                                       .elements = room(c->e, (size_t)g->tiles * sizeof(int64_t)),
                                       .tiles = t,
                                       .is_absolute = !is_pair,
                                       .n = is_pair ? 2 : 1,
                                       .p = {is_pair ? 100.0 - p : p, p}};
        kv_cuda_percentiles const range = {(float *)g->low,
                                           (float *)g->high,
                                           select.statistics,
                                           select.elements,
                                           g->tiles,
                                           select.n,
                                           false,
                                           {select.p[0], select.p[1]}};
        DO(c->e, select, &select);
        DO(c->e, percentiles, &range);
    } else {
        kv_cuda_extremes const range = {(float *)g->low, (float *)g->high, t, is_pair};
        DO(c->e, extremes, &range);
    }
    DO(c->e, global, g);
    kv_cuda_search const search = {.low = (float *)g->low,
                                   .high = (float *)g->high,
                                   .error = error,
                                   .tiles = t,
                                   .format = (int32_t)c->q.format,
                                   .rule = g->rule,
                                   .global = g->global};
    if (c->q.range == KV_RANGE_MSE) DO(c->e, search, &search);
}

static void find_scales(fit_chain *c)
{
    const kv_fit *const fit = c->fit;
    int64_t const n = fit->grid.heads * kv_grid_tiles(&fit->grid);
    kv_scale_rule rule = kv_fit_scale_rule(fit);
    rule.global = NAN; /* kernels read their own */
    float *const low = floats(c, n), *const high = floats(c, n), *const scale = floats(c, n);
    float *const minimum = floats(c, n);
    double *const error = room(c->e, (size_t)n * sizeof *error);
    bool const has_global = c->q.scale_storage == KV_SCALE_E4M3;
    float *const global = has_global ? floats(c, 1) : NULL;
    bool const marks = c->q.outliers_percent > 0;
    for (int64_t draw = c->q.static_seeds > 0; draw < c->draws; draw++) {
        kv_cuda_prepare const p = preparation(c, draw, KV_TRANSFORM_COUNT, marks);
        DO(c->e, prepare, &p);
    }
    if (is_flagged(c)) return;
    kv_cuda_global g = {global, low, high, n, rule, c->device_flags};
    kv_cuda_scales const scales = {scale, minimum, low, high, global, n, rule, c->device_flags};
    find_range(c, &g, error);
    DO(c->e, scales, &scales);
    if (is_flagged(c)) return;
    if (has_global) check_floats(c, "global", global, &fit->global_scale, 1, false);
    check_floats(c, "low", low, fit->low, n, true);
    check_floats(c, "high", high, fit->high, n, true);
    check_floats(c, "scale", scale, fit->scale, n, false);
    check_floats(c, "minimum", minimum, fit->minimum, n, false);
    if (c->q.range == KV_RANGE_MSE) check_errors(c, error, n);
}

static void fit_chain_run(fit_chain *c)
{
    const kv_transform_setting *const t = c->q.transforms;
    int64_t const d = c->shape.head_dim, all = c->draws * c->shape.heads * c->shape.tokens * d;
    uint32_t const expected = fit_on_cpu(c), none = 0;
    c->scheme = (kv_cuda_scheme){
        .format = (int32_t)c->q.format, .first = c->fit->first, .span = c->fit->span};
    c->device_x = to_device(c->e, c->x, (size_t)all * sizeof *c->x);
    c->z = floats(c, c->draws * c->shape.heads * per_head(c));
    c->device_flags = to_device(c->e, &none, sizeof none);
    kv_cuda_prepare check = preparation(c, 0, 0, false);
    check.z = NULL;
    DO(c->e, prepare, &check);
    if (t[KV_TRANSFORM_CENTER].is_on && !is_flagged(c)) learn_center(c);
    if (t[KV_TRANSFORM_SMOOTH].is_on && !is_flagged(c)) learn_smooth(c);
    if (t[KV_TRANSFORM_HADAMARD].is_on) set_hadamard(c);
    if (c->q.outliers_percent > 0 && !is_flagged(c)) find_outliers(c);
    bool const is_found = c->fit->has_range && c->q.range != KV_RANGE_UNIT;
    kv_cuda_prepare const last = preparation(c, 0, KV_TRANSFORM_COUNT, false);
    if (!is_found && !is_flagged(c)) DO(c->e, prepare, &last);
    if (is_found && !is_flagged(c)) find_scales(c);
    is_flagged(c);
    CHECK(c->flags == expected, "%s: flags %u, expected %u", c->name, c->flags, expected);
    kv_fit_free(c->fit);
}

#endif
