/* What a tuning found, whoever measured it: the problem, its exact frontier, the assignment chosen
 * and what is known about it. Reports, result files, plots and policies are made from it, and it
 * does not know how it was measured. */
#ifndef KVANT_TUNER_OUTCOME_H
#define KVANT_TUNER_OUTCOME_H

#include <stdio.h>

#include "sim/policy.h"
#include "tuner/frontier.h"
#include "tuner/problem.h"

/* Exactly one limit is given. Errors are in the problem's reported kind (see error_kind). */
typedef enum {
    KV_BUDGET_ERROR,           /* max_error */
    KV_BUDGET_BYTES,           /* max_bytes: sum of the table's bytes */
    KV_BUDGET_BYTES_PER_TOKEN, /* max_bytes_per_token: of a stored context, all layers */
    KV_BUDGET_BITS,            /* max_bits: mean stored bits per element */
    KV_BUDGET_MATCH            /* match: no more error than this scheme used everywhere */
} kv_budget_kind;
typedef struct {
    kv_budget_kind kind;
    double limit;      /* of MATCH: the error found for the scheme */
    const char *match; /* the scheme as written */
} kv_budget;

/* One assignment with what was measured of it. verified = end to end on the search seeds, held_out
 * = on seeds the search never saw: mean and 95 % t interval; NaN where not measured. These are
 * errors as reported, `additive` is a power. */
typedef struct {
    char *name;          /* "policy", "uniform int8/channel | int8/token", "NSGA-II", ... */
    char *family;        /* "policy", "uniform", "ends high", "random", "NSGA-II" */
    int32_t *assignment; /* [L] choice index; -1 where the table has no such choice */
    int64_t bytes;
    double additive, verified, held_out, held_out_low, held_out_high;
    int64_t runs; /* stack runs spent on finding it */
} kv_candidate;

typedef struct {
    char *title, *model;
    const kv_problem *problem; /* after restrictions; not owned */
    kv_frontier *frontier;
    int64_t resolution; /* of the frontier's sizes, in bytes; 0: every point is there */
    double unit;        /* of frontier errors: power = integer * unit */
    bool is_power;      /* reported errors are powers (a table's own); else square roots of them */
    const char *error_kind;              /* "error", "stack_err" or "out_err" */
    int64_t context, elements_per_token; /* 0 unknown: bytes are the table's own */
    kv_budget budget;
    bool is_feasible;   /* some choice meets the budget in the additive model */
    bool is_budget_met; /* what the exit code says */
    bool is_verified;   /* verified end to end; else `why_not` says why there is nothing to run */
    const char *why_not;
    bool is_complete; /* not cut short by a time limit or Ctrl-C */
    int64_t point;    /* of the frontier: the policy; nearest feasible point where infeasible */
    kv_candidate policy;
    double kappa; /* verified power / additive power; NaN */
    int64_t n_candidates;
    kv_candidate *candidates; /* baselines and other verified points */
    int64_t runs;             /* single-replicate stack runs in all */
    int64_t held_out_seeds;
    /* Geometry per layer [L], or NULL */
    const int64_t *kv_heads, *head_dims, *windows;
    double *key_absmax, *value_absmax; /* [L] or NULL */
} kv_outcome;

/* Reported error of a power: itself, or its square root. */
double kv_outcome_error(const kv_outcome *outcome, double power);

/* The record of a tuning (results.md): tables, frontier_* over `point` (bytes, error, lower_bound,
 * multiplier, choice [point][layer]), policy_* over layer, candidate_* over `candidate`, and root
 * attributes. */
kv_status kv_outcome_record(kv_record **out, const kv_outcome *outcome, kv_error *err);

/* The report in words and tables: one row a layer, totals, gaps, runs, comparison. */
kv_status kv_outcome_report(FILE *out, const kv_outcome *outcome, kv_error *err);

/* `--explain LAYER` (its number): marginal price there, the runner-up and what it would cost, what
 * dominated the rest. */
kv_status kv_outcome_explain(FILE *out, const kv_outcome *outcome, int64_t layer, kv_error *err);

/* The policy file's contents; version and sha256 are the caller's to fill. */
kv_status kv_outcome_policy(kv_policy *out, const kv_outcome *outcome, kv_error *err);

#endif
