/* Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), counters as in
 * cuRAND: curand_init(seed, subsequence, offset) starts at counter {offset / 4, subsequence}, key =
 * seed. A number is a function of (seed, subsequence, element), on every backend with equal bits.
 */
#ifndef KVANT_KERNELS_PHILOX_H
#define KVANT_KERNELS_PHILOX_H

#include <math.h>
#include <stdint.h>

#include "kernels/platform.h"
#include "kernels/real.h"

/* Four words of tuple `tuple` of a subsequence. */
KV_HD void kv_philox(uint32_t out[4], uint64_t seed, uint64_t subsequence, uint64_t tuple)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t x = (uint32_t)tuple, y = (uint32_t)(tuple >> 32);
    uint32_t z = (uint32_t)subsequence, w = (uint32_t)(subsequence >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t const p = (uint64_t)0xD2511F53u * x, q = (uint64_t)0xCD9E8D57u * z;
        x = (uint32_t)(q >> 32) ^ y ^ k0, y = (uint32_t)q;
        z = (uint32_t)(p >> 32) ^ w ^ k1, w = (uint32_t)p;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = x, out[1] = y, out[2] = z, out[3] = w;
}

/* Two N(0, 1) from two words (Box-Muller, paired as cuRAND does: sine first). */
KV_HD void kv_philox_pair(float out[2], uint32_t a, uint32_t b)
{
    float const u = fmaf((float)a, 0x1p-32f, 0x1p-33f), radius = sqrtf(-2.0f * kv_logf(u));
    float sine, cosine;
    kv_sincos(b, &sine, &cosine);
    out[0] = radius * sine, out[1] = radius * cosine;
}

/* [0, 1) with 24 bits: exact in float. */
KV_HD float kv_philox_unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

#endif
