/* What ggml's blocks of 32 share (ggml-quants.c); no row of formats.h.
 *
 * A block's scale d is stored as f16, while its codes come from the unrounded d through 1/d. Codes
 * of 4 bits lie in 16 bytes: byte j holds element j (low nibble) and j + 16 (high nibble). Fifth
 * bits lie in a little-endian word of 32 bits, that of element j in bit j. x must be finite. */
#ifndef KVANT_KERNELS_FORMATS_GGML_H
#define KVANT_KERNELS_FORMATS_GGML_H

#include "kernels/formats/f16.h"

/* The x of largest |x| with its sign, the first one of several; +0 of zeros. */
KV_HD float kv_ggml_largest(const float *x)
{
    int32_t largest = 0;
    for (int i = 0; i < 32; i++) largest = kv_larger_magnitude(largest, x[i]);
    const float amax = kv_bits_float((uint32_t)largest);
    int first = 0;
    while (first < 31 && fabsf(x[first]) != amax) first++;
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
    for (int i = 0; i < 32; i++) {
        const int32_t order = kv_ggml_order((int32_t)kv_float_bits(x[i]));
        smallest = order < smallest ? order : smallest;
        largest = order > largest ? order : largest;
    }
    *low = kv_bits_float((uint32_t)kv_ggml_order(smallest));
    *high = kv_bits_float((uint32_t)kv_ggml_order(largest));
}

/* 1/d; 0 for d = 0, and where 1/d would overflow (|d| below 2^-128), which ggml's C leaves
 * undefined. Of an infinite d it is 0, too. */
KV_HD float kv_ggml_inverse(float d)
{
    const float inverse = 1.0f / d;
    return fabsf(inverse) <= 0x1.fffffep127f ? inverse : 0.0f;
}

/* trunc(t), at most `top`; t is not negative. */
KV_HD uint32_t kv_ggml_code(float t, int32_t top)
{
    const int32_t q = (int32_t)t;
    return (uint32_t)(q < top ? q : top);
}

/* The types whose value is (code - half) * d: codes [32] of x under the signed d = m / -half, m the
 * largest x, which is returned. 0.5 <= x / d + half + 0.5 <= 2 half + 0.5, up to a rounding. */
KV_HD float kv_ggml_encode_signed(uint32_t *codes, const float *x, int32_t half)
{
    const float d = kv_ggml_largest(x) / -(float)half, id = kv_ggml_inverse(d);
    for (int i = 0; i < 32; i++) {
        const float t = x[i] * id;
        codes[i] = kv_ggml_code(t + ((float)half + 0.5f), 2 * half - 1);
    }
    return d;
}

KV_HD void kv_ggml_decode_signed(float *x, const uint32_t *codes, float d, int32_t half)
{
    for (int i = 0; i < 32; i++) x[i] = (float)((int32_t)codes[i] - half) * d;
}

/* The types whose value is code * d + m: codes [32] of x, up to `top`. Returns d. */
KV_HD float kv_ggml_encode_from(uint32_t *codes, float *m, const float *x, int32_t top)
{
    float low, high;
    kv_ggml_extremes(&low, &high, x);
    const float d = (high - low) / (float)top, id = kv_ggml_inverse(d);
    for (int i = 0; i < 32; i++) {
        const float t = (x[i] - low) * id;
        codes[i] = kv_ggml_code(id > 0.0f ? t + 0.5f : 0.0f, top);
    }
    *m = low;
    return d;
}

/* code * d is exact, so that a compiler's fused multiply-add changes no value. */
KV_HD void kv_ggml_decode_from(float *x, const uint32_t *codes, float d, float m)
{
    for (int i = 0; i < 32; i++) {
        const float scaled = (float)(int32_t)codes[i] * d;
        x[i] = scaled + m;
    }
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
