/* The shorthand that names a quantizer, everywhere one is named (configurations, command line,
 * policies, tables):   format[/tile][:option[=value]]...
 *
 *     int8/channel   int4/token:zero   int2/32x1:zero:scale=f16:flush=128   q4_0:hadamard=64   f32
 *
 * Formats are the rows of formats.h, options the rows of stages.h and of the table in shorthand.c.
 */
#ifndef KVANT_KERNELS_SHORTHAND_H
#define KVANT_KERNELS_SHORTHAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "kernels/quantize.h"

KV_EXTERN_C_BEGIN

/* KV_EREQUEST says which part is wrong, what is allowed, and a did-you-mean. pre-rope is refused
 * unless is_key. */
kv_status kv_quantizer_parse(kv_quantizer *out, const char *text, bool is_key, kv_error *err);

/* The canonical shorthand of a quantizer; it parses back to the same settings. Caller frees. */
kv_status kv_quantizer_text(char **out, const kv_quantizer *q, kv_error *err);

/* The canonical shorthand of a text, or the text itself where it is none, as the names of schemes
 * that were measured elsewhere. Caller frees. */
kv_status kv_scheme_canonical(char **out, const char *text, bool is_key, kv_error *err);

/* What a shorthand may hold after its format: tiles, options, and the rows of stages.h. */
void kv_shorthand_list(FILE *out);

/* The candidate closest to `text` (edit distance at most 3 and at most half its length), or NULL.
 */
const char *kv_closest_name(const char *text, const char *const *candidates, size_t count);

KV_EXTERN_C_END

#endif
