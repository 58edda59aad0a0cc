/* f16: IEEE 754 binary16. Not saturating: what rounds past 65504 becomes infinity, and NaN is
 * encoded to 0x7FFF, as CUDA's __float2half_rn does on the host. Callers must treat infinity as an
 * error. */
#ifndef KVANT_KERNELS_FORMATS_F16_H
#define KVANT_KERNELS_FORMATS_F16_H

#include "kernels/formats/minifloat.h"

#define KV_F16_MAXIMUM 65504.0f

KV_HD kv_minifloat kv_f16_layout(void)
{
    const kv_minifloat f = {10, 15, 0x8000u, 0x7bffu, 0x7c00u, 0x7c00u, 0x7fffu, true};
    return f;
}

KV_MINIFLOAT_FUNCTIONS(f16)

#endif
