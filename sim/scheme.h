/* Schemes: a name, a key quantizer and a value quantizer.
 *
 * Shorthand, everywhere a scheme is named:  format[/tile][:option[=value]]...
 *
 *     int8/channel   int4/token:zero   int2/32x1:zero:scale=f16:flush=128   q4_0:hadamard=64   f32
 *
 * A published method is a file configs/schemes/NAME.yaml with `key`, `value`, `source`, `about`. */
#ifndef KVANT_SIM_SCHEME_H
#define KVANT_SIM_SCHEME_H

#include "kernels/quantize.h"

typedef struct {
    char *name;
    char *key_text, *value_text; /* canonical shorthand, as printed and stored */
    kv_quantizer key, value;
} kv_scheme;

/* `what` is KV_KEY or KV_VALUE (pre-rope is for keys only). KV_EREQUEST says which part is wrong,
 * what is allowed, and a did-you-mean. */
kv_status kv_quantizer_parse(kv_quantizer *out, const char *text, bool is_key, kv_error *err);

/* The canonical shorthand of a quantizer: parses back to the same settings. Caller frees. */
kv_status kv_quantizer_text(char **out, const kv_quantizer *q, kv_error *err);

void kv_scheme_free_contents(kv_scheme *scheme);

#endif
