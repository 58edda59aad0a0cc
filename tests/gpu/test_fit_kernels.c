/* The fit kernels in the order in which a fit needs them, against kv_fit, bit for bit: channel
 * means, divisors, outlier thresholds and counts, ranges, the global scale, scales and minimums,
 * and which flag stands for which error.
 *
 * Quantizers come from two lists: those that reach an edge of a kernel, and drawn ones. Inputs hold
 * zeros of both signs, ties, constants, denormals, all magnitudes, and what must be refused.
 * Usage: test_fit_kernels MODULE */
#include "tests/gpu/fit_chain.h"

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tests/gpu/draws.h"

/* ---- inputs ---- */

static float draw_real(void) /* roughly normal, of all bits */
{
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)draw(1 << 20) / (float)(1 << 20) - 0.5f;
    return sum * 1.2345678f;
}

typedef enum {
    NOISE,
    OUTLIER_CHANNEL,
    ZERO_TOKENS,
    ZEROS,
    CONSTANT,
    DENORMAL,
    TIES,
    MAGNITUDES,
    BIG,     /* max - min does not overflow, times a limit it would */
    RISING,  /* the extremes come last */
    HIGH,    /* the largest digits that select finds */
    DEEP,    /* the smallest */
    HUGE,    /* max - min overflows */
    LARGEST, /* limit * scale overflows where the scale is rounded up */
    LARGE,   /* beyond f16 */
    FITS,    /* just into f16 */
    UNFIT,   /* just not */
    NOT_A_NUMBER,
    INFINITE_LAST,  /* in the last token */
    INFINITE_DRAWS, /* in the last token of calibration draws */
    INPUTS
} input;

static void fill(float *x, int64_t n, int64_t d, input kind)
{
    for (int64_t i = 0; i < n; i++) {
        float const z = draw_real();
        x[i] = z;
        if (kind == OUTLIER_CHANNEL && i % d == 3 % d) x[i] = 20 * z + 7;
        if (kind == ZERO_TOKENS && i / d % 3 == 0) x[i] = 0.0f;
        if (kind == ZEROS) x[i] = draw(2) ? -0.0f : 0.0f;
        if (kind == CONSTANT) x[i] = 1.5f;
        if (kind == DENORMAL) x[i] = z * 1e-39f;
        if (kind == TIES) x[i] = rintf(4 * z) * 0.5f;
        if (kind == MAGNITUDES) x[i] = z * expf((float)draw(40) - 30.0f);
        if (kind == BIG) x[i] = 1e37f * z;
        if (kind == HIGH) x[i] = 1e36f * fabsf(z);
        if (kind == DEEP) x[i] = -1e36f * fabsf(z);
        if (kind == RISING) x[i] = (i % 2 ? 0.25f : -0.25f) * (float)i;
        if (kind == HUGE) x[i] = i % 2 ? 3e38f : -3e38f;
        if (kind == LARGEST) x[i] = i % 5 ? z : FLT_MAX;
        if (kind == LARGE && i % 7 == 0) x[i] = 1e5f * z;
        if (kind == FITS && i % 3 == 0) x[i] = z > 0 ? 65519.996f : -65519.996f;
        if (kind == UNFIT && i == 1) x[i] = -65520.0f;
        if (kind == NOT_A_NUMBER && i == n / 2) x[i] = NAN;
        if (kind == INFINITE_LAST && i == n - 1) x[i] = -INFINITY;
    }
}

/* ---- cases ---- */

static int n_done, n_flagged;

static void run(emulated *e, const char *text, int64_t heads, int64_t tokens, int64_t d, input kind)
{
    kv_quantizer q;
    kv_tensor_shape const shape = {.heads = heads,
                                   .tokens = tokens,
                                   .head_dim = d,
                                   .rotary_dim = d / 2 / 2 * 2,
                                   .is_rope_interleaved = d % 3 == 0,
                                   .seed = (uint64_t)tokens};
    if (kv_quantizer_parse(&q, text, true, &e->err) != KV_OK ||
        kv_quantizer_check(&q, &shape, &e->err) != KV_OK)
        return;
    int64_t const draws = 1 + q.static_seeds, n = heads * tokens * d;
    float *const x = malloc((size_t)(draws * n + 1) * sizeof *x);
    for (int64_t i = 0; i < draws; i++)
        fill(x + i * n, n, d, kind != INFINITE_DRAWS ? kind : i > 0 ? INFINITE_LAST : NOISE);
    fit_chain c = {.e = e, .q = q, .shape = shape, .x = x, .draws = draws};
    snprintf(c.name, sizeof c.name, "%s [%d][%d][%d] input %d", text, (int)heads, (int)tokens,
             (int)d, (int)kind);
    fit_chain_run(&c);
    n_done++, n_flagged += c.flags != 0;
    give_back(e);
    free(x);
}

typedef struct {
    const char *text;
    int heads, tokens, d;
    input kind;
} fit_case;

/* What each reaches is said where it is not the text. */
static const fit_case cases[] = {
    {"int8/tensor", 3, 150, 20, NOISE}, /* slices of a tile */
    {"int8/tensor:zero", 2, 70, 33, NOISE},
    {"int8/tensor:zero", 2, 192, 3, RISING},
    {"int4/channel:zero", 2, 128, 5, RISING},
    {"int4/3x4:zero", 2, 64, 9, RISING},
    {"int8/channel:zero:center", 2, 16, 40, RISING},
    {"int8/head:zero:scale=bf16", 3, 5, 3, ZEROS},
    {"int4/channel:zero", 2, 65, 300, NOISE}, /* parts of a row of tiles */
    {"int4/channel", 1, 1, 1, NOISE},
    {"int4/token", 3, 129, 5, ZERO_TOKENS}, /* more than 256 tiles */
    {"int4/token:zero:scale=f16", 2, 40, 64, OUTLIER_CHANNEL},
    {"int3/token-all:zero", 3, 9, 20, NOISE},
    {"int2/32x1:zero:scale=f16:flush=32:window=3", 2, 101, 20, NOISE},
    {"int4/7x3:zero", 2, 66, 20, MAGNITUDES}, /* ragged tiles */
    {"int4/1x8", 2, 10, 20, TIES},
    {"e2m1/1x16:scale=e4m3", 2, 33, 40, NOISE},
    {"e2m1/1x16:scale=e4m3", 2, 5, 40, ZEROS},
    {"e2m1/1x32:scale=e8m0", 1, 9, 64, MAGNITUDES},
    {"e2m1/1x16:scale=e4m3:window=9", 2, 5, 40, NOISE}, /* nothing is quantized */
    {"e4m3/token", 1, 9, 20, DENORMAL},
    {"int8/channel:unit", 1, 9, 20, NOISE},
    {"int8/channel:unit:outliers=5", 2, 30, 5, LARGE},
    {"f16:center", 2, 20, 5, NOISE},
    {"q8_0:smooth:hadamard=32", 1, 9, 64, NOISE},
    {"int8/tensor:static=70", 2, 90, 20, NOISE},
    {"int8/tensor:static=70", 2, 50, 20, NOISE}, /* more than there are */
    {"int8/allx7:zero:static=3:sinks=2", 2, 50, 20, OUTLIER_CHANNEL},
    {"int8/tensor:static=seed:3", 2, 70, 20, NOISE},
    {"int8/channel:zero:static=seed:2:outliers=3", 2, 20, 20, NOISE},
    {"int8/head:static=seed:3:percentile=99", 2, 30, 20, NOISE},
    {"int4/head:mse:static=seed:3", 2, 9, 5, NOISE},
    {"int4/tensor:mse:zero:static=seed:2", 3, 5, 7, MAGNITUDES},
    {"int8/tensor:percentile=99.5", 2, 120, 20, NOISE}, /* 1024 threads */
    {"int8/tensor:percentile=97:zero", 3, 100, 20, TIES},
    {"int8/allx5:percentile=90:zero", 2, 100, 42, MAGNITUDES},
    {"int8/head:percentile=100:zero", 1, 17, 64, NOISE},
    {"int8/channel:percentile=99:zero", 1, 101, 3, NOISE}, /* 100 * 0.99 is just below 99 */
    {"int8/token:percentile=50", 2, 7, 33, NOISE},
    {"int8/token:percentile=90:zero", 2, 5, 33, HIGH},
    {"int8/token:percentile=90:zero", 2, 5, 33, DEEP},
    {"int8/channel:percentile=80", 1, 33, 3, DENORMAL},
    {"int8/channel:percentile=100", 1, 1, 3, NOISE},                  /* tiles of one element */
    {"int8/token:percentile=99:zero:outliers=1", 1, 4, 20, CONSTANT}, /* tiles of none */
    {"int8/token:percentile=99:outliers=1", 1, 4, 20, CONSTANT},
    {"int4/token:outliers=1:zero", 1, 300, 3, CONSTANT},
    {"int4/token:outliers=1", 1, 4, 20, CONSTANT},
    {"int4/token:outliers=1:mse:zero", 1, 2, 3, CONSTANT},
    {"int4/channel:outliers=10:center:smooth:hadamard+signs", 2, 40, 32, OUTLIER_CHANNEL},
    {"int4/token:outliers=10:center:smooth=0.8:hadamard=4", 2, 40, 20, OUTLIER_CHANNEL},
    {"int4/token:outliers=3:zero", 2, 40, 33, ZEROS},
    {"int4/channel:outliers=3:sinks=1:window=2", 2, 40, 3, TIES},
    {"int4/token:mse", 2, 5, 130, OUTLIER_CHANNEL}, /* channels beyond 64, twice */
    {"int4/token:mse", 1, 2, 4, ZEROS},
    {"int4/32x1:mse:zero:scale=f16", 2, 40, 5, NOISE},
    {"int4/3x9:mse:zero:scale=bf16", 2, 7, 20, NOISE},
    {"int2/token-all:mse", 3, 5, 9, NOISE},
    {"e4m3/8x2:mse", 1, 9, 3, NOISE},
    {"e4m3fnuz/8x2:mse", 1, 9, 3, NOISE},
    {"e5m2/8x2:mse", 1, 9, 3, NOISE},
    {"e5m2fnuz/8x2:mse", 1, 9, 3, NOISE},
    {"e2m1/1x16:mse:scale=e4m3", 2, 3, 20, NOISE},
    {"e2m1/1x16:mse:scale=e8m0:outliers=5", 1, 3, 20, NOISE},
    {"int8/head:center", 3, 47, 13, OUTLIER_CHANNEL},
    {"int8/head:smooth=0.5:window=4", 3, 47, 12, OUTLIER_CHANNEL},
    {"int8/head:center:smooth:hadamard=2:window=60", 3, 47, 12, NOISE},
    {"int8/head:hadamard=64", 1, 9, 64, NOISE},
    /* several channels a lane */
    {"int8/token:center:smooth:hadamard=4:outliers=5:sinks=1:window=1", 2, 6, 260, OUTLIER_CHANNEL},
    {"int8/token:center:smooth=0.3:hadamard=256+signs", 2, 9, 256, OUTLIER_CHANNEL},
    {"int8/channel:outliers=20:center", 1, 9, 161, NOISE},
    {"int8/channel:zero", 2, 9, 5, BIG},
    {"int8/token:outliers=40:sinks=1", 2, 4, 12, FITS},
    {"int2/channel", 2, 9, 5, LARGEST}, /* a scale of the largest float */
    {"int2/channel:mse", 2, 9, 5, LARGEST},
    {"int2/channel:mse:scale=f16", 2, 9, 5, LARGEST},
    {"int2/channel:mse:scale=bf16", 2, 9, 5, LARGEST},
    {"int2/channel:mse:scale=e8m0", 2, 9, 5, LARGEST},
    {"int2/channel:mse:scale=e4m3", 2, 9, 5, LARGEST},
    /* what must be refused */
    {"int8/channel:zero", 2, 9, 5, HUGE},
    {"int8/channel", 2, 9, 5, HUGE},
    {"int8/head:scale=bf16", 2, 9, 5, LARGEST},
    {"e4m3/head:scale=e8m0", 2, 9, 5, LARGEST},
    {"int8/token:hadamard", 2, 9, 8, HUGE},
    {"int8/token:sinks=3", 2, 9, 7, LARGE},
    {"int8/token:sinks=1", 1, 2, 300, LARGE},
    {"int8/token:sinks=1", 1, 2, 7, UNFIT},
    {"int8/token:outliers=5", 1, 2, 7, UNFIT},
    {"int8/token:outliers=5", 1, 2, 300, LARGE},
    {"int8/token:window=1", 1, 2, 300, INFINITE_LAST},
    {"int8/token", 1, 2, 300, INFINITE_LAST},
    {"int8/token:window=3", 2, 9, 7, LARGE},
    {"int8/channel:outliers=9", 2, 9, 7, LARGE},
    {"int8/channel", 2, 9, 7, NOT_A_NUMBER},
    {"int8/channel:window=8", 1, 9, 7, NOT_A_NUMBER},
    {"int8/channel:outliers=9", 2, 9, 7, INFINITE_LAST},
    {"int8/channel:window=1", 2, 9, 7, INFINITE_LAST},
    {"f32", 2, 9, 7, INFINITE_LAST},
    {"int8/channel:static=seed:2", 1, 9, 7, INFINITE_DRAWS},
    {"int8/channel:static=seed:2:window=1", 1, 9, 7, INFINITE_DRAWS}, /* kept there: no matter */
    {"int8/channel:static=seed:2:sinks=1", 1, 1, 7, INFINITE_DRAWS},
};

/* ---- drawn cases ---- */

#define DRAW_OF(...)                                                                               \
    ((const char *const[]){__VA_ARGS__}[draw(                                                      \
        (uint32_t)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))])

static void run_drawn(emulated *e)
{
    static const int dims[] = {1, 3, 5, 8, 20, 32, 33, 64, 70};
    char text[256];
    snprintf(
        text, sizeof text, "%s/%s%s%s%s%s%s%s%s%s%s%s",
        DRAW_OF("int8", "int4", "int3", "int2", "e4m3", "e5m2", "e2m1"),
        DRAW_OF("tensor", "head", "channel", "token", "token-all", "1x16", "5x1", "8x3", "allx4"),
        DRAW_OF("", "", ":mse", ":percentile=99", ":percentile=80", ":unit"),
        DRAW_OF("", "", ":zero"),
        DRAW_OF("", "", ":scale=f16", ":scale=bf16", ":scale=e8m0", ":scale=e4m3"),
        DRAW_OF("", "", "", ":center"), DRAW_OF("", "", "", ":smooth", ":smooth=0.3"),
        DRAW_OF("", "", "", ":hadamard=4", ":hadamard", ":hadamard=2+signs"),
        DRAW_OF("", "", ":outliers=1", ":outliers=12"),
        DRAW_OF("", "", "", ":static=4", ":static=seed:2"), DRAW_OF("", "", ":sinks=2"),
        DRAW_OF("", "", "", ":window=3", ":flush=8"));
    bool const is_slow = strstr(text, "mse");
    int64_t const d = dims[draw(sizeof dims / sizeof *dims)];
    int64_t const heads = 1 + draw(3), most = 1 + (is_slow ? 300 : 1500) / (heads * d);
    run(e, text, heads, 1 + draw((uint32_t)most), d, (input)draw(draw(4) ? HUGE : INPUTS));
}

/* ---- what is not launched ---- */

static void run_nothing(emulated *e)
{
    kv_cuda_tiles const none = {
        .heads = 2, .draws = 1, .head_dim = 3, .tile_tokens = 1, .tile_channels = 3, .columns = 1};
    kv_cuda_tiles const huge = {.heads = 2,
                                .draws = 2,
                                .tokens = 1 << 30,
                                .head_dim = 1,
                                .tile_tokens = 1 << 30,
                                .tile_channels = 1,
                                .rows = 1,
                                .columns = 1,
                                .spans_heads = true};
    e->fail(GPU_LAUNCH, 0);
    DO(e, prepare, &(kv_cuda_prepare){.heads = 2, .head_dim = 3, .checks_kept = true});
    DO(e, prepare, &(kv_cuda_prepare){.tokens = 2, .head_dim = 3, .checks_kept = true});
    DO(e, channels, &(kv_cuda_channels){.tokens = 4, .head_dim = 3});
    DO(e, extremes, &(kv_cuda_extremes){.tiles = none});
    DO(e, select, &(kv_cuda_select){.tiles = none, .n = 1});
    DO(e, percentiles, &(kv_cuda_percentiles){.n = 1});
    DO(e, search, &(kv_cuda_search){.tiles = none});
    DO(e, global, &(kv_cuda_global){.rule.storage = KV_SCALE_F16});
    DO(e, scales, &(kv_cuda_scales){.tiles = 0});
    CHECK(e->cuda->select(&(kv_cuda_select){.tiles = huge, .n = 1}, &e->err) == KV_EUNSUPPORTED,
          "2^32 elements");
    CHECK_TEXT(e->err.message, "CUDA: percentiles of tiles of 4294967296 elements; at most 2^32 - "
                               "1 are counted");
    kv_cuda_prepare const wide = {
        .heads = 1, .tokens = 1, .head_dim = 1 << 20, .checks_kept = true};
    CHECK(e->cuda->prepare(&wide, &e->err) == KV_EUNSUPPORTED, "a row of 4 MiB");
    CHECK(e->calls(GPU_LAUNCH) == 0, "%d launches", e->calls(GPU_LAUNCH));
}

int main(int argc, char **argv)
{
    enum { DRAWN = 150 };
    emulated e = emulated_open(argc, argv);
    run_nothing(&e);
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !check_failures; i++) {
        const fit_case *const c = &cases[i];
        int const before = n_done;
        e.set_seed(i);
        run(&e, c->text, c->heads, c->tokens, c->d, c->kind);
        CHECK(n_done > before, "%s is refused: %s", c->text, e.err.message);
    }
    for (int i = 0; i < DRAWN * e.scale && !check_failures; i++) {
        e.set_seed((uint64_t)i);
        run_drawn(&e);
    }
    CHECK(check_failures || n_flagged >= 12, "only %d of %d inputs were refused", n_flagged,
          n_done);
    emulated_close(&e);
    return check_done();
}
