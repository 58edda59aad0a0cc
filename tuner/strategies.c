/* The table of strategies, and what they share: see strategies.h. */
#include "tuner/strategies.h"

#include "kernels/memory.h"
#include "kernels/philox.h"

static const kv_strategy table[] = {
    {"uniform", "uniform", "every pair of schemes, the same in all layers",
     kv_strategy_propose_uniform},
    {"ends-high", "ends high", "a better pair in the first and last 1, 2, 4, ... layers",
     kv_strategy_propose_ends_high},
    {"random", "random", "20 random assignments of about the policy's bytes",
     kv_strategy_propose_random},
    {"nsga2", "NSGA-II", "an evolutionary search with as many runs as the tuner has used",
     kv_strategy_propose_nsga2},
};

const kv_strategy *kv_strategy_at(size_t index)
{
    return index < sizeof table / sizeof table[0] ? &table[index] : NULL;
}

uint64_t kv_strategy_draw(kv_strategy_random *random, uint64_t bound)
{
    uint32_t words[4];
    kv_philox(words, random->seed, random->counter++, 0x7475);
    uint64_t const word = (uint64_t)words[0] << 32 | words[1];
    return bound ? word % bound : 0; /* its bias, bound / 2^64, does not matter here */
}

/* A layer's choice of a pair of schemes; its only choice where it has but one; -1 for none. */
static int32_t choice_of(const kv_problem_layer *layer, int32_t key, int32_t value)
{
    if (layer->n_choices == 1) return 0;
    for (int64_t c = 0; c < layer->n_choices; c++)
        if (layer->choices[c].key == key && layer->choices[c].value == value) return (int32_t)c;
    return -1;
}

kv_status kv_strategy_uniform(int32_t **uniform, int64_t *n, const kv_problem *problem,
                              kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const layers = problem->n_layers;
    const kv_problem_layer *widest = problem->layers; /* names the pairs */
    void *memory = NULL;
    for (int64_t l = 0; l < layers; l++)
        if (problem->layers[l].n_choices > widest->n_choices) widest = &problem->layers[l];
    KV_TRY(
        kv_allocate3(&memory, (size_t)widest->n_choices, (size_t)layers, 1, sizeof **uniform, err));
    *uniform = memory, *n = 0;
    for (int64_t c = 0; c < widest->n_choices; c++) {
        int32_t *const row = *uniform + *n * layers;
        bool is_whole = true;
        for (int64_t l = 0; l < layers; l++) {
            row[l] =
                choice_of(&problem->layers[l], widest->choices[c].key, widest->choices[c].value);
            is_whole &= row[l] >= 0;
        }
        *n += is_whole;
    }
done:
    return status;
}

kv_status kv_strategy_pair_name(kv_text *out, const kv_problem *problem, const int32_t *assignment,
                                kv_error *err)
{
    int64_t widest = 0; /* a pinned layer does not name the pair */
    for (int64_t l = 0; l < problem->n_layers; l++)
        if (problem->layers[l].n_choices > problem->layers[widest].n_choices) widest = l;
    const kv_choice *const choice = &problem->layers[widest].choices[assignment[widest]];
    return kv_text_add(out, err, "%s | %s", problem->keys.schemes[choice->key],
                       problem->values.schemes[choice->value]);
}
