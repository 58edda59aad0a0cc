/* Every format on numbers where its rules change, through decode.cu and codes.cu, against the same
 * functions on the host: grids in tiles of few elements, so that any number meets any scale and
 * minimum. Blocks: decode_blocks.h. For test_decode.c. */
#ifndef KVANT_TESTS_GPU_DECODE_NUMBERS_H
#define KVANT_TESTS_GPU_DECODE_NUMBERS_H

#include "kernels/format.h"
#include "kernels/grid.h"
#include "tests/gpu/kernels.h"

/* Tokens are more than a tile of decode.cu has, and three of codes.cu. */
enum { NUMBERS = 3072, NUMBERS_DIM = 64, NUMBERS_TOKENS = NUMBERS / NUMBERS_DIM };

static uint64_t numbers_state = 1;

static uint32_t number_word(void)
{
    numbers_state = numbers_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(numbers_state >> 32);
}

static uint32_t number_below(uint32_t n)
{
    return (number_word() >> 8) % n;
}

/* Any finite float of a biased exponent in [from, end). */
static float number_of_exponent(uint32_t from, uint32_t end)
{
    uint32_t const exponent = from + number_below(end - from);
    return kv_bits_float((number_word() & 0x807fffffu) | exponent << 23);
}

/* x, or a neighbour of it, with either sign. */
static float number_near(float x)
{
    uint32_t const by = number_below(4);
    float const y = by == 1 ? nextafterf(x, INFINITY) : by == 2 ? nextafterf(x, 0.0f) : x;
    return number_word() >> 31 ? -y : y;
}

/* ---- what the host makes of them ---- */

typedef float number_value(float x, float s, float inverse, float m, float limit);
typedef uint32_t number_code(float x, float s, float inverse, float m, float limit);
typedef float number_decode(uint32_t code);

typedef struct {
    number_value *value;
    number_code *code;
    number_decode *decode; /* of float formats */
} number_grid;

static number_grid grid_of(int32_t format, bool is_asymmetric)
{
#define GRID_EXACT(name, NAME)
#define GRID_INTEGER(name, NAME)
#define GRID_BLOCK(name, NAME)
#define GRID_FLOAT(name, NAME)                                                                     \
    if (format == KV_FORMAT_##NAME)                                                                \
        return (number_grid){kv_grid_##name##_value, kv_grid_##name##_code, kv_##name##_decode};
#define KV_ROW(name, NAME, KIND, ...) GRID_##KIND(name, NAME)
    KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
    if (is_asymmetric) return (number_grid){kv_asymmetric_value, kv_asymmetric_code, NULL};
    return (number_grid){kv_symmetric_value, kv_symmetric_code, NULL};
}

/* ---- one launch of each kernel ---- */

/* NUMBERS values and codes of a scheme; the bits of NaN are open. */
static void check_numbers(emulated *e, const char *name, const kv_cuda_scheme *scheme,
                          const float *x, const float *values, const uint32_t *codes)
{
    static float found[NUMBERS];
    static uint32_t found_codes[NUMBERS];
    uint32_t flags = 0, expected_flags = 0;
    kv_cuda_decode d = {.values = room(e, sizeof found),
                        .x = to_device(e, x, sizeof found),
                        .schemes = to_device(e, scheme, sizeof *scheme),
                        .n = 1,
                        .heads = 1,
                        .tokens = NUMBERS_TOKENS,
                        .head_dim = NUMBERS_DIM,
                        .flags = to_device(e, &flags, sizeof flags)};
    kv_cuda_codes c = {.codes = room(e, sizeof found_codes),
                       .x = d.x,
                       .heads = 1,
                       .tokens = NUMBERS_TOKENS,
                       .head_dim = NUMBERS_DIM,
                       .scheme = *scheme};
    DO(e, decode, &d);
    DO(e, codes, &c);
    to_host(e, found, d.values, sizeof found);
    to_host(e, found_codes, c.codes, sizeof found_codes);
    to_host(e, &flags, d.flags, sizeof flags);
    int bad = 0, first = 0;
    for (int i = 0; i < NUMBERS; i++) {
        bool const is_same = kv_float_bits(found[i]) == kv_float_bits(values[i]) ||
                             (found[i] != found[i] && values[i] != values[i]);
        if ((!is_same || found_codes[i] != codes[i]) && bad++ == 0) first = i;
        if (!isfinite(values[i])) expected_flags = KV_CUDA_UNFIT;
    }
    CHECK(bad == 0, "%s: %d of %d differ, first %d, of %.9g: %.9g, code %u; CPU %.9g, %u", name,
          bad, NUMBERS, first, x[first], found[first], found_codes[first], values[first],
          codes[first]);
    CHECK(flags == expected_flags, "%s: flags %u", name, flags);
}

/* ---- grids ---- */

/* A number beside a code of a format or beside the middle of two codes, before scaling. */
static float number_of_grid(const number_grid *grid, int bits, float limit)
{
    if (number_below(8) == 0) return number_of_exponent(0, 255);
    if (!grid->decode) return number_near((float)number_below(2 * (uint32_t)limit + 6) * 0.5f);
    uint32_t const codes = 1u << (bits - 1);
    uint32_t const k = number_below(4) ? number_below(codes) : number_below(8) * (codes / 8);
    float const a = grid->decode(k), b = grid->decode(number_below(2) ? k : k + 1);
    float const middle = a + (b - a) * 0.5f;
    return isfinite(middle) ? number_near(middle) : number_of_exponent(100, 150);
}

/* Any float, not of the size that a scale asks for: an infinity, NaN, an end, or one of any
 * exponent. */
static float number_of_no_scale(void)
{
    static const float ends[] = {INFINITY, NAN, FLT_MAX, 0x1.fep127f, FLT_MIN, 1e-45f, 0};
    if (number_below(2)) return number_of_exponent(0, 255);
    float const end = ends[number_below(7)];
    return number_word() >> 31 ? -end : end;
}

/* 1, any power of two, or any scale; the ends. */
static float number_scale(void)
{
    static const float ends[] = {0,         1e-45f,    0x1p-128f, 0x1.000002p-128f,
                                 0x1p-127f, 0x1p-126f, FLT_MAX,   NAN};
    switch (number_below(8)) {
    case 0: return ends[number_below(8)];
    case 1: return fabsf(number_of_exponent(0, 254));
    case 2: return 1;
    case 3: return kv_bits_float((1 + number_below(253)) << 23);
    default: return fabsf(number_of_exponent(117, 137));
    }
}

/* Tiles of each pass; none in the first one: scales are 1, and no array of them. */
enum { PASSES = 4 };
static const int tile_sizes[PASSES][2] = {{1, 1}, {1, 1}, {1, 3}, {5, 2}};

static void check_grid(emulated *e, int32_t format, bool is_asymmetric, int pass)
{
    static float x[NUMBERS], scale[NUMBERS], minimum[NUMBERS], values[NUMBERS];
    static uint32_t codes[NUMBERS];
    const kv_format *const f = kv_format_at((size_t)format);
    number_grid const grid = grid_of(format, is_asymmetric);
    float const limit = is_asymmetric ? kv_int_levels(f->bits) : f->maximum;
    int const tokens = tile_sizes[pass][0], channels = tile_sizes[pass][1];
    int const columns = (NUMBERS_DIM + channels - 1) / channels;
    for (int i = 0; i < NUMBERS; i++) {
        scale[i] = number_scale();
        minimum[i] = is_asymmetric ? number_near(number_scale()) * (float)(i % 3) : 0;
    }
    for (int i = 0; i < NUMBERS; i++) {
        int const tile = i / NUMBERS_DIM / tokens * columns + i % NUMBERS_DIM / channels;
        float const s = pass == 0 ? 1 : scale[tile], m = pass == 0 ? 0 : minimum[tile];
        x[i] = number_of_grid(&grid, f->bits, limit) * s + m;
        if (i % 64 < 2) x[i] = i % 64 ? -0.0f : 0.0f;
        if (i % 16 == 2) x[i] = number_of_no_scale();
        if (!isfinite(x[i]) && i % 16 != 2) x[i] = FLT_MAX;
        float const inverse = kv_int_inverse(s);
        values[i] = grid.value(x[i], s, inverse, m, limit);
        codes[i] = grid.code(x[i], s, inverse, m, limit);
    }
    kv_cuda_scheme const scheme = {.format = format,
                                   .rule = {.is_asymmetric = is_asymmetric, .limit = limit},
                                   .span = NUMBERS_TOKENS,
                                   .tile_tokens = tokens,
                                   .tile_channels = channels,
                                   .tile_columns = columns,
                                   .scale = pass == 0 ? NULL : to_device(e, scale, sizeof scale),
                                   .minimum =
                                       pass == 0 ? NULL : to_device(e, minimum, sizeof minimum)};
    check_numbers(e, f->name, &scheme, x, values, codes);
    give_back(e);
}

#endif
