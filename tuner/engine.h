/* Serving engines: which policies each can express, the best one inside that set, and its words.
 *
 * An engine is one file in tuner/engines/ and one row of KV_ENGINE_TABLE: the cache types it has
 * (each with the kvant schemes it stands for, or the reason why kvant cannot simulate it), how
 * types may be spread over layers, a writer, and a reader that parses what was written. The search
 * over the expressible set (engine_search.c) is the same for all and exact by enumeration or by the
 * frontier; rounding a free optimum afterwards would be worse.
 *
 *     kv_engine_find(&engine, "llama.cpp", &err);
 *     kv_engine_solve(&fit, engine, problem, budget, &err);
 *     kv_engine_write(&text, engine, &fit, policy, &err); */
#ifndef KVANT_TUNER_ENGINE_H
#define KVANT_TUNER_ENGINE_H

#include "kernels/text.h"
#include "tuner/outcome.h"

/* A cache type of an engine. */
typedef struct {
    const char *words;          /* as the engine spells it: "q8_0", "fp8" */
    const char *const *schemes; /* kvant shorthands it computes, the exact one first; NULL-ended */
    bool is_key, is_value;      /* where it may stand */
    bool is_native;             /* 16-bit: what layers fall back to */
    const char *refusal;        /* NULL, or why kvant cannot simulate it */
} kv_engine_type;

/* How types may differ between layers. */
typedef enum {
    KV_SHAPE_UNIFORM, /* one key and one value type for all layers */
    KV_SHAPE_SKIP,    /* one, and native in a chosen set of layers */
    KV_SHAPE_ENDS,    /* per tensor: one, another in the first N, another in the last M layers */
    KV_SHAPE_FREE     /* any per layer */
} kv_engine_shape;

typedef struct kv_engine kv_engine;

/* The best policy inside an engine's set: per layer the types (indices into engine->types) and the
 * choice of the problem. */
typedef struct {
    const kv_engine *engine;
    int64_t n_layers;
    int32_t *key_type, *value_type, *choice; /* [L] */
    int64_t bytes;
    double error;       /* additive power */
    bool is_feasible;   /* within the budget; else the nearest it has */
    bool is_exact;      /* proved best in the set */
    int64_t free_bytes; /* of the free optimum at the same budget */
    double free_error;
    kv_text warnings; /* a line each: what the engine cannot say, what was not considered */
} kv_engine_fit;

struct kv_engine {
    const char *name, *about, *source; /* source: engines.md's, file and function */
    const kv_engine_type *types;
    size_t n_types;
    kv_engine_shape shape;
    bool is_tied; /* key and value types of a layer have the same row */
    /* Further limits on a pair of types, with a sentence in *why; NULL: none. */
    bool (*allows)(const kv_engine_type *key, const kv_engine_type *value, const char **why);
    /* The exact output: flags, YAML, JSON or Python. */
    kv_status (*write)(kv_text *out, const kv_engine_fit *fit, const kv_policy *policy,
                       kv_error *err);
    /* Parses such an output into types per layer [n_layers]; for tests and `kvant check`. */
    kv_status (*read)(int32_t *key_type, int32_t *value_type, int64_t n_layers, const char *text,
                      kv_error *err);
};

const kv_engine *kv_engine_at(size_t index); /* NULL past the end */
kv_status kv_engine_find(const kv_engine **out, const char *name, kv_error *err);

/* Within a budget on bytes or on additive power (the other one NAN / -1). */
kv_status kv_engine_solve(kv_engine_fit *out, const kv_engine *engine, const kv_problem *problem,
                          int64_t max_bytes, double max_error, kv_error *err);
void kv_engine_fit_free_contents(kv_engine_fit *fit);

#endif
