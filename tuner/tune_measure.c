/* Stack runs for a tuning: looked up by content, the missing ones run in passes.
 *
 * A pass is one call of kv_stack_run: it makes every layer's keys and values once and takes many
 * assignments through them. Passes are sized to about PASS_S, by a line fitted to those made, so
 * that progress moves and a stop loses little; how runs are spread over passes changes no number.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "kernels/memory.h"
#include "tuner/tune_state.h"

#define PASS_S 20.0
enum { VALUES = 1, PASS_BYTES = 512 << 20, BYTES_PER_NUMBER = 16 };

double kv_tune_now_s(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool kv_tune_is_cancelled(void *tuning)
{
    const kv_tuning *const t = tuning;
    if (t->deadline_s > 0 && kv_tune_now_s() >= t->deadline_s) return true;
    return t->environment.is_cancelled && t->environment.is_cancelled(t->environment.context);
}

kv_status kv_tune_check_cancelled(kv_tuning *t, kv_error *err)
{
    if (!kv_tune_is_cancelled(t)) return KV_OK;
    return KV_FAIL(err, KV_EINTERRUPTED, "stopped before the tuning was finished");
}

/* ---- pace and progress ---- */

/* A cautious first guess, 5 s and 20 GFLOP/s, weighs as two passes of little work. */
static void fit_pace(double *fixed, double *each, const kv_tune_pace *p)
{
    double const x = 1e10, n = p->n + 2, s = p->flops + x, y = p->seconds + 10.5;
    double const ss = p->flops_square + x * x, sy = p->flops_seconds + x * 5.5;
    double const spread = n * ss - s * s;
    *each = spread > 0 ? (n * sy - s * y) / spread : 5e-11;
    if (!(*each > 1e-13)) *each = 1e-13;
    *fixed = (y - *each * s) / n;
    if (!(*fixed > 0)) *fixed = 0;
}

static void note_pass(kv_tune_pace *p, double flops, double seconds)
{
    p->n += 1, p->flops += flops, p->seconds += seconds;
    p->flops_square += flops * flops, p->flops_seconds += flops * seconds;
}

void kv_tune_set_task(kv_tuning *t, const char *task)
{
    t->task = task;
    t->task_flops = t->done_flops = t->pass_flops = 0;
    if (t->environment.progress) t->environment.progress(t->environment.context, task, 0, NAN);
}

static void show_progress(kv_tuning *t)
{
    double fixed, each;
    if (!t->environment.progress || !(t->task_flops > 0)) return;
    double const within = (double)t->pass_layer / (double)t->layers;
    double const done = t->done_flops + within * t->pass_flops;
    double const left = fmax(t->task_flops - done, 0); /* more than expected may have been done */
    fit_pace(&fixed, &each, &t->pace);
    double const passes = t->pass_flops > 0 ? left / t->pass_flops : 1;
    t->environment.progress(t->environment.context, t->task, fmin(done / t->task_flops, 1),
                            passes * fixed + left * each);
}

static void on_layer(void *tuning)
{
    kv_tuning *const t = tuning;
    t->pass_layer++;
    show_progress(t);
}

/* ---- keys ---- */

static kv_status key_of(uint8_t key[KV_CACHE_KEY], const kv_tuning *t, const kv_tune_batch *b,
                        int64_t run, int64_t seed, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text text = {0};
    int64_t const end = b->is_local ? b->last[run] + 1 : t->layers;
    KV_TRY(kv_text_add(&text, err, "%s%s seed %" PRId64 "\n", t->identity,
                       b->is_local ? "local" : "end", seed));
    for (int64_t l = 0; l < end; l++) {
        const int32_t *const pair = b->assignment[run * t->layers + l];
        KV_TRY(kv_text_add(&text, err, "%s | %s\n", pair[0] < 0 ? "exact" : t->keys.texts[pair[0]],
                           pair[1] < 0 ? "exact" : t->values.texts[pair[1]]));
    }
    kv_cache_key(key, text.data);
done:
    kv_text_free(&text);
    return status;
}

/* ---- passes ---- */

typedef struct {
    kv_tuning *t;
    const kv_tune_batch *batch;
    int64_t seed;
    int64_t n;                    /* missing runs */
    int64_t *run;                 /* [n] their numbers in the batch */
    uint8_t (*key)[KV_CACHE_KEY]; /* [n] */
    int32_t (*assignment)[2];     /* [n][L] */
    int64_t *last;                /* [n] */
} missing;

static kv_stack_runs runs_of(const missing *m, int64_t first, int64_t n)
{
    const kv_tuning *const t = m->t;
    return (kv_stack_runs){.n_keys = t->keys.n,
                           .n_values = t->values.n,
                           .keys = t->keys.quantizers,
                           .values = t->values.quantizers,
                           .n_runs = n,
                           .assignment = (const int32_t(*)[2])m->assignment + first * t->layers,
                           .last = m->last + first};
}

/* 0 where there is no memory to find out: it is but for pace and progress. */
static double flops_of(const missing *m, int64_t first, int64_t n)
{
    kv_stack_runs const runs = runs_of(m, first, n);
    double const flops = kv_stack_flops(m->t->stack, &runs);
    return isnan(flops) ? 0 : flops;
}

/* Within a time limit several passes should end: what a pass measured is lost when it is stopped.
 */
static double longest_pass_s(const kv_tuning *t)
{
    double const limit = t->environment.time_limit;
    return limit > 0 && limit < 4 * PASS_S ? limit / 4 : PASS_S;
}

/* How many of the missing runs from `first` on make the next pass: all, or the largest half, third
 * ... that takes no longer than that. */
static int64_t pass_size(double *flops, const missing *m, int64_t first)
{
    double fixed, each;
    int64_t n = m->n - first, parts = 1;
    int64_t const streams = m->t->settings->streams;
    int64_t const width = m->t->geometry[0].query_heads * m->t->geometry[0].head_dim;
    fit_pace(&fixed, &each, &m->t->pace);
    for (;; parts++) {
        int64_t const size = (n + parts - 1) / parts;
        *flops = flops_of(m, first, size);
        bool const fits = (double)size * (double)(streams * width) * BYTES_PER_NUMBER < PASS_BYTES;
        if (size == 1 || (fits && !(*flops * each > longest_pass_s(m->t)))) return size;
    }
}

static kv_status run_pass(double *power, const missing *m, int64_t first, int64_t n, kv_error *err)
{
    kv_status status = KV_OK;
    kv_tuning *const t = m->t;
    int64_t const layers = t->layers, n_seeds = m->batch->n_seeds;
    kv_stack_measured measured = {0};
    kv_stack_runs const runs = runs_of(m, first, n);
    kv_stack_environment const environment = {.backend = t->environment.backend,
                                              .threads = t->environment.threads,
                                              .is_cancelled = kv_tune_is_cancelled,
                                              .on_layer = on_layer,
                                              .context = t,
                                              .pulls = t->pulls};
    t->pass_layer = 0;
    t->pass_start_s = kv_tune_now_s();
    KV_TRY(kv_stack_run(&measured, t->stack, m->seed, &runs, &environment, err));
    note_pass(&t->pace, t->pass_flops, kv_tune_now_s() - t->pass_start_s);
    t->done_flops += t->pass_flops;
    for (int64_t i = 0; i < n; i++) {
        int64_t const r = m->run[first + i], last = m->last[first + i];
        double const change = m->batch->is_local ? measured.output_err_square[i * layers + last]
                                                 : measured.err_square[i * layers + last];
        double const whole =
            m->batch->is_local ? measured.output_square[last] : measured.square[last];
        double const found = whole > 0 ? change / whole : change > 0 ? INFINITY : 0;
        power[r * n_seeds] = found;
        KV_TRY(kv_cache_put(t->cache, m->key[first + i], &found, VALUES, err));
    }
done:
    kv_stack_measured_free_contents(&measured);
    return status;
}

/* A run as a part of a full one: only what differs from the exact run costs. */
static kv_status count_run(const missing *m, int64_t run, const uint8_t *key, kv_error *err)
{
    kv_tuning *const t = m->t;
    const kv_tune_batch *const b = m->batch;
    double mark = 0;
    if (kv_cache_get(&mark, t->asked, key, 1)) return KV_OK;
    int64_t first = 0;
    int64_t const end = b->is_local ? b->last[run] + 1 : t->layers;
    const int32_t(*const pair)[2] = b->assignment + run * t->layers;
    while (first < end && pair[first][0] < 0 && pair[first][1] < 0) first++;
    t->equivalents += (double)(end - first) / (double)t->layers;
    t->runs++;
    return kv_cache_put(t->asked, key, &mark, 1, err);
}

/* Fills from the cache what it has; the rest is listed. power: the seed's column. */
static kv_status look_up(double *power, missing *m, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_tune_batch *const b = m->batch;
    const kv_tuning *const t = m->t;
    void *run = NULL, *key = NULL, *assignment = NULL, *last = NULL;
    KV_TRY(kv_allocate(&run, (size_t)b->n, sizeof *m->run, err));
    m->run = run;
    KV_TRY(kv_allocate(&key, (size_t)b->n, sizeof *m->key, err));
    m->key = key;
    KV_TRY(
        kv_allocate3(&assignment, (size_t)b->n, (size_t)t->layers, 1, sizeof *m->assignment, err));
    m->assignment = assignment;
    KV_TRY(kv_allocate(&last, (size_t)b->n, sizeof *m->last, err));
    m->last = last;
    for (int64_t r = 0; r < b->n; r++) {
        KV_TRY(key_of(m->key[m->n], t, b, r, m->seed, err));
        KV_TRY(count_run(m, r, m->key[m->n], err));
        if (kv_cache_get(&power[r * b->n_seeds], t->cache, m->key[m->n], VALUES)) continue;
        m->run[m->n] = r;
        m->last[m->n] = b->is_local ? b->last[r] : t->layers - 1;
        memcpy(m->assignment + m->n * t->layers, b->assignment + r * t->layers,
               (size_t)t->layers * sizeof *m->assignment);
        m->n++;
    }
done:
    return status;
}

static void free_missing(missing *m)
{
    kv_free(m->run), kv_free(m->key), kv_free(m->assignment), kv_free(m->last);
    m->run = NULL, m->key = NULL, m->assignment = NULL, m->last = NULL;
}

kv_status kv_tune_measure(double *power, kv_tuning *t, const kv_tune_batch *b, kv_error *err)
{
    kv_status status = KV_OK;
    missing m = {.t = t, .batch = b};
    for (int64_t s = 0; s < b->n_seeds; s++) {
        free_missing(&m);
        m.seed = b->seeds[s], m.n = 0;
        KV_TRY(look_up(power + s, &m, err));
        if (!m.n) continue;
        KV_TRY(kv_tune_check_cancelled(t, err));
        double const lacking = flops_of(&m, 0, m.n);
        if (t->task_flops < t->done_flops + lacking) /* the other seeds lack about the same */
            t->task_flops = t->done_flops + (double)(b->n_seeds - s) * lacking;
        for (int64_t first = 0, n; first < m.n; first += n) {
            n = pass_size(&t->pass_flops, &m, first);
            KV_TRY(run_pass(power + s, &m, first, n, err));
        }
    }
done:
    free_missing(&m);
    return status;
}

kv_status kv_tune_measure_search(double *power, kv_tuning *t, int64_t n,
                                 const int32_t (*assignment)[2], kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL;
    KV_TRY(kv_allocate3(&memory, (size_t)n, (size_t)t->n_search, 1, sizeof *power, err));
    const double *const all = memory;
    kv_tune_batch const batch = {
        .n = n, .assignment = assignment, .n_seeds = t->n_search, .seeds = t->search_seeds};
    KV_TRY(kv_tune_measure(memory, t, &batch, err));
    for (int64_t r = 0; r < n; r++) {
        double sum = 0;
        for (int64_t s = 0; s < t->n_search; s++) sum += all[r * t->n_search + s];
        power[r] = sum / (double)t->n_search;
    }
done:
    kv_free(memory);
    return status;
}
