/* e5m2fnuz: FP8 of AMD's MI300 (Noune et al. 2022, "8-bit numerical formats for deep neural
 * networks"), bias 16. No infinity, no negative zero, NaN 0x80. Saturating. */
#ifndef KVANT_KERNELS_FORMATS_E5M2FNUZ_H
#define KVANT_KERNELS_FORMATS_E5M2FNUZ_H

#include "kernels/formats/minifloat.h"

#define KV_E5M2FNUZ_MAXIMUM 57344.0f

KV_HD kv_minifloat kv_e5m2fnuz_layout(void)
{
    const kv_minifloat f = {2, 16, 0x80u, 0x7fu, 0x7fu, 0, 0x80u, false};
    return f;
}

KV_MINIFLOAT_FUNCTIONS(e5m2fnuz)

#endif
