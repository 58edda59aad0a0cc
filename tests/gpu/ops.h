/* The arithmetic of PTX instructions, one function per instruction family (PTX ISA, chapter 9.7).
 *
 * f32 results that are NaN are 0x7fffffff, as PTX defines; for f64 PTX leaves NaN bits open, here
 * they are 0x7fffffffffffffff. neg and abs touch only the sign. Subnormals are kept: the
 * translator refuses .ftz. Rounding other than to nearest goes through rounding.cpp. Build with
 * -ffp-contract=off; exact answers to all of these are in oracle.py. */
#ifndef KVANT_TESTS_GPU_OPS_H
#define KVANT_TESTS_GPU_OPS_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace gpu
{

enum rounding { RN, RZ, RM, RP };

__extension__ typedef __int128 int128;

template <class To, class From> To bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/* A register's bits as a T, and a T as a register's bits: signed values extend their sign. */
template <class T, class R> T from_register(R r)
{
    if constexpr (std::is_floating_point_v<T>)
        return bits_as<T>((std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>)r);
    else
        return (T)r;
}
template <class R, class T> R to_register(T value)
{
    if constexpr (std::is_same_v<T, float>)
        return (R)bits_as<uint32_t>(value);
    else if constexpr (std::is_same_v<T, double>)
        return (R)bits_as<uint64_t>(value);
    else
        return (R)value;
}

inline float canonical(float x)
{
    return x == x ? x : bits_as<float>(0x7fffffffu);
}
inline double canonical(double x)
{
    return x == x ? x : bits_as<double>(0x7fffffffffffffffu);
}

/* rounding.cpp: operations under a directed rounding mode. */
enum directed_op { ADD, SUB, MUL, DIV, SQRT, FMA };
float directed(directed_op op, rounding r, float a, float b, float c);
double directed(directed_op op, rounding r, double a, double b, double c);
float directed_float(rounding r, double a);
template <class F> F directed_from(rounding r, int64_t a, bool is_unsigned);

template <directed_op op, rounding r, class F> F arithmetic(F a, F b = 0, F c = 0)
{
    if constexpr (r != RN)
        return canonical(directed(op, r, a, b, c));
    else if constexpr (op == ADD)
        return canonical(a + b);
    else if constexpr (op == SUB)
        return canonical(a - b);
    else if constexpr (op == MUL)
        return canonical(a * b);
    else if constexpr (op == DIV)
        return canonical(a / b);
    else if constexpr (op == SQRT)
        return canonical(std::sqrt(a));
    else
        return canonical(std::fma(a, b, c));
}

template <class F> F negate(F a)
{
    return std::copysign(a, std::signbit(a) ? (F)1 : (F)-1);
}
/* min and max: a number wins over NaN; -0 is below +0. */
template <class F> F minimum(F a, F b)
{
    if (!(a == a)) return canonical(b);
    if (!(b == b)) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
}
template <class F> F maximum(F a, F b)
{
    if (!(a == a)) return canonical(b);
    if (!(b == b)) return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
}
template <class F> bool unordered(F a, F b)
{
    return !(a == a && b == b);
}

/* ---- integers ---- */
template <class T> using unsigned_of = std::make_unsigned_t<T>;
template <class T>
using wide_of =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

template <class T> T add(T a, T b)
{
    return (T)((uint64_t)a + (uint64_t)b);
}
template <class T> T sub(T a, T b)
{
    return (T)((uint64_t)a - (uint64_t)b);
}
template <class T> T mul_lo(T a, T b)
{
    return (T)((uint64_t)a * (uint64_t)b);
}
template <class T> T mul_hi(T a, T b)
{
    if constexpr (std::is_same_v<T, uint64_t>)
        return (T)((unsigned __int128)a * (unsigned __int128)b >> 64);
    else
        return (T)((int128)a * (int128)b >> (8 * sizeof(T)));
}
template <class T> wide_of<T> mul_wide(T a, T b)
{
    return (wide_of<T>)((wide_of<T>)a * (wide_of<T>)b);
}
/* Division by zero is undefined in PTX: here all ones, as on hardware. */
template <class T> T divide(T a, T b)
{
    if (b == 0) return (T) ~(T)0;
    return std::is_signed_v<T> && b == (T)-1 ? sub((T)0, a) : (T)(a / b);
}
template <class T> T remainder(T a, T b)
{
    if (b == 0) return a;
    return std::is_signed_v<T> && b == (T)-1 ? (T)0 : (T)(a % b);
}
template <class T> T absolute(T a)
{
    return a < 0 ? sub((T)0, a) : a;
}
template <class T> T difference(T a, T b)
{
    return a < b ? sub(b, a) : sub(a, b);
}
template <class T> T shift_left(T a, uint32_t n)
{
    return n >= 8 * sizeof(T) ? (T)0 : (T)((uint64_t)a << n);
}
template <class T> T shift_right(T a, uint32_t n)
{
    const uint32_t most = 8 * sizeof(T) - 1;
    if (n > most) return std::is_signed_v<T> ? (T)(a >> most) : (T)0;
    return (T)(a >> n);
}
inline uint32_t funnel_left(uint32_t low, uint32_t high, uint32_t n) /* n <= 32 */
{
    return (uint32_t)(((uint64_t)high << 32 | low) << n >> 32 | (n == 32 ? low : 0u));
}
inline uint32_t funnel_right(uint32_t low, uint32_t high, uint32_t n)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> n);
}
inline uint32_t clamp32(uint32_t n)
{
    return n < 32 ? n : 32;
}
inline uint32_t leading_zeros(uint32_t a)
{
    return a ? (uint32_t)__builtin_clz(a) : 32;
}
inline uint32_t leading_zeros(uint64_t a)
{
    return a ? (uint32_t)__builtin_clzll(a) : 64;
}
template <class T> T reverse_bits(T a)
{
    T r = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); i++) r = (T)(r << 1 | (a >> i & 1));
    return r;
}
/* Position of the highest bit that differs from the sign; all ones if there is none. */
template <class T> uint32_t find_bit(T a, bool is_shift)
{
    const unsigned_of<T> u = (unsigned_of<T>)(a < 0 ? ~a : a);
    if (u == 0) return ~0u;
    const uint32_t zeros = leading_zeros(u), most = 8 * sizeof(T) - 1;
    return is_shift ? zeros : most - zeros;
}
template <class T> T extract_bits(T a, uint32_t position, uint32_t length)
{
    const uint32_t p = position & 255, n = length & 255, most = 8 * sizeof(T) - 1;
    if (n == 0) return 0;
    const uint32_t last = p + n - 1 < most ? p + n - 1 : most;
    const bool fill = std::is_signed_v<T> && ((uint64_t)(unsigned_of<T>)a >> last & 1);
    uint64_t r = fill ? ~(uint64_t)0 : 0;
    for (uint32_t i = 0; i < n && i <= most && p + i <= most; i++) {
        const uint64_t bit = (uint64_t)1 << i;
        r = (uint64_t)(unsigned_of<T>)a >> (p + i) & 1 ? r | bit : r & ~bit;
    }
    return (T)r;
}
template <class T> T insert_bits(T a, T b, uint32_t position, uint32_t length)
{
    const uint32_t p = position & 255, n = length & 255;
    for (uint32_t i = 0; i < n && p + i < 8 * sizeof(T); i++) {
        const T bit = (T)1 << (p + i);
        b = a >> i & 1 ? (T)(b | bit) : (T)(b & ~bit);
    }
    return b;
}
inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t s = selector >> (4 * i) & 15, byte = bytes >> (8 * (s & 7)) & 255;
        r |= (s & 8 ? (byte >> 7) * 255u : byte) << (8 * i);
    }
    return r;
}
inline uint32_t logic3(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
    uint32_t r = 0;
    for (int i = 0; i < 8; i++)
        if (table >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return r;
}
template <class A, class B> uint32_t dot4(uint32_t a, uint32_t b, uint32_t c)
{
    for (int i = 0; i < 32; i += 8) c += (uint32_t)((int)(A)(a >> i) * (int)(B)(b >> i));
    return c;
}
/* The n-th set bit of `mask` from `base` on, upwards; n < 0 downwards; n = 0: base itself. */
inline uint32_t nth_set(uint32_t mask, uint32_t base, int32_t n)
{
    if (base > 31) return ~0u;
    if (n == 0) return mask >> base & 1 ? base : ~0u;
    for (int64_t i = base; i >= 0 && i < 32; i += n < 0 ? -1 : 1)
        if (mask >> i & 1) {
            n += n < 0 ? 1 : -1;
            if (n == 0) return (uint32_t)i;
        }
    return ~0u;
}

/* ---- conversions ---- */
template <class To, class From> To saturate(From a)
{
    const int128 low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
    return a < low ? (To)low : a > high ? (To)high : (To)a;
}
template <rounding r, class F> F integral(F a)
{
    return r == RN   ? std::nearbyint(a)
           : r == RZ ? std::trunc(a)
           : r == RM ? std::floor(a)
                     : std::ceil(a);
}
/* cvt.r*i between equal floats; to an integer what is too large saturates, and NaN is 0, but the
 * integer's top bit from f64 or to 64 bits (PTX ISA, cvt). */
template <rounding r, class F> F to_integral(F a)
{
    return canonical(integral<r>(a));
}
template <class To, rounding r, class F> To to_integer(F a)
{
    const bool is_wide = sizeof(To) == 8 || sizeof(F) == 8;
    if (!(a == a)) return is_wide ? (To)((uint64_t)1 << (8 * sizeof(To) - 1)) : (To)0;
    const F t = integral<r>(a), two = 2;
    const int bits = 8 * (int)sizeof(To) - (std::is_signed_v<To> ? 1 : 0);
    if (t >= std::ldexp(two, bits - 1)) return std::numeric_limits<To>::max();
    const F low = std::is_signed_v<To> ? -std::ldexp(two, bits - 1) : 0;
    return t <= low ? std::numeric_limits<To>::min() : (To)t;
}
template <class F, rounding r, class From> F from_integer(From a)
{
    if constexpr (r == RN)
        return (F)a;
    else
        return directed_from<F>(r, (int64_t)a, std::is_unsigned_v<From>);
}
template <rounding r> float narrow(double a)
{
    if constexpr (r == RN)
        return canonical((float)a);
    else
        return canonical(directed_float(r, a));
}
inline float unit_interval(float a)
{
    return a > 0 ? (a < 1 ? a : 1) : 0; /* also of NaN */
}

/* Formats of 16 and 8 bits, rounded to nearest even. */
struct small {
    int mantissa_bits, bias;
    uint32_t maximum, overflow, nan; /* magnitudes */
    int sign_bit;
};
const small f16_small = {10, 15, 0x7bff, 0x7c00, 0x7fff, 15};
const small bf16_small = {7, 127, 0x7f7f, 0x7f80, 0x7fff, 15};
const small e4m3_small = {3, 7, 0x7e, 0x7e, 0x7f, 7}; /* .satfinite */
const small e5m2_small = {2, 15, 0x7b, 0x7b, 0x7f, 7};
uint32_t to_small(const small &s, double a); /* rounding.cpp */
double from_small(const small &s, uint32_t code);
inline uint16_t pack8(const small &s, float high, float low)
{
    return (uint16_t)(to_small(s, high) << 8 | to_small(s, low));
}
inline uint32_t pack16(const small &s, float high, float low)
{
    return to_small(s, high) << 16 | to_small(s, low);
}

} // namespace gpu

#endif
