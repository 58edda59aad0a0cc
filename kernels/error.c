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
    char context[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context - 2, format, arguments);
    va_end(arguments);
    size_t const used = strlen(context) + 2, room = sizeof err->message - 1;
    size_t const kept = strlen(err->message) < room - used ? strlen(err->message) : room - used;
    memmove(err->message + used, err->message, kept);
    err->message[used + kept] = 0;
    memcpy(err->message, context, used - 2);
    memcpy(err->message + used - 2, ": ", 2);
}
