/* A policy: the key and value scheme of every layer, with what they cost and where they come from.
 * One YAML file, written by `kvant tune`, read by `kvant sweep` (schemes: [{name, policy: FILE}]),
 * `kvant check`, `kvant export` and `kvant capacity`.
 *
 *     kvant_policy: 1
 *     title: Llama-3.1-8B within 1 %
 *     model: llama-3.1-8b
 *     context: 8192
 *     bytes_per_token: 53248
 *     budget: max_error 0.01
 *     budget_met: true
 *     complete: true
 *     result: out.h5
 *     error: {kind: stack_err, budget: 0.01, additive: 0.0093, verified: 0.0091, low: …, high: …}
 *     layers:
 *       - {layer: 0, key: int8/channel, value: int4/token:zero, bytes: 1234, error: 1.2e-05}
 *     provenance: {kvant: 0.1.0, git: …, config_sha256: …}
 *
 * Numbers that are not known are left out; a policy written by hand needs `kvant_policy` and for
 * each layer `layer`, `key` and `value`. A scheme that is no shorthand of kvant's (from a table
 * measured elsewhere) is kept as it is; it is an error only where it would have to be simulated. */
#ifndef KVANT_SIM_POLICY_H
#define KVANT_SIM_POLICY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/yaml.h"

typedef struct {
    int64_t layer; /* number */
    char *key, *value;
    int64_t bytes; /* of the whole layer at `context`, per token where that is 0; 0 unknown */
    double error;  /* power this choice alone adds; NaN unknown */
    int64_t kv_heads, head_dim, window; /* geometry; 0 = unknown (window: -1) */
    double key_absmax, value_absmax;    /* of the exact tensors, for static scales; NaN unknown */
} kv_policy_layer;

typedef struct {
    char *title, *model; /* title never NULL; model NULL unknown */
    int64_t context;     /* tokens the bytes are for; 0: bytes are per token, a table's own */
    char *error_kind; /* "stack_err", "out_err" or "error" (a table's own, a power); NULL unknown */
    double budget, additive_error, verified_error, verified_low, verified_high; /* NaN unknown */
    bool is_budget_met, is_complete;
    char *budget_text; /* "max_error 0.01"; NULL unknown */
    int64_t n_layers;
    kv_policy_layer *layers; /* by rising number */
    char *result; /* path of the result file with the table, from the policy's folder; NULL none */
    char *version, *git, *config_sha256; /* provenance; NULL unknown */
} kv_policy;

/* Writes the whole file under a temporary name, then renames. KV_EREQUEST for what kv_policy_read
 * would refuse. */
kv_status kv_policy_write(const char *path, const kv_policy *policy, kv_error *err);

/* KV_EREQUEST with file:line:column for everything that is wrong; *out owns its contents. Layers
 * come back by rising number, `result` as a path from here. Schemes are kept as they are written,
 * in canonical shorthand where they are shorthand. */
kv_status kv_policy_read(kv_policy *out, const char *path, kv_error *err);
void kv_policy_free_contents(kv_policy *policy);

/* The same from memory (`name` stands for the file), or with the problems of other files; *out is
 * left alone where there are any. */
kv_status kv_policy_parse(kv_policy *out, const char *text, size_t length, const char *name,
                          kv_error *err);
kv_status kv_policy_load(kv_policy *out, const char *path, kv_problems *problems, kv_error *err);

/* The text of the file, in canonical form. Caller frees. */
kv_status kv_policy_text(char **out, const kv_policy *policy, kv_error *err);

/* Whether a file is meant as a policy: YAML with the key kvant_policy. Fails where it cannot be
 * read; a file that is no YAML is none. */
kv_status kv_policy_probe(bool *is_policy, const char *path, kv_error *err);

/* Says how many of its schemes cannot be simulated, where there are any. */
void kv_policy_note_foreign(FILE *notes, const kv_policy *policy);

/* The layer of this number, NULL for none. */
const kv_policy_layer *kv_policy_find(const kv_policy *policy, int64_t layer);

/* Stored bytes of all layers. */
int64_t kv_policy_bytes(const kv_policy *policy);

#endif
