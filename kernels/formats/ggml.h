/* What ggml's blocks of 32 share (ggml-quants.c); no row of formats.h.
 *
 * A block's scale d is stored as f16, while its codes come from the unrounded d through 1/d. Codes
 * of 4 bits lie in 16 bytes: byte j holds element j (low nibble) and j + 16 (high nibble). Fifth
 * bits lie in a little-endian word of 32 bits, that of element j in bit j. x must be finite. */
#ifndef KVANT_KERNELS_FORMATS_GGML_H
#define KVANT_KERNELS_FORMATS_GGML_H

#include "kernels/formats/block.h"

/* The x of largest |x| with its sign, the first one of several; +0 of zeros. */
KV_HD float kv_ggml_largest(const float *x)
{
    const float amax = kv_block_absmax(x);
    int first = 0;
    KV_ROLLED while (first < 31 && fabsf(x[first]) != amax) first++;
    return amax > 0.0f ? x[first] : 0.0f;
}

/* Integers in the order of the floats, so that reductions vectorize; its own inverse. */
KV_HD int32_t kv_ggml_order(int32_t bits)
{
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

/* Smallest and largest x. Of zeros of both signs -0 is the smaller one (ggml takes the first one),
 * which no decoded value shows. */
KV_HD void kv_ggml_extremes(float *low, float *high, const float *x)
{
    int32_t smallest = 0x7fffffff, largest = -0x7fffffff - 1;
    KV_ROLLED for (int i = 0; i < 32; i++)
    {
        const int32_t order = kv_ggml_order((int32_t)kv_float_bits(x[i]));
        smallest = order < smallest ? order : smallest;
        largest = order > largest ? order : largest;
    }
    *low = kv_bits_float((uint32_t)kv_ggml_order(smallest));
    *high = kv_bits_float((uint32_t)kv_ggml_order(largest));
}

/* 1/d; 0 for d = 0, and where 1/d would overflow (|d| up to 2^-128), which ggml's C leaves
 * undefined. Of an infinite d it is 0, too. */
KV_HD float kv_ggml_inverse(float d)
{
    return fabsf(d) > 0x1p-128f ? 1.0f / d : 0.0f;
}

/* trunc(t), at most `top`; t is not negative. */
KV_HD uint32_t kv_ggml_code(float t, int32_t top)
{
    const int32_t q = (int32_t)t;
    return (uint32_t)(q < top ? q : top);
}

/* The types whose value is (code - half) * d: the signed d is m / -half, m the largest x.
 * 0.5 <= x / d + half + 0.5 <= 2 half + 0.5, up to a rounding. */
KV_HD kv_block_scale kv_ggml_signed_scale(const float *x, int32_t half)
{
    const float d = kv_ggml_largest(x) / -(float)half;
    const kv_block_scale s = {d, 0.0f, kv_ggml_inverse(d)};
    return s;
}

KV_HD uint32_t kv_ggml_signed_code(float x, kv_block_scale s, int32_t half)
{
    const float t = x * s.inverse;
    return kv_ggml_code(t + ((float)half + 0.5f), 2 * half - 1);
}

KV_HD float kv_ggml_signed_value(uint32_t code, kv_block_scale s, int32_t half)
{
    return (float)((int32_t)code - half) * s.d;
}

/* The types whose value is code * d + m, up to code `top`. */
KV_HD kv_block_scale kv_ggml_from_scale(const float *x, int32_t top)
{
    float low, high;
    kv_ggml_extremes(&low, &high, x);
    const float d = (high - low) / (float)top;
    const kv_block_scale s = {d, low, kv_ggml_inverse(d)};
    return s;
}

KV_HD uint32_t kv_ggml_from_code(float x, kv_block_scale s, int32_t top)
{
    const float t = (x - s.m) * s.inverse;
    return kv_ggml_code(s.inverse > 0.0f ? t + 0.5f : 0.0f, top);
}

/* code * d is exact, so that a compiler's fused multiply-add changes no value. */
KV_HD float kv_ggml_from_value(uint32_t code, kv_block_scale s)
{
    const float scaled = (float)(int32_t)code * s.d;
    return scaled + s.m;
}

/* q [16] from the low nibbles of codes [32], and back. */
KV_HD void kv_ggml_put_nibbles(uint8_t *q, const uint32_t *codes)
{
    for (int j = 0; j < 16; j++) q[j] = (uint8_t)((codes[j] & 15u) | (codes[j + 16] & 15u) << 4);
}

KV_HD void kv_ggml_get_nibbles(uint32_t *codes, const uint8_t *q)
{
    for (int j = 0; j < 16; j++) {
        codes[j] = q[j] & 15u;
        codes[j + 16] = (uint32_t)q[j] >> 4;
    }
}

/* high [4] from bit 4 of codes [32]; and the bits of `high` added to nibbles. */
KV_HD void kv_ggml_put_fifth(uint8_t *high, const uint32_t *codes)
{
    uint32_t word = 0;
    for (int j = 0; j < 32; j++) word |= (codes[j] >> 4 & 1u) << j;
    for (int k = 0; k < 4; k++) high[k] = (uint8_t)(word >> 8 * k);
}

KV_HD void kv_ggml_add_fifth(uint32_t *codes, const uint8_t *high)
{
    const uint32_t word = (uint32_t)high[0] | (uint32_t)high[1] << 8 | (uint32_t)high[2] << 16 |
                          (uint32_t)high[3] << 24;
    for (int j = 0; j < 32; j++) codes[j] |= (word >> j & 1u) << 4;
}

#endif
