/* decode.cu and codes.cu against kv_fit_decode and kv_fit_codes, bit for bit: every format, and
 * quantizers that use every stage, on tensors of odd shapes. argv[1] is the emulated module. */
#include "tests/gpu/decode_bench.h"
#include "tests/gpu/decode_blocks.h"
#include "tests/gpu/rope_turns.h"

static const char *const stages[] = {
    "int8/channel",
    "int4/token:zero",
    "int2/32x1:zero:scale=f16:flush=16",
    "int3/token-all:zero",
    "int5/tensor:scale=f16",
    "int4/head:zero",
    "int6/7x5:zero:scale=bf16",
    "int7/8x8:scale=bf16",
    "int8/1x16:scale=e8m0",
    "e2m1/1x16:scale=e4m3",
    "e4m3/tensor",
    "e5m2/channel:static=20",
    "e4m3fnuz/token",
    "int4/channel:outliers=4",
    "int4/token:outliers=10:zero",
    "int8:unit",
    "e4m3:unit:outliers=3",
    "e5m2fnuz:unit",
    "f32",
    "f16 outliers=5",
    "f32:window=5:center outliers=9",
    "bf16:center:sinks=1",
    "int4/channel:center",
    "int4/channel:smooth",
    "int4/token:hadamard",
    "int4/token:hadamard=4+signs",
    "int4/1x8:center:smooth=0.7:hadamard=4+signs:zero",
    "f32:center:smooth=0.3:hadamard=2+signs",
    "int4/channel:sinks=3:window=10",
    "int4/token:sinks=40:window=3",
    "int4/1x8:center:smooth=0.7:hadamard=4+signs:zero:sinks=40:window=3",
    "int4/channel:sinks=2:window=40",
    "int4/channel:window=1000",
    "int4/channel:sinks=1000",
    "int4/channel:pre-rope",
    "int4/token:pre-rope:zero:sinks=5:window=9",
    "int2/channel:pre-rope:center:outliers=5",
    "q8_0 outliers=5",
    "q4_0:sinks=3:window=6 outliers=20",
    "q5_0:sinks=3:window=40",
    "q4_1:hadamard=32",
    "iq4_nl:center outliers=3",
    "exl3:hadamard=32+signs",
    "q5_1:pre-rope",
    NULL,
};

/* Every format beside tokens that stay at f16, before and behind; in rows with and without room
 * behind them. */
static void check_formats(emulated *e)
{
    char names[KV_FORMAT_COUNT][64];
    const char *texts[KV_FORMAT_COUNT + 1] = {NULL};
    int n_blocks = 0;
    for (size_t i = 0; i < KV_FORMAT_COUNT; i++) {
        n_blocks += kv_format_at(i)->kind == KV_KIND_BLOCK;
        snprintf(names[i], sizeof names[i], "%s%s:sinks=1:window=2", kv_format_at(i)->name,
                 kv_format_has_scale(kv_format_at(i)) ? "/1x32" : "");
        texts[i] = names[i];
    }
    shape const blocks = {1, 35, 224, {.layout = KV_ROPE_NONE}};
    shape const dense = {1, 35, 100, {.layout = KV_ROPE_NONE}};
    CHECK(check_list(e, &blocks, texts) == KV_FORMAT_COUNT, "all formats");
    CHECK(check_list(e, &dense, texts) == KV_FORMAT_COUNT - n_blocks, "the others");
}

static void check_stages(emulated *e)
{
    static const struct {
        shape s;
        int least; /* how many quantizers go with it */
    } cases[] = {
        {{2, 70, 64, {.layout = KV_ROPE_HALF}}, sizeof stages / sizeof *stages - 1},
        {{1, 65, 20, {.layout = KV_ROPE_INTERLEAVED, .rotary_dim = 10}}, 30},
        {{3, 5, 3, {.layout = KV_ROPE_NONE}}, 25},
        {{1, 1, 33, {.layout = KV_ROPE_HALF, .rotary_dim = 32}}, 25},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int const done = check_list(e, &cases[i].s, stages);
        CHECK(done >= cases[i].least, "shape %d: %d", (int)i, done);
    }
}

/* More blocks, butterflies and pairs than threads; and tokens that end with their tables. */
static void check_wide(emulated *e)
{
    static const char *const texts[] = {"q8_0:pre-rope", "int4/token:pre-rope:hadamard=32",
                                        "q4_1 outliers=30", NULL};
    static const char *const power[] = {"int4/token:hadamard+signs:pre-rope", NULL};
    shape const wide = {1,
                        35,
                        288,
                        {.layout = KV_ROPE_HALF,
                         .rotary_dim = 140,
                         .scaling = KV_ROPE_SCALING_YARN,
                         .factor = 4,
                         .original_length = 64}};
    shape const full = {1, 64, 32, {.layout = KV_ROPE_HALF}};
    shape const square = {1, 33, 128, {.layout = KV_ROPE_INTERLEAVED}};
    CHECK(check_list(e, &wide, texts) == 3, "288 channels");
    CHECK(check_list(e, &square, power) == 1, "128 channels");
    CHECK(check_list(e, &full, texts) == 3, "64 tokens");
}

/* ---- edges ---- */

/* Exact keys turned where every rounding in double decides a bit. */
static void check_turns(emulated *e, const char *what, void (*make)(turns *))
{
    static turns a;
    static float found[TURN_TOKENS][TURN_DIM], expected[TURN_TOKENS][TURN_DIM];
    uint32_t const flags = 0;
    kv_cuda_scheme const scheme = {.format = KV_FORMAT_F32, .is_pre_rope = 1, .span = TURN_TOKENS};
    make(&a);
    turns_expected(&a, expected);
    kv_cuda_decode const d = {.values = room(e, sizeof found),
                              .x = to_device(e, a.x, sizeof a.x),
                              .x_pre_rope = to_device(e, a.x, sizeof a.x),
                              .schemes = to_device(e, &scheme, sizeof scheme),
                              .n = 1,
                              .heads = 1,
                              .tokens = TURN_TOKENS,
                              .head_dim = TURN_DIM,
                              .rope = turns_tables(e, &a),
                              .flags = to_device(e, &flags, sizeof flags)};
    DO(e, decode, &d);
    to_host(e, found, d.values, sizeof found);
    check_words("turned keys", what, found, expected, TURN_TOKENS * TURN_DIM);
    give_back(e);
}

/* What is not wanted is not written; a value beyond its format is flagged. */
static void check_edges(emulated *e)
{
    float x[3 * 4] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    double errors[1] = {-1};
    uint32_t flags = 0;
    kv_cuda_scheme scheme = {.format = KV_FORMAT_F16, .span = 3, .tile_tokens = 1};
    kv_cuda_decode a = {.x = to_device(e, x, sizeof x),
                        .n = 1,
                        .heads = 1,
                        .tokens = 3,
                        .head_dim = 4,
                        .flags = to_device(e, &flags, sizeof flags)};
    for (int i = 0; i < 12; i++) {
        for (int kept = 0; kept < 2; kept++) {
            x[i] = 65520.0f, scheme.span = kept ? 0 : 3, flags = 0;
            a.x = to_device(e, x, sizeof x);
            a.schemes = to_device(e, &scheme, sizeof scheme);
            a.flags = to_device(e, &flags, sizeof flags);
            DO(e, decode, &a);
            to_host(e, &flags, a.flags, sizeof flags);
            CHECK(flags == KV_CUDA_UNFIT, "element %d, kept %d: flags %u", i, kept, flags);
        }
        x[i] = 65504.0f; /* the largest, which fits */
    }
    a.x = to_device(e, x, sizeof x), a.error = room(e, sizeof errors), flags = 0;
    a.flags = to_device(e, &flags, sizeof flags);
    DO(e, decode, &a);
    to_host(e, &flags, a.flags, sizeof flags);
    to_host(e, errors, a.error, sizeof errors);
    CHECK(flags == 0 && errors[0] == 0, "flags %u, error %g", flags, errors[0]);

    kv_cuda_codes c = {.x = a.x, .heads = 1, .tokens = 3, .head_dim = 4, .scheme = scheme};
    DO(e, codes, &c);
    give_back(e);
}

/* Thresholds that are numbers of the tensor, or none of them (NaN): by token and by channel. */
enum { KEPT_HEADS = 2, KEPT_TOKENS = 40, KEPT_DIM = 32, KEPT_FIRST = 3, KEPT_SPAN = 33 };
typedef struct {
    float x[KEPT_HEADS][KEPT_TOKENS][KEPT_DIM], values[KEPT_HEADS][KEPT_TOKENS][KEPT_DIM];
    uint32_t codes[KEPT_HEADS][KEPT_TOKENS][KEPT_DIM];
    float low[KEPT_HEADS * KEPT_SPAN], high[KEPT_HEADS * KEPT_SPAN];
} kept;

static void expect_kept(kept *k, const kv_cuda_scheme *s)
{
    for (int h = 0; h < KEPT_HEADS; h++)
        for (int t = 0; t < KEPT_TOKENS; t++) {
            const float *const x = k->x[h][t];
            int64_t const u = t - KEPT_FIRST;
            bool is_kept[KEPT_DIM], is_exact = u < 0 || u >= KEPT_SPAN;
            float seen[KEPT_DIM];
            for (int c = 0; c < KEPT_DIM && !is_exact; c++) {
                int64_t const v = h * s->vectors + (s->is_kept_by_channel ? c : u);
                is_kept[c] = x[c] <= k->low[v] || x[c] >= k->high[v];
                seen[c] = is_kept[c] ? 0 : x[c];
            }
            if (!is_exact) block_q4_0(k->values[h][t], k->codes[h][t], seen);
            for (int c = 0; c < KEPT_DIM; c++)
                if (is_exact || is_kept[c])
                    k->values[h][t][c] = kv_f16_round(x[c]), k->codes[h][t][c] = KV_CODE_KEPT;
        }
}

static void check_kept(emulated *e, bool is_by_channel)
{
    static kept k;
    static float found[KEPT_HEADS][KEPT_TOKENS][KEPT_DIM];
    uint32_t const flags = 0;
    int64_t const vectors = is_by_channel ? KEPT_DIM : KEPT_SPAN;
    for (int i = 0; i < KEPT_HEADS * KEPT_TOKENS; i++)
        for (int c = 0; c < KEPT_DIM; c++)
            k.x[i / KEPT_TOKENS][i % KEPT_TOKENS][c] = number_of_exponent(120, 130);
    for (int64_t i = 0; i < KEPT_HEADS * vectors; i++) {
        int64_t const h = i / vectors, v = i % vectors;
        int const t = KEPT_FIRST + (int)number_below(KEPT_SPAN), c = (int)number_below(KEPT_DIM);
        float const x = is_by_channel ? k.x[h][t][v] : k.x[h][KEPT_FIRST + v][c];
        k.low[i] = i % 3 ? -fabsf(x) : NAN, k.high[i] = i % 4 ? fabsf(x) : NAN;
    }
    kv_cuda_scheme const scheme = {.format = KV_FORMAT_Q4_0,
                                   .first = KEPT_FIRST,
                                   .span = KEPT_SPAN,
                                   .keep_low = to_device(e, k.low, sizeof k.low),
                                   .keep_high = to_device(e, k.high, sizeof k.high),
                                   .vectors = vectors,
                                   .is_kept_by_channel = is_by_channel};
    expect_kept(&k, &scheme);
    kv_cuda_decode const d = {.values = room(e, sizeof found),
                              .x = to_device(e, k.x, sizeof k.x),
                              .schemes = to_device(e, &scheme, sizeof scheme),
                              .n = 1,
                              .heads = KEPT_HEADS,
                              .tokens = KEPT_TOKENS,
                              .head_dim = KEPT_DIM,
                              .flags = to_device(e, &flags, sizeof flags)};
    kv_cuda_codes const c = {.codes = room(e, sizeof found),
                             .x = d.x,
                             .heads = KEPT_HEADS,
                             .tokens = KEPT_TOKENS,
                             .head_dim = KEPT_DIM,
                             .scheme = scheme};
    DO(e, decode, &d);
    DO(e, codes, &c);
    to_host(e, found, d.values, sizeof found);
    check_words("kept outliers", "values", found, k.values, sizeof found / sizeof(float));
    to_host(e, found, c.codes, sizeof found);
    check_words("kept outliers", "codes", found, k.codes, sizeof found / sizeof(float));
    give_back(e);
}

static void check_nothing(emulated *e)
{
    e->fail(GPU_LAUNCH, 0);
    for (int i = 0; i < 3; i++) {
        kv_cuda_decode const a = {.n = i != 0, .heads = i != 1, .tokens = i != 2, .head_dim = 4};
        kv_cuda_codes const c = {.heads = i != 1, .tokens = i == 1, .head_dim = 4};
        DO(e, decode, &a);
        DO(e, codes, &c);
    }
    CHECK(e->calls(GPU_LAUNCH) == 0, "%d launches", e->calls(GPU_LAUNCH));
    kv_cuda_decode const wide = {.n = 1, .heads = 1, .tokens = 1, .head_dim = 50000};
    kv_cuda_codes const long_row = {.heads = 1, .tokens = 1, .head_dim = 50000};
    kv_error errors[2] = {0};
    CHECK(e->cuda->decode(&wide, &errors[0]) == KV_EUNSUPPORTED, "50000 channels");
    CHECK(strstr(errors[0].message, "kernel decode needs") != NULL, "%s", errors[0].message);
    CHECK(e->cuda->codes(&long_row, &errors[1]) == KV_EUNSUPPORTED, "50000 channels");
    CHECK(strstr(errors[1].message, "kernel codes needs") != NULL, "%s", errors[1].message);
}

int main(int argc, char **argv)
{
    emulated e = emulated_open(argc, argv);
    check_all_numbers(&e);
    check_formats(&e);
    e.set_seed(1);
    check_stages(&e);
    e.set_seed(2);
    check_wide(&e);
    check_turns(&e, "that cancel", turns_cancel);
    check_turns(&e, "that are sums", turns_sum);
    check_kept(&e, false);
    check_kept(&e, true);
    check_edges(&e);
    check_nothing(&e);
    emulated_close(&e);
    return check_done();
}
