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

KV_HD void kv_q4_1_encode_block(kv_q4_1_block *block, const float *x)
{
    uint32_t codes[32];
    float m;
    const float d = kv_ggml_encode_from(codes, &m, x, 15);
    block->d = (uint16_t)kv_f16_encode(d);
    block->m = (uint16_t)kv_f16_encode(m);
    kv_ggml_put_nibbles(block->q, codes);
}

KV_HD void kv_q4_1_block_codes(uint32_t *codes, const kv_q4_1_block *block)
{
    kv_ggml_get_nibbles(codes, block->q);
}

KV_HD void kv_q4_1_decode_block(float *x, const kv_q4_1_block *block)
{
    uint32_t codes[32];
    kv_q4_1_block_codes(codes, block);
    kv_ggml_decode_from(x, codes, kv_f16_decode(block->d), kv_f16_decode(block->m));
}

#endif
