/* int2 ... int8: integer grids of b bits under a scale s, symmetric or asymmetric from a minimum.
 *
 *   symmetric   qmax = 2^(b-1) - 1, s = amax / qmax
 *               q = clamp(rint(x * (1/s)), -qmax, qmax), value = q * s
 *   asymmetric  levels = 2^b - 1, s = (max - min) / levels
 *               q = clamp(rint((x - min) * (1/s)), 0, levels), value = fma(q, s, min)
 *
 * Source: the round-to-nearest uniform quantizer (Jacob et al. 2018, eq. 1; KIVI eq. 1) with the
 * reciprocal formed once, in float. Levels q travel as integral floats so that loops vectorize; a
 * level of zero is always +0. A tile of range 0 has s = 0 and comes back exact.
 *
 *     float s = kv_int_scale(amax, qmax), inverse = kv_int_inverse(s);
 *     y = kv_int_round(x, inverse, s, qmax);
 */
#ifndef KVANT_KERNELS_FORMATS_INTEGER_H
#define KVANT_KERNELS_FORMATS_INTEGER_H

#include <float.h>

#include "kernels/real.h"

/* Largest level of the symmetric grid, and of the asymmetric one. 2 <= bits <= 8. */
KV_HD float kv_int_qmax(int bits)
{
    return (float)((1 << (bits - 1)) - 1);
}

KV_HD float kv_int_levels(int bits)
{
    return (float)((1 << bits) - 1);
}

/* s for a range (amax, or max - min) over `top` (qmax or levels). */
KV_HD float kv_int_scale(float range, float top)
{
    return range / top;
}

/* 1/s, finite: 0 for s = 0, and the largest float where s < 2^-128 would overflow. */
KV_HD float kv_int_inverse(float s)
{
    const float inverse = 1.0f / s;
    const float finite = inverse < FLT_MAX ? inverse : FLT_MAX;
    return s > 0.0f ? finite : 0.0f;
}

/* 1.5 * 2^23 + clamp(rint(t), low, high) for integral bounds below 2^22: clamping first changes
 * nothing, and then the sum leaves no room for a fraction. Ties to even. */
KV_HD float kv_int_clamp_shift(float t, float low, float high)
{
    const float above = t > low ? t : low;
    const float inside = above < high ? above : high;
    return inside + 12582912.0f;
}

/* The level itself, never -0; and its bits, two's complement in the lowest 22. */
KV_HD float kv_int_clamp_rint(float t, float low, float high)
{
    return kv_int_clamp_shift(t, low, high) - 12582912.0f;
}

KV_HD uint32_t kv_int_clamp_bits(float t, float low, float high)
{
    return kv_float_bits(kv_int_clamp_shift(t, low, high));
}

KV_HD float kv_int_level(float x, float inverse, float qmax)
{
    return kv_int_clamp_rint(x * inverse, -qmax, qmax);
}

KV_HD float kv_int_level_from(float x, float minimum, float inverse, float levels)
{
    return kv_int_clamp_rint((x - minimum) * inverse, 0.0f, levels);
}

KV_HD float kv_int_value(float level, float s)
{
    return level * s;
}

KV_HD float kv_int_value_from(float level, float s, float minimum)
{
    return fmaf(level, s, minimum);
}

KV_HD float kv_int_round(float x, float inverse, float s, float qmax)
{
    return kv_int_value(kv_int_level(x, inverse, qmax), s);
}

KV_HD float kv_int_round_from(float x, float minimum, float inverse, float s, float levels)
{
    return kv_int_value_from(kv_int_level_from(x, minimum, inverse, levels), s, minimum);
}

/* A level as stored: two's complement in `bits` bits (asymmetric levels are stored as they are). */
KV_HD uint32_t kv_int_code(float level, int bits)
{
    return (uint32_t)(int32_t)level & ((1u << bits) - 1u);
}

/* The symmetric level a code stands for. */
KV_HD float kv_int_code_level(uint32_t code, int bits)
{
    const int32_t sign = 1 << (bits - 1);
    return (float)(((int32_t)code ^ sign) - sign);
}

#endif
