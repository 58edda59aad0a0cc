/* The best policy inside an engine's expressible set.
 *
 * UNIFORM, SKIP and FREE: for every switch of the whole cache and every pair of types that may be
 * the base, the choices of each layer are cut down to those that are expressible then, and the
 * knapsack over what is left is solved exactly (tuner/frontier.h): where one scheme is a type's
 * only one, that is plain enumeration. ENDS has a search of its own (engine_ends.c). All
 * comparisons are made in the solver's integers. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "tuner/engine_state.h"

bool kv_engine_is_better(const kv_engine_limit *limit, int64_t size, int64_t error,
                         const kv_engine_pick *held)
{
    bool const is_feasible = size <= limit->size && error <= limit->error;
    if (!held->is_found) return true;
    if (is_feasible != held->is_feasible) return is_feasible;
    bool const is_size_first = is_feasible == (limit->error != INT64_MAX);
    if (is_size_first) return size != held->size ? size < held->size : error < held->error;
    return error != held->error ? error < held->error : size < held->size;
}

/* ---- one restriction ---- */

/* Rows that may be used, and the base pair (-1: any pair). */
typedef struct {
    uint32_t rows, native;
    int key, value;
} restriction;

/* The options of all layers that are left, and room for a solution. */
typedef struct {
    int64_t n_layers;
    int64_t *n;          /* [L] */
    kv_option **options; /* [L][choices of the layer] */
    int32_t **choice, **key, **value;
} pool;

static void pool_free(pool *p)
{
    for (int64_t l = 0; l < p->n_layers; l++) {
        if (p->options) kv_free(p->options[l]);
        if (p->choice) kv_free(p->choice[l]);
        if (p->key) kv_free(p->key[l]);
        if (p->value) kv_free(p->value[l]);
    }
    kv_free(p->n), kv_free(p->options), kv_free(p->choice), kv_free(p->key), kv_free(p->value);
}

static kv_status pool_create(pool *out, const kv_problem *problem, kv_error *err)
{
    kv_status status = KV_OK;
    pool p = {.n_layers = problem->n_layers};
    size_t const layers = (size_t)problem->n_layers;
    KV_TRY(kv_allocate((void **)&p.n, layers, sizeof *p.n, err));
    KV_TRY(kv_allocate((void **)&p.options, layers, sizeof *p.options, err));
    KV_TRY(kv_allocate((void **)&p.choice, layers, sizeof *p.choice, err));
    KV_TRY(kv_allocate((void **)&p.key, layers, sizeof *p.key, err));
    KV_TRY(kv_allocate((void **)&p.value, layers, sizeof *p.value, err));
    for (size_t l = 0; l < layers; l++) {
        size_t const n = (size_t)problem->layers[l].n_choices;
        KV_TRY(kv_allocate((void **)&p.options[l], n, sizeof **p.options, err));
        KV_TRY(kv_allocate((void **)&p.choice[l], n, sizeof **p.choice, err));
        KV_TRY(kv_allocate((void **)&p.key[l], n, sizeof **p.key, err));
        KV_TRY(kv_allocate((void **)&p.value[l], n, sizeof **p.value, err));
    }
    *out = p, p = (pool){0};
done:
    pool_free(&p);
    return status;
}

/* The first pair of rows that expresses a choice under a restriction. */
static bool find_rows(int *key, int *value, const kv_engine_match *m, int64_t layer,
                      const kv_choice *c, const restriction *r)
{
    int const n = (int)m->engine->n_types;
    uint32_t const keys = r->rows & m->keys[layer * m->problem->keys.n + c->key];
    uint32_t const values = r->rows & m->values[layer * m->problem->values.n + c->value];
    for (int k = 0; keys >> k && k < n; k++)
        for (int v = 0; (keys >> k & 1) && values >> v && v < n; v++) {
            bool const is_base = r->key < 0 || (k == r->key && v == r->value);
            bool const is_native = (r->native >> k & 1) && (r->native >> v & 1);
            if (!(values >> v & 1) || !(is_base || is_native)) continue;
            if (!kv_engine_pair_fits(m, c, k, v)) continue;
            *key = k, *value = v;
            return true;
        }
    return false;
}

/* False where a layer has nothing left. */
static bool pool_fill(pool *p, const kv_engine_match *m, const kv_problem_integers *integers,
                      const restriction *r)
{
    for (int64_t l = 0; l < p->n_layers; l++) {
        const kv_problem_layer *const layer = &m->problem->layers[l];
        int64_t n = 0;
        for (int64_t c = 0; c < layer->n_choices; c++) {
            int key, value;
            if (!find_rows(&key, &value, m, l, &layer->choices[c], r)) continue;
            p->options[l][n] = integers->options[l][c];
            p->choice[l][n] = (int32_t)c, p->key[l][n] = key, p->value[l][n++] = value;
        }
        p->n[l] = n;
        if (!n) return false;
    }
    return true;
}

/* Per layer the option of least size (or error), and of those of least error (size). */
static void least(int64_t *which, int64_t *size, int64_t *error, const pool *p, bool by_error)
{
    *size = *error = 0;
    for (int64_t l = 0; l < p->n_layers; l++) {
        const kv_option *const o = p->options[l];
        int64_t best = 0;
        for (int64_t i = 1; i < p->n[l]; i++) {
            int64_t const first = by_error ? o[i].error - o[best].error : o[i].size - o[best].size;
            int64_t const then = by_error ? o[i].size - o[best].size : o[i].error - o[best].error;
            if (first < 0 || (first == 0 && then < 0)) best = i;
        }
        which[l] = best, *size += o[best].size, *error += o[best].error;
    }
}

/* The best of a pool goes to *pick where it is better than what is there. */
static kv_status try_pool(kv_engine_pick *pick, int64_t *which, const pool *p,
                          const kv_engine_limit *limit, kv_error *err)
{
    kv_status status = KV_OK;
    kv_frontier *point = NULL;
    int64_t size, error, n_most = 0;
    bool const by_error = limit->error != INT64_MAX;
    for (int64_t l = 0; l < p->n_layers; l++) n_most = p->n[l] > n_most ? p->n[l] : n_most;
    least(which, &size, &error, p, by_error);
    if (n_most > 1 && size <= (by_error ? INT64_MAX : limit->size) && error <= limit->error) {
        kv_knapsack const knapsack = {p->n_layers, p->n, (const kv_option *const *)p->options};
        if (by_error)
            KV_TRY(kv_knapsack_within_error(&point, &knapsack, limit->error, err));
        else
            KV_TRY(kv_knapsack_within_size(&point, &knapsack, limit->size, err));
        for (int64_t l = 0; point->count && l < p->n_layers; l++) which[l] = point->option[l];
        if (point->count) size = point->size[0], error = point->error[0];
    }
    if (!kv_engine_is_better(limit, size, error, pick)) goto done;
    pick->is_found = true, pick->size = size, pick->error = error;
    pick->is_feasible = size <= limit->size && error <= limit->error;
    for (int64_t l = 0; l < p->n_layers; l++) {
        pick->choice[l] = p->choice[l][which[l]];
        pick->key[l] = p->key[l][which[l]], pick->value[l] = p->value[l][which[l]];
    }
done:
    kv_frontier_free(point);
    return status;
}

/* ---- all restrictions ---- */

static int highest_mode(const kv_engine *e)
{
    int most = 0;
    for (size_t t = 0; t < e->n_types; t++)
        most = e->types[t].mode > most ? e->types[t].mode : most;
    return most;
}

static kv_status search(kv_engine_pick *pick, const kv_engine_match *m,
                        const kv_problem_integers *integers, const kv_engine_limit *limit,
                        kv_error *err)
{
    kv_status status = KV_OK;
    const kv_engine *const e = m->engine;
    int const n = (int)e->n_types, n_base = e->shape == KV_SHAPE_FREE ? 1 : n;
    int const modes = highest_mode(e);
    pool p = {0};
    int64_t *which = NULL;
    KV_TRY(pool_create(&p, m->problem, err));
    KV_TRY(kv_allocate((void **)&which, (size_t)p.n_layers, sizeof *which, err));
    for (int mode = modes ? 1 : 0; mode <= modes; mode++) {
        restriction r = {.key = -1, .value = -1};
        for (int t = 0; t < n; t++)
            if (!e->types[t].mode || e->types[t].mode == mode) r.rows |= UINT32_C(1) << t;
        for (int t = 0; t < n && e->shape == KV_SHAPE_SKIP; t++)
            if (e->types[t].is_native) r.native |= r.rows & UINT32_C(1) << t;
        for (int base = 0; base < n_base * n_base; base++) {
            if (e->shape != KV_SHAPE_FREE) r.key = base / n, r.value = base % n;
            if (e->is_tied && r.key != r.value) continue;
            if (r.key >= 0 && !(r.rows >> r.key & r.rows >> r.value & 1)) continue;
            if (pool_fill(&p, m, integers, &r)) KV_TRY(try_pool(pick, which, &p, limit, err));
        }
    }
    pick->is_exact = true;
done:
    pool_free(&p), kv_free(which);
    return status;
}

/* ---- from a problem to a fit ---- */

static kv_status fill_fit(kv_engine_fit *fit, const kv_engine_match *m, const kv_engine_pick *pick,
                          kv_error *err)
{
    kv_status status = KV_OK;
    const kv_problem *const p = m->problem;
    fit->engine = m->engine;
    KV_TRY(kv_allocate((void **)&fit->layers, (size_t)p->n_layers, sizeof *fit->layers, err));
    fit->n_layers = p->n_layers;
    for (int64_t l = 0; l < p->n_layers; l++) {
        const kv_choice *const c = &p->layers[l].choices[pick->choice[l]];
        kv_engine_layer *const layer = &fit->layers[l];
        layer->number = p->layers[l].number;
        layer->key = pick->key[l], layer->value = pick->value[l], layer->choice = pick->choice[l];
        KV_TRY(kv_duplicate(&layer->key_scheme, p->keys.schemes[c->key], err));
        KV_TRY(kv_duplicate(&layer->value_scheme, p->values.schemes[c->value], err));
    }
    fit->bytes = kv_problem_bytes(p, pick->choice), fit->error = kv_problem_error(p, pick->choice);
    fit->is_feasible = pick->is_feasible, fit->is_exact = pick->is_exact;
done:
    return status;
}

static kv_status free_optimum(kv_engine_fit *fit, const kv_problem *problem,
                              const kv_problem_integers *integers, const kv_engine_limit *limit,
                              kv_error *err)
{
    kv_status status = KV_OK;
    kv_frontier *point = NULL;
    int32_t *choice = NULL;
    if (limit->error != INT64_MAX)
        KV_TRY(kv_knapsack_within_error(&point, &integers->knapsack, limit->error, err));
    else
        KV_TRY(kv_knapsack_within_size(&point, &integers->knapsack, limit->size, err));
    KV_TRY(kv_allocate((void **)&choice, (size_t)problem->n_layers, sizeof *choice, err));
    for (int64_t l = 0; point->count && l < problem->n_layers; l++) choice[l] = point->option[l];
    fit->is_free_feasible = point->count > 0;
    fit->free_bytes = point->count ? kv_problem_bytes(problem, choice) : 0;
    fit->free_error = point->count ? kv_problem_error(problem, choice) : NAN;
done:
    kv_frontier_free(point), kv_free(choice);
    return status;
}

/* Rounding of a choice's error to the solver's unit must not shut out what meets the budget
 * exactly, so that it is wider by half a unit a layer and tensor. */
static kv_engine_limit limit_of(const kv_engine_budget *budget, double unit, int64_t n_layers)
{
    kv_engine_limit limit = {INT64_MAX, INT64_MAX};
    if (budget->max_bytes > 0) limit.size = budget->max_bytes;
    if (budget->max_bytes > 0) return limit;
    double const units = floor(budget->max_error / unit);
    int64_t const most = INT64_MAX / 4;
    limit.error = units < (double)most ? (int64_t)units + n_layers : most;
    return limit;
}

static kv_status check_numbers(const kv_engine *engine, const kv_problem *problem, kv_error *err)
{
    for (int64_t l = 0; engine->needs_all_layers && l < problem->n_layers; l++)
        if (problem->layers[l].number != l)
            return KV_FAIL(err, KV_EREQUEST,
                           "%s: its output lists all layers of the model, which must be numbered "
                           "from 0 without gaps; layer %" PRId64 " is missing",
                           engine->name, l);
    return KV_OK;
}

/* A sentence for each type that is used and is not what kvant simulates or needs something. */
static kv_status warn_types(kv_engine_fit *fit, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_engine *const e = fit->engine;
    for (size_t t = 0; t < e->n_types; t++) {
        const kv_engine_type *const type = &e->types[t];
        bool is_used = false;
        for (int64_t l = 0; l < fit->n_layers && !is_used; l++)
            is_used = fit->layers[l].key == (int32_t)t || fit->layers[l].value == (int32_t)t;
        if (is_used && type->note)
            KV_TRY(kv_engine_warn(fit, err, "%s is not simulated exactly: %s", type->words,
                                  type->note));
        if (is_used && type->needs)
            KV_TRY(kv_engine_warn(fit, err, "%s needs %s", type->words, type->needs));
    }
done:
    return status;
}

kv_status kv_engine_solve(kv_engine_fit *out, const kv_engine *engine, const kv_problem *problem,
                          const kv_policy *policy, const kv_engine_budget *budget, kv_error *err)
{
    kv_status status = KV_OK;
    kv_engine_fit fit = {0};
    kv_engine_match match = {0};
    kv_engine_pick pick = {0};
    kv_problem_integers integers = {0};
    size_t const layers = (size_t)problem->n_layers;
    KV_TRY(check_numbers(engine, problem, err));
    KV_TRY(kv_problem_integers_create(&integers, problem, err));
    KV_TRY(kv_engine_match_create(&match, engine, problem, policy, err));
    KV_TRY(kv_allocate((void **)&pick.key, layers, sizeof *pick.key, err));
    KV_TRY(kv_allocate((void **)&pick.value, layers, sizeof *pick.value, err));
    KV_TRY(kv_allocate((void **)&pick.choice, layers, sizeof *pick.choice, err));
    kv_engine_limit const limit = limit_of(budget, integers.unit, problem->n_layers);
    if (engine->shape == KV_SHAPE_ENDS)
        KV_TRY(kv_engine_search_ends(&pick, &match, &integers, &limit, err));
    else
        KV_TRY(search(&pick, &match, &integers, &limit, err));
    if (!pick.is_found) KV_TRY(kv_engine_nothing_fits(&match, err));
    KV_TRY(fill_fit(&fit, &match, &pick, err));
    KV_TRY(free_optimum(&fit, problem, &integers, &limit, err));
    KV_TRY(warn_types(&fit, err));
    KV_TRY(kv_engine_add_absent(&fit.absent, &match, err));
    *out = fit, fit = (kv_engine_fit){0};
done:
    kv_engine_fit_free_contents(&fit);
    kv_engine_match_free_contents(&match);
    kv_free(pick.key), kv_free(pick.value), kv_free(pick.choice);
    kv_problem_integers_free(&integers);
    return status;
}
