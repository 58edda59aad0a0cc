/* Philox4x32-10 and normals from its words, as functions of a counter, for CPU and GPU alike.
 *
 * Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3. Words are those
 * of cuRAND's device generator: after curand_init(seed, subsequence, offset) the word with index i
 * is lane (offset + i) % 4 of the block with counter {(offset + i) / 4, subsequence}. Normals are
 * not cuRAND's: our own Box-Muller on those words (real.h), which has equal bits everywhere. */
#ifndef KVANT_KERNELS_PHILOX_H
#define KVANT_KERNELS_PHILOX_H

#include "kernels/real.h"

/* The four words of one block; key = seed. */
KV_HD void kv_philox(uint32_t words[4], uint64_t key, uint64_t counter, uint64_t stream)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t x = (uint32_t)counter, y = (uint32_t)(counter >> 32);
    uint32_t z = (uint32_t)stream, w = (uint32_t)(stream >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p = (uint64_t)0xD2511F53u * x, q = (uint64_t)0xCD9E8D57u * z;
        x = (uint32_t)(q >> 32) ^ y ^ k0;
        z = (uint32_t)(p >> 32) ^ w ^ k1;
        y = (uint32_t)q;
        w = (uint32_t)p;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = x;
    words[1] = y;
    words[2] = z;
    words[3] = w;
}

/* A word as a float in (0, 1], cuRAND's uniform: word / 2^32 + 2^-33, rounded twice. */
KV_HD float kv_philox_uniform(uint32_t word)
{
    return (float)word * 0x1p-32f + 0x1p-33f;
}

/* Two independent N(0, 1) numbers from two words (Box and Muller 1958): radius sqrt(-2 ln u) with
 * u = word / 2^32 + 2^-33 and the angle 2 pi (other + 1/2) / 2^32. At most 6.8 in magnitude. */
KV_HD void kv_philox_normal_pair(float *first, float *second, uint32_t radius, uint32_t angle)
{
    float sine, cosine;
    kv_sincos(angle, &sine, &cosine);
    const float r = sqrtf(-2.0f * kv_logf(kv_philox_uniform(radius)));
    *first = r * sine;
    *second = r * cosine;
}

#endif
