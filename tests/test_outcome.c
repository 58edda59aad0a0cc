/* Outcomes: the pick against brute force, what is written of them, reports to the letter. */
#include <inttypes.h>
#include <stdlib.h>

#include "kernels/memory.h"
#include "tests/check.h"
#include "tests/outcome_golden.h"
#include "tuner/outcome_parts.h"

#define MUST(call) CHECK((call) == KV_OK, "%s", err.message)

static kv_problem *load_text(const char *text)
{
    kv_error err = {0};
    kv_problem *p = NULL;
    FILE *const f = fopen("outcome.csv", "wb");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0, "outcome.csv");
    MUST(kv_problem_load(&p, "outcome.csv", &err));
    return p;
}

static const char *const table = "layer,tensor,scheme,error,bytes\n"
                                 "0,key,f16,0,64\n"
                                 "0,key,int8/channel,0.001,32\n"
                                 "0,key,int4/channel,0.02,16\n"
                                 "0,value,f16,0,64\n"
                                 "0,value,int8/token,0.002,33\n"
                                 "2,key,f16,0,64\n"
                                 "2,key,int8/channel,0.004,32\n"
                                 "2,key,int4/channel,0.5,16\n"
                                 "2,value,f16,0,64\n"
                                 "2,value,int8/token,0.003,33\n";

/* ---- the pick ---- */

static uint64_t state = 88172645463325252u;
static int64_t random_below(int64_t n)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (int64_t)(state % (uint64_t)n);
}

/* Rows in hundredths, so that decimal budgets often hold exactly. */
static kv_problem *random_problem(void)
{
    char text[4096] = "layer,key,value,error,bytes\n";
    int64_t const L = 1 + random_below(4), n = 1 + random_below(5);
    for (int64_t l = 0; l < L; l++)
        for (int64_t i = 0; i < n; i++)
            snprintf(text + strlen(text), 64,
                     "%" PRId64 ",k%" PRId64 ",v,0.%02" PRId64 ",%" PRId64 "\n", l, i,
                     random_below(50), random_below(20));
    return load_text(text);
}

/* The least (error, bytes) or (bytes, error) within the limit over all assignments; false for none.
 * Errors in hundredths. */
static bool brute_force(int64_t best[2], const kv_problem *p, bool is_on_error, int64_t limit)
{
    int32_t a[8] = {0};
    bool is_found = false;
    for (;;) {
        int64_t bytes = 0, error = 0;
        for (int64_t l = 0; l < p->n_layers; l++) {
            bytes += p->layers[l].choices[a[l]].bytes;
            error += (int64_t)rint(100 * p->layers[l].choices[a[l]].error);
        }
        int64_t const x[2] = {is_on_error ? bytes : error, is_on_error ? error : bytes};
        if ((is_on_error ? error : bytes) <= limit &&
            (!is_found || x[0] < best[0] || (x[0] == best[0] && x[1] < best[1])))
            best[0] = x[0], best[1] = x[1], is_found = true;
        int64_t l = 0;
        while (l < p->n_layers && ++a[l] == p->layers[l].n_choices) a[l++] = 0;
        if (l == p->n_layers) return is_found;
    }
}

static void check_pick(const kv_problem *p, bool is_on_error, int64_t limit, int64_t resolution)
{
    kv_error err = {0};
    kv_solution *s = NULL;
    int64_t best[2] = {0};
    kv_budget const budget = {.kind = is_on_error ? KV_BUDGET_ERROR : KV_BUDGET_BYTES,
                              .limit = is_on_error ? (double)limit / 100 : (double)limit};
    kv_solution_request const request = {
        .is_power = true, .budget = budget, .resolution = resolution};
    MUST(kv_solution_create(&s, p, &request, &err));
    if (!s) return;
    const kv_outcome *const o = &s->outcome;
    bool const is_feasible = brute_force(best, p, is_on_error, limit);
    if (!is_feasible) /* the nearest: least error, or least bytes */
        (void)brute_force(best, p, !is_on_error, INT64_MAX);
    int64_t const error = (int64_t)rint(100 * o->policy.additive);
    bool const is_bytes_first = is_on_error == is_feasible;
    CHECK(o->is_feasible == is_feasible && o->is_budget_met == is_feasible, "feasible");
    CHECK(best[0] == (is_bytes_first ? o->policy.bytes : error) &&
              best[1] == (is_bytes_first ? error : o->policy.bytes),
          "limit %" PRId64 ", resolution %" PRId64 ": %" PRId64 " bytes, error %" PRId64
          " instead of %" PRId64 " %" PRId64,
          limit, resolution, o->policy.bytes, error, best[0], best[1]);
    CHECK(o->frontier->size[o->point] == o->policy.bytes, "point");
    for (int64_t i = 1; i < o->frontier->count; i++)
        CHECK(o->frontier->size[i] > o->frontier->size[i - 1] &&
                  o->frontier->error[i] < o->frontier->error[i - 1],
              "points in order");
    kv_solution_free(s);
}

static void picks(void)
{
    for (int i = 0; i < 2000; i++) {
        kv_problem *const p = random_problem();
        check_pick(p, true, random_below(120), i % 3 == 0 ? 1 + random_below(9) : 0);
        check_pick(p, false, random_below(60), i % 3 == 1 ? 1 + random_below(9) : 0);
        kv_problem_free(p);
    }
}

/* Errors far below the solver's unit: the limit still holds exactly, as the table has it. */
static void tiny_limits(void)
{
    kv_problem *const p = load_text("layer,key,value,error,bytes\n"
                                    "0,a,b,1e-19,9\n0,b,b,1,1\n1,a,b,3e-19,9\n1,b,b,1,1\n");
    kv_error err = {0};
    kv_solution *s = NULL;
    kv_solution_request request = {.is_power = true,
                                   .budget = {.kind = KV_BUDGET_ERROR, .limit = 4e-19}};
    MUST(kv_solution_create(&s, p, &request, &err));
    CHECK(s->outcome.is_feasible && s->outcome.policy.bytes == 18, "within");
    kv_solution_free(s);
    request.budget.limit = 3.9e-19;
    MUST(kv_solution_create(&s, p, &request, &err));
    CHECK(!s->outcome.is_feasible && s->outcome.policy.bytes == 18, "not within");
    kv_solution_free(s);
    kv_problem_free(p);
}

static void budgets(void)
{
    static const int64_t heads[] = {2, 2}, dims[] = {4, 4}, windows[] = {0, 5};
    static const struct {
        kv_budget budget;
        double limit; /* additive power or bytes */
    } rows[] = {
        {{.kind = KV_BUDGET_ERROR, .limit = 0.1}, 0.1 * 0.1},
        {{.kind = KV_BUDGET_MATCH, .limit = 0.1}, 0.1 * 0.1},
        {{.kind = KV_BUDGET_BYTES, .limit = 140}, 140},
        {{.kind = KV_BUDGET_BYTES_PER_TOKEN, .limit = 14}, 140},
        {{.kind = KV_BUDGET_BITS, .limit = 4}, 120}, /* 2 x 8 x (10 + 5) elements */
    };
    kv_problem *const p = load_text(table);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_error err = {0};
        kv_solution *s = NULL;
        kv_solution_request const request = {.error_kind = "stack_err",
                                             .context = 10,
                                             .budget = rows[i].budget,
                                             .kv_heads = heads,
                                             .head_dims = dims,
                                             .windows = windows};
        MUST(kv_solution_create(&s, p, &request, &err));
        CHECK(kv_solution_limit(&s->outcome) == rows[i].limit, "row %zu: %g", i,
              kv_solution_limit(&s->outcome));
        kv_solution_free(s);
    }
    kv_error err = {0};
    kv_solution *s = NULL;
    kv_solution_request request = {.budget = {.kind = KV_BUDGET_BITS, .limit = 4}};
    CHECK(kv_solution_create(&s, p, &request, &err) == KV_EREQUEST, "bits of what");
    CHECK_TEXT(err.message, "max_bits: how many elements the table's bytes hold is not known");
    err = (kv_error){0};
    request.budget = (kv_budget){.kind = KV_BUDGET_ERROR, .limit = -1};
    CHECK(kv_solution_create(&s, p, &request, &err) == KV_EREQUEST, "negative");
    CHECK_TEXT(err.message, "the budget is -1; it must be a finite number, 0 or more");
    kv_problem_free(p);
}

static void uniforms(void)
{
    static const kv_choice_name pin = {2, "f16", "f16"};
    kv_error err = {0};
    kv_problem *p = load_text(table);
    kv_solution *s = NULL;
    kv_solution_request const request = {.is_power = true,
                                         .budget = {.kind = KV_BUDGET_BYTES, .limit = 140}};
    MUST(kv_solution_create(&s, p, &request, &err));
    CHECK(s->outcome.n_candidates == 6, "%" PRId64, s->outcome.n_candidates);
    kv_solution_free(s);
    MUST(kv_problem_restrict(p, &(kv_restrictions){.n_pins = 1, .pins = &pin}, &err));
    MUST(kv_solution_create(&s, p, &request, &err));
    const kv_candidate *const c = &s->outcome.candidates[3];
    CHECK(s->outcome.n_candidates == 6 && c->bytes == 65 + 128, "a pinned layer stays");
    CHECK_TEXT(c->name, "uniform int8/channel | int8/token");
    CHECK_TEXT(c->family, "uniform");
    kv_solution_free(s);
    kv_problem_free(p);
}

/* ---- reports ---- */

typedef kv_status (*printer)(FILE *out, const kv_outcome *outcome, kv_error *err);

static kv_status explain_2(FILE *out, const kv_outcome *outcome, kv_error *err)
{
    return kv_outcome_explain(out, outcome, 2, err);
}

static void check_text(const kv_outcome *o, printer print, const char *expected)
{
    kv_error err = {0};
    char *text = NULL;
    size_t size = 0;
    FILE *const f = open_memstream(&text, &size);
    kv_status const status = print(f, o, &err);
    fclose(f);
    CHECK_TEXT(status == KV_OK ? text : err.message, expected);
    free(text);
}

static void reports(void)
{
    kv_error err = {0};
    kv_problem *const p = load_text(table);
    kv_solution *s = NULL;
    kv_solution_request request = {.is_power = true,
                                   .title = "A table",
                                   .why_not = "there is nothing to run",
                                   .budget = {.kind = KV_BUDGET_ERROR, .limit = 0.008}};
    MUST(kv_solution_create(&s, p, &request, &err));
    check_text(&s->outcome, kv_outcome_report, report_within);
    check_text(&s->outcome, explain_2, explanation);
    kv_solution_free(s);
    request.budget = (kv_budget){.kind = KV_BUDGET_BYTES, .limit = 97};
    MUST(kv_solution_create(&s, p, &request, &err));
    check_text(&s->outcome, kv_outcome_report, report_infeasible);
    kv_solution_free(s);
    kv_problem_free(p);
}

static void check_budget_line(const kv_outcome *o, const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    kv_error err = {0};
    FILE *const out = open_memstream(&text, &size);
    CHECK(kv_outcome_report(out, o, &err) == KV_OK, "%s", err.message);
    fclose(out);
    CHECK(strstr(text, expected) != NULL, "no \"%s\" in\n%s", expected, text);
    free(text);
}

/* Choices of a layer: [key][value] of f16, int8, int4 and f16, int8. */
static void comparisons(void)
{
    static const struct {
        const char *name, *family;
        int32_t assignment[2];
    } rows[] = {{"frontier point 1", "frontier", {5, 3}},
                {"frontier point 3", "frontier", {5, 2}},
                {"frontier point 4", "frontier", {3, 2}},
                {"frontier point 5", "frontier", {3, 1}},
                {"frontier point 6", "frontier", {2, 2}},
                {"first and last 1 high", "ends high", {2, 2}},
                {"random 1", "random", {0, 0}},
                {"random 2", "random", {2, 0}},
                {"NSGA-II", "NSGA-II", {3, 5}}};
    kv_error err = {0};
    kv_problem *const p = load_text(table);
    kv_solution *s = NULL;
    kv_solution_request const request = {.is_power = true,
                                         .budget = {.kind = KV_BUDGET_ERROR, .limit = 0.008}};
    MUST(kv_solution_create(&s, p, &request, &err));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        MUST(kv_solution_add(s, rows[i].name, rows[i].family, rows[i].assignment, &err));
    check_text(&s->outcome, kv_outcome_compare, comparison);
    kv_solution_free(s);
    kv_problem_free(p);
}

/* As a driver that measured leaves it: a baseline that turned out cheaper. */
static void verified_report(void)
{
    static const int64_t heads[] = {2, 2}, dims[] = {4, 4}, windows[] = {0, 0};
    kv_error err = {0};
    kv_problem *const p = load_text(table);
    kv_solution *s = NULL;
    kv_solution_request const request = {.title = "Measured",
                                         .model = "tiny",
                                         .error_kind = "stack_err",
                                         .context = 4,
                                         .budget = {.kind = KV_BUDGET_ERROR, .limit = 0.1},
                                         .kv_heads = heads,
                                         .head_dims = dims,
                                         .windows = windows};
    MUST(kv_solution_create(&s, p, &request, &err));
    kv_outcome *const o = &s->outcome;
    o->is_verified = true, o->is_complete = false, o->runs = 123, o->held_out_seeds = 16;
    o->policy.verified = 0.09, o->policy.held_out = 0.095;
    o->policy.held_out_low = 0.09, o->policy.held_out_high = 0.0999;
    MUST(kv_solution_add(s, "random 7", "random", (int32_t[]){3, 2}, &err));
    kv_candidate *const c = &o->candidates[o->n_candidates - 1];
    c->verified = 0.08, c->held_out = 0.081, c->held_out_low = 0.08, c->held_out_high = 0.082;
    c->runs = 20, c->bytes = 100;
    check_text(o, kv_outcome_report, report_verified);
    o->is_budget_met = false;
    check_budget_line(o, "budget    max_error 0.1: NOT MET\n");
    o->is_verified = false;
    check_budget_line(o, "budget    max_error 0.1: NOT KNOWN to be met: stopped before it was run "
                         "end to end\n");
    kv_solution_free(s);
    kv_problem_free(p);
}

/* ---- record and policy ---- */

static void record(void)
{
    kv_error err = {0};
    kv_problem *const p = load_text(table);
    kv_solution *s = NULL;
    kv_record *r = NULL;
    kv_solution_request const request = {
        .error_kind = "stack_err", .context = 4, .budget = {.kind = KV_BUDGET_ERROR, .limit = 0.1}};
    MUST(kv_solution_create(&s, p, &request, &err));
    MUST(kv_outcome_record(&r, &s->outcome, &err));
    if (!r) return;
    const kv_outcome *const o = &s->outcome;
    int64_t const n = o->frontier->count;
    const kv_array *const bytes = kv_record_array(r, "frontier_bytes");
    const kv_array *const error = kv_record_array(r, "frontier_error");
    const kv_array *const bound = kv_record_array(r, "frontier_lower_bound");
    const kv_array *const choice = kv_record_array(r, "frontier_choice");
    const kv_dimension *const choices = kv_record_dimension(r, "choice");
    CHECK(bytes->count == n && choice->rank == 2 && choice->count == 2 * n, "shapes");
    CHECK(choices->length == 6, "%" PRId64 " choices", choices->length);
    CHECK_TEXT(choices->texts[3], "int8/channel | int8/token");
    CHECK_TEXT(choice->labels, "choice");
    for (int64_t i = 0; i < n; i++) {
        double sum_bytes = 0, sum_error = 0;
        for (int64_t l = 0; l < 2; l++) {
            char key[64], *const text = choices->texts[(int64_t)choice->numbers[2 * i + l]];
            const char *const bar = strstr(text, " | ");
            snprintf(key, sizeof key, "%.*s", (int)(bar - text), text);
            int64_t const c = kv_problem_find(p, l, key, bar + 3);
            sum_bytes += (double)p->layers[l].choices[c].bytes;
            sum_error += p->layers[l].choices[c].error;
        }
        CHECK(bytes->numbers[i] == sum_bytes && error->numbers[i] == sqrt(sum_error), "%" PRId64,
              i);
        CHECK(bound->numbers[i] <= error->numbers[i], "bound of point %" PRId64, i);
    }
    CHECK_TEXT(kv_record_array(r, "policy_key")->texts[0], p->keys.schemes[1]);
    CHECK(kv_record_array(r, "candidate_bytes")->numbers[0] == (double)o->policy.bytes, "policy");
    CHECK_TEXT(kv_record_dimension(r, "candidate")->texts[1], "uniform f16 | f16");
    CHECK_TEXT(kv_record_attribute(r, "budget")->text, "max_error 0.1");
    CHECK(kv_record_attribute(r, "budget_met")->number == 1, "budget_met");
    kv_record_free(r);

    kv_policy policy = {0};
    MUST(kv_outcome_policy(&policy, o, &err));
    CHECK(policy.n_layers == 2 && policy.layers[1].layer == 2 && policy.layers[1].window == -1 &&
              isnan(policy.layers[1].key_absmax),
          "layers");
    CHECK(policy.budget == 0.1 && policy.additive_error == sqrt(o->policy.additive) &&
              isnan(policy.verified_error) && policy.is_budget_met && policy.context == 4,
          "numbers");
    CHECK_TEXT(policy.budget_text, "max_error 0.1");
    CHECK_TEXT(policy.layers[0].key, "int8/channel");
    kv_policy_free_contents(&policy);
    kv_solution_free(s);
    kv_problem_free(p);
}

static void out_of_memory(void)
{
    kv_problem *const p = load_text(table);
    long k = 0;
    for (bool more = true; more; k++) {
        kv_error err = {0};
        kv_solution *s = NULL;
        kv_record *r = NULL;
        kv_policy policy = {0};
        char *text = NULL;
        size_t size = 0;
        FILE *const f = open_memstream(&text, &size);
        kv_solution_request const request = {
            .budget = {.kind = KV_BUDGET_BYTES, .limit = 140}, .title = "t", .resolution = k % 2};
        kv_fail_allocation(k / 2);
        kv_status status = kv_solution_create(&s, p, &request, &err);
        if (status == KV_OK) status = kv_outcome_record(&r, &s->outcome, &err);
        if (status == KV_OK) status = kv_outcome_policy(&policy, &s->outcome, &err);
        if (status == KV_OK) status = kv_outcome_report(f, &s->outcome, &err);
        if (status == KV_OK) status = kv_outcome_explain(f, &s->outcome, 0, &err);
        more = kv_fail_allocation(-1) >= k / 2; /* the solver may do without */
        fclose(f);
        free(text);
        CHECK(status == KV_OK || status == KV_ENOMEM, "allocation %ld: %s", k / 2, err.message);
        kv_policy_free_contents(&policy);
        kv_record_free(r);
        kv_solution_free(s);
    }
    CHECK(k > 200, "%ld allocations", k);
    kv_problem_free(p);
}

int main(void)
{
    picks();
    tiny_limits();
    budgets();
    uniforms();
    reports();
    comparisons();
    verified_report();
    record();
    out_of_memory();
    return check_done();
}
