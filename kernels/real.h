/* Real numbers with equal bits on CPU and GPU: bit casts and elementary functions of our own.
 *
 * Library exp, log, sin and cos differ between libm and CUDA in the last bits. These use only + - *
 * /, fmaf, rintf and integers, each of which is correctly rounded on both sides, so the same source
 * gives the same bits everywhere (flags: platform.h). Polynomials are minimax fits; the accuracies
 * stated are measured against double over the whole range (test_random.c repeats a part of it).
 *
 *     float w = kv_exp2f(1.442695041f * (logit - maximum));
 */
#ifndef KVANT_KERNELS_REAL_H
#define KVANT_KERNELS_REAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/platform.h"

KV_HD uint32_t kv_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

KV_HD float kv_bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

KV_HD uint64_t kv_double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

KV_HD double kv_bits_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The larger of two magnitudes given as bits of floats >= 0: integers, so that reductions
 * vectorize. */
KV_HD int32_t kv_larger_magnitude(int32_t a, float x)
{
    const int32_t b = (int32_t)(kv_float_bits(x) & 0x7fffffffu);
    return b > a ? b : a;
}

/* 2^x for x <= 0, as softmax weights need it; 0 at and below -126, so never a subnormal. Relative
 * error at most 8.4e-8. */
KV_HD float kv_exp2f(float x)
{
    const float n = rintf(x > -126.0f ? x : -126.0f), f = (x > -126.0f ? x : -126.0f) - n;
    float p = 1.5461444e-4f;
    p = fmaf(p, f, 1.3400428e-3f);
    p = fmaf(p, f, 9.6180567e-3f);
    p = fmaf(p, f, 5.5503272e-2f);
    p = fmaf(p, f, 2.4022651e-1f);
    p = fmaf(p, f, 6.9314721e-1f);
    p = fmaf(p, f, 1.0f);
    p *= kv_bits_float((uint32_t)((int32_t)n + 127) << 23);
    return x > -126.0f ? p : 0.0f;
}

/* e^x for x <= 0, 0 below -87: what vec_exp of cpu/vector.h computes lane by lane. Relative error
 * at most 1.2e-7. */
KV_HD float kv_expf(float x)
{
    const float shifted = fmaf(x, 0x1.715476p+0f, 0x1.8p23f), n = shifted - 0x1.8p23f;
    float r = fmaf(n, -0x1.62e4p-1f, x); /* ln 2 in two parts, the first exact times n */
    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    float e = 1.0f / 5040;
    e = fmaf(e, r, 1.0f / 720);
    e = fmaf(e, r, 1.0f / 120);
    e = fmaf(e, r, 1.0f / 24);
    e = fmaf(e, r, 1.0f / 6);
    e = fmaf(e, r, 0.5f);
    e = fmaf(e, r, 1.0f);
    e = fmaf(e, r, 1.0f);
    e *= kv_bits_float((kv_float_bits(shifted) + 127u) << 23);
    return x < -87.0f ? 0.0f : e;
}

/* The least weight beside the row's largest, 1, that outputs are formed with: 2^24 smaller ones do
 * not reach the last bit of a sum even in double, but products of them with values would be
 * subnormal, and such an FMA takes a hundred times as long. */
#define KV_LEAST_WEIGHT 0x1p-86f

/* Natural logarithm of a normal positive x. Relative error at most 8.8e-8, exact at 1. */
KV_HD float kv_logf(float x)
{
    const uint32_t split = 0x3f3504f3u; /* sqrt(1/2): mantissas lie in [sqrt(1/2), sqrt(2)) */
    const uint32_t b = kv_float_bits(x) - split;
    const float n = (float)((int32_t)b >> 23);
    const float f = kv_bits_float((b & 0x7fffffu) + split) - 1.0f, z = f * f;
    float p = -7.9027457e-2f;
    p = fmaf(p, f, 1.2622321e-1f);
    p = fmaf(p, f, -1.2998183e-1f);
    p = fmaf(p, f, 1.4214496e-1f);
    p = fmaf(p, f, -1.6641281e-1f);
    p = fmaf(p, f, 2.0001045e-1f);
    p = fmaf(p, f, -2.5000306e-1f);
    p = fmaf(p, f, 3.3333331e-1f);
    p = fmaf(p, f, -0.5f);
    p = fmaf(p, z, n * -2.12194440e-4f); /* ln 2 = 0.693359375 - 2.12194440e-4 */
    return fmaf(n, 0.693359375f, p + f);
}

/* e^x in double for x <= 0, 0 below -708, so never a subnormal. Relative error at most 2e-16. */
KV_HD double kv_exp(double x)
{
    const double shifted = x * 0x1.71547652b82fep+0 + 0x1.8p52, n = shifted - 0x1.8p52;
    /* ln 2 in two parts, the first exact times n */
    const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
    double e = 1.0 / 6227020800;
    e = e * r + 1.0 / 479001600;
    e = e * r + 1.0 / 39916800;
    e = e * r + 1.0 / 3628800;
    e = e * r + 1.0 / 362880;
    e = e * r + 1.0 / 40320;
    e = e * r + 1.0 / 5040;
    e = e * r + 1.0 / 720;
    e = e * r + 1.0 / 120;
    e = e * r + 1.0 / 24;
    e = e * r + 1.0 / 6;
    e = e * r + 0.5;
    e = e * r + 1.0;
    e = e * r + 1.0;
    e *= kv_bits_double((kv_double_bits(shifted) + 1023) << 52);
    return x < -708.0 ? 0.0 : e;
}

/* Natural logarithm in double of a normal positive x. Relative error at most 4e-16, exact at 1. */
KV_HD double kv_log(double x)
{
    const uint64_t split = UINT64_C(0x3fe6a09e667f3bcd); /* sqrt(1/2), as in kv_logf */
    const uint64_t b = kv_double_bits(x) - split;
    const double n = (double)((int64_t)b >> 52);
    const double m = kv_bits_double((b & UINT64_C(0xfffffffffffff)) + split);
    const double s = (m - 1) / (m + 1), z = s * s; /* ln m = 2 artanh s */
    double p = 1.0 / 21;
    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    p = p * z * (2 * s);
    return n * 0x1.62e42feep-1 + (p + n * 0x1.a39ef35793c76p-33 + 2 * s);
}

/* sin and cos of 2 pi (turn + 1/2) / 2^32. The quadrant comes from the integer, so the reduction is
 * exact. Absolute error at most 1.1e-7. */
KV_HD void kv_sincos(uint32_t turn, float *sine, float *cosine)
{
    const uint32_t quadrant = turn >> 30, part = turn & 0x3fffffffu, is_mirrored = part >> 29;
    const uint32_t r = is_mirrored ? 0x3fffffffu - part : part; /* angle in (0, pi/4) */
    /* (r + 1/2) * pi/2 / 2^30 */
    const float a = fmaf((float)r, 1.46291807926715968105e-9f, 7.3145903963357984e-10f);
    const float z = a * a;
    float s = -1.9587891e-4f;
    s = fmaf(s, z, 8.3327483e-3f);
    s = fmaf(s, z, -1.6666665e-1f);
    s = fmaf(s * z, a, a);
    float c = 2.4547942e-5f;
    c = fmaf(c, z, -1.3888303e-3f);
    c = fmaf(c, z, 4.1666665e-2f);
    c = fmaf(c, z, -0.5f);
    c = fmaf(c, z, 1.0f);
    const uint32_t is_swapped = is_mirrored ^ (quadrant & 1u);
    const float first = is_swapped ? c : s, second = is_swapped ? s : c;
    const uint32_t sign = 0x80000000u; /* both are positive so far */
    *sine = kv_bits_float(kv_float_bits(first) | (turn & sign));
    *cosine = kv_bits_float(kv_float_bits(second) | ((turn ^ turn << 1) & sign));
}

#endif
