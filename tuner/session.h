/* What a run from files to files is given besides what it shall do: with what it computes, where it
 * prints, when it must stop. For tune_files.h and sweep_files.h. */
#ifndef KVANT_TUNER_SESSION_H
#define KVANT_TUNER_SESSION_H

#include <stdio.h>

#include "kernels/backend.h"
#include "sim/config.h"

typedef struct {
    const kv_backend *backend;
    char why[1024]; /* kv_backend_why, where the backend was not asked for by name; or "" */
    int threads;
    bool (*is_cancelled)(void *context); /* NULL: never */
    void *context;
    kv_config_sources sources; /* sets and data directories; `sections` is not used */
    FILE *out, *notes;         /* data; what is not data */
    bool is_dry;   /* print the effective configuration and the cost; run and write nothing */
    bool is_quiet; /* neither table nor report, nor notes on what went well */
    bool has_bar;  /* notes is a terminal: show progress there */
    int argc;      /* the command line, for provenance */
    char *const *argv;
} kv_session;

/* Says in the notes what "auto" took and why. */
void kv_session_note(const kv_session *session);

#endif
