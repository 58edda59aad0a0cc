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

KV_HD void kv_q5_1_encode_block(kv_q5_1_block *block, const float *x)
{
    uint32_t codes[32];
    float m;
    const float d = kv_ggml_encode_from(codes, &m, x, 31);
    block->d = (uint16_t)kv_f16_encode(d);
    block->m = (uint16_t)kv_f16_encode(m);
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
    uint32_t codes[32];
    kv_q5_1_block_codes(codes, block);
    kv_ggml_decode_from(x, codes, kv_f16_decode(block->d), kv_f16_decode(block->m));
}

#endif
