/* Random: 20 assignments of about the policy's bytes, so that one can see what choosing well is
 * worth. Every layer draws one of its choices; then random layers draw again, and a draw is taken
 * where it brings the sum nearer to those bytes, until it is within 0.5 % or does not get nearer.
 */
#include <stdlib.h>

#include "kernels/memory.h"
#include "tuner/strategies.h"

enum { DRAWS = 20, MOST_STEPS = 100000 };

static void draw(int32_t *row, const kv_strategy_task *task, kv_strategy_random *random)
{
    const kv_problem *const p = task->problem;
    int64_t bytes = 0;
    for (int64_t l = 0; l < p->n_layers; l++) {
        row[l] = (int32_t)kv_strategy_draw(random, (uint64_t)p->layers[l].n_choices);
        bytes += p->layers[l].choices[row[l]].bytes;
    }
    for (int i = 0; i < MOST_STEPS && llabs(bytes - task->bytes) > task->bytes / 200; i++) {
        int64_t const l = (int64_t)kv_strategy_draw(random, (uint64_t)p->n_layers);
        const kv_problem_layer *const layer = &p->layers[l];
        int32_t const c = (int32_t)kv_strategy_draw(random, (uint64_t)layer->n_choices);
        int64_t const next = bytes + layer->choices[c].bytes - layer->choices[row[l]].bytes;
        if (llabs(next - task->bytes) >= llabs(bytes - task->bytes)) continue;
        bytes = next, row[l] = c;
    }
}

kv_status kv_strategy_propose_random(const kv_strategy_task *task, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const layers = task->problem->n_layers;
    kv_strategy_random random = {.seed = task->seed};
    void *rows = NULL;
    double power[DRAWS];
    kv_text name = {0};
    KV_TRY(kv_allocate3(&rows, DRAWS, (size_t)layers, 1, sizeof(int32_t), err));
    for (int i = 0; i < DRAWS; i++) draw((int32_t *)rows + i * layers, task, &random);
    KV_TRY(task->measure(task->context, power, rows, DRAWS, err));
    for (int i = 0; i < DRAWS; i++) {
        kv_text_free(&name);
        KV_TRY(kv_text_add(&name, err, "random %d", i + 1));
        KV_TRY(task->keep(task->context, name.data, (int32_t *)rows + i * layers, power[i], DRAWS,
                          err));
    }
done:
    kv_text_free(&name);
    kv_free(rows);
    return status;
}
