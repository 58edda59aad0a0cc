/* Strategies looked up and listed, and what they share: see strategies.h. */
#include "tuner/strategies.h"

#include "kernels/memory.h"
#include "kernels/philox.h"

#define KV_ROW(function, name, family, about) {name, family, about, kv_strategy_propose_##function},
static const kv_strategy table[] = {KV_STRATEGIES(KV_ROW)};
#undef KV_ROW

const kv_strategy *kv_strategy_at(size_t index)
{
    return index < sizeof table / sizeof table[0] ? &table[index] : NULL;
}

void kv_strategy_list(FILE *out)
{
    for (size_t i = 0; kv_strategy_at(i); i++)
        fprintf(out, "%-10s %s\n", kv_strategy_at(i)->name, kv_strategy_at(i)->about);
}

uint64_t kv_strategy_draw(kv_strategy_random *random, uint64_t bound)
{
    uint32_t words[4];
    kv_philox(words, random->seed, random->counter++, 0x7475);
    uint64_t const word = (uint64_t)words[0] << 32 | words[1];
    return bound ? word % bound : 0; /* its bias, bound / 2^64, does not matter here */
}
