/* See rope_pairs.h. */
#include "kernels/rope_pairs.h"

static inline void rotate(float *restrict a, float *restrict b, int64_t stride,
                          const kv_rope_angles *angles)
{
    const double *restrict cosine = angles->cosine, *restrict sine = angles->sine;
    const double *restrict block_cosine = angles->block_cosine;
    const double *restrict block_sine = angles->block_sine;
    double const sign = angles->sign, magnitude = angles->magnitude;
    for (int64_t i = 0, n = angles->count; i < n; i++) {
        double const c = (cosine[i] * block_cosine[i] - sine[i] * block_sine[i]) * magnitude;
        double const s = (sine[i] * block_cosine[i] + cosine[i] * block_sine[i]) * magnitude * sign;
        double const x = a[i * stride], y = b[i * stride];
        a[i * stride] = (float)(x * c - y * s);
        b[i * stride] = (float)(y * c + x * s);
    }
}

void KV_ISA_NAME(kv_rope_pairs)(float *a, float *b, int64_t stride, const kv_rope_angles *angles)
{
    if (stride == 1)
        rotate(a, b, 1, angles);
    else
        rotate(a, b, stride, angles);
}
