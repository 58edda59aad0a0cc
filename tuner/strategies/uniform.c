/* Uniform: every pair of schemes, the same in all layers that may have it. What engines do. */
#include "kernels/memory.h"
#include "tuner/strategies.h"

kv_status kv_strategy_propose_uniform(const kv_strategy_task *task, kv_error *err)
{
    kv_status status = KV_OK;
    int32_t *rows = NULL;
    void *power = NULL;
    int64_t n = 0;
    kv_text name = {0};
    KV_TRY(kv_strategy_uniform(&rows, &n, task->problem, err));
    KV_TRY(kv_allocate(&power, (size_t)n, sizeof(double), err));
    KV_TRY(task->measure(task->context, power, rows, n, err));
    for (int64_t i = 0; i < n; i++) {
        const int32_t *const row = rows + i * task->problem->n_layers;
        kv_text_free(&name);
        KV_TRY(kv_text_add(&name, err, "uniform "));
        KV_TRY(kv_strategy_pair_name(&name, task->problem, row, err));
        KV_TRY(task->keep(task->context, name.data, row, ((const double *)power)[i], n, err));
    }
done:
    kv_text_free(&name);
    kv_free(rows), kv_free(power);
    return status;
}
