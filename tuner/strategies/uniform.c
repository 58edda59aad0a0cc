/* Uniform: every pair of schemes, the same in all layers that may have it. What engines do. */
#include "kernels/memory.h"
#include "tuner/strategies.h"

kv_status kv_strategy_propose_uniform(const kv_strategy_task *task, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_problem *const p = task->problem;
    int64_t const layer = kv_problem_free_layer(p);
    int32_t *rows = NULL;
    void *power = NULL;
    int64_t n = 0;
    kv_text name = {0};
    KV_TRY(kv_problem_uniform(&rows, &n, p, err));
    KV_TRY(kv_allocate(&power, (size_t)n, sizeof(double), err));
    KV_TRY(task->measure(task->context, power, rows, n, err));
    for (int64_t i = 0; i < n; i++) {
        const int32_t *const row = rows + i * p->n_layers;
        const kv_choice *const c = &p->layers[layer].choices[row[layer]];
        kv_text_free(&name);
        KV_TRY(kv_text_add(&name, err, "uniform %s | %s", p->keys.schemes[c->key],
                           p->values.schemes[c->value]));
        KV_TRY(task->keep(task->context, name.data, row, ((const double *)power)[i], n, err));
    }
done:
    kv_text_free(&name);
    kv_free(rows), kv_free(power);
    return status;
}
