/* What reports, records and policies of an outcome share: inside tuner/ only. */
#ifndef KVANT_TUNER_OUTCOME_PARTS_H
#define KVANT_TUNER_OUTCOME_PARTS_H

#include "kernels/text.h"
#include "tuner/solution.h"

/* "max_error 0.01", "match e4m3/tensor (0.0123)". */
kv_status kv_budget_text(kv_text *out, const kv_budget *budget, kv_error *err);

/* The choice of a layer that an assignment makes, NULL where it makes none. */
const kv_choice *kv_assigned(const kv_problem *problem, const int32_t *assignment, int64_t layer);

/* The price of a byte in one layer at one of its choices, in error power per byte: what the best
 * larger choice saves per byte it adds (up; NaN where none saves), and what the best smaller one
 * costs per byte it saves (down; NaN where there is none), with these choices (-1 none). A point of
 * the frontier that lies on its convex hull has up <= multiplier <= down in every layer. */
typedef struct {
    double up, down;
    int64_t up_choice, down_choice;
} kv_marginal;
kv_marginal kv_marginal_at(const kv_problem_layer *layer, int64_t choice);

/* The error of a candidate as reported, in the best way in which `other` was measured too: on
 * held-out seeds, on the search seeds, else additive. */
double kv_error_beside(const kv_outcome *outcome, const kv_candidate *candidate,
                       const kv_candidate *other);

/* The comparison with the candidates, the last part of a report. */
kv_status kv_outcome_compare(FILE *out, const kv_outcome *outcome, kv_error *err);

/* Additive power of a frontier's point, from the table's own numbers. */
double kv_point_power(const kv_problem *problem, const kv_frontier *frontier, int64_t point);

/* Whether the policy is outcome->point of the frontier: one that was repaired lies beside it. */
bool kv_is_frontier_point(const kv_outcome *outcome);

/* What the relaxation allows no assignment within the policy's bytes to go below, an error power:
 * its bound at the frontier's first point of so many bytes. */
double kv_lower_bound(const kv_outcome *outcome);

#endif
