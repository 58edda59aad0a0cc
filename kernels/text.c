/* Strict numbers and a growing string: see text.h. */
#include "kernels/text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *skip_digits(const char *text)
{
    while (is_digit(*text)) text++;
    return text;
}

bool kv_parse_int(const char *text, int64_t *value)
{
    const char *const digits = text + (*text == '-' || *text == '+');
    const char *const end = skip_digits(digits);
    if (end == digits || *end || (digits[0] == '0' && digits[1])) return false;
    errno = 0;
    long long const found = strtoll(text, NULL, 10);
    if (errno) return false;
    *value = found;
    return true;
}

bool kv_parse_real(const char *text, double *value)
{
    const char *at = text + (*text == '-' || *text == '+');
    const char *const whole = at;
    at = skip_digits(at);
    size_t digits = (size_t)(at - whole);
    if (*at == '.') {
        const char *const fraction = ++at;
        at = skip_digits(at);
        digits += (size_t)(at - fraction);
    }
    if (!digits) return false;
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '-' || *at == '+';
        const char *const exponent = at;
        at = skip_digits(at);
        if (at == exponent) return false;
    }
    if (*at) return false;
    double const found = strtod(text, NULL);
    if (!isfinite(found)) return false;
    *value = found;
    return true;
}

const char *kv_real_text(char out[KV_REAL_TEXT], double value)
{
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(out, KV_REAL_TEXT, "%.*g", precision, value);
        if (strtod(out, NULL) == value) break;
    }
    return out;
}

size_t kv_utf8_length(const char *text)
{
    const unsigned char *const s = (const unsigned char *)text;
    if (s[0] < 0x80) return s[0] != 0;
    size_t const n = s[0] >= 0xF5 ? 0 : s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : s[0] >= 0xC2 ? 2 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return n;
}

kv_byte_unit kv_byte_unit_for(double bytes)
{
    static const kv_byte_unit units[] = {
        {"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"bytes", 1}};
    int i = 0;
    while (units[i].bytes > 1 && bytes < units[i].bytes) i++;
    return units[i];
}

const char *kv_bytes_text(char out[KV_BYTES_TEXT], double bytes)
{
    kv_byte_unit const unit = kv_byte_unit_for(bytes);
    snprintf(out, KV_BYTES_TEXT, "%.4g %s", bytes / unit.bytes, unit.name);
    return out;
}

kv_status kv_text_add(kv_text *text, kv_error *err, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    kv_status const status = kv_text_add_list(text, err, format, arguments);
    va_end(arguments);
    return status;
}

kv_status kv_text_add_list(kv_text *text, kv_error *err, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int const wanted = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (wanted < 0) return KV_FAIL(err, KV_EIO, "text cannot be printed");
    kv_status const status = kv_grow((void **)&text->data, &text->capacity, text->length,
                                     text->length + (size_t)wanted + 1, 1, err);
    if (status != KV_OK) return status;
    vsnprintf(text->data + text->length, (size_t)wanted + 1, format, arguments);
    text->length += (size_t)wanted;
    return KV_OK;
}

char *kv_text_take(kv_text *text)
{
    char *const data = text->data;
    *text = (kv_text){0};
    return data;
}

void kv_text_free(kv_text *text)
{
    kv_free(text->data);
    *text = (kv_text){0};
}
