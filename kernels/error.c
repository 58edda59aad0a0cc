/* Error records: see error.h. */
#include "kernels/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

kv_status kv_error_set(kv_error *err, kv_status status, const char *file, int line,
                       const char *format, ...)
{
    if (!err || err->status != KV_OK) return status;
    err->status = status, err->file = file, err->line = line;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(err->message, sizeof err->message, format, arguments);
    va_end(arguments);
    return status;
}

void kv_error_prepend(kv_error *err, const char *format, ...)
{
    if (!err || err->status == KV_OK) return;
    char context[1024], rest[sizeof err->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context, format, arguments);
    va_end(arguments);
    memcpy(rest, err->message, sizeof rest);
    size_t const used = strlen(context) + 2; /* the context and ": " */
    snprintf(err->message, sizeof err->message, "%s: ", context);
    snprintf(err->message + used, sizeof err->message - used, "%s", rest);
}
