/* What the tests of the tuner's driver share: a configuration from text, a tuning of it. */
#ifndef KVANT_TESTS_TUNE_BENCH_H
#define KVANT_TESTS_TUNE_BENCH_H

#include <unistd.h>

#include "kernels/memory.h"
#include "tests/check.h"
#include "tuner/tune.h"

#define TWO_KEYS_TWO_VALUES                                                                        \
    "schemes: {keys: [q8_0, 'int3/32x1:zero:scale=f16'], values: [q8_0, "                          \
    "'int3/1x32:zero:scale=f16']}\n"

static const char *const small_heads = "kvant: 1\n"
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

static inline bool is_cancelled(void *context)
{
    bench *const b = context;
    return b->stop_at && ++b->polls >= b->stop_at;
}

static inline void progress(void *context, const char *task, double share, double eta_s)
{
    bench *const b = context;
    CHECK(*task && share >= 0 && share <= 1 + 1e-9 && !(eta_s < 0), "%s %g %g", task, share, eta_s);
    b->n_progress++;
}

static inline bool load(bench *b, const char *yaml, const char *tune)
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

static inline const kv_outcome *run(bench *b, int threads, const char *cache)
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

static inline void finish(bench *b)
{
    kv_tuning_free(b->tuning);
    kv_config_free_contents(&b->config);
    kv_tune_settings_free_contents(&b->settings);
    *b = (bench){0};
}

static inline const kv_outcome *tune(bench *b, const char *yaml, const char *tune_text)
{
    if (!load(b, yaml, tune_text)) {
        CHECK(false, "%s", b->err.message);
        return NULL;
    }
    const kv_outcome *const o = run(b, 1, NULL);
    CHECK(b->status == KV_OK, "%s", b->err.message);
    return b->status == KV_OK ? o : NULL;
}

/* A file of this process. */
static inline void path_of(char path[128], const char *name)
{
    snprintf(path, 128, "kvant_tune.%ld.%s", (long)getpid(), name);
}

#endif
