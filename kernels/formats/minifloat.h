/* Small floating-point formats, described by data: what e4m3.h, e5m2.h, f16.h ... are made of.
 *
 * Rounding is to nearest, ties to even, in one step from float, also into the format's subnormals.
 * The three functions have no branches, only selects, and their layouts are constants, so loops
 * over them vectorize (SSE2 is enough). Idea: above the format's smallest normal number, add half a
 * step to the float's bits and cut the mantissa; below it, adding 2^23 subnormal steps makes the
 * floating-point adder itself round to whole steps. Needs gradual underflow (no FTZ/DAZ).
 *
 *     KV_HD kv_minifloat kv_e4m3_layout(void) { ... }
 *     KV_MINIFLOAT_FUNCTIONS(e4m3)    // kv_e4m3_encode, kv_e4m3_decode, kv_e4m3_round
 */
#ifndef KVANT_KERNELS_FORMATS_MINIFLOAT_H
#define KVANT_KERNELS_FORMATS_MINIFLOAT_H

#include <stdbool.h>

#include "kernels/real.h"

/* Codes are sign, exponent, mantissa from the top; "magnitude" is a code without its sign. */
typedef struct {
    int mantissa_bits, bias; /* value = 2^(exponent - bias) * 1.mantissa */
    uint32_t sign;           /* the sign's bit */
    uint32_t maximum;        /* magnitude of the largest finite number */
    uint32_t overflow;       /* magnitude of what is too large: maximum (saturating) or infinity */
    uint32_t infinity;       /* magnitude of infinity; 0 where the format has none */
    uint32_t nan; /* the code NaN is encoded to; where there is none, one past the last */
    bool has_negative_zero;
} kv_minifloat;

KV_HD uint32_t kv_minifloat_encode(float x, kv_minifloat f)
{
    const uint32_t bits = kv_float_bits(x), a = bits & 0x7fffffffu;
    const int cut = 23 - f.mantissa_bits;
    const uint32_t bump = (1u << (cut - 1)) - 1u + (a >> cut & 1u); /* ties go to even */
    const int32_t normal =
        (int32_t)((a + bump) >> cut) - (int32_t)((uint32_t)(127 - f.bias) << f.mantissa_bits);
    const float magic = kv_bits_float((uint32_t)(128 - f.bias + cut) << 23); /* 2^23 steps */
    const int32_t subnormal =
        (int32_t)(kv_float_bits(kv_bits_float(a) + magic) - kv_float_bits(magic));
    const bool is_normal = (int32_t)a >= (int32_t)((uint32_t)(128 - f.bias) << 23);
    const int32_t exact = is_normal ? normal : subnormal;
    const uint32_t magnitude = exact > (int32_t)f.maximum ? f.overflow : (uint32_t)exact;
    const uint32_t has_sign = (uint32_t)f.has_negative_zero | (uint32_t)(magnitude != 0);
    const uint32_t sign = (bits >> 31 & has_sign) * f.sign;
    return (int32_t)a > 0x7f800000 ? f.nan : magnitude | sign;
}

KV_HD float kv_minifloat_decode(uint32_t code, kv_minifloat f)
{
    const uint32_t magnitude = code & (f.sign - 1u), is_negative = (code & f.sign) != 0;
    /* As a float of bias 127, then scaled to the format's: exact, subnormals included. */
    const float unscaled = kv_bits_float(magnitude << (23 - f.mantissa_bits));
    const float scale = kv_bits_float((uint32_t)(254 - f.bias) << 23);
    const uint32_t finite = kv_float_bits(unscaled * scale);
    const uint32_t special = magnitude == f.infinity ? 0x7f800000u : 0x7fc00000u;
    const uint32_t bits = (int32_t)magnitude > (int32_t)f.maximum ? special : finite;
    const bool is_nan = code == f.nan;
    return kv_bits_float(is_nan ? 0x7fc00000u : bits | is_negative << 31);
}

/* decode(encode(x)) in fewer steps. */
KV_HD float kv_minifloat_round(float x, kv_minifloat f)
{
    const uint32_t bits = kv_float_bits(x), a = bits & 0x7fffffffu;
    const int cut = 23 - f.mantissa_bits;
    const uint32_t bump = (1u << (cut - 1)) - 1u + (a >> cut & 1u);
    const uint32_t normal = (a + bump) & ~((1u << cut) - 1u);
    const float magic = kv_bits_float((uint32_t)(128 - f.bias + cut) << 23);
    const uint32_t subnormal = kv_float_bits((kv_bits_float(a) + magic) - magic);
    const bool is_normal = (int32_t)a >= (int32_t)((uint32_t)(128 - f.bias) << 23);
    const uint32_t exact = is_normal ? normal : subnormal;
    const uint32_t maximum =
        (f.maximum << cut) + ((uint32_t)(127 - f.bias) << 23); /* as a float's bits */
    const uint32_t overflow = f.overflow == f.maximum ? maximum : 0x7f800000u;
    const uint32_t magnitude = (int32_t)exact > (int32_t)maximum ? overflow : exact;
    const uint32_t has_sign = (uint32_t)f.has_negative_zero | (uint32_t)(magnitude != 0);
    const uint32_t sign = (bits >> 31 & has_sign) << 31;
    return kv_bits_float((int32_t)a > 0x7f800000 ? 0x7fc00000u : magnitude | sign);
}

/* The functions formats.h asks of a FLOAT row, from kv_NAME_layout(). */
#define KV_MINIFLOAT_FUNCTIONS(name)                                                               \
    KV_HD uint32_t kv_##name##_encode(float x)                                                     \
    {                                                                                              \
        return kv_minifloat_encode(x, kv_##name##_layout());                                       \
    }                                                                                              \
    KV_HD float kv_##name##_decode(uint32_t code)                                                  \
    {                                                                                              \
        return kv_minifloat_decode(code, kv_##name##_layout());                                    \
    }                                                                                              \
    KV_HD float kv_##name##_round(float x)                                                         \
    {                                                                                              \
        return kv_minifloat_round(x, kv_##name##_layout());                                        \
    }

#endif
