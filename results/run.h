/* The progress of a long run: finished units of work survive the death of the process.
 *
 * A run is n_units units, each a vector of values_per_unit doubles whose meaning is the caller's.
 * Finished units are appended to one log, FINAL.run beside the final file: a header with the run's
 * identity, then one checksummed record per unit. A torn last record is found and dropped.
 *
 *     kv_run_open(&run, &spec, &err);
 *     for each unit, in any thread:
 *         if (!kv_run_is_done(run, unit)) kv_run_put(run, unit, values, &err);
 *     kv_run_collect(all, run, &err);         all [n_units][values_per_unit]
 *     kv_store_write("out.h5", record, &err);
 *     kv_run_finish(run, &err);               removes FINAL.run
 *     kv_run_close(run);                      without finish: FINAL.run stays for --resume
 */
#ifndef KVANT_RESULTS_RUN_H
#define KVANT_RESULTS_RUN_H

#include <stdint.h>

#include "kernels/error.h"

typedef struct kv_run kv_run;

typedef struct {
    const char *final_path;
    const char *identity; /* the effective configuration as text; kvant's version is added */
    int64_t n_units, values_per_unit;
    int resume; /* take up FINAL.run where there is one; where there is none, start */
} kv_run_spec;

/* Starts a run, or takes one up. KV_EREQUEST where FINAL.run holds finished units and `resume` is
 * not set, where it was made by another configuration or version (the message says what differs),
 * or where another process is working on it. */
kv_status kv_run_open(kv_run **out, const kv_run_spec *spec, kv_error *err);

/* Thread-safe. */
int kv_run_is_done(kv_run *run, int64_t unit);
int64_t kv_run_count_done(kv_run *run);

/* Keeps values [values_per_unit]. When it returns KV_OK the unit survives the death of this
 * process; a power failure may cost the units of the last second. Thread-safe. KV_EIO when writing
 * failed (a full disk): the units that were finished before stay good, and the call may be tried
 * again. */
kv_status kv_run_put(kv_run *run, int64_t unit, const double *values, kv_error *err);

/* all [n_units][values_per_unit]; NaN for units that are not done. */
kv_status kv_run_collect(double *all, kv_run *run, kv_error *err);

/* Removes the log; call it when the final file is in place. */
kv_status kv_run_finish(kv_run *run, kv_error *err);

void kv_run_close(kv_run *run); /* NULL is fine */

#endif
