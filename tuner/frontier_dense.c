/* The frontier by a dense dynamic program over sizes (frontier_state.h): least error of the groups
 * from g on at every sum of sizes, for g from the last to the first, and which option gives it.
 * Ties go to the lower option, which makes the assignment read from the first group on the
 * lexicographically first. */
#include "tuner/frontier_dense.h"
#include "kernels/memory.h"
#include "tuner/frontier_state.h"

#define KV_ROW(isa) kv_frontier_group_##isa,
static void (*const add_group[])(const kv_dense_group *) = {KV_ISA_TABLE(KV_ROW)};
#undef KV_ROW

typedef struct {
    const kv_relaxation *relaxation;
    int64_t *before, *after; /* least errors; padded by `margin` on both sides */
    int64_t margin;
    uint16_t *choice;         /* of group g and sum s: choice[offset[g] + s] */
    int64_t *offset;          /* [n_groups] */
    kv_dense_option *options; /* of one group, by index */
} table;

static int64_t round_up(int64_t x)
{
    return (x + KV_DENSE_BLOCK - 1) / KV_DENSE_BLOCK * KV_DENSE_BLOCK;
}

static int64_t group_range(const kv_relaxation *r, int64_t g)
{
    return r->efficient[r->first[g + 1] - 1].size;
}

double kv_dense_updates(const kv_relaxation *r)
{
    double updates = 0, reach = 1;
    for (int64_t g = r->n_groups - 1; g >= 0; g--) {
        reach += (double)group_range(r, g);
        updates += reach * (double)(r->first[g + 1] - r->first[g]);
    }
    return updates;
}

/* Places the groups' rows one after another; returns the elements of all, -1 if too many. */
static int64_t place_rows(const kv_relaxation *r, int64_t *offset)
{
    int64_t n = 0, reach = 0;
    for (int64_t g = r->n_groups - 1; g >= 0; g--) {
        if (offset) offset[g] = n;
        reach += group_range(r, g);
        if (reach > INT64_MAX / 64 || n > INT64_MAX / 64) return -1;
        n += round_up(reach + 1);
    }
    return n;
}

static int64_t widest(const kv_relaxation *r)
{
    int64_t most = 0;
    for (int64_t g = 0; g < r->n_groups; g++)
        if (group_range(r, g) > most) most = group_range(r, g);
    return most;
}

static int64_t line_length(const kv_relaxation *r)
{
    return round_up(widest(r)) + round_up(r->size_range + 1) + round_up(widest(r));
}

int64_t kv_dense_bytes(const kv_relaxation *r)
{
    int64_t const n = place_rows(r, NULL);
    if (n < 0) return INT64_MAX;
    return n * (int64_t)sizeof(uint16_t) + 2 * line_length(r) * (int64_t)sizeof(int64_t);
}

static kv_status create(table *t, const kv_relaxation *r, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t most = 0;
    for (int64_t g = 0; g < r->n_groups; g++)
        if (r->first[g + 1] - r->first[g] > most) most = r->first[g + 1] - r->first[g];
    t->relaxation = r;
    KV_TRY(kv_allocate((void **)&t->offset, (size_t)r->n_groups, sizeof *t->offset, err));
    int64_t const n = place_rows(r, t->offset);
    if (n < 0)
        KV_TRY(KV_FAIL(err, KV_ENOMEM, "out of memory: sizes of %lld different values",
                       (long long)r->size_range));
    t->margin = round_up(widest(r));
    size_t const length = (size_t)line_length(r);
    KV_TRY(kv_allocate3_unset((void **)&t->before, 1, 1, length, sizeof *t->before, err));
    KV_TRY(kv_allocate3_unset((void **)&t->after, 1, 1, length, sizeof *t->after, err));
    KV_TRY(kv_allocate3_unset((void **)&t->choice, 1, 1, (size_t)n, sizeof *t->choice, err));
    KV_TRY(kv_allocate((void **)&t->options, (size_t)most, sizeof *t->options, err));
    for (size_t i = 0; i < length; i++) t->before[i] = t->after[i] = KV_DENSE_NONE;
    t->before[t->margin] = 0;
done:
    return status;
}

static void clear(table *t)
{
    kv_free(t->before);
    kv_free(t->after);
    kv_free(t->choice);
    kv_free(t->offset);
    kv_free(t->options);
}

/* A group's options by their index in the knapsack, so that the first of equal ones wins. */
static int64_t list_options(table *t, int64_t g)
{
    const kv_relaxation *const r = t->relaxation;
    int64_t n = 0;
    for (int64_t i = r->first[g]; i < r->first[g + 1]; i++) {
        kv_dense_option const o = {r->efficient[i].size, r->efficient[i].error, i - r->first[g]};
        int64_t j = n++;
        for (; j > 0 &&
               r->efficient[r->first[g] + t->options[j - 1].rank].option > r->efficient[i].option;
             j--)
            t->options[j] = t->options[j - 1];
        t->options[j] = o;
    }
    return n;
}

static void fill(table *t)
{
    const kv_relaxation *const r = t->relaxation;
    int64_t reach = 0;
    for (int64_t g = r->n_groups - 1; g >= 0; g--) {
        int64_t const n = list_options(t, g);
        reach += group_range(r, g);
        add_group[kv_isa_best()](&(kv_dense_group){.after = t->after + t->margin,
                                                   .choice = t->choice + t->offset[g],
                                                   .before = t->before + t->margin,
                                                   .options = t->options,
                                                   .n_options = n,
                                                   .n_sums = round_up(reach + 1)});
        int64_t *const swap = t->before;
        t->before = t->after, t->after = swap;
    }
}

/* Appends the points; their rows come later, group by group, which reads the table in order. */
static kv_status collect(kv_points *points, const table *t, const kv_budgets *budgets,
                         kv_error *err)
{
    kv_status status = KV_OK;
    const kv_relaxation *const r = t->relaxation;
    const int64_t *const error = t->before + t->margin;
    int64_t const end = r->size_range + 1;
    uint16_t *row;
    for (int64_t s = 0, next; s < end; s = next) {
        for (next = s + 1; next < end && error[next] >= error[s];) next++;
        bool const is_last = next == end && !budgets->is_single;
        if (is_last || kv_budgets_last(budgets, r, s, next) >= 0)
            KV_TRY(kv_points_add(&row, points, r, s, error[s], err));
    }
done:
    return status;
}

static kv_status trace(kv_frontier *f, const table *t, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_relaxation *const r = t->relaxation;
    int64_t *rest = NULL;
    KV_TRY(kv_allocate((void **)&rest, (size_t)f->count, sizeof *rest, err));
    for (int64_t p = 0; p < f->count; p++) rest[p] = f->size[p];
    for (int64_t g = 0; g < r->n_groups; g++) {
        const kv_efficient *const options = r->efficient + r->first[g];
        const uint16_t *const choice = t->choice + t->offset[g];
        for (int64_t p = 0; p < f->count; p++) {
            const kv_efficient *const o = &options[choice[rest[p]]];
            f->option[p * r->n_groups + g] = (uint16_t)o->option;
            rest[p] -= o->size;
        }
    }
done:
    kv_free(rest);
    return status;
}

kv_status kv_frontier_dense(kv_points *points, const kv_relaxation *relaxation,
                            const kv_budgets *budgets, kv_error *err)
{
    kv_status status = KV_OK;
    table t = {0};
    KV_TRY(create(&t, relaxation, err));
    fill(&t);
    KV_TRY(collect(points, &t, budgets, err));
    KV_TRY(trace(points->frontier, &t, err));
done:
    clear(&t);
    return status;
}
