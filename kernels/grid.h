/* One element of a scaled grid, for CPU and GPU alike: value and code of x under scale s, its
 * inverse (kv_int_inverse), minimum m and the largest code of an integer grid.
 *
 *     kv_symmetric_value(x, s, inverse, m, limit)     integer grids, see formats/integer.h
 *     kv_asymmetric_value(...)
 *     kv_grid_NAME_value(...)                         float grids: round(x / s) * s
 *
 * and ..._code for what is stored. Float grids divide; a scale of 0 gives +0. */
#ifndef KVANT_KERNELS_GRID_H
#define KVANT_KERNELS_GRID_H

#include "kernels/formats.h"

KV_HD float kv_symmetric_value(float x, float s, float inverse, float m, float limit)
{
    (void)m;
    return kv_int_round(x, inverse, s, limit);
}

KV_HD uint32_t kv_symmetric_code(float x, float s, float inverse, float m, float limit)
{
    (void)s, (void)m;
    /* Two's complement in as many bits as the grid has levels: 2 * limit + 2 codes. */
    const uint32_t mask = 2u * (uint32_t)limit + 1u;
    return kv_int_clamp_bits(x * inverse, -limit, limit) & mask;
}

KV_HD float kv_asymmetric_value(float x, float s, float inverse, float m, float limit)
{
    return kv_int_round_from(x, m, inverse, s, limit);
}

KV_HD uint32_t kv_asymmetric_code(float x, float s, float inverse, float m, float limit)
{
    (void)s;
    const uint32_t mask = (uint32_t)limit; /* 2^bits - 1 */
    return kv_int_clamp_bits((x - m) * inverse, 0.0f, limit) & mask;
}

#define KV_GRID_EXACT(name)
#define KV_GRID_INTEGER(name)
#define KV_GRID_BLOCK(name)
#define KV_GRID_FLOAT(name)                                                                        \
    KV_HD float kv_grid_##name##_value(float x, float s, float inverse, float m, float limit)      \
    {                                                                                              \
        (void)inverse, (void)m, (void)limit;                                                       \
        const float value = kv_##name##_round(x / s) * s;                                          \
        return s > 0.0f ? value : 0.0f;                                                            \
    }                                                                                              \
    KV_HD uint32_t kv_grid_##name##_code(float x, float s, float inverse, float m, float limit)    \
    {                                                                                              \
        (void)inverse, (void)m, (void)limit;                                                       \
        const float scaled = x / s;                                                                \
        return kv_##name##_encode(s > 0.0f ? scaled : 0.0f);                                       \
    }
#define KV_ROW(name, NAME, KIND, ...) KV_GRID_##KIND(name)
KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW

#endif
