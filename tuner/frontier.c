/* The exact frontier: see frontier.h. Here the method is chosen and the points are finished; the
 * relaxation and the two methods are in the files beside this one (frontier_state.h). */
#include "kernels/memory.h"
#include "tuner/frontier_state.h"

/* Above these the dense program is not the first choice; it takes about a nanosecond an update. */
static const double DENSE_UPDATES = 2e8;
static const int64_t DENSE_BYTES = (int64_t)256 << 20;

int64_t kv_budgets_first(const kv_budgets *budgets, const kv_relaxation *r, int64_t from,
                         int64_t until)
{
    int64_t budget = from;
    if (budgets->is_single)
        budget = budgets->budget >= from ? budgets->budget : until;
    else if (budgets->resolution > 0) {
        int64_t const size = from * r->size_unit, over = size % budgets->resolution;
        if (over > 0) {
            /* the next multiple may lie beyond all sizes */
            int64_t const missing = budgets->resolution - over;
            if (missing > (until - from) * r->size_unit) return -1;
            budget = (size + missing) / r->size_unit;
        }
    }
    return budget < until ? budget : -1;
}

int64_t kv_budgets_last(const kv_budgets *budgets, const kv_relaxation *r, int64_t from,
                        int64_t until)
{
    int64_t budget = until - 1;
    if (budgets->is_single)
        budget = budgets->budget < until ? budgets->budget : -1;
    else if (budgets->resolution > 0) {
        int64_t const size = until * r->size_unit - 1;
        budget = (size - size % budgets->resolution) / r->size_unit;
    }
    return budget >= from ? budget : -1;
}

/* A resolution that gives at most max_points points. */
static int64_t coarse_enough(const kv_relaxation *r, int64_t max_points)
{
    int64_t const range = r->size_range * r->size_unit, gaps = max_points - 1;
    return range / gaps + (range % gaps != 0);
}

static kv_status too_many(const kv_points *points, const kv_relaxation *r, kv_error *err)
{
    if (points->max_points == 1)
        return KV_FAIL(err, KV_EREQUEST,
                       "the frontier has more than 1 point, the most that was asked for");
    return KV_FAIL(err, KV_EREQUEST,
                   "the frontier has more than %lld points, the most that was asked for; a "
                   "resolution of %lld or more keeps within that",
                   (long long)points->max_points, (long long)coarse_enough(r, points->max_points));
}

kv_status kv_points_add(uint16_t **row, kv_points *points, const kv_relaxation *r, int64_t size,
                        int64_t error, kv_error *err)
{
    kv_status status = KV_OK;
    kv_frontier *const f = points->frontier;
    size_t const n = (size_t)f->count, wanted = n + 1;
    if (points->max_points > 0 && f->count >= points->max_points) KV_TRY(too_many(points, r, err));
    KV_TRY(kv_grow((void **)&f->size, &points->capacity_size, n, wanted, sizeof *f->size, err));
    KV_TRY(kv_grow((void **)&f->error, &points->capacity_error, n, wanted, sizeof *f->error, err));
    KV_TRY(kv_grow((void **)&f->option, &points->capacity_option, n, wanted,
                   (size_t)r->n_groups * sizeof *f->option, err));
    f->size[n] = size, f->error[n] = error;
    *row = f->option + n * (size_t)r->n_groups;
    f->count++;
done:
    return status;
}

/* From units to sizes and errors, with bound and multiplier of the relaxation at each size. */
static kv_status finish(kv_frontier *f, const kv_relaxation *r, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)f->count;
    KV_TRY(kv_allocate((void **)&f->lower_bound, n, sizeof *f->lower_bound, err));
    KV_TRY(kv_allocate((void **)&f->multiplier, n, sizeof *f->multiplier, err));
    int64_t step = 0, size = 0, error = r->error_range; /* the vertex at or before the point */
    for (size_t p = 0; p < n; p++) {
        while (step < r->n_steps && size + r->steps[step].size <= f->size[p])
            size += r->steps[step].size, error -= r->steps[step].error, step++;
        int64_t const beyond = f->size[p] - size;
        f->size[p] = r->least_size + f->size[p] * r->size_unit;
        f->error[p] = r->least_error + f->error[p] * r->error_unit;
        f->lower_bound[p] = (double)(r->least_error + error * r->error_unit);
        if (step == r->n_steps) continue;
        int64_t const run = r->steps[step].size, fall = r->steps[step].error;
        kv_int128 const lowered = (kv_int128)fall * beyond; /* over run */
        int64_t const whole = error - (int64_t)(lowered / run);
        double const rest = (double)(int64_t)(lowered % run) / (double)run;
        double const bound =
            (double)(r->least_error + whole * r->error_unit) - rest * (double)r->error_unit;
        f->lower_bound[p] = bound < (double)f->error[p] ? bound : (double)f->error[p];
        f->multiplier[p] =
            ((double)fall * (double)r->error_unit) / ((double)run * (double)r->size_unit);
    }
done:
    return status;
}

static bool is_dense_first(const kv_relaxation *r, const kv_budgets *budgets,
                           kv_frontier_method method)
{
    if (method != KV_METHOD_BEST) return method == KV_METHOD_DENSE;
    return !budgets->is_single && kv_dense_bytes(r) <= DENSE_BYTES &&
           kv_dense_updates(r) <= DENSE_UPDATES;
}

/* Where a search between vertices holds too many partial sums, the dense program may still do. */
static kv_status collect(kv_points *points, const kv_relaxation *r, const kv_budgets *budgets,
                         kv_frontier_method method, int64_t max_states, kv_error *err)
{
    if (is_dense_first(r, budgets, method)) return kv_frontier_dense(points, r, budgets, err);
    kv_error first = {0};
    kv_status const status = kv_frontier_segments(points, r, budgets, max_states, &first);
    if (status == KV_ENOMEM && method == KV_METHOD_BEST && kv_dense_bytes(r) <= DENSE_BYTES) {
        points->frontier->count = 0;
        return kv_frontier_dense(points, r, budgets, err);
    }
    if (status != KV_OK) kv_error_set(err, status, first.file, first.line, "%s", first.message);
    return status;
}

kv_status kv_frontier_solve_by(kv_frontier **out, const kv_knapsack *knapsack,
                               const kv_frontier_options *options, kv_frontier_method method,
                               int64_t max_states, kv_error *err)
{
    kv_status status = KV_OK;
    kv_relaxation r = {0};
    kv_points points = {.max_points = options->max_points};
    if (options->resolution < 0 || options->max_points < 0)
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "resolution %lld, max_points %lld; neither may be negative",
                       (long long)options->resolution, (long long)options->max_points));
    KV_TRY(kv_relaxation_create(&r, knapsack, err));
    KV_TRY(kv_allocate((void **)&points.frontier, 1, sizeof *points.frontier, err));
    points.frontier->n_groups = r.n_groups;
    KV_TRY(collect(&points, &r, &(kv_budgets){.resolution = options->resolution}, method,
                   max_states, err));
    KV_TRY(finish(points.frontier, &r, err));
    *out = points.frontier, points.frontier = NULL;
done:
    kv_frontier_free(points.frontier);
    kv_relaxation_free(&r);
    return status;
}

kv_status kv_frontier_solve(kv_frontier **out, const kv_knapsack *knapsack,
                            const kv_frontier_options *options, kv_error *err)
{
    return kv_frontier_solve_by(out, knapsack, options, KV_METHOD_BEST, KV_SEGMENT_STATES, err);
}

void kv_frontier_free(kv_frontier *frontier)
{
    if (!frontier) return;
    kv_free(frontier->size);
    kv_free(frontier->error);
    kv_free(frontier->lower_bound);
    kv_free(frontier->multiplier);
    kv_free(frontier->option);
    kv_free(frontier);
}

static kv_status within_size(kv_frontier **out, const kv_relaxation *r, int64_t budget,
                             kv_frontier_method method, int64_t max_states, kv_error *err)
{
    kv_status status = KV_OK;
    kv_points points = {0};
    KV_TRY(kv_allocate((void **)&points.frontier, 1, sizeof *points.frontier, err));
    points.frontier->n_groups = r->n_groups;
    if (budget >= r->least_size) {
        kv_budgets single = {.is_single = true, .budget = r->size_range};
        if (budget < r->least_size + r->size_range * r->size_unit)
            single.budget = (budget - r->least_size) / r->size_unit;
        KV_TRY(collect(&points, r, &single, method, max_states, err));
    }
    *out = points.frontier, points.frontier = NULL;
done:
    kv_frontier_free(points.frontier);
    return status;
}

/* The same knapsack with sizes and errors exchanged; its frontier is the same set of points. */
static kv_status exchange(kv_option **options, const kv_option ***lists, const kv_knapsack *k,
                          kv_error *err)
{
    kv_status status = KV_OK;
    int64_t n = 0;
    for (int64_t g = 0; g < k->n_groups; g++) n += k->n_options[g];
    KV_TRY(kv_allocate((void **)options, (size_t)n, sizeof **options, err));
    KV_TRY(kv_allocate((void **)lists, (size_t)k->n_groups, sizeof **lists, err));
    n = 0;
    for (int64_t g = 0; g < k->n_groups; g++) {
        (*lists)[g] = *options + n;
        for (int64_t j = 0; j < k->n_options[g]; j++, n++)
            (*options)[n] = (kv_option){k->options[g][j].error, k->options[g][j].size};
    }
done:
    return status;
}

kv_status kv_knapsack_within_by(kv_frontier **out, const kv_knapsack *knapsack, int64_t budget,
                                bool is_error, kv_frontier_method method, int64_t max_states,
                                kv_error *err)
{
    kv_status status = KV_OK;
    kv_relaxation r = {0}, exchanged = {0};
    kv_frontier *f = NULL;
    kv_option *options = NULL;
    const kv_option **lists = NULL;
    KV_TRY(kv_relaxation_create(&r, knapsack, err)); /* checks the knapsack, too */
    if (!is_error)
        KV_TRY(within_size(&f, &r, budget, method, max_states, err));
    else {
        KV_TRY(exchange(&options, &lists, knapsack, err));
        kv_knapsack const k = {knapsack->n_groups, knapsack->n_options, lists};
        KV_TRY(kv_relaxation_create(&exchanged, &k, err));
        KV_TRY(within_size(&f, &exchanged, budget, method, max_states, err));
        for (int64_t p = 0; p < f->count; p++) {
            int64_t const size = f->error[p];
            f->error[p] = f->size[p], f->size[p] = size;
        }
    }
    KV_TRY(finish(f, &r, err));
    *out = f, f = NULL;
done:
    kv_frontier_free(f);
    kv_relaxation_free(&r);
    kv_relaxation_free(&exchanged);
    kv_free(options);
    kv_free(lists);
    return status;
}

kv_status kv_knapsack_within_size(kv_frontier **out, const kv_knapsack *knapsack, int64_t budget,
                                  kv_error *err)
{
    return kv_knapsack_within_by(out, knapsack, budget, false, KV_METHOD_BEST, KV_SEGMENT_STATES,
                                 err);
}

kv_status kv_knapsack_within_error(kv_frontier **out, const kv_knapsack *knapsack, int64_t budget,
                                   kv_error *err)
{
    return kv_knapsack_within_by(out, knapsack, budget, true, KV_METHOD_BEST, KV_SEGMENT_STATES,
                                 err);
}
