/* Random numbers for tests of kernels, often where a rounding decides. */
#ifndef KVANT_TESTS_GPU_DRAWS_H
#define KVANT_TESTS_GPU_DRAWS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/real.h"

static uint64_t random_state = 1;

static inline uint32_t random_word(void) /* of 31 bits */
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static inline uint32_t draw(uint32_t below)
{
    return random_word() % below;
}

static inline bool same(float a, float b)
{
    return kv_float_bits(a) == kv_float_bits(b);
}

/* Any finite number, often at or beside the middle of two numbers of a narrow format. */
static inline float draw_edge(void)
{
    static const int dropped[] = {13, 16, 20, 23};
    uint32_t const exponent = draw(2) ? draw(228) : 100 + draw(48); /* below 2^101 */
    uint32_t const bits = draw(2) << 31 | exponent << 23 | draw(1 << 23);
    uint32_t const half = 1u << (dropped[draw(4)] - 1), rest = half - 1 + draw(3);
    return kv_bits_float(draw(4) ? (bits & ~(2 * half - 1)) | rest : bits & ~(2 * half - 1));
}

#endif
