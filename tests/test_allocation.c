/* Every allocation of the main path fails once: reading a configuration, making the sweep, running
 * its units, the record, provenance, the store, reading it back, the table. Each failure must come
 * out as KV_ENOMEM with a message, and (with AddressSanitizer) leak nothing.
 *
 * Up to TRIED of a configuration's allocations are tried, evenly spread; with the argument `all`
 * every one (minutes). */
#include <stdlib.h>
#include <unistd.h>

#include "kernels/memory.h"
#include "results/provenance.h"
#include "results/run.h"
#include "results/store.h"
#include "results/table.h"
#include "sim/sweep.h"
#include "tests/check.h"

enum { MAX_ALLOCATIONS = 100000, TRIED = 250 };

/* Between them: every stage, a preset, a profile, axes of numbers and of texts, all classes of
 * queries, sinks, a baseline. */
static const char *const configs[] = {
    "kvant: 1\n"
    "title: small\n"
    "heads: {tokens: 24, head_dim: 32, queries: 3, kv_heads: 2, query_heads: 4, layers: 2,\n"
    "        outliers: {count: 2, placement: rope-low, scale: 5}, rope: {layout: half},\n"
    "        profile: [{layers: 1, outliers.scale: 3}]}\n"
    "schemes:\n"
    "  - kivi-2\n"
    "  - {name: base, key: 'int4/32x1:zero:pre-rope:smooth:scale=f16', value: 'int4/token:mse'}\n"
    "  - {name: b, key: 'int8/channel:static=seed:2:center', value: 'int8/tensor:percentile=99'}\n"
    "  - {name: c, key: 'q4_0:hadamard:window=2:sinks=1', value: 'int2/token:outliers=5'}\n"
    "baseline: base\n"
    "metrics: all\n"
    "sweep: {heads.rope.layout: [half, interleaved]}\n",
    "kvant: 1\n"
    "heads: {generator: torch-mt19937, tokens: 16, head_dim: 8, queries: 8,\n"
    "        query: {classes: {isotropic: 1, local: 1, needle: 1}}, sinks: {count: 1, mass: 0.3}}\n"
    "schemes: {keys: [int8/token, f16], values: [e4m3/tensor, int8/1x4]}\n"
    "sweep: {heads.outliers.channels: [[], [1, 2]]}\n",
    "kvant: 1\n"
    "heads: {generator: numpy-pcg64, seeds: 2, tokens: 8, head_dim: 4}\n"
    "schemes: [int8/token]\n"
    "metrics: [out_err, stack_err]\n",
    "kvant: 1\n" /* wrong on purpose: what reports mistakes allocates too */
    "model: llama\n"
    "heads: {tokens: 4abc, seeds: [1, 1]}\n"
    "schemes: [kivi-3, int8/tokne]\n",
};
enum { N_CONFIGS = sizeof configs / sizeof configs[0] };

static const char *const dirs[] = {KVANT_SOURCE_DIR "/configs"};

static bool never(void *context)
{
    (void)context;
    return false;
}

static bool is_done(void *context, int64_t unit)
{
    return kv_run_is_done(context, unit);
}

static kv_status put(void *context, int64_t unit, const double *values, kv_error *err)
{
    return kv_run_put(context, unit, values, err);
}

static kv_status finish(const char *path, const kv_sweep *sweep, kv_run *run, char *text,
                        kv_error *err)
{
    kv_status status = KV_OK;
    kv_record *record = NULL, *back = NULL;
    double *all = NULL;
    FILE *const nowhere = fopen("/dev/null", "w");
    kv_provenance provenance = {.title = "t",
                                .config_text = text,
                                .backend = "cpu",
                                .device = "cpu",
                                .seeds = "0",
                                .generator = "g"};
    kv_provenance_start(&provenance);
    KV_TRY(kv_allocate3((void **)&all, (size_t)kv_sweep_units(sweep),
                        (size_t)kv_sweep_values_per_unit(sweep), 1, sizeof *all, err));
    KV_TRY(kv_run_collect(all, run, err));
    KV_TRY(kv_sweep_record(&record, sweep, all, err));
    KV_TRY(kv_provenance_add(record, &provenance, err));
    KV_TRY(kv_store_write(path, record, err));
    KV_TRY(kv_store_read(&back, path, err));
    KV_TRY(kv_table_write_summary(nowhere, back, err));
    KV_TRY(kv_table_write(nowhere, back, &(kv_table_request){0}, err));
    KV_TRY(kv_run_finish(run, err));
done:
    if (nowhere) fclose(nowhere);
    kv_free(all);
    kv_record_free(record);
    kv_record_free(back);
    return status;
}

/* What `kvant sweep` does, with one thread. */
static kv_status sweep_once(const char *config_text, const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    kv_config config = {0};
    kv_config_sources const sources = {.data_dirs = dirs, .n_data_dirs = 1};
    kv_sweep *sweep = NULL;
    kv_run *run = NULL;
    const kv_backend *backend = NULL;
    char *text = NULL;
    KV_TRY(kv_backend_find(&backend, "cpu", err));
    KV_TRY(kv_config_read(&config, config_text, strlen(config_text), "test", &sources, err));
    KV_TRY(kv_config_text(&text, &config, err));
    KV_TRY(kv_sweep_create(&sweep, &config, err));
    KV_TRY(kv_run_open(&run,
                       &(kv_run_spec){.final_path = path,
                                      .identity = text,
                                      .n_units = kv_sweep_units(sweep),
                                      .values_per_unit = kv_sweep_values_per_unit(sweep)},
                       err));
    kv_sweep_sink const sink = {run, is_done, put, never};
    KV_TRY(kv_sweep_run(sweep, backend, 1, &sink, err));
    KV_TRY(finish(path, sweep, run, text, err));
done:
    kv_free(text);
    kv_run_close(run);
    kv_sweep_free(sweep);
    kv_config_free_contents(&config);
    return status;
}

static void clean(const char *path)
{
    char log[256];
    snprintf(log, sizeof log, "%s.run", path);
    remove(path);
    remove(log);
}

int main(int argc, char **argv)
{
    bool const is_all = argc > 1 && strcmp(argv[1], "all") == 0;
    char path[64];
    snprintf(path, sizeof path, "test_allocation.%ld.h5", (long)getpid());
    for (int i = 0; i < N_CONFIGS; i++) {
        kv_error first = {0};
        clean(path);
        kv_fail_allocation(-1);
        kv_status const expected = sweep_once(configs[i], path, &first);
        long const n = kv_fail_allocation(-1);
        CHECK(expected == (i == N_CONFIGS - 1 ? KV_EREQUEST : KV_OK), "%s", first.message);
        CHECK(n > 10 && n < MAX_ALLOCATIONS, "%ld allocations", n);
        long const step = is_all || n < TRIED ? 1 : n / TRIED;
        for (long k = 0; k < n && check_failures < 20; k += step) {
            kv_error err = {0};
            clean(path);
            kv_fail_allocation(k);
            kv_status const status = sweep_once(configs[i], path, &err);
            kv_fail_allocation(-1);
            CHECK(status == KV_ENOMEM && err.status == KV_ENOMEM && strstr(err.message, "memory"),
                  "configuration %d, allocation %ld of %ld: status %d: %s", i, k, n, status,
                  err.message);
        }
        printf("configuration %d: %ld allocations, every %ld\n", i, n, step);
        clean(path);
    }
    return check_done();
}
