/* A policy: the key and value scheme of every layer, with what they cost and where they come from.
 * One YAML file, written by `kvant tune`, read by `kvant sweep` (schemes: [{name, policy: FILE}]),
 * `kvant check`, `kvant export` and `kvant capacity`.
 *
 *     kvant_policy: 1
 *     title: Llama-3.1-8B within 1 %
 *     model: llama-3.1-8b
 *     context: 8192
 *     bytes_per_token: 53248.0
 *     error: {kind: stack_err, budget: 0.01, additive: 0.0093, verified: 0.0091, low: …, high: …}
 *     layers:
 *       - {layer: 0, key: "int8/channel", value: "int4/token:zero", bytes: 1234, error: 1.2e-05}
 *     result: out.h5
 *     provenance: {kvant: 0.1.0, git: …, config_sha256: …}
 *
 * Numbers that are not known are left out. */
#ifndef KVANT_SIM_POLICY_H
#define KVANT_SIM_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/error.h"

typedef struct {
    int64_t layer; /* number */
    char *key, *value;
    int64_t bytes; /* of the whole layer at `context` (or per token: policy.is_per_token) */
    double error;  /* power this choice alone adds; NaN unknown */
    int64_t kv_heads, head_dim, window; /* geometry; 0 = unknown (window: -1) */
    double key_absmax, value_absmax;    /* of the exact tensors, for static scales; NaN unknown */
} kv_policy_layer;

typedef struct {
    char *title, *model; /* model may be NULL */
    int64_t context;     /* tokens the bytes are for; 0: bytes are per token, a table's own */
    char *error_kind;    /* "stack_err", "out_err" or "error" (a table's own, a power) */
    double budget, additive_error, verified_error, verified_low, verified_high; /* NaN unknown */
    bool is_budget_met, is_complete;
    char *budget_text; /* "max_error 0.01" */
    int64_t n_layers;
    kv_policy_layer *layers; /* by rising number */
    char *result;            /* path of the result file with the table, as written; NULL none */
    char *version, *git, *config_sha256; /* provenance; NULL unknown */
} kv_policy;

/* Writes the whole file under a temporary name, then renames. */
kv_status kv_policy_write(const char *path, const kv_policy *policy, kv_error *err);

/* KV_EREQUEST with file:line:column for everything that is wrong; *out owns its contents. `result`
 * comes back as a path from here. Schemes are kept as they are written, in canonical shorthand
 * where they are shorthand. */
kv_status kv_policy_read(kv_policy *out, const char *path, kv_error *err);
void kv_policy_free_contents(kv_policy *policy);

/* Stored bytes of all layers. */
int64_t kv_policy_bytes(const kv_policy *policy);

#endif
