/* Schemes: a name, a key quantizer and a value quantizer.
 *
 * Each quantizer is written in the shorthand of kernels/shorthand.h.
 * A published method is a file configs/schemes/NAME.yaml with `key`, `value`, `source`, `about`. */
#ifndef KVANT_SIM_SCHEME_H
#define KVANT_SIM_SCHEME_H

#include "kernels/quantize.h"

typedef struct {
    char *name;
    char *key_text, *value_text; /* canonical shorthand, as printed and stored */
    kv_quantizer key, value;
} kv_scheme;

void kv_scheme_free_contents(kv_scheme *scheme);

#endif
