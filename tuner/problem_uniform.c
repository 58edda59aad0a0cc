/* The pairs of schemes that all layers may have: kv_problem_uniform of problem.h. */
#include <stdlib.h>

#include "kernels/memory.h"
#include "tuner/problem.h"

typedef struct {
    int32_t key, value, choice;
} pair;

static int by_schemes(const void *a, const void *b)
{
    const pair *const x = a, *const y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

/* A layer's choices by their schemes; the caller frees. */
static kv_status sort_choices(pair **out, const kv_problem_layer *layer, kv_error *err)
{
    size_t const n = (size_t)layer->n_choices;
    kv_status const status = kv_allocate((void **)out, n, sizeof **out, err);
    if (status != KV_OK) return status;
    for (size_t c = 0; c < n; c++)
        (*out)[c] = (pair){layer->choices[c].key, layer->choices[c].value, (int32_t)c};
    qsort(*out, n, sizeof **out, by_schemes);
    return KV_OK;
}

int64_t kv_problem_free_layer(const kv_problem *problem)
{
    int64_t layer = 0;
    while (layer < problem->n_layers - 1 && problem->layers[layer].n_choices == 1) layer++;
    return layer;
}

kv_status kv_problem_uniform(int32_t **uniform, int64_t *n, const kv_problem *p, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_problem_layer *const first = &p->layers[kv_problem_free_layer(p)];
    int32_t *rows = NULL;
    pair **sorted = NULL;
    int64_t count = 0;
    KV_TRY(kv_allocate((void **)&sorted, (size_t)p->n_layers, sizeof *sorted, err));
    KV_TRY(kv_allocate3((void **)&rows, (size_t)first->n_choices, (size_t)p->n_layers, 1,
                        sizeof *rows, err));
    for (int64_t l = 0; l < p->n_layers; l++) KV_TRY(sort_choices(&sorted[l], &p->layers[l], err));
    for (int64_t c = 0; c < first->n_choices; c++) {
        pair const wanted = {.key = first->choices[c].key, .value = first->choices[c].value};
        bool is_everywhere = true;
        for (int64_t l = 0; is_everywhere && l < p->n_layers; l++) {
            size_t const choices = (size_t)p->layers[l].n_choices;
            const pair *const found =
                choices == 1 ? sorted[l]
                             : bsearch(&wanted, sorted[l], choices, sizeof wanted, by_schemes);
            is_everywhere = found != NULL;
            rows[count * p->n_layers + l] = found ? found->choice : -1;
        }
        count += is_everywhere;
    }
    *uniform = rows, rows = NULL, *n = count;
done:
    for (int64_t l = 0; sorted && l < p->n_layers; l++) kv_free(sorted[l]);
    kv_free(sorted), kv_free(rows);
    return status;
}
