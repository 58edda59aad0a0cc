/* Our encoders against CUDA's own: cuda_fp8.h, cuda_fp16.h and cuda_bf16.h are plain C on the host,
 * no GPU and nothing to link. fnuz formats are not in CUDA; their oracle is a search over
 * midpoints.
 *
 *     test_encoders_cuda        a stride of all floats (CI)
 *     test_encoders_cuda all    every float
 *
 * Besides equal codes: round(x) = decode(encode(x)), and equal decoding of every code. */
#ifndef KVANT_HAVE_CUDA_HEADERS

#include <stdio.h>

int main(void)
{
    printf("skipped: no cuda_fp8.h or no C++ compiler was found when this was configured\n");
    return 77;
}

#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/formats.h"
#include "tests/check.h"

/* ---- CUDA's ---- */

static uint32_t cuda_e4m3(float x)
{
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

static uint32_t cuda_e5m2(float x)
{
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
}

static uint32_t cuda_f16(float x)
{
    const __half_raw raw = __float2half_rn(x);
    return raw.x;
}

static uint32_t cuda_bf16(float x)
{
    const __nv_bfloat16_raw raw = __float2bfloat16_rn(x);
    return raw.x;
}

static uint32_t cuda_e8m0(float x)
{
    return __nv_cvt_float_to_e8m0(x, __NV_SATFINITE, cudaRoundPosInf);
}

static float half_value(__half_raw raw)
{
    return __half2float(__half(raw));
}

static float cuda_e4m3_value(uint32_t code)
{
    return half_value(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)code, __NV_E4M3));
}

static float cuda_e5m2_value(uint32_t code)
{
    return half_value(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)code, __NV_E5M2));
}

static float cuda_f16_value(uint32_t code)
{
    __half_raw raw;
    raw.x = (uint16_t)code;
    return half_value(raw);
}

static float cuda_bf16_value(uint32_t code)
{
    __nv_bfloat16_raw raw;
    raw.x = (uint16_t)code;
    return __bfloat162float(__nv_bfloat16(raw));
}

static float cuda_e8m0_value(uint32_t code)
{
    return cuda_bf16_value(__nv_cvt_e8m0_to_bf16raw((__nv_fp8_storage_t)code).x);
}

/* ---- fnuz, from the definition: value = 2^(e - bias) * 1.m, no infinity, one zero ---- */

static double fnuz_value(int mantissa_bits, int bias, uint32_t code)
{
    const uint32_t rest = code & 0x7fu;
    const int e = (int)(rest >> mantissa_bits);
    const double m = ldexp((double)(rest & ((1u << mantissa_bits) - 1)), -mantissa_bits);
    const double v = e ? ldexp(1 + m, e - bias) : ldexp(m, 1 - bias);
    return code & 0x80u ? (rest ? -v : NAN) : v;
}

static float e4m3fnuz_value(uint32_t code)
{
    return (float)fnuz_value(3, 8, code);
}

static float e5m2fnuz_value(uint32_t code)
{
    return (float)fnuz_value(2, 16, code);
}

static float midpoints[2][127]; /* [3 or 2 mantissa bits][code, code + 1]; exact in float */

static void fill_midpoints(void)
{
    for (uint32_t c = 0; c < 127; c++) {
        midpoints[0][c] = (float)((fnuz_value(3, 8, c) + fnuz_value(3, 8, c + 1)) / 2);
        midpoints[1][c] = (float)((fnuz_value(2, 16, c) + fnuz_value(2, 16, c + 1)) / 2);
    }
}

static uint32_t fnuz_code(const float *midpoint, float x)
{
    if (isnan(x)) return 0x80;
    const float a = fabsf(x);
    uint32_t low = 0, high = 127; /* codes below low lose to it, codes above high lose to high */
    while (low < high) {
        const uint32_t c = (low + high) / 2;
        if (a > midpoint[c] || (a == midpoint[c] && c % 2 == 1))
            low = c + 1;
        else
            high = c;
    }
    return low && signbit(x) ? low | 0x80u : low;
}

static uint32_t search_e4m3fnuz(float x)
{
    return fnuz_code(midpoints[0], x);
}

static uint32_t search_e5m2fnuz(float x)
{
    return fnuz_code(midpoints[1], x);
}

/* ---- comparison ---- */

static int same(float a, float b)
{
    return (isnan(a) && isnan(b)) || kv_float_bits(a) == kv_float_bits(b);
}

/* Written as a macro so that each encoder is inlined into its loop. Inputs of e8m0 are scales. */
#define COMPARE(name, oracle, oracle_value, bits, last)                                            \
    do {                                                                                           \
        long long codes = 0, rounds = 0;                                                           \
        _Pragma(                                                                                   \
            "omp parallel for reduction(+ : codes, rounds) schedule(static)") for (int64_t b = 0;  \
                                                                                   b <= (last);    \
                                                                                   b += stride)    \
        {                                                                                          \
            const float x = kv_bits_float((uint32_t)b);                                            \
            const uint32_t code = kv_##name##_encode(x);                                           \
            codes += code != oracle(x);                                                            \
            rounds += !same(kv_##name##_round(x), kv_##name##_decode(code));                       \
        }                                                                                          \
        for (uint32_t c = 0; c < 1u << (bits); c++)                                                \
            CHECK(same(kv_##name##_decode(c), oracle_value(c)), "%s: code %x", #name, c);          \
        CHECK(codes == 0, "%s: %lld codes differ", #name, codes);                                  \
        CHECK(rounds == 0, "%s: %lld roundings differ", #name, rounds);                            \
        printf("%-9s %lld floats compared\n", #name, (long long)((last) / stride + 1));            \
    } while (0)

int main(int argc, char **argv)
{
    const int64_t stride = argc > 1 && strcmp(argv[1], "all") == 0 ? 1 : 1021; /* a prime */
    fill_midpoints();
    COMPARE(e4m3, cuda_e4m3, cuda_e4m3_value, 8, 0xffffffff);
    COMPARE(e5m2, cuda_e5m2, cuda_e5m2_value, 8, 0xffffffff);
    COMPARE(f16, cuda_f16, cuda_f16_value, 16, 0xffffffff);
    COMPARE(bf16, cuda_bf16, cuda_bf16_value, 16, 0xffffffff);
    COMPARE(e4m3fnuz, search_e4m3fnuz, e4m3fnuz_value, 8, 0xffffffff);
    COMPARE(e5m2fnuz, search_e5m2fnuz, e5m2fnuz_value, 8, 0xffffffff);
    COMPARE(e8m0, cuda_e8m0, cuda_e8m0_value, 8, 0x7fffffff);
    return check_done();
}

#endif
