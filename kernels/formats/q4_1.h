/* q4_1: ggml's block of 32 nibbles under an f16 scale and an f16 minimum, 20 bytes (ggml-quants.c,
 * quantize_row_q4_1_ref).
 *
 *     m = min x, d = (max x - m) / 15, q = min(15, trunc((x - m) * (1/d) + 0.5)),
 *     value = q * f16(d) + f16(m)
 *
 * Codes come from the unrounded d and m; see ggml.h. Where 1/d is 0 codes are 0; where d or m pass
 * f16's range values are not finite. */
#ifndef KVANT_KERNELS_FORMATS_Q4_1_H
#define KVANT_KERNELS_FORMATS_Q4_1_H

#include <assert.h>

#include "kernels/formats/ggml.h"

#define KV_Q4_1_BITS_PER_BLOCK (8 * 20)

typedef struct kv_q4_1_block {
    uint16_t d, m; /* f16 */
    uint8_t q[16];
} kv_q4_1_block;
static_assert(sizeof(kv_q4_1_block) * 8 == KV_Q4_1_BITS_PER_BLOCK, "q4_1 blocks are packed");

KV_HD kv_block_scale kv_q4_1_scale(const float *x)
{
    return kv_ggml_from_scale(x, 15);
}

KV_HD uint32_t kv_q4_1_code(float x, kv_block_scale s)
{
    return kv_ggml_from_code(x, s, 15);
}

KV_HD float kv_q4_1_value(uint32_t code, kv_block_scale s)
{
    return kv_ggml_from_value(code, s);
}

KV_HD void kv_q4_1_encode_block(kv_q4_1_block *block, const float *x)
{
    const kv_block_scale s = kv_q4_1_scale(x);
    uint32_t codes[32];
    for (int i = 0; i < 32; i++) codes[i] = kv_q4_1_code(x[i], s);
    block->d = (uint16_t)kv_f16_encode(s.d);
    block->m = (uint16_t)kv_f16_encode(s.m);
    kv_ggml_put_nibbles(block->q, codes);
}

KV_HD void kv_q4_1_block_codes(uint32_t *codes, const kv_q4_1_block *block)
{
    kv_ggml_get_nibbles(codes, block->q);
}

KV_HD void kv_q4_1_decode_block(float *x, const kv_q4_1_block *block)
{
    const kv_block_scale s = kv_block_decode(block->d, block->m);
    uint32_t codes[32];
    kv_q4_1_block_codes(codes, block);
    for (int i = 0; i < 32; i++) x[i] = kv_q4_1_value(codes[i], s);
}

#endif
