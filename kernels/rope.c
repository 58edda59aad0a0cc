/* Rotary embedding: see rope.h for what is computed.
 *
 * A position is block * BLOCK + offset. Cosines and sines of the offsets are tabulated once; those
 * of a block are computed once for its rows, and the two angles are added by the addition theorem
 * in double (error below 4e-16), so the libm calls are 1/BLOCK of the pairs rotated and a row's
 * result depends on its position alone. */
#include "kernels/rope.h"

#include <math.h>
#include <stdbool.h>

#include "kernels/memory.h"
#include "kernels/rope_pairs.h"

enum { BLOCK = KV_ROPE_OFFSETS, CHUNK = 64 }; /* pairs whose block angles are held at a time */

static const double pi = 3.14159265358979323846;

struct kv_rope {
    int64_t layout, head_dim, rotary_dim, pairs;
    double magnitude;
    double *frequency;     /* [pairs], radians per token */
    double *cosine, *sine; /* [BLOCK][pairs], of offset * frequency */
};

/* What a scaling makes of the plain frequency of pair i. */
typedef double scaled_frequency(const kv_rope_settings *s, int64_t rotary_dim, int64_t i);

static double plain(const kv_rope_settings *s, int64_t rotary_dim, int64_t i)
{
    return pow(s->base, -2.0 * (double)i / (double)rotary_dim);
}

/* Chen et al. 2023 (arXiv 2306.15595), eq. 4. */
static double linear(const kv_rope_settings *s, int64_t rotary_dim, int64_t i)
{
    return plain(s, rotary_dim, i) / s->factor;
}

/* "NTK-aware" scaling; Peng et al. 2023 (arXiv 2309.00071), section 3.1, eq. 16. */
static double ntk(const kv_rope_settings *s, int64_t rotary_dim, int64_t i)
{
    double const d = (double)rotary_dim;
    return pow(s->base * pow(s->factor, d / (d - 2)), -2.0 * (double)i / d);
}

/* The pair, as a real number, that turns `turns` times within the original length. */
static double pair_of_turns(const kv_rope_settings *s, int64_t rotary_dim, double turns)
{
    double const length = (double)s->original_length;
    return (double)rotary_dim * log(length / (turns * 2 * pi)) / (2 * log(s->base));
}

/* Peng et al. 2023, section 3.2, as the authors' code and transformers compute it: the ramp is
 * linear in the pair's index between the pairs that turn beta_fast and beta_slow times. */
static double yarn(const kv_rope_settings *s, int64_t rotary_dim, int64_t i)
{
    double const low = fmax(floor(pair_of_turns(s, rotary_dim, s->beta_fast)), 0);
    double high = fmin(ceil(pair_of_turns(s, rotary_dim, s->beta_slow)), (double)rotary_dim - 1);
    if (high == low) high += 0.001; /* as their code does, against division by zero */
    double const ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    double const theta = plain(s, rotary_dim, i);
    return theta / s->factor * ramp + theta * (1 - ramp);
}

/* apply_scaling of Meta's Llama 3.1 model code (llama_models, models/llama3/reference_impl). */
static double llama3(const kv_rope_settings *s, int64_t rotary_dim, int64_t i)
{
    double const theta = plain(s, rotary_dim, i), wavelength = 2 * pi / theta;
    double const original = (double)s->original_length;
    if (wavelength < original / s->high_freq_factor) return theta;
    if (wavelength > original / s->low_freq_factor) return theta / s->factor;
    double const smooth =
        (original / wavelength - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1 - smooth) * theta / s->factor + smooth * theta;
}

static const struct {
    const char *name;
    scaled_frequency *frequency;
    bool has_factor, has_magnitude, has_original;
} scalings[] = {
    [KV_ROPE_SCALING_NONE] = {"none", plain, false, false, false},
    [KV_ROPE_SCALING_LINEAR] = {"linear", linear, true, false, false},
    [KV_ROPE_SCALING_NTK] = {"ntk", ntk, true, false, false},
    [KV_ROPE_SCALING_YARN] = {"yarn", yarn, true, true, true},
    [KV_ROPE_SCALING_LLAMA3] = {"llama3", llama3, true, false, true},
};
enum { N_SCALINGS = sizeof scalings / sizeof *scalings };

static void fill_double(double *field, double otherwise)
{
    if (*field == 0) *field = otherwise;
}

/* The settings with every default filled in, or an error that names the one that is wrong. */
static kv_status complete(kv_rope_settings *s, const kv_rope_settings *given, int64_t head_dim,
                          kv_error *err)
{
    *s = *given;
    if (s->layout < KV_ROPE_NONE || s->layout > KV_ROPE_INTERLEAVED)
        return KV_FAIL(err, KV_EREQUEST, "rope.layout: %lld is no layout", (long long)s->layout);
    if (s->layout == KV_ROPE_NONE) return KV_OK;
    if (s->rotary_dim == 0) s->rotary_dim = head_dim;
    if (s->rotary_dim < 2 || s->rotary_dim % 2 != 0 || s->rotary_dim > head_dim)
        return KV_FAIL(
            err, KV_EREQUEST,
            "rope.rotary_dim: %lld: must be even, at least 2 and at most head_dim = %lld",
            (long long)s->rotary_dim, (long long)head_dim);
    fill_double(&s->base, 10000);
    if (!(s->base > 1 && isfinite(s->base)))
        return KV_FAIL(err, KV_EREQUEST, "rope.base: %g: must be a number above 1", s->base);
    if (s->scaling < 0 || s->scaling >= N_SCALINGS)
        return KV_FAIL(err, KV_EREQUEST, "rope.scaling: %lld is no scaling", (long long)s->scaling);
    const char *const name = scalings[s->scaling].name;
    if (scalings[s->scaling].has_factor && !(s->factor >= 1 && isfinite(s->factor)))
        return KV_FAIL(err, KV_EREQUEST, "rope.factor: %g: scaling %s needs a factor of 1 or more",
                       s->factor, name);
    if (s->scaling == KV_ROPE_SCALING_NTK && s->rotary_dim == 2)
        return KV_FAIL(err, KV_EREQUEST, "rope.rotary_dim: 2: scaling ntk needs 4 or more");
    if (!scalings[s->scaling].has_original) return KV_OK;
    if (s->original_length == 0) s->original_length = s->training_length;
    if (s->original_length <= 0)
        return KV_FAIL(err, KV_EREQUEST,
                       "rope.original_length: %lld: scaling %s needs the length the model was "
                       "first trained on",
                       (long long)s->original_length, name);
    fill_double(&s->low_freq_factor, 1);
    fill_double(&s->high_freq_factor, 4);
    fill_double(&s->beta_fast, 32);
    fill_double(&s->beta_slow, 1);
    if (!(s->low_freq_factor > 0 && s->high_freq_factor > s->low_freq_factor))
        return KV_FAIL(err, KV_EREQUEST,
                       "rope.high_freq_factor: %g: must be above low_freq_factor = %g, and both "
                       "above 0",
                       s->high_freq_factor, s->low_freq_factor);
    if (!(s->beta_slow > 0 && s->beta_fast > s->beta_slow))
        return KV_FAIL(err, KV_EREQUEST,
                       "rope.beta_fast: %g: must be above beta_slow = %g, and both above 0",
                       s->beta_fast, s->beta_slow);
    return KV_OK;
}

kv_status kv_rope_create(kv_rope **out, const kv_rope_settings *settings, int64_t head_dim,
                         kv_error *err)
{
    kv_status status = KV_OK;
    kv_rope *rope = NULL;
    kv_rope_settings s;
    KV_TRY(complete(&s, settings, head_dim, err));
    KV_TRY(kv_allocate((void **)&rope, 1, sizeof *rope, err));
    rope->layout = s.layout, rope->head_dim = head_dim, rope->magnitude = 1;
    if (s.layout != KV_ROPE_NONE) {
        rope->rotary_dim = s.rotary_dim, rope->pairs = s.rotary_dim / 2;
        if (scalings[s.scaling].has_magnitude) rope->magnitude = 0.1 * log(s.factor) + 1;
    }
    size_t const pairs = (size_t)rope->pairs;
    KV_TRY(kv_allocate((void **)&rope->frequency, pairs, sizeof(double), err));
    KV_TRY(kv_allocate3((void **)&rope->cosine, BLOCK, pairs, 1, sizeof(double), err));
    KV_TRY(kv_allocate3((void **)&rope->sine, BLOCK, pairs, 1, sizeof(double), err));
    for (int64_t i = 0; i < rope->pairs; i++) {
        rope->frequency[i] = scalings[s.scaling].frequency(&s, s.rotary_dim, i);
        for (int64_t offset = 0; offset < BLOCK; offset++) {
            double const angle = (double)offset * rope->frequency[i];
            rope->cosine[offset * rope->pairs + i] = cos(angle);
            rope->sine[offset * rope->pairs + i] = sin(angle);
        }
    }
    *out = rope, rope = NULL;
done:
    kv_rope_free(rope);
    return status;
}

void kv_rope_free(kv_rope *rope)
{
    if (!rope) return;
    kv_free(rope->frequency);
    kv_free(rope->cosine);
    kv_free(rope->sine);
    kv_free(rope);
}

/* Doubles in the widest registers gain a tenth here and slow down by as much what runs after them.
 */
static kv_isa second_widest(void)
{
    kv_isa const best = kv_isa_best();
    return best > 0 && best + 1 == KV_ISA_COUNT ? (kv_isa)(best - 1) : best;
}

/* Of `count` pairs from `pair` on at the first position of a block. */
static void block_angles(const kv_rope *rope, int64_t start, int64_t pair, int64_t count,
                         double *cosine, double *sine)
{
    for (int64_t i = 0; i < count; i++) {
        double const angle = (double)start * rope->frequency[pair + i];
        cosine[i] = cos(angle), sine[i] = sin(angle);
    }
}

static void rotate(const kv_rope *rope, int64_t first, int64_t count, float *x, bool is_inverse)
{
    if (!rope) return;
    bool const is_half = rope->layout == KV_ROPE_HALF;
    int64_t const stride = is_half ? 1 : 2, partner = is_half ? rope->pairs : 1;
    double block_cosine[CHUNK], block_sine[CHUNK];
    kv_rope_angles angles = {.block_cosine = block_cosine,
                             .block_sine = block_sine,
                             .sign = is_inverse ? -1 : 1,
                             .magnitude = is_inverse ? 1 / rope->magnitude : rope->magnitude};
#define KV_ROW(isa) kv_rope_pairs_##isa,
    static void (*const variants[])(float *, float *, int64_t,
                                    const kv_rope_angles *) = {KV_ISA_TABLE(KV_ROW)};
#undef KV_ROW
    kv_isa const isa = second_widest();
    for (int64_t row = 0; row < count;) {
        int64_t const start = (first + row) / BLOCK * BLOCK, offset = first + row - start;
        int64_t const rows = count - row < BLOCK - offset ? count - row : BLOCK - offset;
        for (int64_t pair = 0; pair < rope->pairs; pair += CHUNK) {
            int64_t const n = rope->pairs - pair < CHUNK ? rope->pairs - pair : CHUNK;
            block_angles(rope, start, pair, n, block_cosine, block_sine);
            for (int64_t r = 0; r < rows; r++) {
                float *const a = x + (row + r) * rope->head_dim + pair * stride;
                int64_t const table = (offset + r) * rope->pairs + pair;
                angles.count = n;
                angles.cosine = rope->cosine + table, angles.sine = rope->sine + table;
                variants[isa](a, a + partner, stride, &angles);
            }
        }
        row += rows;
    }
}

void kv_rope_apply(const kv_rope *rope, int64_t first, int64_t count, float *x)
{
    rotate(rope, first, count, x, false);
}

void kv_rope_remove(const kv_rope *rope, int64_t first, int64_t count, float *x)
{
    rotate(rope, first, count, x, true);
}

kv_rope_tables kv_rope_tables_of(const kv_rope *rope)
{
    return (kv_rope_tables){.pairs = rope->pairs,
                            .is_interleaved = rope->layout == KV_ROPE_INTERLEAVED,
                            .magnitude = rope->magnitude,
                            .cosine = rope->cosine,
                            .sine = rope->sine};
}

void kv_rope_blocks(const kv_rope *rope, int64_t blocks, double *cosine, double *sine)
{
    for (int64_t b = 0; b < blocks; b++)
        block_angles(rope, b * BLOCK, 0, rope->pairs, cosine + b * rope->pairs,
                     sine + b * rope->pairs);
}

double kv_rope_frequency(const kv_rope *rope, int64_t pair)
{
    return rope->frequency[pair];
}

int64_t kv_rope_rotary_dim(const kv_rope *rope)
{
    return rope->rotary_dim;
}
