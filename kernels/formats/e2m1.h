/* e2m1: the 4-bit elements of OCP MX (OCP Microscaling Formats Specification 1.0, table 5) and
 * NVFP4: 0, 0.5, 1, 1.5, 2, 3, 4, 6 with a sign; no infinity, no NaN. Saturating. MXFP4 is
 * e2m1/1x32:scale=e8m0 but for the rule of its scale: there 2^floor(log2 amax) / 4, which lets amax
 * saturate; here amax / 6 rounded up to a power of two. */
#ifndef KVANT_KERNELS_FORMATS_E2M1_H
#define KVANT_KERNELS_FORMATS_E2M1_H

#include "kernels/formats/minifloat.h"

#define KV_E2M1_MAXIMUM 6.0f

KV_HD kv_minifloat kv_e2m1_layout(void)
{
    const kv_minifloat f = {1, 1, 0x8u, 0x7u, 0x7u, 0, 0x10u, true};
    return f;
}

KV_MINIFLOAT_FUNCTIONS(e2m1)

#endif
