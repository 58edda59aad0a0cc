/* From a tile's range to its scale and minimum as they are stored, for CPU and GPU alike.
 *
 * Integer grids: s = amax / qmax, asymmetric s = (max - min) / levels (formats/integer.h); float
 * grids s = amax / largest number. Scale and minimum are rounded to their storage first, codes use
 * the rounded ones. e4m3 storage has two levels: global = largest scale / 448 in float, a scale is
 * e4m3(scale / global) * global (NVFP4's rule). */
#ifndef KVANT_KERNELS_SCALE_H
#define KVANT_KERNELS_SCALE_H

#include "kernels/formats.h"
#include "kernels/stages.h"

typedef struct {
    int32_t storage; /* kv_scale_storage */
    int32_t is_asymmetric;
    float limit;  /* largest code, or the format's largest number */
    float global; /* of e4m3 storage */
} kv_scale_rule;

/* x in a scale storage; too large a number becomes the largest. */
KV_HD float kv_scale_round(float x, int32_t storage)
{
#define KV_ROW(name, NAME, ...)                                                                    \
    if (storage == KV_SCALE_##NAME)                                                                \
        return kv_##name##_round(x > KV_##NAME##_MAXIMUM    ? KV_##NAME##_MAXIMUM                  \
                                 : x < -KV_##NAME##_MAXIMUM ? -KV_##NAME##_MAXIMUM                 \
                                                            : x);
    KV_SCALE_TABLE(KV_ROW)
#undef KV_ROW
    return x;
}

/* The scale of a range before it is stored. A tile without elements (low > high) has range 0; + 0
 * makes -0 and 0 one range, whichever came first. */
KV_HD float kv_scale_plain(const kv_scale_rule *rule, float low, float high)
{
    if (!rule->is_asymmetric) return kv_int_scale(high, rule->limit);
    return low <= high ? kv_int_scale(high - low + 0.0f, rule->limit) : 0.0f;
}

/* Scale and minimum of one range as they are stored. */
KV_HD void kv_scale_store(float *scale, float *minimum, const kv_scale_rule *rule, float low,
                          float high)
{
    const float exact = kv_scale_plain(rule, low, high), global = rule->global;
    if (rule->storage == KV_SCALE_E4M3)
        *scale = global > 0.0f ? kv_scale_round(exact / global, rule->storage) * global : 0.0f;
    else
        *scale = kv_scale_round(exact, rule->storage);
    const bool has_minimum = rule->is_asymmetric && low <= high;
    *minimum = has_minimum ? kv_scale_round(low, rule->storage) + 0.0f : 0.0f;
}

#endif
