/* Bounds of the segment search: see frontier_reach.h. */
#include <stdlib.h>

#include "kernels/memory.h"
#include "tuner/frontier_reach.h"

kv_status kv_reach_create(kv_reach *reach, int64_t n_moves, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)n_moves;
    KV_TRY(kv_allocate3_unset((void **)&reach->up.ways, 1, 1, n, sizeof(kv_way), err));
    KV_TRY(kv_allocate3_unset((void **)&reach->down.ways, 1, 1, n, sizeof(kv_way), err));
done:
    return status;
}

void kv_reach_free(kv_reach *reach)
{
    kv_free(reach->up.ways);
    kv_free(reach->down.ways);
    *reach = (kv_reach){0};
}

/* Is the slope of (cost, size) not below that of w? */
static bool is_as_steep(const kv_way *w, int64_t size, int64_t cost)
{
    return (kv_int128)w->cost * size <= (kv_int128)cost * w->size;
}

/* Adds a move at the end of the hull of its group, whose ways start at `from`. */
static void extend(kv_ways *side, int64_t from, kv_way way)
{
    while (side->n > from && !is_as_steep(&side->ways[side->n - 1], way.size, way.cost)) {
        side->n--;
        way.size += side->ways[side->n].size, way.cost += side->ways[side->n].cost;
    }
    side->ways[side->n++] = way;
}

static int by_slope(const void *a, const void *b)
{
    const kv_way *const x = a, *const y = b;
    kv_int128 const left = (kv_int128)x->cost * y->size, right = (kv_int128)y->cost * x->size;
    return (left > right) - (left < right);
}

static void finish(kv_ways *side)
{
    qsort(side->ways, (size_t)side->n, sizeof *side->ways, by_slope);
    for (int64_t i = 0; i < side->n; i++) {
        kv_way *const w = &side->ways[i];
        for (w->bits = 0; w->size >> w->bits;) w->bits++;
        w->slope = (int64_t)(((kv_int128)w->cost << w->bits) / w->size);
    }
}

void kv_reach_build(kv_reach *reach, const kv_move *moves, const kv_active *active,
                    int64_t n_active)
{
    reach->up.n = reach->down.n = 0;
    for (int64_t a = 0; a < n_active; a++) {
        int64_t const first = active[a].from, last = active[a].to - 1;
        int64_t still = first;
        while (moves[still].size < 0) still++;
        int64_t const up = reach->up.n, down = reach->down.n;
        for (int64_t m = still + 1; m <= last; m++)
            extend(&reach->up, up,
                   (kv_way){.active = a,
                            .size = moves[m].size - moves[m - 1].size,
                            .cost = moves[m].cost - moves[m - 1].cost});
        for (int64_t m = still - 1; m >= first; m--)
            extend(&reach->down, down,
                   (kv_way){.active = a,
                            .size = moves[m + 1].size - moves[m].size,
                            .cost = moves[m].cost - moves[m + 1].cost});
        /* Falling short is cheaper than ways as steep as the slack. */
        int64_t kept = up;
        for (int64_t i = up; i < reach->up.n; i++)
            if ((kv_int128)reach->up.ways[i].cost << reach->shift <
                (kv_int128)reach->slack_slope * reach->up.ways[i].size)
                reach->up.ways[kept++] = reach->up.ways[i];
        reach->up.n = kept;
    }
    finish(&reach->up);
    finish(&reach->down);
}

static int64_t at_most_out_of_reach(kv_int128 cost)
{
    return cost < KV_OUT_OF_REACH ? (int64_t)cost : KV_OUT_OF_REACH;
}

static void forget(kv_ways *side, int64_t a)
{
    int64_t n = 0, size = 0, cost = 0;
    for (int64_t i = 0; i < side->n; i++) {
        kv_way w = side->ways[i];
        if (w.active <= a) continue;
        w.from_size = size, w.from_cost = cost;
        size += w.size, cost = at_most_out_of_reach(cost + w.cost);
        side->ways[n++] = w;
    }
    side->n = n;
}

void kv_reach_added(kv_reach *reach, int64_t a)
{
    forget(&reach->up, a);
    forget(&reach->down, a);
}

void kv_reach_restart(kv_reach *reach)
{
    reach->up.at = reach->down.at = 0;
    reach->below = reach->above = reach->low;
}

/* Cost of a distance that ends on way w. */
static int64_t cost_on(const kv_way *w, int64_t distance)
{
    return w->from_cost + (int64_t)((kv_int128)w->slope * (distance - w->from_size) >> w->bits);
}

static int64_t slack(const kv_reach *reach, int64_t size)
{
    return at_most_out_of_reach((kv_int128)reach->slack_slope * size >> reach->shift);
}

/* Goes to the way on which a distance ends; n where it is beyond all. */
static void go_to(kv_ways *side, int64_t distance)
{
    int64_t at = side->at;
    while (at < side->n && side->ways[at].from_size + side->ways[at].size < distance) at++;
    while (at > 0 && side->ways[at - 1].from_size + side->ways[at - 1].size >= distance) at--;
    side->at = at;
}

static int64_t cost_up(kv_reach *reach, int64_t distance)
{
    kv_ways *const up = &reach->up;
    go_to(up, distance);
    if (up->at < up->n) return cost_on(&up->ways[up->at], distance);
    if (up->n == 0) return slack(reach, distance);
    const kv_way *const last = &up->ways[up->n - 1];
    return last->from_cost + last->cost + slack(reach, distance - last->from_size - last->size);
}

static int64_t cost_down(kv_reach *reach, int64_t distance)
{
    kv_ways *const down = &reach->down;
    go_to(down, distance);
    return down->at < down->n ? cost_on(&down->ways[down->at], distance) : KV_OUT_OF_REACH;
}

/* Moves the budgets around a size up to it: below < size <= above, within low and high. */
static void go_between(kv_reach *reach, int64_t size)
{
    const kv_relaxation *const r = reach->relaxation;
    int64_t const at = reach->vertex + size, end = reach->vertex + reach->high + 1;
    reach->above = kv_budgets_first(reach->budgets, r, at, end) - reach->vertex;
    reach->below =
        kv_budgets_last(reach->budgets, r, reach->vertex + reach->low, at) - reach->vertex;
}

int64_t kv_reach_cost(kv_reach *reach, int64_t size)
{
    if (size <= reach->low) return size < reach->low ? cost_up(reach, reach->low - size) : 0;
    if (size >= reach->high) return size > reach->high ? cost_down(reach, size - reach->high) : 0;
    if (!reach->budgets->is_single && reach->budgets->resolution == 0) return 0;
    if (size > reach->above) go_between(reach, size);
    if (size == reach->above) return 0;
    int64_t const up = cost_up(reach, reach->above - size);
    int64_t const down = cost_down(reach, size - reach->below);
    return up < down ? up : down;
}
