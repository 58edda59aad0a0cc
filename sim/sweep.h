/* A sweep: a configuration expanded into units of work, run, and turned into a record.
 *
 * A unit is one (sweep point, layer, seed): all kv heads of that layer under all schemes; or, for
 * metrics of the decode stack (sim/stack.h), one (sweep point, seed): all layers under all schemes.
 * Units are numbered, independent, and give a fixed number of values, so that they can be stored,
 * resumed and split without knowing what they mean.
 *
 *     kv_sweep_create(&sweep, &config, &err);
 *     kv_sweep_run(sweep, backend, threads, &sink, &err);    // sink.put receives values
 *     kv_sweep_record(&record, sweep, all_values, &err);
 */
#ifndef KVANT_SIM_SWEEP_H
#define KVANT_SIM_SWEEP_H

#include <stdio.h>

#include "kernels/backend.h"
#include "kernels/record.h"
#include "sim/config.h"

typedef struct kv_sweep kv_sweep;

/* Keeps a pointer to `config`, which must outlive the sweep. Opens captures for their layers. */
kv_status kv_sweep_create(kv_sweep **out, const kv_config *config, kv_error *err);
void kv_sweep_free(kv_sweep *sweep);

int64_t kv_sweep_units(const kv_sweep *sweep);
int64_t kv_sweep_values_per_unit(const kv_sweep *sweep);

/* Before running: floating-point operations of all products, and the memory a thread may need
 * (twice one head's keys and values, and what the CPU backend takes however small they are). */
typedef struct {
    double flops;
    int64_t bytes_per_thread, bytes_of_results;
} kv_sweep_cost;
kv_sweep_cost kv_sweep_estimate(const kv_sweep *sweep);

/* The same in words, as comments of YAML, with a guess of the time. */
void kv_sweep_print_cost(FILE *out, const kv_sweep *sweep, int threads);

/* Where units come from and go to; every function may be called from several threads. */
typedef struct {
    void *context;
    bool (*is_done)(void *context, int64_t unit);
    kv_status (*put)(void *context, int64_t unit, const double *values, kv_error *err);
    bool (*is_cancelled)(void *context); /* polled before each unit, or layer of a stack */
} kv_sweep_sink;

/* Runs every unit that is not done. KV_EINTERRUPTED when cancelled. The error of the lowest unit
 * wins; units already finished have been put. */
kv_status kv_sweep_run(const kv_sweep *sweep, const kv_backend *backend, int threads,
                       const kv_sweep_sink *sink, kv_error *err);

/* values [units][values_per_unit]. With a baseline scheme each metric of a scheme also has
 * NAME_vs_baseline, the difference on the same heads. */
kv_status kv_sweep_record(kv_record **out, const kv_sweep *sweep, const double *values,
                          kv_error *err);

#endif
