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

void kv_reach_build(kv_reach *reach, const kv_move *moves, const int64_t *first_move,
                    int64_t n_active)
{
    reach->up.n = reach->down.n = 0;
    for (int64_t a = 0; a < n_active; a++) {
        int64_t const first = first_move[a], last = first_move[a + 1] - 1;
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
    reach->up.at = reach->up.n - 1, reach->down.at = 0;
}

/* Cost of a distance that ends on way w, or of more than that. */
static int64_t cost_on(const kv_way *w, int64_t distance)
{
    int64_t const on = distance - w->from_size;
    if (on >= w->size) return w->from_cost + w->cost;
    return w->from_cost + (int64_t)((kv_int128)w->slope * on >> w->bits);
}

static int64_t cost_up(kv_reach *reach, int64_t distance)
{
    kv_ways *const up = &reach->up;
    while (up->at >= 0 && up->ways[up->at].from_size >= distance) up->at--;
    int64_t cost = 0, beyond = distance;
    if (up->at >= 0) {
        const kv_way *const w = &up->ways[up->at];
        cost = cost_on(w, distance), beyond -= w->from_size + w->size;
    }
    if (beyond > 0)
        cost += at_most_out_of_reach((kv_int128)reach->slack_slope * beyond >> reach->shift);
    return cost;
}

static int64_t cost_down(kv_reach *reach, int64_t distance)
{
    kv_ways *const down = &reach->down;
    while (down->at < down->n &&
           down->ways[down->at].from_size + down->ways[down->at].size < distance)
        down->at++;
    return down->at < down->n ? cost_on(&down->ways[down->at], distance) : KV_OUT_OF_REACH;
}

int64_t kv_reach_cost(kv_reach *reach, int64_t size)
{
    if (size < reach->low) return cost_up(reach, reach->low - size);
    if (size > reach->high) return cost_down(reach, size - reach->high);
    return 0;
}
