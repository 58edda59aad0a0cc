/* numpy's default_rng(seed).standard_normal, draw by draw: see random.h.
 *
 * SeedSequence: O'Neill's seed_seq alternative (numpy/random/bit_generator.pyx). PCG64: XSL-RR
 * 128/64 (O'Neill 2014, section 6.3; numpy/random/src/pcg64). Ziggurat: Marsaglia and Tsang 2000 as
 * laid out by numpy's random_standard_normal (numpy/random/src/distributions): of a word, bits 0-7
 * pick the layer, bit 8 is the sign, bits 9-60 the magnitude. */
#include <math.h>

#include "kernels/random.h"

/* ---- seeds ---- */

enum { POOL = 4 };

typedef struct {
    uint32_t value, multiplier;
} hash_state;

static uint32_t hash(hash_state *h, uint32_t word)
{
    word ^= h->value;
    h->value *= h->multiplier;
    word *= h->value;
    return word ^ word >> 16;
}

static uint32_t mix(uint32_t x, uint32_t y)
{
    const uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;
    return r ^ r >> 16;
}

/* Entropy of any length into eight words of seed. */
static void seed_sequence(uint32_t out[8], const uint32_t *words, size_t count)
{
    uint32_t pool[POOL];
    hash_state h = {0x43b0d7e5u, 0x931e8875u};
    for (size_t i = 0; i < POOL; i++) pool[i] = hash(&h, i < count ? words[i] : 0);
    for (size_t from = 0; from < POOL; from++)
        for (size_t to = 0; to < POOL; to++)
            if (from != to) pool[to] = mix(pool[to], hash(&h, pool[from]));
    for (size_t from = POOL; from < count; from++)
        for (size_t to = 0; to < POOL; to++) pool[to] = mix(pool[to], hash(&h, words[from]));
    hash_state g = {0x8b51f9ddu, 0x58f38dedu};
    for (size_t i = 0; i < 8; i++) out[i] = hash(&g, pool[i % POOL]);
}

/* ---- PCG64, in 64-bit halves: [0] high, [1] low ---- */

static void add(uint64_t a[2], const uint64_t b[2])
{
    const uint64_t low = a[1] + b[1];
    a[0] += b[0] + (low < b[1]);
    a[1] = low;
}

static uint64_t multiply_high(uint64_t a, uint64_t b)
{
    const uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & 0xffffffffu);
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

static void step(kv_numpy_stream *s)
{
    static const uint64_t multiplier[2] = {2549297995355413924u, 4865540595714422341u};
    const uint64_t high = multiply_high(s->state[1], multiplier[1]) + s->state[0] * multiplier[1] +
                          s->state[1] * multiplier[0];
    s->state[1] *= multiplier[1];
    s->state[0] = high;
    add(s->state, s->increment);
}

uint64_t kv_numpy_word(kv_numpy_stream *stream)
{
    step(stream);
    const uint64_t x = stream->state[0] ^ stream->state[1];
    const unsigned turn = (unsigned)(stream->state[0] >> 58);
    return x >> turn | x << (-turn & 63u);
}

void kv_numpy_stream_seed_words(kv_numpy_stream *stream, const kv_ziggurat *ziggurat,
                                const uint32_t *words, size_t count)
{
    uint32_t seed[8];
    uint64_t half[4];
    seed_sequence(seed, words, count);
    for (int i = 0; i < 4; i++) half[i] = seed[2 * i] | (uint64_t)seed[2 * i + 1] << 32;
    const uint64_t start[2] = {half[0], half[1]};
    *stream = (kv_numpy_stream){.increment = {half[2] << 1 | half[3] >> 63, half[3] << 1 | 1u},
                                .ziggurat = ziggurat};
    step(stream);
    add(stream->state, start);
    step(stream);
}

void kv_numpy_stream_seed(kv_numpy_stream *stream, const kv_ziggurat *ziggurat, uint64_t seed)
{
    const uint32_t words[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    kv_numpy_stream_seed_words(stream, ziggurat, words, words[1] ? 2 : 1);
}

/* ---- ziggurat ---- */

static const long double tail_start = 3.6541528853610087963519472518L;

void kv_ziggurat_fill(kv_ziggurat *z)
{
    const long double r = tail_start, scale = 0x1p52L, half_pi = 1.57079632679489661923132169164L;
    const long double tail = sqrtl(half_pi) * erfcl(r / sqrtl(2.0L));
    const long double area = r * expl(-0.5L * r * r) + tail; /* of every layer */
    long double x = r;
    for (int i = 255; i >= 1; i--) {
        const long double f = expl(-0.5L * x * x);
        const long double inner = i > 1 ? sqrtl(-2.0L * logl(area / x + f)) : 0.0L;
        z->width[i] = (double)(x / scale);
        z->density[i] = (double)f;
        z->accept[i] = (uint64_t)(inner / x * scale);
        x = inner;
    }
    const long double base = area / expl(-0.5L * r * r); /* width of layer 0 as if rectangular */
    z->width[0] = (double)(base / scale);
    z->density[0] = 1.0;
    z->accept[0] = (uint64_t)(r / base * scale);
}

static double uniform(kv_numpy_stream *s)
{
    return (double)(kv_numpy_word(s) >> 11) * 0x1p-53;
}

/* Beyond r: Marsaglia's method, x = -ln(u) / r accepted where -2 ln(v) > x^2. */
static double tail(kv_numpy_stream *s)
{
    for (;;) {
        const double x = -(1.0 / (double)tail_start) * log1p(-uniform(s));
        const double y = -log1p(-uniform(s));
        if (y + y > x * x) return (double)tail_start + x;
    }
}

static double normal(kv_numpy_stream *s)
{
    const kv_ziggurat *const z = s->ziggurat;
    for (;;) {
        const uint64_t word = kv_numpy_word(s), magnitude = word >> 9 & 0xfffffffffffffu;
        const unsigned layer = word & 0xffu;
        const double x = (double)magnitude * z->width[layer];
        const double signed_x = word >> 8 & 1u ? -x : x;
        if (magnitude < z->accept[layer]) return signed_x;
        if (layer == 0) { /* numpy takes the tail's sign from bit 8 of the magnitude */
            const double t = tail(s);
            return magnitude >> 8 & 1u ? -t : t;
        }
        const double above = z->density[layer - 1], below = z->density[layer];
        if ((above - below) * uniform(s) + below < exp(-0.5 * x * x)) return signed_x;
    }
}

void kv_numpy_normals(kv_numpy_stream *stream, double *out, size_t count)
{
    kv_numpy_stream s = *stream;
    for (size_t i = 0; i < count; i++) {
        const double x = normal(&s);
        if (out) out[i] = x;
    }
    *stream = s;
}
