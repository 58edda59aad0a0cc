/* The clip factors of range=mse and the order in which a tile's error is summed, for CPU and GPU
 * alike; the rule is ranges/mse.c's. */
#ifndef KVANT_KERNELS_CLIP_H
#define KVANT_KERNELS_CLIP_H

#include "kernels/platform.h"

#include <stdint.h>

enum { KV_CLIP_FACTORS = 51, KV_CLIP_LANES = 8 };

/* 1.00, 0.99 ... 0.50 */
KV_HD float kv_clip_factor(int i)
{
    return (float)(1.0 - 0.01 * (double)i);
}

/* The interleaved sums of kv_clip_fold(), pairwise. */
KV_HD double kv_clip_pairs(const double lane[KV_CLIP_LANES])
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* The errors of a tile's n channels: KV_CLIP_LANES interleaved sums, each in order, then pairwise.
 */
KV_HD double kv_clip_fold(const double *error, int64_t n)
{
    double lane[KV_CLIP_LANES] = {0};
    for (int64_t c = 0; c < n; c++) lane[c % KV_CLIP_LANES] += error[c];
    return kv_clip_pairs(lane);
}

#endif
