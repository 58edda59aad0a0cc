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

KV_HD void kv_q5_0_encode_block(kv_q5_0_block *block, const float *x)
{
    uint32_t codes[32];
    block->d = (uint16_t)kv_f16_encode(kv_ggml_encode_signed(codes, x, 16));
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
    uint32_t codes[32];
    kv_q5_0_block_codes(codes, block);
    kv_ggml_decode_signed(x, codes, kv_f16_decode(block->d), 16);
}

#endif
