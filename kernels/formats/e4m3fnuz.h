/* e4m3fnuz: FP8 of AMD's MI300 (Noune et al. 2022, "8-bit numerical formats for deep neural
 * networks"), bias 8: the same bits mean half of e4m3's value. No infinity, no negative zero, NaN
 * 0x80. Saturating. */
#ifndef KVANT_KERNELS_FORMATS_E4M3FNUZ_H
#define KVANT_KERNELS_FORMATS_E4M3FNUZ_H

#include "kernels/formats/minifloat.h"

#define KV_E4M3FNUZ_MAXIMUM 240.0f

KV_HD kv_minifloat kv_e4m3fnuz_layout(void)
{
    const kv_minifloat f = {3, 8, 0x80u, 0x7fu, 0x7fu, 0, 0x80u, false};
    return f;
}

KV_MINIFLOAT_FUNCTIONS(e4m3fnuz)

#endif
