/* Quantization against the plain implementation of quantize_plain.h, bit for bit: a cross product
 * of formats, tiles, ranges, zero points and scale storages, each with drawn transforms, outliers,
 * windows, shapes and inputs, on every instruction set this machine has. Then what is refused, what
 * is stored, calibration, and memory that runs out. */
#include "tests/quantize_plain.h"

#include <inttypes.h>

#include "kernels/memory.h"
#include "kernels/quantize_fit.h"
#include "tests/check.h"

/* ---- drawing ---- */

static uint64_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static float draw_real(void) /* roughly normal */
{
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)draw(1 << 20) / (float)(1 << 20) - 0.5f;
    return sum;
}

enum { N_INPUTS = 8 };

/* Inputs that have gone wrong somewhere: plain noise first. */
static void fill(float *x, int64_t n, int64_t D, uint32_t kind)
{
    for (int64_t i = 0; i < n; i++) {
        float const z = draw_real();
        switch (kind) {
        case 1: x[i] = i % D == 3 ? 20 * z + 7 : z; break;       /* an outlier channel */
        case 2: x[i] = i / D % 3 ? z : 0.0f; break;              /* whole tokens of zero */
        case 3: x[i] = draw(2) ? -0.0f : 0.0f; break;            /* both zeros */
        case 4: x[i] = 1.5f; break;                              /* constant */
        case 5: x[i] = z * 1e-39f; break;                        /* denormals */
        case 6: x[i] = rintf(4 * z) * 0.5f; break;               /* ties everywhere */
        case 7: x[i] = z * expf((float)draw(40) - 30.0f); break; /* many magnitudes */
        default: x[i] = z; break;
        }
    }
}

/* ---- comparison ---- */

static char *describe(const kv_quantizer *q, const kv_tensor_shape *s, uint32_t input)
{
    static char text[512];
    const kv_transform_setting *const t = q->transforms;
    snprintf(text, sizeof text,
             "%s tile %s %" PRId64 "x%" PRId64 " range %s %g zero %d scale %s static %" PRId64
             " outliers %g sinks %" PRId64 " window %" PRId64 " flush %" PRId64
             " center %d smooth %d %g hadamard %d %g signs %d, [%" PRId64 "][%" PRId64 "][%" PRId64
             "] rotary %" PRId64 " input %u",
             kv_format_at(q->format)->name, kv_tile_at(q->tile)->name, q->tile_tokens,
             q->tile_channels, kv_range_at(q->range)->name, q->range_value, q->is_asymmetric,
             kv_scale_at(q->scale_storage)->name, q->static_tokens, q->outliers_percent, q->sinks,
             q->window, q->flush, t[0].is_on, t[1].is_on, t[1].value, t[2].is_on, t[2].value,
             t[2].has_signs, s->heads, s->tokens, s->head_dim, s->rotary_dim, input);
    return text;
}

static kv_status absorb_all(kv_fit *fit, const kv_tensor_shape *s, const float *x, kv_error *err)
{
    kv_status status = KV_OK;
    while (kv_fit_next(fit) != KV_FIT_READY) { /* heads backwards: order must not matter */
        for (int64_t h = s->heads; h-- > 0;)
            KV_TRY(kv_fit_absorb(fit, h, x + h * s->tokens * s->head_dim, err));
        KV_TRY(kv_fit_end_pass(fit, err));
    }
done:
    return status;
}

/* Decodes all tokens in pieces of drawn length. */
static void decode_all(const kv_fit *fit, const kv_tensor_shape *s, const float *x, float *y,
                       uint32_t *codes)
{
    int64_t const T = s->tokens, D = s->head_dim;
    float *const scratch = plain_room(kv_fit_scratch_floats(fit, T), sizeof *scratch);
    for (int64_t h = 0; h < s->heads; h++)
        for (int64_t t = 0, n; t < T; t += n) {
            n = 1 + draw(draw(2) ? 10 : 200);
            if (n > T - t) n = T - t;
            int64_t const at = (h * T + t) * D;
            kv_fit_decode(fit, h, x + h * T * D, t, n, y + at, scratch);
            kv_fit_codes(fit, h, x + h * T * D, t, n, codes + at, scratch);
        }
    free(scratch);
}

static bool same_bits(const float *a, const float *b, int64_t n)
{
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static int64_t first_difference(const float *a, const float *b, int64_t n)
{
    int64_t i = 0;
    while (i < n && memcmp(a + i, b + i, sizeof *a) == 0) i++;
    return i;
}

static void compare(const kv_quantizer *q, const kv_tensor_shape *s, const float *x, uint32_t input)
{
    int64_t const n = s->heads * s->tokens * s->head_dim;
    plain_result expected = {0};
    plain_quantize(&expected, q, s, x);
    float *const y = plain_room(n, sizeof *y);
    uint32_t *const codes = plain_room(n, sizeof *codes);
    for (kv_isa isa = 0; isa <= kv_isa_best(); isa++) {
        kv_error err = {0};
        kv_fit *fit = NULL;
        kv_status status = kv_fit_create(&fit, q, s, &err);
        if (status == KV_OK) fit->rows = kv_rows_at(isa);
        if (status == KV_OK) status = absorb_all(fit, s, x, &err);
        CHECK(status == KV_OK, "%s: %s", describe(q, s, input), err.message);
        if (status == KV_OK) {
            decode_all(fit, s, x, y, codes);
            int64_t const i = first_difference(y, expected.value, n);
            CHECK(i == n, "%s %s: value %" PRId64 " of x %g: %.9g, expected %.9g", kv_isa_text(isa),
                  describe(q, s, input), i, (double)x[i], (double)y[i], (double)expected.value[i]);
            CHECK(memcmp(codes, expected.code, (size_t)n * sizeof *codes) == 0, "%s %s: codes",
                  kv_isa_text(isa), describe(q, s, input));
            kv_fit_scales const found = kv_fit_scales_of(fit);
            if (found.scale) {
                int64_t const tiles = found.heads * found.rows * found.columns;
                CHECK(tiles == expected.tiles, "%s: tiles", describe(q, s, input));
                CHECK(same_bits(found.scale, expected.scale, tiles), "%s: scales",
                      describe(q, s, input));
                CHECK(!found.minimum || same_bits(found.minimum, expected.minimum, tiles),
                      "%s: minima", describe(q, s, input));
            }
            CHECK(kv_fit_bits(fit) == expected.bits, "%s: %" PRId64 " bits, expected %" PRId64,
                  describe(q, s, input), kv_fit_bits(fit), expected.bits);
            int64_t bits = -1; /* ties may keep more outliers */
            CHECK(kv_quantizer_bits(&bits, q, s, &err) == KV_OK &&
                      (bits == expected.bits || q->outliers_percent > 0),
                  "%s: %" PRId64 " bits without a tensor, expected %" PRId64, describe(q, s, input),
                  bits, expected.bits);
        }
        kv_fit_free(fit);
    }
    free(y), free(codes);
    plain_free(&expected);
}

/* ---- the cross product ---- */

static const struct {
    kv_tile tile;
    int64_t tokens, channels;
} tile_cases[] = {{KV_TILE_TENSOR, 0, 0},  {KV_TILE_HEAD, 0, 0},      {KV_TILE_CHANNEL, 0, 0},
                  {KV_TILE_TOKEN, 0, 0},   {KV_TILE_TOKEN_ALL, 0, 0}, {KV_TILE_BLOCK, 32, 1},
                  {KV_TILE_BLOCK, 1, 32},  {KV_TILE_BLOCK, 5, 24},    {KV_TILE_BLOCK, 1, 5},
                  {KV_TILE_BLOCK, 100, 0}, {KV_TILE_BLOCK, 0, 16}};
enum { N_TILES = sizeof tile_cases / sizeof *tile_cases };

/* Everything the cross product does not walk. */
static void draw_rest(kv_quantizer *q, kv_tensor_shape *s)
{
    static const int64_t tokens[] = {1, 37, 130}, dims[] = {32, 64, 96, 128};
    s->heads = 1 + draw(3), s->tokens = tokens[draw(3)], s->head_dim = dims[draw(4)];
    s->seed = draw(1000);
    s->rotary_dim = draw(2) ? 0 : draw(2) ? s->head_dim : 16;
    s->is_rope_interleaved = draw(2);
    q->transforms[KV_TRANSFORM_CENTER].is_on = draw(3) == 0;
    q->transforms[KV_TRANSFORM_SMOOTH].is_on = draw(3) == 0;
    q->transforms[KV_TRANSFORM_SMOOTH].value = draw(2) ? 0 : 0.7;
    q->transforms[KV_TRANSFORM_HADAMARD].is_on = draw(3) == 0;
    q->transforms[KV_TRANSFORM_HADAMARD].value = s->head_dim == 96 || draw(2) ? 32 : 0;
    q->transforms[KV_TRANSFORM_HADAMARD].has_signs = draw(2);
    q->outliers_percent = draw(4) ? 0 : draw(2) ? 1 : 12.5;
    q->sinks = draw(3) ? 0 : 1 + draw(5);
    q->window = draw(3) ? 0 : 1 + draw(40);
    q->flush = draw(4) ? 0 : 32;
}

static bool draw_case(kv_quantizer *q, kv_tensor_shape *s, size_t format, size_t tile, int range,
                      bool is_asymmetric, int storage)
{
    *q = (kv_quantizer){.format = (kv_format_id)format,
                        .tile = tile_cases[tile].tile,
                        .tile_tokens = tile_cases[tile].tokens,
                        .tile_channels = tile_cases[tile].channels,
                        .range = (kv_range)range,
                        .is_asymmetric = is_asymmetric,
                        .scale_storage = (kv_scale_storage)storage};
    *s = (kv_tensor_shape){0};
    if (q->range == KV_RANGE_PERCENTILE) q->range_value = draw(2) ? 99 : 87.5;
    draw_rest(q, s);
    kv_error err = {0};
    if (draw(4) == 0) q->static_tokens = 1 + draw(60);
    if (kv_quantizer_check(q, s, &err) == KV_OK) return true;
    q->static_tokens = 0, err.status = KV_OK;
    return kv_quantizer_check(q, s, &err) == KV_OK;
}

static void test_cross_product(void)
{
    int n_cases = 0;
    for (size_t format = 0; format < KV_FORMAT_COUNT; format++)
        for (size_t tile = 0; tile < N_TILES; tile++)
            for (int range = 0; range < KV_RANGE_COUNT; range++)
                for (int zero = 0; zero < 2; zero++)
                    for (int storage = 0; storage < KV_SCALE_COUNT; storage++) {
                        kv_quantizer q;
                        kv_tensor_shape s;
                        if (!draw_case(&q, &s, format, tile, range, zero, storage)) continue;
                        uint32_t const input = draw(N_INPUTS);
                        int64_t const n = s.heads * s.tokens * s.head_dim;
                        float *const x = plain_room(n, sizeof *x);
                        fill(x, n, s.head_dim, input);
                        compare(&q, &s, x, input);
                        free(x);
                        n_cases++;
                        if (check_failures > 20) return;
                    }
    printf("%d quantizers compared with the plain implementation, widest %s\n", n_cases,
           kv_isa_text(kv_isa_best()));
}

/* Long tensors: several chunks, digits of few bits, factors over several passes. */
static void test_long(void)
{
    kv_tensor_shape const s = {.heads = 1, .tokens = 30000, .head_dim = 32};
    int64_t const n = s.tokens * s.head_dim;
    float *const x = plain_room(n, sizeof *x);
    fill(x, n, s.head_dim, 1);
    kv_quantizer q = {.format = KV_FORMAT_INT4, .tile = KV_TILE_TOKEN, .range = KV_RANGE_MSE};
    compare(&q, &s, x, 1);
    q.range = KV_RANGE_PERCENTILE, q.range_value = 95, q.is_asymmetric = true;
    q.outliers_percent = 10;
    compare(&q, &s, x, 1);
    q.tile = KV_TILE_CHANNEL;
    compare(&q, &s, x, 1);
    free(x);
}

/* ---- stored bits, by hand ---- */

static void check_bits(kv_quantizer q, int64_t heads, int64_t tokens, int64_t D, int64_t bits)
{
    kv_tensor_shape const s = {.heads = heads, .tokens = tokens, .head_dim = D};
    int64_t const n = heads * tokens * D;
    float *const x = plain_room(n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)i; /* distinct, so that percentiles are exact */
    kv_error err = {0};
    kv_fit *fit = NULL;
    CHECK(kv_fit_create(&fit, &q, &s, &err) == KV_OK && absorb_all(fit, &s, x, &err) == KV_OK, "%s",
          err.message);
    CHECK(kv_fit_bits(fit) == bits, "%s: %" PRId64 " bits, expected %" PRId64, describe(&q, &s, 0),
          kv_fit_bits(fit), bits);
    kv_fit_free(fit);
    free(x);
}

static void test_bits(void)
{
    kv_quantizer q = {.format = KV_FORMAT_F32};
    check_bits(q, 2, 100, 64, 2 * 100 * 64 * 32);
    q.format = KV_FORMAT_Q8_0;
    check_bits(q, 2, 100, 64, 2 * 100 * 2 * 34 * 8);
    q.format = KV_FORMAT_Q4_0, q.window = 30;
    check_bits(q, 1, 100, 64, 30 * 64 * 16 + 70 * 2 * 18 * 8);
    q.format = KV_FORMAT_Q5_1;
    check_bits(q, 1, 100, 64, 30 * 64 * 16 + 70 * 2 * 24 * 8);
    q.format = KV_FORMAT_EXL3;
    check_bits(q, 1, 100, 64, 30 * 64 * 16 + 70 * 2 * 14 * 8);
    /* KIVI's keys: 2 bits, 32 x 1 with scale and min in f16, 100 mod 32 = 4 tokens whole */
    q = (kv_quantizer){.format = KV_FORMAT_INT2,
                       .tile = KV_TILE_BLOCK,
                       .tile_tokens = 32,
                       .tile_channels = 1,
                       .is_asymmetric = true,
                       .flush = 32,
                       .scale_storage = KV_SCALE_F16};
    check_bits(q, 1, 100, 64, 4 * 64 * 16 + 96 * 64 * 2 + 3 * 64 * 2 * 16);
    /* NVFP4's scales: 8 bits per 16 channels, and one f32 for the layer */
    q = (kv_quantizer){.format = KV_FORMAT_INT4,
                       .tile = KV_TILE_BLOCK,
                       .tile_tokens = 1,
                       .tile_channels = 16,
                       .scale_storage = KV_SCALE_E4M3};
    check_bits(q, 2, 10, 64, 2 * 10 * 64 * 4 + 2 * 10 * 4 * 8 + 32);
    q = (kv_quantizer){.format = KV_FORMAT_INT8};
    check_bits(q, 4, 10, 64, 4 * 10 * 64 * 8 + 32);
    q.static_tokens = 5;
    check_bits(q, 4, 10, 64, 4 * 10 * 64 * 8);
    q.static_tokens = 0, q.tile = KV_TILE_TOKEN_ALL;
    check_bits(q, 4, 10, 64, 4 * 10 * 64 * 8 + 10 * 32);
    q.tile = KV_TILE_TOKEN, q.transforms[KV_TRANSFORM_CENTER].is_on = true;
    check_bits(q, 4, 10, 64, 4 * 10 * 64 * 8 + 4 * 10 * 32 + 4 * 64 * 16);
    /* 10 % of 101 numbers 0 ... 100 per channel: <= 5 and >= 95, twelve of them */
    q = (kv_quantizer){.format = KV_FORMAT_INT4, .tile = KV_TILE_CHANNEL, .outliers_percent = 10};
    check_bits(q, 1, 101, 2, 2 * (101 - 12) * 4 + 2 * 12 * 32 + 2 * 32);
    q.sinks = 60, q.window = 60; /* nothing is left to quantize */
    check_bits(q, 1, 101, 2, 101 * 2 * 16);
}

/* ---- what is refused ---- */

static void check_error(kv_quantizer q, const float *x, const char *expected)
{
    kv_tensor_shape const s = {.heads = 2, .tokens = 40, .head_dim = 32};
    kv_error err = {0};
    kv_fit *fit = NULL;
    kv_status status = kv_fit_create(&fit, &q, &s, &err);
    if (status == KV_OK) status = absorb_all(fit, &s, x, &err);
    CHECK(status != KV_OK && status == err.status, "%s", expected);
    CHECK_TEXT(err.message, expected);
    kv_fit_free(fit);
}

static void test_not_finite(void)
{
    float *const x = plain_room(2 * 40 * 32, sizeof *x);
    float *const at = x + (40 + 7) * 32 + 5;
    kv_quantizer q = {.format = KV_FORMAT_INT8, .tile = KV_TILE_CHANNEL};
    for (size_t f = 0; f < KV_FORMAT_COUNT; f++) {
        kv_quantizer const any = {.format = (kv_format_id)f};
        *at = NAN;
        check_error(any, x, "kv head 1, token 7, channel 5: NaN");
        *at = -INFINITY;
        check_error(any, x, "kv head 1, token 7, channel 5: infinity");
    }
    q.window = 39, q.sinks = 1;
    check_error(q, x, "kv head 1, token 7, channel 5: infinity");
    q.window = 0, q.sinks = 0, q.static_tokens = 3, *at = NAN;
    check_error(q, x, "kv head 1, token 7, channel 5: NaN");
    q.static_tokens = 0, *at = 1e38f;
    q.window = 35;
    check_error(q, x, "kv head 1, token 7, channel 5: infinity after rounding to f16");
    q.window = 0, q.outliers_percent = 1;
    check_error(q, x, "kv head 1, token 7, channel 5: outlier 1e+38 does not fit into f16");
    check_error((kv_quantizer){.format = KV_FORMAT_F16}, x,
                "kv head 1, token 7, channel 5: 1e+38 does not fit into f16");
    for (size_t f = 0; f < KV_FORMAT_COUNT; f++) {
        char message[80];
        const kv_format *const block = kv_format_at(f);
        if (block->kind != KV_KIND_BLOCK) continue;
        snprintf(message, sizeof message,
                 "kv head 1, token 7, channel 5: 1e+38 does not fit into %s", block->name);
        check_error((kv_quantizer){.format = (kv_format_id)f}, x, message);
    }
    *at = -3e38f, at[32] = 3e38f;
    q.outliers_percent = 0, q.is_asymmetric = true;
    check_error(q, x,
                "kv head 1, tile at token 0, channel 5: max - min overflows float (values from "
                "-3e+38 to 3e+38)");
    q.is_asymmetric = false, q.transforms[KV_TRANSFORM_HADAMARD].is_on = true;
    for (int i = 0; i < 32; i++) at[i - 5] = 3e38f;
    check_error(q, x, "kv head 1, token 7, channel 0: infinity after the transforms");
    free(x);
}

static void test_refused(void)
{
    kv_quantizer const int8 = {.format = KV_FORMAT_INT8}, e4m3 = {.format = KV_FORMAT_E4M3};
    kv_quantizer q = e4m3;
    q.is_asymmetric = true;
    check_error(q, NULL, "zero goes with integer formats, not with e4m3");
    q = int8, q.is_asymmetric = true, q.scale_storage = KV_SCALE_E8M0;
    check_error(q, NULL,
                "zero stores a minimum, which scale=e8m0 cannot hold; use f32, f16 or bf16");
    q = int8, q.static_tokens = 1, q.static_seeds = 1;
    check_error(q, NULL, "static=N and static=seed:K exclude each other");
    q = int8, q.static_tokens = 1, q.tile = KV_TILE_TOKEN;
    check_error(q, NULL,
                "static scales need a tile over all tokens: tensor, head, channel or allxC");
    q = int8, q.range = KV_RANGE_UNIT, q.static_tokens = 1;
    check_error(q, NULL, "unit has no scale; static, zero and scale= go without it");
    q = int8, q.range = KV_RANGE_PERCENTILE;
    check_error(q, NULL, "percentile: 0 is not between 50 and 100");
    q = int8, q.outliers_percent = 100;
    check_error(q, NULL, "outliers: 100 is not a percentage from 0 to below 100");
    q = int8, q.window = -1;
    check_error(q, NULL, "window: -1 is negative");
    q = int8, q.transforms[KV_TRANSFORM_HADAMARD].is_on = true;
    q.transforms[KV_TRANSFORM_HADAMARD].value = 24;
    check_error(q, NULL, "hadamard: size 24 is not a power of two that divides head_dim 32");
    q = int8, q.transforms[KV_TRANSFORM_SMOOTH].is_on = true;
    q.transforms[KV_TRANSFORM_SMOOTH].value = 2;
    check_error(q, NULL, "smooth: 2 is not between 0 and 1");
    q = (kv_quantizer){.format = KV_FORMAT_Q8_0, .tile = KV_TILE_CHANNEL};
    check_error(q, NULL, "q8_0 has its own tile, 1x32; leave the tile out");
    q.tile = KV_TILE_TENSOR, q.range = KV_RANGE_MSE;
    check_error(q, NULL, "q8_0 has no scale that mse could change");
}

/* ---- calibration on other tensors ---- */

static void test_calibration(void)
{
    kv_tensor_shape const s = {.heads = 2, .tokens = 50, .head_dim = 32};
    int64_t const n = 2 * 50 * 32;
    float *const x = plain_room(3 * n, sizeof *x), *const y = plain_room(n, sizeof *y);
    fill(x, 3 * n, 32, 1);
    kv_quantizer q = {.format = KV_FORMAT_INT8, .tile = KV_TILE_CHANNEL, .static_seeds = 2};
    kv_error err = {0};
    kv_fit *fit = NULL;
    CHECK(kv_fit_create(&fit, &q, &s, &err) == KV_OK, "%s", err.message);
    int n_tensor = 0, n_calibration = 0;
    for (kv_fit_wants wants; (wants = kv_fit_next(fit)) != KV_FIT_READY;) {
        for (int64_t h = 0; h < 2; h++)
            for (int draws = 0; draws < (wants == KV_FIT_CALIBRATION ? 2 : 1); draws++) {
                int64_t const from = wants == KV_FIT_CALIBRATION ? (1 + draws) * n : 0;
                CHECK(kv_fit_absorb(fit, h, x + from + h * 50 * 32, &err) == KV_OK, "%s",
                      err.message);
            }
        n_tensor += wants == KV_FIT_TENSOR, n_calibration += wants == KV_FIT_CALIBRATION;
        CHECK(kv_fit_end_pass(fit, &err) == KV_OK, "%s", err.message);
    }
    CHECK(n_tensor == 1 && n_calibration == 1, "%d, %d passes", n_tensor, n_calibration);
    kv_fit_scales const found = kv_fit_scales_of(fit);
    for (int64_t i = 0; i < 64; i++) {
        float most = 0;
        for (int64_t t = 0; t < 50; t++)
            for (int64_t k = 1; k < 3; k++)
                most = fmaxf(most, fabsf(x[k * n + (i / 32 * 50 + t) * 32 + i % 32]));
        CHECK(found.scale[i] == most / 127, "%" PRId64, i);
    }
    CHECK(kv_fit_bits(fit) == n * 8, "static scales are not counted");
    kv_fit_free(fit);
    free(x), free(y);
}

/* A fit of one kv head gives what the fit of all heads gives for it. */
static void test_single_head(void)
{
    kv_tensor_shape s = {.heads = 2, .tokens = 70, .head_dim = 64};
    int64_t const n = 70 * 64;
    float *const x = plain_room(2 * n, sizeof *x), *const y = plain_room(2 * n, sizeof *y);
    float *const one = plain_room(n, sizeof *one);
    uint32_t *const codes = plain_room(2 * n, sizeof *codes);
    fill(x, 2 * n, 64, 1);
    for (int tile = 0; tile <= KV_TILE_BLOCK; tile++) {
        kv_quantizer const q = {.format = KV_FORMAT_INT4,
                                .tile = (kv_tile)tile,
                                .tile_tokens = 7,
                                .range = KV_RANGE_MSE,
                                .outliers_percent = 3};
        if (kv_quantizer_is_layer_wide(&q)) continue;
        kv_error err = {0};
        kv_fit *all = NULL, *single = NULL;
        s.heads = 2;
        CHECK(kv_fit_create(&all, &q, &s, &err) == KV_OK, "%s", err.message);
        CHECK(absorb_all(all, &s, x, &err) == KV_OK, "%s", err.message);
        decode_all(all, &s, x, y, codes);
        s.heads = 1;
        CHECK(kv_fit_create(&single, &q, &s, &err) == KV_OK, "%s", err.message);
        CHECK(absorb_all(single, &s, x + n, &err) == KV_OK, "%s", err.message);
        decode_all(single, &s, x + n, one, codes);
        CHECK(same_bits(one, y + n, n), "tile %d", tile);
        kv_fit_free(all), kv_fit_free(single);
    }
    free(x), free(y), free(one), free(codes);
}

/* Every allocation fails once; nothing leaks (the sanitizer looks) and the error says so. */
static void test_out_of_memory(void)
{
    kv_tensor_shape const s = {.heads = 2, .tokens = 70, .head_dim = 32};
    int64_t const n = 2 * 70 * 32;
    float *const x = plain_room(n, sizeof *x);
    fill(x, n, 32, 0);
    for (int range = 0; range < KV_RANGE_COUNT; range++) {
        kv_quantizer q = {.format = KV_FORMAT_INT4,
                          .range = (kv_range)range,
                          .range_value = 99,
                          .outliers_percent = 2};
        for (int i = 0; i < KV_TRANSFORM_COUNT; i++) q.transforms[i].is_on = true;
        kv_status status = KV_ENOMEM;
        for (long k = 0; status != KV_OK && k < 1000; k++) {
            kv_error err = {0};
            kv_fit *fit = NULL;
            kv_fail_allocation(k);
            status = kv_fit_create(&fit, &q, &s, &err);
            CHECK((status == KV_OK) == (fit != NULL), "outputs only on success");
            if (status == KV_OK) status = absorb_all(fit, &s, x, &err);
            CHECK(status == KV_OK || status == KV_ENOMEM, "%s", err.message);
            kv_fit_free(fit);
        }
        CHECK(status == KV_OK, "range %d never succeeds", range);
    }
    kv_fail_allocation(-1);
    free(x);
}

int main(void)
{
    test_bits();
    test_refused();
    test_not_finite();
    test_calibration();
    test_single_head();
    test_out_of_memory();
    test_long();
    test_cross_product();
    return check_done();
}
