/* Benchmarks: see bench.h. Each run of a kernel stands between two short measurements of the limit
 * that bounds it, so that a machine whose speed varies (clock, neighbours) slows both alike; what
 * is reported are medians over the runs. One thread is timed by its own CPU time, which leaves out
 * what other processes take; several by the wall clock. The tensors are plain noise with planted
 * outlier channels; nothing here judges accuracy. */
#include "kernels/bench.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/memory.h"
#include "kernels/shorthand.h"

enum {
    TOKENS = 4096,
    HEAD_DIM = 128,
    QUERIES = 64,
    N_SCHEMES = 9,
    TILE_TOKENS = 256, /* of the products */
    TILE_ROWS = 32,
    PRODUCTS = 100,
    RUNS = 15,
    LARGE_TOKENS = 1 << 16, /* of the tensor in the fitting and decoding rows: 32 MiB */
    TENSOR = LARGE_TOKENS * HEAD_DIM,
    TENSORS = 32,     /* 1 GiB of them, taken in turn: each was evicted from the caches before it
                         recurs,     unless the last-level cache is larger than that */
    READ = 2 * TENSOR /* floats of one measurement of the bandwidth: 64 MiB */
};

/* The keys and values of the pair matrix; the same in tests/bench/pair_matrix.py. */
static const char *const key_texts[N_SCHEMES] = {
    "int8/tensor", "int8/channel",    "int4/channel:zero", "int4/32x1:zero", "int2/32x1:zero",
    "int8/token",  "int4/token:zero", "e4m3/tensor",       "e5m2/tensor"};
static const char *const value_texts[N_SCHEMES] = {
    "int8/tensor",     "int8/token",  "int4/token:zero", "int4/1x32:zero", "int2/1x32:zero",
    "int3/token:zero", "e4m3/tensor", "e5m2/tensor",     "e4m3/token"};

typedef struct {
    kv_bench_row *rows;
    int n_rows, threads;
    const kv_cpu_kernels *kernels;
    float *large; /* [TENSORS][LARGE_TOKENS][HEAD_DIM], alike */
    int next;     /* the tensor that was not read for longest */
    float *small; /* [TILE_TOKENS][HEAD_DIM] decoded */
    float *scratch;
    kv_fit *fit;
} bench;

/* ---- timing ---- */

static double seconds_of(int threads)
{
    struct timespec t;
    if (threads > 1) return omp_get_wtime();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* `count` tensors that are in no cache. */
static const float *next_tensors(bench *b, int count)
{
    if (b->next + count > TENSORS) b->next = 0;
    const float *const x = b->large + (int64_t)b->next * TENSOR;
    b->next += count;
    return x;
}

/* GFLOP/s of register-only multiply-adds on `threads` threads. */
static double fma_rate(bench *b, int threads)
{
    enum { ROUNDS = 1 << 17 };
    double flops = 0;
    double const start = seconds_of(threads);
#pragma omp parallel num_threads(threads) reduction(+ : flops)
    {
        float sink[2 + KV_LANES] = {0.5f, 0.5f};
        flops += b->kernels->burn_fma(sink, ROUNDS);
    }
    return 1e-9 * flops / (seconds_of(threads) - start);
}

/* GB/s of reading memory with `threads` threads. */
static double read_rate(bench *b, int threads)
{
    const float *const x = next_tensors(b, READ / TENSOR);
    double total = 0;
    double const start = seconds_of(threads);
#pragma omp parallel for num_threads(threads) reduction(+ : total)
    for (int i = 0; i < threads; i++) {
        int64_t const from = (int64_t)READ / 128 * i / threads * 128;
        int64_t const to = (int64_t)READ / 128 * (i + 1) / threads * 128;
        total += (double)b->kernels->read_all(x + from, to - from);
    }
    double const seconds = seconds_of(threads) - start;
    b->small[0] = (float)total; /* so that nothing is left out */
    return 4e-9 * READ / seconds;
}

typedef double (*limit)(bench *b, int threads);

static const struct {
    const char *name, *unit;
    limit rate;
} limits[] = {{"fma", "GFLOP/s", fma_rate}, {"bandwidth", "GB/s", read_rate}};
enum { FMA, BANDWIDTH };

static int ascending(const void *a, const void *b)
{
    double const x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double x[RUNS])
{
    qsort(x, RUNS, sizeof x[0], ascending);
    return x[RUNS / 2];
}

static void add_row(bench *b, const char *kernel, const char *shape, int bound, double seconds,
                    double rate, double peak, double fraction)
{
    b->rows[b->n_rows++] = (kv_bench_row){
        kernel, shape, seconds, rate, limits[bound].unit, limits[bound].name, peak, fraction};
}

typedef kv_status (*timed)(bench *b, void *what, kv_error *err);

/* What is measured: `work` is flop or bytes of one run. */
typedef struct {
    const char *name, *shape;
    int bound, threads;
    double work;
    timed run;
    void *what;
} subject;

static kv_status measure(bench *b, const subject *s, kv_error *err)
{
    double times[RUNS], peaks[RUNS], fractions[RUNS];
    kv_status status = s->run(b, s->what, err); /* warms up */
    double before = limits[s->bound].rate(b, s->threads);
    for (int i = 0; i < RUNS && status == KV_OK; i++) {
        double const start = seconds_of(s->threads);
        status = s->run(b, s->what, err);
        times[i] = seconds_of(s->threads) - start;
        double const after = limits[s->bound].rate(b, s->threads);
        peaks[i] = (before + after) / 2, before = after;
        fractions[i] = 1e-9 * s->work / times[i] / peaks[i];
    }
    if (status != KV_OK) return status;
    double const seconds = median(times);
    add_row(b, s->name, s->shape, s->bound, seconds, 1e-9 * s->work / seconds, median(peaks),
            median(fractions));
    return KV_OK;
}

static void measure_limit(bench *b, const char *kernel, const char *shape, int bound, double work,
                          int threads)
{
    double rates[RUNS];
    limits[bound].rate(b, threads);
    for (int i = 0; i < RUNS; i++) rates[i] = limits[bound].rate(b, threads);
    double const rate = median(rates);
    add_row(b, kernel, shape, bound, 1e-9 * work / rate, rate, rate, 1);
}

/* ---- fitting and decoding ---- */

typedef struct {
    const char *text; /* a quantizer */
} named;

static kv_status fit_large(bench *b, void *what, kv_error *err)
{
    kv_status status = KV_OK;
    static const kv_tensor_shape shape = {.heads = 1, .tokens = LARGE_TOKENS, .head_dim = HEAD_DIM};
    kv_quantizer q;
    kv_fit_free(b->fit);
    b->fit = NULL;
    KV_TRY(kv_quantizer_parse(&q, ((const named *)what)->text, false, err));
    KV_TRY(kv_fit_create(&b->fit, &q, &shape, err));
    while (kv_fit_next(b->fit) != KV_FIT_READY) {
        KV_TRY(kv_fit_absorb(b->fit, 0, next_tensors(b, 1), err));
        KV_TRY(kv_fit_end_pass(b->fit, err));
    }
done:
    return status;
}

/* Tiles of 128 tokens as an evaluation decodes them: read from memory, written into a cache. */
static kv_status decode_large(bench *b, void *what, kv_error *err)
{
    enum { TILE = 128 };
    const float *const x = next_tensors(b, 1);
    (void)what, (void)err;
    for (int64_t t = 0; t < LARGE_TOKENS; t += TILE)
        kv_fit_decode(b->fit, 0, x, t, TILE, b->small, b->scratch);
    return KV_OK;
}

static kv_status bench_quantizers(bench *b, kv_error *err)
{
    static const struct {
        const char *name, *text;
    } fits[] = {{"range per channel", "int8/channel"},
                {"range per token", "int4/token:zero"},
                {"range per tensor", "e4m3/tensor"}},
      decodes[] = {{"decode int8/channel", "int8/channel"},
                   {"decode int4/token:zero", "int4/token:zero"},
                   {"decode int2/32x1:zero", "int2/32x1:zero"},
                   {"decode e4m3/tensor", "e4m3/tensor"},
                   {"decode q4_0", "q4_0"},
                   {"decode int4/token:hadamard", "int4/token:hadamard"}};
    kv_status status = KV_OK;
    double const bytes = 4.0 * TENSOR;
    for (size_t i = 0; i < sizeof fits / sizeof fits[0]; i++) {
        named text = {fits[i].text};
        subject const fit = {fits[i].name, "65536x128", BANDWIDTH, 1, bytes, fit_large, &text};
        KV_TRY(measure(b, &fit, err));
    }
    for (size_t i = 0; i < sizeof decodes / sizeof decodes[0]; i++) {
        named text = {decodes[i].text};
        KV_TRY(fit_large(b, &text, err));
        KV_TRY(kv_allocate((void **)&b->scratch, (size_t)kv_fit_scratch_floats(b->fit, 128),
                           sizeof(float), err));
        subject const decode = {decodes[i].name, "65536x128",  BANDWIDTH, 1,
                                bytes,           decode_large, NULL};
        KV_TRY(measure(b, &decode, err));
        kv_free(b->scratch);
        b->scratch = NULL;
    }
done:
    return status;
}

/* ---- products ---- */

static kv_status run_logits(bench *b, void *what, kv_error *err)
{
    (void)what, (void)err;
    for (int i = 0; i < PRODUCTS; i++)
        b->kernels->logits(b->small, b->large, TILE_TOKENS, HEAD_DIM, b->large + (1 << 20),
                           TILE_ROWS, 0.1f);
    return KV_OK;
}

static kv_status run_outputs(bench *b, void *what, kv_error *err)
{
    (void)what, (void)err;
    kv_panels const value = {b->large + (1 << 20), HEAD_DIM / KV_LANES, KV_LANES, HEAD_DIM};
    for (int i = 0; i < PRODUCTS; i++)
        b->kernels->outputs(b->small, HEAD_DIM, b->large, TILE_TOKENS, TILE_ROWS, &value);
    return KV_OK;
}

/* ---- the pair matrix ---- */

typedef struct {
    bench *b;
    kv_layer layer;
    kv_evaluation evaluation;
    kv_measurements *measurements;
} pair_matrix;

static kv_status load(void *context, kv_tensor tensor, int64_t kv_head, int64_t calibration,
                      float *out, kv_error *err)
{
    const bench *const b = context;
    const float *const x = b->large + (tensor == KV_VALUE ? TOKENS * HEAD_DIM : 0);
    (void)kv_head, (void)calibration, (void)err;
    for (int64_t i = 0; i < TOKENS * HEAD_DIM; i++) out[i] = x[i];
    return KV_OK;
}

static kv_status load_query(void *context, int64_t kv_head, float *out, kv_error *err)
{
    const bench *const b = context;
    (void)kv_head, (void)err;
    for (int64_t i = 0; i < QUERIES * HEAD_DIM; i++) out[i] = b->large[i + 2 * TOKENS * HEAD_DIM];
    return KV_OK;
}

static kv_status run_pairs(bench *b, void *what, kv_error *err)
{
    pair_matrix *const m = what;
    return kv_backend_at(0)->evaluate(&m->layer, &m->evaluation, b->threads, m->measurements, err);
}

static kv_status bench_pairs(bench *b, kv_error *err)
{
    kv_status status = KV_OK;
    kv_quantizer keys[N_SCHEMES], values[N_SCHEMES];
    int64_t pairs[N_SCHEMES * N_SCHEMES][2], position[QUERIES];
    pair_matrix m = {.b = b};
    subject matrix = {.name = "pair matrix 9x9",
                      .shape = "4096x128, 64 queries",
                      .bound = FMA,
                      .threads = b->threads,
                      .work =
                          2.0 * QUERIES * TOKENS * HEAD_DIM * (N_SCHEMES + N_SCHEMES * N_SCHEMES),
                      .run = run_pairs,
                      .what = &m};
    for (int i = 0; i < N_SCHEMES; i++) {
        KV_TRY(kv_quantizer_parse(&keys[i], key_texts[i], true, err));
        KV_TRY(kv_quantizer_parse(&values[i], value_texts[i], false, err));
    }
    for (int i = 0; i < N_SCHEMES * N_SCHEMES; i++)
        pairs[i][0] = i / N_SCHEMES, pairs[i][1] = i % N_SCHEMES;
    for (int i = 0; i < QUERIES; i++) position[i] = TOKENS - 1;
    m.layer = (kv_layer){.kv_heads = 1,
                         .query_heads = 1,
                         .tokens = TOKENS,
                         .head_dim = HEAD_DIM,
                         .queries = QUERIES,
                         .softmax_scale = 1 / sqrt((double)HEAD_DIM),
                         .query_position = position,
                         .source = {.context = b, .load = load, .query = load_query}};
    m.evaluation = (kv_evaluation){.n_keys = N_SCHEMES,
                                   .n_values = N_SCHEMES,
                                   .n_pairs = N_SCHEMES * N_SCHEMES,
                                   .keys = keys,
                                   .values = values,
                                   .pairs = (const int64_t(*)[2])pairs,
                                   .want_rows = true};
    KV_TRY(kv_measurements_create(&m.measurements, &m.layer, &m.evaluation, err));
    KV_TRY(measure(b, &matrix, err));
    m.evaluation.want_rows = false; /* neither total variation nor top-k */
    matrix.name = "pair matrix 9x9, no rows";
    KV_TRY(measure(b, &matrix, err));
done:
    kv_measurements_free(m.measurements);
    return status;
}

/* ---- attention of the caller's queries ---- */

enum { ATTEND_EXACT = 512, ATTEND_EACH = 4, ATTEND_HEADS = 4 };
enum { ATTEND_ROWS = ATTEND_EXACT + ATTEND_EACH * 2 * N_SCHEMES };

typedef struct {
    kv_layer layer;
    kv_attention attention;
    float *out;
} decoding;

static kv_status run_attend(bench *b, void *what, kv_error *err)
{
    const decoding *const d = what;
    return kv_backend_at(0)->attend(&d->layer, &d->attention, b->threads, d->out, err);
}

/* A kv head of a decode stack: unquantized rows, and a few that read one quantized key or value. */
static kv_status bench_attend(bench *b, kv_error *err)
{
    kv_status status = KV_OK;
    kv_quantizer keys[N_SCHEMES], values[N_SCHEMES];
    int32_t pair[ATTEND_ROWS][2];
    decoding d = {0};
    subject const attend = {.name = "attend, 18 quantizers",
                            .shape = "4096x128, 4x584 rows",
                            .bound = FMA,
                            .threads = b->threads,
                            .work = 4.0 * ATTEND_HEADS * ATTEND_ROWS * TOKENS * HEAD_DIM,
                            .run = run_attend,
                            .what = &d};
    for (int i = 0; i < N_SCHEMES; i++) {
        KV_TRY(kv_quantizer_parse(&keys[i], key_texts[i], true, err));
        KV_TRY(kv_quantizer_parse(&values[i], value_texts[i], false, err));
    }
    for (int i = 0; i < ATTEND_ROWS; i++) {
        int const which = (i - ATTEND_EXACT) / ATTEND_EACH;
        pair[i][0] = i >= ATTEND_EXACT && which < N_SCHEMES ? which : -1;
        pair[i][1] = i >= ATTEND_EXACT && which >= N_SCHEMES ? which - N_SCHEMES : -1;
    }
    KV_TRY(kv_allocate((void **)&d.out, (size_t)ATTEND_HEADS * ATTEND_ROWS * HEAD_DIM,
                       sizeof *d.out, err));
    d.layer = (kv_layer){.kv_heads = 1,
                         .query_heads = ATTEND_HEADS,
                         .tokens = TOKENS,
                         .head_dim = HEAD_DIM,
                         .softmax_scale = 1 / sqrt((double)HEAD_DIM),
                         .source = {.context = b, .load = load, .query = load_query}};
    d.attention = (kv_attention){.n_keys = N_SCHEMES,
                                 .n_values = N_SCHEMES,
                                 .keys = keys,
                                 .values = values,
                                 .rows = ATTEND_ROWS,
                                 .position = TOKENS - 1,
                                 .query = b->large + 2 * TOKENS * HEAD_DIM,
                                 .pair = (const int32_t(*)[2])pair};
    KV_TRY(measure(b, &attend, err));
done:
    kv_free(d.out);
    return status;
}

/* ---- all ---- */

/* Roughly normal numbers with three outlier channels: sums of uniform ones, by a counter. */
static void fill(float *x, int64_t n)
{
    uint64_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(state >> 40) * 0x1p-23f - 1;
        }
        int64_t const channel = i % HEAD_DIM;
        x[i] = channel == 7 || channel == 23 || channel == 88 ? 20 * sum : sum;
    }
}

kv_status kv_bench_run(kv_bench_row *rows, int *n_rows, int threads, kv_error *err)
{
    kv_status status = KV_OK;
    bench b = {.rows = rows,
               .threads = threads < 1 ? 1 : threads,
               .kernels = kv_cpu_kernels_of(kv_isa_best())};
    double const flops = 2.0 * PRODUCTS * TILE_TOKENS * TILE_ROWS * HEAD_DIM;
    subject const logits = {"logits product", "256x128 by 32", FMA, 1, flops, run_logits, NULL};
    subject const outputs = {"outputs product", "32x256 by 128", FMA, 1, flops, run_outputs, NULL};
    KV_TRY(kv_allocate3((void **)&b.large, TENSORS, LARGE_TOKENS, HEAD_DIM, sizeof(float), err));
    KV_TRY(kv_allocate((void **)&b.small, TILE_TOKENS * HEAD_DIM, sizeof(float), err));
    fill(b.large, TENSOR);
    for (int i = 1; i < TENSORS; i++)
        memcpy(b.large + (int64_t)i * TENSOR, b.large, TENSOR * sizeof(float));
    measure_limit(&b, "fma peak", "registers", FMA, 1e9, b.threads);
    measure_limit(&b, "read, all processors", "64 MiB of 1 GiB", BANDWIDTH, 4.0 * READ,
                  omp_get_num_procs());
    measure_limit(&b, "read, one thread", "64 MiB of 1 GiB", BANDWIDTH, 4.0 * READ, 1);
    KV_TRY(bench_quantizers(&b, err));
    KV_TRY(measure(&b, &logits, err));
    KV_TRY(measure(&b, &outputs, err));
    KV_TRY(bench_pairs(&b, err));
    KV_TRY(bench_attend(&b, err));
    *n_rows = b.n_rows;
done:
    kv_fit_free(b.fit);
    kv_free(b.large);
    kv_free(b.small);
    kv_free(b.scratch);
    return status;
}
