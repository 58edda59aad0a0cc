/* The CUDA backend against the CPU's, on an emulated module (argv[1]): evaluations and attentions
 * of many shapes, quantizers and numbers; schedules, threads and cuts, which change no bit.
 *
 * A module that is not emulated runs on the machine's GPU: schedules, races and leaks are left out.
 * argv[2] multiplies how many random cases are drawn; above 1 there are large ones, too. */
#include "kernels/cuda/cuda.h"
#include "sim/heads.h"
#include "tests/gpu/backends.h"

/* ---- evaluations ---- */

static void describe(char *out, size_t size, const shape *s, int kind, int rope)
{
    snprintf(out, size, "T %d D %d G %d group %d Q %d window %d %s, numbers %d, rope %d",
             (int)s->tokens, (int)s->head_dim, (int)s->kv_heads, (int)s->group, (int)s->queries,
             (int)s->window, s->ends ? "ends" : "anywhere", kind, rope);
}

/* Tokens around tiles of 32, 64, 128 and 256, odd channels, groups, rows around 64, windows. */
static void test_shapes(void)
{
    static const char *const keys[] = {"f32",
                                       "int8/channel",
                                       "int4/channel:zero:pre-rope",
                                       "int2/32x1:zero:window=7:sinks=2",
                                       "int3/channel:zero:outliers=2",
                                       NULL},
                             *const values[] = {"int8/token", "f32", "int2/1x32:zero", NULL};
    static const shape shapes[] = {
        {1, 1, 1, 1, 1, 0, true},      {2, 3, 2, 1, 1, 1, true},
        {31, 5, 1, 2, 3, 0, false},    {32, 32, 3, 1, 2, 0, true},
        {33, 20, 1, 3, 7, 5, false},   {63, 64, 1, 4, 5, 0, false},
        {65, 33, 3, 2, 8, 0, false},   {130, 16, 2, 3, 22, 40, false},
        {257, 8, 1, 1, 70, 129, true}, {300, 128, 1, 1, 4, 31, true},
        {70, 256, 1, 2, 2, 0, false},  {520, 4, 2, 1, 3, 0, false},
    };
    static quantizers q;
    parse_lists(&q, keys, values);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        memory_layer m;
        char where[256];
        int const rope = (int)(i % 4);
        make_case(&m, &shapes[i], NORMAL, rope);
        describe(where, sizeof where, &shapes[i], NORMAL, rope);
        check_evaluation(&m.layer, &q.evaluation, where);
        free_layer(&m);
    }
}

/* Outputs of more than SPLIT tokens are sums of splits; statistics of large tiles are found by
 * several blocks. */
static void test_long(void)
{
    static const char *const keys[] = {"int4/tensor:percentile=99", NULL}, *const values[] = {
                                                                               "int8/channel",
                                                                               NULL};
    static const shape shapes[] = {{2048, 3, 1, 1, 3, 0, true}, {4100, 32, 1, 2, 1, 0, false}};
    static quantizers q;
    parse_lists(&q, keys, values);
    for (int i = 0; i < 2; i++) {
        memory_layer m;
        make_case(&m, &shapes[i], NORMAL, 1);
        check_evaluation(&m.layer, &q.evaluation, "many tokens");
        free_layer(&m);
    }
}

/* Sizes as users have them, for a GPU: emulated they would take hours. */
static void test_large(void)
{
    static const char *const keys[] = {"int4/32x1:zero:scale=f16",
                                       "int8/channel:pre-rope",
                                       "q4_0:hadamard",
                                       "int3/channel:zero:outliers=1",
                                       "e4m3/tensor",
                                       NULL},
                             *const values[] = {"int4/token:zero", "int2/1x32:zero:window=128",
                                                "f32", NULL};
    static const shape shapes[] = {{2000, 128, 4, 4, 16, 0, false},
                                   {20011, 128, 2, 2, 9, 0, true},
                                   {8192, 64, 3, 1, 64, 4096, false},
                                   {3001, 256, 5, 1, 3, 0, false}};
    static quantizers q;
    parse_lists(&q, keys, values);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        memory_layer m;
        char where[256];
        make_case(&m, &shapes[i], NORMAL, (int)(i % 4));
        describe(where, sizeof where, &shapes[i], NORMAL, (int)(i % 4));
        check_evaluation(&m.layer, &q.evaluation, where);
        free_layer(&m);
    }
}

/* Every format under several tiles and stages, each kind of numbers. */
static void test_formats(void)
{
    static const char *const scaled[] = {"/channel", "/token:mse", "/head:unit", "/1x16:scale=e4m3",
                                         "/tensor:percentile=97"},
                             *const integer[] = {"/token:zero", "/32x8:zero:mse:scale=bf16"},
                             *const own[] = {"", ":hadamard=32", ":center:sinks=1"};
    for (size_t f = 0; f < KV_FORMAT_COUNT; f++) {
        static quantizers q;
        const kv_format *const format = kv_format_at(f);
        bool const has_scale = kv_format_has_scale(format);
        int n = 0;
        memory_layer m;
        char text[64];
        kv_error err = {0};
        for (size_t i = 0; i < (has_scale ? 5 : 3); i++, n++) {
            snprintf(text, sizeof text, "%s%s", format->name, has_scale ? scaled[i] : own[i]);
            CHECK(kv_quantizer_parse(&q.keys[n], text, true, &err) == KV_OK, "%s", err.message);
            q.values[n] = q.keys[n];
        }
        for (size_t i = 0; format->kind == KV_KIND_INTEGER && i < 2; i++, n++) {
            snprintf(text, sizeof text, "%s%s", format->name, integer[i]);
            CHECK(kv_quantizer_parse(&q.keys[n], text, true, &err) == KV_OK, "%s", err.message);
            q.values[n] = q.keys[n];
        }
        make_pairs(&q, n, n);
        q.evaluation.want_rows = false; /* their kernels see no format */
        numbers const kind = (numbers)(f % NUMBER_KINDS);
        make_case(&m, &(shape){37, 64, 2, 1, 2, 0, false}, kind, 0);
        check_evaluation(&m.layer, &q.evaluation, format->name);
        free_layer(&m);
    }
}

/* Quantizers and shapes drawn from all there are. */
static void test_random(int trials)
{
    for (int i = 0; i < trials; i++) {
        static quantizers q;
        memory_layer m;
        char where[256];
        numbers const kind = chance(0.5) ? NORMAL : (numbers)(draw() * NUMBER_KINDS);
        int const rope = (int)(draw() * 4);
        shape s = {.tokens = 1 + (int64_t)(draw() * (chance(0.2) ? 280 : 80)),
                   .head_dim = ONE_OF(2, 3, 4, 8, 16, 20, 32, 33, 64, 96),
                   .kv_heads = 1 + (int64_t)(draw() * 3),
                   .group = 1 + (int64_t)(draw() * 3),
                   .queries = 1 + (int64_t)(draw() * 4),
                   .ends = chance(0.5)};
        if (chance(0.3)) s.window = 1 + (int64_t)(draw() * (double)s.tokens);
        make_case(&m, &s, kind, rope);
        describe(where, sizeof where, &s, kind, rope);
        draw_quantizers(&q, &m.layer, 4, 3);
        q.evaluation.want_levels = chance(0.7), q.evaluation.want_rows = chance(0.3);
        if (chance(0.2)) m.layer.needle = NULL;
        if (chance(0.2)) m.layer.softmax_scale = 0.31;
        check_evaluation(&m.layer, &q.evaluation, where);
        free_layer(&m);
    }
}

/* No keys, no values, no pairs; a quantizer twice; queries past the end of the cache. */
static void test_few(void)
{
    static const char *const keys[] = {"int4/token:zero", "int4/token:zero", NULL},
                             *const values[] = {"int8/channel", NULL};
    static quantizers q;
    memory_layer m;
    parse_lists(&q, keys, values);
    make_case(&m, &(shape){40, 16, 2, 2, 3, 9, true}, NORMAL, 0);
    kv_evaluation e = q.evaluation;
    check_evaluation(&m.layer, &e, "a key twice");
    m.position[2] = 44;
    check_evaluation(&m.layer, &e, "a position past the end");
    e.n_pairs = 0;
    check_evaluation(&m.layer, &e, "no pairs");
    e.n_values = 0;
    check_evaluation(&m.layer, &e, "no values");
    e.n_keys = 0;
    check_evaluation(&m.layer, &e, "nothing");
    e.n_values = 1;
    check_evaluation(&m.layer, &e, "no keys");
    free_layer(&m);
}

/* The same, wave by wave, each of one head. */
static void check_waves(const kv_layer *l, const kv_evaluation *e)
{
    outcome expected = evaluate(cuda, l, e, 1), found = {0};
    CHECK(kv_measurements_create(&found.m, l, e, &found.err) == KV_OK, "%s", found.err.message);
    found.status =
        kv_cuda_evaluate_with(&(kv_cuda_options){.heads = 1}, l, e, 1, found.m, &found.err);
    CHECK(found.status == KV_OK && expected.status == KV_OK, "waves: %s", found.err.message);
    if (found.status == KV_OK && expected.status == KV_OK)
        compare(found.m, expected.m, true, false, "waves");
    check_nothing_left("waves");
    free_outcome(&found), free_outcome(&expected);
}

/* Synthetic heads, which the device draws itself where it can, and whose queries it pulls. */
static void test_synthetic(void)
{
    static const struct {
        kv_generator generator;
        kv_distribution distribution;
        kv_rope_layout rope;
        double isotropic; /* share of queries that are not pulled by their class */
        double sink_mass, sink_gain;
        bool is_refused;
    } kinds[] = {{KV_GENERATOR_PHILOX, KV_NORMAL, KV_ROPE_HALF, 0.34, 0.2, 2.5, false},
                 {KV_GENERATOR_PHILOX, KV_UNIFORM, KV_ROPE_NONE, 1, 0, 0.25, false},
                 {KV_GENERATOR_PHILOX, KV_LAPLACE, KV_ROPE_INTERLEAVED, 0.34, 0, 2.5, false},
                 {KV_GENERATOR_NUMPY, KV_NORMAL, KV_ROPE_HALF, 1, 0.2, 2.5, false},
                 {KV_GENERATOR_PHILOX, KV_NORMAL, KV_ROPE_HALF, 1, 0.2, 0.25, true}};
    static const char *const keys[] = {"int4/channel:zero:pre-rope", "int8/head:static=seed:3",
                                       "int4/tensor:static=seed:1:pre-rope", NULL},
                             *const values[] = {"int4/token:zero", "e4m3/head:static=seed:2", NULL};
    static quantizers q;
    parse_lists(&q, keys, values);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        kv_heads_config const config = {.generator = kinds[i].generator,
                                        .distribution = kinds[i].distribution,
                                        .rope = {.layout = kinds[i].rope},
                                        .tokens = 75,
                                        .head_dim = 20,
                                        .queries = 3,
                                        .kv_heads = 3,
                                        .query_heads = 6,
                                        .query_gain = 1.5,
                                        .class_share = {kinds[i].isotropic,
                                                        (1 - kinds[i].isotropic) / 2,
                                                        (1 - kinds[i].isotropic) / 2},
                                        .local_span = 5,
                                        .local_mass = 0.4,
                                        .needle_depth = 0.6,
                                        .needle_margin = 2,
                                        .sink_mass = kinds[i].sink_mass,
                                        .value_mean = 0.7,
                                        .outliers = {.count = 2, .scale = 8, .bias = 3},
                                        .value_outliers = {.scale = 1},
                                        .sink_count = 2,
                                        .sink_key_gain = kinds[i].sink_gain,
                                        .sink_value_gain = 0.5,
                                        .drift = KV_DRIFT_LOG,
                                        .drift_rate = 0.3};
        kv_heads *heads = NULL;
        kv_error err = {0};
        CHECK(kv_heads_create(&heads, &config, 2, 7, &err) == KV_OK, "%s", err.message);
        if (!heads) continue;
        const kv_source *const source = &kv_heads_layer(heads)->source;
        float query[2 * 3 * 20];
        kv_status const status = source->query(source->context, 0, query, &err);
        CHECK((status != KV_OK) == kinds[i].is_refused, "%s", err.message);
        check_evaluation(kv_heads_layer(heads), &q.evaluation, "synthetic");
        if (i == 0) check_waves(kv_heads_layer(heads), &q.evaluation);
        kv_heads_free(heads);
    }
}

/* A stream has no more calibration draws than its name has room for. */
static void test_draws(void)
{
    static const char *const keys[] = {"int8/head:static=seed:4096", NULL}, *const values[] = {
                                                                                "f32", NULL};
    static quantizers q;
    kv_heads_config const config = {.tokens = 1,
                                    .head_dim = 4,
                                    .queries = 1,
                                    .kv_heads = 1,
                                    .query_gain = 1,
                                    .class_share = {1},
                                    .outliers = {.scale = 1},
                                    .value_outliers = {.scale = 1}};
    kv_heads *heads = NULL;
    kv_error err = {0};
    parse_lists(&q, keys, values);
    CHECK(kv_heads_create(&heads, &config, 2, 7, &err) == KV_OK, "%s", err.message);
    if (heads) check_evaluation(kv_heads_layer(heads), &q.evaluation, "too many draws");
    kv_heads_free(heads);
}

/* ---- attention ---- */

static void test_attention(int trials)
{
    static const struct {
        shape s;
        int64_t rows, position;
        int kinds;
    } fixed[] = {
        {{1, 1, 1, 1, 1, 0, true}, 1, 0, 1},         {{7, 32, 2, 2, 1, 0, true}, 0, 6, 4},
        {{257, 20, 3, 1, 1, 100, true}, 17, 256, 6}, {{40, 16, 2, 2, 1, 8, true}, 6, 44, 5},
        {{60, 16, 1, 2, 1, 0, true}, 130, 59, 2},    {{2500, 3, 1, 2, 1, 0, true}, 4, 2499, 3},
        {{2500, 3, 1, 1, 1, 300, true}, 4, 2400, 3},
    };
    static request r;
    char where[256];
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        make_request(&r, &fixed[i].s, fixed[i].rows, fixed[i].position, fixed[i].kinds, i % 4);
        describe(where, sizeof where, &fixed[i].s, NORMAL, i % 4);
        check_attention(&r, where);
        free_request(&r);
    }
    for (int i = 0; i < trials; i++) {
        shape s = {.tokens = 1 + (int64_t)(draw() * 150),
                   .head_dim = ONE_OF(2, 3, 8, 20, 32, 64),
                   .kv_heads = 1 + (int64_t)(draw() * 3),
                   .group = 1 + (int64_t)(draw() * 3),
                   .queries = 1,
                   .window = chance(0.4) ? 1 + (int64_t)(draw() * 100) : 0};
        int64_t const rows = 1 + (int64_t)(draw() * 20), position = (int64_t)(draw() * 150);
        make_request(&r, &s, rows, position, 1 + (int)(draw() * 12), i % 4);
        describe(where, sizeof where, &s, NORMAL, i % 4);
        check_attention(&r, where);
        free_request(&r);
    }
}

/* ---- schedules and threads ---- */

/* The order of lanes and blocks changes no bit, and there is no race. */
static void test_schedules(void)
{
    static request r;
    make_request(&r, &(shape){70, 20, 2, 2, 3, 40, false}, 9, 69, 6, 0);
    outcome first = {0}, first_out = {0};
    gpu.set_races(GPU_RACES_ALL);
    for (int seed = 0; seed < 5; seed++) {
        char where[64];
        snprintf(where, sizeof where, "seed %d", seed);
        gpu.set_seed((uint64_t)seed);
        outcome found = evaluate(cuda, &r.m.layer, &r.q.evaluation, 1 + seed);
        outcome out = attend(cuda, &r.m.layer, &r.a, 1 + seed);
        CHECK(found.status == KV_OK, "%s: %s: %s", where, found.err.message, gpu.message());
        CHECK(out.status == KV_OK, "%s: %s: %s", where, out.err.message, gpu.message());
        if (seed == 0) {
            first = found, first_out = out;
            continue;
        }
        if (found.status == KV_OK && first.status == KV_OK)
            compare(found.m, first.m, true, false, where);
        CHECK(memcmp(out.out, first_out.out, (size_t)out.n * sizeof *out.out) == 0, "%s", where);
        free_outcome(&found), free_outcome(&out);
    }
    gpu.set_races(GPU_RACES_SHARED);
    gpu.set_seed(0);
    free_outcome(&first), free_outcome(&first_out);
    free_request(&r);
}

/* How work is cut changes no bit, but for splits of tokens: those are float sums of their own. */
static void test_extents(void)
{
    static const kv_cuda_options cuts[] = {
        {.heads = 1},         {.heads = 2},
        {.rows = 1},          {.rows = 5, .group = 1},
        {.group = 2},         {.heads = 2, .rows = 3, .group = 3},
        {.split_tokens = 256}};
    static request r;
    static const char *const keys[] = {"int8/channel", "int4/channel:zero:pre-rope", "f32",
                                       "int2/32x1:zero:window=7", NULL},
                             *const values[] = {"int4/token:zero", "int8/tensor", "f32", NULL};
    make_request(&r, &(shape){300, 4, 3, 2, 4, 0, false}, 9, 299, 6, 0);
    parse_lists(&r.q, keys, values);
    const kv_layer *const l = &r.m.layer;
    outcome const expected = evaluate(cuda, l, &r.q.evaluation, 1);
    outcome const expected_out = attend(cuda, l, &r.a, 1);
    CHECK(expected.status == KV_OK, "%s", expected.err.message);
    CHECK(expected_out.status == KV_OK, "%s", expected_out.err.message);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const kv_cuda_options *const o = &cuts[i];
        char where[64];
        snprintf(where, sizeof where, "cut %d", (int)i);
        outcome found = {0}, out = {.out = floats(expected_out.n), .n = expected_out.n};
        kv_measurements_create(&found.m, l, &r.q.evaluation, &found.err);
        found.status = kv_cuda_evaluate_with(o, l, &r.q.evaluation, 1, found.m, &found.err);
        out.status = kv_cuda_attend_with(o, l, &r.a, 1, out.out, &out.err);
        CHECK(found.status == KV_OK, "%s: %s", where, found.err.message);
        CHECK(out.status == KV_OK, "%s: %s", where, out.err.message);
        if (found.status == KV_OK && expected.status == KV_OK)
            compare(found.m, expected.m, o->split_tokens == 0, o->split_tokens > 0, where);
        compare_outputs(&out, &expected_out, l->head_dim, o->split_tokens > 0, where);
        check_nothing_left(where);
        free_outcome(&found), free_outcome(&out);
    }
    free_outcome(&(outcome){.m = expected.m}), free_outcome(&(outcome){.out = expected_out.out});
    free_request(&r);
}

int main(int argc, char **argv)
{
    if (argc < 2) return fprintf(stderr, "usage: test_backend MODULE [TIMES]\n"), 1;
    int const times = argc > 2 ? atoi(argv[2]) : 1;
    open_backends(argv[1]);
    test_shapes();
    test_long();
    test_formats();
    test_random(40 * times);
    test_few();
    test_synthetic();
    test_draws();
    test_attention(30 * times);
    test_schedules();
    test_extents();
    if (times > 1) test_large();
    return check_done();
}
