/* Random streams against known answers: Random123's vectors, numpy, torch's printed values, and the
 * rule that a split never changes a number. */
#include <stdlib.h>

#include "kernels/philox.h"
#include "kernels/random.h"
#include "tests/check.h"

/* Random123's known-answer file, philox4x32 with 10 rounds. */
static void philox_known(void)
{
    uint32_t word[4];
    kv_philox(word, 0, 0, 0);
    CHECK(word[0] == 0x6627e8d5 && word[1] == 0xe169c58d && word[2] == 0xbc57ac4c &&
              word[3] == 0x9b00dbd8,
          "%08x %08x %08x %08x", word[0], word[1], word[2], word[3]);
    kv_philox(word, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    CHECK(word[0] == 0x408f276d && word[1] == 0x41c83b0e && word[2] == 0xa20bc7c6 &&
              word[3] == 0x6d5451fd,
          "%08x %08x %08x %08x", word[0], word[1], word[2], word[3]);
    kv_philox(word, 0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e); /* digits of pi */
    CHECK(word[0] == 0xd16cfe09 && word[1] == 0x94fdcceb && word[2] == 0x5001e420 &&
              word[3] == 0x24126ea1,
          "%08x %08x %08x %08x", word[0], word[1], word[2], word[3]);
}

/* Elements next to any boundary are those of the definition; streams and seeds differ. */
static void philox_elements(void)
{
    static const uint64_t firsts[] = {0, 1, 2, 3, 127, 128, 0xfffffffe, UINT64_C(1) << 40};
    float z[300], pair[2];
    uint32_t words[300], block[4];
    for (size_t f = 0; f < sizeof firsts / sizeof firsts[0]; f++) {
        kv_philox_normals(z, 9, 4, firsts[f], 300);
        kv_philox_words(words, 9, 4, firsts[f], 300);
        for (size_t i = 0; i < 300; i++) {
            const uint64_t e = firsts[f] + i;
            kv_philox(block, 9, e / 4, 4);
            kv_philox_normal_pair(&pair[0], &pair[1], block[e % 4 & 2], block[e % 4 | 1]);
            CHECK(words[i] == block[e % 4], "word %llu", (unsigned long long)e);
            CHECK(kv_float_bits(z[i]) == kv_float_bits(pair[e % 2]), "normal %llu",
                  (unsigned long long)e);
        }
    }
    CHECK(kv_stream_id(1, 2, 3, 4) == 0x0000000100200034, "%llx",
          (unsigned long long)kv_stream_id(1, 2, 3, 4));
}

/* Our elementary functions against libm in double; the bounds are those real.h states. */
static void elementary(void)
{
    double worst_exp = 0, worst_log = 0, worst_turn = 0;
    for (uint32_t b = 0x80000000u; b < kv_float_bits(-126.0f); b += 1009) {
        const double x = (double)kv_bits_float(b);
        worst_exp = fmax(worst_exp, fabs((double)kv_exp2f((float)x) / exp2(x) - 1));
    }
    CHECK(kv_exp2f(0) == 1 && kv_exp2f(-126) == 0 && kv_exp2f(-INFINITY) == 0, "exp2's ends");
    for (uint32_t b = 0x00800000u; b < 0x7f800000u; b += 1009) {
        const double x = (double)kv_bits_float(b);
        worst_log = fmax(worst_log, fabs((double)kv_logf((float)x) / log(x) - 1));
    }
    CHECK(kv_logf(1) == 0, "log 1");
    for (uint64_t turn = 0; turn < UINT64_C(1) << 32; turn += 2003) {
        float sine, cosine;
        const double angle = 6.283185307179586476925 * ((double)turn + 0.5) * 0x1p-32;
        kv_sincos((uint32_t)turn, &sine, &cosine);
        worst_turn = fmax(worst_turn, fabs((double)sine - sin(angle)));
        worst_turn = fmax(worst_turn, fabs((double)cosine - cos(angle)));
    }
    CHECK(worst_exp < 8.4e-8 && worst_log < 8.8e-8 && worst_turn < 1.1e-7, "exp2 %g log %g turn %g",
          worst_exp, worst_log, worst_turn);
}

/* Those in double, against long double. */
static void elementary_double(void)
{
    long double worst_exp = 0, worst_log = 0;
    for (int i = 0; i <= 1000000; i++) {
        double const x = -708.0 * i / 1000000, small = x / 708, y = exp(x), near = 0.5 - 2 * small;
        worst_exp = fmaxl(worst_exp, fabsl((long double)kv_exp(x) / expl(x) - 1));
        worst_exp = fmaxl(worst_exp, fabsl((long double)kv_exp(small) / expl(small) - 1));
        if (y < 1) worst_log = fmaxl(worst_log, fabsl((long double)kv_log(y) / logl(y) - 1));
        if (near != 1)
            worst_log = fmaxl(worst_log, fabsl((long double)kv_log(near) / logl(near) - 1));
    }
    CHECK(kv_exp(0) == 1 && kv_exp(-708.1) == 0 && kv_exp(-HUGE_VAL) == 0, "exp's ends");
    CHECK(kv_log(1) == 0 && fabs(kv_log(0x1p-1022) + 708.396418532264) < 1e-12, "log's ends");
    CHECK(worst_exp < 2e-16L && worst_log < 4e-16L, "exp %Lg log %Lg", worst_exp, worst_log);
}

static void philox_splits(void)
{
    enum { N = 1001 };
    float whole[N], part[N];
    double units[N], unit;
    kv_philox_normals(whole, 7, 3, 0, N);
    for (size_t at = 0, step = 1; at < N; at += step, step = step % 13 + 1)
        kv_philox_normals(part + at, 7, 3, at, at + step > N ? N - at : step);
    CHECK(memcmp(whole, part, sizeof whole) == 0, "a split changed a normal");
    kv_philox_uniforms(units, 7, 3, 0, N);
    for (size_t i = 0; i < N; i++) {
        kv_philox_uniforms(&unit, 7, 3, i, 1);
        CHECK(unit == units[i] && unit >= 0 && unit < 1, "uniform %zu", i);
    }
}

/* Mean, variance and fourth moment of n normals: standard errors 1/sqrt(n), sqrt(2/n), sqrt(96/n);
 * five of them are allowed. */
static void check_moments(const char *name, const double *z, int n)
{
    double mean = 0, square = 0, fourth = 0;
    for (int i = 0; i < n; i++) mean += z[i], square += z[i] * z[i], fourth += pow(z[i], 4);
    mean /= n, square /= n, fourth /= n;
    CHECK(fabs(mean) < 5 / sqrt(n), "%s: mean %g", name, mean);
    CHECK(fabs(square - 1) < 5 * sqrt(2.0 / n), "%s: variance %g", name, square);
    CHECK(fabs(fourth - 3) < 5 * sqrt(96.0 / n), "%s: fourth moment %g", name, fourth);
}

static void moments(void)
{
    enum { N = 1 << 20 };
    double *const z = malloc(N * sizeof *z);
    float *const f = malloc(N * sizeof *f);
    CHECK(z && f, "no memory");
    if (!z || !f) return;
    kv_philox_normals(f, 11, 5, 0, N);
    for (int i = 0; i < N; i++) z[i] = (double)f[i];
    check_moments("philox", z, N);
    kv_numpy_stream numpy;
    kv_ziggurat ziggurat;
    kv_ziggurat_fill(&ziggurat);
    kv_numpy_stream_seed(&numpy, &ziggurat, 11);
    kv_numpy_normals(&numpy, z, N);
    check_moments("numpy", z, N);
    kv_torch_stream torch;
    kv_torch_stream_seed(&torch, 11);
    kv_torch_normals(&torch, f, N);
    for (int i = 0; i < N; i++) z[i] = (double)f[i];
    check_moments("torch", z, N);
    free(z), free(f);
}

/* From numpy 2.4: default_rng(seed).standard_normal(n)[n - 1]; values agree to 4e-15. */
static void numpy_known(void)
{
    static const struct {
        uint64_t seed;
        int64_t n;
        double last;
    } rows[] = {
        {0ull, 1, 0.1257302210933933},
        {0ull, 2, -0.13210486329130189},
        {0ull, 1000, -0.22997115548100328},
        {0ull, 300000, -0.74520008331302867},
        {1ull, 1, 0.34558419206478602},
        {1ull, 2, 0.82161814350115836},
        {1ull, 1000, 0.27495632326711866},
        {1ull, 300000, 0.54446284233186659},
        {42ull, 1, 0.30471707975443135},
        {42ull, 2, -1.0399841062404955},
        {42ull, 1000, 0.82375313187618204},
        {42ull, 300000, 0.45483968066416031},
        {4294967295ull, 1, -0.027271763074256376},
        {4294967295ull, 2, 0.2153539268318988},
        {4294967295ull, 1000, -0.76293988298616566},
        {4294967295ull, 300000, 0.73252772199205718},
        {4294967296ull, 1, 0.10296768001436127},
        {4294967296ull, 2, -0.98052717103026132},
        {4294967296ull, 1000, 0.12531308822489653},
        {4294967296ull, 300000, 0.95376828211878373},
        {12345678901234567ull, 1, 1.4793669475412923},
        {12345678901234567ull, 2, 0.1308538989753126},
        {12345678901234567ull, 1000, -0.88352465122190882},
        {12345678901234567ull, 300000, -0.36108006729743536},
        {9223372036854775808ull, 1, 1.6294267978453341},
        {9223372036854775808ull, 2, -1.5075699421794106},
        {9223372036854775808ull, 1000, 0.3636976085556014},
        {9223372036854775808ull, 300000, -0.13701683776235604},
    };
    kv_ziggurat ziggurat;
    kv_ziggurat_fill(&ziggurat);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kv_numpy_stream s;
        double z = 0;
        kv_numpy_stream_seed(&s, &ziggurat, rows[i].seed);
        for (int64_t k = 0; k < rows[i].n; k++) kv_numpy_normals(&s, &z, 1);
        CHECK(fabs(z - rows[i].last) < 1e-14, "seed %llu, draw %lld: %.17g, not %.17g",
              (unsigned long long)rows[i].seed, (long long)rows[i].n, z, rows[i].last);
    }
}

/* From numpy 2.4: the sum of a million draws, where one draw more or less would show, and PCG64's
 * first words after seeds of several integers and more than four words. */
static void numpy_long(void)
{
    enum { N = 1000000 };
    static const struct {
        uint64_t seed, all_words; /* exclusive or of N words */
        double sum, squares, last;
    } rows[] = {
        {0, 0x0e0ecd049f91150b, 998.57064943862133, 1001345.1227628177, 0.22864219959011586},
        {42, 0x8a577815fa2ddc9d, 97.502497893764257, 1000965.5289318715, 0.87678992578576553},
        {UINT64_MAX, 0x9dbb6e0a7653d163, 1456.431370351853, 1001744.8443846757,
         -0.77191804349589066},
    };
    static const struct {
        size_t count;
        uint32_t words[6];
        uint64_t first, second;
    } seeds[] = {
        {6, {12345, 0, 0, 0, 0, 1}, 0x3da64221719982f0, 0x8b99757e148fd79e}, /* 2^160 + 12345 */
        {3, {1, 2, 3}, 0xaba411f8f6c9b990, 0x1c6b7489df5024fb},              /* [1, 2, 3] */
        {6, {7, 256, 5, 6, 7, 8}, 0x83cb71b814202884, 0x2f4709208d1efb6d}, /* [2^40 + 7, 5 ... 8] */
    };
    kv_ziggurat ziggurat;
    kv_numpy_stream s;
    kv_ziggurat_fill(&ziggurat);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        uint64_t all = 0;
        kv_numpy_stream_seed(&s, &ziggurat, rows[r].seed);
        for (int i = 0; i < N; i++) all ^= kv_numpy_word(&s);
        CHECK(all == rows[r].all_words, "row %zu: words %llx", r, (unsigned long long)all);
        double sum = 0, squares = 0, z = 0;
        kv_numpy_stream_seed(&s, &ziggurat, rows[r].seed);
        for (int i = 0; i < N; i++) {
            kv_numpy_normals(&s, &z, 1);
            sum += z, squares += z * z;
        }
        /* 1e6 values within 4e-15, and the rounding errors of 1e6 additions,
         * half an ulp each of sums below 2048 and 2^21. */
        CHECK(fabs(sum - rows[r].sum) < 1.2e-7, "row %zu: sum %.17g", r, sum);
        CHECK(fabs(squares - rows[r].squares) < 2.4e-4, "row %zu: squares %.17g", r, squares);
        CHECK(fabs(z - rows[r].last) < 4e-15, "row %zu: last %.17g", r, z);
        kv_numpy_stream skipped;
        kv_numpy_stream_seed(&skipped, &ziggurat, rows[r].seed);
        kv_numpy_normals(&skipped, NULL, N);
        CHECK(kv_numpy_word(&skipped) == kv_numpy_word(&s), "row %zu: skipping", r);
    }
    for (size_t r = 0; r < sizeof seeds / sizeof seeds[0]; r++) {
        kv_numpy_stream_seed_words(&s, &ziggurat, seeds[r].words, seeds[r].count);
        CHECK(kv_numpy_word(&s) == seeds[r].first && kv_numpy_word(&s) == seeds[r].second,
              "words of seed %zu", r);
    }
}

/* From numpy: RandomState(seed), whose MT19937 is seeded as torch's. Words 1, 2 and 2000. */
static void mt19937_known(void)
{
    static const uint32_t rows[][4] = {
        {0, 0x8c7f0aac, 0x97c4aa2f, 0xe5e070b5},
        {1, 0x6ac1f425, 0xff4780eb, 0x083df88a},
        {42, 0x5fe1dc66, 0xcbea3db3, 0x8573f5f0},
        {5489, 0xd091bb5c, 0x22ae9ef6, 0xeb6335d3},
        {UINT32_MAX, 0x18fe69a3, 0x1c924122, 0x690a246d},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        kv_torch_stream s;
        kv_torch_stream_seed(&s, rows[r][0] | UINT64_C(7) << 32); /* high words are ignored */
        CHECK(kv_torch_word(&s) == rows[r][1], "seed %u, word 1", rows[r][0]);
        CHECK(kv_torch_word(&s) == rows[r][2], "seed %u, word 2", rows[r][0]);
        kv_torch_skip(&s, 1997);
        CHECK(kv_torch_word(&s) == rows[r][3], "seed %u, word 2000", rows[r][0]);
    }
}

/* Calls for multiples of 16 continue each other; a copied stream goes on alike. */
static void torch_splits(void)
{
    float whole[1024], part[1024];
    kv_torch_stream a, b;
    kv_torch_stream_seed(&a, 3);
    b = a;
    kv_torch_normals(&a, whole, 1024);
    for (size_t at = 0, step = 16; at < 1024; at += step, step = at < 512 ? step + 16 : 1024 - at)
        kv_torch_normals(&b, part + at, step);
    CHECK(memcmp(whole, part, sizeof whole) == 0, "a split changed a number");
    CHECK(kv_torch_word(&a) == kv_torch_word(&b), "streams end apart");
}

/* What torch prints: manual_seed(0); randn(2, 3) and randn(4, 4). */
static void torch_known(void)
{
    static const float small[6] = {1.5410f, -0.2934f, -2.1788f, 0.5684f, -1.0845f, -1.3986f};
    static const float large[16] = {-1.1258f, -1.1524f, -0.2506f, -0.4339f, 0.8487f, 0.6920f,
                                    -0.3160f, -2.1152f, 0.3223f,  -1.2633f, 0.3500f, 0.3081f,
                                    0.1198f,  1.2377f,  1.1168f,  -0.2473f};
    kv_torch_stream s;
    float z[20];
    kv_torch_stream_seed(&s, 0);
    kv_torch_normals(&s, z, 6);
    for (int i = 0; i < 6; i++)
        CHECK(fabsf(z[i] - small[i]) < 6e-5f, "randn(6)[%d] = %g", i, (double)z[i]);
    kv_torch_stream_seed(&s, 0);
    kv_torch_normals(&s, z, 16);
    for (int i = 0; i < 16; i++)
        CHECK(fabsf(z[i] - large[i]) < 6e-5f, "randn(16)[%d] = %g", i, (double)z[i]);
    float tail[20];
    kv_torch_stream_seed(&s, 0);
    kv_torch_normals(&s, tail, 20);
    for (int i = 0; i < 4; i++) CHECK(fabsf(tail[i] - z[i]) < 1e-6f, "randn(20)[%d]", i);
    CHECK(tail[4] != z[4], "the last 16 of 20 are drawn again");
    kv_torch_stream_seed(
        &s, 5489); /* the generator's reference output: the 10000th word of seed 5489 */
    uint32_t word = 0;
    for (int i = 0; i < 10000; i++) word = kv_torch_word(&s);
    CHECK(word == 4123659995u, "%u", word);
}

int main(void)
{
    philox_known();
    philox_splits();
    philox_elements();
    elementary();
    elementary_double();
    numpy_known();
    numpy_long();
    mt19937_known();
    torch_known();
    torch_splits();
    moments();
    return check_done();
}
