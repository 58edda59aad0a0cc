/* The exact frontier of the additive model: a multiple-choice knapsack in integers.
 *
 * Each group (a layer) must take one of its options (a key and a value scheme); sizes and errors
 * add up. A point of the frontier is an assignment such that no other has both size and error at
 * most as large and one of them smaller; of equal ones the lexicographically first (lowest option
 * index in the first group where they differ) stands.
 *
 * Method: options that another of their group dominates are dropped; the lower convex hulls of all
 * groups, merged by slope, give the LP relaxation (Sinha and Zoltners 1979, Operations Research 27)
 * and with it a lower bound at every size. Where (range of sizes) / gcd is small a dense dynamic
 * program over sizes gives the whole frontier. Otherwise, and for one budget, the segments between
 * neighbouring vertices of the LP bound are searched by a dynamic program over partial sums whose
 * reduced cost is at most tau, tau growing until it exceeds what any missing point could have: a
 * certificate of completeness. All comparisons that decide are made in integers, so results are the
 * same everywhere.
 *
 * 80 layers of 81 options take 2 ms for 3,700 points, 0.2 ms for one budget; with sizes to the byte
 * that differ by layer, 1 s for 360,000 points, 0.3 s at 1000 budgets, 0.2 ms for one
 * (tests/bench/frontier.c). The problem is NP-hard: an instance of many large sizes that lie on one
 * line, a subset sum, ends with KV_ENOMEM.
 *
 *     kv_frontier_solve(&frontier, &knapsack, &(kv_frontier_options){0}, &err);
 *     frontier->size[p], frontier->error[p], frontier->option[p * n_groups + g] */
#ifndef KVANT_TUNER_FRONTIER_H
#define KVANT_TUNER_FRONTIER_H

#include <stdint.h>

#include "kernels/error.h"

typedef struct {
    int64_t size, error;
} kv_option;

/* At most KV_KNAPSACK_MAX_OPTIONS options a group; sums of sizes and of errors must stay below
 * 2^61 in magnitude. Sizes and errors may be negative. */
enum { KV_KNAPSACK_MAX_OPTIONS = 65535 };
typedef struct {
    int64_t n_groups;
    const int64_t *n_options;        /* [n_groups] */
    const kv_option *const *options; /* [n_groups][n_options] */
} kv_knapsack;

/* Points by rising size and falling error. */
typedef struct {
    int64_t count, n_groups;
    int64_t *size, *error; /* [count] */
    double *lower_bound;   /* [count] least error of the LP relaxation at this size, rounded to
                              double, never above the error as a double */
    double *multiplier;    /* [count] minus the slope of that bound there (to the right; 0 at the
                              last): error per unit of size */
    uint16_t *option;      /* [count][n_groups] */
} kv_frontier;

/* resolution > 0: not every point, but for each size budget s_min + i * resolution the exact best
 * assignment within it, without repetitions, up to the first budget that the least error needs; a
 * point's size is its own. max_points > 0: KV_EREQUEST, naming a resolution that would do, where
 * there are more. */
typedef struct {
    int64_t resolution, max_points;
} kv_frontier_options;

/* *out is the caller's, freed with kv_frontier_free. KV_EREQUEST for a knapsack without groups, a
 * group of none or too many options, or sums too large; KV_ENOMEM also where a search would hold
 * more than 2^25 partial sums. Thread-safe, as are the functions below. */
kv_status kv_frontier_solve(kv_frontier **out, const kv_knapsack *knapsack,
                            const kv_frontier_options *options, kv_error *err);
void kv_frontier_free(kv_frontier *frontier);

/* One budget, without the frontier: the point of least error with size <= budget, or of least size
 * with error <= budget (of those the one the frontier holds). *out is a frontier of one point, or
 * of none where the budget is infeasible. */
kv_status kv_knapsack_within_size(kv_frontier **out, const kv_knapsack *knapsack, int64_t budget,
                                  kv_error *err);
kv_status kv_knapsack_within_error(kv_frontier **out, const kv_knapsack *knapsack, int64_t budget,
                                   kv_error *err);

#endif
