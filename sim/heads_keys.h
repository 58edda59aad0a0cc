/* The key table of `heads:`, and what of it a table cannot say: captures in separate files. */
#ifndef KVANT_SIM_HEADS_KEYS_H
#define KVANT_SIM_HEADS_KEYS_H

#include "sim/heads.h"
#include "sim/keys.h"

enum { KV_HEADS_KEYS = 50 };
extern const kv_key_table kv_heads_table; /* of KV_HEADS_KEYS rows; the struct is kv_heads_config */

/* Reads a `heads:` mapping; `profile` is left to the caller. given [KV_HEADS_KEYS] as in
 * kv_keys_read. */
kv_status kv_heads_keys_read(kv_heads_config *out, const kv_yaml_node *mapping,
                             const kv_yaml_node **given, kv_problems *problems, kv_error *err);

/* All keys as YAML lines indented by two spaces. */
kv_status kv_heads_keys_print(kv_text *text, const kv_heads_config *config, kv_error *err);

/* The generator and the seeds as a configuration writes them. The caller frees both. */
kv_status kv_heads_origin(char **generator, char **seeds, const kv_heads_config *config,
                          kv_error *err);

#endif
