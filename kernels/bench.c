/* Benchmarks: see bench.h. Every time is the median of several runs after one that warms up. The
 * tensors are plain noise with planted outlier channels; nothing here judges accuracy. */
#include "kernels/bench.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/memory.h"
#include "kernels/shorthand.h"

enum {
    TOKENS = 4096,
    HEAD_DIM = 128,
    QUERIES = 64,
    N_SCHEMES = 9,
    RUNS = 7,
    LARGE = 64 << 20,      /* floats read for bandwidth: 256 MiB, larger than caches a core fills */
    LARGE_TOKENS = 1 << 16 /* of the tensor in the fitting and decoding rows: 32 MiB */
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
    double fma_peak, bandwidth; /* GFLOP/s, GB/s */
    float *large;               /* [LARGE] */
    float *small;               /* [LARGE_TOKENS][HEAD_DIM] decoded */
    float *scratch;
    kv_fit *fit;
} bench;

/* ---- timing ---- */

static int ascending(const void *a, const void *b)
{
    double const x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef kv_status (*timed)(bench *b, void *what, kv_error *err);

static kv_status time_median(double *seconds, bench *b, timed run, void *what, kv_error *err)
{
    double times[RUNS];
    kv_status status = run(b, what, err);
    for (int i = 0; i < RUNS && status == KV_OK; i++) {
        double const start = omp_get_wtime();
        status = run(b, what, err);
        times[i] = omp_get_wtime() - start;
    }
    if (status != KV_OK) return status;
    qsort(times, RUNS, sizeof times[0], ascending);
    *seconds = times[RUNS / 2];
    return KV_OK;
}

/* work: flop or bytes of one run. */
static void add_row(bench *b, const char *kernel, const char *shape, double seconds, double work,
                    bool is_fma)
{
    double const rate = work / seconds * 1e-9, peak = is_fma ? b->fma_peak : b->bandwidth;
    b->rows[b->n_rows++] = (kv_bench_row){.kernel = kernel,
                                          .shape = shape,
                                          .seconds = seconds,
                                          .rate = rate,
                                          .unit = is_fma ? "GFLOP/s" : "GB/s",
                                          .bound = is_fma ? "fma" : "bandwidth",
                                          .peak = peak > 0 ? peak : rate,
                                          .fraction = peak > 0 ? rate / peak : 1};
}

/* ---- the machine's limits ---- */

enum { FMA_ROUNDS = 1 << 20 };

static kv_status run_fma(bench *b, void *what, kv_error *err)
{
    (void)err;
    double total = 0;
#pragma omp parallel num_threads(b->threads) reduction(+ : total)
    {
        float sink[2 + KV_LANES] = {0.5f, 0.5f};
        total += b->kernels->burn_fma(sink, FMA_ROUNDS);
    }
    *(double *)what = total;
    return KV_OK;
}

static kv_status run_read(bench *b, void *what, kv_error *err)
{
    (void)err;
    int const threads = *(const int *)what;
    double total = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : total)
    for (int i = 0; i < threads; i++) {
        int64_t const from = (int64_t)LARGE / 128 * i / threads * 128;
        int64_t const to = (int64_t)LARGE / 128 * (i + 1) / threads * 128;
        total += (double)b->kernels->read_all(b->large + from, to - from);
    }
    b->small[0] = (float)total; /* so that nothing is left out */
    return KV_OK;
}

static kv_status bench_limits(bench *b, kv_error *err)
{
    kv_status status = KV_OK;
    double seconds, flops = 0, least;
    int one = 1, all = omp_get_num_procs();
    KV_TRY(time_median(&seconds, b, run_fma, &flops, err));
    add_row(b, "fma peak", "registers", seconds, flops, true);
    b->fma_peak = b->rows[b->n_rows - 1].rate;
    KV_TRY(time_median(&least, b, run_read, &all, err));
    add_row(b, "read, all processors", "256 MiB", least, 4.0 * LARGE, false);
    KV_TRY(time_median(&seconds, b, run_read, &one, err));
    add_row(b, "read, one thread", "256 MiB", seconds, 4.0 * LARGE, false);
    if (b->threads > 1) KV_TRY(time_median(&seconds, b, run_read, &b->threads, err));
    b->bandwidth = 4e-9 * LARGE / seconds;
done:
    return status;
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
        KV_TRY(kv_fit_absorb(b->fit, 0, b->large, err));
        KV_TRY(kv_fit_end_pass(b->fit, err));
    }
done:
    return status;
}

/* Tiles of 128 tokens as an evaluation decodes them: read from memory, written into a cache. */
static kv_status decode_large(bench *b, void *what, kv_error *err)
{
    enum { TILE = 128 };
    (void)what, (void)err;
    for (int64_t t = 0; t < LARGE_TOKENS; t += TILE)
        kv_fit_decode(b->fit, 0, b->large, t, TILE, b->small, b->scratch);
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
    double const bytes = 4.0 * LARGE_TOKENS * HEAD_DIM;
    double seconds;
    for (size_t i = 0; i < sizeof fits / sizeof fits[0]; i++) {
        named text = {fits[i].text};
        KV_TRY(time_median(&seconds, b, fit_large, &text, err));
        add_row(b, fits[i].name, "65536x128", seconds, bytes, false);
    }
    for (size_t i = 0; i < sizeof decodes / sizeof decodes[0]; i++) {
        named text = {decodes[i].text};
        KV_TRY(fit_large(b, &text, err));
        KV_TRY(kv_allocate((void **)&b->scratch, (size_t)kv_fit_scratch_floats(b->fit, 128),
                           sizeof(float), err));
        KV_TRY(time_median(&seconds, b, decode_large, NULL, err));
        add_row(b, decodes[i].name, "65536x128", seconds, bytes, false);
        kv_free(b->scratch);
        b->scratch = NULL;
    }
done:
    return status;
}

/* ---- products ---- */

enum { TILE_TOKENS = 128, TILE_ROWS = 32, PRODUCTS = 200 };

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
    double seconds;
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
                         .source = {b, load, load_query, NULL}};
    m.evaluation = (kv_evaluation){.n_keys = N_SCHEMES,
                                   .n_values = N_SCHEMES,
                                   .n_pairs = N_SCHEMES * N_SCHEMES,
                                   .keys = keys,
                                   .values = values,
                                   .pairs = (const int64_t(*)[2])pairs,
                                   .want_rows = true};
    KV_TRY(kv_measurements_create(&m.measurements, &m.layer, &m.evaluation, err));
    KV_TRY(time_median(&seconds, b, run_pairs, &m, err));
    add_row(b, "pair matrix 9x9", "4096x128, 64 queries", seconds,
            2.0 * QUERIES * TOKENS * HEAD_DIM * (N_SCHEMES + N_SCHEMES * N_SCHEMES), true);
done:
    kv_measurements_free(m.measurements);
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
    double seconds;
    KV_TRY(kv_allocate((void **)&b.large, LARGE, sizeof(float), err));
    KV_TRY(kv_allocate((void **)&b.small, 128 * HEAD_DIM, sizeof(float), err));
    fill(b.large, (int64_t)LARGE_TOKENS * HEAD_DIM);
    KV_TRY(bench_limits(&b, err));
    KV_TRY(bench_quantizers(&b, err));
    KV_TRY(time_median(&seconds, &b, run_logits, NULL, err));
    add_row(&b, "logits product", "128x128 by 32", seconds, flops, true);
    KV_TRY(time_median(&seconds, &b, run_outputs, NULL, err));
    add_row(&b, "outputs product", "32x128 by 128", seconds, flops, true);
    KV_TRY(bench_pairs(&b, err));
    *n_rows = b.n_rows;
done:
    kv_fit_free(b.fit);
    kv_free(b.large);
    kv_free(b.small);
    kv_free(b.scratch);
    return status;
}
