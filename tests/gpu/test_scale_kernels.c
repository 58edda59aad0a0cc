/* The fit kernels, each on its own, against the same rules (scale.h, clip.h) or plain
 * loops on the host: wherever the largest scale is, every storage at the edges of its numbers, clip
 * factors and errors of tiles of any size, channels' sums and tiles' extremes of numbers of every
 * size, the first transforms without the others. Usage: test_scale_kernels MODULE */
#include <float.h>

#include "kernels/clip.h"
#include "kernels/format.h"
#include "kernels/grid.h"
#include "tests/gpu/draws.h"
#include "tests/gpu/kernels.h"

/* ---- the largest scale, wherever it is ---- */

/* Tile `place` of TILES has the largest range; others have none, or zeros of both signs. */
static void run_largest(emulated *e, bool is_asymmetric, int place)
{
    enum { TILES = 512 };
    kv_scale_rule const rule = {
        .storage = KV_SCALE_E4M3, .is_asymmetric = is_asymmetric, .limit = 7};
    float low[TILES] = {0}, high[TILES], global, plain = 0;
    for (int k = 0; k < TILES; k++) {
        high[k] = k == place ? 5.0f : 4.0f;
        if (!is_asymmetric || k == place) continue;
        if (k % 3 == 0) low[k] = INFINITY, high[k] = -INFINITY;
        if (k % 3 == 1) low[k] = 0.0f, high[k] = -0.0f;
    }
    for (int k = 0; k < TILES; k++) plain = fmaxf(plain, kv_scale_plain(&rule, low[k], high[k]));
    uint32_t flags = 0;
    kv_cuda_global const g = {room(e, sizeof global),
                              to_device(e, low, sizeof low),
                              to_device(e, high, sizeof high),
                              TILES,
                              rule,
                              to_device(e, &flags, sizeof flags)};
    e->set_seed((uint64_t)place);
    DO(e, global, &g);
    to_host(e, &global, g.global, sizeof global);
    to_host(e, &flags, g.flags, sizeof flags);
    CHECK(same(global, plain / 448.0f) && flags == 0, "tile %d: %.9g, flags %u", place, global,
          flags);
    give_back(e);
}

static void run_places(emulated *e)
{
    static const int places[] = {0,  1,  2,  3,   4,   7,   8,   15,  16,  31,
                                 32, 63, 64, 127, 128, 255, 256, 257, 300, 511};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        run_largest(e, false, places[i]);
        run_largest(e, true, places[i]);
    }
}

/* Only the range itself may overflow here; the scales kernel would hide it behind its own flag. */
static void run_overflow(emulated *e)
{
    static const struct {
        float low, high, limit;
        int32_t is_asymmetric;
        uint32_t flags;
    } cases[] = {{-3e38f, 3e38f, 255, true, KV_CUDA_OVERFLOW},
                 {-3e38f, 3e38f, 127, false, 0},
                 {1e38f, 3e38f, 255, true, 0},
                 {-1.7e38f, 1.7e38f, 255, true, 0},
                 {INFINITY, -INFINITY, 255, true, 0},
                 {0, FLT_MAX, 1, false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t flags = 0;
        kv_scale_rule const rule = {.storage = KV_SCALE_F16,
                                    .is_asymmetric = cases[i].is_asymmetric,
                                    .limit = cases[i].limit};
        kv_cuda_global const g = {
            NULL, to_device(e, &cases[i].low, 4),    to_device(e, &cases[i].high, 4), 1,
            rule, to_device(e, &flags, sizeof flags)};
        DO(e, global, &g);
        to_host(e, &flags, g.flags, sizeof flags);
        CHECK(flags == cases[i].flags, "%g ... %g: %u", cases[i].low, cases[i].high, flags);
        give_back(e);
    }
}

/* ---- every storage of scales and minimums ---- */

static void run_storage(emulated *e, kv_scale_rule rule)
{
    enum { TILES = 600 };
    static const float ends[] = {0.0f,
                                 -0.0f,
                                 448,
                                 464,
                                 65504,
                                 65520,
                                 57344,
                                 1e-45f,
                                 0x1p-14f,
                                 0x1p-127f, /* e8m0's smallest, and beside it */
                                 0x1.000002p-127f,
                                 0x0.fffffcp-127f,
                                 0x1p-126f,
                                 0x1.000002p-126f,
                                 0x1p127f, /* its largest, bf16's, f32's */
                                 0x1.000002p127f,
                                 0x1.fffffep126f,
                                 0x1.fep127f,
                                 0x1.fefffep127f,
                                 0x1.ffp127f,
                                 FLT_MAX};
    enum { ENDS = sizeof ends / sizeof *ends };
    float low[TILES], high[TILES], scale[2][TILES], minimum[2][TILES];
    uint32_t flags = 0, expected = 0;
    for (int i = 0; i < TILES; i++) {
        float const a = i < ENDS ? -ends[i] : draw_edge(), b = i < ENDS ? ends[i] : draw_edge();
        low[i] = fminf(a, b), high[i] = fmaxf(a, b);
        if (!rule.is_asymmetric) high[i] = fabsf(b), low[i] = -1; /* which does not count */
        if (rule.global < 1 && rule.global > 0) high[i] *= rule.global;
        if (rule.is_asymmetric && i == TILES - 1) low[i] = INFINITY, high[i] = -INFINITY;
        if (rule.is_asymmetric && i == TILES - 2) low[i] = 0.0f, high[i] = -0.0f;
        kv_scale_store(&scale[0][i], &minimum[0][i], &rule, low[i], high[i]);
        if (!isfinite(fmaf(rule.limit, scale[0][i], minimum[0][i]))) expected = KV_CUDA_OVERFLOW;
    }
    float *const global = to_device(e, &rule.global, sizeof rule.global);
    kv_cuda_scales const s = {room(e, sizeof low),
                              room(e, sizeof low),
                              to_device(e, low, sizeof low),
                              to_device(e, high, sizeof high),
                              global,
                              TILES,
                              rule,
                              to_device(e, &flags, sizeof flags)};
    DO(e, scales, &s);
    to_host(e, scale[1], s.scale, sizeof low);
    to_host(e, minimum[1], s.minimum, sizeof low);
    to_host(e, &flags, s.flags, sizeof flags);
    CHECK(flags == expected, "flags %u", flags);
    for (int i = 0; i < TILES; i++)
        CHECK(same(scale[0][i], scale[1][i]) && same(minimum[0][i], minimum[1][i]),
              "storage %d, limit %g, %.9g ... %.9g: %.9g from %.9g", rule.storage, rule.limit,
              low[i], high[i], scale[1][i], minimum[1][i]);
    give_back(e);
}

static void run_storages(emulated *e)
{
    for (int32_t storage = 0; storage < KV_SCALE_COUNT; storage++) {
        run_storage(e, (kv_scale_rule){storage, false, 1, 1});
        run_storage(e, (kv_scale_rule){storage, false, 7, 0.37f});
        run_storage(e, (kv_scale_rule){storage, false, 1, 0.61f});
        run_storage(e, (kv_scale_rule){storage, true, 3, 1});
    }
    run_storage(e, (kv_scale_rule){KV_SCALE_E4M3, false, 6, 0});
}

/* ---- clip factors ---- */

enum { SEARCH_TOKENS = 26, SEARCH_DIM = 25, MOST_TILES = 100 };
typedef struct {
    int tokens, channels, rows, columns; /* of a tile; of tiles */
} tiling;
/* Of 1 ... 5, 8 and 9 tokens with the last rows, which the kernel takes by fours. */
static const tiling tilings[] = {{5, 2, 6, 13}, {9, 1, 3, 25}, {4, 4, 7, 7}, {3, 4, 9, 7}};
enum { TILINGS = sizeof tilings / sizeof *tilings, MOST_CHANNELS = 4 };

typedef float value_of(float x, float s, float inverse, float m, float limit);

static value_of *value_of_format(int32_t format, bool is_asymmetric)
{
#define VALUE_EXACT(name, NAME)
#define VALUE_INTEGER(name, NAME)
#define VALUE_BLOCK(name, NAME)
#define VALUE_FLOAT(name, NAME)                                                                    \
    if (format == KV_FORMAT_##NAME) return kv_grid_##name##_value;
#define KV_ROW(name, NAME, KIND, ...) VALUE_##KIND(name, NAME)
    KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
    return is_asymmetric ? kv_asymmetric_value : kv_symmetric_value;
}

/* Channels c and tokens u of a tile of *g. */
#define FOR_TILE(tile, c, u)                                                                       \
    for (int c = (tile) % g->columns * g->channels, first_c = c;                                   \
         c < first_c + g->channels && c < SEARCH_DIM; c++)                                         \
        for (int u = (tile) / g->columns * g->tokens, first_u = u;                                 \
             u < first_u + g->tokens && u < SEARCH_TOKENS; u++)

/* Codes of a scale at or beside the middle of two numbers of f16, bf16 or e4m3: no factor but 1
 * has a lower error. */
static void fill_tie(float *z, const tiling *g, int tile, float limit)
{
    static const int bits[] = {10, 7, 3};
    int const kept = bits[draw(3)];
    float const part = (float)(1 << kept) + (float)draw(1u << kept) + 0.5f;
    float const tie = ldexpf(part, (int)draw(24) - 14 - kept);
    float const scale = draw(2) ? tie : nextafterf(tie, draw(2) ? 0 : INFINITY);
    FOR_TILE(tile, c, u)
    {
        float const sign = draw(2) ? -1.0f : 1.0f;
        z[u * SEARCH_DIM + c] = sign * scale * (draw(2) ? limit : (float)draw(3));
    }
}

/* Of one magnitude, beside codes and the middles of two; or zeros, or nothing that counts. Some
 * tiles have scales at bf16's and e8m0's least numbers, or but one number, the largest. */
static void fill_tile(float *z, const tiling *g, int tile, float limit)
{
    float const least =
        limit * ldexpf(1, (int)draw(12) - 136) * (1 + (float)draw(1 << 20) * 0x1p-20f);
    float const size = tile % 8 == 3 ? least : fabsf(draw_edge()), step = size / limit;
    uint32_t const kind = draw(8);
    FOR_TILE(tile, c, u)
    {
        float const sign = draw(2) ? -1.0f : 1.0f, part = (float)draw(1 << 20) / (1 << 20);
        float x = sign * size * (draw(3) ? part : part * part * part * part);
        if (kind == 1) x = sign * step * (float)draw(2 * (uint32_t)fminf(limit, 300) + 1) * 0.5f;
        if (kind == 2) x = fabsf(x) + size;
        if (kind == 3) x = -fabsf(x);
        if (kind == 4 && draw(2)) x = sign * 0.0f;
        if (kind >= 5 && (tile % 9 == 0 || draw(3) == 0)) x = NAN;
        if (tile % 16 == 5) x = tile % 32 == 5 ? FLT_MAX : -FLT_MAX;
        z[u * SEARCH_DIM + c] = x;
    }
}

/* What decides in a tile: its quantizer, its range, and the numbers. */
typedef struct {
    const tiling *g;
    int tile;
    kv_scale_rule rule;
    value_of *value;
    float low, high;
    float *z;
} search_tile;

/* The value of element `at` with a clip factor. */
static float clipped(const search_tile *s, int factor, int at)
{
    float const f = kv_clip_factor(factor);
    float scale, minimum;
    kv_scale_store(&scale, &minimum, &s->rule, s->low * f, s->high * f);
    return s->value(s->z[at], scale, kv_int_inverse(scale), minimum, s->rule.limit);
}

static double error_of(const search_tile *s, int factor)
{
    const tiling *const g = s->g;
    double channel[MOST_CHANNELS] = {0};
    FOR_TILE(s->tile, c, u)
    {
        float const x = s->z[u * SEARCH_DIM + c];
        double const e = (double)clipped(s, factor, u * SEARCH_DIM + c) - (double)x;
        channel[c % g->channels] += x == x ? e * e : 0.0;
    }
    return kv_clip_fold(channel, g->channels);
}

/* The first factor with the least error (ranges/mse.c), `other` apart; -1: none. */
static int best_factor_of(const search_tile *s, int other)
{
    double least = INFINITY;
    int best = 0;
    for (int k = 0; k < KV_CLIP_FACTORS; k++) {
        double const error = error_of(s, k);
        if (k != other && error < least) least = error, best = k;
    }
    return best;
}

/* Moves a number to where its value with a clip factor changes: to one side or the other. */
static void move_to_edge(const search_tile *s, int factor, int at)
{
    float near = s->z[at], far = 1.2f * near;
    float const value = clipped(s, factor, at);
    while (nextafterf(near, far) != far) {
        s->z[at] = near + (far - near) / 2;
        *(same(clipped(s, factor, at), value) ? &near : &far) = s->z[at];
    }
    s->z[at] = draw(2) ? near : far;
}

/* Moves a number until two factors have nearly one error. Their difference is linear in it, as
 * long as its values stay. */
static void level(const search_tile *s, int best, int next, int at)
{
    float const x = s->z[at], value = clipped(s, best, at), of_next = clipped(s, next, at);
    double const slope = 2 * ((double)of_next - (double)value);
    if (slope == 0) return;
    s->z[at] = x - (float)((error_of(s, best) - error_of(s, next)) / slope);
    if (!same(clipped(s, best, at), value) || !same(clipped(s, next, at), of_next)) s->z[at] = x;
}

/* Makes the last bit of every value decide between the two best factors: small numbers of odd
 * tokens lie where their values change, others, larger ones first, make both errors nearly one. */
static void sharpen(const search_tile *s)
{
    const tiling *const g = s->g;
    float const small = fmaxf(-s->low, s->high) / 8;
    for (int i = 0; i < 2; i++) {
        int const best = best_factor_of(s, -1), next = best_factor_of(s, best);
        FOR_TILE(s->tile, c, u)
        {
            int const at = u * SEARCH_DIM + c;
            if (u % 2 && fabsf(s->z[at]) < small) move_to_edge(s, draw(2) ? best : next, at);
        }
    }
    int const best = best_factor_of(s, -1), next = best_factor_of(s, best);
    for (float most = INFINITY;;) {
        int at = -1;
        FOR_TILE(s->tile, c, u)
        {
            float const x = fabsf(s->z[u * SEARCH_DIM + c]);
            if ((u % 2 == 0 || x >= small) && x < most && (at < 0 || x > fabsf(s->z[at])))
                at = u * SEARCH_DIM + c;
        }
        if (at < 0) return;
        most = fabsf(s->z[at]);
        level(s, best, next, at);
    }
}

/* The range of tile i: that of its numbers or, where they are small, up to 2^36 times that, so that
 * nothing but the smallest values of a format makes the error. */
static void set_range(float *low, float *high, const float *z, const tiling *g, int i,
                      bool is_asymmetric)
{
    float least = INFINITY, most = -INFINITY, magnitude = 0;
    FOR_TILE(i, c, u)
    {
        float const x = z[u * SEARCH_DIM + c];
        least = fminf(least, x), most = fmaxf(most, x), magnitude = fmaxf(magnitude, fabsf(x));
    }
    float const wider = magnitude < 1 && i % 4 == 1 ? ldexpf(1.0f, (int)draw(37)) : 1.0f;
    *low = is_asymmetric ? least * wider : -magnitude; /* which does not count */
    *high = (is_asymmetric ? most : magnitude) * wider;
}

static void run_search(emulated *e, const tiling *g, int32_t format, bool is_asymmetric,
                       int32_t storage)
{
    static float z[SEARCH_TOKENS * SEARCH_DIM], low[2][MOST_TILES], high[2][MOST_TILES];
    static double error[2][MOST_TILES];
    int const tiles = g->rows * g->columns;
    size_t const bytes = (size_t)tiles * sizeof(float);
    const kv_format *const f = kv_format_at((size_t)format);
    float const limit = is_asymmetric ? kv_int_levels(f->bits) : f->maximum;
    kv_scale_rule rule = {storage, is_asymmetric, limit, format % 2 ? 0.01f : 0x1p-6f};
    for (int i = 0; i < tiles; i++) {
        (i % 4 == 2 ? fill_tie : fill_tile)(z, g, i, limit);
        set_range(&low[0][i], &high[0][i], z, g, i, is_asymmetric);
        low[1][i] = low[0][i], high[1][i] = high[0][i];
        search_tile const s = {g,         i,          rule, value_of_format(format, is_asymmetric),
                               low[0][i], high[0][i], z};
        if (i % 4 != 2) sharpen(&s);
        int const best = best_factor_of(&s, -1);
        error[0][i] = error_of(&s, best);
        low[0][i] *= kv_clip_factor(best), high[0][i] *= kv_clip_factor(best);
    }
    kv_cuda_search const s = {to_device(e, low[1], bytes),
                              to_device(e, high[1], bytes),
                              room(e, sizeof error[1]),
                              {.z = to_device(e, z, sizeof z),
                               .heads = 1,
                               .draws = 1,
                               .tokens = SEARCH_TOKENS,
                               .head_dim = SEARCH_DIM,
                               .tile_tokens = g->tokens,
                               .tile_channels = g->channels,
                               .rows = g->rows,
                               .columns = g->columns},
                              format,
                              rule,
                              to_device(e, &rule.global, sizeof rule.global)};
    DO(e, search, &s);
    to_host(e, low[1], s.low, bytes);
    to_host(e, high[1], s.high, bytes);
    to_host(e, error[1], s.error, (size_t)tiles * sizeof *error[1]);
    for (int i = 0; i < tiles; i++)
        CHECK(same(low[0][i], low[1][i]) && same(high[0][i], high[1][i]) &&
                  memcmp(&error[0][i], &error[1][i], sizeof error[0][i]) == 0,
              "%s, storage %d, tile %d: %.9g ... %.9g, error %.17g, expected %.9g ... %.9g, %.17g",
              f->name, storage, i, low[1][i], high[1][i], error[1][i], low[0][i], high[0][i],
              error[0][i]);
    give_back(e);
}

static void search_formats(emulated *e, const tiling *g, int32_t storage)
{
    for (int32_t format = 0; format < KV_FORMAT_COUNT; format++)
        if (kv_format_at((size_t)format)->kind == KV_KIND_FLOAT &&
            kv_format_has_scale(kv_format_at((size_t)format)))
            run_search(e, g, format, false, storage);
    run_search(e, g, KV_FORMAT_INT4, false, storage);
    run_search(e, g, KV_FORMAT_INT2, false, storage);
    run_search(e, g, KV_FORMAT_INT3, true, storage);
}

static void run_searches(emulated *e)
{
    for (int i = 0; i < TILINGS; i++) search_formats(e, &tilings[i % TILINGS], KV_SCALE_F32);
    for (int32_t i = 0; i < 3 * KV_SCALE_COUNT; i++)
        search_formats(e, &tilings[i % TILINGS], i % KV_SCALE_COUNT);
}

/* ---- sums and extremes of numbers of every size ---- */

/* A finite float of any exponent within `spread` of 1, of either sign or of `sign`. */
static float any_size(int spread, int sign)
{
    float const x =
        ldexpf(1.0f + (float)draw(1 << 23) * 0x1p-23f, (int)draw(2 * (uint32_t)spread) - spread);
    return sign != 0 ? (float)sign * x : draw(2) ? x : -x;
}

/* Sums whose every addition is rounded. */
static void run_sums(emulated *e)
{
    enum { HEADS = 2, TOKENS = 101, D = 21, N = HEADS * TOKENS * D };
    float z[N];
    double sum[HEADS * D], expected[HEADS * D] = {0};
    for (int i = 0; i < N; i++) z[i] = any_size(60, 0);
    for (int i = 0; i < N; i++) expected[i / (TOKENS * D) * D + i % D] += (double)z[i];
    kv_cuda_channels const a = {.sum = room(e, sizeof sum),
                                .z = to_device(e, z, sizeof z),
                                .heads = HEADS,
                                .tokens = TOKENS,
                                .head_dim = D,
                                .head_stride = TOKENS * D};
    DO(e, channels, &a);
    to_host(e, sum, a.sum, sizeof sum);
    CHECK(memcmp(sum, expected, sizeof sum) == 0, "sums of channels");
    give_back(e);
}

static void run_extremes(emulated *e, int64_t tile_tokens, int64_t tile_channels, int sign)
{
    enum { HEADS = 2, TOKENS = 70, D = 5, N = HEADS * TOKENS * D };
    int64_t const rows = (TOKENS + tile_tokens - 1) / tile_tokens;
    int64_t const columns = (D + tile_channels - 1) / tile_channels, tiles = HEADS * rows * columns;
    float z[N], low[N], high[N], least[N], most[N];
    for (int64_t i = 0; i < N; i++)
        z[i] = draw(9)   ? any_size(140, sign)
               : draw(2) ? 0.0f
                         : -0.0f,
        least[i] = INFINITY, most[i] = -INFINITY;
    for (int64_t i = 0; i < N; i++) {
        int64_t const t = i / D % TOKENS, c = i % D, head = i / (TOKENS * D);
        int64_t const tile = (head * rows + t / tile_tokens) * columns + c / tile_channels;
        least[tile] = fminf(least[tile], z[i]), most[tile] = fmaxf(most[tile], z[i]);
    }
    kv_cuda_extremes a = {.low = room(e, sizeof low),
                          .high = room(e, sizeof high),
                          .tiles = {.z = to_device(e, z, sizeof z),
                                    .heads = HEADS,
                                    .draws = 1,
                                    .tokens = TOKENS,
                                    .head_dim = D,
                                    .head_stride = TOKENS * D,
                                    .tile_tokens = tile_tokens,
                                    .tile_channels = tile_channels,
                                    .rows = rows,
                                    .columns = columns},
                          .is_asymmetric = 1};
    DO(e, extremes, &a);
    to_host(e, low, a.low, sizeof low);
    to_host(e, high, a.high, sizeof high);
    for (int64_t i = 0; i < tiles; i++) /* + 0: which zero is no matter, see scale.h */
        CHECK(same(low[i] + 0.0f, least[i] + 0.0f) && same(high[i] + 0.0f, most[i] + 0.0f),
              "tile %d of %dx%d: %g ... %g", (int)i, (int)tile_tokens, (int)tile_channels,
              (double)low[i], (double)high[i]);
    give_back(e);
}

static void run_all_extremes(emulated *e)
{
    static const int64_t tokens[] = {1, 7, 65, 70}, channels[] = {1, 2, 5};
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 3; j++)
            for (int sign = -1; sign <= 1; sign++) run_extremes(e, tokens[i], channels[j], sign);
}

/* ---- the first n transforms ---- */

static void run_prepare(emulated *e, int n, int64_t hadamard)
{
    enum { HEADS = 2, TOKENS = 11, D = 40, N = HEADS * TOKENS * D };
    float const factor = (float)(1.0 / sqrt((double)hadamard));
    float x[N], z[N], expected[N], mean[HEADS * D], divisor[HEADS * D];
    for (int i = 0; i < HEADS * D; i++) mean[i] = any_size(3, 0), divisor[i] = any_size(3, 1);
    for (int i = 0; i < N; i++) {
        int const channel = i / (TOKENS * D) * D + i % D;
        x[i] = any_size(3, 0);
        expected[i] = n > 0 ? x[i] - mean[channel] : x[i];
        if (n > 1) expected[i] /= divisor[channel];
    }
    for (int64_t half = 1; n > 2 && half < hadamard; half *= 2)
        for (int64_t i = 0; i < N; i++) {
            float const a = expected[i],
                        b = expected[i / (2 * half) == (i + half) / (2 * half) ? i + half : i];
            if (i % (2 * half) < half) expected[i] = a + b, expected[i + half] = a - b;
        }
    for (int i = 0; n > 2 && i < N; i++) expected[i] *= factor;
    uint32_t flags = 0;
    kv_cuda_prepare const a = {.z = room(e, sizeof z),
                               .x = to_device(e, x, sizeof x),
                               .heads = HEADS,
                               .tokens = TOKENS,
                               .head_dim = D,
                               .scheme = {.span = TOKENS,
                                          .mean = to_device(e, mean, sizeof mean),
                                          .divisor = to_device(e, divisor, sizeof divisor),
                                          .hadamard = hadamard,
                                          .hadamard_factor = factor},
                               .transforms = n,
                               .flags = to_device(e, &flags, sizeof flags)};
    DO(e, prepare, &a);
    to_host(e, z, a.z, sizeof z);
    CHECK(memcmp(z, expected, sizeof z) == 0, "%d transforms, hadamard %d", n, (int)hadamard);
    give_back(e);
}

int main(int argc, char **argv)
{
    emulated e = emulated_open(argc, argv);
    for (int n = 0; n <= 3; n++)
        for (int64_t hadamard = 2; hadamard <= 8; hadamard *= 2) run_prepare(&e, n, hadamard);
    run_sums(&e);
    run_all_extremes(&e);
    run_places(&e);
    run_overflow(&e);
    run_storages(&e);
    run_searches(&e);
    emulated_close(&e);
    return check_done();
}
