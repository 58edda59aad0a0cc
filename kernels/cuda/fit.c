/* Fits on the device: see fit.h. The steps and their order are those of kernels/quantize.c. */
#include "kernels/cuda/fit.h"

#include "kernels/cuda/statistics.h"
#include "kernels/memory.h"
#include "kernels/quantize_fit.h"

/* One fit at work. */
typedef struct {
    kv_cuda_wave *wave;
    const kv_quantizer *q;
    kv_tensor tensor;
    kv_tensor_shape head; /* of one kv head */
    kv_tile_grid grid;    /* tiles of one head, or of all where they span heads */
    kv_tile_grid vectors; /* of outliers, of one head */
    bool spans_heads, has_range, has_transforms;
    int64_t n_tiles; /* of the wave */
    const float *x;  /* [heads][T][D] */
    kv_cuda_scheme scheme;
    float *mean, *divisor, *signs, *scale, *minimum, *global, *keep_low, *keep_high;
} fitting;

/* A tensor that a step sees: the quantized tokens of heads and draws. */
typedef struct {
    const float *z;
    int64_t draws, tokens, head_stride, draw_stride;
} seen;

static int64_t heads_of(const fitting *f)
{
    return f->wave->heads;
}

static bool has_transforms(const kv_quantizer *q, int n)
{
    for (int i = 0; i < n; i++)
        if (q->transforms[i].is_on) return true;
    return false;
}

static kv_tensor_shape head_shape(const kv_layer *layer, const kv_quantizer *q, kv_tensor tensor)
{
    return (kv_tensor_shape){.heads = 1,
                             .tokens = layer->tokens,
                             .head_dim = layer->head_dim,
                             .rotary_dim =
                                 tensor == KV_KEY && !q->is_pre_rope ? layer->rotary_dim : 0,
                             .is_rope_interleaved = layer->is_rope_interleaved};
}

static bool tiles_span_heads(const kv_layer *layer, const kv_quantizer *q)
{
    return kv_tile_at(q->tile)->is_layer_wide && layer->kv_heads > 1;
}

/* ---- what a fit keeps ---- */

static kv_status take_floats(float **out, fitting *f, int64_t count, kv_error *err)
{
    return kv_cuda_take_zeros((void **)out, &f->wave->memory, count, sizeof **out, err);
}

static kv_status take_arrays(fitting *f, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_quantizer *const q = f->q;
    int64_t const channels = heads_of(f) * f->head.head_dim;
    if (q->transforms[KV_TRANSFORM_CENTER].is_on) KV_TRY(take_floats(&f->mean, f, channels, err));
    if (q->transforms[KV_TRANSFORM_SMOOTH].is_on)
        KV_TRY(take_floats(&f->divisor, f, channels, err));
    if (q->transforms[KV_TRANSFORM_HADAMARD].has_signs)
        KV_TRY(take_floats(&f->signs, f, f->head.head_dim, err));
    if (q->outliers_percent > 0) {
        KV_TRY(take_floats(&f->keep_low, f, heads_of(f) * kv_grid_tiles(&f->vectors), err));
        KV_TRY(take_floats(&f->keep_high, f, heads_of(f) * kv_grid_tiles(&f->vectors), err));
    }
    if (f->has_range && q->range != KV_RANGE_UNIT) {
        KV_TRY(take_floats(&f->scale, f, f->n_tiles, err));
        KV_TRY(take_floats(&f->minimum, f, f->n_tiles, err));
        KV_TRY(take_floats(&f->global, f, 1, err));
    }
done:
    return status;
}

static kv_cuda_scheme scheme_of(const fitting *f)
{
    const kv_quantizer *const q = f->q;
    const kv_format *const format = kv_format_at(q->format);
    const kv_transform_setting *const hadamard = &q->transforms[KV_TRANSFORM_HADAMARD];
    int64_t const size = hadamard->is_on ? kv_hadamard_size(hadamard, &f->head) : 0;
    int64_t first, end;
    kv_quantizer_span(q, f->head.tokens, &first, &end);
    return (kv_cuda_scheme){
        .format = (int32_t)q->format,
        .is_pre_rope = q->is_pre_rope,
        .rule = {.storage = (int32_t)q->scale_storage,
                 .is_asymmetric = q->is_asymmetric,
                 .limit = q->is_asymmetric ? kv_int_levels(format->bits) : format->maximum},
        .first = first,
        .span = end - first,
        .tile_tokens = f->grid.tokens,
        .tile_channels = f->grid.channels,
        .tile_columns = f->grid.columns,
        .head_tiles = f->spans_heads ? 0 : kv_grid_tiles(&f->grid),
        .scale = f->scale,
        .minimum = f->minimum,
        .global = f->global,
        .keep_low = f->keep_low,
        .keep_high = f->keep_high,
        .vectors = kv_grid_tiles(&f->vectors),
        .is_kept_by_channel = kv_outliers_by_channel(&f->vectors),
        .mean = f->mean,
        .divisor = f->divisor,
        .signs = f->signs,
        .hadamard = size,
        .hadamard_factor = size > 0 ? (float)(1.0 / sqrt((double)size)) : 0.0f,
    };
}

static kv_status start(fitting *f, kv_cuda_wave *wave, const kv_quantizer *q, kv_tensor tensor,
                       kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const layer = wave->layer;
    int64_t first, end;
    *f = (fitting){.wave = wave, .q = q, .tensor = tensor};
    f->head = head_shape(layer, q, tensor);
    f->spans_heads = tiles_span_heads(layer, q);
    kv_tensor_shape fitted = f->head;
    if (kv_quantizer_is_layer_wide(q)) fitted.heads = layer->kv_heads;
    KV_TRY(kv_quantizer_check(q, &fitted, err));
    kv_quantizer_span(q, layer->tokens, &first, &end);
    f->grid = kv_quantizer_grid(q, &f->head, end - first);
    f->vectors = kv_outlier_vectors(q, &f->head, end - first);
    f->has_range = kv_format_has_scale(kv_format_at(q->format));
    f->has_transforms = has_transforms(q, KV_TRANSFORM_COUNT);
    f->n_tiles = (f->spans_heads ? 1 : wave->heads) * kv_grid_tiles(&f->grid);
    f->x = tensor == KV_VALUE          ? wave->value
           : tensor == KV_KEY_PRE_ROPE ? wave->key_pre_rope
                                       : wave->key;
    KV_TRY(take_arrays(f, err));
    f->scheme = scheme_of(f);
done:
    return status;
}

/* ---- what steps see ---- */

/* With what is the same for every step filled in. */
static kv_status prepare(const fitting *f, kv_cuda_prepare a, kv_error *err)
{
    a.heads = heads_of(f), a.tokens = f->head.tokens, a.head_dim = f->head.head_dim;
    a.scheme = f->scheme, a.flags = f->wave->flags;
    return f->wave->cuda->prepare(&a, err);
}

/* The tensor with its first transforms applied, and marks; x itself where nothing changes it. */
static kv_status see(seen *out, const fitting *f, int transforms, bool marks, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const d = f->head.head_dim, span = f->scheme.span;
    float *z = NULL;
    *out = (seen){f->x + f->scheme.first * d, 1, span, f->head.tokens * d, 0};
    if (!marks && !has_transforms(f->q, transforms)) return KV_OK;
    KV_TRY(kv_cuda_take((void **)&z, &f->wave->memory, heads_of(f) * span * d, sizeof *z, err));
    kv_cuda_prepare const a = {.z = z, .x = f->x, .transforms = transforms, .marks = marks};
    KV_TRY(prepare(f, a, err));
    *out = (seen){z, 1, span, span * d, 0};
done:
    return status;
}

/* The same of the other draws that static scales are found on. */
static kv_status see_draws(seen *out, const fitting *f, bool marks, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_memory *const memory = &f->wave->memory;
    int64_t const heads = heads_of(f), d = f->head.head_dim, span = f->scheme.span;
    int64_t const draws = f->q->static_seeds, size = heads * f->head.tokens * d;
    bool const is_plain = !marks && !f->has_transforms;
    float *x = NULL, *z = NULL;
    KV_TRY(kv_cuda_take((void **)&x, memory, draws * size, sizeof *x, err));
    if (!is_plain)
        KV_TRY(kv_cuda_take((void **)&z, memory, draws * heads * span * d, sizeof *z, err));
    for (int64_t i = 0; i < draws; i++) {
        kv_cuda_prepare const a = {.z = is_plain ? NULL : z + i * heads * span * d,
                                   .x = x + i * size,
                                   .transforms = KV_TRANSFORM_COUNT,
                                   .marks = marks};
        KV_TRY(kv_cuda_wave_tensor(x + i * size, f->wave, f->tensor, i + 1, err));
        KV_TRY(prepare(f, a, err));
    }
    *out = is_plain ? (seen){x + f->scheme.first * d, draws, span, f->head.tokens * d, size}
                    : (seen){z, draws, span, span * d, heads * span * d};
done:
    return status;
}

static kv_cuda_tiles tiles_of(const fitting *f, const seen *s, const kv_tile_grid *grid,
                              bool spans_heads)
{
    return (kv_cuda_tiles){.z = s->z,
                           .heads = heads_of(f),
                           .draws = s->draws,
                           .tokens = s->tokens,
                           .head_dim = f->head.head_dim,
                           .head_stride = s->head_stride,
                           .draw_stride = s->draw_stride,
                           .tile_tokens = grid->tokens,
                           .tile_channels = grid->channels,
                           .rows = grid->rows,
                           .columns = grid->columns,
                           .spans_heads = spans_heads};
}

/* ---- transforms ---- */

static kv_status center_statistic(const fitting *f, kv_fit *host, const seen *s, kv_error *err)
{
    kv_status status = KV_OK;
    double *const to = host->transforms[KV_TRANSFORM_CENTER].statistic;
    int64_t const channels = heads_of(f) * f->head.head_dim;
    double *sum = NULL;
    KV_TRY(kv_cuda_take_zeros((void **)&sum, &f->wave->memory, channels, sizeof *sum, err));
    kv_cuda_channels const a = {.sum = sum,
                                .z = s->z,
                                .heads = heads_of(f),
                                .tokens = s->tokens,
                                .head_dim = f->head.head_dim,
                                .head_stride = s->head_stride};
    KV_TRY(f->wave->cuda->channels(&a, err));
    KV_TRY(f->wave->cuda->download(to, sum, channels * (int64_t)sizeof *sum, err));
done:
    return status;
}

static kv_status smooth_statistic(const fitting *f, kv_fit *host, const seen *s, kv_error *err)
{
    kv_status status = KV_OK;
    float *const to = host->transforms[KV_TRANSFORM_SMOOTH].channel;
    int64_t const channels = heads_of(f) * f->head.head_dim;
    kv_tile_grid const grid = kv_tile_grid_of(1, s->tokens, f->head.head_dim, 0, 1);
    float *low = NULL, *high = NULL;
    KV_TRY(kv_cuda_take_zeros((void **)&low, &f->wave->memory, channels, sizeof *low, err));
    KV_TRY(kv_cuda_take_zeros((void **)&high, &f->wave->memory, channels, sizeof *high, err));
    kv_cuda_extremes const a = {
        .low = low, .high = high, .tiles = tiles_of(f, s, &grid, false), .is_asymmetric = 0};
    KV_TRY(f->wave->cuda->extremes(&a, err));
    KV_TRY(f->wave->cuda->download(to, high, channels * (int64_t)sizeof *high, err));
done:
    return status;
}

/* What a transform learns on the device, and where its numbers per channel go: learn_NAME for each
 * row of KV_TRANSFORM_TABLE. */
typedef struct {
    kv_status (*statistic)(const fitting *f, kv_fit *host, const seen *s, kv_error *err);
    size_t channel; /* the member of `fitting` */
    bool is_of_head;
} learning;
static const learning learn_center = {center_statistic, offsetof(fitting, mean), true};
static const learning learn_smooth = {smooth_statistic, offsetof(fitting, divisor), true};
static const learning learn_hadamard = {NULL, offsetof(fitting, signs), false};

#define KV_ROW(name, ...) &learn_##name,
static const learning *const learnings[] = {KV_TRANSFORM_TABLE(KV_ROW)};
#undef KV_ROW

static kv_status upload_channel(const fitting *f, const kv_fit *host, int transform, kv_error *err)
{
    const learning *const l = learnings[transform];
    const float *const from = host->transforms[transform].channel;
    float *to;
    memcpy(&to, (const char *)f + l->channel, sizeof to);
    int64_t const count = (l->is_of_head ? heads_of(f) : 1) * f->head.head_dim;
    return from && to ? f->wave->cuda->upload(to, from, count * (int64_t)sizeof *to, err) : KV_OK;
}

/* The host's fit of the transforms alone does what follows from the statistics. */
static kv_status learn_transforms(const fitting *f, kv_error *err)
{
    kv_status status = KV_OK;
    kv_quantizer only = {.sinks = f->q->sinks, .window = f->q->window, .flush = f->q->flush};
    kv_tensor_shape shape = f->head;
    kv_fit *host = NULL;
    memcpy(only.transforms, f->q->transforms, sizeof only.transforms);
    only.format = KV_FORMAT_F32;
    shape.heads = heads_of(f);
    KV_TRY(kv_fit_create(&host, &only, &shape, err));
    for (int i = 0; i < KV_TRANSFORM_COUNT; i++) KV_TRY(upload_channel(f, host, i, err));
    while (kv_fit_next(host) != KV_FIT_READY) {
        int const transform = host->steps[host->step].transforms; /* or the check, past the last */
        if (transform < KV_TRANSFORM_COUNT) {
            seen s;
            KV_TRY(see(&s, f, transform, false, err));
            KV_TRY(learnings[transform]->statistic(f, host, &s, err));
        }
        KV_TRY(kv_fit_end_pass(host, err));
        if (transform < KV_TRANSFORM_COUNT) KV_TRY(upload_channel(f, host, transform, err));
    }
done:
    kv_fit_free(host);
    return status;
}

/* ---- outliers and ranges ---- */

/* Order statistics of the tiles of what is seen, and floats made of them. */
static kv_status select_percentiles(float *low, float *high, const fitting *f, kv_cuda_select *a,
                                    int64_t tiles, bool is_outliers, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_cuda_start_select(a, f->wave, err));
    kv_cuda_percentiles const p = {.low = low,
                                   .high = high,
                                   .statistics = a->statistics,
                                   .elements = a->elements,
                                   .tiles = tiles,
                                   .n = a->n,
                                   .is_outliers = is_outliers,
                                   .p = {a->p[0], a->p[1]}};
    KV_TRY(f->wave->cuda->percentiles(&p, err));
done:
    return status;
}

/* Thresholds, and how many elements they keep, kept [heads] of the host. */
static kv_status find_outliers(const fitting *f, int64_t *kept, kv_error *err)
{
    kv_status status = KV_OK;
    kv_outlier_percentiles const p = kv_outlier_percentiles_of(f->q);
    unsigned long long *counts = NULL;
    seen s;
    KV_TRY(see(&s, f, KV_TRANSFORM_COUNT, false, err));
    kv_cuda_select a = {.tiles = tiles_of(f, &s, &f->vectors, false), .n = 2, .p = {p.low, p.high}};
    KV_TRY(select_percentiles(f->keep_low, f->keep_high, f, &a,
                              heads_of(f) * kv_grid_tiles(&f->vectors), true, err));
    KV_TRY(
        kv_cuda_take_zeros((void **)&counts, &f->wave->memory, heads_of(f), sizeof *counts, err));
    kv_cuda_prepare const count = {
        .x = f->x, .transforms = KV_TRANSFORM_COUNT, .marks = true, .kept = counts};
    KV_TRY(prepare(f, count, err));
    KV_TRY(f->wave->cuda->download(kept, counts, heads_of(f) * (int64_t)sizeof *counts, err));
done:
    return status;
}

/* Before the search of range=mse; range=unit has none. */
static kv_status find_range(float *low, float *high, const fitting *f, const kv_cuda_tiles *tiles,
                            kv_error *err)
{
    _Static_assert(KV_RANGE_COUNT == 4, "a range rule needs its case here");
    bool const is_pair = f->q->is_asymmetric;
    double const p = f->q->range_value;
    if (f->q->range == KV_RANGE_PERCENTILE) {
        kv_cuda_select a = {.tiles = *tiles, .is_absolute = !is_pair, .n = is_pair ? 2 : 1};
        a.p[0] = is_pair ? 100.0 - p : p, a.p[1] = p;
        return select_percentiles(low, high, f, &a, f->n_tiles, false, err);
    }
    kv_cuda_extremes const a = {
        .low = low, .high = high, .tiles = *tiles, .is_asymmetric = f->q->is_asymmetric};
    return f->wave->cuda->extremes(&a, err);
}

static kv_status find_scales(const fitting *f, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_cuda_module *const cuda = f->wave->cuda;
    bool const marks = f->q->outliers_percent > 0;
    float *low = NULL, *high = NULL;
    seen s;
    KV_TRY(f->q->static_seeds > 0 ? see_draws(&s, f, marks, err)
                                  : see(&s, f, KV_TRANSFORM_COUNT, marks, err));
    if (f->q->static_tokens > 0) s.tokens = kv_minimum_size(f->q->static_tokens, s.tokens);
    KV_TRY(kv_cuda_take((void **)&low, &f->wave->memory, f->n_tiles, sizeof *low, err));
    KV_TRY(kv_cuda_take((void **)&high, &f->wave->memory, f->n_tiles, sizeof *high, err));
    kv_cuda_tiles const tiles = tiles_of(f, &s, &f->grid, f->spans_heads);
    KV_TRY(find_range(low, high, f, &tiles, err));
    kv_cuda_global const global = {.global = f->global,
                                   .low = low,
                                   .high = high,
                                   .tiles = f->n_tiles,
                                   .rule = f->scheme.rule,
                                   .flags = f->wave->flags};
    KV_TRY(cuda->global(&global, err));
    kv_cuda_search const search = {.low = low,
                                   .high = high,
                                   .tiles = tiles,
                                   .format = f->scheme.format,
                                   .rule = f->scheme.rule,
                                   .global = f->global};
    if (f->q->range == KV_RANGE_MSE) KV_TRY(cuda->search(&search, err));
    kv_cuda_scales const scales = {.scale = f->scale,
                                   .minimum = f->minimum,
                                   .low = low,
                                   .high = high,
                                   .global = f->global,
                                   .tiles = f->n_tiles,
                                   .rule = f->scheme.rule,
                                   .flags = f->wave->flags};
    KV_TRY(cuda->scales(&scales, err));
done:
    return status;
}

/* Whether 16-bit formats and blocks hold every number. */
static kv_status check_values(const fitting *f, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_decode a = {.x = f->x,
                        .x_pre_rope = f->x, /* rotation leaves a finite number finite */
                        .n = 1,
                        .heads = heads_of(f),
                        .tokens = f->head.tokens,
                        .head_dim = f->head.head_dim,
                        .flags = f->wave->flags};
    KV_TRY(kv_cuda_take_copy((void **)&a.schemes, &f->wave->memory, &f->scheme, 1, sizeof f->scheme,
                             err));
    KV_TRY(f->wave->cuda->decode(&a, err));
done:
    return status;
}

/* ---- all ---- */

static int64_t bits_of(const fitting *f, const int64_t *kept)
{
    kv_tensor_shape shape = f->head;
    int64_t bits = 0, all = 0;
    for (int64_t h = 0; h < heads_of(f); h++) all += kept[h];
    if (kv_quantizer_is_layer_wide(f->q)) {
        shape.heads = heads_of(f);
        return kv_quantizer_bits_kept(f->q, &shape, all);
    }
    for (int64_t h = 0; h < heads_of(f); h++) bits += kv_quantizer_bits_kept(f->q, &shape, kept[h]);
    return bits;
}

kv_status kv_cuda_fit(kv_cuda_scheme *out, int64_t *bits, kv_cuda_wave *wave, const kv_quantizer *q,
                      kv_tensor tensor, kv_error *err)
{
    kv_status status = KV_OK;
    fitting f;
    int64_t *kept = NULL;
    KV_TRY(start(&f, wave, q, tensor, err));
    size_t const mark = wave->memory.n;
    KV_TRY(kv_allocate((void **)&kept, (size_t)wave->heads, sizeof *kept, err));
    kv_cuda_prepare const check = {.x = f.x, .checks_kept = true};
    kv_cuda_prepare const transformed = {.x = f.x, .transforms = KV_TRANSFORM_COUNT};
    KV_TRY(prepare(&f, check, err));
    if (f.has_transforms) KV_TRY(learn_transforms(&f, err));
    if (f.has_transforms) KV_TRY(prepare(&f, transformed, err));
    if (f.keep_low) KV_TRY(find_outliers(&f, kept, err));
    if (!f.has_range) KV_TRY(check_values(&f, err));
    if (f.scale) KV_TRY(find_scales(&f, err));
    *bits = bits_of(&f, kept);
    *out = f.scheme;
    kv_cuda_give_back(&wave->memory, mark);
done:
    kv_free(kept);
    return status;
}

kv_cuda_fit_bytes kv_cuda_fit_size(const kv_layer *layer, const kv_quantizer *q)
{
    kv_tensor_shape const head = head_shape(layer, q, KV_KEY);
    int64_t first, end;
    kv_quantizer_span(q, layer->tokens, &first, &end);
    kv_tile_grid const grid = kv_quantizer_grid(q, &head, end - first);
    kv_tile_grid const vectors = kv_outlier_vectors(q, &head, end - first);
    int64_t const d = layer->head_dim, tensor = layer->tokens * d * (int64_t)sizeof(float);
    bool const has_outliers = q->outliers_percent > 0;
    bool const is_changed = has_outliers || has_transforms(q, KV_TRANSFORM_COUNT);
    int64_t const tiles = kv_grid_tiles(&grid), kept = has_outliers ? kv_grid_tiles(&vectors) : 0;
    int64_t const copies = 3 * is_changed + q->static_seeds * (1 + is_changed);
    int64_t const select = (copies + 1) * tensor / 64; /* more than what parts of tiles meet in */
    return (kv_cuda_fit_bytes){.kept = 8 * (tiles + kept) + 12 * d,
                               .working = copies * tensor + select + 32 * (tiles + kept) + 24 * d};
}
