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

#include "kernels/formats/block.h"

#define KV_Q8_0_BITS_PER_BLOCK (8 * 34)

typedef struct kv_q8_0_block {
    uint16_t d; /* f16 */
    int8_t q[32];
} kv_q8_0_block;
static_assert(sizeof(kv_q8_0_block) * 8 == KV_Q8_0_BITS_PER_BLOCK, "q8_0 blocks are packed");

KV_HD kv_block_scale kv_q8_0_scale(const float *x)
{
    const float d = kv_block_absmax(x) / 127.0f;
    const kv_block_scale s = {d, 0.0f, d > 0x1p-128f ? 1.0f / d : 0.0f};
    return s;
}

KV_HD uint32_t kv_q8_0_code(float x, kv_block_scale s)
{
    const float t = x * s.inverse, a = fabsf(t);
    const int32_t whole = (int32_t)a; /* at most 127 and a rounding */
    const int32_t q = whole + (a - (float)whole >= 0.5f);
    return (uint32_t)(t < 0.0f ? -q : q) & 0xffu;
}

KV_HD float kv_q8_0_value(uint32_t code, kv_block_scale s)
{
    return (float)(int8_t)code * s.d;
}

KV_HD void kv_q8_0_encode_block(kv_q8_0_block *block, const float *x)
{
    const kv_block_scale s = kv_q8_0_scale(x);
    block->d = (uint16_t)kv_f16_encode(s.d);
    for (int i = 0; i < 32; i++) block->q[i] = (int8_t)kv_q8_0_code(x[i], s);
}

KV_HD void kv_q8_0_decode_block(float *x, const kv_q8_0_block *block)
{
    const kv_block_scale s = kv_block_decode(block->d, 0);
    for (int i = 0; i < 32; i++) x[i] = kv_q8_0_value((uint8_t)block->q[i], s);
}

KV_HD void kv_q8_0_block_codes(uint32_t *codes, const kv_q8_0_block *block)
{
    for (int i = 0; i < 32; i++) codes[i] = (uint8_t)block->q[i];
}

#endif
