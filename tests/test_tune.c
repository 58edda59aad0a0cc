/* The tuning driver on stacks small enough to know the truth of: every assignment is run, and the
 * policy is compared with the best of them. And what a tuning must not depend on: threads,
 * interruptions, what the cache holds. */
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fcntl.h>

#include "kernels/memory.h"
#include "sim/stack.h"
#include "tests/check.h"
#include "tuner/cache.h"
#include "tuner/strategies.h"
#include "tuner/tune.h"

#define TWO_KEYS_TWO_VALUES                                                                        \
    "schemes: {keys: [q8_0, 'int3/32x1:zero:scale=f16'], values: [q8_0, "                          \
    "'int3/1x32:zero:scale=f16']}\n"

static const char small_heads[] = "kvant: 1\n"
                                  "title: small\n"
                                  "heads:\n"
                                  "  layers: 4\n"
                                  "  kv_heads: 1\n"
                                  "  query_heads: 2\n"
                                  "  head_dim: 32\n"
                                  "  tokens: 96\n"
                                  "  seeds: 2\n"
                                  "  rope: {layout: half, base: 10000}\n"
                                  "  outliers: {count: 1, scale: 3, bias: 4}\n";

/* What a run of the test holds. */
typedef struct {
    kv_config config;
    kv_tune_settings settings;
    kv_tuning *tuning;
    kv_status status;
    kv_error err;
    int64_t polls, stop_at; /* of is_cancelled; stop_at 0: never */
    int64_t n_progress;
} bench;

static bool is_cancelled(void *context)
{
    bench *const b = context;
    return b->stop_at && ++b->polls >= b->stop_at;
}

static void progress(void *context, const char *task, double share, double eta_s)
{
    bench *const b = context;
    CHECK(*task && share >= 0 && share <= 1 + 1e-9 && !(eta_s < 0), "%s %g %g", task, share, eta_s);
    b->n_progress++;
}

static bool load(bench *b, const char *yaml, const char *tune)
{
    static const char *const dirs[] = {KVANT_SOURCE_DIR "/configs"};
    char text[8192];
    snprintf(text, sizeof text, "%s%s", yaml, tune);
    b->settings.data_dirs = dirs, b->settings.n_data_dirs = 1;
    kv_config_section const section = kv_tune_section(&b->settings);
    kv_config_sources const sources = {
        .data_dirs = dirs, .n_data_dirs = 1, .sections = &section, .n_sections = 1};
    b->status = kv_config_read(&b->config, text, strlen(text), "t.yaml", &sources, &b->err);
    return b->status == KV_OK;
}

static const kv_outcome *run(bench *b, int threads, const char *cache)
{
    const kv_backend *backend = NULL;
    CHECK(kv_backend_find(&backend, "cpu", &b->err) == KV_OK, "%s", b->err.message);
    kv_tune_environment const environment = {.backend = backend,
                                             .threads = threads,
                                             .cache_path = cache,
                                             .is_cancelled = is_cancelled,
                                             .progress = progress,
                                             .context = b};
    b->status = kv_tuning_create(&b->tuning, &b->config, &b->settings, &environment, &b->err);
    if (b->status != KV_OK) return NULL;
    b->status = kv_tuning_run(b->tuning, &b->err);
    return kv_tuning_outcome(b->tuning);
}

static void finish(bench *b)
{
    kv_tuning_free(b->tuning);
    kv_config_free_contents(&b->config);
    kv_tune_settings_free_contents(&b->settings);
    *b = (bench){0};
}

static const kv_outcome *tune(bench *b, const char *yaml, const char *tune_text)
{
    if (!load(b, yaml, tune_text)) {
        CHECK(false, "%s", b->err.message);
        return NULL;
    }
    const kv_outcome *const o = run(b, 1, NULL);
    CHECK(b->status == KV_OK, "%s", b->err.message);
    return b->status == KV_OK ? o : NULL;
}

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

static void path_of(char path[128], const char *name)
{
    snprintf(path, 128, "test_tune.%ld.%s", (long)getpid(), name);
}

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

/* ---- the cache ---- */

static void test_cache(void)
{
    kv_error err = {0};
    kv_cache *cache = NULL, *other = NULL;
    char path[128];
    uint8_t key[4][KV_CACHE_KEY];
    double values[3] = {1.5, -0.0, INFINITY}, found[3];
    path_of(path, "small.cache");
    unlink(path);
    for (int i = 0; i < 4; i++) {
        char text[8];
        snprintf(text, sizeof text, "%d", i);
        kv_cache_key(key[i], text);
    }
    CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%s", err.message);
    CHECK(!kv_cache_get(found, cache, key[0], 3), "empty");
    for (int i = 0; i < 3; i++)
        CHECK(kv_cache_put(cache, key[i], values, i + 1, &err) == KV_OK, "%s", err.message);
    CHECK(kv_cache_get(found, cache, key[2], 3) && memcmp(found, values, sizeof found) == 0, "3");
    CHECK(!kv_cache_get(found, cache, key[2], 2), "another length");
    CHECK(kv_cache_put(cache, key[3], values, 0, &err) == KV_EREQUEST, "nothing");
    CHECK_TEXT(err.message, "0 numbers cannot be kept");
    err = (kv_error){0};
    CHECK(kv_cache_open(&other, path, &err) == KV_EREQUEST, "locked");
    CHECK(strstr(err.message, ": another process is working on this tuning"), "%s", err.message);
    kv_cache_close(cache), cache = NULL;
    struct stat info;
    CHECK(stat(path, &info) == 0, "size");
    for (off_t size = info.st_size; size >= 0; size--) { /* torn everywhere */
        err = (kv_error){0};
        CHECK(truncate(path, size) == 0, "truncate");
        CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%lld: %s", (long long)size, err.message);
        int64_t const records = size >= 200 ? 3 : size >= 128 ? 2 : size >= 64 ? 1 : 0;
        CHECK(kv_cache_count(cache) == records, "%lld bytes: %lld", (long long)size,
              (long long)kv_cache_count(cache));
        kv_cache_close(cache), cache = NULL;
    }
    /* what is put after a torn record is found again */
    CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%s", err.message);
    CHECK(kv_cache_put(cache, key[0], values, 1, &err) == KV_OK, "%s", err.message);
    CHECK(kv_cache_put(cache, key[1], values, 2, &err) == KV_OK, "%s", err.message);
    kv_cache_close(cache), cache = NULL;
    CHECK(truncate(path, 8 + 56 + 60) == 0, "truncate");
    CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%s", err.message);
    CHECK(kv_cache_put(cache, key[3], values, 3, &err) == KV_OK, "%s", err.message);
    kv_cache_close(cache), cache = NULL;
    CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%s", err.message);
    CHECK(kv_cache_count(cache) == 2 && kv_cache_get(found, cache, key[3], 3), "appended");
    kv_cache_close(cache), cache = NULL;
    /* a damaged record in the middle costs only itself */
    unlink(path), err = (kv_error){0};
    CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%s", err.message);
    for (int i = 0; i < 3; i++) CHECK(kv_cache_put(cache, key[i], values, 1, &err) == KV_OK, "put");
    kv_cache_close(cache), cache = NULL;
    int const fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, "x", 1, 8 + 56 + 30) == 1, "damage");
    close(fd);
    CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%s", err.message);
    CHECK(kv_cache_count(cache) == 2 && !kv_cache_get(found, cache, key[1], 1) &&
              kv_cache_get(found, cache, key[2], 1),
          "damaged");
    kv_cache_close(cache), cache = NULL;
    FILE *const f = fopen(path, "w");
    CHECK(f && fputs("not a cache of mine", f) >= 0 && fclose(f) == 0, "write");
    CHECK(kv_cache_open(&cache, path, &err) == KV_EINPUT, "no cache");
    CHECK(strstr(err.message, " is in the way: not the measurements of a tuning"), "%s",
          err.message);
    CHECK(stat(path, &info) == 0 && info.st_size == 19, "never overwritten");
    unlink(path), err = (kv_error){0};
    CHECK(kv_cache_open(&cache, "no/such/folder/x", &err) == KV_EIO, "no folder");
    CHECK_TEXT(err.message, "opening no/such/folder/x: No such file or directory");
    err = (kv_error){0};
    CHECK(kv_cache_open(&cache, NULL, &err) == KV_OK, "in memory");
    CHECK(kv_cache_put(cache, key[0], values, 3, &err) == KV_OK && kv_cache_count(cache) == 1, "1");
    for (int i = 0; i < 2000; i++) {
        char text[16];
        snprintf(text, sizeof text, "n%d", i);
        kv_cache_key(key[3], text);
        values[0] = i;
        CHECK(kv_cache_put(cache, key[3], values, 1, &err) == KV_OK, "put");
    }
    bool is_all = kv_cache_count(cache) == 2001;
    for (int i = 0; i < 2000; i++) {
        char text[16];
        snprintf(text, sizeof text, "n%d", i);
        kv_cache_key(key[3], text);
        is_all &= kv_cache_get(found, cache, key[3], 1) && found[0] < i + 0.5 && found[0] > i - 0.5;
    }
    CHECK(is_all, "two thousand");
    kv_cache_close(cache);
}

/* ---- settings ---- */

static void test_settings_errors(void)
{
    static const struct {
        const char *tune, *message;
    } cases[] = {
        {"tune: {max_eror: 1}", "t.yaml:12:8: tune.max_eror: unknown key, did you mean "
                                "\"tune.max_error\"?"},
        {"tune: {max_error: 0}", "t.yaml:12:19: tune.max_error: 0 is outside 1e-30 to 1e+30"},
        {"tune: {max_error: 1, match: q4_0}",
         "t.yaml:12:29: tune.match: max_error is given already; one budget only"},
        {"tune: {match: kivi-9}",
         "t.yaml:12:15: tune.match: \"kivi-9\": no such preset, did you mean \"kivi-2\"?"},
        {"tune: {effort: all}", "t.yaml:12:16: tune.effort: unknown value \"all\"; choose one of: "
                                "estimate, measure, patient, exhaustive"},
        {"tune: {held_out: 8}", "t.yaml:12:18: tune.held_out: 8 is outside 16 to 4096 seeds"},
        {"tune: {pin: [f16]}",
         "t.yaml:12:13: tune.pin: expected {LAYER: [KEY, VALUE]}, found a list"},
        {"tune: {pin: {x: [f16, f16]}}",
         "t.yaml:12:14: tune.pin: expected the number of a layer, found x"},
        {"tune: {pin: {0: f16}}", "t.yaml:12:17: tune.pin.0: expected [KEY, VALUE]"},
        {"tune: {pin: {0: [f16, [a]]}}", "t.yaml:12:23: tune.pin: expected a scheme, found a list"},
        {"tune: {forbid: f16}",
         "t.yaml:12:16: tune.forbid: expected a list of schemes and {layer, key, value}, found a "
         "scalar"},
        {"tune: {forbid: [{layer: 1}]}",
         "t.yaml:12:17: tune.forbid: needs a key or a value scheme"},
        {"tune: {baselines: [nsga]}",
         "t.yaml:12:20: tune.baselines: unknown baseline \"nsga\", did you mean \"nsga2\"?"},
        {"tune: {baselines: all}",
         "t.yaml:12:19: tune.baselines: expected a list of names, found a "
         "scalar"},
        {"tune: 3", "t.yaml:12:7: tune: expected a mapping of keys, found a scalar"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench b = {0};
        CHECK(!load(&b, small_heads, cases[i].tune) && b.status == KV_EREQUEST, "%s",
              cases[i].tune);
        CHECK_TEXT(b.err.message, cases[i].message);
        finish(&b);
    }
}

static void test_create_errors(void)
{
    static const struct {
        const char *tune, *message;
    } cases[] = {
        {"tune: {effort: measure}",
         "tune: no budget; give one of max_error, max_bytes_per_token, max_bits or match"},
        {"tune: {max_bits: 4}\nsweep: {heads.tokens: [64, 128]}",
         "sweep: a tuning is of one point; run one for each value with --set"},
        {"tune: {max_bits: 4, baselines: [], pin: {9: [f16, f16]}}",
         "tune: pin: there is no layer 9; the table has 4 layers, 0 to 3"},
        {"tune: {max_bits: 4, baselines: [], forbid: [int5/token]}",
         "tune: forbid: the table has no key scheme \"int5/token\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench b = {0};
        if (load(&b, small_heads, cases[i].tune)) {
            run(&b, 1, NULL);
            CHECK(b.status == KV_EREQUEST, "%s", cases[i].tune);
            CHECK_TEXT(b.err.message, cases[i].message);
        } else
            CHECK(false, "%s", b.err.message);
        finish(&b);
    }
}

static void test_settings_text(void)
{
    static const char tune_text[] =
        "tune:\n"
        "  match: q4_0\n"
        "  context: 512\n"
        "  effort: patient\n"
        "  streams: 3\n"
        "  held_out: 20\n"
        "  key_at_least_value: true\n"
        "  resolution: 64\n"
        "  pin: {0: [f16, f16], 2: [q8_0, q4_0]}\n"
        "  forbid: ['int2/32x1:zero', q4_0 | q4_0, {layer: 3, key: q4_0}, {value: f16}]\n"
        "  baselines: [random, uniform]\n";
    static const char expected[] = "tune:\n"
                                   "  match: q4_0 | q4_0\n"
                                   "  context: 512\n"
                                   "  effort: patient\n"
                                   "  streams: 3\n"
                                   "  held_out: 20\n"
                                   "  key_at_least_value: true\n"
                                   "  resolution: 64\n"
                                   "  table: \"\"\n"
                                   "  pin:\n"
                                   "    0: [f16, f16]\n"
                                   "    2: [q8_0, q4_0]\n"
                                   "  forbid:\n"
                                   "    - int2/32x1:zero\n"
                                   "    - {key: q4_0, value: q4_0}\n"
                                   "    - {layer: 3, key: q4_0}\n"
                                   "    - {value: f16}\n"
                                   "  baselines: [uniform, random]\n";
    bench b = {0}, again = {0};
    kv_text text = {0}, second = {0};
    CHECK(load(&b, small_heads, tune_text), "%s", b.err.message);
    CHECK(kv_tune_settings_text(&text, &b.settings, &b.err) == KV_OK, "%s", b.err.message);
    CHECK_TEXT(text.data, expected);
    CHECK(load(&again, small_heads, text.data), "%s", again.err.message);
    CHECK(kv_tune_settings_text(&second, &again.settings, &again.err) == KV_OK, "text");
    CHECK_TEXT(second.data, expected);
    kv_text_free(&text), kv_text_free(&second);
    finish(&b), finish(&again);
    kv_key_description key;
    size_t n = 0;
    while (kv_tune_describe_key(&key, n)) n++;
    CHECK(n == 14, "%zu keys", n);
}

int main(void)
{
    test_cache();
    test_settings_errors();
    test_settings_text();
    test_create_errors();
    test_truth();
    test_planted();
    test_budgets();
    test_baselines();
    test_same();
    return check_done();
}
