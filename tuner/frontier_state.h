/* What the files of the exact frontier (frontier.h) share; not for other modules.
 *
 * All sums here are in units: sizes as multiples of size_unit above the least possible size, errors
 * as multiples of error_unit above the least possible error (the units are the greatest common
 * divisors of all differences). So both start at 0, and sums stay below 2^62. */
#ifndef KVANT_TUNER_FRONTIER_STATE_H
#define KVANT_TUNER_FRONTIER_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "tuner/frontier.h"

/* An option that no other of its group dominates; size rises and error falls along a group. */
typedef struct {
    int64_t size, error; /* units above the group's least */
    int64_t option;      /* its index in the knapsack */
} kv_efficient;

/* A step of one group along its lower convex hull: size more and error less, both > 0. */
typedef struct {
    int64_t group, size, error;
} kv_hull_step;

/* The knapsack without dominated options, and its LP relaxation: from the vertex (0, error_range)
 * the steps, by falling error / size, lead over all vertices to (size_range, 0). */
typedef struct {
    int64_t n_groups;
    kv_efficient *efficient; /* of group g: [first[g], first[g + 1]) */
    int64_t *first;          /* [n_groups + 1] */
    int64_t *hull;           /* indices into efficient; of group g: [hull_first[g], ...) */
    int64_t *hull_first;     /* [n_groups + 1] */
    int64_t n_steps;
    kv_hull_step *steps;
    int64_t size_unit, error_unit, least_size, least_error, size_range, error_range;
} kv_relaxation;

/* KV_EREQUEST for a knapsack without groups, with a group of none or too many options, or with sums
 * too large. Freed with kv_relaxation_free, also after failure (start it as {0}). */
kv_status kv_relaxation_create(kv_relaxation *out, const kv_knapsack *knapsack, kv_error *err);
void kv_relaxation_free(kv_relaxation *relaxation);

/* Which budgets are asked for: one (in units), or with is_single false all multiples of resolution
 * (in sizes of the knapsack), or for resolution 0 all. */
typedef struct {
    bool is_single;
    int64_t budget, resolution;
} kv_budgets;

/* The smallest and the largest budget asked for in [from, until), in units; -1 for none. */
int64_t kv_budgets_first(const kv_budgets *budgets, const kv_relaxation *relaxation, int64_t from,
                         int64_t until);
int64_t kv_budgets_last(const kv_budgets *budgets, const kv_relaxation *relaxation, int64_t from,
                        int64_t until);

/* Points while they are collected, sizes and errors in units. */
typedef struct {
    int64_t max_points; /* 0: any number */
    kv_frontier *frontier;
    size_t capacity_size, capacity_error, capacity_option;
} kv_points;

/* Appends a point; *row [n_groups] is where its options go. KV_EREQUEST beyond max_points. */
kv_status kv_points_add(uint16_t **row, kv_points *points, const kv_relaxation *relaxation,
                        int64_t size, int64_t error, kv_error *err);

/* Both methods append the points that are best for some budget asked for, by rising size.
 *
 * Dense: least error for every size; memory and time grow with size_range. kv_dense_bytes is the
 * memory it takes (INT64_MAX where that does not fit), kv_dense_updates its elementary steps. */
double kv_dense_updates(const kv_relaxation *relaxation);
int64_t kv_dense_bytes(const kv_relaxation *relaxation);
kv_status kv_frontier_dense(kv_points *points, const kv_relaxation *relaxation,
                            const kv_budgets *budgets, kv_error *err);

/* Segments: a search between neighbouring vertices of the relaxation. KV_ENOMEM where one search
 * would hold more than max_states partial sums (at most KV_SEGMENT_STATES). */
enum { KV_SEGMENT_STATES = 1 << 25 };
kv_status kv_frontier_segments(kv_points *points, const kv_relaxation *relaxation,
                               const kv_budgets *budgets, int64_t max_states, kv_error *err);

/* For tests: kv_frontier_solve by one method, whatever its cost. */
typedef enum { KV_METHOD_BEST, KV_METHOD_DENSE, KV_METHOD_SEGMENTS } kv_frontier_method;
kv_status kv_frontier_solve_by(kv_frontier **out, const kv_knapsack *knapsack,
                               const kv_frontier_options *options, kv_frontier_method method,
                               int64_t max_states, kv_error *err);
kv_status kv_knapsack_within_by(kv_frontier **out, const kv_knapsack *knapsack, int64_t budget,
                                bool is_error, kv_frontier_method method, int64_t max_states,
                                kv_error *err);

#endif
