/* Number formats, by table: each row is checked against references written here from its formula in
 * double, never against its own header. Integer grids and blocks compare bits; float grids are
 * compared with a search over all their codes. */
#include "kernels/format.h"

#include <float.h>
#include <stdlib.h>

#include "tests/check.h"

static const uint32_t special[] = {
    0x00000000, 0x80000000,                                     /* zeros */
    0x00000001, 0x80000001, 0x007fffff, 0x00400000, 0x00400001, /* denormals, e8m0's smallest */
    0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, /* smallest normal, max, Inf */
    0x7fc00000, 0xffc00000, 0x7f800001, 0x7fffffff, 0xffffffff, /* NaN */
};
enum { SPECIALS = sizeof special / sizeof special[0] };

static uint32_t random_word(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static int same(float a, float b)
{
    return (isnan(a) && isnan(b)) || kv_float_bits(a) == kv_float_bits(b);
}

/* ---- float grids ---- */

typedef struct {
    const char *name;
    uint32_t (*encode)(float);
    float (*decode)(uint32_t);
    float (*round)(float);
    float maximum;
    int bits;
} grid;

/* What a format is, from its specification: fields, the largest finite number and its neighbour. */
typedef struct {
    const char *name;
    int mantissa_bits, bias;
    double maximum;
    int is_fnuz, overflows; /* to infinity */
    uint32_t nan;
} specification;

static const specification specifications[] = {
    {"f16", 10, 15, 65504, 0, 1, 0x7fff}, {"bf16", 7, 127, 0x1.fep127, 0, 1, 0x7fff},
    {"e4m3", 3, 7, 448, 0, 0, 0x7f},      {"e4m3fnuz", 3, 8, 240, 1, 0, 0x80},
    {"e5m2", 2, 15, 57344, 0, 0, 0x7f},   {"e5m2fnuz", 2, 16, 57344, 1, 0, 0x80},
    {"e2m1", 1, 1, 6, 0, 0, 0x10}, /* no NaN: one past the last code */
};

static const specification *specification_of(const char *name)
{
    for (size_t i = 0; i < sizeof specifications / sizeof specifications[0]; i++)
        if (strcmp(specifications[i].name, name) == 0) return &specifications[i];
    return NULL;
}

/* The number of a code as the specification defines it. */
static double value_of(const specification *s, int bits, uint32_t code)
{
    const uint32_t sign = code >> (bits - 1), rest = code & ((1u << (bits - 1)) - 1);
    const int exponent = (int)(rest >> s->mantissa_bits);
    const double fraction =
        ldexp((double)(rest & ((1u << s->mantissa_bits) - 1)), -s->mantissa_bits);
    const double v =
        exponent ? ldexp(1 + fraction, exponent - s->bias) : ldexp(fraction, 1 - s->bias);
    if (s->is_fnuz && sign && rest == 0) return NAN;
    if (v > s->maximum) {
        const int is_infinity = fraction == 0 && strcmp(s->name, "e4m3") != 0;
        return is_infinity ? (sign ? -INFINITY : INFINITY) : NAN;
    }
    return sign ? -v : v;
}

/* The code of x by search: nearest, ties to the even code, beyond the range by the format's rule.
 */
static uint32_t search(const specification *s, int bits, float x)
{
    const uint32_t sign_bit = 1u << (bits - 1), negative = signbit(x) ? sign_bit : 0;
    if (isnan(x)) return s->nan;
    uint32_t low = 0, high = sign_bit; /* magnitudes: value(low) <= |x| < value(high) */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        const double v = value_of(s, bits, middle);
        if (v <= s->maximum && v <= fabs((double)x))
            low = middle;
        else
            high = middle;
    }
    const double below = value_of(s, bits, low);
    const int is_last = high == sign_bit || !(value_of(s, bits, high) <= s->maximum);
    /* The step after the last number has the size of the one before it. */
    const double above =
        is_last ? below + (below - value_of(s, bits, low - 1)) : value_of(s, bits, high);
    const double up = above - fabs((double)x), down = fabs((double)x) - below;
    uint32_t code = down < up || (down == up && low % 2 == 0) ? low : high;
    if (is_last && code == high && !s->overflows) code = low;
    if (isinf(x)) code = s->overflows ? low + 1 : low;
    if (s->is_fnuz && code == 0) return 0;
    return code | negative;
}

static void check_input(const grid *g, const specification *s, float x)
{
    const uint32_t code = g->encode(x), expected = search(s, g->bits, x);
    CHECK(code == expected, "%s: %a: %x, nearest %x", g->name, (double)x, code, expected);
    CHECK(same(g->round(x), g->decode(code)), "%s: %a: round %a, decode %a", g->name, (double)x,
          (double)g->round(x), (double)g->decode(code));
}

static void check_grid(const grid *g)
{
    const specification *const s = specification_of(g->name);
    CHECK(s != NULL, "%s has no specification in this test", g->name);
    if (!s) return;
    CHECK((double)g->maximum == s->maximum, "%s: maximum %a", g->name, (double)g->maximum);
    const uint32_t codes = 1u << g->bits, half = codes / 2;
    for (uint32_t code = 0; code < codes; code++) {
        const float v = g->decode(code);
        CHECK(same(v, (float)value_of(s, g->bits, code)), "%s: code %x is %a", g->name, code,
              (double)v);
        if (isnan(v)) continue;
        const int is_saturated = isinf(v) && !s->overflows;
        CHECK(is_saturated || g->encode(v) == code, "%s: code %x comes back as %x", g->name, code,
              g->encode(v));
        CHECK(is_saturated || same(g->round(v), v), "%s: code %x is moved by round", g->name, code);
        /* The tie above it, and the floats on both sides of the tie. */
        const float next = code + 1 == half || code + 1 == codes ? v : g->decode(code + 1);
        const float tie = v + (next - v) / 2;
        check_input(g, s, v);
        check_input(g, s, tie);
        check_input(g, s, nextafterf(tie, INFINITY));
        check_input(g, s, nextafterf(tie, -INFINITY));
    }
    for (size_t i = 0; i < SPECIALS; i++) check_input(g, s, kv_bits_float(special[i]));
    for (uint64_t b = 0; b < UINT64_C(1) << 32; b += 10007)
        check_input(g, s, kv_bits_float((uint32_t)b));
    /* Monotone over the ordered floats. */
    float last = g->round(-INFINITY);
    for (int64_t b = -0x7f800000; b <= 0x7f800000; b += 4099) {
        const float x = kv_bits_float(b < 0 ? 0x80000000u | (uint32_t)-b : (uint32_t)b);
        const float y = g->round(x);
        CHECK(y >= last, "%s: not monotone at %a", g->name, (double)x);
        last = y;
    }
}

/* ---- integer grids ---- */

static int32_t clamp(double q, int32_t low, int32_t high)
{
    return q < low ? low : q > high ? high : (int32_t)q;
}

static void check_integer(const kv_format *f)
{
    const int b = f->bits;
    const int32_t qmax = (1 << (b - 1)) - 1, levels = (1 << b) - 1;
    CHECK(f->maximum == (float)qmax && kv_int_qmax(b) == (float)qmax, "%s", f->name);
    CHECK(kv_int_levels(b) == (float)levels, "%s", f->name);
    for (int32_t q = -qmax; q <= qmax; q++) {
        const uint32_t code = kv_int_code((float)q, b);
        CHECK(code < 1u << b && kv_int_code_level(code, b) == (float)q, "%s: %d", f->name, q);
    }
    uint64_t state = 7;
    for (int trial = 0; trial < 200000; trial++) {
        /* Ranges over many magnitudes; elements inside and, as a static scale sees them, outside.
         */
        const float amax = ldexpf(1 + (float)random_word(&state) * 0x1p-32f,
                                  (int)(random_word(&state) % 200) - 100);
        const float x = amax * ((float)random_word(&state) * 0x1p-31f - 1.0f) * 1.5f;
        const float s = amax / (float)qmax, inverse = 1.0f / s;
        const float t = x * inverse;
        const int32_t q = clamp(nearbyint((double)t), -qmax, qmax);
        CHECK(kv_int_scale(amax, kv_int_qmax(b)) == s && kv_int_inverse(s) == inverse, "%s",
              f->name);
        CHECK(kv_int_level(x, inverse, (float)qmax) == (float)q, "%s: %a", f->name, (double)x);
        CHECK(same(kv_int_round(x, inverse, s, (float)qmax), (float)q * s), "%s: %a", f->name,
              (double)x);
        const float minimum = -amax * 0.75f, step = (amax - minimum) / (float)levels;
        const float from = (x - minimum) * (1.0f / step);
        const int32_t u = clamp(nearbyint((double)from), 0, levels);
        CHECK(same(kv_int_round_from(x, minimum, kv_int_inverse(step), step, (float)levels),
                   fmaf((float)u, step, minimum)),
              "%s: %a with zero", f->name, (double)x);
    }
    /* Ties go to even, a range of zero is exact, nothing makes -0 or NaN of finite numbers. */
    for (int32_t q = 0; q < qmax; q++)
        CHECK(kv_int_level((float)q + 0.5f, 1, (float)qmax) == (float)(q + q % 2), "%s: tie",
              f->name);
    CHECK(same(kv_int_round(-0.25f, 1, 1, (float)qmax), 0.0f), "%s: zero has a sign", f->name);
    CHECK(kv_int_round(0, kv_int_inverse(0), 0, (float)qmax) == 0, "%s: zero range", f->name);
    CHECK(kv_int_round_from(3, 3, kv_int_inverse(0), 0, (float)levels) == 3, "%s: constant",
          f->name);
    const float tiny = kv_bits_float(1), small = kv_int_inverse(tiny);
    CHECK(isfinite(small) && !isnan(kv_int_round(0, small, tiny, (float)qmax)), "%s: tiny",
          f->name);
}

/* ---- blocks ---- */

/* What a block must be: codes, values and bytes, made bit by bit from the words of its format. */
typedef struct {
    uint32_t codes[32];
    float values[32];
    uint8_t bytes[64];
    size_t size;
} image;

/* Appends an f16 by search; returns the number that was stored. */
static float put_f16(image *out, float x)
{
    const specification *const f16 = specification_of("f16");
    const uint16_t code = (uint16_t)search(f16, 16, x);
    memcpy(out->bytes + out->size, &code, sizeof code);
    out->size += sizeof code;
    return (float)value_of(f16, 16, code);
}

/* Bit k of every code, to bit `at` + j * `stride` (of the bytes that follow) for element j. */
static void put_bit(image *out, int k, int at, int stride)
{
    for (int j = 0; j < 32; j++) {
        const int bit = at + j * stride;
        out->bytes[out->size + (size_t)bit / 8] |=
            (uint8_t)((out->codes[j] >> k & 1u) << (unsigned)bit % 8);
    }
}

/* ggml: fifth bits first where there are some, then nibbles of elements j and j + 16. */
static void put_ggml(image *out, int bits)
{
    if (bits == 5) put_bit(out, 4, 0, 1), out->size += 4;
    for (size_t j = 0; j < 32; j++)
        out->bytes[out->size + j % 16] |= (uint8_t)((out->codes[j] & 15u) << (j < 16 ? 0 : 4));
    out->size += 16;
}

static float inverse_of(float d)
{
    return fabsf(d) > 0x1p-128f && isfinite(d) ? 1 / d : 0;
}

static float first_largest(const float *x)
{
    float m = 0; /* +0 for a block of zeros of either sign */
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > fabsf(m)) m = x[i];
    return m;
}

static void q8_0_image(image *out, const float *x, int bits)
{
    const float d = fabsf(first_largest(x)) / 127, stored = put_f16(out, d);
    for (int i = 0; i < 32; i++) {
        const int q = (int)roundf(x[i] * inverse_of(d));
        out->codes[i] = (uint32_t)q & 255u;
        out->values[i] = (float)q * stored;
        out->bytes[out->size++] = (uint8_t)out->codes[i];
    }
    (void)bits;
}

/* q4_0 and q5_0 */
static void signed_image(image *out, const float *x, int bits)
{
    const float half = (float)(1 << (bits - 1)), d = first_largest(x) / -half;
    const float stored = put_f16(out, d);
    for (int i = 0; i < 32; i++) {
        const float level = truncf(x[i] * inverse_of(d) + (half + 0.5f));
        out->codes[i] = (uint32_t)fminf(level, 2 * half - 1);
        out->values[i] = ((float)out->codes[i] - half) * stored;
    }
    put_ggml(out, bits);
}

/* q4_1 and q5_1; of zeros -0 is the smallest */
static void minimum_image(image *out, const float *x, int bits)
{
    const float top = (float)((1 << bits) - 1);
    float low = x[0], high = x[0];
    for (int i = 1; i < 32; i++) {
        if (x[i] < low || (x[i] == low && signbit(x[i]))) low = x[i];
        if (x[i] > high) high = x[i];
    }
    const float d = (high - low) / top, id = inverse_of(d);
    const float scale = put_f16(out, d), minimum = put_f16(out, low);
    for (int i = 0; i < 32; i++) {
        const float level = id == 0 ? 0 : truncf((x[i] - low) * id + 0.5f);
        out->codes[i] = (uint32_t)fminf(level, top);
        out->values[i] = level * scale + minimum;
    }
    put_ggml(out, bits);
}

static const float iq4_nl_numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};

static void iq4_nl_image(image *out, const float *x, int bits)
{
    const float m = first_largest(x);
    const bool is_zero = fabsf(m) < 1e-15f;
    const float id = is_zero ? 0 : 1 / (m / iq4_nl_numbers[0]);
    float up = 0, down = 0;
    for (int i = 0; i < 32; i++) {
        const float t = x[i] * id;
        int best = 0; /* distances in double are exact near a tie; the later one wins */
        for (int k = 1; k < 16; k++)
            if (fabs((double)t - (double)iq4_nl_numbers[k]) <=
                fabs((double)t - (double)iq4_nl_numbers[best]))
                best = k;
        const float w = x[i] * x[i], v = iq4_nl_numbers[best];
        up = up + (w * v) * x[i];
        down = down + (w * v) * v;
        out->codes[i] = (uint32_t)best;
    }
    const float stored = put_f16(out, is_zero ? 0 : up / down);
    for (int i = 0; i < 32; i++) out->values[i] = stored * iq4_nl_numbers[out->codes[i]];
    put_ggml(out, bits);
}

static void exl_image(image *out, const float *x, int bits)
{
    const float half = ldexpf(1, bits - 1), s = fabsf(first_largest(x)) + 1e-10f;
    const float stored = put_f16(out, s);
    for (int i = 0; i < 32; i++) {
        const float level = floorf(x[i] * (1 / s) * half + half);
        out->codes[i] = (uint32_t)fmaxf(0, fminf(level, 2 * half - 1));
        out->values[i] = ldexpf((float)out->codes[i] - half + 0.5f, 1 - bits) * stored;
    }
    for (int k = bits, width = 8; width; width /= 2) /* planes, the leading bits first */
        if (bits & width) {
            k -= width;
            for (int b = 0; b < width; b++) put_bit(out, k + b, b, width);
            out->size += (size_t)(4 * width);
        }
}

typedef struct {
    const char *name;
    size_t bytes; /* as the project that the format is from stores it */
    void (*make)(image *out, const float *x, int bits);
} block_case;

static const block_case block_cases[] = {
    {"q8_0", 34, q8_0_image},    {"q4_0", 18, signed_image},  {"q5_0", 22, signed_image},
    {"q4_1", 20, minimum_image}, {"q5_1", 24, minimum_image}, {"iq4_nl", 18, iq4_nl_image},
    {"exl8", 34, exl_image},     {"exl7", 30, exl_image},     {"exl6", 26, exl_image},
    {"exl5", 22, exl_image},     {"exl4", 18, exl_image},     {"exl3", 14, exl_image},
    {"exl2", 10, exl_image},
};

typedef size_t run_block(uint8_t *bytes, float *y, uint32_t *codes, const float *x);

#define RUN_EXACT(stem)
#define RUN_INTEGER(stem)
#define RUN_FLOAT(stem)
#define RUN_BLOCK(stem)                                                                            \
    static size_t run_##stem(uint8_t *bytes, float *y, uint32_t *codes, const float *x)            \
    {                                                                                              \
        struct kv_##stem##_block block;                                                            \
        kv_##stem##_encode_block(&block, x);                                                       \
        kv_##stem##_decode_block(y, &block);                                                       \
        kv_##stem##_block_codes(codes, &block);                                                    \
        memcpy(bytes, &block, sizeof block);                                                       \
        const kv_block_scale s = kv_##stem##_scale(x);                                             \
        const kv_block_scale stored = {kv_f16_round(s.d), kv_f16_round(s.m), 0.0f};                \
        for (int i = 0; i < 32; i++)                                                               \
            CHECK(kv_##stem##_code(x[i], s) == codes[i] &&                                         \
                      same(kv_##stem##_value(codes[i], stored), y[i]),                             \
                  #stem ": %a alone", (double)x[i]);                                               \
        return sizeof block;                                                                       \
    }
#define KV_ROW(name, NAME, KIND, ...) RUN_##KIND(name)
KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW

static void check_one_block(const block_case *c, int bits, run_block *run, const float *x)
{
    float y[32];
    uint32_t codes[32];
    uint8_t bytes[64];
    image expected = {.size = 0};
    c->make(&expected, x, bits);
    const size_t size = run(bytes, y, codes, x);
    CHECK(size == c->bytes && expected.size == size, "%s: %zu bytes", c->name, size);
    CHECK(memcmp(bytes, expected.bytes, size) == 0, "%s: bytes of a block with %a", c->name,
          (double)x[0]);
    for (int i = 0; i < 32; i++) {
        CHECK(codes[i] == expected.codes[i], "%s: %a: code %x, not %x", c->name, (double)x[i],
              codes[i], expected.codes[i]);
        CHECK(same(y[i], expected.values[i]), "%s: %a: %a, not %a", c->name, (double)x[i],
              (double)y[i], (double)expected.values[i]);
    }
}

/* Multiples of 1/2 from low to high, both of which occur: where the scale is a small integer every
 * boundary between codes is met. */
static void draw_ties(float *x, int low, int high, uint64_t *state)
{
    for (int i = 0; i < 32; i++)
        x[i] = (float)(2 * low + (int)(random_word(state) % (unsigned)(2 * (high - low) + 1))) / 2;
    const uint32_t at = random_word(state);
    x[at % 32] = (float)low, x[(at + 1 + at / 32 % 31) % 32] = (float)high;
}

/* Between two elements of different codes lie neighbouring floats with different codes: found by
 * halving, with the reference, so that every rounding on the way to a code is met. */
static void check_boundary(const block_case *c, int bits, run_block *run, float *x, int from,
                           int to, uint64_t *state)
{
    const int at = (int)(random_word(state) % 32); /* free unless it holds the range */
    const float held = x[at];
    float a = x[from], b = x[to];
    image made = {.size = 0};
    c->make(&made, x, bits);
    if (at == from || at == to || made.codes[from] == made.codes[to]) return;
    while (nextafterf(a, b) != b) {
        const float middle = a / 2 + b / 2;
        x[at] = middle == a || middle == b ? nextafterf(a, b) : middle;
        image half = {.size = 0};
        c->make(&half, x, bits);
        if (half.codes[at] == half.codes[from])
            a = x[at];
        else
            b = x[at];
    }
    x[at] = a, check_one_block(c, bits, run, x);
    x[at] = b, check_one_block(c, bits, run, x);
    x[at] = held;
}

static void check_blocks(const kv_format *f, run_block *run)
{
    static const int ends[][2] = {{-127, 127}, {-127, 113}, {-113, 127}, {-8, 8},
                                  {-8, 7},     {-7, 8},     {-16, 16},   {-16, 15},
                                  {0, 15},     {0, 31},     {-3, 12},    {-20, 11}};
    const block_case *c = NULL;
    for (size_t i = 0; i < sizeof block_cases / sizeof block_cases[0]; i++)
        if (strcmp(block_cases[i].name, f->name) == 0) c = &block_cases[i];
    CHECK(c != NULL, "%s has no reference in this test", f->name);
    if (!c) return;
    CHECK(f->block_bits == (int)c->bytes * 8, "%s: %d bits", f->name, f->block_bits);
    float x[32];
    uint64_t state = 11;
    for (int trial = 0; trial < 30000; trial++) {
        const int exponent = (int)(random_word(&state) % 60) - (trial % 16 ? 45 : 150);
        for (int i = 0; i < 32; i++)
            x[i] = ldexpf((float)random_word(&state) * 0x1p-31f - 1.0f, exponent);
        check_one_block(c, f->bits, run, x);
        if (trial % 16 == 1)
            check_boundary(c, f->bits, run, x, trial / 16 % 32, trial / 512 % 32, &state);
        for (int i = 0; i < 32; i++) x[i] += 1; /* a mean beside which the rest is small */
        check_one_block(c, f->bits, run, x);
        const int *const end = ends[trial % (int)(sizeof ends / sizeof ends[0])];
        draw_ties(x, end[0], end[1], &state);
        check_one_block(c, f->bits, run, x);
    }
    static const float pairs[][2] = {
        {0, 0},
        {-0.0f, -0.0f},
        {0, -0.0f},
        {-0.0f, 0},
        {3, 3},
        {-3, -3},
        {-1e30f, 1e30f},     /* d overflows f16 */
        {FLT_MAX, -FLT_MAX}, /* max - min overflows */
        {1e-15f, 0},
        {-0.9e-15f, 0},
        {65504, 65504},
        {70000, 69999},
        {1e-40f, 0},
        {FLT_MIN, -FLT_MIN},
        {0x1p-128f, 0},
        {1, 0x1p-149f},
    };
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        for (int i = 0; i < 32; i++) x[i] = pairs[p][i % 2];
        check_one_block(c, f->bits, run, x);
    }
    for (int i = 0; i < 32; i++) x[i] = kv_bits_float((uint32_t)i); /* denormals */
    check_one_block(c, f->bits, run, x);
}

/* ---- scales as powers of two ---- */

static void check_e8m0(void)
{
    for (int code = 0; code < 255; code++) {
        const float v = ldexpf(1, code - 127);
        CHECK(kv_e8m0_decode((uint32_t)code) == v, "e8m0 code %d", code);
        CHECK(kv_e8m0_encode(v) == (uint32_t)code, "e8m0 code %d", code);
        if (code < 254)
            CHECK(kv_e8m0_encode(nextafterf(v, INFINITY)) == (uint32_t)code + 1, "above %d", code);
    }
    CHECK(kv_e8m0_encode(0) == 0 && kv_e8m0_encode(INFINITY) == 254, "e8m0's ends");
    CHECK(kv_e8m0_encode(0x1.8p127f) == 254, "e8m0 saturates");
    CHECK(kv_e8m0_encode(NAN) == 255 && isnan(kv_e8m0_decode(255)), "e8m0's NaN");
}

/* ---- the table ---- */

static void check_exact(const kv_format *f, float (*round)(float))
{
    for (size_t i = 0; i < SPECIALS; i++)
        CHECK(same(round(kv_bits_float(special[i])), kv_bits_float(special[i])), "%s", f->name);
}

#define CHECK_EXACT(stem, STEM)   check_exact(f, kv_##stem##_round)
#define CHECK_INTEGER(stem, STEM) check_integer(f)
#define CHECK_FLOAT(stem, STEM)                                                                    \
    check_grid(&(grid){f->name, kv_##stem##_encode, kv_##stem##_decode, kv_##stem##_round,         \
                       KV_##STEM##_MAXIMUM, f->bits})
#define CHECK_BLOCK(stem, STEM) check_blocks(f, run_##stem)

int main(void)
{
    const kv_format *f;
#define KV_ROW(name, NAME, KIND, width, text)                                                      \
    f = kv_format_at(KV_FORMAT_##NAME);                                                            \
    CHECK(f &&f == kv_format_find(#name) && f->kind == KV_KIND_##KIND && f->bits == width, #name); \
    CHECK(f->kind == KV_KIND_BLOCK || f->block_bits == width, #name);                              \
    CHECK(f->block_elements == (f->kind == KV_KIND_BLOCK ? 32 : 1), #name);                        \
    CHECK(strlen(f->about) > 10, #name);                                                           \
    CHECK_##KIND(name, NAME);
    KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
    check_e8m0();
    CHECK(!kv_format_at(KV_FORMAT_COUNT) && !kv_format_find("int9"), "past the end");
    return check_done();
}
