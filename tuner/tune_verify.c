/* Verification: the chosen points run end to end, on the search seeds and on seeds the search never
 * saw, and the choice corrected until it holds.
 *
 * The additive model says which frontier point is within the budget; kappa = true power / additive
 * power says how far it is off there. Several neighbouring points are run together, because a
 * pass's keys and values are made once for all of them. A point holds where the upper end of its
 * held-out 95 % interval is within the budget. Between the dearest point known to fail and the
 * cheapest known to hold the search goes on until they are neighbours or CLOSE. */
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "results/interval.h"
#include "tuner/tune_state.h"

static const double CLOSE = 0.004; /* of the bytes */
enum { PICKS = 5, ROUNDS = 6 };

/* Targets of the first held-out round, relative to what kappa predicts, and of later ones that
 * still look for a point that holds. The interval's upper end lies above the mean. */
static const double first_targets[PICKS] = {1.05, 0.96, 0.88, 0.8, 0.65};
static const double later_targets[PICKS] = {1, 0.94, 0.85, 0.7, 0.5};

/* ---- measuring choices ---- */

void kv_tune_expand(int32_t (*out)[2], const kv_tuning *t, const int32_t *choices, int64_t n)
{
    for (int64_t i = 0; i < n * t->layers; i++) {
        const kv_choice *const c = &t->problem->layers[i % t->layers].choices[choices[i]];
        out[i][0] = c->key, out[i][1] = c->value;
    }
}

kv_status kv_tune_measure_choices(double *power, kv_tuning *t, const int32_t *choices, int64_t n,
                                  kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL;
    KV_TRY(kv_allocate3(&memory, (size_t)n, (size_t)t->layers, 2, sizeof(int32_t), err));
    kv_tune_expand(memory, t, choices, n);
    KV_TRY(kv_tune_measure_search(power, t, n, memory, err));
done:
    kv_free(memory);
    return status;
}

static bool has_match(const kv_tuning *t)
{
    return t->match[0] >= 0;
}

static void set_match(int32_t (*row)[2], const kv_tuning *t)
{
    for (int64_t l = 0; l < t->layers; l++) row[l][0] = t->match[0], row[l][1] = t->match[1];
}

kv_status kv_tune_measure_held_out(double *power, kv_tuning *t, const int32_t *choices, int64_t n,
                                   kv_error *err)
{
    kv_status status = KV_OK;
    size_t const seeds = (size_t)t->n_held_out, rows = (size_t)n + 1;
    void *memory = NULL, *found = NULL;
    KV_TRY(kv_allocate3(&memory, rows, (size_t)t->layers, 2, sizeof(int32_t), err));
    KV_TRY(kv_allocate3(&found, rows, seeds, 1, sizeof(double), err));
    int32_t(*const assignment)[2] = memory;
    kv_tune_expand(assignment, t, choices, n);
    if (has_match(t)) set_match(assignment + n * t->layers, t);
    kv_tune_batch const batch = {.n = n + has_match(t),
                                 .assignment = memory,
                                 .n_seeds = t->n_held_out,
                                 .seeds = t->held_out_seeds};
    KV_TRY(kv_tune_measure(found, t, &batch, err));
    memcpy(power, found, (size_t)n * seeds * sizeof *power);
    if (has_match(t)) {
        if (!t->match_held_out)
            KV_TRY(kv_allocate((void **)&t->match_held_out, seeds, sizeof(double), err));
        memcpy(t->match_held_out, (double *)found + (size_t)n * seeds, seeds * sizeof *power);
    }
done:
    kv_free(memory), kv_free(found);
    return status;
}

double kv_tune_held_out_limit(const kv_tuning *t)
{
    if (!has_match(t)) return t->limit;
    return kv_interval_of(t->match_held_out, t->n_held_out).mean;
}

double kv_tune_upper(const kv_tuning *t, const double *power)
{
    if (!has_match(t)) return kv_interval_of(power, t->n_held_out).high;
    return kv_tune_held_out_limit(t) +
           kv_interval_of_difference(power, t->match_held_out, t->n_held_out).high;
}

void kv_tune_set_held_out(kv_candidate *candidate, const kv_tuning *t, const double *power)
{
    kv_interval const i = kv_interval_of(power, t->n_held_out);
    candidate->held_out = sqrt(i.mean);
    candidate->held_out_low = i.low > 0 ? sqrt(i.low) : 0;
    candidate->held_out_high = sqrt(i.high);
}

kv_status kv_tune_find_limit(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    void *row = NULL;
    t->limit = NAN;
    if (t->budget.kind == KV_BUDGET_ERROR) t->limit = t->budget.limit * t->budget.limit;
    if (!has_match(t)) return KV_OK;
    if (t->is_capture) {
        t->limit = 0;
        for (int64_t l = 0; l < t->layers; l++)
            t->limit += t->keys.error[l * t->keys.n + t->match[0]] +
                        t->values.error[l * t->values.n + t->match[1]];
    } else {
        KV_TRY(kv_allocate3(&row, (size_t)t->layers, 2, 1, sizeof(int32_t), err));
        set_match(row, t);
        kv_tune_set_task(t, "match");
        KV_TRY(kv_tune_measure_search(&t->limit, t, 1, row, err));
    }
    t->budget.limit = sqrt(t->limit);
done:
    kv_free(row);
    return status;
}

/* ---- the policy ---- */

kv_status kv_tune_set_policy(kv_tuning *t, const int32_t *choices, double search_power,
                             const double *held_out, kv_error *err)
{
    kv_outcome *const o = &t->solution->outcome;
    kv_status const status = kv_solution_set_policy(t->solution, choices, err);
    if (status != KV_OK) return status;
    t->policy_power = search_power;
    o->policy.verified = sqrt(search_power);
    o->kappa = o->policy.additive > 0 ? search_power / o->policy.additive : (double)NAN;
    kv_tune_set_held_out(&o->policy, t, held_out);
    t->policy_upper = kv_tune_upper(t, held_out);
    return KV_OK;
}

kv_status kv_tune_consider(kv_tuning *t, const int32_t *choices, kv_error *err)
{
    kv_status status = KV_OK;
    kv_outcome *const o = &t->solution->outcome;
    int64_t const bytes = kv_problem_bytes(t->problem, choices);
    bool const is_on_error = kv_budget_is_on_error(t->budget.kind);
    double search_power, *held_out = NULL;
    KV_TRY(kv_allocate((void **)&held_out, (size_t)t->n_held_out, sizeof *held_out, err));
    KV_TRY(kv_tune_measure_choices(&search_power, t, choices, 1, err));
    KV_TRY(kv_tune_measure_held_out(held_out, t, choices, 1, err));
    double const upper = kv_tune_upper(t, held_out);
    bool const holds = is_on_error ? upper <= kv_tune_held_out_limit(t) : o->is_budget_met;
    bool const is_size_first = is_on_error && holds && bytes != o->policy.bytes;
    bool const is_better = holds != o->is_budget_met ? holds
                           : is_size_first           ? bytes < o->policy.bytes
                                                     : upper < t->policy_upper;
    if (is_better) KV_TRY(kv_tune_set_policy(t, choices, search_power, held_out, err));
    if (is_better) o->is_budget_met = holds;
done:
    kv_free(held_out);
    return status;
}

/* ---- points ---- */

static double additive(const kv_tuning *t, int64_t point)
{
    const kv_outcome *const o = &t->solution->outcome;
    return (double)o->frontier->error[point] * o->unit;
}

static void choices_of(int32_t *out, const kv_tuning *t, int64_t point)
{
    const kv_frontier *const f = t->solution->outcome.frontier;
    for (int64_t l = 0; l < t->layers; l++) out[l] = f->option[point * t->layers + l];
}

/* The cheapest point within a power, the last where none is. */
static int64_t point_within(const kv_tuning *t, double power)
{
    int64_t const last = t->solution->outcome.frontier->count - 1;
    int64_t low = 0, high = last;
    while (low < high) {
        int64_t const middle = low + (high - low) / 2;
        if (additive(t, middle) <= power)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

typedef struct {
    kv_tuning *t;
    int64_t failed, passed; /* points; -1 and count where none is known */
    double failed_upper;
    int64_t n; /* picks of this round, rising */
    int64_t point[PICKS];
    int32_t *choices;          /* [PICKS][L] */
    double *search, *held_out; /* [PICKS], [PICKS][n_held_out] */
} verification;

static void add_pick(verification *v, int64_t point)
{
    if (point <= v->failed || point >= v->passed || v->n == PICKS) return;
    for (int64_t i = 0; i < v->n; i++)
        if (v->point[i] == point) return;
    v->point[v->n++] = point;
}

static void pick_targets(verification *v, const double *targets, double power)
{
    v->n = 0;
    for (int i = 0; i < PICKS; i++) add_pick(v, point_within(v->t, targets[i] * power));
}

/* Evenly between the powers of both ends. */
static void pick_between(verification *v)
{
    double const high = additive(v->t, v->failed), low = additive(v->t, v->passed);
    v->n = 0;
    for (int i = 1; i <= PICKS; i++)
        add_pick(v, point_within(v->t, high + (low - high) * i / (PICKS + 1)));
    if (!v->n) add_pick(v, v->failed + (v->passed - v->failed) / 2);
}

static bool is_close(const verification *v)
{
    const kv_frontier *const f = v->t->solution->outcome.frontier;
    if (v->passed >= f->count) return v->failed == f->count - 1;
    if (v->passed - v->failed <= 1) return true;
    if (v->failed < 0) return false;
    double const bytes = (double)f->size[v->passed];
    return bytes - (double)f->size[v->failed] <= CLOSE * bytes;
}

/* Makes a pick the policy. */
static kv_status take(verification *v, int64_t i, bool holds, kv_error *err)
{
    kv_tuning *const t = v->t;
    kv_outcome *const o = &t->solution->outcome;
    kv_status const status = kv_tune_set_policy(t, v->choices + i * t->layers, v->search[i],
                                                v->held_out + i * t->n_held_out, err);
    if (status != KV_OK) return status;
    o->point = v->point[i];
    o->is_verified = true, o->is_budget_met = holds;
    o->held_out_seeds = t->n_held_out;
    return KV_OK;
}

static kv_status keep_candidate(const verification *v, int64_t i, kv_error *err)
{
    kv_solution *const s = v->t->solution;
    char name[64];
    snprintf(name, sizeof name, "frontier point %lld", (long long)v->point[i]);
    kv_status const status =
        kv_solution_add(s, name, "frontier", v->choices + i * v->t->layers, err);
    if (status != KV_OK) return status;
    kv_candidate *const c = &s->outcome.candidates[s->outcome.n_candidates - 1];
    c->verified = sqrt(v->search[i]);
    kv_tune_set_held_out(c, v->t, v->held_out + i * v->t->n_held_out);
    return KV_OK;
}

/* Runs the picks on both kinds of seeds and moves both ends. */
static kv_status run_round(verification *v, bool is_on_error, kv_error *err)
{
    kv_status status = KV_OK;
    kv_tuning *const t = v->t;
    for (int64_t i = 0; i < v->n; i++) choices_of(v->choices + i * t->layers, t, v->point[i]);
    kv_tune_set_task(t, "verifying");
    KV_TRY(kv_tune_measure_choices(v->search, t, v->choices, v->n, err));
    kv_tune_set_task(t, "verifying on held-out seeds");
    KV_TRY(kv_tune_measure_held_out(v->held_out, t, v->choices, v->n, err));
    double const limit = kv_tune_held_out_limit(t);
    for (int64_t i = 0; i < v->n; i++) {
        double const upper = kv_tune_upper(t, v->held_out + i * t->n_held_out);
        bool const holds = !is_on_error || upper <= limit;
        KV_TRY(keep_candidate(v, i, err));
        if (holds && v->point[i] < v->passed) {
            v->passed = v->point[i];
            KV_TRY(take(v, i, true, err));
        }
        if (holds || v->passed < t->solution->outcome.frontier->count) continue;
        /* Nothing holds yet: the one of least error stands for the nearest. */
        const kv_outcome *const o = &t->solution->outcome;
        if (!o->is_verified || upper < t->policy_upper) KV_TRY(take(v, i, false, err));
    }
    for (int64_t i = 0; i < v->n; i++) {
        double const upper = kv_tune_upper(t, v->held_out + i * t->n_held_out);
        if (!(is_on_error && upper > limit) || v->point[i] >= v->passed || v->point[i] <= v->failed)
            continue;
        v->failed = v->point[i], v->failed_upper = upper;
    }
done:
    return status;
}

static kv_status search(verification *v, kv_error *err)
{
    kv_status status = KV_OK;
    kv_tuning *const t = v->t;
    kv_outcome *const o = &t->solution->outcome;
    bool const is_on_error = kv_budget_is_on_error(t->budget.kind);
    double predicted = t->limit;
    if (is_on_error) {
        int64_t const first = o->point;
        choices_of(v->choices, t, first);
        kv_tune_set_task(t, "verifying");
        KV_TRY(kv_tune_measure_choices(v->search, t, v->choices, 1, err));
        double const kappa = v->search[0] / additive(t, first);
        if (kappa > 0) predicted = t->limit / kappa;
    }
    for (int round = 0; round < ROUNDS && !is_close(v); round++) {
        if (!is_on_error)
            v->n = 0, add_pick(v, o->point);
        else if (v->passed < o->frontier->count && v->failed >= 0)
            pick_between(v);
        else if (v->failed >= 0)
            pick_targets(v, later_targets,
                         additive(t, v->failed) * kv_tune_held_out_limit(t) / v->failed_upper);
        else if (v->passed < o->frontier->count) { /* all held: go on to cheaper ones */
            predicted = additive(t, v->passed) * kv_tune_held_out_limit(t) / t->policy_upper;
            pick_targets(v, first_targets, predicted);
        } else
            pick_targets(v, first_targets, predicted);
        if (!v->n) break;
        KV_TRY(run_round(v, is_on_error, err));
        if (!is_on_error) break;
    }
done:
    return status;
}

kv_status kv_tune_verify(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    kv_outcome *const o = &t->solution->outcome;
    verification v = {.t = t, .failed = -1, .passed = o->frontier->count};
    void *choices = NULL, *search_power = NULL, *held_out = NULL;
    KV_TRY(kv_allocate3(&choices, PICKS, (size_t)t->layers, 1, sizeof *v.choices, err));
    KV_TRY(kv_allocate(&search_power, PICKS, sizeof *v.search, err));
    KV_TRY(kv_allocate3(&held_out, PICKS, (size_t)t->n_held_out, 1, sizeof *v.held_out, err));
    v.choices = choices, v.search = search_power, v.held_out = held_out;
    bool const is_within = o->is_budget_met; /* a budget on bytes is met or not without running */
    KV_TRY(search(&v, err));
    if (!kv_budget_is_on_error(t->budget.kind)) o->is_budget_met = is_within;
    if (has_match(t) && t->match_held_out) o->budget.limit = sqrt(kv_tune_held_out_limit(t));
done:
    kv_free(choices), kv_free(search_power), kv_free(held_out);
    return status;
}
