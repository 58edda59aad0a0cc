/* A tuning from files to files: what `kvant tune` does once its command line is read.
 *
 * With a configuration: everything in tune.h. NAME.h5.cache beside the result keeps what was
 * measured, and where it is stopped, what there is is written all the same. Without one the table
 * is solved as it is. Either way there is a result file (results/store.h), a policy (sim/policy.h)
 * and a report.
 *
 *     kv_session session = {.backend = backend, .threads = 8, .out = stdout, .notes = stderr};
 *     kv_tune_request request = {.config = "tune.yaml"};
 *     KV_TRY(kv_tune_files(&end, &request, &session, err));
 *     return end.is_budget_met ? 0 : 3; */
#ifndef KVANT_TUNER_TUNE_FILES_H
#define KVANT_TUNER_TUNE_FILES_H

#include "results/table.h"
#include "tuner/outcome.h"
#include "tuner/session.h"

typedef struct {
    const char *config; /* path; NULL: `table` alone, nothing is measured */
    const char *table;  /* path, in place of the configuration's tune.table; NULL */
    /* In place of what the configuration says; NULL: that. A table alone needs a budget, which is
     * KV_BUDGET_ERROR or KV_BUDGET_BYTES. */
    const kv_budget *budget;
    const int64_t *resolution;
    const char *effort;
    const char *result, *policy;   /* paths; NULL: NAME.h5 and NAME.policy.yaml in this folder, NAME
                                      the configuration's; of a table alone no policy */
    const int64_t *explain;        /* number of the layer to explain; NULL: none */
    double time_limit;             /* seconds; 0 none */
    const kv_table_format *format; /* the policy as such a table in place of the report; NULL */
} kv_tune_request;

typedef struct {
    bool is_budget_met;
    bool is_unfinished; /* cancelled, or out of time before anything was verified */
} kv_tune_end;

/* KV_OK also where the budget is not met, and where it was stopped but left a result. KV_EREQUEST
 * where an output is also an input. */
kv_status kv_tune_files(kv_tune_end *end, const kv_tune_request *request, const kv_session *session,
                        kv_error *err);

#endif
