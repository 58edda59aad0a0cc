/* Philox words against NVIDIA's libcurand, whose host generator needs no GPU. Its word p is lane
 * p % 4 of tuple t = p / 4, and tuple t is block t / 65536 of subsequence t % 65536. */
#ifndef KVANT_HAVE_CURAND

#include <stdio.h>

int main(void)
{
    printf("skipped: no libcurand was found when this was configured\n");
    return 77;
}

#else

#include <curand.h>
#include <stdlib.h>

#include "kernels/philox.h"
#include "tests/check.h"

enum { N = 300001 };

static uint32_t word_at(uint64_t seed, uint64_t position)
{
    uint32_t words[4];
    const uint64_t tuple = position / 4;
    kv_philox(words, seed, tuple / 65536, tuple % 65536);
    return words[position % 4];
}

static void compare(uint64_t seed, uint64_t offset, unsigned *words, float *uniforms)
{
    curandGenerator_t g;
    unsigned failed = curandCreateGeneratorHost(&g, CURAND_RNG_PSEUDO_PHILOX4_32_10) != 0;
    CHECK(!failed, "curandCreateGeneratorHost");
    if (failed) return;
    failed |= curandSetGeneratorOrdering(g, CURAND_ORDERING_PSEUDO_LEGACY);
    failed |= curandSetPseudoRandomGeneratorSeed(g, seed);
    failed |= curandSetGeneratorOffset(g, offset);
    failed |= curandGenerate(g, words, N);
    failed |= curandSetGeneratorOffset(g, offset);
    failed |= curandGenerateUniform(g, uniforms, N);
    failed |= curandDestroyGenerator(g);
    CHECK(!failed, "libcurand refuses seed %llu, offset %llu", (unsigned long long)seed,
          (unsigned long long)offset);
    long words_differ = 0, uniforms_differ = 0;
    for (uint64_t i = 0; i < N; i++) {
        const uint32_t word = word_at(seed, offset + i);
        words_differ += words[i] != word;
        uniforms_differ += kv_float_bits(uniforms[i]) != kv_float_bits(kv_philox_uniform(word));
    }
    CHECK(words_differ == 0 && uniforms_differ == 0,
          "seed %llu, offset %llu: %ld words, %ld uniforms", (unsigned long long)seed,
          (unsigned long long)offset, words_differ, uniforms_differ);
}

int main(void)
{
    static const uint64_t seeds[] = {0, 1, 42, 0x123456789abcdef0, UINT64_MAX};
    static const uint64_t offsets[] = {0, 1, 7, 262143, 1000003, (UINT64_C(1) << 40) + 3};
    unsigned *const words = malloc(N * sizeof *words);
    float *const uniforms = malloc(N * sizeof *uniforms);
    CHECK(words && uniforms, "no memory");
    if (words && uniforms)
        for (size_t s = 0; s < sizeof seeds / sizeof seeds[0]; s++)
            for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++)
                compare(seeds[s], offsets[o], words, uniforms);
    free(words), free(uniforms);
    return check_done();
}

#endif
