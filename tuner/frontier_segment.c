/* The frontier between neighbouring vertices of the LP relaxation (frontier_state.h).
 *
 * At a vertex every group stands at an option of its hull. A choice's reduced cost is what its
 * error lies above the line through the vertex and the next one; costs of groups add up, and the
 * points of the segment are those of least total cost. So partial sums are kept, from the last
 * group to the first, only while their cost, with what they must still cost to come to a budget
 * asked for (frontier_reach.h), is at most tau. tau grows until it reaches the cost of the corner
 * (budget, error found within it) of every budget asked for: all that is as good or better costs no
 * more and would have been found. Of partial sums with equal size and error the one with the lower
 * option stays, so that the assignment is the lexicographically first.
 *
 * Costs are exact multiples of 1 / step.size, shifted down to 60 bits where they are longer. The
 * shift rounds each down, so that a sum of costs is never above the shifted true sum: rounding
 * keeps more partial sums, never fewer, and the certificate compares the true sum. */
#include <string.h>

#include "kernels/memory.h"
#include "tuner/frontier_reach.h"

/* tau starts at this part of a segment's largest cost and grows by this factor. */
enum { FIRST_TAU = 256, TAU_GROWTH = 2 };

typedef struct {
    int64_t size, error, cost;
} partial_sum;

/* Where a partial sum came from: index in the list before, and which move was added. */
typedef struct {
    uint32_t parent;
    uint16_t move;
} origin;

/* One list plus one move, while lists are merged: its first sum not yet taken. */
typedef struct {
    int64_t size, error;
    size_t at;
    int64_t move;
} stream;

typedef struct {
    const kv_relaxation *relaxation;
    const kv_budgets *budgets;
    int64_t *hull_at; /* [n_groups] index into relaxation->hull of the vertex */
    int64_t size, error;
    kv_hull_step step; /* to the next vertex */
    int shift;
    kv_reach reach; /* low and high: the first and the last budget asked for, from the vertex */
    /* Groups with more than one move, from the last to the first. */
    int64_t n_active, *active; /* [n_groups] */
    kv_move *moves;            /* of active group a: [first_move[a], first_move[a + 1]) */
    int64_t *first_move;       /* [n_groups + 1] */
    int64_t *most;             /* [n_groups + 1] size that active groups from a on can add */
    stream *heap;              /* [most options of a group] */
    partial_sum *list, *next;
    size_t n, list_capacity, next_capacity;
    origin *origins; /* of the list after active group a: [first_origin[a], ...) */
    size_t *first_origin, n_origins, origins_capacity, max_states;
} search;

static kv_status create(search *s, const kv_relaxation *r, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)r->n_groups + 1;
    int64_t largest = 0;
    for (int64_t g = 0; g < r->n_groups; g++)
        if (r->first[g + 1] - r->first[g] > largest) largest = r->first[g + 1] - r->first[g];
    KV_TRY(kv_allocate((void **)&s->hull_at, n, sizeof *s->hull_at, err));
    KV_TRY(kv_allocate((void **)&s->active, n, sizeof *s->active, err));
    KV_TRY(kv_allocate3_unset((void **)&s->moves, 1, 1, (size_t)r->first[r->n_groups],
                              sizeof *s->moves, err));
    KV_TRY(kv_allocate((void **)&s->first_move, n, sizeof *s->first_move, err));
    KV_TRY(kv_allocate((void **)&s->most, n, sizeof *s->most, err));
    KV_TRY(kv_allocate((void **)&s->heap, (size_t)largest, sizeof *s->heap, err));
    KV_TRY(kv_allocate((void **)&s->first_origin, n, sizeof *s->first_origin, err));
    KV_TRY(kv_reach_create(&s->reach, r->first[r->n_groups], err));
    for (int64_t g = 0; g < r->n_groups; g++) s->hull_at[g] = r->hull_first[g];
    s->relaxation = r, s->error = r->error_range;
done:
    return status;
}

static void clear(search *s)
{
    kv_reach_free(&s->reach);
    kv_free(s->hull_at);
    kv_free(s->active);
    kv_free(s->moves);
    kv_free(s->first_move);
    kv_free(s->most);
    kv_free(s->heap);
    kv_free(s->list);
    kv_free(s->next);
    kv_free(s->origins);
    kv_free(s->first_origin);
}

/* Cost of a sum relative to the vertex; what lies beneath the line has none. */
static int64_t cost_of(const search *s, int64_t size, int64_t error)
{
    kv_int128 const cost = (kv_int128)error * s->step.size + (kv_int128)size * s->step.error;
    return cost < 0 ? 0 : (int64_t)(cost >> s->shift);
}

/* Prepares the search from the vertex along the next step; false where no budget asks for it. */
static bool enter(search *s)
{
    int64_t const until = s->size + s->step.size;
    int64_t const last = kv_budgets_last(s->budgets, s->relaxation, s->size, until);
    if (last < 0) return false;
    int64_t const first = kv_budgets_first(s->budgets, s->relaxation, s->size, until);
    kv_int128 const largest = (kv_int128)s->step.size * s->step.error;
    for (s->shift = 0; largest >> s->shift >= (kv_int128)1 << KV_COST_BITS;) s->shift++;
    s->reach.low = first - s->size, s->reach.high = last - s->size;
    s->reach.slack_slope = s->step.error, s->reach.shift = s->shift;
    return true;
}

/* The moves that cost at most tau; groups with one move stay where they are. */
static void admit(search *s, int64_t tau)
{
    const kv_relaxation *const r = s->relaxation;
    int64_t n = 0;
    s->n_active = 0;
    for (int64_t g = r->n_groups - 1; g >= 0; g--) {
        kv_efficient const at = r->efficient[r->hull[s->hull_at[g]]];
        int64_t const from = n;
        for (int64_t i = r->first[g]; i < r->first[g + 1]; i++) {
            const kv_efficient *const o = &r->efficient[i];
            int64_t const size = o->size - at.size, error = o->error - at.error;
            kv_int128 const cost =
                ((kv_int128)error * s->step.size + (kv_int128)size * s->step.error) >> s->shift;
            if (cost <= tau) s->moves[n++] = (kv_move){size, error, (int64_t)cost, o->option};
        }
        if (n == from + 1)
            n = from;
        else {
            s->active[s->n_active] = g;
            s->first_move[s->n_active++] = from;
        }
    }
    s->first_move[s->n_active] = n;
    s->most[s->n_active] = 0;
    for (int64_t a = s->n_active - 1; a >= 0; a--) /* moves are by rising size */
        s->most[a] = s->most[a + 1] + s->moves[s->first_move[a + 1] - 1].size;
}

static bool is_before(const search *s, const stream *a, const stream *b)
{
    if (a->size != b->size) return a->size < b->size;
    if (a->error != b->error) return a->error < b->error;
    return s->moves[a->move].option < s->moves[b->move].option;
}

static void sink(const search *s, int64_t n, int64_t i)
{
    stream const x = s->heap[i];
    for (int64_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && is_before(s, &s->heap[child + 1], &s->heap[child])) child++;
        if (!is_before(s, &s->heap[child], &x)) break;
        s->heap[i] = s->heap[child], i = child;
    }
    s->heap[i] = x;
}

/* Moves a stream to the first sum from `at` on that is not too costly; false at its end. */
static bool advance(const search *s, stream *x, int64_t tau)
{
    const kv_move *const m = &s->moves[x->move];
    while (x->at < s->n && s->list[x->at].cost + m->cost > tau) x->at++;
    if (x->at == s->n) return false;
    x->size = s->list[x->at].size + m->size;
    x->error = s->list[x->at].error + m->error;
    return true;
}

static kv_status make_room(search *s, size_t wanted, kv_error *err)
{
    if (wanted > s->max_states)
        return KV_FAIL(err, KV_ENOMEM,
                       "exact search holds more than %zu partial sums between two vertices of the "
                       "relaxation; sizes or errors of fewer digits would make it shorter",
                       s->max_states);
    kv_status status = KV_OK;
    size_t const n = wanted - s->n_origins;
    KV_TRY(kv_grow((void **)&s->next, &s->next_capacity, n - 1, n, sizeof *s->next, err));
    KV_TRY(kv_grow((void **)&s->origins, &s->origins_capacity, wanted - 1, wanted,
                   sizeof *s->origins, err));
done:
    return status;
}

/* Adds the moves of an active group to every sum of the list; what is dominated, or with the groups
 * that follow comes to no budget at a cost of at most tau, is left out. */
static kv_status add_group(search *s, int64_t a, int64_t tau, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t n_streams = 0, best = INT64_MAX;
    size_t n = 0;
    kv_reach_added(&s->reach, a);
    for (int64_t m = s->first_move[a]; m < s->first_move[a + 1]; m++) {
        s->heap[n_streams] = (stream){.move = m};
        n_streams += advance(s, &s->heap[n_streams], tau);
    }
    for (int64_t i = n_streams / 2 - 1; i >= 0; i--) sink(s, n_streams, i);
    while (n_streams) {
        stream *const first = &s->heap[0];
        if (first->error < best && first->size + s->most[a + 1] >= 0) {
            best = first->error;
            int64_t const cost = s->list[first->at].cost + s->moves[first->move].cost;
            if (cost + kv_reach_cost(&s->reach, first->size) <= tau) {
                if (n == s->next_capacity || s->n_origins + n == s->origins_capacity)
                    KV_TRY(make_room(s, s->n_origins + n + 1, err));
                s->next[n] = (partial_sum){first->size, first->error, cost};
                s->origins[s->n_origins + n++] =
                    (origin){(uint32_t)first->at, (uint16_t)(first->move - s->first_move[a])};
            }
        }
        first->at++;
        if (!advance(s, first, tau)) s->heap[0] = s->heap[--n_streams];
        sink(s, n_streams, 0);
    }
    s->first_origin[a] = s->n_origins, s->n_origins += n, s->n = n;
    partial_sum *const list = s->list;
    size_t const capacity = s->list_capacity;
    s->list = s->next, s->list_capacity = s->next_capacity;
    s->next = list, s->next_capacity = capacity;
done:
    return status;
}

/* All undominated sums that come to a budget at a cost of at most tau, in s->list. */
static kv_status search_below(search *s, int64_t tau, kv_error *err)
{
    kv_status status = KV_OK;
    admit(s, tau);
    kv_reach_build(&s->reach, s->moves, s->first_move, s->n_active);
    KV_TRY(kv_grow((void **)&s->list, &s->list_capacity, 0, 1, sizeof *s->list, err));
    s->list[0] = (partial_sum){0};
    s->n = 1, s->n_origins = 0;
    for (int64_t a = 0; a < s->n_active; a++) KV_TRY(add_group(s, a, tau, err));
done:
    return status;
}

/* The last budget asked for in [from, until), all relative to the vertex; -1 for none. */
static int64_t last_budget(const search *s, int64_t from, int64_t until)
{
    int64_t const last =
        kv_budgets_last(s->budgets, s->relaxation, s->size + from, s->size + until);
    return last < 0 ? -1 : last - s->size;
}

/* The last budget for which sum i is the best of the list; -1 for none. */
static int64_t own_budget(const search *s, size_t i)
{
    return last_budget(s, s->list[i].size, i + 1 < s->n ? s->list[i + 1].size : s->step.size);
}

/* The tau above which nothing asked for can be missing: nothing as good as what was found. */
static int64_t needed(const search *s)
{
    /* Before the first sum there is the vertex. */
    int64_t const first = last_budget(s, 0, s->n ? s->list[0].size : s->step.size);
    int64_t tau = first < 0 ? 0 : cost_of(s, first, 0);
    for (size_t i = 0; i < s->n; i++) {
        int64_t const budget = own_budget(s, i);
        if (budget < 0) continue;
        int64_t const corner = cost_of(s, budget, s->list[i].error);
        if (corner > tau) tau = corner;
    }
    return tau;
}

/* Writes the options of sum i: those of the vertex, and along its origins those of the moves. */
static void trace(const search *s, size_t i, uint16_t *row)
{
    const kv_relaxation *const r = s->relaxation;
    for (int64_t g = 0; g < r->n_groups; g++)
        row[g] = (uint16_t)r->efficient[r->hull[s->hull_at[g]]].option;
    for (int64_t a = s->n_active - 1; a >= 0; a--) {
        origin const o = s->origins[s->first_origin[a] + i];
        row[s->active[a]] = (uint16_t)s->moves[s->first_move[a] + o.move].option;
        i = o.parent;
    }
}

static kv_status solve_segment(search *s, kv_points *points, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const guess = cost_of(s, s->step.size, 0) / FIRST_TAU;
    int64_t const largest = cost_of(s, s->reach.high, 0); /* the vertex itself is a point */
    for (int64_t tau = guess < largest ? guess : largest;;) {
        KV_TRY(search_below(s, tau, err));
        int64_t const wanted = needed(s);
        if (wanted <= tau) break;
        tau = wanted / TAU_GROWTH < tau ? wanted : TAU_GROWTH * tau + 1;
    }
    for (size_t i = 0; i < s->n; i++) {
        uint16_t *row;
        if (own_budget(s, i) < 0) continue;
        KV_TRY(kv_points_add(&row, points, s->relaxation, s->size + s->list[i].size,
                             s->error + s->list[i].error, err));
        trace(s, i, row);
    }
done:
    return status;
}

kv_status kv_frontier_segments(kv_points *points, const kv_relaxation *relaxation,
                               const kv_budgets *budgets, int64_t max_states, kv_error *err)
{
    kv_status status = KV_OK;
    search s = {.budgets = budgets, .max_states = (size_t)max_states};
    KV_TRY(create(&s, relaxation, err));
    for (int64_t q = 0; q < relaxation->n_steps; q++) {
        s.step = relaxation->steps[q];
        if (enter(&s)) KV_TRY(solve_segment(&s, points, err));
        s.size += s.step.size, s.error -= s.step.error;
        s.hull_at[s.step.group]++;
        if (budgets->is_single && budgets->budget < s.size) break;
    }
    if (!budgets->is_single || budgets->budget >= s.size) {
        uint16_t *row;
        s.n_active = 0;
        KV_TRY(kv_points_add(&row, points, relaxation, s.size, s.error, err));
        trace(&s, 0, row);
    }
done:
    clear(&s);
    return status;
}
