/* Whole sweeps in memory: the published table, what RoPE does to biased and to wide channels (with
 * intervals), and equal bits for any number of threads. */
#include <stdlib.h>

#include "kernels/memory.h"
#include "results/interval.h"
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
                 "  values: [int8/tensor, int4/token-all:zero, e4m3/head, f32]\n",
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

int main(void)
{
    published_table();
    rope_positions();
    threads_change_nothing();
    return check_done();
}
