/* Outcomes without measuring: see solution.h. */
#include "tuner/solution.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/text.h"
#include "tuner/outcome_parts.h"

static const double slack = 1e-12; /* relative; far above rounding, far below any measurement */

/* ---- budgets ---- */

bool kv_budget_is_on_error(kv_budget_kind kind)
{
    return kind == KV_BUDGET_ERROR || kind == KV_BUDGET_MATCH;
}

double kv_outcome_error(const kv_outcome *outcome, double power)
{
    return outcome->is_power ? power : sqrt(power);
}

int64_t kv_outcome_elements(const kv_outcome *o)
{
    int64_t elements = 0;
    if (!o->kv_heads || !o->head_dims || o->context <= 0)
        return o->elements_per_token * (o->context > 0 ? o->context : 1);
    for (int64_t i = 0; i < o->problem->n_layers; i++) {
        bool const is_windowed = o->windows && o->windows[i] > 0 && o->windows[i] < o->context;
        int64_t const tokens = is_windowed ? o->windows[i] : o->context;
        elements += 2 * o->kv_heads[i] * o->head_dims[i] * tokens;
    }
    return elements;
}

double kv_solution_limit(const kv_outcome *o)
{
    double const limit = o->budget.limit;
    switch (o->budget.kind) {
    case KV_BUDGET_BYTES: return limit;
    case KV_BUDGET_BYTES_PER_TOKEN: return o->context > 0 ? limit * (double)o->context : limit;
    case KV_BUDGET_BITS: return limit / 8 * (double)kv_outcome_elements(o);
    default: return o->is_power ? limit : limit * limit;
    }
}

/* floor(x), within what int64_t holds. */
static int64_t whole(double x)
{
    if (!(x > -0x1p62)) return -(INT64_C(1) << 62);
    return x < 0x1p62 ? (int64_t)floor(x) : INT64_C(1) << 62;
}

/* ---- candidates ---- */

static void free_candidate(kv_candidate *c)
{
    kv_free(c->name), kv_free(c->family), kv_free(c->assignment);
    *c = (kv_candidate){0};
}

static kv_status make_candidate(kv_candidate *out, const kv_problem *problem, const char *name,
                                const char *family, const int32_t *assignment, kv_error *err)
{
    kv_status status = KV_OK;
    double const none = (double)NAN;
    size_t const L = (size_t)problem->n_layers;
    kv_candidate c = {.bytes = kv_problem_bytes(problem, assignment),
                      .additive = kv_problem_error(problem, assignment),
                      .verified = none,
                      .held_out = none,
                      .held_out_low = none,
                      .held_out_high = none};
    KV_TRY(kv_duplicate(&c.name, name, err));
    KV_TRY(kv_duplicate(&c.family, family, err));
    KV_TRY(kv_allocate((void **)&c.assignment, L, sizeof *c.assignment, err));
    memcpy(c.assignment, assignment, L * sizeof *assignment);
    *out = c, c = (kv_candidate){0};
done:
    free_candidate(&c);
    return status;
}

kv_status kv_solution_add(kv_solution *solution, const char *name, const char *family,
                          const int32_t *assignment, kv_error *err)
{
    kv_status status = KV_OK;
    kv_outcome *const o = &solution->outcome;
    kv_candidate c = {0};
    void *list = o->candidates;
    size_t const n = (size_t)o->n_candidates;
    size_t capacity = n > 0;
    while (capacity < n) capacity *= 2;
    KV_TRY(make_candidate(&c, o->problem, name, family, assignment, err));
    KV_TRY(kv_grow(&list, &capacity, n, n + 1, sizeof c, err));
    o->candidates = list;
    o->candidates[o->n_candidates++] = c, c = (kv_candidate){0};
done:
    free_candidate(&c);
    return status;
}

static kv_status add_uniforms(kv_solution *solution, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_problem *const p = solution->outcome.problem;
    int64_t const layer = kv_problem_free_layer(p);
    int32_t *uniform = NULL;
    int64_t n = 0;
    kv_text name = {0};
    KV_TRY(kv_problem_uniform(&uniform, &n, p, err));
    for (int64_t i = 0; i < n; i++) {
        const int32_t *const row = uniform + i * p->n_layers;
        const kv_choice *const c = &p->layers[layer].choices[row[layer]];
        name.length = 0;
        KV_TRY(kv_text_add(&name, err, "uniform %s | %s", p->keys.schemes[c->key],
                           p->values.schemes[c->value]));
        KV_TRY(kv_solution_add(solution, name.data, "uniform", row, err));
    }
done:
    kv_free(uniform);
    kv_text_free(&name);
    return status;
}

/* ---- the policy ---- */

/* The frontier with a point that a resolution left out; *at is where it stands. */
static kv_status insert_point(int64_t *at, kv_solution *solution, const kv_frontier *one,
                              kv_error *err)
{
    kv_status status = KV_OK;
    const kv_frontier *const old = solution->outcome.frontier;
    kv_frontier *grown = NULL;
    int64_t i = 0;
    while (i < old->count && old->size[i] < one->size[0]) i++;
    *at = i;
    if (i < old->count && old->size[i] == one->size[0]) return KV_OK;
    size_t const n = (size_t)old->count + 1, groups = (size_t)old->n_groups;
    KV_TRY(kv_allocate((void **)&grown, 1, sizeof *grown, err));
    grown->count = old->count + 1, grown->n_groups = old->n_groups;
    KV_TRY(kv_allocate((void **)&grown->size, n, sizeof *grown->size, err));
    KV_TRY(kv_allocate((void **)&grown->error, n, sizeof *grown->error, err));
    KV_TRY(kv_allocate((void **)&grown->lower_bound, n, sizeof *grown->lower_bound, err));
    KV_TRY(kv_allocate((void **)&grown->multiplier, n, sizeof *grown->multiplier, err));
    KV_TRY(kv_allocate3((void **)&grown->option, n, groups, 1, sizeof *grown->option, err));
    for (int64_t p = 0; p < grown->count; p++) {
        const kv_frontier *const from = p == i ? one : old;
        int64_t const k = p == i ? 0 : p - (p > i);
        grown->size[p] = from->size[k], grown->error[p] = from->error[k];
        grown->lower_bound[p] = from->lower_bound[k], grown->multiplier[p] = from->multiplier[k];
        memcpy(grown->option + p * old->n_groups, from->option + k * old->n_groups,
               groups * sizeof *grown->option);
    }
    kv_frontier_free(solution->outcome.frontier);
    solution->outcome.frontier = grown, grown = NULL;
done:
    kv_frontier_free(grown);
    return status;
}

/* A limit for the solver and for the exact check behind it: the solver's errors are rounded, half a
 * unit a layer. */
typedef struct {
    bool is_on_error;
    int64_t integer, loose;
    double power;
} bound;

static bound make_bound(const kv_outcome *o, double limit)
{
    bool const is_on_error = kv_budget_is_on_error(o->budget.kind);
    double const most = o->budget.kind == KV_BUDGET_BYTES ? limit : limit * (1 + slack);
    int64_t const integer = whole(is_on_error ? most / o->unit : most);
    return (bound){is_on_error, integer, integer + o->problem->n_layers / 2 + 1, most};
}

int64_t kv_solution_byte_limit(const kv_outcome *outcome)
{
    return make_bound(outcome, kv_solution_limit(outcome)).integer;
}

/* The exact point within the limit, which the frontier may lack where a resolution thins it; where
 * none is within, the nearest. */
static kv_status complete_frontier(kv_solution *solution, const bound *b, kv_error *err)
{
    kv_status status = KV_OK;
    kv_frontier *one = NULL;
    int64_t at;
    const kv_knapsack *const knapsack = &solution->integers.knapsack;
    const kv_problem *const problem = solution->outcome.problem;
    if (solution->outcome.resolution == 0) return KV_OK;
    KV_TRY(b->is_on_error ? kv_knapsack_within_error(&one, knapsack, b->loose, err)
                          : kv_knapsack_within_size(&one, knapsack, b->integer, err));
    if (b->is_on_error && one->count && kv_point_power(problem, one, 0) > b->power) {
        kv_frontier_free(one), one = NULL;
        KV_TRY(kv_knapsack_within_error(&one, knapsack, b->integer, err));
    }
    if (b->is_on_error && one->count == 0) {
        kv_frontier_free(one), one = NULL;
        KV_TRY(kv_knapsack_within_size(&one, knapsack, INT64_C(1) << 61, err));
    }
    if (one->count) KV_TRY(insert_point(&at, solution, one, err));
done:
    kv_frontier_free(one);
    return status;
}

/* The frontier's point within the limit, -1 for none. */
static int64_t find_point(const kv_outcome *o, const bound *b)
{
    const kv_frontier *const f = o->frontier;
    for (int64_t i = 0; b->is_on_error && i < f->count; i++)
        if (f->error[i] <= b->loose && kv_point_power(o->problem, f, i) <= b->power) return i;
    for (int64_t i = f->count - 1; !b->is_on_error && i >= 0; i--)
        if (f->size[i] <= b->integer) return i;
    return -1;
}

kv_status kv_solution_set_policy(kv_solution *solution, const int32_t *assignment, kv_error *err)
{
    kv_candidate c = {0};
    kv_outcome *const o = &solution->outcome;
    kv_status const status = make_candidate(&c, o->problem, "policy", "policy", assignment, err);
    if (status != KV_OK) return status;
    free_candidate(&o->policy);
    o->policy = c;
    return KV_OK;
}

kv_status kv_solution_pick(kv_solution *solution, double limit, kv_error *err)
{
    kv_status status = KV_OK;
    kv_outcome *const o = &solution->outcome;
    int32_t *assignment = NULL;
    bound const b = make_bound(o, limit);
    KV_TRY(complete_frontier(solution, &b, err));
    const kv_frontier *const f = o->frontier;
    int64_t const found = find_point(o, &b);
    int64_t const point = found >= 0 ? found : b.is_on_error ? f->count - 1 : 0;
    KV_TRY(kv_allocate((void **)&assignment, (size_t)f->n_groups, sizeof *assignment, err));
    for (int64_t i = 0; i < f->n_groups; i++) assignment[i] = f->option[point * f->n_groups + i];
    KV_TRY(kv_solution_set_policy(solution, assignment, err));
    o->point = point;
    o->is_feasible = o->is_budget_met = found >= 0;
done:
    kv_free(assignment);
    return status;
}

/* ---- making ---- */

static kv_status check_request(const kv_solution_request *request, const kv_outcome *o,
                               kv_error *err)
{
    double const limit = request->budget.limit;
    if (!(limit >= 0) || isinf(limit))
        return KV_FAIL(err, KV_EREQUEST, "the budget is %g; it must be a finite number, 0 or more",
                       limit);
    if (request->budget.kind == KV_BUDGET_BITS && kv_outcome_elements(o) == 0)
        return KV_FAIL(err, KV_EREQUEST,
                       "max_bits: how many elements the table's bytes hold is not known");
    return KV_OK;
}

kv_status kv_solution_create(kv_solution **out, const kv_problem *problem,
                             const kv_solution_request *request, kv_error *err)
{
    kv_status status = KV_OK;
    kv_solution *s = NULL;
    KV_TRY(kv_allocate((void **)&s, 1, sizeof *s, err));
    kv_outcome *const o = &s->outcome;
    *o = (kv_outcome){.problem = problem,
                      .resolution = request->resolution,
                      .is_power = request->is_power,
                      .error_kind = request->error_kind ? request->error_kind : "error",
                      .context = request->context,
                      .elements_per_token = request->elements_per_token,
                      .budget = request->budget,
                      .why_not = request->why_not,
                      .is_complete = true,
                      .kappa = (double)NAN,
                      .kv_heads = request->kv_heads,
                      .head_dims = request->head_dims,
                      .windows = request->windows,
                      .key_absmax = request->key_absmax,
                      .value_absmax = request->value_absmax};
    KV_TRY(check_request(request, o, err));
    if (request->title) KV_TRY(kv_duplicate(&o->title, request->title, err));
    if (request->model) KV_TRY(kv_duplicate(&o->model, request->model, err));
    KV_TRY(kv_problem_integers_create(&s->integers, problem, err));
    o->unit = s->integers.unit;
    KV_TRY(kv_frontier_solve(&o->frontier, &s->integers.knapsack,
                             &(kv_frontier_options){.resolution = request->resolution,
                                                    .max_points = KV_SOLUTION_MAX_POINTS},
                             err));
    KV_TRY(kv_solution_pick(s, kv_solution_limit(o), err));
    KV_TRY(add_uniforms(s, err));
    *out = s, s = NULL;
done:
    kv_solution_free(s);
    return status;
}

void kv_solution_free(kv_solution *solution)
{
    if (!solution) return;
    kv_outcome *const o = &solution->outcome;
    free_candidate(&o->policy);
    for (int64_t i = 0; i < o->n_candidates; i++) free_candidate(&o->candidates[i]);
    kv_free(o->candidates), kv_free(o->title), kv_free(o->model);
    kv_frontier_free(o->frontier);
    kv_problem_integers_free(&solution->integers);
    kv_free(solution);
}
