/* The decode stack: against plain double precision, orthogonal matrices, and equal bits whatever
 * the threads, the other runs and the batching; ends of runs, cancelling, what adds up, refusals.
 */
#include "sim/stack.h"

#include <stdlib.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tests/stack_plain.h"

/* ---- set up ---- */

typedef struct {
    kv_config config;
    kv_stack *stack;
    int64_t streams, layers;
} made;

/* A configuration with these `heads:`. */
static void configure(kv_config *config, const char *heads)
{
    kv_error err = {0};
    char text[2048];
    snprintf(text, sizeof text, "kvant: 1\nheads: {%s}\nschemes: [f32]\n", heads);
    plain_must(kv_config_read(config, text, strlen(text), "test", &(kv_config_sources){0}, &err),
               &err);
}

static made make(const char *heads, int64_t streams)
{
    kv_error err = {0};
    made m = {.streams = streams};
    int64_t const index[KV_CONFIG_MAX_AXES] = {0};
    configure(&m.config, heads);
    plain_must(kv_stack_create(&m.stack, &m.config, index, streams, &err), &err);
    m.layers = kv_stack_layers(m.stack);
    return m;
}

static void discard(made *m)
{
    kv_stack_free(m->stack);
    kv_config_free_contents(&m->config);
}

static const char *const key_texts[] = {"int4/token:zero", "int4/tensor",
                                        "int3/channel:zero:pre-rope", "int8/channel",
                                        "int2/32x1:zero:flush=32"};
static const char *const value_texts[] = {"int4/token:zero", "int2/token-all:zero", "e4m3/tensor"};
enum {
    KEYS = sizeof key_texts / sizeof *key_texts,
    VALUES = sizeof value_texts / sizeof *value_texts
};

static kv_quantizer keys[KEYS], values[VALUES];

static void parse_quantizers(void)
{
    kv_error err = {0};
    for (int i = 0; i < KEYS; i++)
        plain_must(kv_quantizer_parse(&keys[i], key_texts[i], true, &err), &err);
    for (int i = 0; i < VALUES; i++)
        plain_must(kv_quantizer_parse(&values[i], value_texts[i], false, &err), &err);
}

static kv_stack_runs runs_of(const int32_t (*assignment)[2], int64_t n, const int64_t *last)
{
    return (kv_stack_runs){.n_keys = KEYS,
                           .n_values = VALUES,
                           .keys = keys,
                           .values = values,
                           .n_runs = n,
                           .assignment = assignment,
                           .last = last};
}

static kv_stack_environment environment_of(int threads)
{
    kv_error err = {0};
    kv_stack_environment environment = {.threads = threads};
    plain_must(kv_backend_find(&environment.backend, "cpu", &err), &err);
    return environment;
}

static kv_stack_measured run(const made *m, int64_t seed, const kv_stack_runs *runs, int threads)
{
    kv_error err = {0};
    kv_stack_measured measured = {0};
    kv_stack_environment const environment = environment_of(threads);
    plain_must(kv_stack_run(&measured, m->stack, seed, runs, &environment, &err), &err);
    return measured;
}

static uint64_t state = 7;

static int32_t draw(int32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((state >> 33) % (uint64_t)n);
}

/* Runs [n][L], each layer exact with probability 1/3 for each side. */
static int32_t (*random_runs(int64_t n, int64_t layers))[2]
{
    int32_t(*const a)[2] = calloc((size_t)(n * layers), sizeof *a);
    for (int64_t i = 0; i < n * layers; i++) {
        a[i][0] = draw(3) ? draw(KEYS) : -1;
        a[i][1] = draw(3) ? draw(VALUES) : -1;
    }
    return a;
}

/* ---- against plain double precision ---- */

static const struct {
    const char *name, *heads;
    int64_t streams;
    double sink_mass; /* to be found on the sinks; 0 none */
} stacks[] = {
    {"power of two", "layers: 3, tokens: 96, head_dim: 32, kv_heads: 2", 3, 0},
    {"N = 3 * 32, grouped, windows, RoPE",
     "layers: 4, tokens: 100, head_dim: 32, kv_heads: 1, query_heads: 3, rope: half, window: 40, "
     "query.gain: 1.5, profile: [{layers: 2, window: 0}, {layers: 1, window: 1}]",
     2, 0},
    {"sinks, interleaved RoPE",
     "layers: 3, tokens: 80, head_dim: 16, kv_heads: 2, query_heads: 6, rope: interleaved, "
     "sinks: {count: 4, key_gain: 0.2, value_gain: 0.1, mass: 0.5}, "
     "outliers: {count: 3, placement: rope-low, bias: 8}, stack.gain: 0.5",
     4, 0.5},
    {"local and needle queries, N = 5 * 16",
     "layers: 2, tokens: 70, head_dim: 16, kv_heads: 5, rope: half, "
     "query.classes: {isotropic: 1, local: 1, needle: 1}, local: {mass: 0.7, span: 8}",
     3, 0},
    {"shapes and gains by layer, N = 2",
     "layers: 3, tokens: 9, head_dim: 1, kv_heads: 1, query_heads: 2, "
     "profile: [{layers: 1, head_dim: 2, query_heads: 1, stack.gain: 3}]",
     1, 0},
};

/* Within `tolerance` of the expected power, or with norms that differ by less than `floor`. */
static void check_close(const char *name, const char *what, int64_t run, int64_t layer,
                        double found, double expected, double tolerance, double floor)
{
    CHECK(fabs(found - expected) <= tolerance * fabs(expected) ||
              fabs(sqrt(found) - sqrt(expected)) <= floor,
          "%s: %s, run %d, layer %d: %.9g, expected %.9g (off by %.2g)", name, what, (int)run,
          (int)layer, found, expected, found / expected - 1);
}

/* Rounding moves a state by less than 1e-6 of its norm: about 6e-8 sqrt(operations), a few dozen of
 * them a layer. Errors above 2 % of it are so good to 1e-4 in power; smaller ones to 1e-6 of it. */
static void compare(const char *name, const char *heads, int64_t streams, int64_t seed,
                    double sink_mass)
{
    enum { RUNS = 5, MOST_LAYERS = 8 };
    made m = make(heads, streams);
    int64_t const L = m.layers;
    int64_t numbers[MOST_LAYERS];
    kv_stack_layer const first = kv_stack_layer_at(m.stack, 0);
    plain_stack const plain = {.config = &m.config,
                               .numbers = numbers,
                               .layers = L,
                               .streams = streams,
                               .seed = seed,
                               .N = first.query_heads * first.head_dim};
    for (int64_t l = 0; l < L; l++) numbers[l] = kv_stack_layer_at(m.stack, l).number;
    int32_t(*const assignment)[2] = random_runs(RUNS, L);
    kv_stack_runs const runs = runs_of((const int32_t(*)[2])assignment, RUNS, NULL);
    kv_stack_measured measured = run(&m, seed, &runs, 2);
    plain_layer constants[MOST_LAYERS] = {0};
    double square[MOST_LAYERS], output[MOST_LAYERS];
    plain_run(square, output, constants, &plain, &runs, -1);
    for (int64_t l = 0; l < L; l++) {
        check_close(name, "|x|^2", -1, l, measured.square[l], square[l], 1e-6, 0);
        check_close(name, "|o|^2", -1, l, measured.output_square[l], output[l], 1e-6, 0);
        if (sink_mass > 0)
            CHECK(fabs(constants[l].sink_mass - sink_mass) < 1e-4, "%s: mass %g", name,
                  constants[l].sink_mass);
    }
    for (int64_t r = 0; r < RUNS; r++) {
        plain_run(square, output, constants, &plain, &runs, r);
        for (int64_t l = 0; l < L; l++) {
            check_close(name, "|x^-x|^2", r, l, measured.err_square[r * L + l], square[l], 1e-4,
                        1e-6 * sqrt(measured.square[l]));
            check_close(name, "|o^-o|^2", r, l, measured.output_err_square[r * L + l], output[l],
                        1e-4, 1e-6 * sqrt(measured.output_square[l]));
        }
    }
    for (int64_t l = 0; l < L; l++)
        free(constants[l].pull), free(constants[l].x), free(constants[l].o);
    free(assignment);
    kv_stack_measured_free_contents(&measured);
    discard(&m);
}

static void agrees_with_double(void)
{
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++)
        compare(stacks[i].name, stacks[i].heads, stacks[i].streams, 11 + (int64_t)i,
                stacks[i].sink_mass);
}

/* A .npy file of [G][T][D] numbers around `mean` in channel `at`, the first token's a fifth. */
static void write_npy(const char *path, int G, int T, int D, float mean, int at)
{
    char header[128];
    int const length =
        snprintf(header, sizeof header,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d, %d), }", G, T, D);
    FILE *const file = fopen(path, "wb");
    if (!file) exit(1);
    fprintf(file, "\x93NUMPY\x01%c%c%c%-117s\n", 0, 118, 0, length < 118 ? header : "");
    for (int i = 0; i < G * T * D; i++) {
        float const z = (float)draw(2001) / 500 - 2;
        float const x = (i / D % T == 0 ? 0.2f : 1) * (i % D == at ? mean + z : z);
        fwrite(&x, sizeof x, 1, file);
    }
    fclose(file);
}

/* Layers 3 and 7 of a capture of keys before RoPE, of different lengths, with a pull to a sink that
 * only layer 7 sees. Queries may be there and play no part. */
static void captures_as_prefix(void)
{
    char folder[] = "/tmp/kvant_test_stack_XXXXXX", path[6][64], heads[1024];
    static const char *const names[] = {"k3", "v3", "q3", "k7", "v7", "q7"};
    if (!mkdtemp(folder)) exit(1);
    for (int i = 0; i < 6; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s.npy", folder, names[i]);
        write_npy(path[i], i % 3 == 2 ? 4 : 2,
                  i % 3 == 2 ? 1
                  : i < 3    ? 40
                             : 33,
                  8, i % 3 ? 0 : 6, 3);
    }
    snprintf(heads, sizeof heads,
             "generator: capture, capture: {key_position: pre-rope, window: 36, layers: "
             "{3: {key: %s, value: %s}, 7: {key: %s, value: %s}}}, query_heads: 4, "
             "rope: half, sinks: {count: 1, mass: 0.3}, query.gain: 2",
             path[0], path[1], path[3], path[4]);
    compare("capture", heads, 3, 2, 0);
    snprintf(heads, sizeof heads,
             "generator: capture, capture: {key_position: pre-rope, window: 36, layers: "
             "{3: {key: %s, value: %s, query: %s}, 7: {key: %s, value: %s, query: %s}}}, "
             "rope: half, sinks: {count: 1, mass: 0.3}, query.position: [32]",
             path[0], path[1], path[2], path[3], path[4], path[5]);
    compare("capture with queries", heads, 2, 3, 0);
    for (int i = 0; i < 6; i++) remove(path[i]);
    remove(folder);
}

/* P P^T = 1 by unit vectors, for widths with one block, several, and blocks of one. */
static void matrices_are_orthogonal(void)
{
    static const int64_t widths[] = {1, 2, 6, 7, 64, 96, 80};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        int64_t const n = widths[i];
        kv_mix mix = {0};
        kv_error err = {0};
        float *const P = calloc((size_t)(n * n), sizeof *P);
        plain_must(kv_mix_create(&mix, n, 5, 3, &err), &err);
        for (int which = 0; which < KV_MIX_COUNT; which++) {
            double *const expected = plain_matrix(n, which, 5, 3);
            for (int64_t c = 0; c < n; c++) {
                float *const row = P + c * n; /* column c of P */
                memset(row, 0, (size_t)n * sizeof *row);
                row[c] = 1;
                kv_mix_apply(row, &mix, (kv_mix_which)which, row);
                for (int64_t r = 0; r < n; r++)
                    CHECK(fabs((double)row[r] - expected[r * n + c]) < 1e-6, "N = %d, P%d [%d][%d]",
                          (int)n, which + 1, (int)r, (int)c);
            }
            for (int64_t a = 0; a < n; a++)
                for (int64_t b = 0; b < n; b++) {
                    double sum = 0;
                    for (int64_t c = 0; c < n; c++)
                        sum += (double)P[a * n + c] * (double)P[b * n + c];
                    CHECK(fabs(sum - (a == b)) < 1e-6, "N = %d, P%d: %d . %d = %g", (int)n,
                          which + 1, (int)a, (int)b, sum);
                }
            free(expected);
        }
        free(P);
        kv_mix_free_contents(&mix);
    }
}

/* ---- equal bits ---- */

static bool is_equal(const double *a, const double *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static const char wide[] = "layers: 5, tokens: 150, head_dim: 32, kv_heads: 3, query_heads: 6, "
                           "rope: half, sinks: {count: 2, key_gain: 0.3, mass: 0.4}, "
                           "outliers: {count: 3, placement: rope-low, bias: 8}";

static void threads_and_company_change_nothing(void)
{
    enum { RUNS = 40 };
    made m = make(wide, 3);
    int64_t const L = m.layers;
    int32_t(*const assignment)[2] = random_runs(RUNS, L);
    int64_t last[RUNS];
    for (int64_t r = 0; r < RUNS; r++) last[r] = r % 3 ? L - 1 : draw((int32_t)L);
    /* some agree for a while, some to the end, some are exact */
    for (int64_t r = 0; r < 20; r++)
        memcpy(assignment[(r + 20) * L], assignment[r * L],
               (size_t)(1 + draw((int32_t)L)) * sizeof *assignment);
    for (int64_t l = 0; l < L; l++) assignment[l][0] = assignment[l][1] = -1;
    last[0] = L - 1;
    kv_stack_runs const runs = runs_of((const int32_t(*)[2])assignment, RUNS, last);
    kv_stack_measured one = run(&m, 5, &runs, 1);
    for (int threads = 2; threads <= 5; threads += 3) {
        kv_stack_measured more = run(&m, 5, &runs, threads);
        CHECK(is_equal(one.square, more.square, L) &&
                  is_equal(one.output_square, more.output_square, L) &&
                  is_equal(one.err_square, more.err_square, RUNS * L) &&
                  is_equal(one.output_err_square, more.output_err_square, RUNS * L),
              "%d threads", threads);
        kv_stack_measured_free_contents(&more);
    }
    for (int64_t r = 0; r < RUNS; r++) {
        kv_stack_runs const alone =
            runs_of((const int32_t(*)[2])assignment + r * L, 1, r % 2 ? last + r : NULL);
        kv_stack_measured single = run(&m, 5, &alone, 2);
        CHECK(is_equal(one.err_square + r * L, single.err_square, last[r] + 1) &&
                  is_equal(one.output_err_square + r * L, single.output_err_square, last[r] + 1),
              "run %d alone", (int)r);
        CHECK(is_equal(one.square, single.square, L), "run %d alone: exact", (int)r);
        for (int64_t l = last[r] + 1; l < L; l++)
            CHECK(isnan(one.err_square[r * L + l]) && isnan(one.output_err_square[r * L + l]),
                  "run %d ends with layer %d", (int)r, (int)last[r]);
        kv_stack_measured_free_contents(&single);
    }
    for (int64_t l = 0; l < L; l++)
        CHECK(one.err_square[l] == 0 && one.output_err_square[l] == 0,
              "an exact run has no error, not even rounding: layer %d", (int)l);
    free(assignment);
    kv_stack_measured_free_contents(&one);
    discard(&m);
}

/* Pulls kept from run to run, also of other seeds and other runs. */
static void kept_pulls_change_nothing(void)
{
    static const int64_t seeds[] = {4, 6, 4, 6};
    kv_error err = {0};
    made m = make(wide, 3);
    int32_t(*const assignment)[2] = random_runs(2, m.layers);
    kv_stack_environment environment = environment_of(2);
    plain_must(kv_stack_pulls_create(&environment.pulls, &err), &err);
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        kv_stack_runs const runs = runs_of((const int32_t(*)[2])assignment, i % 3 ? 2 : 1, NULL);
        kv_stack_measured kept = {0}, alone = run(&m, seeds[i], &runs, 1);
        plain_must(kv_stack_run(&kept, m.stack, seeds[i], &runs, &environment, &err), &err);
        CHECK(is_equal(kept.square, alone.square, m.layers) &&
                  is_equal(kept.err_square, alone.err_square, runs.n_runs * m.layers),
              "call %d", (int)i);
        kv_stack_measured_free_contents(&kept);
        kv_stack_measured_free_contents(&alone);
    }
    kv_stack_pulls_free(environment.pulls);
    free(assignment);
    discard(&m);
}

/* Fewer runs, fewer states: flops count each state once. */
static void flops_count_states(void)
{
    made m = make("layers: 3, tokens: 50, head_dim: 8, kv_heads: 2, window: 20, "
                  "profile: [{layers: 0, window: 0}]",
                  2);
    static const int32_t assignment[4][3][2] = {{{0, 0}, {1, 1}, {-1, -1}},
                                                {{0, 0}, {1, 1}, {-1, -1}},
                                                {{0, 0}, {2, 1}, {0, 0}},
                                                {{-1, -1}, {-1, -1}, {-1, 0}}};
    static const int64_t last[4] = {2, 2, 1, 2};
    kv_stack_runs const runs = runs_of(&assignment[0][0], 4, last);
    kv_stack_runs const none = runs_of(NULL, 0, NULL);
    double const unit = 4 * 2 * 16; /* products, streams, width */
    CHECK(kv_stack_flops(m.stack, &runs) == unit * (2 * 50 + 3 * 20 + 3 * 20), "%g",
          kv_stack_flops(m.stack, &runs) / unit);
    CHECK(kv_stack_flops(m.stack, &none) == unit * (50 + 20 + 20), "no runs");
    kv_stack_measured measured = run(&m, 0, &none, 1);
    CHECK(measured.square[2] > 0 && measured.n_runs == 0 && measured.layers == 3, "no runs");
    kv_stack_measured_free_contents(&measured);
    discard(&m);
}

/* ---- cancelling, refusals ---- */

typedef struct {
    int polled, finished, stop_at;
} watcher;

static bool is_cancelled(void *context)
{
    watcher *const w = context;
    return w->polled++ == w->stop_at;
}

static void on_layer(void *context)
{
    ((watcher *)context)->finished++;
}

static void cancelling(void)
{
    made m = make("layers: 4, tokens: 20, head_dim: 8", 1);
    kv_stack_runs const none = runs_of(NULL, 0, NULL);
    for (int stop = 0; stop <= 4; stop++) {
        kv_error err = {0};
        watcher w = {.stop_at = stop};
        kv_stack_environment environment = environment_of(1);
        environment.is_cancelled = is_cancelled, environment.on_layer = on_layer;
        environment.context = &w;
        kv_stack_measured measured = {0};
        kv_status const status = kv_stack_run(&measured, m.stack, 0, &none, &environment, &err);
        CHECK(status == (stop < 4 ? KV_EINTERRUPTED : KV_OK) && w.finished == stop,
              "stop at %d: %d", stop, w.finished);
        CHECK((measured.square != NULL) == (stop == 4), "output only on success");
        if (stop == 0) CHECK_TEXT(err.message, "stopped before all layers were finished");
        kv_stack_measured_free_contents(&measured);
    }
    discard(&m);
}

static const struct {
    const char *heads;
    int64_t streams;
    const char *message;
} refused[] = {
    {"layers: 4, head_dim: 16, tokens: 8, profile: [{layers: 3, head_dim: 32}]", 4,
     "heads: a decode stack needs the same query_heads * head_dim in all layers; layer 3 has 1 * "
     "32 "
     "= 32, layer 0 has 16"},
    {"head_dim: 5, tokens: 8, query_heads: 3", 4,
     "heads: a decode stack needs an even query_heads * head_dim; layer 0 has 3 * 5"},
    {"head_dim: 4", 0, "streams of a decode stack: 0: must be 1 or more"},
};

static void refusals(void)
{
    int64_t const index[KV_CONFIG_MAX_AXES] = {0};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        kv_error err = {0};
        kv_config config = {0};
        kv_stack *stack = NULL;
        configure(&config, refused[i].heads);
        CHECK(kv_stack_create(&stack, &config, index, refused[i].streams, &err) == KV_EREQUEST &&
                  !stack,
              "%s", refused[i].heads);
        CHECK_TEXT(err.message, refused[i].message);
        kv_config_free_contents(&config);
    }
}

static const struct {
    int32_t key, value;
    int64_t last;
    kv_status status;
    const char *message;
} bad_runs[] = {
    {KEYS, -1, 0, KV_EREQUEST,
     "decode stack, run 0, layer 0: quantizers 5 and -1: must be -1 to 4 and -1 to 2"},
    {-2, 0, 0, KV_EREQUEST,
     "decode stack, run 0, layer 0: quantizers -2 and 0: must be -1 to 4 and -1 to 2"},
    {0, VALUES, 0, KV_EREQUEST,
     "decode stack, run 0, layer 0: quantizers 0 and 3: must be -1 to 4 and -1 to 2"},
    {0, 0, 1, KV_EREQUEST, "decode stack, run 0: last layer 1: must be 0 to 0"},
    {0, 0, -1, KV_EREQUEST, "decode stack, run 0: last layer -1: must be 0 to 0"},
};

static void bad_runs_are_refused(void)
{
    made m = make("tokens: 20, head_dim: 8", 1);
    kv_stack_environment const environment = environment_of(1);
    for (size_t i = 0; i < sizeof bad_runs / sizeof *bad_runs; i++) {
        kv_error err = {0};
        kv_stack_measured measured = {0};
        int32_t const assignment[1][2] = {{bad_runs[i].key, bad_runs[i].value}};
        kv_stack_runs const runs = runs_of(assignment, 1, &bad_runs[i].last);
        CHECK(kv_stack_run(&measured, m.stack, 0, &runs, &environment, &err) == bad_runs[i].status,
              "%s", bad_runs[i].message);
        CHECK_TEXT(err.message, bad_runs[i].message);
    }
    discard(&m);
}

/* Errors from within a layer say where. */
static void errors_say_where(void)
{
    static const struct {
        const char *heads, *message;
        kv_status status;
    } cases[] = {
        {"layers: 2, tokens: 20, head_dim: 4, query_heads: 2, sinks: {count: 2}, "
         "profile: [{layers: 1, sinks.mass: 0.999, sinks.key_gain: 0}]",
         "decode stack, layer 1, seed 9: heads: layer 1, kv head 0, query row 0: sink mass 0.999 "
         "cannot be reached, only ",
         KV_EREQUEST},
        {"layers: 2, tokens: 20, head_dim: 4, profile: [{layers: 1, drift: {kind: linear, rate: "
         "1e6}, sinks.count: 20, sinks.value_gain: 1e6, value_mean: 1e6}]",
         "", KV_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        made m = make(cases[i].heads, 2);
        kv_error err = {0};
        kv_stack_measured measured = {0};
        kv_stack_runs const none = runs_of(NULL, 0, NULL);
        kv_stack_environment const environment = environment_of(3);
        kv_status const status = kv_stack_run(&measured, m.stack, 9, &none, &environment, &err);
        CHECK(status == cases[i].status, "%s", err.message);
        CHECK(strncmp(err.message, cases[i].message, strlen(cases[i].message)) == 0, "%s",
              err.message);
        kv_stack_measured_free_contents(&measured);
        discard(&m);
    }
}

/* ---- what adds up ---- */

/* 24 layers: the power of all layers quantized is nearly the sum of the powers of each alone, and
 * that of a layer is nearly the sum of its key's and its value's. */
static void errors_add(void)
{
    enum { LAYERS = 24, RUNS = 1 + 3 * LAYERS, SEEDS = 2 };
    made m = make("layers: 24, tokens: 512, head_dim: 32, kv_heads: 2, query_heads: 4, rope: half, "
                  "outliers: {count: 2, placement: rope-low, scale: 2, bias: 5}, "
                  "value_mean: 0.5",
                  4);
    static int32_t assignment[RUNS][LAYERS][2];
    memset(assignment, -1, sizeof assignment);
    for (int l = 0; l < LAYERS; l++) {
        assignment[0][l][0] = assignment[0][l][1] = 0;
        assignment[1 + l][l][0] = assignment[1 + l][l][1] = 0;
        assignment[1 + LAYERS + l][l][0] = assignment[1 + 2 * LAYERS + l][l][1] = 0;
    }
    kv_stack_runs const runs = runs_of((const int32_t(*)[2])assignment, RUNS, NULL);
    double power[RUNS] = {0}, square = 0, sum = 0, least = INFINITY, most = 0;
    for (int64_t seed = 0; seed < SEEDS; seed++) {
        kv_stack_measured measured = run(&m, seed, &runs, 2);
        square += measured.square[LAYERS - 1];
        for (int r = 0; r < RUNS; r++) power[r] += measured.err_square[r * LAYERS + LAYERS - 1];
        kv_stack_measured_free_contents(&measured);
    }
    for (int l = 0; l < LAYERS; l++) {
        double const ratio = power[1 + l] / (power[1 + LAYERS + l] + power[1 + 2 * LAYERS + l]);
        sum += power[1 + l], least = fmin(least, ratio), most = fmax(most, ratio);
        CHECK(ratio > 0.75 && ratio < 1.33, "layer %d: both / (key + value) = %g", l, ratio);
    }
    CHECK(power[0] / sum > 0.85 && power[0] / sum < 1.18, "all / sum of single layers = %g",
          power[0] / sum);
    printf("24 layers: error %.4f; all / sum of single layers %.3f; both / (key + value) %.3f to "
           "%.3f\n",
           sqrt(power[0] / square), power[0] / sum, least, most);
    discard(&m);
}

int main(void)
{
    parse_quantizers();
    matrices_are_orthogonal();
    agrees_with_double();
    captures_as_prefix();
    threads_and_company_change_nothing();
    kept_pulls_change_nothing();
    flops_count_states();
    cancelling();
    refusals();
    bad_runs_are_refused();
    errors_say_where();
    errors_add();
    return check_done();
}
