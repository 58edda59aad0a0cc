/* q4_0: ggml's block of 32 nibbles under one f16 scale, 18 bytes (ggml-quants.c,
 * quantize_row_q4_0_ref).
 *
 *     m = the x of largest |x| with its sign (the first one wins), d = m / -8,
 *     q = min(15, trunc(x * (1/d) + 8.5)), value = (q - 8) * f16(d)
 *
 * The sign in d lets m itself map to code 0, so one side reaches 8 steps and the other clips at 7.
 * Codes come from the unrounded d. Byte j holds element j (low nibble) and j + 16 (high nibble).
 * Where 1/d would overflow (|m| < 2.4e-38) ggml's C is undefined; here codes are 8, value 0. x must
 * be finite. */
#ifndef KVANT_KERNELS_FORMATS_Q4_0_H
#define KVANT_KERNELS_FORMATS_Q4_0_H

#include <assert.h>

#include "kernels/formats/f16.h"

#define KV_Q4_0_BITS_PER_BLOCK (8 * 18)

typedef struct kv_q4_0_block {
    uint16_t d; /* f16 */
    uint8_t q[16];
} kv_q4_0_block;
static_assert(sizeof(kv_q4_0_block) * 8 == KV_Q4_0_BITS_PER_BLOCK, "q4_0 blocks are packed");

KV_HD uint32_t kv_q4_0_code(float x, float id)
{
    const float t = x * id;
    const int32_t q = (int32_t)(t + 8.5f); /* 0.5 <= t + 8.5 <= 16.5, up to a rounding */
    return (uint32_t)(q < 15 ? q : 15);
}

KV_HD void kv_q4_0_encode_block(kv_q4_0_block *block, const float *x)
{
    int32_t largest = 0;
    for (int i = 0; i < 32; i++) largest = kv_larger_magnitude(largest, x[i]);
    const float amax = kv_bits_float((uint32_t)largest);
    int first = 0;
    while (first < 31 && fabsf(x[first]) != amax) first++;
    const float m = amax > 0.0f ? x[first] : 0.0f, d = m / -8.0f, inverse = 1.0f / d;
    const float id = fabsf(inverse) <= 0x1.fffffep127f ? inverse : 0.0f;
    block->d = (uint16_t)kv_f16_encode(d);
    for (int j = 0; j < 16; j++)
        block->q[j] = (uint8_t)(kv_q4_0_code(x[j], id) | kv_q4_0_code(x[j + 16], id) << 4);
}

KV_HD void kv_q4_0_block_codes(uint32_t *codes, const kv_q4_0_block *block)
{
    for (int j = 0; j < 16; j++) {
        codes[j] = block->q[j] & 15u;
        codes[j + 16] = (uint32_t)block->q[j] >> 4;
    }
}

KV_HD void kv_q4_0_decode_block(float *x, const kv_q4_0_block *block)
{
    const float d = kv_f16_decode(block->d);
    for (int j = 0; j < 16; j++) {
        x[j] = (float)((int32_t)(block->q[j] & 15u) - 8) * d;
        x[j + 16] = (float)((int32_t)(block->q[j] >> 4) - 8) * d;
    }
}

#endif
