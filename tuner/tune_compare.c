/* The comparison: what other ways of choosing find, measured as the policy was. Every candidate of
 * every strategy is run on the search seeds; of each family the cheapest within the budget also on
 * the held-out seeds. */
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "tuner/tune_state.h"

enum { FINALISTS = 6, MAX_FINALISTS = 64 };

typedef struct {
    kv_tuning *t;
    const kv_strategy *strategy;
} comparing;

static kv_status measure(void *context, double *power, const int32_t *assignments, int64_t n,
                         kv_error *err)
{
    comparing *const c = context;
    return kv_tune_measure_choices(power, c->t, assignments, n, err);
}

/* The candidate of this family and assignment, which the solution may have listed already. */
static kv_candidate *find(const kv_tuning *t, const char *family, const int32_t *assignment)
{
    kv_outcome *const o = &t->solution->outcome;
    for (int64_t i = 0; i < o->n_candidates; i++)
        if (strcmp(o->candidates[i].family, family) == 0 &&
            memcmp(o->candidates[i].assignment, assignment,
                   (size_t)t->layers * sizeof *assignment) == 0)
            return &o->candidates[i];
    return NULL;
}

static kv_status keep(void *context, const char *name, const int32_t *assignment, double power,
                      int64_t runs, kv_error *err)
{
    comparing *const c = context;
    kv_outcome *const o = &c->t->solution->outcome;
    kv_candidate *to = find(c->t, c->strategy->family, assignment);
    if (!to) {
        kv_status const status =
            kv_solution_add(c->t->solution, name, c->strategy->family, assignment, err);
        if (status != KV_OK) return status;
        to = &o->candidates[o->n_candidates - 1];
    }
    to->verified = sqrt(power);
    to->runs = runs * c->t->n_search;
    return KV_OK;
}

/* ---- finalists ---- */

static bool is_within(const kv_tuning *t, const kv_candidate *c, double power)
{
    if (isnan(c->verified)) return false;
    if (!isnan(power)) return c->verified * c->verified <= power;
    return c->bytes <= kv_solution_byte_limit(&t->solution->outcome);
}

static bool is_better(const kv_tuning *t, const kv_candidate *a, const kv_candidate *b)
{
    if (isnan(t->limit) || a->bytes == b->bytes) return a->verified < b->verified;
    return a->bytes < b->bytes;
}

/* The best of a family that is within the budget on the search seeds and not listed; -1 for none.
 */
static int64_t best_of(const kv_tuning *t, const char *family, const int64_t *list, int64_t n)
{
    const kv_outcome *const o = &t->solution->outcome;
    int64_t best = -1;
    for (int64_t i = 0; i < o->n_candidates; i++) {
        const kv_candidate *const c = &o->candidates[i];
        bool is_taken = strcmp(c->family, family) != 0 || !is_within(t, c, t->limit);
        for (int64_t j = 0; j < n; j++) is_taken |= list[j] == i;
        if (is_taken) continue;
        if (best < 0 || is_better(t, c, &o->candidates[best])) best = i;
    }
    return best;
}

/* The best of a family, from the cheapest that is within the budget on the search seeds to the
 * first that leaves the margin which the policy needed to hold on the held-out ones. */
static void add_finalists(int64_t *list, int64_t *n, const kv_tuning *t, const char *family)
{
    const kv_outcome *const o = &t->solution->outcome;
    double const margin = t->policy_upper / t->policy_power;
    double const safe = margin > 1 ? t->limit / margin : t->limit;
    for (int k = 0; k < FINALISTS && *n < MAX_FINALISTS; k++) {
        int64_t const best = best_of(t, family, list, *n);
        if (best < 0) return;
        list[(*n)++] = best;
        if (isnan(t->limit) || is_within(t, &o->candidates[best], safe)) return;
    }
}

static kv_status verify_finalists(kv_tuning *t, const int64_t *list, int64_t n, kv_error *err)
{
    kv_status status = KV_OK;
    kv_outcome *const o = &t->solution->outcome;
    size_t const layers = (size_t)t->layers;
    void *choices = NULL, *power = NULL;
    KV_TRY(kv_allocate3(&choices, (size_t)n, layers, 1, sizeof(int32_t), err));
    KV_TRY(kv_allocate3(&power, (size_t)n, (size_t)t->n_held_out, 1, sizeof(double), err));
    for (int64_t i = 0; i < n; i++)
        memcpy((int32_t *)choices + i * t->layers, o->candidates[list[i]].assignment,
               layers * sizeof(int32_t));
    kv_tune_set_task(t, "comparing on held-out seeds");
    KV_TRY(kv_tune_measure_held_out(power, t, choices, n, err));
    for (int64_t i = 0; i < n; i++)
        kv_tune_set_held_out(&o->candidates[list[i]], t, (double *)power + i * t->n_held_out);
done:
    kv_free(choices), kv_free(power);
    return status;
}

kv_status kv_tune_compare(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_outcome *const o = &t->solution->outcome;
    double const equivalents = t->equivalents / (double)t->n_search;
    bool const is_on_error = !isnan(t->limit);
    int64_t list[MAX_FINALISTS], n = 0;
    for (size_t i = 0; kv_strategy_at(i); i++) {
        if (!(t->settings->baselines >> i & 1)) continue;
        comparing c = {t, kv_strategy_at(i)};
        kv_strategy_task const task = {.problem = t->problem,
                                       .bytes = o->policy.bytes,
                                       .error = t->limit,
                                       .limit = is_on_error ? -1 : kv_solution_byte_limit(o),
                                       .runs = (int64_t)ceil(equivalents),
                                       .seed = (uint64_t)t->search_seeds[0],
                                       .context = &c,
                                       .measure = measure,
                                       .keep = keep};
        kv_tune_set_task(t, c.strategy->about);
        KV_TRY(c.strategy->propose(&task, err));
        add_finalists(list, &n, t, c.strategy->family);
    }
    if (n) KV_TRY(verify_finalists(t, list, n, err));
done:
    return status;
}
