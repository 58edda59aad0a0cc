/* iq4_nl: ggml's block of 32 codes into a fixed table of 16 numbers v under one f16 scale, 18 bytes
 * (ggml-quants.c, quantize_row_iq4_nl_ref; table: ggml-common.h, kvalues_iq4nl).
 *
 *     m = the x of largest |x| with its sign (the first one wins), id = 1 / (m / v[0]),
 *     q = nearest v to x * id, of two equally near the larger one,
 *     d = sum(x^2 * v[q] * x) / sum(x^2 * v[q] * v[q]), value = f16(d) * v[q]
 *
 * The sums run over the elements in order, products from the left, in float; d is the least-squares
 * scale under weights x^2. Blocks whose largest |x| is below 1e-15 have d = 0; their codes, which
 * ggml leaves undefined, are 8 here (v = 1). Numbers past f16's range make d infinite or NaN, as in
 * ggml. Layout: ggml.h. x must be finite. */
#ifndef KVANT_KERNELS_FORMATS_IQ4_NL_H
#define KVANT_KERNELS_FORMATS_IQ4_NL_H

#include <assert.h>

#include "kernels/formats/ggml.h"

#define KV_IQ4_NL_BITS_PER_BLOCK (8 * 18)

typedef struct kv_iq4_nl_block {
    uint16_t d; /* f16 */
    uint8_t q[16];
} kv_iq4_nl_block;
static_assert(sizeof(kv_iq4_nl_block) * 8 == KV_IQ4_NL_BITS_PER_BLOCK, "iq4_nl blocks are packed");

KV_HD float kv_iq4_nl_number(uint32_t code)
{
    static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    return (float)values[code];
}

/* The code is how many midpoints between neighbours t has reached. */
KV_HD uint32_t kv_iq4_nl_code(float x, kv_block_scale s)
{
    const float t = x * s.inverse;
    uint32_t code = 0;
    for (uint32_t k = 0; k < 15; k++)
        code += t >= (kv_iq4_nl_number(k) + kv_iq4_nl_number(k + 1)) * 0.5f;
    return code;
}

KV_HD float kv_iq4_nl_value(uint32_t code, kv_block_scale s)
{
    return s.d * kv_iq4_nl_number(code);
}

/* id, without d. */
KV_HD kv_block_scale kv_iq4_nl_inverse(const float *x)
{
    const float m = kv_ggml_largest(x);
    const kv_block_scale s = {0.0f, 0.0f, fabsf(m) < 1e-15f ? 0.0f : 1.0f / (m / -127.0f)};
    return s;
}

/* The next terms of numerator and denominator of d. */
KV_HD void kv_iq4_nl_add(float *numerator, float *denominator, float x, uint32_t code)
{
    const float v = kv_iq4_nl_number(code), weighted = x * x * v;
    const float up = weighted * x, down = weighted * v;
    *numerator += up, *denominator += down;
}

KV_HD kv_block_scale kv_iq4_nl_scale(const float *x)
{
    kv_block_scale s = kv_iq4_nl_inverse(x);
    float numerator = 0.0f, denominator = 0.0f;
    KV_ROLLED for (int i = 0; i < 32; i++)
        kv_iq4_nl_add(&numerator, &denominator, x[i], kv_iq4_nl_code(x[i], s));
    s.d = s.inverse == 0.0f ? 0.0f : numerator / denominator;
    return s;
}

/* As kv_iq4_nl_scale, with every code made once. */
KV_HD void kv_iq4_nl_encode_block(kv_iq4_nl_block *block, const float *x)
{
    const kv_block_scale s = kv_iq4_nl_inverse(x);
    uint32_t codes[32];
    float numerator = 0.0f, denominator = 0.0f;
    for (int i = 0; i < 32; i++) codes[i] = kv_iq4_nl_code(x[i], s);
    for (int i = 0; i < 32; i++) kv_iq4_nl_add(&numerator, &denominator, x[i], codes[i]);
    block->d = (uint16_t)kv_f16_encode(s.inverse == 0.0f ? 0.0f : numerator / denominator);
    kv_ggml_put_nibbles(block->q, codes);
}

KV_HD void kv_iq4_nl_block_codes(uint32_t *codes, const kv_iq4_nl_block *block)
{
    kv_ggml_get_nibbles(codes, block->q);
}

KV_HD void kv_iq4_nl_decode_block(float *x, const kv_iq4_nl_block *block)
{
    const kv_block_scale s = kv_block_decode(block->d, 0);
    uint32_t codes[32];
    kv_iq4_nl_block_codes(codes, block);
    for (int i = 0; i < 32; i++) x[i] = kv_iq4_nl_value(codes[i], s);
}

#endif
