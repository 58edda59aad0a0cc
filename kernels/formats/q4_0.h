/* q4_0: ggml's block of 32 nibbles under one f16 scale, 18 bytes (ggml-quants.c,
 * quantize_row_q4_0_ref).
 *
 *     m = the x of largest |x| with its sign (the first one wins), d = m / -8,
 *     q = min(15, trunc(x * (1/d) + 8.5)), value = (q - 8) * f16(d)
 *
 * The sign in d lets m itself map to code 0, so one side reaches 8 steps and the other clips at 7.
 * Where 1/d would overflow codes are 8, value 0. Layout: ggml.h. x must be finite. */
#ifndef KVANT_KERNELS_FORMATS_Q4_0_H
#define KVANT_KERNELS_FORMATS_Q4_0_H

#include <assert.h>

#include "kernels/formats/ggml.h"

#define KV_Q4_0_BITS_PER_BLOCK (8 * 18)

typedef struct kv_q4_0_block {
    uint16_t d; /* f16 */
    uint8_t q[16];
} kv_q4_0_block;
static_assert(sizeof(kv_q4_0_block) * 8 == KV_Q4_0_BITS_PER_BLOCK, "q4_0 blocks are packed");

KV_HD kv_block_scale kv_q4_0_scale(const float *x)
{
    return kv_ggml_signed_scale(x, 8);
}

KV_HD uint32_t kv_q4_0_code(float x, kv_block_scale s)
{
    return kv_ggml_signed_code(x, s, 8);
}

KV_HD float kv_q4_0_value(uint32_t code, kv_block_scale s)
{
    return kv_ggml_signed_value(code, s, 8);
}

KV_HD void kv_q4_0_encode_block(kv_q4_0_block *block, const float *x)
{
    const kv_block_scale s = kv_q4_0_scale(x);
    uint32_t codes[32];
    for (int i = 0; i < 32; i++) codes[i] = kv_q4_0_code(x[i], s);
    block->d = (uint16_t)kv_f16_encode(s.d);
    kv_ggml_put_nibbles(block->q, codes);
}

KV_HD void kv_q4_0_block_codes(uint32_t *codes, const kv_q4_0_block *block)
{
    kv_ggml_get_nibbles(codes, block->q);
}

KV_HD void kv_q4_0_decode_block(float *x, const kv_q4_0_block *block)
{
    const kv_block_scale s = kv_block_decode(block->d, 0);
    uint32_t codes[32];
    kv_q4_0_block_codes(codes, block);
    for (int i = 0; i < 32; i++) x[i] = kv_q4_0_value(codes[i], s);
}

#endif
