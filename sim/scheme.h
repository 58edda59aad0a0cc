/* Schemes: a name, a key quantizer and a value quantizer.
 *
 * Each quantizer is written in the shorthand of kernels/shorthand.h. A published method is a file
 * DIR/schemes/NAME.yaml with `about`, `source`, `key` and `value`. */
#ifndef KVANT_SIM_SCHEME_H
#define KVANT_SIM_SCHEME_H

#include "kernels/quantize.h"

typedef struct {
    char *name;
    char *key_text, *value_text; /* canonical shorthand, as printed and stored */
    kv_quantizer key, value;
} kv_scheme;

void kv_scheme_free_contents(kv_scheme *scheme);

/* From shorthand texts; without a name it is "KEY | VALUE" in canonical shorthand. */
kv_status kv_scheme_make(kv_scheme *out, const char *name, const char *key, const char *value,
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

#endif
