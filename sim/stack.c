/* The decode stack: what there is of it, and a run through it layer by layer. See stack.h; what
 * happens within a layer is stack_layer.c's. */
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/random.h"
#include "sim/stack_state.h"

/* ---- what there is ---- */

static kv_status add_layer(kv_stack *stack, int64_t l, const kv_config *config,
                           const int64_t *index, kv_error *err)
{
    kv_status status = KV_OK;
    kv_heads *heads = NULL;
    kv_stack_layer *const to = &stack->layers[l];
    int64_t const number = stack->numbers[l];
    KV_TRY(kv_config_layer(&stack->settings[l], config, index, number, err));
    KV_TRY(kv_heads_create(&heads, &stack->settings[l], number, 0, err));
    const kv_layer *const from = kv_heads_layer(heads);
    *to = (kv_stack_layer){number,       from->kv_heads, from->query_heads,
                           from->tokens, from->head_dim, from->window};
    int64_t const width = to->query_heads * to->head_dim;
    if (l == 0) stack->width = width;
    if (width % 2 != 0)
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "heads: a decode stack needs an even query_heads * head_dim; layer %lld has "
                       "%lld * %lld",
                       (long long)number, (long long)to->query_heads, (long long)to->head_dim));
    if (width != stack->width)
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "heads: a decode stack needs the same query_heads * head_dim in all layers; "
                       "layer %lld has %lld * %lld = %lld, layer %lld has %lld",
                       (long long)number, (long long)to->query_heads, (long long)to->head_dim,
                       (long long)width, (long long)stack->numbers[0], (long long)stack->width));
done:
    kv_heads_free(heads);
    return status;
}

kv_status kv_stack_create(kv_stack **out, const kv_config *config, const int64_t *index,
                          int64_t streams, kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL, *settings = NULL, *layers = NULL;
    KV_TRY(kv_allocate(&memory, 1, sizeof(kv_stack), err));
    kv_stack *const stack = memory;
    stack->streams = streams;
    if (streams < 1)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "streams of a decode stack: %lld: must be 1 or more",
                       (long long)streams));
    KV_TRY(kv_heads_layer_numbers(&stack->numbers, &stack->n_layers, &config->heads, err));
    KV_TRY(kv_allocate(&settings, (size_t)stack->n_layers, sizeof *stack->settings, err));
    stack->settings = settings;
    KV_TRY(kv_allocate(&layers, (size_t)stack->n_layers, sizeof *stack->layers, err));
    stack->layers = layers;
    for (int64_t l = 0; l < stack->n_layers; l++) KV_TRY(add_layer(stack, l, config, index, err));
    *out = stack, memory = NULL;
done:
    kv_stack_free(memory);
    return status;
}

void kv_stack_free(kv_stack *stack)
{
    if (!stack) return;
    for (int64_t l = 0; stack->settings && l < stack->n_layers; l++)
        kv_heads_config_free_contents(&stack->settings[l]);
    kv_free(stack->numbers), kv_free(stack->settings), kv_free(stack->layers);
    kv_free(stack);
}

int64_t kv_stack_layers(const kv_stack *stack)
{
    return stack->n_layers;
}

kv_stack_layer kv_stack_layer_at(const kv_stack *stack, int64_t layer)
{
    return stack->layers[layer];
}

double kv_stack_flops(const kv_stack *stack, const kv_stack_runs *runs)
{
    kv_branches branches = {0};
    double flops = 0;
    if (kv_branches_create(&branches, runs, stack->n_layers, NULL) != KV_OK) return NAN;
    for (int64_t l = 0; l < stack->n_layers; l++) {
        const kv_stack_layer *const layer = &stack->layers[l];
        bool const is_windowed = layer->window > 0 && layer->window < layer->tokens;
        kv_branches_step(&branches, l);
        flops += 4 * (double)(branches.n_states * stack->streams) * (double)stack->width *
                 (double)(is_windowed ? layer->window : layer->tokens);
    }
    kv_branches_free_contents(&branches);
    return flops;
}

/* ---- a run ---- */

static kv_status check_runs(const kv_stack *stack, const kv_stack_runs *runs, kv_error *err)
{
    int64_t const layers = stack->n_layers;
    for (int64_t r = 0; r < runs->n_runs; r++) {
        int64_t const last = runs->last ? runs->last[r] : 0;
        if (last < 0 || last >= layers)
            return KV_FAIL(err, KV_EREQUEST,
                           "decode stack, run %lld: last layer %lld: must be 0 to %lld",
                           (long long)r, (long long)last, (long long)layers - 1);
        for (int64_t l = 0; l < layers; l++) {
            const int32_t *const pair = runs->assignment[r * layers + l];
            if (pair[0] < -1 || pair[0] >= runs->n_keys || pair[1] < -1 ||
                pair[1] >= runs->n_values)
                return KV_FAIL(err, KV_EREQUEST,
                               "decode stack, run %lld, layer %lld: quantizers %d and %d: must be "
                               "-1 to %lld and -1 to %lld",
                               (long long)r, (long long)l, pair[0], pair[1],
                               (long long)runs->n_keys - 1, (long long)runs->n_values - 1);
        }
    }
    return KV_OK;
}

static kv_status measured_create(kv_stack_measured *m, int64_t n_runs, int64_t layers,
                                 kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)layers, runs = (size_t)n_runs;
    m->n_runs = n_runs, m->layers = layers;
    KV_TRY(kv_allocate((void **)&m->square, n, sizeof(double), err));
    KV_TRY(kv_allocate((void **)&m->output_square, n, sizeof(double), err));
    KV_TRY(kv_allocate3((void **)&m->err_square, runs, n, 1, sizeof(double), err));
    KV_TRY(kv_allocate3((void **)&m->output_err_square, runs, n, 1, sizeof(double), err));
    for (int64_t i = 0; i < n_runs * layers; i++) m->err_square[i] = m->output_err_square[i] = NAN;
done:
    return status;
}

void kv_stack_measured_free_contents(kv_stack_measured *m)
{
    kv_free(m->square), kv_free(m->err_square);
    kv_free(m->output_square), kv_free(m->output_err_square);
    *m = (kv_stack_measured){0};
}

/* Stream s starts from elements s N ... of its seed's numbers. */
static kv_status start(float **states, const kv_stack *stack, int64_t seed, kv_error *err)
{
    size_t const streams = (size_t)stack->streams, width = (size_t)stack->width;
    kv_status const status =
        kv_allocate3_unset((void **)states, streams, width, 1, sizeof **states, err);
    uint64_t const stream = kv_stream_id(0, 0, 0, KV_STACK_STREAM_STATE);
    if (status == KV_OK) kv_philox_normals(*states, (uint64_t)seed, stream, 0, streams * width);
    return status;
}

/* Powers of the states after a layer, for the runs that are in them. */
static kv_status keep(kv_stack_measured *out, const kv_branches *branches,
                      const kv_stack_powers *powers, int64_t layer, kv_error *err)
{
    int64_t const layers = out->layers;
    for (int64_t i = 0; i < branches->n_states; i++)
        if (!isfinite(powers[i].state) || !isfinite(powers[i].output))
            return KV_FAIL(err, KV_ENUMERIC, "the residual stream is not finite");
    out->square[layer] = powers[0].state, out->output_square[layer] = powers[0].output;
    for (int64_t r = 0; r < branches->n_runs; r++) {
        int64_t const state = branches->state[r];
        if (state < 0) continue;
        out->err_square[r * layers + layer] = state ? powers[state].state : 0;
        out->output_err_square[r * layers + layer] = state ? powers[state].output : 0;
    }
    return KV_OK;
}

kv_status kv_stack_run(kv_stack_measured *out, const kv_stack *stack, int64_t seed,
                       const kv_stack_runs *runs, const kv_stack_environment *environment,
                       kv_error *err)
{
    kv_status status = KV_OK;
    kv_stack_measured measured = {0};
    kv_branches branches = {0};
    kv_stack_powers *powers = NULL;
    float *states = NULL;
    KV_TRY(check_runs(stack, runs, err));
    KV_TRY(measured_create(&measured, runs->n_runs, stack->n_layers, err));
    KV_TRY(kv_branches_create(&branches, runs, stack->n_layers, err));
    KV_TRY(kv_allocate((void **)&powers, (size_t)runs->n_runs + 1, sizeof *powers, err));
    KV_TRY(start(&states, stack, seed, err));
    for (int64_t l = 0; l < stack->n_layers; l++) {
        if (environment->is_cancelled && environment->is_cancelled(environment->context))
            KV_TRY(KV_FAIL(err, KV_EINTERRUPTED, "stopped before all layers were finished"));
        kv_branches_step(&branches, l);
        status = kv_stack_step(&states, powers, stack, &branches, l, seed, environment, err);
        if (status == KV_OK) status = keep(&measured, &branches, powers, l, err);
        if (status != KV_OK) {
            kv_error_prepend(err, "decode stack, layer %lld, seed %lld",
                             (long long)stack->numbers[l], (long long)seed);
            goto done;
        }
        if (environment->on_layer) environment->on_layer(environment->context);
    }
    *out = measured, measured = (kv_stack_measured){0};
done:
    kv_free(states);
    kv_free(powers);
    kv_branches_free_contents(&branches);
    kv_stack_measured_free_contents(&measured);
    return status;
}
