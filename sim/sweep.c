/* Sweeps: the grid of units, and running them. See sweep.h; the record is sweep_record.c's. */
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/memory.h"
#include "kernels/text.h"
#include "sim/heads_keys.h"
#include "sim/sweep_state.h"

/* ---- the grid ---- */

kv_unit_place kv_sweep_place(const kv_sweep *s, int64_t unit)
{
    int64_t const stack = unit - s->n_layer_units;
    if (stack >= 0) return (kv_unit_place){stack / s->n_seeds, -1, stack % s->n_seeds};
    return (kv_unit_place){unit / (s->n_layers * s->n_seeds), unit / s->n_seeds % s->n_layers,
                           unit % s->n_seeds};
}

/* The settings of one point and layer; the caller frees. */
static kv_status settings_of(kv_heads_config *out, const kv_sweep *s, int64_t point, int64_t layer,
                             kv_error *err)
{
    int64_t indices[KV_CONFIG_MAX_AXES] = {0};
    kv_config_point(s->config, point, indices);
    return kv_config_layer(out, s->config, indices, s->layers[layer], err);
}

/* The largest extents of any unit, and the work of all. */
static kv_status find_extents(kv_sweep *s, kv_error *err)
{
    kv_status status = KV_OK;
    bool const is_capture = s->config->heads.generator == KV_GENERATOR_CAPTURE;
    kv_heads_config c = {0};
    kv_heads *heads = NULL;
    s->n_heads = 1, s->n_classes = 1;
    for (int64_t p = 0; p < s->n_points; p++)
        for (int64_t l = 0; l < s->n_layers; l++) {
            KV_TRY(settings_of(&c, s, p, l, err));
            kv_layer layer = {.kv_heads = c.kv_heads,
                              .tokens = c.tokens,
                              .head_dim = c.head_dim,
                              .query_heads = c.query_heads ? c.query_heads : c.kv_heads,
                              .queries = c.queries};
            if (is_capture) {
                KV_TRY(kv_heads_create(&heads, &c, s->layers[l], 0, err));
                layer = *kv_heads_layer(heads);
            }
            double const tensor = (double)layer.tokens * (double)layer.head_dim;
            double const rows = (double)(layer.query_heads * layer.queries);
            const kv_sweep_plan *const plan = kv_sweep_plan_of(s, l);
            double const products = (double)(plan->n_keys + 1 + plan->n_pairs + 1);
            int64_t const bytes = (int64_t)(4 * tensor * sizeof(float)) + KV_CPU_ROOM;
            if (s->n_layer_units > 0) s->flops += (double)s->n_seeds * 2 * rows * tensor * products;
            if (bytes > s->bytes_per_thread) s->bytes_per_thread = bytes;
            if (layer.kv_heads > s->n_heads) s->n_heads = layer.kv_heads;
            if (c.class_share[KV_CLASS_LOCAL] > 0 || c.class_share[KV_CLASS_NEEDLE] > 0)
                s->n_classes = KV_SWEEP_CLASSES;
            kv_heads_free(heads), heads = NULL;
            kv_heads_config_free_contents(&c), c = (kv_heads_config){0};
        }
done:
    kv_heads_free(heads);
    kv_heads_config_free_contents(&c);
    return status;
}

/* ---- schemes and metrics ---- */

/* Values of layer units and of stack units are numbered apart; a unit has room for either. */
static void add_slot(kv_sweep *s, int64_t offsets[2], const kv_metric *metric)
{
    bool const is_stack = kv_scope_is_stack(metric->scope);
    bool const is_query = metric->scope == KV_SCOPE_QUERIES,
               is_layer = metric->scope == KV_SCOPE_LAYER;
    kv_metric_slot *const next = &s->slots[s->n_slots++];
    *next = (kv_metric_slot){.metric = metric,
                             .offset = offsets[is_stack],
                             .schemes = metric->scope == KV_SCOPE_HEAD ? 1 : s->config->n_schemes,
                             .layers = metric->scope == KV_SCOPE_STACK_LAYER ? s->n_layers : 1,
                             .heads = is_layer || is_stack ? 1 : s->n_heads,
                             .classes = is_query ? s->n_classes : 1};
    offsets[is_stack] += next->schemes * next->layers * next->heads * next->classes;
    if (offsets[is_stack] > s->values_per_unit) s->values_per_unit = offsets[is_stack];
    s->wants_rows |= metric->needs_rows, s->wants_levels |= metric->needs_levels;
}

static void find_slots(kv_sweep *s)
{
    int64_t offsets[2] = {0};
    for (int64_t i = 0; i < s->config->n_metrics; i++)
        add_slot(s, offsets, kv_metric_find(s->config->metrics[i]));
}

static void count_units(kv_sweep *s)
{
    for (int64_t i = 0; i < s->config->n_metrics; i++)
        if (kv_scope_is_stack(kv_metric_find(s->config->metrics[i])->scope))
            s->n_stack_units = s->n_points * s->n_seeds;
        else
            s->n_layer_units = s->n_points * s->n_layers * s->n_seeds;
}

kv_status kv_sweep_create(kv_sweep **out, const kv_config *config, kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL;
    KV_TRY(kv_allocate(&memory, 1, sizeof(kv_sweep), err));
    kv_sweep *const s = memory;
    s->config = config;
    s->n_points = kv_config_points(config), s->n_seeds = config->heads.seeds.count;
    KV_TRY(kv_heads_layer_numbers(&s->layers, &s->n_layers, &config->heads, err));
    count_units(s);
    KV_TRY(kv_sweep_make_plans(s, err));
    KV_TRY(find_extents(s, err));
    if (s->n_stack_units > 0) KV_TRY(kv_sweep_plan_stacks(s, err));
    find_slots(s);
    *out = s, memory = NULL;
done:
    kv_sweep_free(memory);
    return status;
}

void kv_sweep_free(kv_sweep *sweep)
{
    if (!sweep) return;
    kv_sweep_free_plans(sweep);
    kv_free(sweep->layers);
    kv_free(sweep);
}

int64_t kv_sweep_units(const kv_sweep *sweep)
{
    return sweep->n_layer_units + sweep->n_stack_units;
}

int64_t kv_sweep_values_per_unit(const kv_sweep *sweep)
{
    return sweep->values_per_unit;
}

kv_sweep_cost kv_sweep_estimate(const kv_sweep *s)
{
    return (kv_sweep_cost){.flops = s->flops,
                           .bytes_per_thread = s->bytes_per_thread,
                           .bytes_of_results = 16 * s->values_per_unit * kv_sweep_units(s)};
}

void kv_sweep_print_cost(FILE *out, const kv_sweep *sweep, int threads)
{
    kv_sweep_cost const cost = kv_sweep_estimate(sweep);
    double const rate = 40e9 * threads; /* FLOP/s, a cautious guess; kvant bench measures */
    fprintf(out, "# units of work     %" PRId64 "\n", kv_sweep_units(sweep));
    fprintf(out, "# products          %.3g FLOP\n", cost.flops);
    fprintf(out, "# memory            %.1f MiB a thread, results %.1f MiB\n",
            (double)cost.bytes_per_thread / 0x1p20, (double)cost.bytes_of_results / 0x1p20);
    fprintf(out, "# time, at least    %.2g s with %d threads, quantization comes on top\n",
            cost.flops / rate, threads);
}

/* ---- one unit ---- */

/* Rows of each class for all heads: rows[head][class] lists; class 0 is all. A query's class is the
 * same for every head of a group only by index, so the rows are gathered per head. */
static int64_t gather_rows(int64_t *rows, const uint8_t *classes, int64_t n_rows, int64_t head,
                           int class)
{
    int64_t n = 0;
    for (int64_t r = 0; r < n_rows; r++)
        if (class == 0 || classes[head * n_rows + r] == class - 1) rows[n++] = r;
    return n;
}

/* Every metric of every scheme for one head, into the unit's values. */
static void measure_head(double *values, const kv_sweep *s, const kv_sweep_plan *plan,
                         kv_metric_view *view, const uint8_t *classes, int64_t *rows)
{
    for (int class = 0; class < s->n_classes; class ++) {
        view->n_rows = gather_rows(rows, classes, view->measured->rows, view->head, class);
        for (int i = 0; i < s->n_slots; i++) {
            const kv_metric_slot *const t = &s->slots[i];
            if (class >= t->classes || view->head >= t->heads) continue;
            if (kv_scope_is_stack(t->metric->scope)) continue;
            for (int64_t scheme = 0; scheme < t->schemes; scheme++) {
                view->pair = plan->pair_of[scheme];
                view->key = plan->pairs[view->pair][0], view->value = plan->pairs[view->pair][1];
                values[t->offset + (scheme * t->heads + view->head) * t->classes + class] =
                    t->metric->value(view);
            }
        }
    }
}

static kv_status run_layer(double *values, const kv_sweep *s, const kv_unit_place *place,
                           const kv_backend *backend, int threads, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const seed = s->config->heads.seeds.items[place->seed];
    kv_heads_config settings = {0};
    kv_heads *heads = NULL;
    kv_measurements *measured = NULL;
    void *rows = NULL, *scratch = NULL;
    const kv_sweep_plan *const plan = kv_sweep_plan_of(s, place->layer);
    kv_evaluation const what = {.n_keys = plan->n_keys,
                                .n_values = plan->n_values,
                                .n_pairs = plan->n_pairs,
                                .keys = plan->keys,
                                .values = plan->values,
                                .pairs = (const int64_t(*)[2])plan->pairs,
                                .want_rows = s->wants_rows,
                                .want_levels = s->wants_levels};
    KV_TRY(settings_of(&settings, s, place->point, place->layer, err));
    KV_TRY(kv_heads_create(&heads, &settings, s->layers[place->layer], seed, err));
    const kv_layer *const layer = kv_heads_layer(heads);
    KV_TRY(kv_measurements_create(&measured, layer, &what, err));
    KV_TRY(backend->evaluate(layer, &what, threads, measured, err));
    KV_TRY(kv_allocate(&rows, (size_t)measured->rows, sizeof(int64_t), err));
    KV_TRY(kv_allocate(&scratch, (size_t)measured->rows, sizeof(double), err));
    kv_metric_view view = {.layer = layer, .measured = measured, .rows = rows, .scratch = scratch};
    for (view.head = 0; view.head < layer->kv_heads; view.head++)
        measure_head(values, s, plan, &view, kv_heads_classes(heads), rows);
done:
    if (status != KV_OK)
        kv_error_prepend(err, "layer %lld, seed %lld", (long long)s->layers[place->layer],
                         (long long)seed);
    kv_free(rows), kv_free(scratch);
    kv_measurements_free(measured);
    kv_heads_free(heads);
    kv_heads_config_free_contents(&settings);
    return status;
}

static kv_status run_unit(double *values, const kv_sweep *s, int64_t unit,
                          const kv_backend *backend, int threads, const kv_sweep_sink *sink,
                          kv_error *err)
{
    kv_unit_place const place = kv_sweep_place(s, unit);
    for (int64_t i = 0; i < s->values_per_unit; i++) values[i] = NAN;
    return place.layer < 0 ? kv_sweep_run_stack(values, s, &place, backend, threads, sink, err)
                           : run_layer(values, s, &place, backend, threads, err);
}

/* Units start ... start + n - 1. They are spread over threads where there are enough of them;
 * otherwise the threads go into each unit. Results are the same either way. */
static kv_status run_units(const kv_sweep *s, int64_t start, int64_t n, const kv_backend *backend,
                           int threads, const kv_sweep_sink *sink, kv_error *err)
{
    int const outer = n >= threads ? threads : 1, inner = n >= threads ? 1 : threads;
    int64_t failed_unit = start + n;
    kv_status result = KV_OK;
    kv_error first = {0};
#pragma omp parallel for schedule(dynamic, 1) num_threads(outer)
    for (int64_t unit = start; unit < start + n; unit++) {
        bool stop;
#pragma omp atomic read
        stop = result;
        if (stop || sink->is_done(sink->context, unit)) continue;
        kv_error own = {0};
        kv_status status = KV_OK;
        void *values = NULL;
        if (sink->is_cancelled(sink->context))
            status = KV_FAIL(&own, KV_EINTERRUPTED, "stopped before all units were finished");
        if (status == KV_OK)
            status = kv_allocate(&values, (size_t)s->values_per_unit, sizeof(double), &own);
        if (status == KV_OK) status = run_unit(values, s, unit, backend, inner, sink, &own);
        if (status == KV_OK) status = sink->put(sink->context, unit, values, &own);
        kv_free(values);
        if (status == KV_OK) continue;
#pragma omp critical(kv_sweep_failure)
        if (unit < failed_unit) {
            failed_unit = unit, first = own;
#pragma omp atomic write
            result = status;
        }
    }
    if (result != KV_OK && err && err->status == KV_OK) *err = first;
    return result;
}

kv_status kv_sweep_run(const kv_sweep *s, const kv_backend *backend, int threads,
                       const kv_sweep_sink *sink, kv_error *err)
{
    kv_status const status = run_units(s, 0, s->n_layer_units, backend, threads, sink, err);
    return status != KV_OK
               ? status
               : run_units(s, s->n_layer_units, s->n_stack_units, backend, threads, sink, err);
}
