/* Serving engines: which policies each can express, the best one inside that set, and its words.
 *
 * An engine is one file in tuner/engines/ and one row of KV_ENGINES (engine_state.h): the cache
 * types it has (each with the kvant schemes it computes, or the reason why kvant cannot simulate
 * it), how types may be spread over layers, a writer, and a reader that parses what was written.
 * The search (engine_search.c, engine_ends.c) is the same for all: inside the expressible set, at
 * the same budget as the free optimum; rounding a free optimum afterwards would be worse.
 *
 *     kv_engine_find(&engine, "llama.cpp", &err);
 *     kv_engine_solve(&fit, engine, problem, policy, &(kv_engine_budget){.max_error = 1e-4}, &err);
 *     engine->write(&text, &fit, policy, NULL, &err);
 *     kv_engine_fit_free_contents(&fit); */
#ifndef KVANT_TUNER_ENGINE_H
#define KVANT_TUNER_ENGINE_H

#include <stdio.h>

#include "kernels/quantize.h"
#include "kernels/text.h"
#include "sim/policy.h"
#include "tuner/problem.h"

/* Settings of a scheme that a type leaves open. */
enum {
    KV_OPEN_STATIC = 1,   /* static=N and static=seed:K: where the range comes from */
    KV_OPEN_SCALE = 2,    /* scale=f16 or bf16: scales are in the model's own type */
    KV_OPEN_FLUSH = 4,    /* flush=N: any number of tokens waits at 16 bit */
    KV_OPEN_GROUP = 8,    /* 1xN: any group of channels */
    KV_OPEN_ROTATION = 16 /* hadamard=N: any block; `unfit` says which */
};

/* A cache type of an engine. Rows with the same words differ in `mode`: a switch that holds for the
 * whole cache (0: the type does not care), as llama.cpp's rotation. */
enum { KV_ENGINE_MAX_SCHEMES = 3, KV_ENGINE_MAX_TYPES = 32 };
typedef struct {
    const char *words;                            /* as the engine spells it: "q8_0", "fp8" */
    const char *key[KV_ENGINE_MAX_SCHEMES + 1];   /* kvant shorthands it stands for; NULL-ended */
    const char *value[KV_ENGINE_MAX_SCHEMES + 1]; /* none: as for keys */
    unsigned open;                                /* KV_OPEN_... */
    int mode;
    bool is_native;      /* 16-bit: what skipped layers fall back to */
    const char *note;    /* where the engine's arithmetic is not the scheme's; NULL: it is */
    const char *needs;   /* hardware, build or backend; NULL */
    const char *refusal; /* why kvant cannot simulate it; then it has no schemes */
} kv_engine_type;

/* How types may differ between layers. */
typedef enum {
    KV_SHAPE_UNIFORM, /* one key and one value type for all layers */
    KV_SHAPE_SKIP,    /* one, and native in a chosen set of layers */
    KV_SHAPE_ENDS,    /* per tensor: one, another in the first N, another in the last M layers */
    KV_SHAPE_FREE     /* any per layer */
} kv_engine_shape;
const char *kv_engine_shape_about(kv_engine_shape shape);

typedef struct kv_engine kv_engine;

typedef struct {
    int64_t number;     /* of the layer in its model */
    int32_t key, value; /* rows of engine->types */
    int32_t choice;     /* of the problem */
    char *key_scheme, *value_scheme;
} kv_engine_layer;

/* The best policy inside an engine's set. */
typedef struct {
    const kv_engine *engine;
    int64_t n_layers;
    kv_engine_layer *layers; /* [L] */
    int64_t bytes;
    double error;          /* additive power */
    bool is_feasible;      /* within the budget; else the nearest it has */
    bool is_exact;         /* proved best in the set */
    bool is_free_feasible; /* the free optimum exists: the next two are known */
    int64_t free_bytes;
    double free_error;
    kv_text warnings; /* a line each: what the engine needs and what is not as kvant simulates it */
    kv_text absent;   /* quantized types that no choice of the problem is: "A (scheme), B (…)" */
} kv_engine_fit;

struct kv_engine {
    const char *name, *about;
    const char *source; /* project, file and function */
    const kv_engine_type *types;
    size_t n_types;
    kv_engine_shape shape;
    bool is_tied;            /* key and value of a layer have the same row */
    bool is_mode_per_tensor; /* modes of keys and of values are two switches */
    bool needs_all_layers;   /* layers must be numbered 0 ... L-1 */
    /* Why a type does not compute this scheme in this layer although it is in its list; NULL: it
     * does. policy may be NULL (geometry unknown). NULL: never. */
    const char *(*unfit)(const kv_engine_type *type, const kv_quantizer *scheme, bool is_key,
                         const kv_policy *policy, int64_t number);
    /* Why a key and a value scheme cannot stand in one layer; NULL: they can. */
    const char *(*unfit_pair)(const kv_quantizer *key, const kv_quantizer *value);
    /* Adds warnings beyond those of the types used. May be NULL. */
    kv_status (*warn)(kv_engine_fit *fit, const kv_policy *policy, const char *scales,
                      kv_error *err);
    /* The exact output: flags, YAML or Python, with a newline at its end. scales: the file that
     * write_scales makes, or NULL. */
    kv_status (*write)(kv_text *out, const kv_engine_fit *fit, const kv_policy *policy,
                       const char *scales, kv_error *err);
    /* Parses such an output into types per layer [n_layers], the first row with those words;
     * policy tells layers' numbers and windows. KV_EINPUT for anything else. */
    kv_status (*read)(int32_t *key, int32_t *value, int64_t n_layers, const kv_policy *policy,
                      const char *text, kv_error *err);
    /* Static scales in the engine's own convention; NULL, and then `no_scales` says why. */
    kv_status (*write_scales)(const char *path, const kv_engine_fit *fit, const kv_policy *policy,
                              kv_error *err);
    const char *no_scales;
};

const kv_engine *kv_engine_at(size_t index); /* NULL past the end */
kv_status kv_engine_find(const kv_engine **out, const char *name, kv_error *err);

/* `kvant list engines`. */
void kv_engine_list(FILE *out);

/* Exactly one limit; the other one is 0. */
typedef struct {
    double max_error;  /* additive power */
    int64_t max_bytes; /* of all layers */
} kv_engine_budget;

/* policy: geometry and windows of the problem's layers, by number; may be NULL. KV_EREQUEST, with
 * the reason, where no policy at all can be expressed with the problem's choices. The caller frees
 * the contents of *out. */
kv_status kv_engine_solve(kv_engine_fit *out, const kv_engine *engine, const kv_problem *problem,
                          const kv_policy *policy, const kv_engine_budget *budget, kv_error *err);
void kv_engine_fit_free_contents(kv_engine_fit *fit);

/* `kvant export`: the engine's words for a policy. The choices are those of `table` (CSV or HDF5),
 * else of the policy's result file, else the policy's own, which must then be expressible exactly.
 * Cost, regret and warnings go to `notes`; scales (NULL: none) is written. */
typedef struct {
    const char *table, *scales;
} kv_engine_export_options;
kv_status kv_engine_export(kv_text *out, FILE *notes, bool *is_feasible, const kv_engine *engine,
                           const kv_policy *policy, const kv_engine_export_options *options,
                           kv_error *err);

#endif
