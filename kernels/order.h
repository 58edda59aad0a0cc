/* Floats as integers that order like them, for CPU and GPU alike: radix selection, percentiles from
 * order statistics, and the rank of a token among logits. */
#ifndef KVANT_KERNELS_ORDER_H
#define KVANT_KERNELS_ORDER_H

#include <stdbool.h>

#include "kernels/real.h"

/* The key's order as an unsigned number is x's order (-0 before 0), or that of |x|. */
KV_HD uint32_t kv_order_key(float x, bool is_absolute)
{
    const uint32_t bits = kv_float_bits(x);
    if (is_absolute) return bits & 0x7fffffffu;
    return bits ^ ((0u - (bits >> 31)) | 0x80000000u); /* all bits of a negative one, or its sign */
}

KV_HD float kv_order_value(uint32_t key, bool is_absolute)
{
    if (is_absolute) return kv_bits_float(key);
    return kv_bits_float(key ^ (((key >> 31) - 1u) | 0x80000000u));
}

/* A percentile p of n sorted elements is v[k] + (v[k + 1] - v[k]) * g with (n - 1) * (p / 100) = k
 * + g, in double (linear interpolation; numpy.percentile's default). The place is k + g. */
KV_HD double kv_percentile_place(double p, int64_t n)
{
    return (double)(n - 1) * (p / 100.0);
}

KV_HD double kv_percentile_between(double place, float low, float high)
{
    const double fraction = place - floor(place);
    return (double)low + ((double)high - (double)low) * fraction;
}

/* The largest float <= x, and the smallest >= x, for x between finite floats. A neighbour's key is
 * the next one; what rounds to a zero rounds to the one of its sign. */
KV_HD float kv_float_below(double x)
{
    const float near = (float)x;
    return kv_order_value(kv_order_key(near, false) - ((double)near > x), false);
}
KV_HD float kv_float_above(double x)
{
    const float near = (float)x;
    return kv_order_value(kv_order_key(near, false) + ((double)near < x), false);
}

/* An entry orders like its logit, then lower tokens first. */
KV_HD uint64_t kv_top_entry(float logit, int64_t token)
{
    const uint32_t key = kv_order_key(logit + 0.0f, false); /* -0 and 0 are equal */
    return (uint64_t)key << 32 | (0xffffffffu - (uint32_t)token);
}

KV_HD float kv_top_logit(uint64_t entry)
{
    return kv_order_value((uint32_t)(entry >> 32), false);
}

KV_HD uint32_t kv_top_token(uint64_t entry)
{
    return 0xffffffffu - (uint32_t)entry;
}

#endif
