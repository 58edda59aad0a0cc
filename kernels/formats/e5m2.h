/* e5m2: OCP FP8 E5M2 (OCP 8-bit Floating Point Specification, table 1), bias 15, smallest 2^-16,
 * infinity 0x7C. Saturating also for infinity, and NaN is encoded to 0x7F, as CUDA's
 * __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2) does. */
#ifndef KVANT_KERNELS_FORMATS_E5M2_H
#define KVANT_KERNELS_FORMATS_E5M2_H

#include "kernels/formats/minifloat.h"

#define KV_E5M2_MAXIMUM 57344.0f

KV_HD kv_minifloat kv_e5m2_layout(void)
{
    const kv_minifloat f = {2, 15, 0x80u, 0x7bu, 0x7bu, 0x7cu, 0x7fu, true};
    return f;
}

KV_MINIFLOAT_FUNCTIONS(e5m2)

#endif
