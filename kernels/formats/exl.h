/* exl2 ... exl8: the block of exllamav3's quantized cache, 32 mid-rise codes of b bits under one
 * f16 scale, 4b + 2 bytes (exllamav3_ext/cache/q_cache_kernels.cuh, quant_block_x4, without its
 * cubic companding). exllamav3 rotates each group of 32 before: `exl4:hadamard=32` is its cache.
 *
 *     s = max |x| + 1e-10, m = 2^(b-1), q = floor(x * (1/s) * m + m), at most 2^b - 1,
 *     value = (q - m + 0.5) / m * f16(s)
 *
 * Codes come from the unrounded s. No value is 0 unless f16(s) is; products with m are exact, and
 * so is the value before its rounding. The layout is exllamav3's of 2026: b is cut into the powers
 * of two that it is the sum of, from the largest one, and each gets a plane of that many bits of
 * every code, the leading bits first; in a plane element j starts at bit j times its width. x must
 * be finite. */
#ifndef KVANT_KERNELS_FORMATS_EXL_H
#define KVANT_KERNELS_FORMATS_EXL_H

#include <assert.h>

#include "kernels/formats/block.h"

/* One plane of `width` bits, [4 * width] bytes: bits `rest` and up of codes [32]; and back, below
 * the bits that codes have already. */
KV_HD void kv_exl_put_plane(uint8_t *plane, const uint32_t *codes, int rest, int width)
{
    for (int i = 0; i < 4 * width; i++) {
        uint32_t byte = 0;
        for (int k = 0; k < 8; k += width)
            byte |= (codes[(i * 8 + k) / width] >> rest & ((1u << width) - 1u)) << k;
        plane[i] = (uint8_t)byte;
    }
}

KV_HD void kv_exl_get_plane(uint32_t *codes, const uint8_t *plane, int width)
{
    for (int j = 0; j < 32; j++) {
        const uint32_t field = (uint32_t)plane[j * width / 8] >> (j * width & 7);
        codes[j] = codes[j] << width | (field & ((1u << width) - 1u));
    }
}

/* planes [4 * bits] from codes [32], and back. Widths are constants, so that loops vectorize. */
KV_HD void kv_exl_put(uint8_t *planes, const uint32_t *codes, int bits)
{
    if (bits & 8) kv_exl_put_plane(planes, codes, bits & 7, 8);
    if (bits & 4) kv_exl_put_plane(planes + 4 * (bits & 8), codes, bits & 3, 4);
    if (bits & 2) kv_exl_put_plane(planes + 4 * (bits & 12), codes, bits & 1, 2);
    if (bits & 1) kv_exl_put_plane(planes + 4 * (bits & 14), codes, 0, 1);
}

KV_HD void kv_exl_get(uint32_t *codes, const uint8_t *planes, int bits)
{
    for (int j = 0; j < 32; j++) codes[j] = 0;
    if (bits & 8) kv_exl_get_plane(codes, planes, 8);
    if (bits & 4) kv_exl_get_plane(codes, planes + 4 * (bits & 8), 4);
    if (bits & 2) kv_exl_get_plane(codes, planes + 4 * (bits & 12), 2);
    if (bits & 1) kv_exl_get_plane(codes, planes + 4 * (bits & 14), 1);
}

/* m / s is 1/s with another exponent, so that x * (m / s) is x * (1/s) * m. (Not so where 1/s is
 * subnormal; values are infinite there.) */
KV_HD kv_block_scale kv_exl_scale(const float *x, int bits)
{
    const float d = kv_block_absmax(x) + 1e-10f;
    const kv_block_scale s = {d, 0.0f, (float)(1 << (bits - 1)) / d};
    return s;
}

KV_HD uint32_t kv_exl_code(float x, kv_block_scale s, int bits)
{
    const float m = (float)(1 << (bits - 1)), t = x * s.inverse; /* |t| <= m */
    const int32_t q = (int32_t)(t + m), top = (1 << bits) - 1;   /* truncation is floor */
    return (uint32_t)(q < top ? q : top);
}

KV_HD float kv_exl_value(uint32_t code, kv_block_scale s, int bits)
{
    const int32_t odd = 2 * (int32_t)code + 1 - (1 << bits);
    return (float)odd * (s.d / (float)(1 << bits)); /* the quotient is exact */
}

/* What formats.h asks of a BLOCK row. */
#define KV_EXL_FORMAT(bits)                                                                        \
    enum { KV_EXL##bits##_BITS_PER_BLOCK = 8 * (4 * bits + 2) };                                   \
    typedef struct kv_exl##bits##_block {                                                          \
        uint16_t s; /* f16 */                                                                      \
        uint8_t planes[4 * bits];                                                                  \
    } kv_exl##bits##_block;                                                                        \
    static_assert(sizeof(kv_exl##bits##_block) * 8 == KV_EXL##bits##_BITS_PER_BLOCK,               \
                  "exl blocks are packed");                                                        \
    KV_HD kv_block_scale kv_exl##bits##_scale(const float *x)                                      \
    {                                                                                              \
        return kv_exl_scale(x, bits);                                                              \
    }                                                                                              \
    KV_HD uint32_t kv_exl##bits##_code(float x, kv_block_scale s)                                  \
    {                                                                                              \
        return kv_exl_code(x, s, bits);                                                            \
    }                                                                                              \
    KV_HD float kv_exl##bits##_value(uint32_t code, kv_block_scale s)                              \
    {                                                                                              \
        return kv_exl_value(code, s, bits);                                                        \
    }                                                                                              \
    KV_HD void kv_exl##bits##_encode_block(kv_exl##bits##_block *block, const float *x)            \
    {                                                                                              \
        const kv_block_scale s = kv_exl_scale(x, bits);                                            \
        uint32_t codes[32];                                                                        \
        for (int i = 0; i < 32; i++) codes[i] = kv_exl_code(x[i], s, bits);                        \
        block->s = (uint16_t)kv_f16_encode(s.d);                                                   \
        kv_exl_put(block->planes, codes, bits);                                                    \
    }                                                                                              \
    KV_HD void kv_exl##bits##_block_codes(uint32_t *codes, const kv_exl##bits##_block *block)      \
    {                                                                                              \
        kv_exl_get(codes, block->planes, bits);                                                    \
    }                                                                                              \
    KV_HD void kv_exl##bits##_decode_block(float *x, const kv_exl##bits##_block *block)            \
    {                                                                                              \
        const kv_block_scale s = kv_block_decode(block->s, 0);                                     \
        uint32_t codes[32];                                                                        \
        kv_exl_get(codes, block->planes, bits);                                                    \
        for (int i = 0; i < 32; i++) x[i] = kv_exl_value(codes[i], s, bits);                       \
    }

KV_EXL_FORMAT(2)
KV_EXL_FORMAT(3)
KV_EXL_FORMAT(4)
KV_EXL_FORMAT(5)
KV_EXL_FORMAT(6)
KV_EXL_FORMAT(7)
KV_EXL_FORMAT(8)

#endif
