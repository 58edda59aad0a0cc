/* Where a result comes from: the attributes that every record carries.
 *
 *     kv_provenance p = {.title = "...", .config_text = text, .argc = argc, .argv = argv};
 *     kv_provenance_start(&p);
 *     ... run ...
 *     p.backend = "cpu", p.is_complete = 1;
 *     kv_provenance_add(record, &p, &err);
 */
#ifndef KVANT_RESULTS_PROVENANCE_H
#define KVANT_RESULTS_PROVENANCE_H

#include "kernels/record.h"

/* How this program was built; all static strings. */
typedef struct {
    const char *version;      /* "0.1.0" */
    const char *git_revision; /* 40 hex digits, or "unknown" */
    int git_dirty;            /* 1: the tree had changes, 0: none, -1: unknown */
    const char *compiler;     /* "GNU 12.2.0" */
    const char *flags;
    const char *build_type;
} kv_build;

extern const kv_build kv_this_build;

/* Everything the caller knows; texts are the caller's, NULL texts are left out. */
typedef struct {
    const char *title;
    const char *config_text; /* effective configuration, re-runnable */
    const char *backend, *backend_why, *device, *seeds, *generator;
    int argc;
    char *const *argv;
    int is_complete;
    double start_s, start_monotonic_s; /* set by kv_provenance_start */
} kv_provenance;

/* Takes the time. */
void kv_provenance_start(kv_provenance *provenance);

/* Sets the attributes Conventions, title, kvant_schema, kvant_version, config, config_sha256,
 * git_revision, git_dirty, compiler, compiler_flags, build_type, libraries, hostname, argv, start,
 * end (ISO-8601 UTC), wall_time_s, backend, backend_why (where it was not asked for by name),
 * device, seeds, generator, complete (1 or 0). */
kv_status kv_provenance_add(kv_record *record, const kv_provenance *provenance, kv_error *err);

#endif
