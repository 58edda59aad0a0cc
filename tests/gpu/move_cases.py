"""The test kernels of the instructions that move data and control (opcodes.MOVES, CONTROL): small
PTX programs with the answer worked out here. Every program gets `in`, 16 random bytes per lane, and
`out`, 16 bytes per lane that start as zeros; 64 lanes, one block."""

import random

import opcodes
import oracle

LANES = 64
HEAD = """.visible .entry {label}(.param .u64 p_out, .param .u64 p_in, .param .align 16 .b8 p_some[16])
{{
    .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %d<16>; .reg .f32 %f<8>;
    .reg .f64 %g<8>; .reg .b32 %t; .reg .b64 %in, %out, %at;
    mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 16;
    ld.param.u64 %in, [p_in]; add.s64 %in, %in, %at;
    ld.param.u64 %out, [p_out]; add.s64 %out, %out, %at;
{body}
    ret;
}}
"""
SOME = bytes(range(200, 216))
CONSTANTS = bytes(random.Random("constants").randrange(256) for _ in range(16 * LANES))
MODULE = f""".const .align 16 .b8 constants[{len(CONSTANTS)}] = {{{', '.join(map(str, CONSTANTS))}}};
.global .align 16 .b8 zeros[16];
.func (.param .align 16 .b8 result[16]) same(.param .align 16 .b8 given[16])
{{
    .reg .b64 %d<2>;
    ld.param.b64 %d0, [given]; ld.param.b64 %d1, [given+8];
    st.param.b64 [result], %d0; st.param.b64 [result+8], %d1;
    ret;
}}
"""


def inputs(label):
    random_ = random.Random(label)
    return [bytes(random_.randrange(256) for _ in range(16)) for _ in range(LANES)]


def register(t):
    """A register that can hold a loaded t: of 8 bits in one of 32, for the extension."""
    return {"f32": "f32", "f64": "f64"}.get(t) or f"b{max(32, oracle.width(t))}"


def names(t, count):
    letter = {"b32": "r", "b64": "d", "f32": "f", "f64": "g"}[register(t)]
    list_ = [f"%{letter}{i}" for i in range(count)]
    return list_, list_[0] if count == 1 else "{" + ", ".join(list_) + "}"


def bytes_to(place, source):
    """PTX that copies 16 bytes with instructions of b32."""
    load = "ld.param" if source == "p_some" else "ld.global"
    text = ""
    for i in range(4):
        text += f"    {load}.b32 %r{8 + i}, [{source}+{4 * i}]; {place.format(4 * i, f'%r{8 + i}')}\n"
    return text


SHARED = "    .shared .align 16 .b8 tile[1024]; mov.u32 %r15, tile; mad.lo.s32 %r15, %t, 16, %r15;\n"
LOCAL = "    .local .align 16 .b8 own[16]; mov.u64 %d15, own;\n"


def load_case(name, m):
    list_, operand = names(m.type, opcodes.VECTORS[m.vector])
    before, address = {
        "": ("", "%in"), "global": ("", "%in"),
        "const": ("    mov.u64 %d15, constants; add.s64 %d15, %d15, %at;\n", "%d15"),
        "param": ("    mov.b64 %d14, p_some; add.s64 %d15, %d14, 4;\n", "%d15+-4"),
        "shared": (SHARED + bytes_to("st.shared.b32 [%r15+{}], {};", "%in"), "%r15"),
        "local": (LOCAL + bytes_to("st.local.b32 [%d15+{}], {};", "%in"), "%d15")}[m.space]
    text = before + f"    {name} {operand}, [{address}];\n"
    held = register(m.type)
    step = oracle.width(held) // 8
    for i, n in enumerate(list_):
        text += f"    st.global.{held} [%out+{step * i}], {n};\n"

    def expect(data):
        answers = []
        for lane, own in enumerate(data):
            own = {"const": CONSTANTS[16 * lane:16 * lane + 16], "param": SOME}.get(m.space, own)
            size, out = oracle.width(m.type) // 8, b""
            for i in range(len(list_)):
                v = int.from_bytes(own[size * i:size * (i + 1)], "little", signed=m.type[0] == "s")
                out += (v % (1 << 8 * step)).to_bytes(step, "little")
            answers.append(out)
        return answers
    return text, expect


def store_case(name, m):
    count, size = opcodes.VECTORS[m.vector], oracle.width(m.type) // 8
    list_, operand = names(m.type, count)
    held = register(m.type)
    load = "".join(f"    ld.global.{held} {n}, [%in{'+' + str(size * i) if size >= 4 and i else ''}];\n"
                   for i, n in enumerate(list_))
    back = "".join("    {} %r{}, [{}+{}]; st.global.b32 [%out+{}], %r{};\n".format(
        "{load}", 8 + i, "{at}", 4 * i, 4 * i, 8 + i) for i in range(4))
    if m.space == "param":
        text = load + "    {\n    .param .align 16 .b8 given0[16]; .param .align 16 .b8 result0[16];\n"
        text += "".join(f"    st.param.b32 [given0+{4 * i}], 0;\n" for i in range(4))
        text += f"    {name} [given0], {operand};\n    call.uni (result0), same, (given0);\n"
        text += back.format(load="ld.param.b32", at="result0") + "    }\n"
    elif m.space in ("", "global"):
        text = load + f"    {name} [%out], {operand};\n"
    else:
        before, at = (SHARED, "%r15") if m.space == "shared" else (LOCAL, "%d15")
        zero = "".join(f"    st.{m.space}.b32 [{at}+{4 * i}], 0;\n" for i in range(4))
        text = before + zero + load + f"    {name} [{at}], {operand};\n"
        text += back.format(load=f"ld.{m.space}.b32", at=at)

    def expect(data):
        return [b"".join(own[size * i if size >= 4 else 0:][:size] for i in range(count)).ljust(16, b"\0")
                for own in data]
    return text, expect


def atomic_case(name, m):
    """All lanes meet at one place, in lane order; every one keeps the old value, or nothing."""
    size = oracle.width(m.type) // 8
    r, held = ("%r", "b32") if size == 4 else ("%d", "b64")
    text = f"    ld.global.{held} {r}1, [%in]; ld.global.{held} {r}2, [%in+8];\n"
    if m.operation in ("inc", "dec", "cas"):
        text += f"    and.{held} {r}1, {r}1, 3;\n" + (
            f"    and.{held} {r}2, {r}2, 3;\n" if m.operation == "cas" else "")
    if m.space == "shared":
        text += "    .shared .align 16 .b8 tile[16]; mov.u32 %r15, tile; setp.eq.s32 %p1, %t, 0;\n"
        text += "    @%p1 st.shared.b64 [%r15], 0;\n    bar.sync 0;\n"
        at = "%r15"
    else:
        text += "    mov.u64 %d15, zeros; setp.eq.s32 %p1, %t, 0;\n"
        text += "    @%p1 st.global.b64 [%d15], 0;\n    bar.sync 0;\n"
        at = "%d15"
    operands = f"{r}1, {r}2" if m.operation == "cas" else f"{r}1"
    if m.verb == "atom":
        text += f"    {name} {r}3, [{at}], {operands};\n    st.global.{held} [%out], {r}3;\n"
    else:
        text += f"    {name} [{at}], {operands};\n"
    text += f"    bar.sync 0;\n    ld.{'shared' if m.space == 'shared' else 'global'}.b64 %d4, [{at}];\n"
    text += "    st.global.b64 [%out+8], %d4;\n"

    def expect(data):
        place, answers = 0, []
        for own in data:
            b, c = (int.from_bytes(own[i:i + size], "little") for i in (0, 8))
            if m.operation in ("inc", "dec", "cas"):
                b, c = b & 3, c & 3
            n = oracle.number
            new = {"add": place + b, "min": min(n(place, m.type), n(b, m.type)),
                   "max": max(n(place, m.type), n(b, m.type)), "and": place & b, "or": place | b,
                   "xor": place ^ b, "exch": b, "cas": c if place == b else place,
                   "inc": 0 if place >= b else place + 1,
                   "dec": b if place == 0 or place > b else place - 1}[m.operation]
            answers.append(place if m.verb == "atom" else 0)
            place = new % (1 << 8 * size)
        return [a.to_bytes(8, "little") + place.to_bytes(8, "little") for a in answers]
    return text, expect


def words(data):
    return [int.from_bytes(own[:4], "little") for own in data]


def out32(list_):
    return [int(v).to_bytes(4, "little") for v in list_]


def mov_case(name):
    t = name[4:]
    if t == "pred":
        text = "    ld.global.b32 %r1, [%in]; setp.lt.s32 %p1, %r1, 0; mov.pred %p2, %p1;\n" \
               "    selp.u32 %r2, 1, 0, %p2; mov.pred %p3, -1; mov.pred %p4, 0;\n" \
               "    @%p3 add.u32 %r2, %r2, 2; @%p4 add.u32 %r2, %r2, 4; st.global.b32 [%out], %r2;\n"
        return text, lambda data: out32((w >> 31) + 2 for w in words(data))
    held = {"f32": "f32", "f64": "f64"}.get(t) or f"b{oracle.width(t)}"
    r = {"b16": "%h", "b32": "%r", "b64": "%d", "f32": "%f", "f64": "%g"}[held]
    size = oracle.width(t) // 8
    text = f"    ld.global.{held} {r}1, [%in]; {name} {r}2, {r}1; st.global.{held} [%out], {r}2;\n"
    # In two halves and back, swapped.
    half = {"b32": "%h", "b64": "%r"}.get(t)
    if half:
        text += f"    {name} {{{half}3, {half}4}}, {r}1; {name} {r}3, {{{half}4, {half}3}};\n"
        text += f"    st.global.{held} [%out+8], {r}3;\n"
    return text, lambda data: [
        own[:size].ljust(8, b"\0") + (own[size // 2:size] + own[:size // 2] if half else b"")
        for own in data]


def cases_by_hand():
    """Names -> (body, expected bytes per lane); one program may show several names."""
    def same32(data):
        return [own[:4] for own in data]
    load = "    ld.global.b32 %r1, [%in];\n"
    keep = "    st.global.b32 [%out], %r2;\n"
    p = load + "    setp.lt.s32 %p1, %r1, 0;\n"
    for space, place, to in (("shared", "tile", SHARED), ("local", "own", LOCAL)):
        at = "%r15" if space == "shared" else "%d15"
        wide = "    cvt.u64.u32 %d15, %r15;\n" if space == "shared" else ""
        yield (f"cvta.{space}.u64", f"cvta.to.{space}.u64"), load + to + wide + (
            f"    cvta.{space}.u64 %d14, %d15; st.b32 [%d14], %r1; ld.{space}.b32 %r3, [{at}];\n"
            f"    cvta.to.{space}.u64 %d13, %d14; ld.{space}.b32 %r2, [%d13];\n"
            "    xor.b32 %r3, %r3, %r1; add.u32 %r2, %r2, %r3;\n") + keep, same32
    yield ("cvta.global.u64", "cvta.to.global.u64"), (
        "    cvta.to.global.u64 %d1, %in; cvta.global.u64 %d2, %d1; ld.b32 %r2, [%d2];\n") + keep, same32
    yield ("cvta.const.u64", "cvta.to.const.u64"), (
        "    mov.u64 %d1, constants; add.s64 %d1, %d1, %at; cvta.const.u64 %d2, %d1;\n"
        "    cvta.to.const.u64 %d3, %d2; ld.const.b32 %r2, [%d3];\n") + keep, \
        lambda data: [CONSTANTS[16 * i:16 * i + 4] for i in range(LANES)]
    yield ("bra", "bra.uni"), p + (
        "    mov.u32 %r2, 1;\n    @!%p1 bra $skip;\n    mov.u32 %r2, 2;\n    bra.uni $skip;\n"
        "    mov.u32 %r2, 3;\n$skip:\n") + keep, lambda data: out32(1 + (w >> 31) for w in words(data))
    for name in ("brx.idx", "brx.idx.uni"):
        index = "%r3" if name == "brx.idx" else "%r4"
        yield (name,), load + (
            "    and.b32 %r3, %r1, 3; mov.u32 %r4, 2;\n    $table: .branchtargets $a, $b, $c, $a;\n"
            f"    {name} {index}, $table;\n$a:\n    mov.u32 %r2, 10;\n    bra.uni $end;\n"
            "$b:\n    mov.u32 %r2, 11;\n    bra.uni $end;\n$c:\n    mov.u32 %r2, 12;\n$end:\n") + keep, \
            (lambda data: out32((10, 11, 12, 10)[w & 3] for w in words(data))) \
            if name == "brx.idx" else (lambda data: out32([12] * LANES))
    for name in ("call", "call.uni"):
        yield (name,), load + (
            "    {\n    .param .align 16 .b8 given0[16]; .param .align 16 .b8 result0[16];\n"
            "    st.param.b32 [given0+12], %r1;\n"
            f"    {name} (result0), same, (given0);\n    ld.param.b32 %r2, [result0+12];\n    }}\n"
        ) + keep, same32
    for name in ("ret", "ret.uni", "exit"):
        guard = "" if name == "ret.uni" else "@%p1 "
        yield (name,), p + f"    {guard}{name};\n    mov.u32 %r2, 9;\n" + keep, (
            lambda data: [b""] * LANES) if name == "ret.uni" else (
            lambda data: out32(0 if w >> 31 else 9 for w in words(data)))
    swap = SHARED + load + "    st.shared.b32 [%r15], %r1;\n"
    yield ("bar.sync",), swap + (
        "    bar.sync 0;\n    mov.u32 %r3, tile; xor.b32 %r4, %t, 33; mad.lo.s32 %r4, %r4, 16, %r3;\n"
        "    ld.shared.b32 %r2, [%r4];\n") + keep, lambda data: [data[i ^ 33][:4] for i in range(LANES)]
    yield ("bar.warp.sync",), swap + (
        "    bar.warp.sync -1;\n    mov.u32 %r3, tile; xor.b32 %r4, %t, 5;\n"
        "    mad.lo.s32 %r4, %r4, 16, %r3; ld.shared.b32 %r2, [%r4];\n") + keep, \
        lambda data: [data[i ^ 5][:4] for i in range(LANES)]

    def count(data):
        return sum(w >> 31 for w in words(data))
    yield ("bar.red.popc.u32",), p + "    bar.red.popc.u32 %r2, 0, %p1;\n" + keep, \
        lambda data: out32([count(data)] * LANES)
    # Predicates that hold for: some lanes, no lane, all lanes.
    three = ("    setp.gt.u32 %p2, %t, 63; setp.lt.u32 %p3, %t, 64; mov.u32 %r2, 0;\n")
    add = "    selp.u32 %r3, {}, 0, %p4; add.u32 %r2, %r2, %r3;\n"
    for name, answer in (("bar.red.or.pred", 5), ("bar.red.and.pred", 4)):
        yield (name,), p + three + "".join(
            f"    {name} %p4, 0, %p{i + 1};\n" + add.format(1 << i) for i in range(3)) + keep, \
            lambda data, answer=answer: out32([answer] * LANES)
    for name, answer in (("vote.sync.any.pred", 5), ("vote.sync.all.pred", 4)):
        yield (name,), p + three + "".join(
            f"    {name} %p4, %p{i + 1}, -1;\n" + add.format(1 << i) for i in range(3)) + keep, \
            lambda data, answer=answer: out32([answer] * LANES)
    yield ("vote.sync.ballot.b32",), p + "    vote.sync.ballot.b32 %r2, !%p1, -1;\n" + keep, \
        lambda data: out32(sum((1 - (w >> 31)) << i for i, w in enumerate(words(data)[at:at + 32]))
                           for lane in range(LANES) for at in [lane & 32])
    # mode, clamp and segment mask for width 32 and 8, distance, source lane or none
    for mode, clamp, source in (
            ("up", 0, lambda i, by, w: i - by if i % w >= by else None),
            ("down", 31, lambda i, by, w: i + by if i % w + by < w else None),
            ("bfly", 31, lambda i, by, w: i ^ by if (i ^ by) // w <= i // w else None),
            ("idx", 31, lambda i, by, w: i // w * w + by % w)):
        text = load + "    mov.u32 %r2, 0;\n"
        tries = [(w, by) for w in (32, 8) for by in (1, 3, 7, 16)]
        for w, by in tries:
            c = (32 - w) << 8 | (clamp if mode == "up" else 31)
            text += f"    shfl.sync.{mode}.b32 %r3|%p1, %r1, {by}, {c}, -1;\n"
            text += "    @!%p1 add.u32 %r3, %r3, 1; mad.lo.s32 %r2, %r2, 31, %r3;\n".replace(
                "; mad", ";\n    mad")

        def expect(data, source=source, tries=tries):
            answers, all_words = [], words(data)
            for lane in range(LANES):
                total, i = 0, lane & 31
                for w, by in tries:
                    j = source(i, by, w)
                    v = all_words[lane & 32 | (i if j is None else j)] + (j is None)
                    total = (total * 31 + v) % (1 << 32)
                answers.append(total)
            return out32(answers)
        yield (f"shfl.sync.{mode}.b32",), text + keep, expect
    masks = "".join(f"    mov.u32 %r3, %lanemask_{m}; mad.lo.s32 %r2, %r2, 31, %r3;\n"
                    for m in ("eq", "lt", "le", "gt", "ge"))
    warp = "    mov.u32 %r3, %warpid; mad.lo.s32 %r2, %r2, 31, %r3; mov.u32 %r3, WARP_SZ;\n" \
           "    mad.lo.s32 %r2, %r2, 31, %r3;\n"

    def special(data):
        answers = []
        for lane in range(LANES):
            i, total = lane & 31, lane & 31
            for v in (1 << i, (1 << i) - 1, (2 << i) - 1, -1 << i + 1, -1 << i, lane >> 5, 32):
                total = (total * 31 + v) % (1 << 32)
            answers.append(total)
        return out32(answers)
    yield ("mov.u32",), "    mov.u32 %r2, %laneid;\n" + masks + warp + keep, special
    for name in ("membar.cta", "membar.gl", "membar.sys", "fence.acq_rel.gpu"):
        yield (name,), load + f"    {name};\n    mov.u32 %r2, %r1;\n" + keep, same32


def cases():
    """(label, names, body, expect)"""
    i = 0
    for name in sorted(opcodes.MOVES):
        m = opcodes.MOVES[name]
        make = atomic_case if isinstance(m, opcodes.Atomic) else load_case if m.verb == "ld" else store_case
        yield (f"move_{i}", (name,), *make(name, m))
        i += 1
    for name in opcodes.MOV:
        yield (f"move_{i}", (name,), *mov_case(name))
        i += 1
    for names_, text, expect in cases_by_hand():
        yield f"move_{i}", names_, text, expect
        i += 1


TRAP = HEAD.format(label="trap", body="    setp.eq.s32 %p1, %t, 3;\n    @%p1 trap;")


def ptx():
    programs = (HEAD.format(label=label, body=text) for label, _, text, _ in cases())
    return MODULE + "".join(programs) + TRAP


def check(machine):
    """Runs all; yields the names that are right, and prints what is wrong."""
    for label, names_, _, expect in cases():
        data = inputs(label)
        found = machine.run_bytes(label, data, SOME)
        if found is None:
            print(f"{names_}: {machine.message()}")
            continue
        wrong = [i for i, (got, want) in enumerate(zip(found, expect(data)))
                 if got != want.ljust(16, b"\0")]
        if wrong:
            i = wrong[0]
            print(f"{names_}: lane {i} of {len(wrong)} wrong: {data[i].hex()} gives {found[i].hex()}, "
                  f"not {expect(data)[i].hex()}")
        else:
            yield from names_
    if machine.run_bytes("trap", inputs("trap"), SOME) is None and "trap; block (0,0,0), thread (3,0,0)" \
            in machine.message():
        yield "trap"
    else:
        print(f"trap: {machine.message()}")
