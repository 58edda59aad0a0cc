/* e4m3: OCP FP8 E4M3 (OCP 8-bit Floating Point Specification, table 1), bias 7, smallest 2^-9, no
 * infinity, NaN 0x7F and 0xFF. Saturating, and NaN is encoded to 0x7F, as CUDA's
 * __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3) does. */
#ifndef KVANT_KERNELS_FORMATS_E4M3_H
#define KVANT_KERNELS_FORMATS_E4M3_H

#include "kernels/formats/minifloat.h"

#define KV_E4M3_MAXIMUM 448.0f

KV_HD kv_minifloat kv_e4m3_layout(void)
{
    const kv_minifloat f = {3, 7, 0x80u, 0x7eu, 0x7eu, 0, 0x7fu, true};
    return f;
}

KV_MINIFLOAT_FUNCTIONS(e4m3)

#endif
