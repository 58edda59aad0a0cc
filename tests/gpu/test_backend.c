/* The CUDA backend against the CPU's, on an emulated module (argv[1]): evaluations and attentions
 * of many shapes, quantizers and numbers; schedules, which change no bit; what is refused, with the
 * CPU's words; little device memory, faults of every call, and machines without a device.
 *
 * A module that is not emulated runs on the machine's GPU: schedules, races, leaks, little memory
 * and faults are left out. argv[2] multiplies how many random cases are drawn; above 1 there are
 * large ones, too. */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "sim/heads.h"
#include "tests/gpu/backend_cases.h"
#include "tests/gpu/backend_compare.h"
#include "tests/gpu/kernels.h"

static const kv_backend *cpu, *cuda;

/* What the emulator inside the module can do, of which a GPU can nothing. */
static emulated gpu;
static void (*set_memory)(size_t); /* NULL on a GPU */

static void check_nothing_left(const char *where)
{
    gpu_holdings const left = gpu.live();
    CHECK(left.allocations + left.streams + left.events == 0,
          "%s: %zu allocations, %zu streams, %zu events left", where, left.allocations,
          left.streams, left.events);
}

/* ---- evaluations ---- */

static void check_evaluation(const kv_layer *layer, const kv_evaluation *e, const char *where)
{
    char text[8192];
    int const used = snprintf(text, sizeof text, "%s", where);
    name_all(text + used, sizeof text - (size_t)used, e);
    outcome expected = evaluate(cpu, layer, e, 1), found = evaluate(cuda, layer, e, 1);
    compare_outcomes(&found, &expected, layer, text);
    if (*gpu.message()) printf("%s: %s\n", where, gpu.message());
    check_nothing_left(where);
    free_outcome(&expected), free_outcome(&found);
}

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

/* Outputs of more than SPLIT tokens are sums of splits. */
static void test_long(void)
{
    static const char *const keys[] = {"int4/token:zero", NULL}, *const values[] = {"int8/channel",
                                                                                    NULL};
    static const shape shapes[] = {{2048, 3, 1, 1, 3, 0, true}, {4200, 2, 1, 2, 2, 0, false}};
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
        q.evaluation.want_levels = chance(0.7), q.evaluation.want_rows = chance(0.7);
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

/* Synthetic heads, which the device draws itself where it can. */
static void test_synthetic(void)
{
    static const struct {
        kv_generator generator;
        kv_distribution distribution;
        kv_rope_layout rope;
    } kinds[] = {{KV_GENERATOR_PHILOX, KV_NORMAL, KV_ROPE_HALF},
                 {KV_GENERATOR_PHILOX, KV_UNIFORM, KV_ROPE_NONE},
                 {KV_GENERATOR_PHILOX, KV_LAPLACE, KV_ROPE_INTERLEAVED},
                 {KV_GENERATOR_NUMPY, KV_NORMAL, KV_ROPE_HALF}};
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
                                        .class_share = {1},
                                        .value_mean = 0.7,
                                        .outliers = {.count = 2, .scale = 8, .bias = 3},
                                        .value_outliers = {.scale = 1},
                                        .sink_count = 2,
                                        .sink_key_gain = 0.25,
                                        .sink_value_gain = 0.5,
                                        .drift = KV_DRIFT_LOG,
                                        .drift_rate = 0.3};
        kv_heads *heads = NULL;
        kv_error err = {0};
        CHECK(kv_heads_create(&heads, &config, 2, 7, &err) == KV_OK, "%s", err.message);
        if (!heads) continue;
        check_evaluation(kv_heads_layer(heads), &q.evaluation, "synthetic");
        kv_heads_free(heads);
    }
}

/* ---- attention ---- */

typedef struct {
    memory_layer m;
    quantizers q;
    kv_attention a;
    float *query;
    int32_t (*pair)[2];
} request;

/* Rows name pairs of few kinds or any; every quantizer can be named, and -1. */
static void make_request(request *r, const shape *s, int64_t rows, int64_t position, int kinds,
                         int rope)
{
    int32_t kind[16][2];
    make_case(&r->m, s, NORMAL, rope);
    draw_quantizers(&r->q, &r->m.layer, 4, 3);
    int64_t const n = r->m.layer.query_heads * rows * s->head_dim;
    r->query = floats(n + 1);
    r->pair = calloc((size_t)rows + 1, sizeof *r->pair);
    for (int64_t i = 0; i < n; i++)
        r->query[i] = i / s->head_dim % rows == 1 ? 0 : 2 * draw_normal();
    for (int i = 0; i < kinds; i++) {
        kind[i][0] = (int32_t)(draw() * 5) - 1;
        kind[i][1] = (int32_t)(draw() * 4) - 1;
    }
    for (int64_t i = 0; i < rows; i++) memcpy(r->pair[i], kind[(int)(draw() * kinds)], 8);
    r->a = (kv_attention){.n_keys = 4,
                          .n_values = 3,
                          .keys = r->q.keys,
                          .values = r->q.values,
                          .rows = rows,
                          .position = position,
                          .query = r->query,
                          .pair = (const int32_t(*)[2])r->pair};
}

static void free_request(request *r)
{
    free_layer(&r->m);
    free(r->query), free(r->pair);
}

static void check_attention(const request *r, const char *where)
{
    char text[8192];
    int const used = snprintf(text, sizeof text, "attend: %s, rows %d, position %d", where,
                              (int)r->a.rows, (int)r->a.position);
    name_all(text + used, sizeof text - (size_t)used, &r->q.evaluation);
    outcome expected = attend(cpu, &r->m.layer, &r->a, 1);
    outcome found = attend(cuda, &r->m.layer, &r->a, 1);
    compare_outcomes(&found, &expected, &r->m.layer, text);
    if (*gpu.message()) printf("%s: %s\n", where, gpu.message());
    check_nothing_left(where);
    free_outcome(&expected), free_outcome(&found);
}

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

/* ---- what is refused ---- */

typedef enum { IN_KEY, IN_PRE_ROPE, IN_VALUE, IN_QUERY, IN_CALIBRATION } place;

/* Numbers of two heads, G 4, T 50, D 32, that must not be: put at `token` and `channel` of each;
 * with the quantizers that meet them. The lower head's is told. */
typedef struct {
    const char *key, *value;
    place where;
    float x;
    int64_t token, channel;
} damage;

static const damage damages[] = {
    {"f32", "f32", IN_KEY, NAN, 9, 5},
    {"int4/token", "f32", IN_KEY, -INFINITY, 49, 31},
    {"f32", "int8/channel", IN_VALUE, INFINITY, 0, 0},
    {"f32", "int8/channel", IN_VALUE, NAN, 33, 1},
    {"f32", "f32", IN_QUERY, NAN, 1, 30},
    {"f32", "f32", IN_QUERY, INFINITY, 3, 0},
    {"int4/token:pre-rope", "f32", IN_PRE_ROPE, NAN, 20, 4},
    {"int4/tensor:pre-rope", "f32", IN_PRE_ROPE, INFINITY, 20, 4},
    {"f32", "f32", IN_PRE_ROPE, NAN, 20, 4}, /* nobody looks */
    {"f16", "f32", IN_KEY, 7e4f, 9, 5},
    {"f32", "f16", IN_VALUE, -65520, 9, 5},
    {"bf16", "f32", IN_KEY, 3.4e38f, 2, 2},
    {"f32", "int4/token:window=5", IN_VALUE, 1e5f, 48, 3},
    {"f32", "int4/token:window=5", IN_VALUE, 1e5f, 44, 3},
    {"int8/channel:sinks=3", "f32", IN_KEY, 1e5f, 2, 31},
    {"int8/channel:flush=32", "f32", IN_KEY, 1e6f, 40, 0},
    {"int4/channel:outliers=5", "f32", IN_KEY, 1e5f, 17, 6},
    {"f32", "int4/token:outliers=5", IN_VALUE, -1e5f, 17, 6},
    {"q8_0", "f32", IN_KEY, 1e9f, 5, 7},
    {"f32", "q4_1", IN_VALUE, 1e9f, 5, 7},
    {"f32", "iq4_nl", IN_VALUE, -1e9f, 5, 31},
    {"exl4:hadamard=32", "f32", IN_KEY, 1e9f, 5, 31},
    {"int8/channel:scale=f16", "f32", IN_KEY, 3e7f, 8, 8},
    {"f32", "int4/token:zero:scale=f16", IN_VALUE, -1e6f, 8, 8},
    {"int4/head:zero", "f32", IN_KEY, 3.4e38f, 8, 8},
    {"f32", "int2/tensor:zero:mse", IN_VALUE, -3.4e38f, 8, 8},
    {"int8/1x16:scale=e4m3", "f32", IN_KEY, 3e38f, 8, 8},
    {"int8/token:scale=e8m0", "f32", IN_KEY, 3.4e38f, 8, 8},
    {"e2m1/token:hadamard", "f32", IN_KEY, 3.4e38f, 8, 8},
    {"f32", "int4/channel:center", IN_VALUE, 1e7f, 8, 8},
    {"int4/channel:smooth=1", "f32", IN_KEY, 3e38f, 8, 8},
    {"int4/head:static=seed:2", "f32", IN_CALIBRATION, NAN, 3, 3},
    {"int4/tensor:static=seed:1:pre-rope", "f32", IN_CALIBRATION, INFINITY, 3, 3},
    {"f32", "f32", IN_QUERY, 3e38f, 2, 3},
    {"f32", "f32", IN_KEY, 3e38f, 30, 3},
    {"f32", "f32", IN_VALUE, 3e38f, 30, 3},
    {"int8/token", "int8/token", IN_QUERY, 3e37f, 2, 3},
};

static void put(memory_layer *m, const damage *d, int64_t head)
{
    int64_t const D = m->layer.head_dim, T = m->layer.tokens, G = m->layer.kv_heads;
    int64_t const at = (head * T + d->token) * D + d->channel;
    int64_t const rows = m->layer.query_heads / G * m->layer.queries;
    switch (d->where) {
    case IN_KEY: m->key[at] = d->x; break;
    case IN_PRE_ROPE: m->pre_rope[at] = d->x; break;
    case IN_VALUE: m->value[at] = d->x; break;
    case IN_QUERY: m->query[(head * rows + d->token) * D + d->channel] = d->x; break;
    case IN_CALIBRATION: m->key[G * T * D + at] = m->pre_rope[G * T * D + at] = d->x; break;
    }
}

static void check_damage(const damage *d, int times)
{
    static quantizers q;
    memory_layer m;
    char where[256];
    const char *const keys[] = {"int8/channel", d->key, NULL}, *const values[] = {d->value, NULL};
    parse_lists(&q, keys, values);
    q.evaluation.want_rows = false; /* the CPU ranks no logit below KV_HIDDEN_LOGIT */
    make_case(&m, &(shape){50, 32, 4, 2, 2, 0, true}, NORMAL, 0);
    for (int i = 0; i < times; i++) put(&m, d, 2 - i);
    snprintf(where, sizeof where, "%g in place %d, token %d, %d times", (double)d->x, (int)d->where,
             (int)d->token, times);
    check_evaluation(&m.layer, &q.evaluation, where);
    int32_t const pair[4][2] = {{-1, -1}, {1, 0}, {-1, 0}, {1, -1}};
    float *const query = floats(8 * 4 * 32);
    for (int i = 0; i < 8 * 4 * 32; i++) query[i] = draw_normal();
    for (int i = 0; d->where == IN_QUERY && i < times; i++)
        query[((2 - i) * 2 * 4 + d->token) * 32 + d->channel] = d->x;
    kv_attention const a = {.n_keys = 2,
                            .n_values = 1,
                            .keys = q.keys,
                            .values = q.values,
                            .rows = 4,
                            .position = 49,
                            .query = query,
                            .pair = pair};
    outcome expected = attend(cpu, &m.layer, &a, 1), found = attend(cuda, &m.layer, &a, 1);
    compare_outcomes(&found, &expected, &m.layer, where);
    check_nothing_left(where);
    free_outcome(&expected), free_outcome(&found);
    free(query);
    free_layer(&m);
}

static void test_damages(void)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++)
        for (int times = 1; times <= 2; times++) check_damage(&damages[i], times);
}

/* Requests that cannot be, and a source that fails, before and after a head with NaN. */
static void test_requests(void)
{
    static quantizers q;
    memory_layer m;
    static const char *const keys[] = {"int4/token", "q8_0", "int4/tensor", NULL},
                             *const values[] = {"int8/channel", NULL};
    parse_lists(&q, keys, values);
    make_case(&m, &(shape){40, 20, 3, 2, 2, 9, true}, NORMAL, 0);
    check_evaluation(&m.layer, &q.evaluation, "q8_0 of 20 channels");
    q.keys[1] = q.keys[0];
    m.failing_head = 2;
    check_evaluation(&m.layer, &q.evaluation, "a source that fails");
    m.value[40 * 20] = NAN;
    check_evaluation(&m.layer, &q.evaluation, "NaN, then a source that fails");
    m.failing_head = 0;
    check_evaluation(&m.layer, &q.evaluation, "a source that fails, then NaN");
    m.failing_head = -1, m.value[40 * 20] = 0;
    q.pairs[1][1] = 1;
    check_evaluation(&m.layer, &q.evaluation, "a pair that is not");
    q.pairs[1][1] = 0, m.position[1] = 49;
    check_evaluation(&m.layer, &q.evaluation, "a position that sees nothing");
    m.position[1] = -1;
    check_evaluation(&m.layer, &q.evaluation, "a position before the first");
    m.layer.tokens = 0;
    check_evaluation(&m.layer, &q.evaluation, "no tokens");
    m.layer.tokens = ((int64_t)1 << 24) + 1;
    check_evaluation(&m.layer, &q.evaluation, "too many tokens");
    m.layer.tokens = 40;
    free_layer(&m);
}

static void test_attention_requests(void)
{
    static request r;
    make_request(&r, &(shape){40, 20, 3, 2, 1, 8, true}, 5, 39, 6, 0);
    r.pair[3][0] = 4;
    check_attention(&r, "a key that is not");
    r.pair[3][0] = 0, r.pair[4][1] = -2;
    check_attention(&r, "a value that is not");
    r.pair[4][1] = 0, r.a.position = 48;
    check_attention(&r, "a position that sees nothing");
    r.a.position = -1;
    check_attention(&r, "a position before the first");
    r.a.position = 39, r.m.layer.query_heads = 7;
    check_attention(&r, "heads that do not divide");
    r.m.layer.query_heads = 6, r.m.failing_head = 1;
    check_attention(&r, "a source that fails");
    r.m.failing_head = -1;
    for (int64_t c = 0; c < 20; c++)
        for (int64_t row = 1; row < 5; row += 2) r.query[(3 * 5 + row) * 20 + c] = 3e38f;
    check_attention(&r, "logits beyond float");
    free_request(&r);
}

/* ---- memory and faults ---- */

/* Evaluates with less and less memory: equal numbers, then a refusal that says why. The least that
 * sufficed. */
static size_t shrink_memory(const kv_layer *l, const kv_evaluation *e, const char *reason)
{
    size_t least = 0;
    bool was_refused = false;
    outcome expected = evaluate(cpu, l, e, 1);
    for (size_t bytes = 4 << 20; bytes > 4096; bytes = bytes / 5 * 3) {
        char where[64];
        snprintf(where, sizeof where, "%zu bytes of device memory", bytes);
        set_memory(bytes);
        outcome found = evaluate(cuda, l, e, 1);
        check_nothing_left(where);
        if (found.status == KV_OK) {
            CHECK(!was_refused, "%s suffice, and more do not", where);
            compare_outcomes(&found, &expected, l, where), least = bytes;
        } else {
            CHECK(found.status == KV_EUNSUPPORTED || found.status == KV_ENOMEM, "%s: status %d",
                  where, (int)found.status);
            CHECK(was_refused || strstr(found.err.message, reason), "%s: %s", where,
                  found.err.message);
            was_refused = true;
        }
        free_outcome(&found);
    }
    set_memory(0);
    CHECK(was_refused, "nothing is refused");
    free_outcome(&expected);
    return least;
}

/* As memory shrinks heads pass in waves, until one does not fit; those of a layer-wide scale must
 * be there together. */
static void test_little_memory(void)
{
    static const char *const keys[] = {"int4/channel:zero:pre-rope", NULL},
                             *const values[] = {"int4/token:zero", NULL},
                             *const wide[] = {"int4/1x16:scale=e4m3", NULL};
    static quantizers q;
    memory_layer m;
    size_t const tensors = 2 * 12 * 100 * 32 * sizeof(float);
    make_case(&m, &(shape){100, 32, 12, 1, 2, 0, true}, NORMAL, 0);
    parse_lists(&q, keys, values);
    size_t const least = shrink_memory(&m.layer, &q.evaluation, "device memory");
    CHECK(least > 0 && least < tensors, "%zu bytes are needed, keys and values have %zu", least,
          tensors);
    parse_lists(&q, keys, wide);
    CHECK(shrink_memory(&m.layer, &q.evaluation, "all kv heads") > tensors / 2, "layer-wide");
    free_layer(&m);
}

/* Both operations of one small request; messages of a failure name CUDA. */
static void check_fault(const request *r, bool is_attention, const outcome *expected,
                        const char *where)
{
    const kv_layer *const l = &r->m.layer;
    outcome found =
        is_attention ? attend(cuda, l, &r->a, 1) : evaluate(cuda, l, &r->q.evaluation, 1);
    CHECK(found.status == KV_ENOMEM || found.status == KV_EUNSUPPORTED, "%s: status %d", where,
          (int)found.status);
    CHECK(strstr(found.err.message, "CUDA"), "%s: %s", where, found.err.message);
    check_nothing_left(where);
    free_outcome(&found);
    gpu.fail(GPU_ANY, 0);
    found = is_attention ? attend(cuda, l, &r->a, 1) : evaluate(cuda, l, &r->q.evaluation, 1);
    compare_outcomes(&found, expected, l, where);
    free_outcome(&found);
}

static void test_faults(void)
{
    static const char *const names[] = {"allocation", "copy", "launch"};
    static request r;
    make_request(&r, &(shape){9, 4, 1, 1, 1, 0, true}, 2, 8, 2, 0);
    for (int is_attention = 0; is_attention < 2; is_attention++) {
        const kv_layer *const l = &r.m.layer;
        outcome expected =
            is_attention ? attend(cpu, l, &r.a, 1) : evaluate(cpu, l, &r.q.evaluation, 1);
        for (int kind = GPU_MALLOC; kind <= GPU_LAUNCH; kind++) {
            gpu.fail(GPU_ANY, 0);
            outcome found =
                is_attention ? attend(cuda, l, &r.a, 1) : evaluate(cuda, l, &r.q.evaluation, 1);
            int const calls = gpu.calls((gpu_call)kind);
            compare_outcomes(&found, &expected, l, "before faults");
            free_outcome(&found);
            CHECK(calls > 0, "no %s", names[kind]);
            for (int k = 1; k <= calls; k++) {
                char where[64];
                snprintf(where, sizeof where, "%s %d of %d fails%s", names[kind], k, calls,
                         is_attention ? " in attention" : "");
                gpu.fail((gpu_call)kind, k);
                check_fault(&r, is_attention, &expected, where);
            }
        }
        free_outcome(&expected);
    }
    free_request(&r);
}

/* Allocations of the host that fail. */
static void test_host_memory(void)
{
    static request r;
    make_request(&r, &(shape){9, 4, 1, 1, 1, 0, true}, 2, 8, 2, 0);
    for (int is_attention = 0; is_attention < 2; is_attention++) {
        long made = 1;
        for (long k = -1; k < made; k++) {
            char where[64];
            snprintf(where, sizeof where, "host allocation %ld of %ld", k, made);
            kv_fail_allocation(k);
            outcome found = is_attention ? attend(cuda, &r.m.layer, &r.a, 1)
                                         : evaluate(cuda, &r.m.layer, &r.q.evaluation, 1);
            if (k < 0) made = kv_fail_allocation(-1);
            CHECK(found.status == (k < 0 ? KV_OK : KV_ENOMEM), "%s: status %d", where,
                  (int)found.status);
            check_nothing_left(where);
            free_outcome(&found);
        }
        kv_fail_allocation(-1);
    }
    free_request(&r);
}

/* In a process of its own, as a module is opened once: why there is no backend. */
static void check_absent(const char *variable, const char *value, const char *reason)
{
    fflush(stdout);
    pid_t const child = fork();
    if (child == 0) {
        const kv_backend *b = NULL;
        kv_error err = {0};
        check_failures = 0;
        setenv(variable, value, 1);
        CHECK(kv_backend_find(&b, "cuda", &err) == KV_EUNSUPPORTED, "%s=%s", variable, value);
        CHECK(strstr(err.message, reason), "%s=%s: %s", variable, value, err.message);
        CHECK(kv_backend_find(&b, "auto", &(kv_error){0}) == KV_OK && b == cpu, "%s", variable);
        fflush(stdout);
        _exit(check_failures != 0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "%s=%s", variable, value);
}

static void open_module(const char *path)
{
    kv_error err = {0};
    setenv("KVANT_CUDA_MODULE", path, 1);
    if (kv_backend_find(&cpu, "cpu", &err) != KV_OK) fprintf(stderr, "%s\n", err.message), exit(1);
    void *const library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror()), exit(1);
    find_emulator(&gpu, library);
    *(void **)&set_memory = dlsym(library, "gpu_set_memory");
    if (set_memory)
        check_absent("KVANT_GPU_DEVICES", "0", "cudaGetDeviceCount");
    else
        check_absent("CUDA_VISIBLE_DEVICES", "-1", "CUDA");
    check_absent("KVANT_CUDA_MODULE", "/nowhere/module.so", "/nowhere/module.so");
    if (kv_backend_find(&cuda, "cuda", &err) != KV_OK)
        fprintf(stderr, "%s\n", err.message), exit(1);
}

int main(int argc, char **argv)
{
    if (argc < 2) return fprintf(stderr, "usage: test_backend MODULE [TIMES]\n"), 1;
    int const times = argc > 2 ? atoi(argv[2]) : 1;
    open_module(argv[1]);
    test_shapes();
    test_long();
    test_formats();
    test_random(40 * times);
    test_few();
    test_synthetic();
    test_attention(30 * times);
    test_schedules();
    test_extents();
    test_damages();
    test_requests();
    test_attention_requests();
    if (times > 1) test_large();
    if (set_memory) test_little_memory(), test_faults();
    test_host_memory();
    return check_done();
}
