/* What formats that own blocks of 32 numbers share; no row of formats.h.
 *
 * A row's kv_NAME_scale finds what the codes of a block have in common, kv_NAME_code makes one
 * number's code of it, and kv_NAME_value that code's value. Codes come from the scale as it is
 * found, values from the scale as it is stored: d and m rounded to f16. So one number needs no
 * other number's code, and blocks of bytes (kv_NAME_encode_block and the others) are the same
 * functions around a layout.
 *
 *     const kv_block_scale s = kv_q4_0_scale(x);
 *     const kv_block_scale stored = {kv_f16_round(s.d), kv_f16_round(s.m), 0.0f};
 *     y[i] = kv_q4_0_value(kv_q4_0_code(x[i], s), stored);
 */
#ifndef KVANT_KERNELS_FORMATS_BLOCK_H
#define KVANT_KERNELS_FORMATS_BLOCK_H

#include "kernels/formats/f16.h"

typedef struct {
    float d;       /* the step between codes, or what a format has instead */
    float m;       /* the value of code 0, of formats that store one */
    float inverse; /* what numbers are multiplied with; of no use for values */
} kv_block_scale;

/* The stored scale of a block of bytes. */
KV_HD kv_block_scale kv_block_decode(uint16_t d, uint16_t m)
{
    const kv_block_scale stored = {kv_f16_decode(d), kv_f16_decode(m), 0.0f};
    return stored;
}

KV_HD float kv_block_absmax(const float *x)
{
    int32_t largest = 0;
    KV_ROLLED for (int i = 0; i < 32; i++) largest = kv_larger_magnitude(largest, x[i]);
    return kv_bits_float((uint32_t)largest);
}

#endif
