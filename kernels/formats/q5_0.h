/* q5_0: ggml's block of 32 codes of 5 bits under one f16 scale, 22 bytes (ggml-quants.c,
 * quantize_row_q5_0_ref).
 *
 *     m = the x of largest |x| with its sign (the first one wins), d = m / -16,
 *     q = min(31, trunc(x * (1/d) + 16.5)), value = (q - 16) * f16(d)
 *
 * As q4_0 with one bit more; see ggml.h. Where 1/d would overflow codes are 16, value 0. */
#ifndef KVANT_KERNELS_FORMATS_Q5_0_H
#define KVANT_KERNELS_FORMATS_Q5_0_H

#include <assert.h>

#include "kernels/formats/ggml.h"

#define KV_Q5_0_BITS_PER_BLOCK (8 * 22)

typedef struct kv_q5_0_block {
    uint16_t d; /* f16 */
    uint8_t high[4];
    uint8_t q[16];
} kv_q5_0_block;
static_assert(sizeof(kv_q5_0_block) * 8 == KV_Q5_0_BITS_PER_BLOCK, "q5_0 blocks are packed");

KV_HD kv_block_scale kv_q5_0_scale(const float *x)
{
    return kv_ggml_signed_scale(x, 16);
}

KV_HD uint32_t kv_q5_0_code(float x, kv_block_scale s)
{
    return kv_ggml_signed_code(x, s, 16);
}

KV_HD float kv_q5_0_value(uint32_t code, kv_block_scale s)
{
    return kv_ggml_signed_value(code, s, 16);
}

KV_HD void kv_q5_0_encode_block(kv_q5_0_block *block, const float *x)
{
    const kv_block_scale s = kv_q5_0_scale(x);
    uint32_t codes[32];
    for (int i = 0; i < 32; i++) codes[i] = kv_q5_0_code(x[i], s);
    block->d = (uint16_t)kv_f16_encode(s.d);
    kv_ggml_put_fifth(block->high, codes);
    kv_ggml_put_nibbles(block->q, codes);
}

KV_HD void kv_q5_0_block_codes(uint32_t *codes, const kv_q5_0_block *block)
{
    kv_ggml_get_nibbles(codes, block->q);
    kv_ggml_add_fifth(codes, block->high);
}

KV_HD void kv_q5_0_decode_block(float *x, const kv_q5_0_block *block)
{
    const kv_block_scale s = kv_block_decode(block->d, 0);
    uint32_t codes[32];
    kv_q5_0_block_codes(codes, block);
    for (int i = 0; i < 32; i++) x[i] = kv_q5_0_value(codes[i], s);
}

#endif
