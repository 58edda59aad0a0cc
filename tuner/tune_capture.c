/* The table of a capture: it holds no weights, so a layer's error is that of its attention outputs
 * for the captured queries, each key scheme with exact values and each value scheme with exact
 * keys: sum |o^ - o|^2 / sum |o|^2 over heads and queries, divided by the number of layers, so that
 * the sum over layers is the mean over them. */
#include <math.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tuner/tune_state.h"

typedef struct {
    int64_t n_keys, n_values, n_pairs;
    kv_quantizer *keys, *values; /* candidates, then the exact one */
    int64_t (*pairs)[2];
} plan;

static kv_status make_plan(plan *p, const kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const keys = t->keys.n, values = t->values.n;
    void *memory = NULL;
    KV_TRY(kv_allocate((void **)&p->keys, (size_t)keys + 1, sizeof *p->keys, err));
    KV_TRY(kv_allocate((void **)&p->values, (size_t)values + 1, sizeof *p->values, err));
    KV_TRY(kv_allocate(&memory, (size_t)(keys + values), sizeof *p->pairs, err));
    p->pairs = memory;
    for (int64_t k = 0; k < keys; k++) {
        p->keys[k] = t->keys.quantizers[k];
        p->pairs[p->n_pairs][0] = k, p->pairs[p->n_pairs++][1] = values;
    }
    for (int64_t v = 0; v < values; v++) {
        p->values[v] = t->values.quantizers[v];
        p->pairs[p->n_pairs][0] = keys, p->pairs[p->n_pairs++][1] = v;
    }
    KV_TRY(kv_quantizer_parse(&p->keys[keys], "f32", true, err));
    KV_TRY(kv_quantizer_parse(&p->values[values], "f32", false, err));
    p->n_keys = keys + 1, p->n_values = values + 1;
done:
    return status;
}

static double power_of(const kv_measurements *m, int64_t pair)
{
    double square = 0, err_square = 0;
    for (int64_t g = 0; g < m->heads; g++)
        for (int64_t r = 0; r < m->rows; r++) {
            square += m->out_square[g * m->rows + r];
            err_square += m->out_err_square[(g * m->n_pairs + pair) * m->rows + r];
        }
    return square > 0 ? err_square / square : err_square > 0 ? INFINITY : 0;
}

static kv_status measure_layer(kv_tuning *t, const plan *p, int64_t l, kv_error *err)
{
    kv_status status = KV_OK;
    kv_heads *heads = NULL;
    kv_measurements *m = NULL;
    int const threads = t->environment.threads > 1 ? t->environment.threads : 1;
    kv_evaluation const what = {.n_keys = p->n_keys,
                                .n_values = p->n_values,
                                .n_pairs = p->n_pairs,
                                .keys = p->keys,
                                .values = p->values,
                                .pairs = (const int64_t(*)[2])p->pairs};
    KV_TRY(kv_tune_layer_heads(&heads, t, l, t->search_seeds[0], err));
    const kv_layer *const layer = kv_heads_layer(heads);
    if (layer->queries < 1)
        KV_TRY(KV_FAIL(err, KV_EINPUT,
                       "layer %lld of the capture has no queries, without which no error is known",
                       (long long)t->geometry[l].number));
    KV_TRY(kv_measurements_create(&m, layer, &what, err));
    status = t->environment.backend->evaluate(layer, &what, threads, m, err);
    if (status != KV_OK) {
        kv_error_prepend(err, "layer %lld", (long long)t->geometry[l].number);
        goto done;
    }
    for (int64_t i = 0; i < p->n_pairs; i++) {
        bool const is_key = i < t->keys.n;
        kv_tune_side *const side = is_key ? &t->keys : &t->values;
        int64_t const at = l * side->n + (is_key ? i : i - t->keys.n);
        side->local[at] = power_of(m, i);
        side->error[at] = side->local[at] / (double)t->layers;
        side->state[at] = KV_TABLE_MEASURED;
    }
done:
    kv_measurements_free(m);
    kv_heads_free(heads);
    return status;
}

kv_status kv_tune_capture_table(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    plan p = {0};
    KV_TRY(make_plan(&p, t, err));
    kv_tune_set_task(t, "table: local errors");
    double const start_s = kv_tune_now_s();
    for (int64_t l = 0; l < t->layers; l++) {
        KV_TRY(kv_tune_check_cancelled(t, err));
        KV_TRY(measure_layer(t, &p, l, err));
        double const done = (double)(l + 1), left = (double)(t->layers - l - 1);
        if (t->environment.progress)
            t->environment.progress(t->environment.context, t->task, done / (done + left),
                                    (kv_tune_now_s() - start_s) / done * left);
    }
    KV_TRY(kv_tune_make_problem(t, err));
done:
    kv_free(p.keys), kv_free(p.values), kv_free(p.pairs);
    return status;
}
