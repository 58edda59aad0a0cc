/* Captures: what the outliers of each layer and kv head look like, as `kvant show CAPTURE` prints.
 *
 * A channel's rms is over tokens; its spread is the standard deviation around its own mean. Keys
 * are described before and after RoPE. Quantiles interpolate linearly between order statistics. */
#include <math.h>
#include <stdlib.h>

#include "kernels/memory.h"
#include "sim/capture_state.h"

/* One tensor of one head. Ratios are NaN where they would divide by 0. */
enum { N_QUANTILES = 5 };
static const double quantiles[N_QUANTILES] = {0, 0.25, 0.5, 0.75, 1};
typedef struct {
    double absmax_over_median, mean_energy, channel_ratio;
    double spread[N_QUANTILES];
} description;

/* Working memory for one head. */
typedef struct {
    float *x, *magnitude;         /* [T][D] */
    double *mean, *square, *sort; /* [D] */
} room;

static int by_float(const void *a, const void *b)
{
    float const x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int by_double(const void *a, const void *b)
{
    double const x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of ascending numbers. */
static double quantile(const double *sorted, int64_t count, double q)
{
    double const at = q * (double)(count - 1);
    int64_t const i = (int64_t)at, next = i + 1 < count ? i + 1 : i;
    return sorted[i] + (at - (double)i) * (sorted[next] - sorted[i]);
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

static void describe(description *out, room *r, int64_t tokens, int64_t width)
{
    int64_t const count = tokens * width;
    double mean_square = 0, square = 0;
    for (int64_t c = 0; c < width; c++) r->mean[c] = r->square[c] = 0;
    for (int64_t i = 0; i < count; i++) {
        double const x = r->x[i];
        r->mean[i % width] += x / (double)tokens;
        r->square[i % width] += x * x / (double)tokens;
        r->magnitude[i] = fabsf(r->x[i]);
    }
    qsort(r->magnitude, (size_t)count, sizeof(float), by_float);
    double const median = ((double)r->magnitude[(count - 1) / 2] + r->magnitude[count / 2]) / 2;
    out->absmax_over_median = ratio(r->magnitude[count - 1], median);
    for (int64_t c = 0; c < width; c++) {
        mean_square += r->mean[c] * r->mean[c], square += r->square[c];
        r->sort[c] = sqrt(r->square[c]);
    }
    out->mean_energy = ratio(mean_square, square);
    qsort(r->sort, (size_t)width, sizeof(double), by_double);
    out->channel_ratio = ratio(r->sort[width - 1], quantile(r->sort, width, 0.5));
    for (int64_t c = 0; c < width; c++)
        r->sort[c] = sqrt(fmax(r->square[c] - r->mean[c] * r->mean[c], 0));
    qsort(r->sort, (size_t)width, sizeof(double), by_double);
    for (int i = 0; i < N_QUANTILES; i++) out->spread[i] = quantile(r->sort, width, quantiles[i]);
}

/* The arrays of the record. A key array has the dimension position after kv_head. */
typedef struct {
    double *absmax_over_median, *mean_energy, *channel_ratio, *spread;
} columns;

static void store(const columns *to, int64_t index, const description *d)
{
    to->absmax_over_median[index] = d->absmax_over_median;
    to->mean_energy[index] = d->mean_energy;
    to->channel_ratio[index] = d->channel_ratio;
    for (int i = 0; i < N_QUANTILES; i++) to->spread[index * N_QUANTILES + i] = d->spread[i];
}

static kv_status describe_head(const columns *key, const columns *value, room *r,
                               const kv_capture *capture, int64_t index, int64_t head, int64_t row,
                               kv_error *err)
{
    kv_status status = KV_OK;
    const kv_capture_layer *const layer = kv_capture_layer_at(capture, index);
    kv_rope *rope = NULL;
    description d;
    KV_TRY(kv_rope_create(&rope, &layer->rope, layer->head_dim, err));
    KV_TRY(kv_capture_load(r->x, capture, index, KV_CAPTURE_VALUE, head, err));
    describe(&d, r, layer->tokens, layer->head_dim);
    store(value, row, &d);
    KV_TRY(kv_capture_load(r->x, capture, index, KV_CAPTURE_KEY, head, err));
    describe(&d, r, layer->tokens, layer->head_dim);
    store(key, 2 * row + !layer->is_key_pre_rope, &d);
    (layer->is_key_pre_rope ? kv_rope_apply : kv_rope_remove)(rope, 0, layer->tokens, r->x);
    describe(&d, r, layer->tokens, layer->head_dim);
    store(key, 2 * row + layer->is_key_pre_rope, &d);
done:
    kv_rope_free(rope);
    return status;
}

static kv_status make_room(room *r, const kv_capture *capture, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t size = 0, width = 0;
    for (int64_t i = 0; i < kv_capture_layers(capture); i++) {
        const kv_capture_layer *const layer = kv_capture_layer_at(capture, i);
        if (layer->tokens * layer->head_dim > size) size = layer->tokens * layer->head_dim;
        if (layer->head_dim > width) width = layer->head_dim;
    }
    KV_TRY(kv_allocate((void **)&r->x, (size_t)size, sizeof(float), err));
    KV_TRY(kv_allocate((void **)&r->magnitude, (size_t)size, sizeof(float), err));
    KV_TRY(kv_allocate((void **)&r->mean, (size_t)width, sizeof(double), err));
    KV_TRY(kv_allocate((void **)&r->square, (size_t)width, sizeof(double), err));
    KV_TRY(kv_allocate((void **)&r->sort, (size_t)width, sizeof(double), err));
done:
    return status;
}

static kv_status add_dimensions(kv_record *record, const kv_capture *capture, kv_error *err)
{
    static const char *const positions[] = {"pre-rope", "post-rope"};
    kv_status status = KV_OK;
    int64_t const layers = kv_capture_layers(capture);
    int64_t heads = 0;
    double *numbers = NULL;
    for (int64_t i = 0; i < layers; i++)
        if (kv_capture_layer_at(capture, i)->kv_heads > heads)
            heads = kv_capture_layer_at(capture, i)->kv_heads;
    KV_TRY(kv_allocate((void **)&numbers, (size_t)(layers > heads ? layers : heads), sizeof(double),
                       err));
    for (int64_t i = 0; i < layers; i++)
        numbers[i] = (double)kv_capture_layer_at(capture, i)->layer;
    KV_TRY(kv_record_add_dimension(
        record, &(kv_dimension_spec){.name = "layer", .length = layers, .numbers = numbers}, err));
    for (int64_t i = 0; i < heads; i++) numbers[i] = (double)i;
    KV_TRY(kv_record_add_dimension(
        record, &(kv_dimension_spec){.name = "kv_head", .length = heads, .numbers = numbers}, err));
    KV_TRY(kv_record_add_dimension(
        record, &(kv_dimension_spec){.name = "position", .length = 2, .texts = positions}, err));
    KV_TRY(kv_record_add_dimension(
        record,
        &(kv_dimension_spec){.name = "quantile", .length = N_QUANTILES, .numbers = quantiles},
        err));
done:
    kv_free(numbers);
    return status;
}

/* Adds the four arrays of one tensor; `position` is NULL for values. */
static kv_status add_columns(columns *out, kv_record *record, const char *const names[4],
                             const char *position, kv_error *err)
{
    static const char *const about[] = {
        "largest magnitude over median magnitude",
        "share of the energy that is the channels' means",
        "rms of the largest channel over that of the median channel",
        "standard deviation of a channel around its mean, quantiles over channels"};
    double **const fields[] = {&out->absmax_over_median, &out->mean_energy, &out->channel_ratio,
                               &out->spread};
    for (int i = 0; i < 4; i++) {
        kv_array_spec spec = {.name = names[i],
                              .units = "1",
                              .long_name = about[i],
                              .dimensions = {"layer", "kv_head"}};
        int rank = 2;
        if (position) spec.dimensions[rank++] = position;
        if (i == 3) spec.dimensions[rank++] = "quantile";
        kv_status const status = kv_record_add_array(record, &spec, err);
        if (status != KV_OK) return status;
        *fields[i] = kv_record_array(record, names[i])->numbers;
    }
    return KV_OK;
}

kv_status kv_capture_statistics(kv_record **out, const kv_capture *capture, kv_error *err)
{
    static const char *const key_names[] = {"key_absmax_over_median", "key_mean_energy",
                                            "key_channel_ratio", "key_spread"};
    static const char *const value_names[] = {"value_absmax_over_median", "value_mean_energy",
                                              "value_channel_ratio", "value_spread"};
    kv_status status = KV_OK;
    kv_record *record = NULL;
    room r = {0};
    columns key, value;
    KV_TRY(make_room(&r, capture, err));
    KV_TRY(kv_record_create(&record, err));
    KV_TRY(add_dimensions(record, capture, err));
    KV_TRY(add_columns(&key, record, key_names, "position", err));
    KV_TRY(add_columns(&value, record, value_names, NULL, err));
    int64_t const heads = kv_record_dimension(record, "kv_head")->length;
    for (int64_t i = 0; i < kv_capture_layers(capture); i++)
        for (int64_t g = 0; g < kv_capture_layer_at(capture, i)->kv_heads; g++)
            KV_TRY(describe_head(&key, &value, &r, capture, i, g, i * heads + g, err));
    KV_TRY(kv_record_set_text(record, "model", kv_capture_model(capture), err));
    KV_TRY(kv_record_set_text(record, "source", kv_capture_source(capture), err));
    *out = record, record = NULL;
done:
    kv_record_free(record);
    kv_free(r.x);
    kv_free(r.magnitude);
    kv_free(r.mean);
    kv_free(r.square);
    kv_free(r.sort);
    return status;
}
