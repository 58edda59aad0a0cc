/* Problems that were written down: in the result file of a tuning, or as a policy. */
#ifndef KVANT_TUNER_PROBLEM_RESULT_H
#define KVANT_TUNER_PROBLEM_RESULT_H

#include "sim/policy.h"
#include "tuner/problem.h"

/* Any table: the result of a tuning (results/store.h) or a table from elsewhere
 * (kv_problem_load). */
kv_status kv_problem_load_any(kv_problem **out, const char *path, kv_error *err);

/* The choices of table_error and table_bytes (kv_problem_record). Separable where every layer has
 * all pairs of its key and value schemes and they add up to a relative 1e-12. KV_EINPUT with `name`
 * (of the file) where the arrays are missing or not as they should be. */
kv_status kv_problem_of_record(kv_problem **out, const kv_record *record, const char *name,
                               kv_error *err);

/* One choice a layer, the policy's own; bytes and errors that it does not know are 0. */
kv_status kv_problem_of_policy(kv_problem **out, const kv_policy *policy, kv_error *err);

#endif
