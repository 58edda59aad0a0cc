"""The PTX instructions the translator knows, by full name: an opcode with all of its modifiers.

VALUES holds those that only compute: name -> Value(result type, operand types, C++ expression). The
expression names its operands a, b, c, d, already of their types, and calls ops.h. The others move
data or control; translate.py writes them, and their names are listed in MOVES and CONTROL. What is
in none of the three tables is refused. Left out on purpose: .approx and .ftz (results that PTX does
not define to the bit), activemask (it depends on the scheduler), .sat arithmetic, f16 arithmetic,
textures, asynchronous copies.
"""

from collections import namedtuple

Value = namedtuple("Value", "result operands expression")

U, S, B = ("u16", "u32", "u64"), ("s16", "s32", "s64"), ("b16", "b32", "b64")
FLOATS = ("f32", "f64")
ROUND = {"rn": "RN", "rz": "RZ", "rm": "RM", "rp": "RP"}
CPP = {"pred": "bool", "f32": "float", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t"}
for width in ("8", "16", "32", "64"):
    CPP.update({"u" + width: f"uint{width}_t", "s" + width: f"int{width}_t",
                "b" + width: f"uint{width}_t"})

VALUES = {}


def value(name, result, operands, expression):
    assert name not in VALUES, name
    VALUES[name] = Value(result, tuple(operands.split()), expression)


def wide(t):
    return t[0] + str(2 * int(t[1:]))


# ---- integers ----
for t in U + S:
    value(f"add.{t}", t, f"{t} {t}", "add(a, b)")
    value(f"sub.{t}", t, f"{t} {t}", "sub(a, b)")
    value(f"mul.lo.{t}", t, f"{t} {t}", "mul_lo(a, b)")
    value(f"mul.hi.{t}", t, f"{t} {t}", "mul_hi(a, b)")
    value(f"mad.lo.{t}", t, f"{t} {t} {t}", "add(mul_lo(a, b), c)")
    value(f"mad.hi.{t}", t, f"{t} {t} {t}", "add(mul_hi(a, b), c)")
    if t[1:] != "64":
        value(f"mul.wide.{t}", wide(t), f"{t} {t}", "mul_wide(a, b)")
        value(f"mad.wide.{t}", wide(t), f"{t} {t} {wide(t)}", "add(mul_wide(a, b), c)")
    value(f"div.{t}", t, f"{t} {t}", "divide(a, b)")
    value(f"rem.{t}", t, f"{t} {t}", "remainder(a, b)")
    value(f"min.{t}", t, f"{t} {t}", "a < b ? a : b")
    value(f"max.{t}", t, f"{t} {t}", "a > b ? a : b")
    value(f"sad.{t}", t, f"{t} {t} {t}", "add(difference(a, b), c)")
    value(f"shr.{t}", t, f"{t} u32", "shift_right(a, b)")
for t in S:
    value(f"abs.{t}", t, t, "absolute(a)")
    value(f"neg.{t}", t, t, f"sub(({CPP[t]})0, a)")
for t in B:
    value(f"not.{t}", t, t, "~a")
    value(f"shl.{t}", t, f"{t} u32", "shift_left(a, b)")
    value(f"shr.{t}", t, f"{t} u32", "shift_right(a, b)")
    for name, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
        value(f"{name}.{t}", t, f"{t} {t}", f"a {sign} b")
value("not.pred", "pred", "pred", "!a")
for name, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
    value(f"{name}.pred", "pred", "pred pred", f"a {sign} b")
for t in ("b32", "b64"):
    value(f"popc.{t}", "u32", t, "(uint32_t)__builtin_popcountll(a)")
    value(f"clz.{t}", "u32", t, "leading_zeros(a)")
    value(f"brev.{t}", t, t, "reverse_bits(a)")
    value(f"bfi.{t}", t, f"{t} {t} u32 u32", "insert_bits(a, b, c, d)")
for t in ("u32", "s32", "u64", "s64"):
    value(f"bfe.{t}", t, f"{t} u32 u32", "extract_bits(a, b, c)")
    value(f"bfind.{t}", "u32", t, "find_bit(a, false)")
    value(f"bfind.shiftamt.{t}", "u32", t, "find_bit(a, true)")
for side in ("l", "r"):
    f = {"l": "funnel_left", "r": "funnel_right"}[side]
    value(f"shf.{side}.wrap.b32", "b32", "b32 b32 u32", f"{f}(a, b, c & 31)")
    value(f"shf.{side}.clamp.b32", "b32", "b32 b32 u32", f"{f}(a, b, clamp32(c))")
value("prmt.b32", "b32", "b32 b32 b32", "permute(a, b, c)")
value("lop3.b32", "b32", "b32 b32 b32 u32", "logic3(a, b, c, d)")
value("fns.b32", "b32", "b32 b32 s32", "nth_set(a, b, c)")
for s in ("u32", "s32"):
    for t in ("u32", "s32"):
        kinds = [{"u": "uint8_t", "s": "int8_t"}[x[0]] for x in (s, t)]
        value(f"dp4a.{s}.{t}", "u32" if s == t == "u32" else "s32", f"b32 b32 b32",
              f"dot4<{kinds[0]}, {kinds[1]}>(a, b, c)")

# ---- floats ----
for t in FLOATS:
    for r, R in ROUND.items():
        for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("div", 2), ("sqrt", 1),
                            ("fma", 3)):
            value(f"{name}.{r}.{t}", t, " ".join([t] * count),
                  f"arithmetic<{name.upper()}, {R}>({', '.join('abc'[:count])})")
        value(f"rcp.{r}.{t}", t, t, f"arithmetic<DIV, {R}>(({CPP[t]})1, a)")
    value(f"abs.{t}", t, t, "std::fabs(a)")
    value(f"neg.{t}", t, t, "negate(a)")
    value(f"min.{t}", t, f"{t} {t}", "minimum(a, b)")
    value(f"max.{t}", t, f"{t} {t}", "maximum(a, b)")
    value(f"copysign.{t}", t, f"{t} {t}", "std::copysign(b, a)")
value("min.NaN.f32", "f32", "f32 f32", "unordered(a, b) ? canonical(a + b) : minimum(a, b)")
value("max.NaN.f32", "f32", "f32 f32", "unordered(a, b) ? canonical(a + b) : maximum(a, b)")

# ---- choices ----
for t in U + S + B + FLOATS:
    value(f"selp.{t}", t, f"{t} {t} pred", "c ? a : b")
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMBINE = {"and": "&", "or": "|", "xor": "^"}


def comparisons(t):
    if t in B:
        names = ("eq", "ne")
    elif t in FLOATS:
        names = tuple(COMPARE) + tuple(n + "u" for n in COMPARE) + ("num", "nan")
    else:
        names = tuple(COMPARE)
    for name in names:
        if name in COMPARE:
            both = " && !unordered(a, b)" if t in FLOATS and name == "ne" else ""
            yield name, f"a {COMPARE[name]} b{both}"
        elif name in ("num", "nan"):
            yield name, {"num": "!unordered(a, b)", "nan": "unordered(a, b)"}[name]
        else:
            yield name, f"a {COMPARE[name[:-1]]} b || unordered(a, b)"


for t in U + S + B + FLOATS:
    for name, expression in comparisons(t):
        value(f"setp.{name}.{t}", "pred", f"{t} {t}", expression)
        for join, sign in COMBINE.items():
            value(f"setp.{name}.{join}.{t}", "pred", f"{t} {t} pred", f"({expression}) {sign} c")

# ---- conversions ----
INTS = ("u8", "s8") + U + S


def holds(to, source):
    """Whether every number of one integer type is one of the other's: then .sat is no modifier."""
    if to[0] == source[0]:
        return int(to[1:]) >= int(source[1:])
    return to[0] == "s" and int(to[1:]) > int(source[1:])


for to in INTS:
    for source in INTS:
        value(f"cvt.{to}.{source}", to, source, f"({CPP[to]})a")
        if not holds(to, source):
            value(f"cvt.sat.{to}.{source}", to, source, f"saturate<{CPP[to]}>(a)")
for t in FLOATS:
    for r, R in ROUND.items():
        for i in INTS:
            value(f"cvt.{r}.{t}.{i}", t, i, f"from_integer<{CPP[t]}, {R}>(a)")
        for i in U + S:
            value(f"cvt.{r}i.{i}.{t}", i, t, f"to_integer<{CPP[i]}, {R}>(a)")
        value(f"cvt.{r}i.{t}.{t}", t, t, f"to_integral<{R}>(a)")
for r, R in ROUND.items():
    value(f"cvt.{r}.f32.f64", "f32", "f64", f"narrow<{R}>(a)")
value("cvt.f64.f32", "f64", "f32", "canonical((double)a)")
value("cvt.sat.f32.f32", "f32", "f32", "unit_interval(a)")
for h in ("f16", "bf16"):
    value(f"cvt.rn.{h}.f32", h, "f32", f"(uint16_t)to_small({h}_small, a)")
    value(f"cvt.f32.{h}", "f32", h, f"canonical((float)from_small({h}_small, a))")
    value(f"cvt.rn.{h}x2.f32", "b32", "f32 f32", f"pack16({h}_small, a, b)")
value("cvt.rn.f16.f64", "f16", "f64", "(uint16_t)to_small(f16_small, a)")
value("cvt.f64.f16", "f64", "f16", "canonical(from_small(f16_small, a))")
for h in ("e4m3", "e5m2"):
    value(f"cvt.rn.satfinite.{h}x2.f32", "b16", "f32 f32", f"pack8({h}_small, a, b)")

# ---- names that translate.py writes out itself ----
REGISTERS = U + S + B + FLOATS
VECTORS = {"": 1, "v2": 2, "v4": 4}
SPACES = {"": "GENERIC", "global": "GLOBAL", "shared": "SHARED", "local": "LOCAL"}
MEMORY_TYPES = ("u8", "s8", "b8") + REGISTERS
Move = namedtuple("Move", "verb space vector type")
Atomic = namedtuple("Atomic", "verb space operation type")
MOVES = {}


def size(t):
    return 1 if t == "pred" else int(t[1:]) // 8


def join(*parts):
    return ".".join(p for p in parts if p)


for vector, count in VECTORS.items():
    for t in MEMORY_TYPES:
        if count * size(t) > 16:
            continue
        for s in tuple(SPACES) + ("const", "param"):
            MOVES[join("ld", s, vector, t)] = Move("ld", s, vector, t)
            if s != "const":
                MOVES[join("st", s, vector, t)] = Move("st", s, vector, t)
        MOVES[join("ld.global.nc", vector, t)] = Move("ld", "global", vector, t)

# No float: their sums depend on the order, and f32 ones flush subnormals in global memory only.
ATOMICS = {"add": ("u32", "s32", "u64"), "min": ("u32", "s32", "u64", "s64"),
           "max": ("u32", "s32", "u64", "s64"), "and": ("b32", "b64"), "or": ("b32", "b64"),
           "xor": ("b32", "b64"), "exch": ("b32", "b64"), "cas": ("b32", "b64"),
           "inc": ("u32",), "dec": ("u32",)}
for s in ("", "global", "shared"):
    for operation, types in ATOMICS.items():
        for t in types:
            name = join("atom", s, operation, t)
            MOVES[name] = Atomic("atom", s, operation, t)
            if operation == "cas":  # nvcc's spelling from sm_100 on
                MOVES[join("atom.relaxed", s, operation, t)] = Atomic("atom", s, operation, t)
            if operation not in ("exch", "cas"):
                MOVES["red" + name[4:]] = Atomic("red", s, operation, t)

MOV = tuple("mov." + t for t in REGISTERS + ("pred",))
CONTROL = set(MOV) | {
    "cvta.to.global.u64", "cvta.global.u64", "cvta.to.shared.u64", "cvta.shared.u64",
    "cvta.to.local.u64", "cvta.local.u64", "cvta.to.const.u64", "cvta.const.u64",
    "bra", "bra.uni", "brx.idx", "brx.idx.uni", "call", "call.uni", "ret", "ret.uni", "exit", "trap",
    "bar.sync", "bar.red.popc.u32", "bar.red.or.pred", "bar.red.and.pred", "bar.warp.sync",
    "shfl.sync.up.b32", "shfl.sync.down.b32", "shfl.sync.bfly.b32", "shfl.sync.idx.b32",
    "vote.sync.ballot.b32", "vote.sync.any.pred", "vote.sync.all.pred",
    "membar.cta", "membar.gl", "membar.sys", "fence.acq_rel.gpu"}


def known():
    """All names, sorted."""
    return sorted(set(VALUES) | set(MOVES) | CONTROL)


if __name__ == "__main__":
    print("\n".join(known()))
