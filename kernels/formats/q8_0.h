/* q8_0: ggml's block of 32 signed bytes under one f16 scale, 34 bytes (ggml-quants.c,
 * quantize_row_q8_0_ref; ggml's SIMD versions round ties to even instead).
 *
 *     d = amax / 127, q = roundf(x * (1/d)) with halves away from zero, value = q * f16(d)
 *
 * Codes come from the unrounded d. Past amax = 127 * 65504 the stored d is infinity, as in ggml.
 * Where 1/d would overflow (amax < 4e-37) ggml's C is undefined; here codes are 0, and the value,
 * f16(d) * q = 0, is the same. x must be finite. */
#ifndef KVANT_KERNELS_FORMATS_Q8_0_H
#define KVANT_KERNELS_FORMATS_Q8_0_H

#include <assert.h>

#include "kernels/formats/f16.h"

#define KV_Q8_0_BITS_PER_BLOCK (8 * 34)

typedef struct kv_q8_0_block {
    uint16_t d; /* f16 */
    int8_t q[32];
} kv_q8_0_block;
static_assert(sizeof(kv_q8_0_block) * 8 == KV_Q8_0_BITS_PER_BLOCK, "q8_0 blocks are packed");

KV_HD void kv_q8_0_encode_block(kv_q8_0_block *block, const float *x)
{
    int32_t largest = 0;
    for (int i = 0; i < 32; i++) largest = kv_larger_magnitude(largest, x[i]);
    const float d = kv_bits_float((uint32_t)largest) / 127.0f, inverse = 1.0f / d;
    const float id = inverse <= 0x1.fffffep127f ? inverse : 0.0f;
    block->d = (uint16_t)kv_f16_encode(d);
    for (int i = 0; i < 32; i++) {
        const float t = x[i] * id, a = fabsf(t);
        const int32_t whole = (int32_t)a; /* at most 127 and a rounding */
        const int32_t q = whole + (a - (float)whole >= 0.5f);
        block->q[i] = (int8_t)(t < 0.0f ? -q : q);
    }
}

KV_HD void kv_q8_0_decode_block(float *x, const kv_q8_0_block *block)
{
    const float d = kv_f16_decode(block->d);
    for (int i = 0; i < 32; i++) x[i] = (float)block->q[i] * d;
}

KV_HD void kv_q8_0_block_codes(uint32_t *codes, const kv_q8_0_block *block)
{
    for (int i = 0; i < 32; i++) codes[i] = (uint8_t)block->q[i];
}

#endif
