/* The parts that a configuration is read in; private to config*.c. */
#ifndef KVANT_SIM_CONFIG_PARTS_H
#define KVANT_SIM_CONFIG_PARTS_H

#include "sim/config.h"
#include "sim/heads_keys.h"

/* Reads a `profile:` list and appends it to the configuration's. */
kv_status kv_profile_read(kv_config *config, const kv_yaml_node *list, kv_problems *problems,
                          kv_error *err);

/* "7" or "0-3"; false where the text is neither. */
bool kv_layers_parse(const char *text, int64_t *first, int64_t *last);

/* For a model's profile, the first `count` settings: leaves out keys that the user set himself and
 * layers that are not there. given [KV_HEADS_KEYS]. */
void kv_profile_yield(kv_config *config, int64_t count, const kv_yaml_node *const *given);

/* The user's own settings, from `first` on, must be for layers that are there. */
void kv_profile_check(const kv_config *config, int64_t first, const kv_yaml_node *list,
                      kv_problems *problems);

/* Applies what the profile says of one layer. */
kv_status kv_profile_apply(kv_heads_config *heads, const kv_config *config, int64_t layer,
                           kv_error *err);
kv_status kv_profile_print(kv_text *text, const kv_config *config, kv_error *err);
void kv_profile_free(kv_config *config);

kv_status kv_axes_read(kv_config *config, const kv_yaml_node *mapping, kv_problems *problems,
                       kv_error *err);
void kv_axes_free(kv_config *config);

kv_status kv_schemes_read(kv_config *config, const kv_yaml_node *node,
                          const kv_config_sources *sources, kv_problems *problems, kv_error *err);

/* The last of the layers from index `first` on whose numbers follow each other and whose quantizers
 * are the same. */
int64_t kv_scheme_run(const kv_scheme *scheme, int64_t first);

/* Settings that contradict each other at any sweep point and layer; the first is reported. */
kv_status kv_config_check(const kv_config *config, const kv_yaml_node *root, kv_problems *problems,
                          kv_error *err);

extern const kv_key_table kv_top_table;
enum { KV_TOP_KEYS = 5 };
typedef struct {
    int64_t version;
    char *title, *model, *from_model, *baseline;
} kv_top_keys;

#endif
