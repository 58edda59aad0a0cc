/* f32: IEEE 754 binary32, kept exact. */
#ifndef KVANT_KERNELS_FORMATS_F32_H
#define KVANT_KERNELS_FORMATS_F32_H

#include <float.h>

#include "kernels/platform.h"

#define KV_F32_MAXIMUM FLT_MAX

KV_HD float kv_f32_round(float x)
{
    return x;
}

#endif
