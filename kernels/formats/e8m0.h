/* e8m0: a power of two, 2^(code - 127), NaN 255: the scale type of OCP MX (OCP Microscaling Formats
 * Specification 1.0, 5.4.1). For scales, so x >= 0; it is no row of formats.h.
 *
 * Rounded up, as CUDA's __nv_cvt_float_to_e8m0(x, __NV_SATFINITE, cudaRoundPosInf) does, so that a
 * scale never shrinks and no element clips. There is no zero: 0 becomes 2^-127. */
#ifndef KVANT_KERNELS_FORMATS_E8M0_H
#define KVANT_KERNELS_FORMATS_E8M0_H

#include "kernels/real.h"

#define KV_E8M0_MAXIMUM 0x1p127f

KV_HD uint32_t kv_e8m0_encode(float x)
{
    const uint32_t a = kv_float_bits(x) & 0x7fffffffu;
    /* 2^-127 is the subnormal 0x00400000: what lies above it needs 2^-126. */
    const uint32_t up = a < 0x00800000u ? (uint32_t)(a > 0x00400000u) : (a + 0x7fffffu) >> 23;
    const uint32_t code = up < 254u ? up : 254u;
    return a > 0x7f800000u ? 255u : code;
}

KV_HD float kv_e8m0_decode(uint32_t code)
{
    const uint32_t bits = code == 0u ? 0x00400000u : code << 23;
    return kv_bits_float(code == 255u ? 0x7fc00000u : bits);
}

KV_HD float kv_e8m0_round(float x)
{
    return kv_e8m0_decode(kv_e8m0_encode(x));
}

#endif
