/* The tuning driver on stacks small enough to know the truth of: every assignment is run, and the
 * policy is compared with the best of them. And what a tuning must not depend on: threads,
 * interruptions, what the cache holds. */
#include "sim/stack.h"
#include "tests/tune_bench.h"
#include "tuner/strategies.h"

/* ---- the truth ---- */

enum { LAYERS = 4, OPTIONS = 4, ALL = OPTIONS * OPTIONS * OPTIONS * OPTIONS };

/* Powers and bytes of all assignments, mean over the two search seeds. */
static void find_truth(double *power, int64_t *bytes, const bench *b, const kv_problem *p)
{
    kv_error err = {0};
    kv_stack *stack = NULL;
    static int32_t pairs[ALL][LAYERS][2];
    const kv_config *const c = &b->config;
    int64_t const index[KV_CONFIG_MAX_AXES] = {0};
    kv_quantizer const keys[] = {c->schemes[0].key, c->schemes[2].key};
    kv_quantizer const values[] = {c->schemes[0].value, c->schemes[1].value};
    const kv_backend *backend = NULL;
    CHECK(kv_backend_find(&backend, "cpu", &err) == KV_OK, "%s", err.message);
    CHECK(kv_stack_create(&stack, c, index, b->settings.streams, &err) == KV_OK, "%s", err.message);
    for (int a = 0; a < ALL; a++) {
        int32_t choice[LAYERS];
        for (int l = 0, rest = a; l < LAYERS; l++, rest /= OPTIONS) {
            choice[l] = rest % OPTIONS;
            pairs[a][l][0] = choice[l] / 2, pairs[a][l][1] = choice[l] % 2;
            CHECK(p->layers[l].choices[choice[l]].key == choice[l] / 2, "order of choices");
        }
        bytes[a] = kv_problem_bytes(p, choice);
        power[a] = 0;
    }
    for (int64_t seed = 0; seed < 2; seed++) {
        kv_stack_measured m = {0};
        kv_stack_runs const runs = {2, 2, keys, values, ALL, (const int32_t(*)[2])pairs, NULL};
        kv_stack_environment const environment = {.backend = backend, .threads = 2};
        CHECK(kv_stack_run(&m, stack, seed, &runs, &environment, &err) == KV_OK, "%s", err.message);
        for (int a = 0; a < ALL; a++)
            power[a] += m.err_square[a * LAYERS + LAYERS - 1] / m.square[LAYERS - 1] / 2;
        kv_stack_measured_free_contents(&m);
    }
    kv_stack_free(stack);
}

static int number_of(const int32_t *assignment)
{
    int a = 0;
    for (int l = LAYERS; l-- > 0;) a = a * OPTIONS + assignment[l];
    return a;
}

/* Budgets on bytes: the policy's true power is the least of any assignment within them, or the
 * ratios of true to additive power account for the rest. Budgets on errors: the verified one holds,
 * and nothing cheaper that is true within what the policy has was passed over by more than that. */
static void test_truth(void)
{
    static const char *const budgets[] = {"max_bits: 4.2", "max_bits: 5",    "max_bits: 6",
                                          "max_bits: 7",   "max_error: 0.1", "max_error: 0.05"};
    static double power[ALL];
    static int64_t bytes[ALL];
    kv_candidate last = {0}; /* of the effort before */
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++)
        for (int effort = 0; effort < 3; effort++) {
            static const char *const efforts[] = {"measure", "patient", "exhaustive"};
            bench b = {0};
            char text[256];
            snprintf(text, sizeof text,
                     TWO_KEYS_TWO_VALUES "tune: {%s, effort: %s, baselines: []}\n", budgets[i],
                     efforts[effort]);
            const kv_outcome *const o = tune(&b, small_heads, text);
            if (!o) {
                finish(&b);
                return;
            }
            if (!bytes[0]) find_truth(power, bytes, &b, o->problem);
            int const policy = number_of(o->policy.assignment);
            CHECK(o->is_verified && o->is_complete && !o->why_not, "%s", text);
            CHECK(o->policy.bytes == bytes[policy], "%s", text);
            if (effort) /* more effort is never worse, on the same held-out seeds */
                CHECK(strstr(text, "max_error")
                          ? o->policy.bytes <= last.bytes
                          : o->policy.held_out_high <= last.held_out_high * (1 + 1e-12),
                      "%s: %lld bytes after %lld, error %g after %g", text,
                      (long long)o->policy.bytes, (long long)last.bytes, o->policy.held_out_high,
                      last.held_out_high);
            last =
                (kv_candidate){.bytes = o->policy.bytes, .held_out_high = o->policy.held_out_high};
            if (effort < 2) /* the search seeds of the truth */
                CHECK(fabs(o->policy.verified - sqrt(power[policy])) <= 1e-12, "%s: %g %g", text,
                      o->policy.verified, sqrt(power[policy]));
            CHECK(o->is_budget_met, "%s", text);
            CHECK(o->policy.held_out_low <= o->policy.held_out &&
                      o->policy.held_out <= o->policy.held_out_high,
                  "%s", text);
            double least = 1e300, largest = 0, best = 1e300;
            for (int a = 0; a < ALL; a++) {
                int32_t choice[LAYERS];
                for (int l = 0, rest = a; l < LAYERS; l++, rest /= OPTIONS)
                    choice[l] = rest % OPTIONS;
                double const ratio = power[a] / kv_problem_error(o->problem, choice);
                least = ratio < least ? ratio : least, largest = ratio > largest ? ratio : largest;
                if (bytes[a] <= o->policy.bytes && power[a] < best) best = power[a];
            }
            CHECK(power[policy] <= best * largest / least * (1 + 1e-9),
                  "%s: %g, best %g, %g ... %g", text, power[policy], best, least, largest);
            if (effort == 1) /* repaired: nothing better in a single step */
                CHECK(power[policy] <= best * 1.1, "%s: %g, best %g", text, power[policy], best);
            if (strstr(text, "max_error")) {
                double limit = 0;
                CHECK(kv_parse_real(strstr(budgets[i], ": ") + 2, &limit), "%s", text);
                CHECK(o->policy.held_out_high <= limit, "%s: %g", text, o->policy.held_out_high);
            }
            finish(&b);
        }
}

/* ---- what the choice must show ---- */

/* Layer 2's keys have a large channel mean: its key needs more bits than the others'. */
static void test_planted(void)
{
    bench b = {0};
    const kv_outcome *const o = tune(&b,
                                     "kvant: 1\n"
                                     "heads:\n"
                                     "  {layers: 4, kv_heads: 1, query_heads: 2, head_dim: 32, "
                                     "tokens: 128, rope: {layout: half},\n"
                                     "   outliers: {count: 2, placement: rope-low},\n"
                                     "   profile: [{layers: 2, outliers.bias: 30}]}\n",
                                     "schemes: {keys: [q8_0, q4_0], values: [q8_0, q4_0]}\n"
                                     "tune: {max_bits: 5.1, baselines: []}\n");
    if (o) {
        int64_t key_bytes[LAYERS];
        for (int l = 0; l < LAYERS; l++) {
            const kv_choice *const c = &o->problem->layers[l].choices[o->policy.assignment[l]];
            key_bytes[l] = o->problem->keys.bytes[l * o->problem->keys.n + c->key];
        }
        for (int l = 0; l < LAYERS; l++)
            CHECK(l == 2 || key_bytes[l] < key_bytes[2], "layer %d: %lld, layer 2: %lld", l,
                  (long long)key_bytes[l], (long long)key_bytes[2]);
        for (int l = 0; l < LAYERS; l++)
            CHECK(o->key_absmax[l] > 1 && o->value_absmax[l] > 1, "maxima of layer %d", l);
        CHECK(o->key_absmax[2] > 2 * o->key_absmax[1], "maxima");
    }
    finish(&b);
}

static char *policy_of(const kv_outcome *o)
{
    kv_text text = {0};
    char number[KV_REAL_TEXT];
    for (int64_t l = 0; l < o->problem->n_layers; l++)
        kv_text_add(&text, NULL, "%d ", o->policy.assignment[l]);
    kv_text_add(&text, NULL, "%s ", kv_real_text(number, o->policy.verified));
    kv_text_add(&text, NULL, "%s ", kv_real_text(number, o->policy.held_out_high));
    kv_text_add(&text, NULL, "%s\n", kv_real_text(number, o->kappa));
    for (int64_t i = 0; i < o->n_candidates; i++) {
        const kv_candidate *const c = &o->candidates[i];
        kv_text_add(&text, NULL, "%s %lld %s", c->name, (long long)c->bytes,
                    kv_real_text(number, c->verified));
        kv_text_add(&text, NULL, " %s\n", kv_real_text(number, c->held_out));
    }
    return kv_text_take(&text);
}

static const char all_tune[] = "tune: {max_error: 0.08, effort: patient}\n";

/* The same for any threads, and after any number of interruptions. */
static void test_same(void)
{
    char *first = NULL, path[128];
    static const int threads[] = {1, 2, 5};
    for (int i = 0; i < 3; i++) {
        bench b = {0};
        if (load(&b, small_heads, all_tune)) {
            const kv_outcome *const o = run(&b, threads[i], NULL);
            CHECK(b.status == KV_OK && o, "%s", b.err.message);
            CHECK(b.n_progress > 10, "progress");
            char *const text = o ? policy_of(o) : NULL;
            if (!first)
                first = text;
            else if (text) {
                CHECK_TEXT(text, first);
                kv_free(text);
            }
        }
        finish(&b);
    }
    path_of(path, "cache");
    unlink(path);
    bool is_done = false, was_partial = false;
    int64_t before = 0;
    for (int i = 0; i < 60 && !is_done; i++) {
        bench b = {.stop_at = 60 + 80 * i};
        if (load(&b, small_heads, all_tune)) {
            const kv_outcome *const o = run(&b, 2, path);
            CHECK(b.status == KV_OK || b.status == KV_EINTERRUPTED, "%s", b.err.message);
            CHECK(kv_tuning_cached(b.tuning) >= before, "measurements are lost");
            before = kv_tuning_cached(b.tuning);
            is_done = b.status == KV_OK;
            if (o && !is_done) {
                was_partial = true;
                CHECK(!o->is_complete, "marked incomplete");
                CHECK(o->is_verified || !o->is_budget_met, "not known to be met");
            }
            if (is_done && first && o) {
                char *const text = policy_of(o);
                CHECK_TEXT(text, first);
                kv_free(text);
            }
        }
        finish(&b);
    }
    CHECK(is_done && was_partial, "interrupted and finished: %d %d", is_done, was_partial);
    unlink(path);
    kv_free(first);
}

/* ---- budgets ---- */

/* The result says of every error whether it was measured. Of two schemes a tensor, of which neither
 * beats the other, an estimate runs one of each. */
static void test_sources(void)
{
    static const struct {
        const char *effort;
        int least[KV_ERROR_SOURCES]; /* choices in all layers */
    } rows[] = {
        {"estimate", {0, 12, 4, 0}}, {"measure", {0, 0, 16, 0}}, {"exhaustive", {0, 0, 0, 4}}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bench b = {0};
        char text[256];
        kv_error err = {0};
        kv_record *record = NULL;
        int found[KV_ERROR_SOURCES] = {0};
        snprintf(text, sizeof text,
                 TWO_KEYS_TWO_VALUES "tune: {max_bits: 6, effort: %s, baselines: []}\n",
                 rows[i].effort);
        const kv_outcome *const o = tune(&b, small_heads, text);
        if (o && kv_outcome_record(&record, o, &err) == KV_OK) {
            const kv_array *const a = kv_record_array(record, "table_source");
            CHECK(a && a->count == 16 && strcmp(a->labels, "source") == 0, "table_source");
            for (int k = 0; a && k < 16; k++) found[(int)a->numbers[k]]++;
            for (int k = 0; k < KV_ERROR_SOURCES; k++)
                CHECK(found[k] >= rows[i].least[k], "%s: %d of source %d", rows[i].effort, found[k],
                      k);
            CHECK(i == 0 || found[KV_ERROR_ESTIMATED] == 0, "%s", rows[i].effort);
        }
        kv_record_free(record);
        finish(&b);
    }
}

static void test_budgets(void)
{
    bench b = {0};
    const kv_outcome *o =
        tune(&b, small_heads, TWO_KEYS_TWO_VALUES "tune: {max_error: 1e-6, baselines: []}\n");
    if (o) {
        CHECK(!o->is_feasible && !o->is_budget_met, "infeasible");
        CHECK(o->point == o->frontier->count - 1, "the nearest is the best");
        CHECK(o->is_verified && o->policy.held_out > 1e-6, "verified all the same");
    }
    finish(&b);
    o = tune(&b, small_heads, TWO_KEYS_TWO_VALUES "tune: {max_bits: 2, baselines: []}\n");
    if (o) CHECK(!o->is_feasible && !o->is_budget_met && o->point == 0, "too few bytes");
    finish(&b);
    o = tune(&b, small_heads,
             TWO_KEYS_TWO_VALUES "tune: {max_bytes_per_token: 360, baselines: [uniform]}\n");
    if (o) {
        CHECK(o->is_budget_met && o->policy.bytes <= 360 * 96, "%lld", (long long)o->policy.bytes);
        CHECK(!isnan(o->policy.held_out_high), "verified");
    }
    finish(&b);
    o = tune(&b, small_heads, "tune: {match: q4_0, baselines: [uniform]}\n");
    if (o) {
        const kv_candidate *uniform = NULL;
        for (int64_t i = 0; i < o->n_candidates; i++)
            if (strcmp(o->candidates[i].name, "uniform q4_0 | q4_0") == 0)
                uniform = &o->candidates[i];
        CHECK(o->is_budget_met && o->budget.kind == KV_BUDGET_MATCH, "match");
        CHECK(uniform && o->policy.held_out <= o->budget.limit, "%g %g", o->policy.held_out,
              o->budget.limit);
        CHECK(uniform && o->policy.bytes <= uniform->bytes, "no dearer than what it matches");
    }
    finish(&b);
    o = tune(&b, small_heads, TWO_KEYS_TWO_VALUES "tune: {match: q4_0, baselines: []}\n");
    if (o) CHECK(o->is_budget_met, "a scheme that is no candidate");
    finish(&b);
    o = tune(&b, small_heads,
             TWO_KEYS_TWO_VALUES "tune: {max_bits: 6, effort: estimate, baselines: [], pin: {1: "
                                 "[q8_0, q8_0]}, forbid: [{layer: 0, key: q8_0}]}\n");
    if (o) {
        CHECK(o->problem->layers[1].n_choices == 1 && o->problem->layers[0].n_choices == 2,
              "restrictions");
        CHECK(o->is_budget_met && o->is_verified, "estimate");
    }
    finish(&b);
}

/* Every family is there, measured on the search seeds, and its best on held-out ones. */
static void test_baselines(void)
{
    bench b = {0};
    const kv_outcome *const o = tune(&b, small_heads, "tune: {max_error: 0.1}\n");
    for (size_t i = 0; o && kv_strategy_at(i); i++) {
        int64_t n = 0, held_out = 0;
        for (int64_t c = 0; c < o->n_candidates; c++) {
            const kv_candidate *const k = &o->candidates[c];
            if (strcmp(k->family, kv_strategy_at(i)->family) != 0) continue;
            n++, held_out += !isnan(k->held_out);
            CHECK(!isnan(k->verified) && k->runs > 0, "%s", k->name);
            CHECK(k->bytes == kv_problem_bytes(o->problem, k->assignment), "%s", k->name);
        }
        CHECK(n > 0, "%s", kv_strategy_at(i)->name);
        CHECK(held_out > 0 || strcmp(kv_strategy_at(i)->name, "random") == 0, "%s",
              kv_strategy_at(i)->name);
        if (i == 0) CHECK(n == 81, "%lld uniform ones", (long long)n);
        if (strcmp(kv_strategy_at(i)->name, "random") == 0) CHECK(n == 20, "%lld", (long long)n);
    }
    finish(&b);
}

/* Whichever allocation fails, the tuning says so and lets everything go; the k-th, k rising ever
 * faster. */
static void test_allocations(void)
{
    bool is_done = false;
    int64_t n = 0, n_ignored = 0; /* of estimates of time, which can do without */
    for (long k = 0; !is_done && k < 100000000; k += 1 + k / 40) {
        bench b = {0};
        if (!load(&b, small_heads,
                  TWO_KEYS_TWO_VALUES "tune: {max_error: 0.1, effort: patient, streams: 1}\n")) {
            CHECK(false, "%s", b.err.message);
            return;
        }
        kv_fail_allocation(k);
        run(&b, 1, NULL);
        is_done = kv_fail_allocation(-1) <= k && b.status == KV_OK;
        CHECK(b.status == KV_OK || b.status == KV_ENOMEM, "%ld: %s", k, b.err.message);
        n += b.status == KV_ENOMEM, n_ignored += !is_done && b.status == KV_OK;
        finish(&b);
    }
    CHECK(is_done && n > 100, "%lld failures", (long long)n);
    CHECK(10 * n_ignored < n, "%lld failures are lost", (long long)n_ignored);
}

int main(void)
{
    test_allocations();
    test_truth();
    test_planted();
    test_sources();
    test_budgets();
    test_baselines();
    test_same();
    return check_done();
}
