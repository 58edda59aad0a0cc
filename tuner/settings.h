/* The `tune:` section of a configuration, as one key table (sim/keys.h) and a few keys by hand.
 *
 *     tune:
 *       max_error: 0.01            # exactly one of max_error, max_bytes_per_token, max_bits, match
 *       context: 8192              # stored tokens the bytes are for; default heads.tokens
 *       effort: measure            # estimate, measure, patient or exhaustive
 *       streams: 4                 # decode streams of a replicate
 *       held_out: 16               # seeds after the search seeds (heads.seeds) that verify, >= 16
 *       pin: {0: [f16, f16]}       # layers (numbers) whose key and value are fixed
 *       forbid: [int2/32x1:zero, q4_0 | q4_0, {layer: 3, key: q4_0}]
 *       key_at_least_value: true
 *       resolution: 0              # bytes; see frontier.h
 *       table: sensitivities.csv   # replaces measuring
 *       baselines: [uniform, ends-high, random, nsga2]
 *
 * The candidates are the configuration's `schemes`, as pairs or as {keys, values}; without it
 * kv_tune_default_keys x kv_tune_default_values. */
#ifndef KVANT_TUNER_SETTINGS_H
#define KVANT_TUNER_SETTINGS_H

#include "sim/config.h"
#include "tuner/outcome.h"

typedef enum {
    KV_EFFORT_ESTIMATE,
    KV_EFFORT_MEASURE,
    KV_EFFORT_PATIENT,
    KV_EFFORT_EXHAUSTIVE
} kv_effort;

typedef struct {
    double max_error, max_bytes_per_token, max_bits; /* 0: not given */
    char *match;                                     /* "" not given */
    int64_t context;                                 /* 0: heads.tokens */
    int64_t effort, streams, held_out, resolution;
    bool key_at_least_value;
    char *table; /* resolved path, "" none */
    int64_t n_pins, n_bans;
    kv_choice_name *pins, *bans; /* their texts are owned */
    int64_t n_forbidden;
    char **forbidden;   /* schemes that may stand for neither key nor value: forbid's plain items */
    uint32_t baselines; /* bit i: row i of the strategy table */
    bool is_given;      /* the section is there */
    /* Where presets that `match` names are looked for; the caller sets it before loading. */
    const char *const *data_dirs;
    size_t n_data_dirs;
} kv_tune_settings;

/* The hook for kv_config_load; *settings starts zero and is filled with the defaults by it. */
kv_config_section kv_tune_section(kv_tune_settings *settings);
kv_status kv_tune_settings_defaults(kv_tune_settings *out, kv_error *err);
void kv_tune_settings_free_contents(kv_tune_settings *settings);

/* After loading: exactly one budget (of the section or of the command line). */
kv_status kv_tune_settings_budget(kv_budget *out, const kv_tune_settings *settings, kv_error *err);

/* The section as YAML that reads back, for the effective configuration. */
kv_status kv_tune_settings_text(kv_text *out, const kv_tune_settings *settings, kv_error *err);

/* Keys for `kvant list keys`; false past the end. */
bool kv_tune_describe_key(kv_key_description *out, size_t index);

/* All keys of a configuration, those of `tune:` last. */
void kv_tune_list_keys(FILE *out);

extern const char *const kv_tune_default_keys[], *const kv_tune_default_values[]; /* NULL-ended */

#endif
