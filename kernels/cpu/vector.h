/* Sixteen floats as one value, on every instruction set: AVX-512 has them in one register, AVX2 in
 * two, NEON in four, and plain C in an array. Included by files compiled per instruction set
 * (isa.h); the operations are correctly rounded and work lane by lane, so all variants agree bit
 * for bit.
 *
 * vec is 16 floats, vecd 16 doubles. VEC_ROWS x VEC_PANELS is the largest register tile of the
 * products: rows of one operand by panels of 16 of the other, so that the accumulators and what
 * feeds them fit in the registers. */
#ifndef KVANT_KERNELS_CPU_VECTOR_H
#define KVANT_KERNELS_CPU_VECTOR_H

#include <math.h>
#include <stdint.h>

enum { VEC = 16 };

#if defined(__AVX512F__)

#include <immintrin.h>
enum { VEC_ROWS = 8, VEC_PANELS = 3 };
typedef __m512 vec;
typedef struct {
    __m512d a, b;
} vecd;

static inline vec vec_all(float x)
{
    return _mm512_set1_ps(x);
}
static inline vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void vec_store(float *p, vec x)
{
    _mm512_storeu_ps(p, x);
}
static inline vec vec_add(vec x, vec y)
{
    return _mm512_add_ps(x, y);
}
static inline vec vec_sub(vec x, vec y)
{
    return _mm512_sub_ps(x, y);
}
static inline vec vec_mul(vec x, vec y)
{
    return _mm512_mul_ps(x, y);
}
static inline vec vec_fma(vec x, vec y, vec z)
{
    return _mm512_fmadd_ps(x, y, z);
}
static inline vec vec_max(vec x, vec y)
{
    return _mm512_max_ps(x, y);
}
static inline vec vec_abs(vec x)
{
    return _mm512_abs_ps(x);
}
/* x < y ? a : b */
static inline vec vec_if_less(vec x, vec y, vec a, vec b)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a);
}
/* bit i: x[i] > y[i] */
static inline uint32_t vec_greater(vec x, vec y)
{
    return _mm512_cmp_ps_mask(x, y, _CMP_GT_OQ);
}
#define lowest_bit _tzcnt_u32
/* The x[i] of set bits in order to `to`, where 16 have room; returns how many. */
static inline int vec_pick(float to[16], vec x, uint32_t bits)
{
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps((__mmask16)bits, x));
    return _mm_popcnt_u32(bits);
}
/* 2^n for x = 1.5 * 2^23 + n */
static inline vec vec_power_of_two(vec x)
{
    __m512i const n = _mm512_slli_epi32(_mm512_castps_si512(x), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(127 << 23)));
}
static inline vecd vecd_zero(void)
{
    return (vecd){_mm512_setzero_pd(), _mm512_setzero_pd()};
}
static inline __m512d low_half(vec x)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}
static inline __m512d high_half(vec x)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}
static inline vecd vecd_add(vecd s, vec x)
{
    return (vecd){_mm512_add_pd(s.a, low_half(x)), _mm512_add_pd(s.b, high_half(x))};
}
/* s + x * x; the product of two floats is exact in double */
static inline vecd vecd_add_square(vecd s, vec x)
{
    __m512d const a = low_half(x), b = high_half(x);
    return (vecd){_mm512_fmadd_pd(a, a, s.a), _mm512_fmadd_pd(b, b, s.b)};
}
static inline void vecd_store(double *p, vecd s)
{
    _mm512_storeu_pd(p, s.a), _mm512_storeu_pd(p + 8, s.b);
}

#elif defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>
enum { VEC_ROWS = 4, VEC_PANELS = 1 };
typedef struct {
    __m256 a, b;
} vec;
typedef struct {
    __m256d a, b, c, d;
} vecd;

static inline vec vec_all(float x)
{
    return (vec){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline vec vec_load(const float *p)
{
    return (vec){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void vec_store(float *p, vec x)
{
    _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b);
}
#define EACH(name, operation)                                                                      \
    static inline vec name(vec x, vec y)                                                           \
    {                                                                                              \
        return (vec){operation(x.a, y.a), operation(x.b, y.b)};                                    \
    }
EACH(vec_add, _mm256_add_ps)
EACH(vec_sub, _mm256_sub_ps)
EACH(vec_mul, _mm256_mul_ps)
EACH(vec_max, _mm256_max_ps)
#undef EACH
static inline vec vec_fma(vec x, vec y, vec z)
{
    return (vec){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline vec vec_abs(vec x)
{
    __m256 const sign = _mm256_set1_ps(-0.0f);
    return (vec){_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
static inline vec vec_if_less(vec x, vec y, vec a, vec b)
{
    return (vec){_mm256_blendv_ps(b.a, a.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
                 _mm256_blendv_ps(b.b, a.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
static inline uint32_t vec_greater(vec x, vec y)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ)) |
           (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ)) << 8;
}
#define lowest_bit _tzcnt_u32
static inline __m256 power_of_two_half(__m256 x)
{
    __m256i const n = _mm256_slli_epi32(_mm256_castps_si256(x), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(127 << 23)));
}
static inline vec vec_power_of_two(vec x)
{
    return (vec){power_of_two_half(x.a), power_of_two_half(x.b)};
}
static inline vecd vecd_zero(void)
{
    __m256d const z = _mm256_setzero_pd();
    return (vecd){z, z, z, z};
}
static inline __m256d low_half(__m256 x)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}
static inline __m256d high_half(__m256 x)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}
static inline vecd vecd_add(vecd s, vec x)
{
    return (vecd){_mm256_add_pd(s.a, low_half(x.a)), _mm256_add_pd(s.b, high_half(x.a)),
                  _mm256_add_pd(s.c, low_half(x.b)), _mm256_add_pd(s.d, high_half(x.b))};
}
static inline vecd vecd_add_square(vecd s, vec x)
{
    __m256d const a = low_half(x.a), b = high_half(x.a), c = low_half(x.b), d = high_half(x.b);
    return (vecd){_mm256_fmadd_pd(a, a, s.a), _mm256_fmadd_pd(b, b, s.b),
                  _mm256_fmadd_pd(c, c, s.c), _mm256_fmadd_pd(d, d, s.d)};
}
static inline void vecd_store(double *p, vecd s)
{
    _mm256_storeu_pd(p, s.a), _mm256_storeu_pd(p + 4, s.b);
    _mm256_storeu_pd(p + 8, s.c), _mm256_storeu_pd(p + 12, s.d);
}

#else /* NEON through its fused instructions, or plain C */

#if defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
enum { VEC_ROWS = 4, VEC_PANELS = 1 };
typedef struct {
    float32x4_t q[4];
} vec;
#define FOR_QUARTERS for (int i = 0; i < 4; i++)
static inline vec vec_all(float x)
{
    vec r;
    FOR_QUARTERS r.q[i] = vdupq_n_f32(x);
    return r;
}
static inline vec vec_load(const float *p)
{
    vec r;
    FOR_QUARTERS r.q[i] = vld1q_f32(p + 4 * i);
    return r;
}
static inline void vec_store(float *p, vec x)
{
    FOR_QUARTERS vst1q_f32(p + 4 * i, x.q[i]);
}
#define EACH(name, operation)                                                                      \
    static inline vec name(vec x, vec y)                                                           \
    {                                                                                              \
        FOR_QUARTERS x.q[i] = operation(x.q[i], y.q[i]);                                           \
        return x;                                                                                  \
    }
EACH(vec_add, vaddq_f32)
EACH(vec_sub, vsubq_f32)
EACH(vec_mul, vmulq_f32)
EACH(vec_max, vmaxq_f32)
#undef EACH
static inline vec vec_fma(vec x, vec y, vec z)
{
    FOR_QUARTERS z.q[i] = vfmaq_f32(z.q[i], x.q[i], y.q[i]);
    return z;
}
static inline vec vec_abs(vec x)
{
    FOR_QUARTERS x.q[i] = vabsq_f32(x.q[i]);
    return x;
}
static inline vec vec_if_less(vec x, vec y, vec a, vec b)
{
    FOR_QUARTERS b.q[i] = vbslq_f32(vcltq_f32(x.q[i], y.q[i]), a.q[i], b.q[i]);
    return b;
}
static inline vec vec_power_of_two(vec x)
{
    FOR_QUARTERS x.q[i] = vreinterpretq_f32_s32(
        vaddq_s32(vshlq_n_s32(vreinterpretq_s32_f32(x.q[i]), 23), vdupq_n_s32(127 << 23)));
    return x;
}
static inline uint32_t vec_greater(vec x, vec y)
{
    static const uint32_t weights[4] = {1, 2, 4, 8};
    uint32_t bits = 0;
    FOR_QUARTERS bits |= vaddvq_u32(vandq_u32(vcgtq_f32(x.q[i], y.q[i]), vld1q_u32(weights)))
                         << 4 * i;
    return bits;
}
#undef FOR_QUARTERS

#else
#include <string.h>
enum { VEC_ROWS = 1, VEC_PANELS = 1 };
typedef struct {
    float f[16];
} vec;
#define EACH(name, parameters, expression)                                                         \
    static inline vec name parameters                                                              \
    {                                                                                              \
        vec r;                                                                                     \
        for (int i = 0; i < VEC; i++) r.f[i] = (expression);                                       \
        return r;                                                                                  \
    }
EACH(vec_all, (float x), x)
EACH(vec_load, (const float *p), p[i])
EACH(vec_add, (vec x, vec y), x.f[i] + y.f[i])
EACH(vec_sub, (vec x, vec y), x.f[i] - y.f[i])
EACH(vec_mul, (vec x, vec y), x.f[i] * y.f[i])
EACH(vec_fma, (vec x, vec y, vec z), fmaf(x.f[i], y.f[i], z.f[i]))
EACH(vec_max, (vec x, vec y), x.f[i] > y.f[i] ? x.f[i] : y.f[i])
EACH(vec_abs, (vec x), fabsf(x.f[i]))
EACH(vec_if_less, (vec x, vec y, vec a, vec b), x.f[i] < y.f[i] ? a.f[i] : b.f[i])
#undef EACH
static inline void vec_store(float *p, vec x)
{
    memcpy(p, x.f, sizeof x.f);
}
static inline uint32_t vec_greater(vec x, vec y)
{
    uint32_t bits = 0;
    for (int i = 0; i < VEC; i++) bits |= (uint32_t)(x.f[i] > y.f[i]) << i;
    return bits;
}
static inline vec vec_power_of_two(vec x)
{
    uint32_t bits[VEC];
    memcpy(bits, x.f, sizeof bits);
    for (int i = 0; i < VEC; i++) bits[i] = (bits[i] << 23) + (127u << 23);
    memcpy(x.f, bits, sizeof bits);
    return x;
}
#endif

static inline uint32_t lowest_bit(uint32_t bits)
{
    uint32_t n = 0;
    while (!(bits >> n & 1)) n++;
    return n;
}

/* Doubles: the compiler's loops serve here. */
typedef struct {
    double f[16];
} vecd;
static inline vecd vecd_zero(void)
{
    return (vecd){{0}};
}
static inline vecd vecd_add(vecd s, vec x)
{
    float f[VEC];
    vec_store(f, x);
    for (int i = 0; i < VEC; i++) s.f[i] += (double)f[i];
    return s;
}
static inline vecd vecd_add_square(vecd s, vec x)
{
    float f[VEC];
    vec_store(f, x);
    for (int i = 0; i < VEC; i++) s.f[i] += (double)f[i] * (double)f[i];
    return s;
}
static inline void vecd_store(double *p, vecd s)
{
    for (int i = 0; i < VEC; i++) p[i] = s.f[i];
}

#endif

#if !defined(__AVX512F__)
static inline int vec_pick(float to[16], vec x, uint32_t bits)
{
    float lanes[VEC];
    int n = 0;
    vec_store(lanes, x);
    for (; bits; bits &= bits - 1) to[n++] = lanes[lowest_bit(bits)];
    return n;
}
#endif

/* e^x for x <= 0; 0 below -87. 2^n by the exponent, e^r by its series to r^7/7! on |r| <= ln 2 / 2
 * (truncation below 6e-9 relative). */
static inline vec vec_exp(vec x)
{
    vec const magic = vec_all(0x1.8p23f);
    vec const shifted = vec_fma(x, vec_all(0x1.715476p+0f), magic);
    vec const n = vec_sub(shifted, magic);
    vec r = vec_fma(n, vec_all(-0x1.62e4p-1f), x); /* ln 2 in two parts, the first exact times n */
    r = vec_fma(n, vec_all(-0x1.7f7d1cp-20f), r);
    vec e = vec_all(1.0f / 5040);
    e = vec_fma(e, r, vec_all(1.0f / 720));
    e = vec_fma(e, r, vec_all(1.0f / 120));
    e = vec_fma(e, r, vec_all(1.0f / 24));
    e = vec_fma(e, r, vec_all(1.0f / 6));
    e = vec_fma(e, r, vec_all(0.5f));
    e = vec_fma(e, r, vec_all(1.0f));
    e = vec_fma(e, r, vec_all(1.0f));
    e = vec_mul(e, vec_power_of_two(shifted));
    return vec_if_less(x, vec_all(-87.0f), vec_all(0.0f), e);
}

#endif
