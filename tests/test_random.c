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
    numpy_known();
    torch_known();
    moments();
    return check_done();
}
