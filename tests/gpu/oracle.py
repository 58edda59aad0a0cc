"""What PTX instructions must answer, in exact arithmetic: Python integers and fractions. Written
from the PTX ISA, apart from ops.h, which it judges. Operands and answers are register bits."""

import math
from fractions import Fraction

# name: (significand bits, least exponent, largest exponent, width)
FORMATS = {"f32": (24, -126, 127, 32), "f64": (53, -1022, 1023, 64), "f16": (11, -14, 15, 16),
           "bf16": (8, -126, 127, 16), "e5m2": (3, -14, 15, 8), "e4m3": (4, -6, 8, 8)}
NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF, "f64": None}  # None: any NaN


def width(t):
    return 1 if t == "pred" else int(t.lstrip("bsuf"))


def signed(x, bits):
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


def number(x, t):
    """Register bits as an integer of type t."""
    x &= (1 << width(t)) - 1
    return signed(x, width(t)) if t[0] == "s" else x


def decode(x, t):
    """Bits of a float as (kind, sign, magnitude): kind nan, inf or number."""
    p, least, _, bits = FORMATS[t]
    sign, m = x >> (bits - 1) & 1, x & ((1 << (p - 1)) - 1)
    e, top = x >> (p - 1) & ((1 << (bits - p)) - 1), (1 << (bits - p)) - 1
    if e == top:
        return ("nan" if m else "inf"), sign, None
    if e:
        m |= 1 << (p - 1)
    return "number", sign, Fraction(m) * Fraction(2) ** (max(e, 1) - 1 + least - (p - 1))


def shift(magnitude, up, mode, sign):
    """A non-negative fraction rounded to an integer."""
    n = magnitude.numerator // magnitude.denominator
    rest = magnitude - n
    if mode == "rn":
        return n + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and n & 1))
    away = {"rz": False, "rm": sign == 1, "rp": sign == 0}[mode]
    return n + (away and rest > 0)


def encode(sign, magnitude, t, mode):
    """The bits of sign * magnitude (a fraction or "inf") rounded to t."""
    p, least, most, bits = FORMATS[t]
    top = sign << (bits - 1)
    infinity = ((1 << (bits - p)) - 1) << (p - 1)
    if magnitude == "inf":
        return top | infinity
    if magnitude == 0:
        return top
    e = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** e > magnitude:
        e -= 1
    step = max(e, least) - (p - 1)
    n = shift(magnitude / Fraction(2) ** step, None, mode, sign)
    if n == 1 << p:
        n, step = n >> 1, step + 1
    code = n if step == least - (p - 1) else n + ((step - (least - (p - 1))) << (p - 1))
    if t == "e4m3":
        return top | min(code, 0x7E)
    if t == "e5m2":
        return top | min(code, 0x7B)
    if code >= infinity:
        to_infinity = mode == "rn" or (mode == "rm" and sign) or (mode == "rp" and not sign)
        return top | (infinity if to_infinity else infinity - 1)
    return top | code


def summed(terms, t, mode):
    """The rounded sum of two (sign, magnitude) terms; the sign of an exact zero."""
    total = sum((-m if s else m) for s, m in terms)
    if total == 0:
        signs = {s for s, m in terms}
        same = len(signs) == 1 and all(m == 0 for _, m in terms)
        return encode(terms[0][0] if same else int(mode == "rm"), Fraction(0), t, mode)
    return encode(int(total < 0), abs(total), t, mode)


def add(a, b, t, mode):
    (ka, sa, ma), (kb, sb, mb) = a, b
    if ka == "nan" or kb == "nan" or (ka == kb == "inf" and sa != sb):
        return NAN[t]
    if "inf" in (ka, kb):
        return encode(sa if ka == "inf" else sb, "inf", t, mode)
    return summed([(sa, ma), (sb, mb)], t, mode)


def product(a, b):
    """The exact product as a decoded number."""
    (ka, sa, ma), (kb, sb, mb) = a, b
    if ka == "nan" or kb == "nan" or ("inf" in (ka, kb) and 0 in (ma, mb)):
        return "nan", 0, None
    if "inf" in (ka, kb):
        return "inf", sa ^ sb, None
    return "number", sa ^ sb, ma * mb


def finish(d, t, mode):
    kind, sign, magnitude = d
    return NAN[t] if kind == "nan" else encode(sign, "inf" if kind == "inf" else magnitude, t, mode)


def divide(a, b, t, mode):
    (ka, sa, ma), (kb, sb, mb) = a, b
    if ka == "nan" or kb == "nan" or ka == kb == "inf" or (ma == 0 and mb == 0):
        return NAN[t]
    if ka == "inf" or mb == 0:
        return encode(sa ^ sb, "inf", t, mode)
    return encode(sa ^ sb, Fraction(0) if kb == "inf" else ma / mb, t, mode)


def root(a, t, mode):
    kind, sign, m = a
    if kind == "nan" or (sign and m != 0):
        return NAN[t]
    if kind == "inf" or m == 0:
        return encode(sign, "inf" if kind == "inf" else m, t, mode)
    scale = 1 << 1400  # enough bits for any rounding; one more bit says "not exact"
    whole = m.numerator * scale * scale // m.denominator
    r = math.isqrt(whole)
    exact = r * r == whole and m.numerator * scale * scale % m.denominator == 0
    return encode(0, Fraction(2 * r + (not exact), 2 * scale), t, mode)


def integral(d, mode):
    kind, sign, m = d
    return d if kind != "number" else (kind, sign, Fraction(shift(m, None, mode, sign)))


def float_answer(op, mode, t, x):
    d = [decode(v, t) for v in x]
    top = 1 << (width(t) - 1)
    if op in ("add", "sub"):
        b = d[1] if op == "add" else (d[1][0], 1 - d[1][1], d[1][2])
        return add(d[0], b, t, mode)
    if op == "mul":
        return finish(product(d[0], d[1]), t, mode)
    if op == "fma":
        return add(product(d[0], d[1]), d[2], t, mode)
    if op == "div":
        return divide(d[0], d[1], t, mode)
    if op == "rcp":
        return divide(("number", 0, Fraction(1)), d[0], t, mode)
    if op == "sqrt":
        return root(d[0], t, mode)
    if op == "neg":
        return x[0] ^ top
    if op == "abs":
        return x[0] & ~top
    if op == "copysign":  # the sign of a, the rest of b
        return (x[1] & ~top) | (x[0] & top)
    nans = [v[0] == "nan" for v in d]
    if all(nans) or (mode == "NaN" and any(nans)):
        return NAN[t]
    if any(nans):
        return x[0] if nans[1] else x[1]
    first = order(d[0]) < order(d[1]) or (order(d[0]) == order(d[1]) and d[0][1])
    return x[0] if first == (op == "min") else x[1]


def order(d):
    kind, sign, m = d
    m = Fraction(2) ** 2000 if kind == "inf" else m
    return -m if sign else m


COMPARE = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
           "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}
JOIN = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}


def setp(parts, x):
    name, t = parts[1], parts[-1]
    if t[0] == "f":
        d = [decode(v, t) for v in x[:2]]
        un = any(v[0] == "nan" for v in d)
        if name in ("num", "nan"):
            answer = un == (name == "nan")
        elif un:
            answer = name.endswith("u")
        else:
            answer = COMPARE[name[:2]](order(d[0]), order(d[1]))
    else:
        answer = COMPARE[name](number(x[0], t), number(x[1], t))
    return int(JOIN[parts[2]](answer, bool(x[2])) if len(parts) == 4 else answer)


def limits(t):
    bits = width(t)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if t[0] == "s" else (0, (1 << bits) - 1)


def convert(parts, x):
    to, source = parts[-2], parts[-1]
    mode = next((p for p in parts if p[:2] in ("rn", "rz", "rm", "rp") and len(p) <= 3), "rn")
    is_integral = len(mode) == 3
    mode = mode[:2]
    if to.endswith("x2"):
        element = to[:-2]
        nan = {"e4m3": 0x7F, "e5m2": 0x7F}.get(element, 0x7FFF)
        codes = []
        for v in x:
            kind, sign, m = decode(v, "f32")
            code = nan if kind == "nan" else encode(sign, m, element, "rn") if kind == "number" else \
                sign << (FORMATS[element][3] - 1) | {"e4m3": 0x7E, "e5m2": 0x7B, "f16": 0x7C00,
                                                     "bf16": 0x7F80}[element]
            codes.append(code)
        return codes[0] << FORMATS[element][3] | codes[1]
    if source in FORMATS:
        d = decode(x[0] & ((1 << FORMATS[source][3]) - 1), source)
        if to in FORMATS:
            if "sat" in parts:
                v = Fraction(0) if d[0] == "nan" or d[1] else Fraction(1) if d[0] == "inf" else \
                    min(d[2], Fraction(1))
                return encode(0, v, to, "rn")
            return finish(integral(d, mode) if is_integral else d, to, mode)
        low, high = limits(to)
        if d[0] == "nan":
            wide = width(to) == 64 or source == "f64"
            return 1 << (width(to) - 1) if wide else 0
        v = order(integral(d, mode))
        return int(max(low, min(high, v))) % (1 << width(to))
    v = number(x[0], source)
    if to in FORMATS:
        return encode(int(v < 0), Fraction(abs(v)), to, mode)
    low, high = limits(to)
    v = max(low, min(high, v)) if "sat" in parts else v
    v = number(v % (1 << width(to)), to)
    return v % (1 << max(16, width(to)))  # 8 bits fill a register of 16


def integer(parts, x):
    op, t = parts[0], parts[-1]
    bits = width(t)
    a, b, c = [number(v, t) for v in x] + [None] * (3 - len(x))
    low, high = limits(t) if t[0] != "b" else (0, (1 << bits) - 1)
    if op in ("mul", "mad"):
        p = a * b
        part = {"lo": p, "hi": p >> bits, "wide": p}[parts[1]]
        if op == "mad":
            part += x[2]
        return part % (1 << (2 * bits if parts[1] == "wide" else bits))
    if op in ("div", "rem"):
        if b == 0:
            return (1 << bits) - 1 if op == "div" else a % (1 << bits)
        q = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return (q if op == "div" else a - q * b) % (1 << bits)
    shifts = min(x[1], bits + 1) if op in ("shl", "shr") else 0
    answers = {
        "add": lambda: a + b, "sub": lambda: a - b, "min": lambda: min(a, b),
        "max": lambda: max(a, b), "sad": lambda: abs(a - b) + c, "abs": lambda: abs(a),
        "neg": lambda: -a, "not": lambda: ~a, "and": lambda: a & b, "or": lambda: a | b,
        "xor": lambda: a ^ b, "shl": lambda: a << shifts, "shr": lambda: a >> shifts,
        "popc": lambda: bin(a).count("1"), "clz": lambda: bits - a.bit_length(),
        "brev": lambda: int(format(a, f"0{bits}b")[::-1], 2)}
    return answers[op]() % (1 << bits)


def bit_field(parts, x):
    op, t = parts[0], parts[-1]
    bits = width(t)
    if op == "bfind":
        v = number(x[0], t)
        v = ~v if v < 0 else v
        if v == 0:
            return 0xFFFFFFFF
        p = v.bit_length() - 1
        return bits - 1 - p if "shiftamt" in parts else p
    position, length = x[-2] & 255, x[-1] & 255
    if op == "bfi":
        mask = (1 << length) - 1 << position
        return (x[1] & ~mask | x[0] << position & mask) % (1 << bits)
    v = number(x[0], t) >> position  # endless sign or zero bits above
    if length == 0:
        return 0
    field = v & ((1 << length) - 1)
    last = min(position + length - 1, bits - 1)
    if t[0] == "s" and x[0] >> last & 1:
        have = max(0, min(length, bits - position))
        field = field | ~((1 << have) - 1)
    elif position + length > bits:
        field = v % (1 << length)
    return field % (1 << bits)


def answer(name, x):
    """Register bits that `name` makes of operands x; None: any NaN."""
    parts = name.split(".")
    op, t = parts[0], parts[-1]
    if op == "setp":
        return setp(parts, x)
    if op == "selp":
        return x[0] if x[2] else x[1]
    if op == "cvt":
        return convert(parts, x)
    if t == "pred":
        return 1 - x[0] if op == "not" else JOIN[op](x[0], x[1])
    if t in ("f32", "f64"):
        return float_answer(op, parts[1] if len(parts) == 3 else "", t, x)
    if op in ("bfe", "bfi", "bfind"):
        return bit_field(parts, x)
    if op == "shf":
        n = x[2] & 31 if parts[2] == "wrap" else min(x[2], 32)
        v = x[1] << 32 | x[0]
        return (v << n >> 32 if parts[1] == "l" else v >> n) & 0xFFFFFFFF
    if op == "prmt":
        data = (x[1] << 32 | x[0]).to_bytes(8, "little")
        out = 0
        for i in range(4):
            s = x[2] >> 4 * i & 15
            byte = data[s & 7]
            out |= (255 * (byte >> 7) if s & 8 else byte) << 8 * i
        return out
    if op == "lop3":
        return sum((x[3] >> (4 * (x[0] >> i & 1) + 2 * (x[1] >> i & 1) + (x[2] >> i & 1)) & 1) << i
                   for i in range(32))
    if op == "dp4a":
        total = x[2]
        for i in range(4):
            a, b = x[0] >> 8 * i & 255, x[1] >> 8 * i & 255
            total += (signed(a, 8) if parts[1][0] == "s" else a) * \
                (signed(b, 8) if parts[2][0] == "s" else b)
        return total & 0xFFFFFFFF
    if op == "fns":
        base, n = x[1], signed(x[2], 32)
        if base > 31:
            return 0xFFFFFFFF
        if n == 0:
            return base if x[0] >> base & 1 else 0xFFFFFFFF
        found = [i for i in (range(base, 32) if n > 0 else range(base, -1, -1)) if x[0] >> i & 1]
        return found[abs(n) - 1] if len(found) >= abs(n) else 0xFFFFFFFF
    return integer(parts, x)
