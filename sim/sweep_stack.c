/* Sweeps, decode stacks: units of all layers under all schemes, for metrics of the stack. A scheme
 * is one run of the stack: its quantizers in every layer. See sim/stack.h. */
#include "kernels/memory.h"
#include "sim/sweep_state.h"

static kv_status create(kv_stack **out, const kv_sweep *s, int64_t point, kv_error *err)
{
    int64_t index[KV_CONFIG_MAX_AXES] = {0};
    kv_config_point(s->config, point, index);
    return kv_stack_create(out, s->config, index, s->config->heads.stack_streams, err);
}

/* Run i is scheme i. The caller frees *assignment [n_schemes][L]. */
static kv_status make_runs(kv_stack_runs *out, void **assignment, const kv_sweep *s, kv_error *err)
{
    int64_t const n = s->config->n_schemes, layers = s->n_layers;
    kv_status const status =
        kv_allocate3(assignment, (size_t)n, (size_t)layers, 2, sizeof(int32_t), err);
    if (status != KV_OK) return status;
    int32_t(*const pair)[2] = *assignment;
    for (int64_t i = 0; i < n * layers; i++) {
        const int64_t *const from = kv_sweep_pair(s, i % layers, i / layers);
        pair[i][0] = (int32_t)from[0], pair[i][1] = (int32_t)from[1];
    }
    *out = (kv_stack_runs){.n_keys = s->n_keys,
                           .n_values = s->n_values,
                           .keys = s->keys,
                           .values = s->values,
                           .n_runs = n,
                           .assignment = (const int32_t(*)[2])pair};
    return KV_OK;
}

kv_status kv_sweep_plan_stacks(kv_sweep *s, kv_error *err)
{
    kv_status status = KV_OK;
    kv_stack *stack = NULL;
    kv_stack_runs runs;
    void *assignment = NULL;
    KV_TRY(make_runs(&runs, &assignment, s, err));
    for (int64_t point = 0; point < s->n_points; point++) {
        KV_TRY(create(&stack, s, point, err));
        kv_stack_layer const first = kv_stack_layer_at(stack, 0);
        int64_t rows, bytes;
        /* states before a layer, queries and outputs of all rows */
        if (!kv_multiply_sizes(s->config->n_schemes + 1, s->config->heads.stack_streams, &rows) ||
            !kv_multiply_sizes(rows, first.query_heads * first.head_dim, &bytes) ||
            !kv_multiply_sizes(bytes, 3 * (int64_t)sizeof(float), &bytes))
            bytes = INT64_MAX;
        if (bytes > s->bytes_per_thread) s->bytes_per_thread = bytes;
        s->flops += (double)s->n_seeds * kv_stack_flops(stack, &runs);
        kv_stack_free(stack), stack = NULL;
    }
done:
    kv_free(assignment);
    kv_stack_free(stack);
    return status;
}

/* Every value of one metric, [scheme][layer]. */
static void measure(double *values, const kv_sweep *s, const kv_metric_slot *t,
                    const kv_stack_measured *measured)
{
    kv_metric_view view = {.stack = measured};
    for (int64_t i = 0; i < t->schemes * t->layers; i++) {
        view.run = i / t->layers;
        view.stack_layer = t->metric->scope == KV_SCOPE_STACK ? s->n_layers - 1 : i % t->layers;
        values[t->offset + i] = t->metric->value(&view);
    }
}

kv_status kv_sweep_run_stack(double *values, const kv_sweep *s, const kv_unit_place *place,
                             const kv_backend *backend, int threads, const kv_sweep_sink *sink,
                             kv_error *err)
{
    kv_status status = KV_OK;
    kv_stack *stack = NULL;
    kv_stack_runs runs;
    kv_stack_measured measured = {0};
    void *assignment = NULL;
    kv_stack_environment const environment = {.backend = backend,
                                              .threads = threads,
                                              .is_cancelled = sink->is_cancelled,
                                              .context = sink->context};
    KV_TRY(make_runs(&runs, &assignment, s, err));
    KV_TRY(create(&stack, s, place->point, err));
    KV_TRY(kv_stack_run(&measured, stack, s->config->heads.seeds.items[place->seed], &runs,
                        &environment, err));
    for (int i = 0; i < s->n_slots; i++)
        if (kv_scope_is_stack(s->slots[i].metric->scope))
            measure(values, s, &s->slots[i], &measured);
done:
    kv_free(assignment);
    kv_stack_free(stack);
    kv_stack_measured_free_contents(&measured);
    return status;
}
