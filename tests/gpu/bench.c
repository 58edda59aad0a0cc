/* How long a sweep takes on a GPU: 8 kv heads, 64 queries each (or QUERIES), 128 channels, 32
 * schemes (a key and a value quantizer each, each pair evaluated), drawn on the device from a
 * Philox recipe.
 *
 *     bench_cuda WATCH MODULE [TOKENS [RUNS]]    watch.c's module, and the one that works
 *     bench_cuda schemes                         the schemes, for tests/bench/cuda_sweep.py
 *
 * Times are medians of RUNS after one that warms up, by the wall clock, from the request to the
 * measurements on the host, drawing of tensors included. `alike` leaves out total variation and
 * top-k agreement. Times of kernels come from runs of their own that wait after every launch.
 *
 * FLOP are the multiply-adds, counted twice, of exact and quantized logits and outputs. The peak is
 * multiprocessors x FP32 lanes x 2 x clock, the bandwidth that of a cudaMemset, measured here. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/shorthand.h"
#include "sim/heads.h"
#include "tests/gpu/watch.h"

enum { HEADS = 8, CHANNELS = 128, SCHEMES = 32, MOST_RUNS = 99, MOST_KERNELS = 64 };

static const char *const schemes[SCHEMES][2] = {
    {"int8/tensor", "int8/tensor"},
    {"int8/head", "int8/head"},
    {"int8/channel", "int8/token"},
    {"int8/token", "int8/token"},
    {"int8/channel:zero", "int8/token:zero"},
    {"int8/token:zero", "int8/token:zero"},
    {"int8/32x1:zero", "int8/1x32:zero"},
    {"int8/64x1", "int8/1x64"},
    {"int4/head", "int4/head"},
    {"int4/channel", "int4/token"},
    {"int4/channel:zero", "int4/token:zero"},
    {"int4/token:zero", "int4/token:zero"},
    {"int4/32x1:zero", "int4/1x32:zero"},
    {"int4/64x1:zero", "int4/1x64:zero"},
    {"int4/128x1:zero", "int4/1x128:zero"},
    {"int4/1x32:zero", "int4/1x32:zero"},
    {"int3/channel:zero", "int3/token:zero"},
    {"int3/32x1:zero", "int3/1x32:zero"},
    {"int2/32x1:zero", "int2/1x32:zero"},
    {"int2/channel:zero", "int2/token:zero"},
    {"int4/32x1:zero", "int2/1x32:zero"},
    {"int8/channel:zero", "int4/token:zero"},
    {"int8/token", "int4/1x32:zero"},
    {"int4/channel:zero", "int8/token"},
    {"e4m3/tensor", "e4m3/tensor"},
    {"e4m3/head", "e4m3/head"},
    {"e4m3/channel", "e4m3/token"},
    {"e4m3/token", "e4m3/token"},
    {"e5m2/tensor", "e5m2/tensor"},
    {"e5m2/channel", "e5m2/token"},
    {"e4m3/channel", "int4/token:zero"},
    {"int4/32x1:zero", "e4m3/token"},
};

static kv_error err;

static void must(kv_status status)
{
    if (status != KV_OK) fprintf(stderr, "bench_cuda: %s\n", err.message), exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double const x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, by_value);
    return (times[(n - 1) / 2] + times[n / 2]) / 2;
}

/* ---- the machine ---- */

typedef struct {
    const kv_cuda_module *cuda;
    watch_switch_function *watch;
    watch_kept_function *kept;
    kv_cuda_about about;
    double peak, bandwidth; /* FLOP/s, 0 where not known; bytes/s */
} machine;

/* FP32 lanes of a multiprocessor: CUDA C++ Programming Guide, arithmetic throughput. */
static int lanes_of(int major, int minor)
{
    return major > 8 || (major == 8 && minor > 0) ? 128 : 64;
}

static void measure_bandwidth(machine *m)
{
    enum { RUNS = 9 };
    int64_t const bytes = 256 << 20; /* beyond every cache */
    void *memory = NULL;
    double times[RUNS];
    must(m->cuda->allocate(&memory, bytes, &err));
    for (int i = -1; i < RUNS; i++) {
        must(m->cuda->finish_all(&err));
        double const start = now();
        must(m->cuda->zero(memory, bytes, &err));
        must(m->cuda->finish_all(&err));
        if (i >= 0) times[i] = now() - start;
    }
    m->cuda->release(memory);
    m->bandwidth = (double)bytes / median(times, RUNS);
}

static void *symbol(void *library, const char *name)
{
    void *const found = library ? dlsym(library, name) : NULL;
    if (!found) fprintf(stderr, "bench_cuda: %s\n", dlerror()), exit(1);
    return found;
}

static machine open_machine(const char *watch, const char *module)
{
    machine m = {0};
    kv_cuda_module_function *table;
    setenv("KVANT_WATCHED", module, 1), setenv("KVANT_CUDA_MODULE", watch, 1);
    void *const library = dlopen(watch, RTLD_NOW | RTLD_LOCAL);
    *(void **)&table = symbol(library, "kv_cuda_module_table");
    *(void **)&m.watch = symbol(library, "watch_switch");
    *(void **)&m.kept = symbol(library, "watch_kept");
    m.cuda = table();
    if (kv_cuda_unavailable()) fprintf(stderr, "bench_cuda: %s\n", kv_cuda_unavailable()), exit(1);
    must(m.cuda->use(&m.about, 0, &err));
    m.peak =
        2.0 * m.about.multiprocessors * lanes_of(m.about.major, m.about.minor) * m.about.clock_hz;
    measure_bandwidth(&m);
    printf("%s, compute capability %d.%d, %d multiprocessors, %.0f GiB\n", m.about.name,
           m.about.major, m.about.minor, m.about.multiprocessors,
           (double)m.about.total_bytes / (1 << 30));
    if (m.peak > 0)
        printf("FP32 peak %.2f TFLOP/s: %d lanes a multiprocessor at %.0f MHz\n", 1e-12 * m.peak,
               lanes_of(m.about.major, m.about.minor), 1e-6 * m.about.clock_hz);
    else
        printf("FP32 peak not known: the device tells no clock\n");
    printf("memory bandwidth %.0f GB/s: cudaMemset of 256 MiB, measured\n", 1e-9 * m.bandwidth);
    return m;
}

/* ---- the request ---- */

typedef struct {
    kv_heads *heads;
    kv_quantizer keys[SCHEMES], values[SCHEMES];
    int64_t pairs[SCHEMES][2];
    kv_evaluation evaluation;
} request;

static void make_request(request *r, int64_t tokens, int64_t queries)
{
    kv_heads_config const config = {.generator = KV_GENERATOR_PHILOX,
                                    .rope = {.layout = KV_ROPE_HALF},
                                    .tokens = tokens,
                                    .head_dim = CHANNELS,
                                    .queries = queries,
                                    .kv_heads = HEADS,
                                    .query_heads = HEADS,
                                    .query_gain = 1,
                                    .class_share = {1},
                                    .outliers = {.count = 3, .scale = 20},
                                    .value_outliers = {.scale = 1},
                                    .sink_key_gain = 1,
                                    .sink_value_gain = 1};
    must(kv_heads_create(&r->heads, &config, 0, 0, &err));
    for (int i = 0; i < SCHEMES; i++) {
        must(kv_quantizer_parse(&r->keys[i], schemes[i][0], true, &err));
        must(kv_quantizer_parse(&r->values[i], schemes[i][1], false, &err));
        r->pairs[i][0] = r->pairs[i][1] = i;
    }
    r->evaluation = (kv_evaluation){.n_keys = SCHEMES,
                                    .n_values = SCHEMES,
                                    .n_pairs = SCHEMES,
                                    .keys = r->keys,
                                    .values = r->values,
                                    .pairs = (const int64_t(*)[2])r->pairs};
}

static double evaluate(const request *r, bool want_rows)
{
    kv_measurements *m = NULL;
    const kv_layer *const layer = kv_heads_layer(r->heads);
    kv_evaluation e = r->evaluation;
    e.want_rows = want_rows;
    must(kv_measurements_create(&m, layer, &e, &err));
    double const start = now();
    must(kv_cuda_evaluate(layer, &e, 1, m, &err));
    double const seconds = now() - start;
    kv_measurements_free(m);
    return seconds;
}

static double products(const request *r)
{
    const kv_layer *const l = kv_heads_layer(r->heads);
    double seen = 0;
    for (int64_t i = 0; i < l->queries; i++) {
        kv_visible const v = kv_layer_visible(l, l->query_position[i]);
        seen += (double)(v.end - v.begin);
    }
    return seen * HEADS * CHANNELS * 2 * (1 + SCHEMES);
}

/* ---- what is printed ---- */

static void print_rate(const machine *m, double flop, double seconds)
{
    printf("%8.3f TFLOP/s", 1e-12 * flop / seconds);
    if (m->peak > 0) printf(" (%4.1f %% of peak)", 100 * flop / seconds / m->peak);
}

static void print_wall(const machine *m, const request *r, const char *name, bool want_rows,
                       int runs)
{
    double times[MOST_RUNS];
    evaluate(r, want_rows);
    for (int i = 0; i < runs; i++) times[i] = evaluate(r, want_rows);
    double const seconds = median(times, runs);
    printf("%-6s %10.3f ms  %9.4f ms a scheme ", name, 1e3 * seconds, 1e3 * seconds / SCHEMES);
    print_rate(m, 2 * products(r), seconds);
    printf("\n");
}

static void print_kernels(const machine *m, const request *r, int runs)
{
    static double times[MOST_KERNELS][MOST_RUNS];
    const watched *kept = NULL;
    int n = 0;
    double all = 0;
    for (int run = 0; run < runs; run++) {
        m->watch(true);
        evaluate(r, true);
        m->watch(false);
        kept = m->kept(&n);
        for (int k = 0; k < n; k++) times[k][run] = kept[k].seconds;
    }
    printf("kernel      launches          ms        GB      GB/s  of bandwidth\n");
    for (int k = 0; k < n; k++) {
        if (kept[k].launches == 0) continue;
        double const seconds = median(times[k], runs), rate = kept[k].bytes / seconds;
        all += seconds;
        printf("%-12s%8lld  %10.3f  %8.3f  %8.1f  %9.1f %%", kept[k].kernel,
               (long long)kept[k].launches, 1e3 * seconds, 1e-9 * kept[k].bytes, 1e-9 * rate,
               100 * rate / m->bandwidth);
        if (kept[k].products > 0) print_rate(m, 2 * kept[k].products, seconds);
        printf("\n");
    }
    printf("%-12s%8s  %10.3f\n", "all", "", 1e3 * all);
}

int main(int argc, char **argv)
{
    static request r;
    if (argc == 2 && strcmp(argv[1], "schemes") == 0) {
        for (int i = 0; i < SCHEMES; i++) printf("%s %s\n", schemes[i][0], schemes[i][1]);
        return 0;
    }
    int64_t const tokens = argc > 3 ? atoll(argv[3]) : 131072;
    int64_t const queries = argc > 5 ? atoll(argv[5]) : 64;
    int const runs = argc > 4 ? atoi(argv[4]) : 5;
    if (argc < 3 || tokens < 1 || queries < 1 || runs < 1 || runs > MOST_RUNS)
        return fprintf(stderr, "usage: bench_cuda WATCH MODULE [TOKENS [RUNS [QUERIES]]]\n"), 1;
    machine const m = open_machine(argv[1], argv[2]);
    make_request(&r, tokens, queries);
    printf("T %lld, D %d, %d kv heads, %d queries each, %d schemes; medians of %d\n",
           (long long)tokens, CHANNELS, HEADS, (int)queries, SCHEMES, runs);
    print_wall(&m, &r, "kvant", true, runs);
    print_wall(&m, &r, "alike", false, runs);
    print_kernels(&m, &r, runs);
    kv_heads_free(r.heads);
    return 0;
}
