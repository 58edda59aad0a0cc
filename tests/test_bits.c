/* Stored bits without a tensor: kv_quantizer_bits against what fits of drawn quantizers count, and
 * sizes that no machine holds. By hand: test_quantize.c. */
#include <inttypes.h>
#include <stdlib.h>

#include "kernels/quantize.h"
#include "tests/check.h"

static uint64_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static char *describe(const kv_quantizer *q, const kv_tensor_shape *s)
{
    static char text[512];
    snprintf(text, sizeof text,
             "%s tile %s %" PRId64 "x%" PRId64 " range %s zero %d scale %s static %" PRId64
             " outliers %g sinks %" PRId64 " window %" PRId64 " flush %" PRId64
             " center %d, [%" PRId64 "][%" PRId64 "][%" PRId64 "]",
             kv_format_at(q->format)->name, kv_tile_at(q->tile)->name, q->tile_tokens,
             q->tile_channels, kv_range_at(q->range)->name, q->is_asymmetric,
             kv_scale_at(q->scale_storage)->name, q->static_tokens, q->outliers_percent, q->sinks,
             q->window, q->flush, q->transforms[KV_TRANSFORM_CENTER].is_on, s->heads, s->tokens,
             s->head_dim);
    return text;
}

/* Anything; whether it goes together is kv_quantizer_check's business. */
static void draw_quantizer(kv_quantizer *q)
{
    static const int64_t tile_tokens[] = {0, 1, 5, 32, 100}, tile_channels[] = {0, 1, 5, 24, 32};
    *q = (kv_quantizer){.format = (kv_format_id)draw(KV_FORMAT_COUNT),
                        .tile = (kv_tile)draw(KV_TILE_BLOCK + 1),
                        .tile_tokens = tile_tokens[draw(5)],
                        .tile_channels = tile_channels[draw(5)],
                        .range = draw(2) ? KV_RANGE_EXTREMES : (kv_range)draw(KV_RANGE_COUNT),
                        .range_value = 90,
                        .is_asymmetric = draw(2),
                        .scale_storage = (kv_scale_storage)draw(KV_SCALE_COUNT),
                        .static_tokens = draw(4) ? 0 : 1 + draw(60),
                        .sinks = draw(3) ? 0 : 1 + draw(5),
                        .window = draw(3) ? 0 : 1 + draw(40),
                        .flush = draw(4) ? 0 : 32};
    for (int i = 0; i < KV_TRANSFORM_COUNT; i++) q->transforms[i].is_on = draw(3) == 0;
    if (draw(3) > 0) return;
    q->tile = KV_TILE_TENSOR, q->range = KV_RANGE_EXTREMES; /* what formats with blocks take */
    q->is_asymmetric = false, q->scale_storage = KV_SCALE_F32, q->static_tokens = 0;
}

static kv_status absorb_all(kv_fit *fit, const kv_tensor_shape *s, const float *x, kv_error *err)
{
    kv_status status = KV_OK;
    while (kv_fit_next(fit) != KV_FIT_READY) {
        for (int64_t h = 0; h < s->heads; h++)
            KV_TRY(kv_fit_absorb(fit, h, x + h * s->tokens * s->head_dim, err));
        KV_TRY(kv_fit_end_pass(fit, err));
    }
done:
    return status;
}

/* No two alike, in an order that is not theirs, exact in f32 and small enough for f16. */
static void fill_distinct(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i - n / 2) / 64;
    for (int64_t i = n; i-- > 1;) {
        int64_t const j = draw((uint32_t)i + 1);
        float const kept = x[i];
        x[i] = x[j], x[j] = kept;
    }
}

/* The bits of a fit where nothing ties: drawn quantizers, ragged and empty shapes. */
static void test_fits(void)
{
    static const int64_t tokens[] = {0, 1, 2, 37, 130}, dims[] = {1, 2, 20, 32, 96, 128};
    static const double percents[] = {0, 1e-20, 0.5, 1, 2.5, 10, 50, 99, 99.999};
    int n_cases = 0, n_outliers = 0, n_formats[KV_FORMAT_COUNT] = {0};
    for (int trial = 0; trial < 100000 && n_cases < 3000; trial++) {
        kv_quantizer q;
        kv_error err = {0};
        draw_quantizer(&q);
        kv_tensor_shape const s = {
            .heads = 1 + draw(3), .tokens = tokens[draw(5)], .head_dim = dims[draw(6)]};
        if (draw(2)) q.outliers_percent = percents[draw(9)];
        if (q.outliers_percent > 0) memset(q.transforms, 0, sizeof q.transforms);
        if (kv_quantizer_check(&q, &s, &err) != KV_OK) continue;
        int64_t const n = s.heads * s.tokens * s.head_dim;
        float *const x = calloc((size_t)n + 1, sizeof *x);
        fill_distinct(x, n);
        kv_fit *fit = NULL;
        int64_t bits = -1;
        CHECK(kv_fit_create(&fit, &q, &s, &err) == KV_OK && absorb_all(fit, &s, x, &err) == KV_OK,
              "%s: %s", describe(&q, &s), err.message);
        CHECK(kv_quantizer_bits(&bits, &q, &s, &err) == KV_OK, "%s", err.message);
        CHECK(fit && bits == kv_fit_bits(fit), "%s: %" PRId64 " bits, the fit has %" PRId64,
              describe(&q, &s), bits, fit ? kv_fit_bits(fit) : -1);
        kv_fit_free(fit);
        free(x);
        n_cases++, n_outliers += q.outliers_percent > 0, n_formats[q.format]++;
        if (check_failures > 20) return;
    }
    CHECK(n_cases == 3000 && n_outliers > 500, "%d cases, %d with outliers", n_cases, n_outliers);
    for (size_t i = 0; i < KV_FORMAT_COUNT; i++)
        CHECK(n_formats[i] > 10, "%s: %d cases", kv_format_at(i)->name, n_formats[i]);
}

/* Ties at a percentile keep more than the request without a tensor can know. */
static void test_ties(void)
{
    kv_quantizer const q = {
        .format = KV_FORMAT_INT4, .tile = KV_TILE_TOKEN, .outliers_percent = 10};
    kv_tensor_shape const s = {.heads = 1, .tokens = 1, .head_dim = 64};
    float x[64];
    int64_t bits = 0;
    kv_error err = {0};
    kv_fit *fit = NULL;
    for (int i = 0; i < 64; i++) x[i] = 1;
    CHECK(kv_fit_create(&fit, &q, &s, &err) == KV_OK && absorb_all(fit, &s, x, &err) == KV_OK, "%s",
          err.message);
    CHECK(kv_fit_bits(fit) == 64 * 32 + 32, "%" PRId64, kv_fit_bits(fit));
    CHECK(kv_quantizer_bits(&bits, &q, &s, &err) == KV_OK, "%s", err.message);
    CHECK(bits == 2 * 4 * 32 + 56 * 4 + 32, "%" PRId64, bits); /* places 3.15 and 59.85 */
    kv_fit_free(fit);
}

static void check_large(const kv_quantizer *q, kv_tensor_shape s, int64_t expected)
{
    int64_t bits = 0;
    kv_error err = {0};
    CHECK(kv_quantizer_bits(&bits, q, &s, &err) == KV_OK, "%s", err.message);
    CHECK(bits == expected, "%s: %" PRId64 ", not %" PRId64, describe(q, &s), bits, expected);
}

/* Sizes no machine holds. */
static void test_large(void)
{
    kv_quantizer q = {.format = KV_FORMAT_INT8, .tile = KV_TILE_TOKEN};
    kv_tensor_shape const long_cache = {.heads = 8, .tokens = (int64_t)1 << 40, .head_dim = 128};
    kv_tensor_shape const channel = {.heads = 1, .tokens = (int64_t)1 << 55, .head_dim = 1};
    int64_t const vectors = (int64_t)1 << 43;
    check_large(&q, long_cache, vectors * (128 * 8 + 32));
    q.outliers_percent = 1e-13; /* the smallest and the largest of each token */
    check_large(&q, long_cache, vectors * (126 * 8 + 2 * 32 + 32));
    q.tile = KV_TILE_CHANNEL, q.outliers_percent = 1e-20; /* 100 % in double */
    check_large(&q, channel, (channel.tokens - 2) * 8 + 2 * 32 + 32);
    q = (kv_quantizer){.format = KV_FORMAT_F32};
    check_large(&q, (kv_tensor_shape){.heads = 1, .tokens = INT64_MAX / 32, .head_dim = 1},
                INT64_MAX / 32 * 32);
}

static void test_errors(void)
{
    static const kv_tensor_shape too_large[] = {
        {.heads = 3, .tokens = 1 << 30, .head_dim = 1 << 30},
        {.heads = 8, .tokens = INT64_MAX, .head_dim = 128},
        {.heads = INT64_MAX, .tokens = 1, .head_dim = 1},
        {.heads = 1, .tokens = 1, .head_dim = INT64_MAX}};
    for (size_t i = 0; i < sizeof too_large / sizeof *too_large; i++)
        for (int tile = 0; tile < KV_TILE_BLOCK; tile++)
            for (int percent = 0; percent < 100; percent += 33) {
                kv_quantizer const q = {
                    .format = KV_FORMAT_INT8, .tile = (kv_tile)tile, .outliers_percent = percent};
                int64_t bits = 7;
                kv_error err = {0};
                CHECK(kv_quantizer_bits(&bits, &q, &too_large[i], &err) == KV_EREQUEST, "%s",
                      describe(&q, &too_large[i]));
                CHECK(bits == 7, "set on failure");
                if (i > 0) continue;
                CHECK_TEXT(err.message, "a tensor of 3 kv heads, 1073741824 tokens and head_dim "
                                        "1073741824: its bits do not fit into a 64-bit number");
            }
    kv_quantizer const q = {.format = KV_FORMAT_Q4_0};
    int64_t bits = 7;
    kv_error err = {0};
    CHECK(kv_quantizer_bits(&bits, &q, &(kv_tensor_shape){1, 1, 33, 0, false, 0}, &err) ==
              KV_EREQUEST,
          " ");
    CHECK_TEXT(err.message, "q4_0: head_dim 33 is not a multiple of 32");
    CHECK(bits == 7, "set on failure");
}

int main(void)
{
    test_fits();
    test_ties();
    test_large();
    test_errors();
    return check_done();
}
