/* The frontier between neighbouring vertices of the LP relaxation (frontier_state.h).
 *
 * At a vertex every group stands at an option of its hull. A choice's reduced cost is what its
 * error lies above the line through the vertex and the next one; costs of groups add up, and the
 * points of the segment are those of least total cost. So partial sums are kept, group after group,
 * only while their cost, with what they must still cost to come to a budget asked for
 * (frontier_reach.h), is at most tau. tau grows until it reaches the cost of the corner (budget,
 * error found within it) of every budget asked for: all that is as good or better costs no more and
 * would have been found. Of partial sums with equal size and error the lexicographically
 * first assignment stays, found by tracing both back.
 *
 * Groups that can change the size most are added first where few budgets are asked for: then the
 * rest can hardly make up for what is off the mark. For the whole frontier they come last, which
 * keeps lists short for longer.
 *
 * Costs are exact multiples of 1 / step.size, shifted down to 60 bits where they are longer. The
 * shift rounds each down, so that a sum of costs is never above the shifted true sum: rounding
 * keeps more partial sums, never fewer, and the certificate compares the true sum. */
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "tuner/frontier_reach.h"

/* tau starts at this part of a segment's largest cost and grows by this factor. */
enum { FIRST_TAU = 256, TAU_GROWTH = 2 };

/* A sum, and where it came from: its index in the list before, and the option added to that. */
typedef struct {
    int64_t size, error, cost;
    uint32_t parent;
    uint16_t option;
} partial_sum;

/* What stays of it for tracing back. */
typedef struct {
    uint32_t parent;
    uint16_t option;
} origin;

typedef struct {
    partial_sum *sums;
    size_t capacity;
} sums;

typedef struct {
    const kv_relaxation *relaxation;
    const kv_budgets *budgets;
    int64_t *hull_at; /* [n_groups] index into relaxation->hull of the vertex */
    int64_t size, error;
    kv_hull_step step; /* to the next vertex */
    int shift;
    kv_reach reach; /* low and high: the first and the last budget asked for, from the vertex */
    int64_t n_active;
    kv_active *active; /* [n_groups] those with more than one move, in the order they are added */
    kv_move *moves;
    int64_t *most; /* [n_groups + 1] size that active groups from a on can add */
    sums list, work, spare;
    size_t n;        /* of list */
    origin *origins; /* of the list after active group a: [first_origin[a], ...) */
    size_t *first_origin, n_origins, origins_capacity, max_states;
} search;

static kv_status create(search *s, const kv_relaxation *r, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)r->n_groups + 1;
    KV_TRY(kv_allocate((void **)&s->hull_at, n, sizeof *s->hull_at, err));
    KV_TRY(kv_allocate((void **)&s->active, n, sizeof *s->active, err));
    KV_TRY(kv_allocate3_unset((void **)&s->moves, 1, 1, (size_t)r->first[r->n_groups],
                              sizeof *s->moves, err));
    KV_TRY(kv_allocate((void **)&s->most, n, sizeof *s->most, err));
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
    kv_free(s->most);
    kv_free(s->list.sums);
    kv_free(s->work.sums);
    kv_free(s->spare.sums);
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
    s->reach.vertex = s->size, s->reach.relaxation = s->relaxation;
    s->reach.budgets = s->budgets;
    return true;
}

static int narrow_first(const void *a, const void *b)
{
    const kv_active *const x = a, *const y = b;
    if (x->span != y->span) return x->span < y->span ? -1 : 1;
    return x->group < y->group ? 1 : -1;
}

static int wide_first(const void *a, const void *b)
{
    return narrow_first(b, a);
}

/* The moves that cost at most tau; groups with one move stay where they are. */
static void admit(search *s, int64_t tau)
{
    const kv_relaxation *const r = s->relaxation;
    bool const is_whole = !s->budgets->is_single && s->budgets->resolution == 0;
    int64_t n = 0;
    s->n_active = 0;
    for (int64_t g = 0; g < r->n_groups; g++) {
        kv_efficient const at = r->efficient[r->hull[s->hull_at[g]]];
        int64_t const from = n;
        for (int64_t i = r->first[g]; i < r->first[g + 1]; i++) {
            const kv_efficient *const o = &r->efficient[i];
            int64_t const size = o->size - at.size, error = o->error - at.error;
            kv_int128 const cost =
                ((kv_int128)error * s->step.size + (kv_int128)size * s->step.error) >> s->shift;
            if (cost <= tau) s->moves[n++] = (kv_move){size, error, (int64_t)cost, o->option};
        }
        if (n > from + 1)
            s->active[s->n_active++] =
                (kv_active){g, from, n, s->moves[n - 1].size - s->moves[from].size};
        else
            n = from;
    }
    qsort(s->active, (size_t)s->n_active, sizeof *s->active, is_whole ? narrow_first : wide_first);
    s->most[s->n_active] = 0;
    for (int64_t a = s->n_active - 1; a >= 0; a--)
        s->most[a] = s->most[a + 1] + s->moves[s->active[a].to - 1].size;
}

static kv_status make_room(sums *to, size_t n, size_t wanted, kv_error *err)
{
    if (wanted <= to->capacity) return KV_OK;
    return kv_grow((void **)&to->sums, &to->capacity, n, wanted, sizeof *to->sums, err);
}

static kv_status check_number(const search *s, size_t n, kv_error *err)
{
    if (n <= s->max_states) return KV_OK;
    return KV_FAIL(err, KV_ENOMEM,
                   "exact search holds more than %zu partial sums between two vertices of the "
                   "relaxation; sizes or errors of fewer digits would make it shorter",
                   s->max_states);
}

/* Every sum of the list plus one move, without those that with the groups that follow come to no
 * budget at a cost of at most tau; returns how many there are. */
static size_t add_move(search *s, const kv_move *move, int64_t most, int64_t tau, partial_sum *out)
{
    size_t n = 0;
    kv_reach_restart(&s->reach);
    for (size_t i = 0; i < s->n; i++) {
        const partial_sum *const p = &s->list.sums[i];
        int64_t const size = p->size + move->size, cost = p->cost + move->cost;
        if (cost > tau || size + most < 0 || cost + kv_reach_cost(&s->reach, size) > tau) continue;
        out[n++] =
            (partial_sum){size, p->error + move->error, cost, (uint32_t)i, (uint16_t)move->option};
    }
    return n;
}

/* Of two sums after active group `level`, equal in size and error: is x's assignment before y's? It
 * is decided in the first group in which they differ. */
static bool is_before(const search *s, int64_t level, const partial_sum *x, const partial_sum *y)
{
    origin from_x = {x->parent, x->option}, from_y = {y->parent, y->option};
    int64_t first = INT64_MAX;
    bool is_x = false;
    for (;; level--) {
        if (from_x.option != from_y.option && s->active[level].group < first)
            first = s->active[level].group, is_x = from_x.option < from_y.option;
        if (from_x.parent == from_y.parent) return is_x;
        const origin *const before = s->origins + s->first_origin[level - 1];
        from_x = before[from_x.parent], from_y = before[from_y.parent];
    }
}

/* Merges sums a and b, each by rising size and falling error, and drops what is dominated; of equal
 * ones the first assignment stays. `out` may be n_a sums before b. Returns how many stay. The loop
 * does not branch on the order of sizes, which is as good as random. */
static size_t merge(const search *s, int64_t level, partial_sum *out, const partial_sum *a,
                    size_t n_a, const partial_sum *b, size_t n_b)
{
    const partial_sum *const a_end = a + n_a, *const b_end = b + n_b;
    int64_t best = INT64_MAX;
    size_t n = 0;
    while (a < a_end && b < b_end) {
        bool is_b = b->size < a->size;
        if (b->size == a->size)
            is_b = b->error < a->error || (b->error == a->error && is_before(s, level, b, a));
        partial_sum const x = *(is_b ? b : a);
        a += !is_b, b += is_b;
        out[n] = x;
        bool const is_kept = x.error < best;
        n += is_kept;
        best = is_kept ? x.error : best;
    }
    for (; a < a_end; a++)
        if (a->error < best) best = a->error, out[n++] = *a;
    for (; b < b_end; b++)
        if (b->error < best) best = b->error, out[n++] = *b;
    return n;
}

/* Merges the last two runs of s->work, which start at from[0] and from[1] and end at from[2]. */
static kv_status merge_runs(search *s, int64_t level, size_t *from, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = from[1] - from[0];
    KV_TRY(make_room(&s->spare, 0, n + 1, err));
    if (n) memcpy(s->spare.sums, s->work.sums + from[0], n * sizeof *s->spare.sums);
    from[1] = from[0] + merge(s, level, s->work.sums + from[0], s->spare.sums, n,
                              s->work.sums + from[1], from[2] - from[1]);
done:
    return status;
}

/* Adds the moves of an active group to every sum of the list. Runs of one move each are merged like
 * the digits of a binary counter, so that little more is held than stays. */
static kv_status add_group(search *s, int64_t a, int64_t tau, kv_error *err)
{
    kv_status status = KV_OK;
    enum { MAX_RUNS = 20 };
    size_t from[MAX_RUNS + 1] = {0};
    int n_runs = 0;
    kv_reach_added(&s->reach, a);
    for (int64_t m = s->active[a].from; m < s->active[a].to; m++) {
        size_t const used = from[n_runs];
        KV_TRY(make_room(&s->work, used, used + s->n, err));
        from[n_runs + 1] =
            used + add_move(s, &s->moves[m], s->most[a + 1], tau, s->work.sums + used);
        n_runs++;
        for (int64_t digit = m + 1 - s->active[a].from; digit % 2 == 0; digit /= 2, n_runs--)
            KV_TRY(merge_runs(s, a, from + n_runs - 2, err));
        KV_TRY(check_number(s, from[n_runs], err));
    }
    for (; n_runs > 1; n_runs--) KV_TRY(merge_runs(s, a, from + n_runs - 2, err));
    s->n = from[1];
    KV_TRY(check_number(s, s->n_origins + s->n, err));
    KV_TRY(kv_grow((void **)&s->origins, &s->origins_capacity, s->n_origins, s->n_origins + s->n,
                   sizeof *s->origins, err));
    for (size_t i = 0; i < s->n; i++)
        s->origins[s->n_origins + i] = (origin){s->work.sums[i].parent, s->work.sums[i].option};
    s->first_origin[a] = s->n_origins, s->n_origins += s->n;
    sums const list = s->list;
    s->list = s->work, s->work = list;
done:
    return status;
}

/* All undominated sums that come to a budget at a cost of at most tau, in s->list. */
static kv_status search_below(search *s, int64_t tau, kv_error *err)
{
    kv_status status = KV_OK;
    admit(s, tau);
    kv_reach_build(&s->reach, s->moves, s->active, s->n_active);
    KV_TRY(make_room(&s->list, 0, 1, err));
    s->list.sums[0] = (partial_sum){0};
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
    return last_budget(s, s->list.sums[i].size,
                       i + 1 < s->n ? s->list.sums[i + 1].size : s->step.size);
}

/* The tau above which nothing asked for can be missing: nothing as good as what was found. */
static int64_t needed(const search *s)
{
    /* Before the first sum there is the vertex. */
    int64_t const first = last_budget(s, 0, s->n ? s->list.sums[0].size : s->step.size);
    int64_t tau = first < 0 ? 0 : cost_of(s, first, 0);
    for (size_t i = 0; i < s->n; i++) {
        int64_t const budget = own_budget(s, i);
        if (budget < 0) continue;
        int64_t const corner = cost_of(s, budget, s->list.sums[i].error);
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
        row[s->active[a].group] = o.option;
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
        KV_TRY(kv_points_add(&row, points, s->relaxation, s->size + s->list.sums[i].size,
                             s->error + s->list.sums[i].error, err));
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
