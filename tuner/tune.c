/* A tuning from start to end: see tune.h; what each step does is in the files that tune_state.h
 * lists. */
#include "tuner/tune.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "tuner/problem_result.h"
#include "tuner/tune_state.h"

static const char capture_has_no_end[] =
    "a capture holds no weights: errors are local, those of each layer's attention output for the "
    "captured queries with exact inputs, and there is nothing to run end to end";
static const char table_has_no_end[] =
    "the table was measured elsewhere: there is nothing to run end to end";
static const char not_yet[] = "stopped before anything was run end to end";

kv_status kv_tuning_create(kv_tuning **out, const kv_config *config,
                           const kv_tune_settings *settings, const kv_tune_environment *environment,
                           kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL;
    KV_TRY(kv_allocate(&memory, 1, sizeof(kv_tuning), err));
    kv_tuning *const t = memory;
    t->config = config, t->settings = settings, t->environment = *environment;
    t->is_table = *settings->table != 0;
    t->is_capture = !t->is_table && config->heads.generator == KV_GENERATOR_CAPTURE;
    t->limit = t->policy_power = t->policy_upper = NAN;
    t->match[0] = t->match[1] = -1;
    if (environment->time_limit > 0) t->deadline_s = kv_tune_now_s() + environment->time_limit;
    KV_TRY(kv_tune_settings_budget(&t->budget, settings, err));
    if (!t->is_table) KV_TRY(kv_tune_layers_create(t, err));
    KV_TRY(kv_cache_open(&t->cache, t->is_table ? NULL : environment->cache_path, err));
    KV_TRY(kv_cache_open(&t->asked, NULL, err));
    *out = t, memory = NULL;
done:
    kv_tuning_free(memory);
    return status;
}

void kv_tuning_free(kv_tuning *t)
{
    if (!t) return;
    kv_solution_free(t->solution);
    kv_problem_free(t->problem);
    kv_cache_close(t->cache), kv_cache_close(t->asked);
    kv_free(t->match_held_out);
    kv_tune_layers_free(t);
    kv_free(t);
}

const kv_outcome *kv_tuning_outcome(const kv_tuning *tuning)
{
    return tuning->solution ? &tuning->solution->outcome : NULL;
}

const char *kv_tuning_notes(const kv_tuning *tuning)
{
    return tuning->notes.data ? tuning->notes.data : "";
}

int64_t kv_tuning_cached(const kv_tuning *tuning)
{
    return tuning->cache ? kv_cache_count(tuning->cache) : 0;
}

double kv_tuning_flops(const kv_tuning *t)
{
    enum { POINTS = 6, ROUNDS = 2 }; /* of a verification, about */
    if (!t->stack) return 0;
    kv_stack_runs const none = {0}; /* the exact streams alone */
    double const full = kv_stack_flops(t->stack, &none);
    double const schemes = (double)(t->keys.n_choices + t->values.n_choices);
    double const singles = schemes * (1 + (double)(t->layers + 1) / 2); /* local, to the end */
    return full * ((double)(t->n_search + t->n_further) * singles +
                   ROUNDS * POINTS * (double)t->n_held_out);
}

/* ---- restrictions ---- */

/* A scheme that is forbidden wherever it stands becomes a ban for each tensor that has it. */
static kv_status restrict_choices(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_tune_settings *const s = t->settings;
    void *memory = NULL;
    int64_t n = s->n_bans;
    KV_TRY(kv_allocate(&memory, (size_t)(s->n_bans + 2 * s->n_forbidden), sizeof *s->bans, err));
    kv_choice_name *const bans = memory;
    if (n) memcpy(bans, s->bans, (size_t)n * sizeof *bans);
    for (int64_t i = 0; i < s->n_forbidden; i++) {
        const char *const text = s->forbidden[i];
        bool const is_key = kv_problem_scheme(t->problem, text, true) >= 0;
        bool const is_value = kv_problem_scheme(t->problem, text, false) >= 0;
        /* of one that nobody has, the first tells the user so */
        if (is_key || !is_value) bans[n++] = (kv_choice_name){-1, text, NULL};
        if (is_value) bans[n++] = (kv_choice_name){-1, NULL, text};
    }
    kv_restrictions const restrictions = {.n_pins = s->n_pins,
                                          .n_bans = n,
                                          .pins = s->pins,
                                          .bans = bans,
                                          .key_at_least_value = s->key_at_least_value};
    status = kv_problem_restrict(t->problem, &restrictions, err);
    if (status != KV_OK) kv_error_prepend(err, "tune");
done:
    kv_free(memory);
    return status;
}

/* ---- solving ---- */

/* A resolution that keeps the frontier within what is allowed. */
static int64_t coarse_resolution(const kv_problem *p)
{
    double range = 0;
    for (int64_t l = 0; l < p->n_layers; l++) {
        int64_t least = INT64_MAX, most = 0;
        for (int64_t c = 0; c < p->layers[l].n_choices; c++) {
            int64_t const bytes = p->layers[l].choices[c].bytes;
            if (bytes < least) least = bytes;
            if (bytes > most) most = bytes;
        }
        range += (double)most - (double)least;
    }
    return (int64_t)(fmin(range, 0x1p62) / (KV_SOLUTION_MAX_POINTS / 4.0)) + 1;
}

static int64_t elements_per_token(const kv_tuning *t)
{
    int64_t elements = 0;
    for (int64_t l = 0; l < t->layers; l++) elements += 2 * t->kv_heads[l] * t->head_dims[l];
    return elements;
}

static kv_status solve(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    kv_error first = {0};
    kv_solution_request request = {.title = t->config ? t->config->title : NULL,
                                   .model = t->config ? t->config->model : NULL,
                                   .error_kind = t->is_table     ? "error"
                                                 : t->is_capture ? "out_err"
                                                                 : "stack_err",
                                   .is_power = t->is_table,
                                   .context = t->is_table ? t->settings->context : t->context,
                                   .elements_per_token = t->is_table ? 0 : elements_per_token(t),
                                   .budget = t->budget,
                                   .resolution = t->settings->resolution,
                                   .why_not = t->is_table     ? table_has_no_end
                                              : t->is_capture ? capture_has_no_end
                                                              : not_yet,
                                   .kv_heads = t->kv_heads,
                                   .head_dims = t->head_dims,
                                   .windows = t->windows,
                                   .key_absmax = t->key_absmax,
                                   .value_absmax = t->value_absmax};
    status = kv_solution_create(&t->solution, t->problem, &request, &first);
    if (status == KV_EREQUEST && !request.resolution) {
        /* too many points, or something else that then fails once more */
        request.resolution = coarse_resolution(t->problem);
        KV_TRY(kv_solution_create(&t->solution, t->problem, &request, err));
        KV_TRY(kv_text_add(&t->notes, err,
                           "the frontier has more than %d points; its sizes are taken at a "
                           "resolution of %" PRId64 " bytes\n",
                           KV_SOLUTION_MAX_POINTS, request.resolution));
    } else if (status != KV_OK)
        kv_error_set(err, status, first.file, first.line, "%s", first.message);
done:
    return status;
}

/* ---- a table from elsewhere ---- */

/* The additive error of "KEY | VALUE" in all layers. */
static kv_status match_table(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    char *key = NULL;
    if (t->budget.kind != KV_BUDGET_MATCH) return KV_OK;
    const char *const text = t->budget.match, *const bar = strchr(text, '|');
    size_t length = bar ? (size_t)(bar - text) : strlen(text);
    while (length && text[length - 1] == ' ') length--;
    KV_TRY(kv_duplicate_part(&key, text, length, err));
    const char *value = bar ? bar + 1 : key;
    while (*value == ' ') value++;
    double sum = 0;
    for (int64_t l = 0; l < t->problem->n_layers; l++) {
        int64_t const c = kv_problem_find(t->problem, l, key, value);
        if (c < 0)
            KV_TRY(KV_FAIL(err, KV_EREQUEST,
                           "tune.match: layer %" PRId64 " of the table has no choice \"%s | %s\"",
                           t->problem->layers[l].number, key, value));
        sum += t->problem->layers[l].choices[c].error;
    }
    t->budget.limit = sum;
done:
    kv_free(key);
    return status;
}

static kv_status run_table(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_problem_load_any(&t->problem, t->settings->table, err));
    t->layers = t->problem->n_layers;
    KV_TRY(match_table(t, err));
    KV_TRY(restrict_choices(t, err));
    KV_TRY(solve(t, err));
done:
    return status;
}

/* ---- the steps ---- */

/* From nothing to a policy on the search seeds there are, verified where there is an end. */
static kv_status find_policy(kv_tuning *t, bool wants_pairs, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(t->is_capture ? kv_tune_capture_table(t, err) : kv_tune_table(t, err));
    KV_TRY(kv_tune_find_limit(t, err));
    KV_TRY(restrict_choices(t, err));
    if (wants_pairs) KV_TRY(kv_tune_pairs(t, err));
    KV_TRY(solve(t, err));
    if (!t->is_capture) KV_TRY(kv_tune_verify(t, err));
done:
    return status;
}

/* Once more with pairs and twice the search seeds. What the first time found stands where the
 * second is not finished or finds nothing better on the held-out seeds: more effort is not worse.
 */
static kv_status run_again(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem *first_problem = t->problem;
    kv_solution *first = t->solution;
    t->problem = NULL, t->solution = NULL;
    t->n_search += t->n_further;
    KV_TRY(find_policy(t, true, err));
    KV_TRY(kv_tune_consider(t, first->outcome.policy.assignment, err));
done:
    if (status != KV_OK) {
        kv_problem *const problem = t->problem;
        kv_solution *const solution = t->solution;
        t->problem = first_problem, t->solution = first;
        first_problem = problem, first = solution;
    }
    kv_solution_free(first);
    kv_problem_free(first_problem);
    return status;
}

static kv_status run_stack(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const effort = t->settings->effort;
    kv_tune_set_task(t, "layers");
    KV_TRY(kv_tune_find_absmax(t, err));
    KV_TRY(find_policy(t, false, err));
    if (t->is_capture) return KV_OK;
    if (effort >= KV_EFFORT_PATIENT) KV_TRY(kv_tune_repair(t, err));
    if (effort == KV_EFFORT_EXHAUSTIVE) {
        KV_TRY(run_again(t, err));
        KV_TRY(kv_tune_repair(t, err));
    }
    t->solution->outcome.runs = t->runs; /* without the comparison */
    KV_TRY(kv_tune_compare(t, err));
done:
    return status;
}

kv_status kv_tuning_run(kv_tuning *t, kv_error *err)
{
    kv_status const status = t->is_table ? run_table(t, err) : run_stack(t, err);
    if (!t->solution) return status;
    kv_outcome *const o = &t->solution->outcome;
    if (!o->runs) o->runs = t->runs;
    o->is_complete = status == KV_OK;
    if (o->is_verified) o->why_not = NULL;
    if (!o->is_verified && !t->is_capture && !t->is_table) o->is_budget_met = false;
    return status;
}
