/* Schemes: a name, a key quantizer and a value quantizer.
 *
 * Each quantizer is written in the shorthand of kernels/shorthand.h. A published method is a file
 * DIR/schemes/NAME.yaml with `about`, `source`, `key` and `value`. A scheme may differ between
 * layers, as a policy does; code that measures asks kv_scheme_at for the layer's quantizers. */
#ifndef KVANT_SIM_SCHEME_H
#define KVANT_SIM_SCHEME_H

#include <stdio.h>

#include "kernels/quantize.h"
#include "sim/policy.h"

/* What a scheme does to one layer. */
typedef struct {
    int64_t layer; /* number */
    char *key_text, *value_text;
    kv_quantizer key, value;
} kv_scheme_layer;

typedef struct {
    char *name;
    char *key_text, *value_text; /* canonical shorthand, as printed and stored, or "per layer" */
    kv_quantizer key, value;     /* of every layer; unused where layers differ */
    int64_t n_layers;
    kv_scheme_layer *layers; /* by rising number; NULL: all layers alike */
} kv_scheme;

void kv_scheme_free_contents(kv_scheme *scheme);

/* From shorthand texts; without a name it is "KEY | VALUE" in canonical shorthand. */
kv_status kv_scheme_make(kv_scheme *out, const char *name, const char *key, const char *value,
                         kv_error *err);

/* One that does to each layer what the policy says; `name` NULL takes the policy's title. What the
 * user must mend (a text that is no shorthand) is added to `problems` at the node `at`, which may
 * be NULL, and leaves *out alone. */
kv_status kv_scheme_from_policy(kv_scheme *out, const char *name, const kv_policy *policy,
                                const kv_yaml_node *at, kv_problems *problems, kv_error *err);

/* The quantizers of the layer with this number, which belong to the scheme; all NULL where the
 * scheme does not name the layer. */
typedef struct {
    const char *key_text, *value_text;
    const kv_quantizer *key, *value;
} kv_scheme_pair;
kv_scheme_pair kv_scheme_at(const kv_scheme *scheme, int64_t layer);

/* KV_EREQUEST names the layers of numbers [n] (NULL: 0 ... n-1) that the scheme does not name. */
kv_status kv_scheme_covers(const kv_scheme *scheme, const int64_t *numbers, int64_t n,
                           kv_error *err);

/* From one text: the name of a preset in a data directory, "KEY | VALUE", or one shorthand for
 * both. KV_EREQUEST says what was tried, with a did-you-mean over the presets. */
kv_status kv_scheme_find(kv_scheme *out, const char *text, const char *const *data_dirs,
                         size_t n_data_dirs, kv_error *err);

/* A preset as its file describes it. */
typedef struct {
    kv_scheme scheme;
    char *about, *source;
} kv_preset;

/* All presets of the data directories, sorted by name; of two with one name the first directory's
 * counts. Caller frees with kv_presets_free. */
kv_status kv_presets_load(kv_preset **out, size_t *count, const char *const *data_dirs,
                          size_t n_data_dirs, kv_error *err);
void kv_presets_free(kv_preset *presets, size_t count);

/* Their names, schemes and sources. */
kv_status kv_presets_list(FILE *out, const char *const *data_dirs, size_t n_data_dirs,
                          kv_error *err);

#endif
