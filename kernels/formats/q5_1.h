/* q5_1: ggml's block of 32 codes of 5 bits under an f16 scale and an f16 minimum, 24 bytes
 * (ggml-quants.c, quantize_row_q5_1_ref).
 *
 *     m = min x, d = (max x - m) / 31, q = trunc((x - m) * (1/d) + 0.5),
 *     value = q * f16(d) + f16(m)
 *
 * As q4_1 with one bit more; see there. q needs no clamp: 31 * (1 + 2^-21) + 0.5 is the most. */
#ifndef KVANT_KERNELS_FORMATS_Q5_1_H
#define KVANT_KERNELS_FORMATS_Q5_1_H

#include <assert.h>

#include "kernels/formats/ggml.h"

#define KV_Q5_1_BITS_PER_BLOCK (8 * 24)

typedef struct kv_q5_1_block {
    uint16_t d, m; /* f16 */
    uint8_t high[4];
    uint8_t q[16];
} kv_q5_1_block;
static_assert(sizeof(kv_q5_1_block) * 8 == KV_Q5_1_BITS_PER_BLOCK, "q5_1 blocks are packed");

KV_HD kv_block_scale kv_q5_1_scale(const float *x)
{
    return kv_ggml_from_scale(x, 31);
}

KV_HD uint32_t kv_q5_1_code(float x, kv_block_scale s)
{
    return kv_ggml_from_code(x, s, 31);
}

KV_HD float kv_q5_1_value(uint32_t code, kv_block_scale s)
{
    return kv_ggml_from_value(code, s);
}

KV_HD void kv_q5_1_encode_block(kv_q5_1_block *block, const float *x)
{
    const kv_block_scale s = kv_q5_1_scale(x);
    uint32_t codes[32];
    for (int i = 0; i < 32; i++) codes[i] = kv_q5_1_code(x[i], s);
    block->d = (uint16_t)kv_f16_encode(s.d);
    block->m = (uint16_t)kv_f16_encode(s.m);
    kv_ggml_put_fifth(block->high, codes);
    kv_ggml_put_nibbles(block->q, codes);
}

KV_HD void kv_q5_1_block_codes(uint32_t *codes, const kv_q5_1_block *block)
{
    kv_ggml_get_nibbles(codes, block->q);
    kv_ggml_add_fifth(codes, block->high);
}

KV_HD void kv_q5_1_decode_block(float *x, const kv_q5_1_block *block)
{
    const kv_block_scale s = kv_block_decode(block->d, block->m);
    uint32_t codes[32];
    kv_q5_1_block_codes(codes, block);
    for (int i = 0; i < 32; i++) x[i] = kv_q5_1_value(codes[i], s);
}

#endif
