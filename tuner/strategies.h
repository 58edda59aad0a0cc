/* Search strategies: what others do to find an assignment, on the same footing as the tuner's own.
 *
 * A strategy is a file in tuner/strategies/ and one row of KV_STRATEGIES below. It proposes
 * assignments and may have any of them measured end to end on the search seeds; whatever it
 * measured can be kept as a candidate. It sees the problem (bytes, and the additive errors, which
 * only some of them look at), never the tuner's answer beyond its size.
 *
 *     for (size_t i = 0; (s = kv_strategy_at(i)); i++)
 *         if (settings->baselines >> i & 1) s->propose(&task, err); */
#ifndef KVANT_TUNER_STRATEGIES_H
#define KVANT_TUNER_STRATEGIES_H

#include <stdio.h>

#include "kernels/text.h"
#include "tuner/problem.h"

typedef struct {
    const kv_problem *problem;
    int64_t bytes; /* of the policy found: where a strategy aims at one size */
    double error;  /* power allowed; NAN where the budget is on bytes */
    int64_t limit; /* bytes allowed; -1 where the budget is on the error */
    int64_t runs;  /* stack runs the tuner has used: what a search may use */
    uint64_t seed;
    void *context;
    /* power [n]: error power of assignments [n][L] (choice indices), mean over the search seeds. */
    kv_status (*measure)(void *context, double *power, const int32_t *assignments, int64_t n,
                         kv_error *err);
    /* Keeps a measured assignment [L] for the comparison. */
    kv_status (*keep)(void *context, const char *name, const int32_t *assignment, double power,
                      int64_t runs, kv_error *err);
} kv_strategy_task;

typedef struct {
    const char *name;   /* in configurations: "ends-high" */
    const char *family; /* in reports: "ends high" */
    const char *about;
    kv_status (*propose)(const kv_strategy_task *task, kv_error *err);
} kv_strategy;

const kv_strategy *kv_strategy_at(size_t index); /* NULL past the end */

/* The table, a line a strategy. */
void kv_strategy_list(FILE *out);

/* Numbers 0 ... bound - 1 from a counter: the same on every machine. */
typedef struct {
    uint64_t seed, counter;
} kv_strategy_random;
uint64_t kv_strategy_draw(kv_strategy_random *random, uint64_t bound);

/* The table, in the order of listings: ROW(NAME, name, family, about). tuner/strategies/NAME.c
 * defines kv_strategy_propose_NAME. */
#define KV_STRATEGIES(ROW)                                                                         \
    ROW(uniform, "uniform", "uniform", "every pair of schemes, the same in all layers")            \
    ROW(ends_high, "ends-high", "ends high",                                                       \
        "a better pair in the first and last 1, 2, 4, ... layers")                                 \
    ROW(random, "random", "random", "20 random assignments of about the policy's bytes")           \
    ROW(nsga2, "nsga2", "NSGA-II", "an evolutionary search with as many runs as the tuner has used")

#define KV_ROW(function, name, family, about)                                                      \
    kv_status kv_strategy_propose_##function(const kv_strategy_task *task, kv_error *err);
KV_STRATEGIES(KV_ROW)
#undef KV_ROW

#endif
