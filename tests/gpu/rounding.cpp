/* Arithmetic rounded towards zero, minus and plus infinity, by the processor's own rounding mode.
 * Operands and results pass through volatile objects between the two calls of fesetround(), which
 * compilers may not move; compiling with -frounding-math alone does not promise that. */
#include "tests/gpu/ops.h"

#include <cfenv>

namespace gpu
{

namespace
{

const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

template <class F> F apply(directed_op op, rounding r, F a0, F b0, F c0)
{
    volatile F a = a0, b = b0, c = c0, result;
    const int before = fegetround();
    fesetround(modes[r]);
    switch (op) {
    case ADD: result = a + b; break;
    case SUB: result = a - b; break;
    case MUL: result = a * b; break;
    case DIV: result = a / b; break;
    case SQRT: result = std::sqrt(a); break;
    default: result = std::fma(a, b, c); break;
    }
    fesetround(before);
    return result;
}

} // namespace

float directed(directed_op op, rounding r, float a, float b, float c)
{
    return apply(op, r, a, b, c);
}

double directed(directed_op op, rounding r, double a, double b, double c)
{
    return apply(op, r, a, b, c);
}

float directed_float(rounding r, double a0)
{
    volatile double a = a0;
    volatile float result;
    const int before = fegetround();
    fesetround(modes[r]);
    result = (float)a;
    fesetround(before);
    return result;
}

/* Integers of 64 bits are cut in halves that convert exactly; their sum is rounded once. */
template <class F> F directed_from(rounding r, int64_t a, bool is_unsigned)
{
    const uint64_t u = (uint64_t)a;
    const double high = is_unsigned ? (double)(u >> 32) : (double)(a >> 32);
    const double low = (double)(u & 0xffffffffu);
    if (sizeof(F) == 8) return (F)directed(ADD, r, high * 0x1p32, low, 0.0);
    /* To float: the double, rounded towards zero with its last bit sticky, loses no information
     * that the second rounding needs. */
    const double down = directed(ADD, RM, high * 0x1p32, low, 0.0);
    const double up = directed(ADD, RP, high * 0x1p32, low, 0.0);
    return (F)directed_float(r, r == RP || (r == RZ && down < 0) ? up : down);
}
template float directed_from<float>(rounding, int64_t, bool);
template double directed_from<double>(rounding, int64_t, bool);

uint32_t to_small(const small &s, double a)
{
    if (!(a == a)) return s.nan;
    const uint32_t sign = (uint32_t)std::signbit(a) << s.sign_bit;
    if (a == 0) return sign;
    int e;
    std::frexp(a, &e); /* |a| in [2^(e-1), 2^e) */
    const int least = 1 - s.bias;
    const int step = (e - 1 < least ? least : e - 1) - s.mantissa_bits;
    if (std::isinf(a) || e - 1 > 2 * s.bias + 2) return sign | s.overflow;
    const double steps = std::nearbyint(std::ldexp(std::fabs(a), -step));
    const uint32_t base = (uint32_t)(step + s.mantissa_bits - least) << s.mantissa_bits;
    const uint32_t magnitude = base + (uint32_t)steps;
    return sign | (magnitude > s.maximum ? s.overflow : magnitude);
}

double from_small(const small &s, uint32_t code)
{
    const uint32_t magnitude = code & ((1u << s.sign_bit) - 1u);
    const double sign = code >> s.sign_bit & 1 ? -1.0 : 1.0;
    const uint32_t infinity = ((1u << (s.sign_bit - s.mantissa_bits)) - 1u) << s.mantissa_bits;
    const bool has_infinity = infinity > s.maximum;
    if (magnitude > s.maximum && !(has_infinity && magnitude == infinity)) return NAN;
    if (magnitude > s.maximum) return sign * INFINITY;
    const int e = (int)(magnitude >> s.mantissa_bits);
    const int m = (int)(magnitude & ((1u << s.mantissa_bits) - 1u));
    const int step = (e ? e : 1) - s.bias - s.mantissa_bits;
    return sign * std::ldexp((double)(m + (e ? 1 << s.mantissa_bits : 0)), step);
}

} // namespace gpu
