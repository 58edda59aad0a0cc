/* Reading a file once in a child process before it is trusted: libraries that crash or hang on
 * damaged files then do so there, and the file is an error instead of the end. */
#ifndef KVANT_KERNELS_PROBE_H
#define KVANT_KERNELS_PROBE_H

#include "kernels/error.h"

KV_EXTERN_C_BEGIN

/* KV_EINPUT where `read_once` did not come back. What it finds wrong is left to the caller, who
 * meets it again and can name it. */
kv_status kv_probe(const char *path, void (*read_once)(const char *path), kv_error *err);

KV_EXTERN_C_END

#endif
