/* A tuning, start to end: measure the table, solve exactly, verify, recalibrate, repair, compare.
 *
 * Measurements are stack runs (sim/stack.h), kept in a cache by content (kv_cache, cache.h), so
 * that any tuning that needs one again, after an interruption or at a greater effort, finds it.
 * Given equal configuration the outcome is the same for any thread count and any interruption.
 *
 *     kv_tuning_create(&tuning, &config, &settings, &environment, &err);
 *     status = kv_tuning_run(tuning, &err);           KV_EINTERRUPTED: the best so far is there
 *     kv_outcome_report(stdout, kv_tuning_outcome(tuning), &err);
 *
 * Efforts, in rising order:
 *   estimate    the table from local errors and one measured gain per layer and tensor
 *   measure     every scheme that no other beats run to the end, alone in its layer
 *   patient     single steps away from what was verified are measured and combined, up to 4 times
 *   exhaustive  then all of it once more with twice the search seeds and pairs run as pairs; what
 *               is better on the held-out seeds, the same at all efforts, stands
 * So patient and exhaustive never end with a worse verified policy than measure does; estimate,
 * whose table is another, may.
 *
 * The error of synthetic heads is stack_err. A capture holds no weights: its layers' errors are
 * local (attention outputs of the captured queries against unquantized ones) and the outcome says
 * so; nothing can be verified end to end. A table from elsewhere (settings.table) replaces
 * measuring; then config may be NULL. */
#ifndef KVANT_TUNER_TUNE_H
#define KVANT_TUNER_TUNE_H

#include "kernels/backend.h"
#include "tuner/settings.h"

typedef struct kv_tuning kv_tuning;

typedef struct {
    const kv_backend *backend;
    int threads;
    const char *cache_path;              /* NULL: keep nothing */
    double time_limit;                   /* seconds; 0 none */
    bool (*is_cancelled)(void *context); /* NULL: never */
    /* Progress: what is being done, the share of it done, the seconds it may still take. */
    void (*progress)(void *context, const char *task, double share, double eta_s);
    void *context;
} kv_tune_environment;

kv_status kv_tuning_create(kv_tuning **out, const kv_config *config,
                           const kv_tune_settings *settings, const kv_tune_environment *environment,
                           kv_error *err);
void kv_tuning_free(kv_tuning *tuning);

/* KV_OK also when the budget cannot be met (outcome->is_budget_met). KV_EINTERRUPTED on
 * cancellation or at the time limit: the outcome is the best so far, is_complete false, or NULL
 * where not even a table is there. */
kv_status kv_tuning_run(kv_tuning *tuning, kv_error *err);

const kv_outcome *kv_tuning_outcome(const kv_tuning *tuning);

/* Floating-point operations of the table and the verification, for estimates of time. */
double kv_tuning_flops(const kv_tuning *tuning);

/* What the user should know besides: a line each, "" for nothing. */
const char *kv_tuning_notes(const kv_tuning *tuning);

/* Measurements the cache holds: before the run, those of an earlier one. */
int64_t kv_tuning_cached(const kv_tuning *tuning);

#endif
