/* Errors: every function that can fail returns kv_status and fills a caller-owned kv_error.
 *
 * The first failure wins; callers may prepend context on the way up, so that the sentence reads
 * from the task to the cause. One `done:` label per function frees everything; outputs are set only
 * on success.
 *
 *     kv_status load(thing **out, const char *path, kv_error *err)
 *     {
 *         kv_status status = KV_OK;
 *         thing *t = NULL;
 *         KV_TRY(kv_allocate((void **)&t, 1, sizeof *t, err));
 *         if (!valid) KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: not a thing", path));
 *         *out = t, t = NULL;
 *     done:
 *         kv_free(t);
 *         return status;
 *     }
 */
#ifndef KVANT_KERNELS_ERROR_H
#define KVANT_KERNELS_ERROR_H

#include "kernels/platform.h"

KV_EXTERN_C_BEGIN

typedef enum {
    KV_OK = 0,
    KV_EREQUEST,     /* the request was wrong: command line, configuration (exit code 2) */
    KV_EINPUT,       /* an input file is broken or does not fit the request (exit code 2) */
    KV_EIO,          /* reading or writing failed (exit code 1) */
    KV_ENOMEM,       /* out of memory (exit code 1) */
    KV_ENUMERIC,     /* NaN or Inf where a number must be (exit code 1) */
    KV_EUNSUPPORTED, /* not available in this build or on this machine (exit code 1) */
    KV_EINTERRUPTED  /* stopped on request, finished work is kept (exit code 1) */
} kv_status;

/* Owned by the caller, started as `kv_error err = {0}`. */
typedef struct {
    kv_status status;
    const char *file; /* where in kvant's source the failure was found; a static string */
    int line;
    char message[4096]; /* what the user reads; several errors of one file are separate lines */
} kv_error;

/* Records a failure and returns `status`. Keeps an earlier failure; `err` may be NULL. */
kv_status kv_error_set(kv_error *err, kv_status status, const char *file, int line,
                       const char *format, ...) KV_PRINTF(5, 6);

/* Puts "context: " before the message that is already there. */
void kv_error_prepend(kv_error *err, const char *format, ...) KV_PRINTF(2, 3);

#define KV_FAIL(err, status, ...) kv_error_set(err, status, __FILE__, __LINE__, __VA_ARGS__)

/* Evaluates a call that returns kv_status; on failure leaves through the label `done`. */
#define KV_TRY(call)                                                                               \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != KV_OK) goto done;                                                            \
    } while (0)

KV_EXTERN_C_END

#endif
