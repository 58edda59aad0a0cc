/* A policy file in the words of a serving engine: what `kvant export` does once its command line is
 * read; the search and the words are tuner/engine.h's. */
#ifndef KVANT_TUNER_EXPORT_FILE_H
#define KVANT_TUNER_EXPORT_FILE_H

#include "tuner/engine.h"

typedef struct {
    const char *policy; /* path */
    const kv_engine *engine;
    const char *output; /* path; NULL: printed */
    kv_engine_export_options options;
} kv_export_request;

/* *is_feasible: something within the policy's budget can be expressed; else the nearest is written.
 * KV_EREQUEST where an output is also an input. */
kv_status kv_export_file(FILE *out, FILE *notes, bool *is_feasible,
                         const kv_export_request *request, kv_error *err);

#endif
