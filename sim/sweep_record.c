/* The record of a sweep: dimensions, schemes as texts, an array for each metric. See sweep.h. */
#include <stdio.h>

#include "kernels/memory.h"
#include "sim/sweep_state.h"

static const char *const class_names[KV_SWEEP_CLASSES] = {"all", "isotropic", "local", "needle"};

static kv_status add_dimensions(kv_record *record, const kv_sweep *s, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_config *const c = s->config;
    void *names = NULL, *numbers = NULL;
    int64_t const longest = s->n_layers > s->n_seeds ? s->n_layers : s->n_seeds;
    KV_TRY(kv_allocate(&names, (size_t)c->n_schemes, sizeof(char *), err));
    KV_TRY(kv_allocate(&numbers, (size_t)(longest > s->n_heads ? longest : s->n_heads),
                       sizeof(double), err));
    for (int64_t i = 0; i < c->n_schemes; i++) ((const char **)names)[i] = c->schemes[i].name;
    KV_TRY(kv_record_add_dimension(record,
                                   &(kv_dimension_spec){.name = "scheme",
                                                        .length = c->n_schemes,
                                                        .texts = names,
                                                        .long_name = "key and value scheme"},
                                   err));
    for (int64_t a = 0; a < c->n_axes; a++)
        KV_TRY(kv_record_add_dimension(
            record,
            &(kv_dimension_spec){
                .name = c->axes[a].path,
                .length = c->axes[a].count,
                .numbers = c->axes[a].numbers,
                .texts = c->axes[a].numbers ? NULL : (const char *const *)c->axes[a].texts,
                .units = c->axes[a].unit,
                .long_name = "swept setting"},
            err));
    double *const x = numbers;
    for (int64_t i = 0; i < s->n_layers; i++) x[i] = (double)s->layers[i];
    KV_TRY(kv_record_add_dimension(
        record,
        &(kv_dimension_spec){
            .name = "layer", .length = s->n_layers, .numbers = x, .long_name = "model layer"},
        err));
    for (int64_t i = 0; i < s->n_heads; i++) x[i] = (double)i;
    KV_TRY(kv_record_add_dimension(
        record,
        &(kv_dimension_spec){
            .name = "head", .length = s->n_heads, .numbers = x, .long_name = "kv head"},
        err));
    for (int64_t i = 0; i < s->n_seeds; i++) x[i] = (double)c->heads.seeds.items[i];
    KV_TRY(kv_record_add_dimension(
        record,
        &(kv_dimension_spec){
            .name = "seed", .length = s->n_seeds, .numbers = x, .long_name = "replicate seed"},
        err));
    KV_TRY(kv_record_add_dimension(record,
                                   &(kv_dimension_spec){.name = "class",
                                                        .length = s->n_classes,
                                                        .texts = class_names,
                                                        .long_name = "query class"},
                                   err));
done:
    kv_free(names), kv_free(numbers);
    return status;
}

static kv_status add_scheme_texts(kv_record *record, const kv_sweep *s, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_config *const c = s->config;
    void *texts = NULL;
    KV_TRY(kv_allocate(&texts, (size_t)c->n_schemes, sizeof(char *), err));
    for (int64_t i = 0; i < c->n_schemes; i++) ((const char **)texts)[i] = c->schemes[i].key_text;
    KV_TRY(kv_record_add_array(record,
                               &(kv_array_spec){.name = "key_scheme",
                                                .long_name = "key quantizer",
                                                .dimensions = {"scheme"},
                                                .texts = texts},
                               err));
    for (int64_t i = 0; i < c->n_schemes; i++) ((const char **)texts)[i] = c->schemes[i].value_text;
    KV_TRY(kv_record_add_array(record,
                               &(kv_array_spec){.name = "value_scheme",
                                                .long_name = "value quantizer",
                                                .dimensions = {"scheme"},
                                                .texts = texts},
                               err));
done:
    kv_free(texts);
    return status;
}

/* An array of NaN with the dimensions of a metric: scheme, axes, layer, head, seed, class. */
static kv_status add_metric(double **numbers, kv_record *record, const kv_sweep *s,
                            const kv_metric_slot *t, const char *name, const char *about,
                            const char *combine, kv_error *err)
{
    kv_array_spec spec = {
        .name = name, .units = t->metric->units, .long_name = about, .combine = combine};
    kv_metric_scope const scope = t->metric->scope;
    int n = 0;
    if (scope != KV_SCOPE_HEAD) spec.dimensions[n++] = "scheme";
    for (int64_t a = 0; a < s->config->n_axes; a++) spec.dimensions[n++] = s->config->axes[a].path;
    if (scope != KV_SCOPE_STACK) spec.dimensions[n++] = "layer";
    if (scope != KV_SCOPE_LAYER && !kv_scope_is_stack(scope)) spec.dimensions[n++] = "head";
    spec.dimensions[n++] = "seed";
    if (scope == KV_SCOPE_QUERIES) spec.dimensions[n++] = "class";
    kv_status const status = kv_record_add_array(record, &spec, err);
    if (status == KV_OK) *numbers = record->arrays[record->n_arrays - 1].numbers;
    return status;
}

/* Units are [point][layer][seed] and, of stacks, [point][seed]; arrays [scheme][point][layer][head]
 * [seed][class]. With a baseline (>= 0), its value on the same heads is subtracted. */
static void spread(double *out, const kv_sweep *s, const kv_metric_slot *t, const double *values,
                   int64_t baseline)
{
    bool const is_stack = kv_scope_is_stack(t->metric->scope);
    int64_t const layers = is_stack ? t->layers : s->n_layers;
    int64_t const size = t->layers * t->heads * t->classes; /* of a scheme in a unit */
    for (int64_t unit = 0; unit < kv_sweep_units(s); unit++) {
        kv_unit_place const u = kv_sweep_place(s, unit);
        const double *const from = values + unit * s->values_per_unit + t->offset;
        for (int64_t i = 0; i < t->schemes * size && (u.layer < 0) == is_stack; i++) {
            int64_t const c = i / size, k = i % t->classes, h = i / t->classes % t->heads;
            int64_t const l = is_stack ? i % size / (t->heads * t->classes) : u.layer;
            int64_t const place =
                ((((c * s->n_points + u.point) * layers + l) * t->heads + h) * s->n_seeds +
                 u.seed) *
                    t->classes +
                k;
            out[place] = from[i] - (baseline < 0 ? 0 : from[baseline * size + i % size]);
        }
    }
}

kv_status kv_sweep_record(kv_record **out, const kv_sweep *s, const double *values, kv_error *err)
{
    kv_status status = KV_OK;
    kv_record *record = NULL;
    double *numbers = NULL;
    KV_TRY(kv_record_create(&record, err));
    KV_TRY(add_dimensions(record, s, err));
    KV_TRY(add_scheme_texts(record, s, err));
    for (int i = 0; i < s->n_slots; i++) {
        const kv_metric_slot *const t = &s->slots[i];
        KV_TRY(add_metric(&numbers, record, s, t, t->metric->name, t->metric->about,
                          t->metric->combine, err));
        spread(numbers, s, t, values, -1);
    }
    for (int i = 0; s->config->baseline >= 0 && i < s->n_slots; i++) {
        const kv_metric_slot *const t = &s->slots[i];
        char name[96], about[512];
        if (t->metric->scope == KV_SCOPE_HEAD) continue;
        snprintf(name, sizeof name, "%s_vs_baseline", t->metric->name);
        snprintf(about, sizeof about, "%s minus that of \"%s\" on the same heads", t->metric->name,
                 s->config->schemes[s->config->baseline].name);
        KV_TRY(add_metric(&numbers, record, s, t, name, about, "mean", err));
        spread(numbers, s, t, values, s->config->baseline);
    }
    *out = record, record = NULL;
done:
    kv_record_free(record);
    return status;
}
