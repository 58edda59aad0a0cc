/* When the CUDA backend cannot do what is asked, on an emulated module (argv[1]): what is refused,
 * with the CPU's words; machines without a device; little device memory, and faults of every call,
 * after which the next request works.
 *
 * A module that is not emulated runs on the machine's GPU: little memory and faults of CUDA's calls
 * are left out. */
#include <sys/wait.h>
#include <unistd.h>

#include "sim/heads.h"
#include "tests/gpu/backends.h"

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

/* RoPE's tables are many times what a head of one token takes; heads share them. */
static void test_shared_memory(void)
{
    static const char *const keys[] = {"int4/tensor", NULL}, *const values[] = {"f32", NULL};
    static quantizers q;
    memory_layer m;
    make_case(&m, &(shape){1, 64, 12, 1, 1, 0, true}, NORMAL, 0);
    parse_lists(&q, keys, values);
    set_memory(192 << 10);
    check_evaluation(&m.layer, &q.evaluation, "192 KiB for twelve heads");
    set_memory(0);
    free_layer(&m);
}

/* What is asked of a backend: attention, or an evaluation where `attention` is NULL. */
typedef struct {
    const char *name;
    const kv_layer *layer;
    const kv_evaluation *evaluation;
    const kv_attention *attention;
} operation;

static outcome carry_out(const kv_backend *backend, const operation *o)
{
    return o->attention ? attend(backend, o->layer, o->attention, 1)
                        : evaluate(backend, o->layer, o->evaluation, 1);
}

/* Of the memory's small layer both operations, and an evaluation of heads that the device makes
 * itself, whose queries are pulled a few rows at a time. */
enum { OPERATIONS = 3 };
typedef struct {
    request r;
    kv_heads *heads;
    operation all[OPERATIONS];
} operations;

static void make_operations(operations *o)
{
    static const int64_t positions[] = {2, 8, 5};
    kv_heads_config const config = {.tokens = 9,
                                    .head_dim = 4,
                                    .rope = {.layout = KV_ROPE_HALF},
                                    .queries = 3,
                                    .query_position = {3, (int64_t *)positions},
                                    .kv_heads = 1,
                                    .query_gain = 1,
                                    .class_share = {0.34, 0.33, 0.33},
                                    .local_span = 2,
                                    .local_mass = 0.4,
                                    .needle_depth = 0.6,
                                    .needle_margin = 0.5,
                                    .outliers = {.scale = 1},
                                    .value_outliers = {.scale = 1}};
    kv_error err = {0};
    make_request(&o->r, &(shape){9, 4, 1, 1, 1, 0, true}, 2, 8, 2, 0);
    CHECK(kv_heads_create(&o->heads, &config, 0, 1, &err) == KV_OK, "%s", err.message);
    const kv_layer *const l = &o->r.m.layer;
    const kv_evaluation *const e = &o->r.q.evaluation;
    o->all[0] = (operation){"evaluation", l, e, NULL};
    o->all[1] = (operation){"attention", l, NULL, &o->r.a};
    o->all[2] = (operation){"evaluation of heads", kv_heads_layer(o->heads), e, NULL};
}

static void free_operations(operations *o)
{
    free_request(&o->r);
    kv_heads_free(o->heads);
}

/* Messages of a failure name CUDA; the next time all is well. */
static void check_fault(const operation *o, const outcome *expected, const char *where)
{
    outcome found = carry_out(cuda, o);
    CHECK(found.status == KV_ENOMEM || found.status == KV_EUNSUPPORTED, "%s: status %d", where,
          (int)found.status);
    CHECK(strstr(found.err.message, "CUDA"), "%s: %s", where, found.err.message);
    check_nothing_left(where);
    free_outcome(&found);
    gpu.fail(GPU_ANY, 0);
    found = carry_out(cuda, o);
    compare_outcomes(&found, expected, o->layer, where);
    free_outcome(&found);
}

static void check_faults(const operation *o)
{
    static const char *const names[] = {"allocation", "copy", "launch"};
    outcome expected = carry_out(cpu, o);
    CHECK(expected.status == KV_OK, "%s: %s", o->name, expected.err.message);
    for (int kind = GPU_MALLOC; kind <= GPU_LAUNCH; kind++) {
        gpu.fail(GPU_ANY, 0);
        outcome found = carry_out(cuda, o);
        int const calls = gpu.calls((gpu_call)kind);
        compare_outcomes(&found, &expected, o->layer, "before faults");
        free_outcome(&found);
        CHECK(calls > 0, "no %s", names[kind]);
        for (int k = 1; k <= calls; k++) {
            char where[80];
            snprintf(where, sizeof where, "%s %d of %d fails in %s", names[kind], k, calls,
                     o->name);
            gpu.fail((gpu_call)kind, k);
            check_fault(o, &expected, where);
        }
    }
    free_outcome(&expected);
}

static void test_faults(void)
{
    static operations o;
    make_operations(&o);
    for (int i = 0; i < OPERATIONS; i++) check_faults(&o.all[i]);
    free_operations(&o);
}

/* Allocations of the host that fail. */
static void test_host_memory(void)
{
    static operations o;
    make_operations(&o);
    for (int i = 0; i < OPERATIONS; i++) {
        long made = 1;
        for (long k = -1; k < made; k++) {
            char where[80];
            snprintf(where, sizeof where, "host allocation %ld of %ld in %s", k, made,
                     o.all[i].name);
            kv_fail_allocation(k);
            outcome found = carry_out(cuda, &o.all[i]);
            if (k < 0) made = kv_fail_allocation(-1);
            CHECK(found.status == (k < 0 ? KV_OK : KV_ENOMEM), "%s: status %d", where,
                  (int)found.status);
            check_nothing_left(where);
            free_outcome(&found);
        }
        kv_fail_allocation(-1);
    }
    free_operations(&o);
}

/* ---- no device ---- */

/* In a process of its own, as a module is opened once: why there is no backend. */
static void check_absent(const char *variable, const char *value, const char *reason)
{
    fflush(stdout);
    pid_t const child = fork();
    if (child == 0) {
        const kv_backend *b = NULL, *host = NULL;
        kv_error err = {0};
        check_failures = 0;
        setenv(variable, value, 1);
        CHECK(kv_backend_find(&b, "cuda", &err) == KV_EUNSUPPORTED, "%s=%s", variable, value);
        CHECK(strstr(err.message, reason), "%s=%s: %s", variable, value, err.message);
        CHECK(kv_backend_find(&host, "cpu", &(kv_error){0}) == KV_OK, "no CPU");
        CHECK(kv_backend_find(&b, "auto", &(kv_error){0}) == KV_OK && b == host, "%s", variable);
        fflush(stdout);
        _exit(check_failures != 0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "%s=%s", variable, value);
}

static void test_absent(const char *path)
{
    void *const library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    bool const is_emulated = library && dlsym(library, "gpu_set_memory");
    setenv("KVANT_CUDA_MODULE", path, 1);
    if (is_emulated)
        check_absent("KVANT_GPU_DEVICES", "0", "cudaGetDeviceCount");
    else
        check_absent("CUDA_VISIBLE_DEVICES", "-1", "CUDA");
    check_absent("KVANT_CUDA_MODULE", "/nowhere/module.so", "/nowhere/module.so");
}

int main(int argc, char **argv)
{
    if (argc < 2) return fprintf(stderr, "usage: test_backend_failures MODULE\n"), 1;
    test_absent(argv[1]); /* before the library opens the module */
    open_backends(argv[1]);
    test_damages();
    test_requests();
    test_attention_requests();
    if (set_memory) test_little_memory(), test_shared_memory(), test_faults();
    test_host_memory();
    return check_done();
}
