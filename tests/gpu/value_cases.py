"""The test kernels and operands of the instructions that only compute (opcodes.VALUES): one kernel
per instruction, one lane per tuple of operands, all judged by oracle.py."""

import random

import opcodes
import oracle

COUNT = 400  # tuples per instruction
EDGES = {
    8: [0, 1, 0x7F, 0x80, 0xFF], 16: [0, 1, 2, 15, 16, 17, 0x7F, 0x80, 0x7FFF, 0x8000, 0xFFFF],
    32: [0, 1, 2, 31, 32, 33, 255, 256, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF],
    64: [0, 1, 63, 64, 65, 1 << 31, 1 << 32, (1 << 53) + 1, (1 << 63) - 1, 1 << 63,
         (1 << 64) - 1, (1 << 24) + 1, 0x8000008000000001]}
F32 = [0, 1, 2, 0x007FFFFF, 0x00800000, 0x00800001, 0x33800000, 0x3EFFFFFF, 0x3F000000, 0x3F000001,
       0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FC00000, 0x40000000, 0x40200000, 0x40400000,
       0x43E80000, 0x43E80001, 0x477FE000, 0x477FF000, 0x4B000001, 0x4EFFFFFF, 0x4F000000,
       0x4F800000, 0x5F000000, 0x5F7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC01234]
F64 = [0, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x36A0000000000000, 0x380FFFFFE0000000,
       0x3690000000000000, 0x3690000000000001, 0x3E60000000000000, 0x3FDFFFFFFFFFFFFF,
       0x3FE0000000000000, 0x3FF0000000000000, 0x3FF0000010000000, 0x3FF0000030000000,
       0x3FF0000010000001, 0x4004000000000000, 0x40EFFFFFFFFFFFFF, 0x41DFFFFFFFC00000,
       0x41E0000000000000, 0x43E0000000000000, 0x47EFFFFFEFFFFFFF, 0x47EFFFFFF0000000,
       0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF8000000000000, 0x7FF0000000000001]
# Every pair of these is an operand pair: both zeros, ones, largest, smallest, infinities, NaN.
CORE = {"f32": [0, 1, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC01234],
        "f64": [0, 1, 0x3FF0000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000,
                0x7FF8000000000001]}
for t, list_ in CORE.items():
    CORE[t] = list_ + [x | 1 << oracle.width(t) - 1 for x in list_]


def draw(t, random_):
    """Bits of a random operand of type t: an edge, or any bits with some of its top cleared."""
    bits = 16 if t in ("f16", "bf16") else oracle.width(t)
    if t == "pred":
        return random_.getrandbits(1)
    if t in ("f32", "f64"):
        edge = random_.choice(F32 if t == "f32" else F64) | random_.getrandbits(1) << (bits - 1)
        if random_.random() < 0.5:
            return edge
        if random_.random() < 0.6:  # near 1, where sums cancel and products tie
            p = oracle.FORMATS[t][0] - 1
            bias = (1 << (bits - p - 2)) - 1
            m = random_.getrandbits(p) & random_.choice([-1, -1 << p // 2])
            m &= (1 << p) - 1
            return random_.getrandbits(1) << bits - 1 | (bias + random_.randint(-3, 34)) << p | m
        return random_.getrandbits(bits)
    if random_.random() < 0.4:
        return random_.choice(EDGES[bits])
    return random_.getrandbits(bits) >> random_.choice([0, 0, bits // 2, bits - 5])


def tuples(name, immediate=None):
    v = opcodes.VALUES[name]
    random_ = random.Random(name)
    rows = []
    for i in range(COUNT):
        row = [draw(t, random_) for t in v.operands]
        if name.startswith(("bfe", "bfi.", "shf", "shl", "shr", "fns")) and i % 4:
            row[-1] = random_.randrange(70)
            if name.startswith(("bfe", "bfi.")):
                row[-2] = random_.randrange(70)
            if name.startswith("fns"):
                row[1:] = [random_.randrange(34), random_.randrange(-9, 10) & 0xFFFFFFFF]
        if len(row) > 1 and v.operands[0] in CORE and i < 144:
            core = CORE[v.operands[0]]
            row[:2] = [core[i // 12], core[i % 12]]
            if v.operands[2:] == v.operands[:1]:
                row[2] = random_.choice(core)
        elif i % 5 == 0 and len(row) > 1 and v.operands[0] == v.operands[1]:
            row[1] = row[0]
        if immediate is not None:
            row[-1] = immediate
        rows.append(row)
    return rows


REGISTER = {"pred": "pred", "f32": "f32", "f64": "f64", "f16": "b16", "bf16": "b16"}


def register_type(t):
    return REGISTER.get(t) or f"b{max(16, oracle.width(t))}"


def kernel(label, name, immediate=None):
    """PTX: out[i] = name(a[i], b[i], c[i], d[i]) over slots of 8 bytes, i < n."""
    v = opcodes.VALUES[name]
    types = list(v.operands)
    lines = [f".visible .entry {label}(.param .u64 p_out, .param .u64 p_a, .param .u64 p_b,",
             "    .param .u64 p_c, .param .u64 p_d, .param .u32 p_n)", "{",
             "    .reg .pred %out_of; .reg .b32 %i, %n, %t, %base; .reg .b64 %at, %step;",
             "    mov.u32 %i, %tid.x; mov.u32 %base, %ctaid.x; mov.u32 %t, %ntid.x;",
             "    mad.lo.s32 %i, %base, %t, %i;", "    ld.param.u32 %n, [p_n];",
             "    setp.ge.u32 %out_of, %i, %n;", "    @%out_of ret;",
             "    mul.wide.u32 %step, %i, 8;"]
    for letter, t in zip("abcd", types):
        r = register_type(t)
        lines.append(f"    .reg .{r} %{letter};")
        if letter == "d" and immediate is not None:
            continue
        lines.append(f"    ld.param.u64 %at, [p_{letter}]; add.s64 %at, %at, %step;")
        if t == "pred":
            lines.append(f"    ld.global.u32 %t, [%at]; setp.ne.u32 %{letter}, %t, 0;")
        else:
            lines.append(f"    ld.global.{r} %{letter}, [%at];")
    r = register_type(v.result)
    operands = [f"%{letter}" for letter, _ in zip("abcd", types)]
    if immediate is not None:
        operands[-1] = str(immediate)
    lines += [f"    .reg .{r} %out;", "    ld.param.u64 %at, [p_out]; add.s64 %at, %at, %step;",
              f"    {name} %out, {', '.join(operands)};"]
    if r == "pred":
        lines.append("    selp.u32 %t, 1, 0, %out; st.global.u32 [%at], %t;")
    else:
        lines.append(f"    st.global.{r} [%at], %out;")
    return "\n".join(lines + ["    ret;", "}", ""])


def cases():
    """(label, instruction, immediate) of every kernel."""
    for i, name in enumerate(sorted(opcodes.VALUES)):
        if name == "lop3.b32":  # its table is part of the instruction
            for table in (0x96, 0xE8, 0xCA, 0xFE, 0x80, 0x01, 0xF0, 0x1B):
                yield f"value_{i}_{table}", name, table
        else:
            yield f"value_{i}", name, None


def ptx():
    return "".join(kernel(*case) for case in cases())


def check(machine):
    """Runs all; yields the names that are right, and prints what is wrong."""
    for label, name, immediate in cases():
        rows = tuples(name, immediate)
        columns = list(zip(*rows)) + [[0]] * (4 - len(rows[0]))
        found = machine.run(label, len(rows), columns, [len(rows)])
        v = opcodes.VALUES[name]
        bits = 1 if v.result == "pred" else max(16, oracle.width(v.result)) \
            if v.result not in ("f16", "bf16") else 16
        n_bad = 0
        for row, got in zip(rows, found):
            want = oracle.answer(name, row)
            got &= (1 << bits) - 1
            is_same = oracle.decode(got, v.result)[0] == "nan" if want is None else got == want
            if not is_same:
                n_bad += 1
                if n_bad == 1:
                    print(f"{name}({', '.join(hex(x) for x in row)}) is {got:#x}, not "
                          f"{'NaN' if want is None else hex(want)}")
        if n_bad:
            print(f"{name}: {n_bad} of {len(rows)} wrong")
        else:
            yield name
