/* numpy's default_rng(seed).standard_normal: SeedSequence, PCG64, ziggurat. See random.h.
 *
 * Facts: pool of 4 words and hash constants of SeedSequence (O'Neill's seed_seq_fe, numpy
 * bit_generator.pyx); PCG64's multiplier 0x2360ED051FC65DA44385DF649FCCF645; ziggurat radius r,
 * 52-bit mantissa from bits 9 ... 60, sign bit 8, layer bits 0 ... 7 of one word. */
#include <math.h>
#include <pthread.h>

#include "kernels/random.h"

__extension__ typedef unsigned __int128 wide;

/* ---- PCG64 ---- */

static wide join(uint64_t high, uint64_t low)
{
    return (wide)high << 64 | low;
}

static uint64_t next_word(kv_numpy_stream *s)
{
    wide const multiplier = join(0x2360ED051FC65DA4u, 0x4385DF649FCCF645u);
    wide const state =
        join(s->state_high, s->state_low) * multiplier + join(s->increment_high, s->increment_low);
    s->state_high = (uint64_t)(state >> 64), s->state_low = (uint64_t)state;
    uint64_t const mixed = s->state_high ^ s->state_low;
    unsigned const turn = (unsigned)(s->state_high >> 58);
    return mixed >> turn | mixed << (-turn & 63);
}

/* [0, 1) with 53 bits. */
static double next_unit(kv_numpy_stream *s)
{
    return (double)(next_word(s) >> 11) * 0x1p-53;
}

/* ---- SeedSequence ---- */

static uint32_t hash_mix(uint32_t value, uint32_t *constant)
{
    value ^= *constant;
    *constant *= 0x931E8875u;
    value *= *constant;
    return value ^ value >> 16;
}

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint32_t const result = 0xCA01F9DDu * a - 0x4973F715u * b;
    return result ^ result >> 16;
}

void kv_numpy_seed(kv_numpy_stream *s, uint64_t seed)
{
    uint32_t const entropy[4] = {(uint32_t)seed, (uint32_t)(seed >> 32), 0, 0};
    uint32_t pool[4], constant = 0x43B0D7E5u;
    for (int i = 0; i < 4; i++) pool[i] = hash_mix(entropy[i], &constant);
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++)
            if (from != to) pool[to] = mix(pool[to], hash_mix(pool[from], &constant));
    uint64_t words[4] = {0};
    constant = 0x8B51F9DDu;
    for (int i = 0; i < 8; i++) {
        uint32_t value = pool[i % 4] ^ constant;
        constant *= 0x58F38DEDu;
        value *= constant;
        value ^= value >> 16;
        words[i / 2] |= (uint64_t)value << (32 * (i % 2));
    }
    wide const increment = join(words[2], words[3]) << 1 | 1;
    wide const state = increment + join(words[0], words[1]); /* one step from state 0, then added */
    s->increment_high = (uint64_t)(increment >> 64), s->increment_low = (uint64_t)increment;
    s->state_high = (uint64_t)(state >> 64), s->state_low = (uint64_t)state;
    next_word(s);
}

/* ---- ziggurat ---- */

static const double radius = 3.6541528853610087963519472518;

/* Layer widths, acceptance bounds and densities: constants, computed once in long double. */
static double width[256], density[256];
static uint64_t bound[256];

static void compute_layers(void)
{
    long double const r = 3.6541528853610087963519472518L, mantissa = 0x1p52L;
    long double const f = expl(-0.5L * r * r);
    long double const tail = sqrtl(acosl(-1.0L) / 2) * erfcl(r / sqrtl(2.0L));
    long double const area = r * f + tail;
    long double x[256];
    x[255] = r;
    for (int i = 254; i >= 1; i--)
        x[i] = sqrtl(-2 * logl(area / x[i + 1] + expl(-0.5L * x[i + 1] * x[i + 1])));
    width[0] = (double)(area / f / mantissa), density[0] = 1;
    bound[0] = (uint64_t)(r * f / area * mantissa), bound[1] = 0;
    for (int i = 1; i < 256; i++) {
        width[i] = (double)(x[i] / mantissa);
        density[i] = (double)expl(-0.5L * x[i] * x[i]);
        if (i > 1) bound[i] = (uint64_t)(x[i - 1] / x[i] * mantissa);
    }
}

/* Beyond the last layer: Marsaglia's tail method. */
static double tail_normal(kv_numpy_stream *s, int is_negative)
{
    for (;;) {
        double const x = -(1.0 / radius) * log1p(-next_unit(s)), y = -log1p(-next_unit(s));
        if (y + y > x * x) return is_negative ? -(radius + x) : radius + x;
    }
}

static double next_normal(kv_numpy_stream *s)
{
    for (;;) {
        uint64_t const word = next_word(s), magnitude = word >> 9 & 0x000FFFFFFFFFFFFFu;
        int const layer = (int)(word & 0xFF);
        double const x = (double)magnitude * width[layer], value = word & 0x100 ? -x : x;
        if (magnitude < bound[layer]) return value;
        if (layer == 0) return tail_normal(s, (int)(magnitude >> 8 & 1));
        double const height = (density[layer - 1] - density[layer]) * next_unit(s) + density[layer];
        if (height < exp(-0.5 * x * x)) return value;
    }
}

void kv_numpy_normals(kv_numpy_stream *stream, double *out, int64_t count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, compute_layers);
    kv_numpy_stream s = *stream;
    for (int64_t i = 0; i < count; i++) out[i] = next_normal(&s);
    *stream = s;
}
