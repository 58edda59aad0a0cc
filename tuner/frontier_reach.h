/* What a partial sum must still cost: bounds of the segment search (frontier_segment.c); not for
 * other modules.
 *
 * The groups not yet added can change the size only along the convex hulls of their moves, cheapest
 * slope first. Final sizes compete at the next budget asked for: one above all budgets is of no
 * use, one below costs slack_slope for each unit that it falls short. */
#ifndef KVANT_TUNER_FRONTIER_REACH_H
#define KVANT_TUNER_FRONTIER_REACH_H

#include "tuner/frontier_state.h"

/* An option of a group, relative to the one at the vertex; costs are shifted down by `shift`. */
typedef struct {
    int64_t size, error, cost, option;
} kv_move;

/* A group that can move: its moves [from, to), by rising size. */
typedef struct {
    int64_t group, from, to, span; /* span: size from the first to the last move */
} kv_active;

/* A piece of a hull: for `size` more (or less) `cost`, from_size and from_cost before it. */
typedef struct {
    int64_t active, size, cost, from_size, from_cost;
    int64_t slope; /* floor(cost / size * 2^bits) */
    int bits;
} kv_way;

typedef struct {
    kv_way *ways;  /* by rising slope */
    int64_t n, at; /* at: the way of the last query */
} kv_ways;

typedef struct {
    const kv_relaxation *relaxation;
    const kv_budgets *budgets;
    int64_t vertex;    /* sizes are relative to this */
    int64_t low, high; /* first and last budget asked for */
    int64_t slack_slope;
    int shift;
    kv_ways up, down;
    int64_t below, above; /* the budgets around the last query */
} kv_reach;

enum { KV_COST_BITS = 60 };                /* costs are below 2^60 */
#define KV_OUT_OF_REACH ((int64_t)1 << 61) /* more than any cost */

kv_status kv_reach_create(kv_reach *out, int64_t n_moves, kv_error *err);
void kv_reach_free(kv_reach *reach);

/* Takes in the moves of the active groups [n_active], one of each being nothing; all from
 * relaxation to shift is set before. */
void kv_reach_build(kv_reach *reach, const kv_move *moves, const kv_active *active,
                    int64_t n_active);

/* Forgets the active groups up to a: they have been added. */
void kv_reach_added(kv_reach *reach, int64_t a);

/* Never more than what a sum of this size must still cost. Sizes must not fall between queries;
 * kv_reach_restart, which is needed before the first one, lets them start anew. */
void kv_reach_restart(kv_reach *reach);
int64_t kv_reach_cost(kv_reach *reach, int64_t size);

#endif
