/* The record of a tuning: see kv_outcome_record in outcome.h and its layout in results/store.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "tuner/outcome_parts.h"

/* The pairs of schemes that some layer may choose: the coordinate of `choice`. */
typedef struct {
    const kv_outcome *outcome;
    kv_record *record;
    int64_t n_pairs;
    int64_t *pairs; /* [n_pairs] key * values.n + value, rising */
} maker;

static int64_t pair_of(const kv_problem *p, const kv_choice *choice)
{
    return choice->key * p->values.n + choice->value;
}

static int compare(const void *a, const void *b)
{
    int64_t const x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static kv_status find_pairs(maker *m, kv_error *err)
{
    const kv_problem *const p = m->outcome->problem;
    int64_t n = 0, distinct = 0;
    for (int64_t i = 0; i < p->n_layers; i++) n += p->layers[i].n_choices;
    kv_status const status = kv_allocate((void **)&m->pairs, (size_t)n, sizeof *m->pairs, err);
    if (status != KV_OK) return status;
    n = 0;
    for (int64_t i = 0; i < p->n_layers; i++)
        for (int64_t c = 0; c < p->layers[i].n_choices; c++)
            m->pairs[n++] = pair_of(p, &p->layers[i].choices[c]);
    qsort(m->pairs, (size_t)n, sizeof *m->pairs, compare);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || m->pairs[i] != m->pairs[i - 1]) m->pairs[distinct++] = m->pairs[i];
    m->n_pairs = distinct;
    return KV_OK;
}

/* Position of an assignment's choice among the pairs; NaN where it makes none. */
static double position(const maker *m, int64_t layer, int64_t choice)
{
    const kv_problem *const p = m->outcome->problem;
    if (choice < 0) return (double)NAN;
    int64_t const pair = pair_of(p, &p->layers[layer].choices[choice]);
    const int64_t *const found = bsearch(&pair, m->pairs, (size_t)m->n_pairs, sizeof pair, compare);
    return (double)(found - m->pairs);
}

static kv_status add_choices(maker *m, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_problem *const p = m->outcome->problem;
    char **texts = NULL;
    KV_TRY(kv_allocate((void **)&texts, (size_t)m->n_pairs, sizeof *texts, err));
    for (int64_t i = 0; i < m->n_pairs; i++) {
        kv_text text = {0};
        KV_TRY(kv_text_add(&text, err, "%s | %s", p->keys.schemes[m->pairs[i] / p->values.n],
                           p->values.schemes[m->pairs[i] % p->values.n]));
        texts[i] = kv_text_take(&text);
    }
    KV_TRY(kv_record_add_dimension(m->record,
                                   &(kv_dimension_spec){.name = "choice",
                                                        .long_name = "key | value",
                                                        .length = m->n_pairs,
                                                        .texts = (const char *const *)texts},
                                   err));
done:
    for (int64_t i = 0; texts && i < m->n_pairs; i++) kv_free(texts[i]);
    kv_free(texts);
    return status;
}

/* An array over one dimension, made of NaN: *numbers is where its values go. */
static kv_status add_numbers(double **numbers, maker *m, const kv_array_spec *spec, kv_error *err)
{
    kv_status const status = kv_record_add_array(m->record, spec, err);
    if (status == KV_OK) *numbers = m->record->arrays[m->record->n_arrays - 1].numbers;
    return status;
}

static kv_status add_count(maker *m, const char *name, int64_t length, kv_error *err)
{
    double *numbers = NULL;
    kv_status status = kv_allocate((void **)&numbers, (size_t)length, sizeof *numbers, err);
    for (int64_t i = 0; status == KV_OK && i < length; i++) numbers[i] = (double)i;
    if (status == KV_OK)
        status = kv_record_add_dimension(
            m->record, &(kv_dimension_spec){.name = name, .length = length, .numbers = numbers},
            err);
    kv_free(numbers);
    return status;
}

/* ---- frontier ---- */

static kv_status add_frontier(maker *m, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_outcome *const o = m->outcome;
    const kv_frontier *const f = o->frontier;
    double *bytes, *error, *bound, *multiplier, *choice;
    KV_TRY(add_count(m, "point", f->count, err));
    KV_TRY(add_numbers(&bytes, m,
                       &(kv_array_spec){.name = "frontier_bytes",
                                        .units = "byte",
                                        .long_name = "stored bytes of all layers",
                                        .dimensions = {"point"}},
                       err));
    KV_TRY(add_numbers(
        &error, m,
        &(kv_array_spec){.name = "frontier_error",
                         .units = "1",
                         .long_name = o->is_power ? "sum of the layers' errors" : "additive error",
                         .dimensions = {"point"}},
        err));
    KV_TRY(add_numbers(&bound, m,
                       &(kv_array_spec){.name = "frontier_lower_bound",
                                        .units = "1",
                                        .long_name = "least error that the linear relaxation "
                                                     "allows within these bytes",
                                        .dimensions = {"point"}},
                       err));
    KV_TRY(add_numbers(&multiplier, m,
                       &(kv_array_spec){.name = "frontier_multiplier",
                                        .units = "1/byte",
                                        .long_name = "error power that one more byte saves",
                                        .dimensions = {"point"}},
                       err));
    KV_TRY(add_numbers(&choice, m,
                       &(kv_array_spec){.name = "frontier_choice",
                                        .long_name = "key | value",
                                        .dimensions = {"point", "layer"},
                                        .labels = "choice"},
                       err));
    for (int64_t i = 0; i < f->count; i++) {
        double const power = kv_point_power(o->problem, f, i);
        bytes[i] = (double)f->size[i];
        error[i] = kv_outcome_error(o, power);
        bound[i] = kv_outcome_error(o, fmin(power, fmax(0, o->unit * f->lower_bound[i])));
        multiplier[i] = o->unit * f->multiplier[i];
        for (int64_t l = 0; l < f->n_groups; l++)
            choice[i * f->n_groups + l] = position(m, l, f->option[i * f->n_groups + l]);
    }
done:
    return status;
}

/* ---- policy ---- */

static kv_status add_policy_schemes(maker *m, bool is_key, kv_error *err)
{
    const kv_problem *const p = m->outcome->problem;
    const char **texts = NULL;
    kv_status status = kv_allocate((void **)&texts, (size_t)p->n_layers, sizeof *texts, err);
    for (int64_t i = 0; status == KV_OK && i < p->n_layers; i++) {
        const kv_choice *const c = kv_assigned(p, m->outcome->policy.assignment, i);
        texts[i] = is_key ? p->keys.schemes[c->key] : p->values.schemes[c->value];
    }
    if (status == KV_OK)
        status =
            kv_record_add_array(m->record,
                                &(kv_array_spec){.name = is_key ? "policy_key" : "policy_value",
                                                 .dimensions = {"layer"},
                                                 .texts = texts},
                                err);
    kv_free(texts);
    return status;
}

/* Bytes of the layer's key and value apart, where the table tells them apart. */
static kv_status add_policy_sides(maker *m, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_problem *const p = m->outcome->problem;
    double *key, *value;
    if (!p->is_separable || p->is_split) return KV_OK;
    KV_TRY(add_numbers(
        &key, m,
        &(kv_array_spec){.name = "policy_key_bytes", .units = "byte", .dimensions = {"layer"}},
        err));
    KV_TRY(add_numbers(
        &value, m,
        &(kv_array_spec){.name = "policy_value_bytes", .units = "byte", .dimensions = {"layer"}},
        err));
    for (int64_t i = 0; i < p->n_layers; i++) {
        const kv_choice *const c = kv_assigned(p, m->outcome->policy.assignment, i);
        key[i] = (double)p->keys.bytes[i * p->keys.n + c->key];
        value[i] = (double)p->values.bytes[i * p->values.n + c->value];
    }
done:
    return status;
}

static kv_status add_policy(maker *m, kv_error *err)
{
    static const kv_array_spec specs[] = {
        {.name = "policy_bytes", .units = "byte", .dimensions = {"layer"}},
        {.name = "policy_error",
         .units = "1",
         .long_name = "error power of the layer's choice",
         .dimensions = {"layer"}},
        {.name = "policy_share",
         .units = "1",
         .long_name = "its share of the sum",
         .dimensions = {"layer"}},
        {.name = "policy_price",
         .units = "1/byte",
         .long_name = "error power that one more byte would save here",
         .dimensions = {"layer"}}};
    kv_status status = KV_OK;
    const kv_outcome *const o = m->outcome;
    double *numbers[4];
    KV_TRY(add_policy_schemes(m, true, err));
    KV_TRY(add_policy_schemes(m, false, err));
    for (int k = 0; k < 4; k++) KV_TRY(add_numbers(&numbers[k], m, &specs[k], err));
    for (int64_t i = 0; i < o->problem->n_layers; i++) {
        const kv_choice *const c = kv_assigned(o->problem, o->policy.assignment, i);
        numbers[0][i] = (double)c->bytes;
        numbers[1][i] = c->error;
        numbers[2][i] = o->policy.additive > 0 ? c->error / o->policy.additive : (double)NAN;
        numbers[3][i] = kv_marginal_at(&o->problem->layers[i], o->policy.assignment[i]).up;
    }
    KV_TRY(add_policy_sides(m, err));
done:
    return status;
}

/* ---- candidates: the policy, then the baselines ---- */

static const kv_candidate *candidate_at(const kv_outcome *o, int64_t i)
{
    return i ? &o->candidates[i - 1] : &o->policy;
}

static kv_status add_candidate_texts(maker *m, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_outcome *const o = m->outcome;
    int64_t const n = 1 + o->n_candidates;
    const char **texts = NULL;
    KV_TRY(kv_allocate((void **)&texts, (size_t)n, sizeof *texts, err));
    for (int64_t i = 0; i < n; i++) texts[i] = candidate_at(o, i)->name;
    KV_TRY(kv_record_add_dimension(
        m->record, &(kv_dimension_spec){.name = "candidate", .length = n, .texts = texts}, err));
    for (int64_t i = 0; i < n; i++) texts[i] = candidate_at(o, i)->family;
    KV_TRY(kv_record_add_array(
        m->record,
        &(kv_array_spec){.name = "candidate_family", .dimensions = {"candidate"}, .texts = texts},
        err));
done:
    kv_free(texts);
    return status;
}

static kv_status add_candidates(maker *m, kv_error *err)
{
    static const kv_array_spec specs[] = {
        {.name = "candidate_bytes", .units = "byte", .dimensions = {"candidate"}},
        {.name = "candidate_error",
         .units = "1",
         .long_name = "additive error",
         .dimensions = {"candidate"}},
        {.name = "candidate_verified",
         .units = "1",
         .long_name = "error on the search seeds",
         .dimensions = {"candidate"}},
        {.name = "candidate_held_out",
         .units = "1",
         .long_name = "error on held-out seeds",
         .dimensions = {"candidate"}},
        {.name = "candidate_held_out_low", .units = "1", .dimensions = {"candidate"}},
        {.name = "candidate_held_out_high", .units = "1", .dimensions = {"candidate"}},
        {.name = "candidate_runs",
         .units = "1",
         .long_name = "stack runs spent on finding it",
         .dimensions = {"candidate"}},
        {.name = "candidate_choice",
         .long_name = "key | value",
         .dimensions = {"candidate", "layer"},
         .labels = "choice"}};
    enum { N = sizeof specs / sizeof specs[0] };
    kv_status status = KV_OK;
    const kv_outcome *const o = m->outcome;
    int64_t const L = o->problem->n_layers;
    double *numbers[N];
    KV_TRY(add_candidate_texts(m, err));
    for (int k = 0; k < N; k++) KV_TRY(add_numbers(&numbers[k], m, &specs[k], err));
    for (int64_t i = 0; i < 1 + o->n_candidates; i++) {
        const kv_candidate *const c = candidate_at(o, i);
        double const values[N - 1] = {c->bytes < 0 ? (double)NAN : (double)c->bytes,
                                      kv_outcome_error(o, c->additive),
                                      c->verified,
                                      c->held_out,
                                      c->held_out_low,
                                      c->held_out_high,
                                      (double)c->runs};
        for (int k = 0; k < N - 1; k++) numbers[k][i] = values[k];
        for (int64_t l = 0; l < L; l++)
            numbers[N - 1][i * L + l] = position(m, l, c->assignment[l]);
    }
done:
    return status;
}

/* ---- attributes ---- */

static kv_status add_texts(maker *m, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_outcome *const o = m->outcome;
    kv_text budget = {0};
    KV_TRY(kv_budget_text(&budget, &o->budget, err));
    KV_TRY(kv_record_set_text(m->record, "budget", budget.data, err));
    KV_TRY(kv_record_set_text(m->record, "error_kind", o->error_kind, err));
    if (o->model) KV_TRY(kv_record_set_text(m->record, "model", o->model, err));
    if (o->why_not) KV_TRY(kv_record_set_text(m->record, "not_verified", o->why_not, err));
done:
    kv_text_free(&budget);
    return status;
}

static kv_status add_attributes(maker *m, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_outcome *const o = m->outcome;
    double const bound = kv_outcome_error(o, kv_lower_bound(o));
    double const additive = kv_outcome_error(o, o->policy.additive);
    const struct {
        const char *name;
        double number;
    } rows[] = {{"budget_limit", o->budget.limit},
                {"error_is_power", o->is_power},
                {"feasible", o->is_feasible},
                {"budget_met", o->is_budget_met},
                {"verified", o->is_verified},
                {"point_of_policy", (double)o->point},
                {"bytes", (double)o->policy.bytes},
                {"additive_error", additive},
                {"additive_lower_bound", bound},
                {"additive_gap", additive - bound},
                {"kappa", o->kappa},
                {"context", (double)o->context},
                {"elements_per_token", (double)o->elements_per_token},
                {"runs", (double)o->runs},
                {"held_out_seeds", (double)o->held_out_seeds}};
    KV_TRY(add_texts(m, err));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        KV_TRY(kv_record_set_number(m->record, rows[i].name, rows[i].number, err));
done:
    return status;
}

kv_status kv_outcome_record(kv_record **out, const kv_outcome *outcome, kv_error *err)
{
    kv_status status = KV_OK;
    maker m = {.outcome = outcome};
    KV_TRY(kv_record_create(&m.record, err));
    KV_TRY(kv_problem_record(m.record, outcome->problem, err));
    KV_TRY(find_pairs(&m, err));
    KV_TRY(add_choices(&m, err));
    KV_TRY(add_frontier(&m, err));
    KV_TRY(add_policy(&m, err));
    KV_TRY(add_candidates(&m, err));
    KV_TRY(add_attributes(&m, err));
    *out = m.record, m.record = NULL;
done:
    kv_record_free(m.record);
    kv_free(m.pairs);
    return status;
}
