/* What the parts of problem.h share: inside tuner/ only. */
#ifndef KVANT_TUNER_PROBLEM_PARTS_H
#define KVANT_TUNER_PROBLEM_PARTS_H

#include "tuner/problem.h"

/* error and bytes of both sides [L][n], NaN and -1 everywhere. */
kv_status kv_problem_make_sides(kv_problem *problem, kv_error *err);

/* The choices of every layer from its sides: all pairs, key by key, or those of `pairs`;
 * KV_EREQUEST where a layer gets none. */
kv_status kv_problem_pair_choices(kv_problem *problem, const int32_t (*pairs)[2], int64_t n_pairs,
                                  kv_error *err);

#endif
