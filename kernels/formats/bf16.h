/* bf16: bfloat16, the upper half of a float. Not saturating; NaN is encoded to 0x7FFF, as CUDA's
 * __float2bfloat16_rn does on the host. */
#ifndef KVANT_KERNELS_FORMATS_BF16_H
#define KVANT_KERNELS_FORMATS_BF16_H

#include "kernels/formats/minifloat.h"

#define KV_BF16_MAXIMUM 0x1.fep127f

KV_HD kv_minifloat kv_bf16_layout(void)
{
    const kv_minifloat f = {7, 127, 0x8000u, 0x7f7fu, 0x7f80u, 0x7f80u, 0x7fffu, true};
    return f;
}

KV_MINIFLOAT_FUNCTIONS(bf16)

#endif
