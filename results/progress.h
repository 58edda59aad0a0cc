/* The progress of a run on a terminal: a bar, the rate and the time left.
 *
 *     kv_progress p;
 *     kv_progress_start(&p, isatty(2) ? stderr : NULL, run, n_units);
 *     ... kv_run_put(run, ...); kv_progress_show(&p);
 *     kv_progress_clear(&p); */
#ifndef KVANT_RESULTS_PROGRESS_H
#define KVANT_RESULTS_PROGRESS_H

#include <stdio.h>

#include "results/run.h"

/* Redraws the line of a terminal: a bar of which `share`, 0 to 1, is filled, and a text. One call
 * of fprintf, so that lines of several threads do not mix. */
void kv_progress_bar(FILE *out, double share, const char *text);
void kv_progress_wipe(FILE *out);

typedef struct {
    FILE *out; /* NULL: nothing is shown */
    kv_run *run;
    int64_t n_units, n_before; /* units done when this process started */
    double start_s;
} kv_progress;

/* Shows the bar once. `run` must outlive the progress. */
void kv_progress_start(kv_progress *progress, FILE *out, kv_run *run, int64_t n_units);
/* May be called from several threads. */
void kv_progress_show(const kv_progress *progress);
/* Takes the bar away. */
void kv_progress_clear(const kv_progress *progress);

#endif
