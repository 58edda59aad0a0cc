/* Whole sweeps in memory: the published table, what RoPE does to biased and to wide channels (with
 * intervals), decode stacks, and equal bits for any number of threads. */
#include <stdlib.h>

#include "kernels/memory.h"
#include "results/interval.h"
#include "sim/metrics.h"
#include "sim/stack.h"
#include "sim/sweep.h"
#include "tests/check.h"

/* Keeps every unit's values: [units][values_per_unit]. */
typedef struct {
    double *values;
    int64_t per_unit;
} kept;

static bool never(void *context)
{
    (void)context;
    return false;
}

static bool not_done(void *context, int64_t unit)
{
    (void)context, (void)unit;
    return false;
}

static kv_status keep(void *context, int64_t unit, const double *values, kv_error *err)
{
    (void)err;
    const kept *const k = context;
    memcpy(k->values + unit * k->per_unit, values, (size_t)k->per_unit * sizeof *values);
    return KV_OK;
}

/* Runs a configuration; the caller frees the record. NULL after a failed check. */
static kv_record *run(const char *text, int threads)
{
    kv_error err = {0};
    kv_config config = {0};
    kv_config_sources const sources = {0};
    kv_sweep *sweep = NULL;
    const kv_backend *backend = NULL;
    kv_record *record = NULL;
    kept k = {0};
    kv_status status = kv_config_read(&config, text, strlen(text), "test", &sources, &err);
    if (status == KV_OK) status = kv_sweep_create(&sweep, &config, &err);
    if (status == KV_OK) status = kv_backend_find(&backend, "cpu", &err);
    if (status == KV_OK) {
        k.per_unit = kv_sweep_values_per_unit(sweep);
        status = kv_allocate3((void **)&k.values, (size_t)kv_sweep_units(sweep), (size_t)k.per_unit,
                              1, sizeof *k.values, &err);
    }
    kv_sweep_sink const sink = {&k, not_done, keep, never};
    if (status == KV_OK) status = kv_sweep_run(sweep, backend, threads, &sink, &err);
    if (status == KV_OK) status = kv_sweep_record(&record, sweep, k.values, &err);
    CHECK(status == KV_OK, "%s", err.message);
    kv_free(k.values);
    kv_sweep_free(sweep);
    kv_config_free_contents(&config);
    return record;
}

static const char published[] =
    "kvant: 1\n"
    "heads: {generator: numpy-pcg64, seeds: [0], tokens: 4096, head_dim: 128,\n"
    "  queries: 1, outliers: {channels: [7, 23, 88], scale: 20}, rope: none}\n"
    "schemes:\n"
    "  - {name: a, key: int8/tensor, value: int8/tensor}\n"
    "  - {name: b, key: int8/channel, value: int8/token}\n"
    "  - {name: c, key: f32, value: int8/token}\n"
    "  - {name: d, key: int8/tensor, value: f32}\n"
    "metrics: [out_err, logit_err_max, key_absmax_over_median]\n";

/* The article's table, to every printed digit. */
static void published_table(void)
{
    static const double out_err[] = {0.1049, 0.0192, 0.0070, 0.1044};
    static const double logit_err[] = {0.862, 0.099, 0.000, 0.862};
    kv_record *const record = run(published, 2);
    if (!record) return;
    const kv_array *const out = kv_record_array(record, "out_err");
    const kv_array *const logit = kv_record_array(record, "logit_err_max");
    const kv_array *const ratio = kv_record_array(record, "key_absmax_over_median");
    for (int s = 0; s < 4; s++) {
        CHECK(fabs(out->numbers[s] - out_err[s]) < 0.5e-4, "scheme %d: %g", s, out->numbers[s]);
        CHECK(fabs(logit->numbers[s] - logit_err[s]) < 0.5e-3, "scheme %d: %g", s,
              logit->numbers[s]);
    }
    CHECK(logit->numbers[2] == 0, "an exact key has no logit error, not even rounding");
    CHECK(fabs(ratio->numbers[0] - 129.65) < 0.005, "%g", ratio->numbers[0]);
    kv_record_free(record);
}

enum { SEEDS = 16 };

/* out_err of the schemes pre and post-RoPE over 16 heads with the given outliers: the paired 95 %
 * interval of post - pre, relative to post. */
static kv_interval post_minus_pre(const char *outliers)
{
    char text[1024];
    kv_interval result = {0};
    snprintf(text, sizeof text,
             "kvant: 1\n"
             "heads: {seeds: %d, tokens: 2048, head_dim: 128, queries: 8, outliers: {%s},\n"
             "  rope: {layout: half, base: 10000, training_length: 2048}}\n"
             "schemes:\n"
             "  - {name: post, key: \"int3/channel:zero\", value: f32}\n"
             "  - {name: pre, key: \"int3/channel:zero:pre-rope\", value: f32}\n"
             "metrics: [out_err]\n",
             SEEDS, outliers);
    kv_record *const record = run(text, 2);
    if (!record) return result;
    const double *const x = kv_record_array(record, "out_err")->numbers;
    double a[SEEDS], b[SEEDS];
    for (int i = 0; i < SEEDS; i++) a[i] = 1, b[i] = x[SEEDS + i] / x[i];
    result = kv_interval_of_difference(a, b, SEEDS);
    kv_record_free(record);
    return result;
}

static void rope_positions(void)
{
    kv_interval const biased = post_minus_pre("count: 3, placement: rope-low, scale: 1, bias: 30");
    CHECK(biased.n == SEEDS && biased.low > 0.2, "biased: gain %g, from %g to %g", biased.mean,
          biased.low, biased.high);
    kv_interval const wide = post_minus_pre("count: 3, placement: rope-low, scale: 13");
    CHECK(wide.low < 0 && wide.high > 0, "wide: gain %g, from %g to %g", wide.mean, wide.low,
          wide.high);
    printf("pre-RoPE gain: biased %.3f [%.3f, %.3f], wide %.3f [%.3f, %.3f]\n", biased.mean,
           biased.low, biased.high, wide.mean, wide.low, wide.high);
}

/* Many units, one unit of several heads, one unit of one head: each way threads are spread. */
static void threads_change_nothing(void)
{
    static const char *const shapes[] = {"seeds: 6, kv_heads: 2, query_heads: 4",
                                         "seeds: 1, kv_heads: 5", "seeds: 1"};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "kvant: 1\n"
                 "heads: {%s, tokens: 301, head_dim: 64, queries: 5, layers: 1,\n"
                 "  outliers: {count: 2, scale: 20}, rope: {layout: interleaved}}\n"
                 "schemes:\n"
                 "  keys: [int8/tensor, int4/channel:zero, int2/32x1:zero:flush=32, q4_0, f32]\n"
                 "  values: [int8/tensor, int4/token-all:zero, e4m3/head, f32]\n"
                 "metrics: [out_err, logit_err_max, attn_kl, bits, stack_err, stack_err_layer]\n",
                 shapes[i]);
        kv_record *const one = run(text, 1);
        for (int threads = 2; one && threads <= 5; threads += 3) {
            kv_record *const more = run(text, threads);
            for (int a = 0; more && a < one->n_arrays; a++)
                CHECK(!one->arrays[a].numbers ||
                          memcmp(one->arrays[a].numbers, more->arrays[a].numbers,
                                 (size_t)one->arrays[a].count * sizeof(double)) == 0,
                      "%s: %s with %d threads", shapes[i], one->arrays[a].name, threads);
            kv_record_free(more);
        }
        kv_record_free(one);
    }
}

/* ---- schemes that differ between layers ---- */

enum { LAYERS = 4, HEADS = 2, UNIFORM = 3 };

#define LAYERED_HEADS                                                                              \
    "kvant: 1\n"                                                                                   \
    "heads: {seeds: 3, tokens: 200, head_dim: 64, queries: 4, layers: 4, kv_heads: 2,\n"           \
    "  outliers: {count: 2, scale: 20}, rope: {layout: half}, query.classes: {local: 1, needle: "  \
    "1},\n  profile: [{layers: [1, 3], window: 50, outliers.scale: 3}]}\n"                         \
    "metrics: all\n"
#define UNIFORM_SCHEMES                                                                            \
    "  - {name: a, key: int8/channel, value: \"int4/token:zero\"}\n"                               \
    "  - {name: b, key: \"int2/32x1:zero:flush=32\", value: q4_0}\n"                               \
    "  - {name: c, key: e4m3/tensor, value: f16}\n"

static const char policy_text[] =
    "kvant_policy: 1\n"
    "title: tuned\n"
    "layers:\n"
    "  - {layer: 3, key: e4m3/tensor, value: q4_0}\n" /* c's key with b's value */
    "  - {layer: 0, key: \"int2/32x1:zero:flush=32\", value: q4_0}\n"
    "  - {layer: 1, key: int8/channel, value: \"int4/token:zero\"}\n"
    "  - {layer: 2, key: int2/32x1:zero:flush=32, value: q4_0}\n"
    "  - {layer: 9, key: f16, value: f16}\n";

/* Which uniform scheme gives the policy's numbers at each layer; the last one has both of "d". */
static const int64_t same_as[LAYERS] = {1, 0, 1, 3};

/* Has a scheme and a layer, and no memory of the layers before. */
static int is_local(const kv_record *record, const kv_array *a)
{
    return strcmp(record->dimensions[a->dimensions[0]].name, "scheme") == 0 && a->rank > 1 &&
           strcmp(record->dimensions[a->dimensions[1]].name, "layer") == 0 &&
           strncmp(a->name, "stack", 5) != 0;
}

/* Values of one layer of [scheme][layer][...] or [scheme][layer][seed]. */
static const double *at_layer(const kv_array *a, int64_t schemes, int64_t scheme, int64_t layer)
{
    return a->numbers + (scheme * LAYERS + layer) * (a->count / schemes / LAYERS);
}

/* A policy's sweep equals bit for bit, layer by layer, what uniform schemes give there, whether it
 * is alone, beside them, or read back from an effective configuration after its file is gone. */
static void layers_equal_uniform(void)
{
    char path[] = "/tmp/kvant_test_sweep_XXXXXX", alone[2048], beside[2048];
    int const descriptor = mkstemp(path);
    FILE *const file = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
    CHECK(file, "no file");
    if (!file) return;
    fputs(policy_text, file), fclose(file);
    snprintf(alone, sizeof alone, LAYERED_HEADS "schemes:\n  - {policy: %s}\n", path);
    snprintf(beside, sizeof beside,
             LAYERED_HEADS "schemes:\n" UNIFORM_SCHEMES "  - {name: mine, policy: %s}\n", path);
    kv_record *const uniform = run(LAYERED_HEADS "schemes:\n" UNIFORM_SCHEMES
                                                 "  - {name: d, key: e4m3/tensor, value: q4_0}\n",
                                   2);
    kv_record *const records[] = {run(alone, 1), run(beside, 3)};
    kv_config config = {0};
    kv_error err = {0};
    char *text = NULL;
    CHECK(kv_config_read(&config, alone, strlen(alone), "c", NULL, &err) == KV_OK &&
              kv_config_text(&text, &config, &err) == KV_OK,
          "%s", err.message);
    remove(path);
    kv_record *const again = text ? run(text, 2) : NULL;
    for (int r = 0; r < 3 && uniform; r++) {
        const kv_record *const record = r == 2 ? again : records[r];
        int64_t const n = r == 1 ? UNIFORM + 1 : 1;
        int compared = 0;
        for (int a = 0; record && a < uniform->n_arrays; a++) {
            const kv_array *const u = &uniform->arrays[a];
            const kv_array *const p = kv_record_array(record, u->name);
            if (!u->numbers || !p || !is_local(uniform, u)) continue;
            CHECK(u->count / (UNIFORM + 1) == p->count / n, "%s", u->name);
            for (int64_t layer = 0; layer < LAYERS; layer++)
                CHECK(memcmp(at_layer(u, UNIFORM + 1, same_as[layer], layer),
                             at_layer(p, n, n - 1, layer),
                             (size_t)(u->count / (UNIFORM + 1) / LAYERS) * sizeof(double)) == 0,
                      "%s: layer %d differs from its uniform scheme (%d)", u->name, (int)layer, r);
            compared++;
        }
        CHECK(compared > 10, "%d arrays compared", compared);
    }
    for (int r = 0; r < 2; r++) kv_record_free(records[r]);
    kv_record_free(again), kv_record_free(uniform);
    kv_free(text);
    kv_config_free_contents(&config);
}

static const char stacked[] =
    "kvant: 1\n"
    "heads: {seeds: [3, 8], tokens: 60, head_dim: 16, kv_heads: 2, layers: 3, rope: half,\n"
    "  stack: {gain: 0.7, streams: 2}, profile: [{layers: 1, window: 20}]}\n"
    "schemes: [f32, {name: plain, key: int4/token, value: int4/token}, {name: mixed, key: "
    "int8/channel, value: int4/token:zero}]\n"
    "sweep: {heads.query.gain: [1, 2]}\n"
    "baseline: plain\n"
    "metrics: [%s]\n";

static kv_record *run_stacked(const char *metrics, int threads)
{
    char text[1024];
    snprintf(text, sizeof text, stacked, metrics);
    return run(text, threads);
}

/* What a sweep says of a decode stack is what the stack says, whatever else is measured. */
static void stacks_in_sweeps(void)
{
    enum { SCHEMES = 3, POINTS = 2, DEPTH = 3, STACK_SEEDS = 2 };
    kv_error err = {0};
    kv_config config = {0};
    char text[1024];
    snprintf(text, sizeof text, stacked, "bits");
    kv_record *const record = run_stacked("stack_err_layer, out_err, stack_err, bits", 2);
    kv_record *const alone = run_stacked("stack_err", 1);
    kv_status status =
        kv_config_read(&config, text, strlen(text), "test", &(kv_config_sources){0}, &err);
    CHECK(status == KV_OK, "%s", err.message);
    if (!record || !alone || status != KV_OK) return;
    const kv_array *const end = kv_record_array(record, "stack_err");
    const kv_array *const growth = kv_record_array(record, "stack_err_layer");
    CHECK(end->rank == 3 && growth->rank == 4, "scheme, gain, seed, and layer before seed");
    CHECK(memcmp(end->numbers, kv_record_array(alone, "stack_err")->numbers,
                 (size_t)end->count * sizeof(double)) == 0,
          "stack_err alone");
    CHECK(kv_record_array(record, "stack_err_layer_vs_baseline")->rank == 4, "paired differences");
    const kv_array *const local = kv_record_array(record, "out_err");
    CHECK(local->numbers[local->count - 1] > 0, "a metric of layers beside it");
    kv_quantizer keys[SCHEMES], values[SCHEMES];
    int32_t assignment[SCHEMES * DEPTH][2];
    for (int32_t i = 0; i < SCHEMES; i++) {
        kv_scheme_pair const pair = kv_scheme_at(&config.schemes[i], 0);
        keys[i] = *pair.key, values[i] = *pair.value;
        for (int l = 0; l < DEPTH; l++)
            assignment[i * DEPTH + l][0] = assignment[i * DEPTH + l][1] = i ? i : -1;
    }
    kv_stack_runs const runs = {.n_keys = SCHEMES,
                                .n_values = SCHEMES,
                                .keys = keys,
                                .values = values,
                                .n_runs = SCHEMES,
                                .assignment = (const int32_t(*)[2])assignment};
    kv_stack_environment environment = {.threads = 1};
    status = kv_backend_find(&environment.backend, "cpu", &err);
    for (int64_t point = 0; status == KV_OK && point < POINTS; point++) {
        kv_stack *stack = NULL;
        status = kv_stack_create(&stack, &config, &point, 2, &err);
        for (int64_t seed = 0; status == KV_OK && seed < STACK_SEEDS; seed++) {
            kv_stack_measured m = {0};
            status = kv_stack_run(&m, stack, seed ? 8 : 3, &runs, &environment, &err);
            for (int64_t i = 0; status == KV_OK && i < SCHEMES * DEPTH; i++) {
                int64_t const scheme = i / DEPTH, layer = i % DEPTH, at = scheme * POINTS + point;
                double const expected = sqrt(m.err_square[i] / m.square[layer]);
                double const found = growth->numbers[(at * DEPTH + layer) * STACK_SEEDS + seed];
                CHECK(found == expected && (scheme == 0) == (found == 0),
                      "scheme %d, point %d, layer %d, seed %d: %g, expected %g", (int)scheme,
                      (int)point, (int)layer, (int)seed, found, expected);
                if (layer == DEPTH - 1)
                    CHECK(end->numbers[at * STACK_SEEDS + seed] == found, "the end");
            }
            kv_stack_measured_free_contents(&m);
        }
        kv_stack_free(stack);
    }
    CHECK(status == KV_OK, "%s", err.message);
    kv_record_free(record), kv_record_free(alone);
    kv_config_free_contents(&config);
}

/* A stack costs a run of all layers and fits not every model: it is asked for by name. */
static void all_leaves_stacks_out(void)
{
    kv_record *const record =
        run("kvant: 1\nheads: {tokens: 9, head_dim: 5}\nschemes: [int8/token]\n"
            "metrics: all\n",
            1);
    if (!record) return;
    for (size_t i = 0; kv_metric_at(i); i++)
        CHECK(!kv_record_array(record, kv_metric_at(i)->name) ==
                  kv_scope_is_stack(kv_metric_at(i)->scope),
              "%s", kv_metric_at(i)->name);
    kv_record_free(record);
}

/* Stack units are counted where they are asked for, and refuse what cannot be stacked. */
static void stack_units(void)
{
    static const struct {
        const char *metrics, *set;
        int64_t units, values;
    } cases[] = {
        {"bits, out_err", "", 12, 9},
        {"stack_err", "", 4, 3},
        {"stack_err, stack_err_layer", "", 4, 12},
        {"bits, stack_err", "", 16, 3},
        {"out_err, stack_err_layer", "", 16, 9},
        {"bits", "heads.profile=[{layers: 2, head_dim: 8}]", 12, 3},
        {"stack_err", "heads.profile=[{layers: 2, head_dim: 8}]", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        kv_error err = {0};
        kv_config config = {0};
        kv_sweep *sweep = NULL;
        kv_config_sources const sources = {.sets = &cases[i].set, .n_sets = *cases[i].set != 0};
        snprintf(text, sizeof text, stacked, cases[i].metrics);
        kv_status status = kv_config_read(&config, text, strlen(text), "test", &sources, &err);
        CHECK(status == KV_OK, "%s", err.message);
        status = kv_sweep_create(&sweep, &config, &err);
        CHECK(status == (cases[i].units ? KV_OK : KV_EREQUEST), "%s %s: %s", cases[i].metrics,
              cases[i].set, err.message);
        if (status == KV_OK)
            CHECK(kv_sweep_units(sweep) == cases[i].units &&
                      kv_sweep_values_per_unit(sweep) == cases[i].values &&
                      kv_sweep_estimate(sweep).flops > 0,
                  "%s: %d units of %d values", cases[i].metrics, (int)kv_sweep_units(sweep),
                  (int)kv_sweep_values_per_unit(sweep));
        else
            CHECK_TEXT(err.message,
                       "heads: a decode stack needs the same query_heads * head_dim in all layers; "
                       "layer 2 has 2 * 8 = 16, layer 0 has 32");
        kv_sweep_free(sweep);
        kv_config_free_contents(&config);
    }
}

int main(void)
{
    layers_equal_uniform();
    published_table();
    rope_positions();
    threads_change_nothing();
    stacks_in_sweeps();
    all_leaves_stacks_out();
    stack_units();
    return check_done();
}
