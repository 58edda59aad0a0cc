/* Text: strict numbers, numbers that read back, and a string that grows.
 *
 *     kv_text text = {0};
 *     KV_TRY(kv_text_add(&text, err, "window=%" PRId64, window));
 *     *out = kv_text_take(&text);        // or kv_text_free(&text) */
#ifndef KVANT_KERNELS_TEXT_H
#define KVANT_KERNELS_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/error.h"

KV_EXTERN_C_BEGIN

/* The whole text must be a decimal number: 12 -3 0; no 007, 4abc, 1e3 or 0x10. False otherwise or
 * where it does not fit. */
bool kv_parse_int(const char *text, int64_t *value);

/* The whole text must be a finite decimal number: 12 -3.5 .5 1e-3; no nan, inf or 0x10. */
bool kv_parse_real(const char *text, double *value);

/* The shortest decimal that reads back to the same double; `out` holds at least 32 bytes. */
enum { KV_REAL_TEXT = 32 };
const char *kv_real_text(char out[KV_REAL_TEXT], double value);

/* Bytes of the UTF-8 character at `text`; 0 at its end and where there is none (RFC 3629: no
 * overlong forms, no surrogates, nothing beyond U+10FFFF). */
size_t kv_utf8_length(const char *text);

/* The largest binary unit that `bytes` reaches: "TiB" ... "KiB", "bytes". */
typedef struct {
    const char *name;
    double bytes;
} kv_byte_unit;
kv_byte_unit kv_byte_unit_for(double bytes);

/* So many bytes in the largest binary unit they reach, to four digits: "435.5 MiB", "12 bytes". */
enum { KV_BYTES_TEXT = 32 };
const char *kv_bytes_text(char out[KV_BYTES_TEXT], double bytes);

/* A growing string, always terminated once something was added. Start as {0}. */
typedef struct {
    char *data;
    size_t length, capacity;
} kv_text;

kv_status kv_text_add(kv_text *text, kv_error *err, const char *format, ...) KV_PRINTF(3, 4);
kv_status kv_text_add_list(kv_text *text, kv_error *err, const char *format, va_list arguments)
    KV_PRINTF(3, 0);
char *kv_text_take(kv_text *text); /* the caller frees with kv_free; NULL if nothing was added */
void kv_text_free(kv_text *text);

KV_EXTERN_C_END

#endif
