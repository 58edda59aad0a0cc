"""Translates the PTX that nvcc wrote into C++ that the emulator runs: one C++ function per PTX
function, one variable per register, gotos for branches.

    translate.py kernel.ptx kernel.cpp

What it does not know, by opcode, modifier, directive or operand, it refuses with the line; nothing
is skipped. opcodes.py lists what it knows.
"""

import re
import sys

import opcodes
import ptx
from ptx import PtxError

RAW = {"pred": "bool"}
for kind in "bsu":
    for bits in ("8", "16", "32", "64"):
        RAW[kind + bits] = f"uint{bits}_t"
RAW.update({"f32": "uint32_t", "f64": "uint64_t"})

SPECIAL = {"%laneid": "(self->number & 31)", "%warpid": "(self->number >> 5)", "WARP_SZ": "32u",
           "%lanemask_eq": "(1u << (self->number & 31))",
           "%lanemask_lt": "((1u << (self->number & 31)) - 1u)",
           "%lanemask_ge": "(~0u << (self->number & 31))",
           "%lanemask_le": "(~(~1u << (self->number & 31)))",
           "%lanemask_gt": "(~1u << (self->number & 31))"}
for short, member in (("tid", "thread"), ("ntid", "threads"), ("ctaid", "block"),
                      ("nctaid", "blocks")):
    for axis in "xyz":
        SPECIAL[f"%{short}.{axis}"] = f"self->{member}.{axis}"

ATOMIC = {"add": "add(old, b)", "min": "old < b ? old : b", "max": "old > b ? old : b",
          "and": "old & b", "or": "old | b", "xor": "old ^ b", "exch": "b",
          "cas": "old == b ? c : old", "inc": "old >= b ? 0 : old + 1",
          "dec": "old == 0 || old > b ? b : old - 1"}


def ident(name):
    return re.sub(r"\W", "_", name)


def width(t):
    return 1 if t == "pred" else int(re.sub(r"\D", "", t)) // 8


def bytes_of(v):
    """The memory image of a module variable."""
    size = width(v.type)
    image = bytearray(size * v.count)
    items = ptx.split(v.initial.strip("{} \n")) if v.initial else []
    for i, item in enumerate(items):
        item = item.strip("{} \n")
        if re.fullmatch(r"0[fFdD][0-9A-Fa-f]+", item):
            number = int(item[2:], 16)
        elif re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)U?", item):
            number = int(item.rstrip("U"), 0)
        else:
            raise PtxError(v.line, f"initial value not known: {item[:60]}")
        image[i * size:(i + 1) * size] = (number % (1 << 8 * size)).to_bytes(size, "little")
    return image


class Translator:
    def __init__(self, module):
        self.module = module
        self.out = []
        self.functions = {f.name: f for f in module.functions}
        self.globals, self.shared, self.shared_size = {}, {}, 0
        for v in module.variables:
            if v.space == "shared":
                self.place_shared(v)
            elif v.count == 0:
                raise PtxError(v.line, f"external variable {v.name}")
            else:
                self.globals[v.name] = v

    def place_shared(self, v):
        """Static shared memory in the order of declaration; external arrays lie behind it."""
        if v.count == 0:
            self.shared[v.name] = "self->dynamic_offset"
            return
        alignment = v.alignment or width(v.type)
        self.shared_size = -(-self.shared_size // alignment) * alignment
        self.shared[v.name] = f"{self.shared_size}u"
        self.shared_size += v.count * width(v.type)

    # ---- operands ----
    def register(self, name, line):
        if name in self.pointers:
            raise PtxError(line, f"{name} is the address of a parameter, which only loads may use")
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise PtxError(line, f"operand not known: {name}")

    def symbol(self, text):
        """The address of a variable, or None."""
        m = re.fullmatch(r"([\w$]+)(?:\+(\d+))?", text)
        if not m:
            return None
        name, offset = m.group(1), int(m.group(2) or 0)
        if name in self.locals:
            return f"(local_frame.base() + {self.locals[name] + offset}u)"
        if name in self.shared:
            return f"(shared_start + {self.shared[name]} + {offset}u)"
        if name in self.globals:
            return f"((uint64_t)(uintptr_t)g_{ident(name)} + {offset}u)"
        return None

    def value(self, text, t, line, is_relaxed=False):
        """An operand as a C++ expression of PTX type t."""
        c = opcodes.CPP[t]
        if t == "pred":
            if text in ("1", "-1", "0"):
                return "false" if text == "0" else "true"
            name, raw = self.register(text.lstrip("!"), line)
            if raw != "bool":
                raise PtxError(line, f"not a predicate: {text}")
            return "!" + name if text.startswith("!") else name
        if text in SPECIAL:
            return f"({c}){SPECIAL[text]}"
        m = re.fullmatch(r"0([fF])([0-9A-Fa-f]{8})|0([dD])([0-9A-Fa-f]{16})", text)
        if m:
            raw = f"0x{m.group(2)}u" if m.group(1) else f"0x{m.group(4)}ull"
            if 8 * width(t) != (32 if m.group(1) else 64):
                raise PtxError(line, f"literal {text} for .{t}")
            return f"bits_as<{c}>({raw})"
        if re.fullmatch(r"-?\d+U?|0[xX][0-9A-Fa-f]+U?", text) and t[0] != "f":
            number = int(text.rstrip("U"), 0) % (1 << 64)
            return f"({c}){number}ull"
        address = self.symbol(text)
        if address and t in ("u32", "u64", "b32", "b64"):
            return f"({c}){address}"
        name, raw = self.register(text, line)
        bits = 1 if raw == "bool" else int(re.sub(r"\D", "", raw))
        if bits != 8 * width(t) and not (is_relaxed and bits > 8 * width(t)):
            raise PtxError(line, f"register {text} has {bits} bits, .{t} has {8 * width(t)}")
        return f"from_register<{c}>({name})"

    def assign(self, text, t, expression, line, is_relaxed=False):
        """A statement that writes an expression of type t to a register; "_" takes anything."""
        if text == "_":
            return f"(void)({expression});"
        name, raw = self.register(text, line)
        bits = 1 if raw == "bool" else int(re.sub(r"\D", "", raw))
        if (raw == "bool") != (t == "pred") or bits < 8 * width(t) and t != "pred" or \
                t != "pred" and bits > 8 * width(t) and not is_relaxed:
            raise PtxError(line, f"register {text} cannot take .{t}")
        return f"{name} = to_register<{raw}>(({opcodes.CPP[t]})({expression}));"

    def address(self, text, line):
        """[base], [base+offset] as a C++ expression of 64 bits."""
        m = re.fullmatch(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]", text)
        if not m:
            raise PtxError(line, f"address not understood: {text}")
        base, offset = m.group(1), int(m.group(2) or 0)
        symbol = self.symbol(base)
        if not symbol:
            name, raw = self.register(base, line)
            symbol = f"(uint64_t){name}"
            if raw == "uint32_t":  # offsets in shared memory wrap at 32 bits
                return f"(uint64_t)(uint32_t)({name} + {offset % (1 << 32)}u)"
        return f"{symbol} + {offset % (1 << 64)}ull"

    def find_pointers(self, f):
        """Registers that hold a place in a parameter: moved from its name, or a number further."""
        writes = {}
        for s in f.body:
            if s.kind == "instruction" and s.operands:
                writes.setdefault(s.operands[0], []).append(s)
        self.pointers = {}
        for s in f.body:
            if s.kind != "instruction" or len(writes.get((s.operands or [""])[0], ())) != 1:
                continue
            if s.name in ("mov.b64", "mov.u64") and s.operands[1] in self.parameters:
                self.pointers[s.operands[0]] = s.operands[1], 0
            elif s.name == "add.s64" and s.operands[1] in self.pointers and \
                    re.fullmatch(r"-?\d+", s.operands[2]):
                name, offset = self.pointers[s.operands[1]]
                self.pointers[s.operands[0]] = name, offset + int(s.operands[2])

    def parameter(self, text, size, line):
        m = re.fullmatch(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]", text)
        name, offset = self.pointers.get(m.group(1), (m.group(1), 0)) if m else ("", 0)
        if name not in self.parameters:
            raise PtxError(line, f"parameter address not understood: {text}")
        offset += int(m.group(2) or 0)
        if not 0 <= offset <= self.parameters[name] - size:
            raise PtxError(line, f"outside of the parameter: {text}")
        return f"P_{ident(name)} + {offset}"

    # ---- instructions ----
    def compute(self, s):
        v = opcodes.VALUES[s.name]
        if len(s.operands) != 1 + len(v.operands):
            raise PtxError(s.line, f"{s.name}: {len(s.operands)} operands")
        is_relaxed = s.name.startswith("cvt.")
        text = "".join(
            f"const {opcodes.CPP[t]} {letter} = {self.value(o, t, s.line, is_relaxed)}; "
            for letter, t, o in zip("abcd", v.operands, s.operands[1:]))
        return text + self.assign(s.operands[0], v.result, v.expression, s.line, is_relaxed)

    def elements(self, text, vector, s):
        count = opcodes.VECTORS[vector]
        names = ptx.split(text[1:-1]) if text.startswith("{") else [text]
        if len(names) != count or text.startswith("{") != (count > 1):
            raise PtxError(s.line, f"{s.name}: operand {text}")
        return names

    def move(self, s):
        m = opcodes.MOVES[s.name]
        if isinstance(m, opcodes.Atomic):
            return self.atomic(s, m)
        if len(s.operands) != 2:
            raise PtxError(s.line, f"{s.name}: {len(s.operands)} operands")
        register, address = s.operands if m.verb == "ld" else s.operands[::-1]
        names, size = self.elements(register, m.vector, s), width(m.type)
        total = size * len(names)
        if m.space == "param":
            where = self.parameter(address, total, s.line)
        else:
            space = "CONSTANT" if m.space == "const" else opcodes.SPACES[m.space]
            where = (f"touch({space}, {self.address(address, s.line)}, {total}, {total}, "
                     f"{'READ' if m.verb == 'ld' else 'WRITE'}, {s.line})")
        c = opcodes.CPP[m.type]
        if m.verb == "ld":
            return f"const uint8_t *const p = {where}; " + " ".join(
                self.assign(n, m.type, f"read<{c}>(p + {i * size})", s.line, True)
                for i, n in enumerate(names))
        return f"uint8_t *const p = {where}; " + " ".join(
            f"write<{c}>(p + {i * size}, {self.value(n, m.type, s.line, True)});"
            for i, n in enumerate(names))

    def atomic(self, s, m):
        operands = list(s.operands) if m.verb == "atom" else ["_"] + s.operands
        if len(operands) != (4 if m.operation == "cas" else 3):
            raise PtxError(s.line, f"{s.name}: {len(s.operands)} operands")
        c = opcodes.CPP[m.type]
        text = "".join(f"const {c} {letter} = {self.value(o, m.type, s.line)}; "
                       for letter, o in zip("bc", operands[2:]))
        call = (f"atomic<{c}>({opcodes.SPACES[m.space]}, {self.address(operands[1], s.line)}, "
                f"{s.line}, [&]({c} old) {{ (void)old; return ({c})({ATOMIC[m.operation]}); }})")
        return text + self.assign(operands[0], m.type, call, s.line)

    def mov(self, s):
        t = s.name[4:]
        to, source = s.operands
        if to.startswith("{") or source.startswith("{"):
            names = ptx.split((to if to.startswith("{") else source)[1:-1])
            part = width(t) // len(names)
            p = f"b{8 * part}"
            if part * len(names) != width(t):
                raise PtxError(s.line, f"{s.name}: {len(names)} parts")
            if to.startswith("{"):
                text = f"const uint64_t whole = {self.value(source, t, s.line)}; "
                return text + " ".join(
                    "" if n == "_" else self.assign(n, p, f"whole >> {8 * part * i}", s.line)
                    for i, n in enumerate(names))
            whole = " | ".join(f"(uint64_t){self.value(n, p, s.line)} << {8 * part * i}"
                               for i, n in enumerate(names))
            return self.assign(to, t, whole, s.line)
        return self.assign(to, t, self.value(source, t, s.line), s.line)

    def call(self, s):
        results = ptx.split(s.operands[0][1:-1]) if s.operands[0].startswith("(") else []
        rest = s.operands[1:] if results or s.operands[0] == "()" else s.operands
        arguments = ptx.split(rest[1][1:-1]) if len(rest) > 1 else []
        f = self.functions.get(rest[0])
        if not f or f.is_entry or len(rest) > 2:
            raise PtxError(s.line, f"call of {rest[0]}, which is not in this file")
        formal = f.results + f.parameters
        if len(results) != len(f.results) or len(arguments) != len(f.parameters):
            raise PtxError(s.line, f"call of {rest[0]} with other parameters than its own")
        for name, v in zip(results + arguments, formal):
            if self.parameters.get(name) != v.count * width(v.type):
                raise PtxError(s.line, f"call of {rest[0]}: parameter {name}")
        names = ", ".join(f"P_{ident(n)}" for n in results + arguments)
        return f"f_{ident(rest[0])}({names});"

    def control(self, s):
        name, o, line = s.name, s.operands, s.line
        if name.startswith("mov."):
            return self.mov(s)
        if name.startswith("cvta."):
            tag = {"shared": "shared_tag", "local": "local_tag"}.get(
                name.split(".")[-2], "(uint64_t)0")
            sign = "-" if ".to." in name else "+"
            return self.assign(o[0], "u64", f"{self.value(o[1], 'u64', line)} {sign} {tag}", line)
        if name in ("bra", "bra.uni"):
            return f"goto L_{ident(o[0])};"
        if name.startswith("brx.idx"):
            cases = " ".join(f"case {i}: goto L_{ident(t)};" for i, t in enumerate(self.targets[o[1]]))
            return (f"switch ({self.value(o[0], 'u32', line)}) {{ {cases} "
                    f"default: fault({line}, \"brx.idx past its targets\"); }}")
        if name.startswith("call"):
            return self.call(s)
        if name in ("ret", "ret.uni", "exit"):
            if name == "exit" and not self.function.is_entry:
                raise PtxError(line, "exit in a function that is called")
            return "return;"
        if name == "trap":
            return f'fault({line}, "trap");'
        if name.startswith("bar.") and name != "bar.warp.sync":
            ids = o[0] if name == "bar.sync" else o[1]
            if ids != "0" or len(o) != (1 if name == "bar.sync" else 3):
                raise PtxError(line, f"{name}: only barrier 0 of all threads")
            if name == "bar.sync":
                return f"barrier(false, {line});"
            votes = f"barrier({self.value(o[2], 'pred', line)}, {line})"
            if name == "bar.red.popc.u32":
                return self.assign(o[0], "u32", votes, line)
            all_of = "== self->threads.x * self->threads.y * self->threads.z"
            test = "!= 0" if name == "bar.red.or.pred" else all_of
            return self.assign(o[0], "pred", f"{votes} {test}", line)
        if name == "bar.warp.sync":
            return f"meet(SYNCWARP, {self.value(o[0], 'b32', line)}, 0, 0, {line});"
        if name.startswith("shfl."):
            mode = {"up": "UP", "down": "DOWN", "bfly": "BUTTERFLY", "idx": "INDEX"}[name.split(".")[2]]
            d = o[0].split("|")
            a = ", ".join(self.value(x, "b32", line) for x in o[1:5])
            text = f"bool inside; const uint32_t v = shuffled({mode}, &inside, {a}, {line}); "
            text += self.assign(d[0], "b32", "v", line)
            return text + (self.assign(d[1], "pred", "inside", line) if len(d) > 1 else "")
        if name.startswith("vote."):
            p, mask = self.value(o[1], "pred", line), self.value(o[2], "b32", line)
            text = f"const uint32_t mask = {mask}, v = meet(BALLOT, mask, {p}, 0, {line}); "
            result = {"ballot": "v", "any": "v != 0", "all": "v == mask"}[name.split(".")[2]]
            return text + self.assign(o[0], "b32" if result == "v" else "pred", result, line)
        if name in ("membar.gl", "membar.sys", "fence.acq_rel.gpu"):
            return "self->has_fenced = true;"
        assert name == "membar.cta", name
        return ";"  # lanes see each other's writes at once

    def statement(self, s):
        if s.kind == "open":
            self.scopes.append({})
            return "{"
        if s.kind == "close":
            self.scopes.pop()
            return "}"
        if s.kind == "label":
            return f"L_{ident(s.name)}:;"
        if s.kind == "targets":
            return ""
        if s.kind == "directive":
            return self.directive(s)
        if s.operands and s.operands[0] in self.pointers:
            return ""  # loads know where it points
        if s.name in opcodes.VALUES:
            text = self.compute(s)
        elif s.name in opcodes.MOVES:
            text = self.move(s)
        elif s.name in opcodes.CONTROL:
            text = self.control(s)
        else:
            raise PtxError(s.line, f"instruction not known: {s.name}")
        guard = f"if ({self.value(s.guard, 'pred', s.line)}) " if s.guard else ""
        return f"{guard}{{ {text} }}"

    def directive(self, s):
        word = s.name.split()[0]
        if word in (".loc", ".pragma"):
            return ""
        if word == ".reg":
            m = re.match(r"\.reg\s+\.(\w+)\s+(.*)$", s.name, re.S)
            if m.group(1) not in RAW:
                raise PtxError(s.line, f"register type not known: .{m.group(1)}")
            raw, names = RAW[m.group(1)], []
            for item in ptx.split(m.group(2)):
                many = re.fullmatch(r"([%\w$]+)<(\d+)>", item)
                names += [f"{many.group(1)}{k}" for k in range(int(many.group(2)))] if many else [item]
            for n in names:
                self.scopes[-1][n] = (f"R{len(self.scopes)}_{ident(n.lstrip('%'))}", raw)
            # Nobody may rely on what an instruction finds where none wrote: a large number, or a
            # place that there may be. Gotos may not pass a later initializer.
            garbage = "0xd5d5d5d5d5d5d5d5" if m.group(1)[0] == "f" else "33"
            first = f" = ({raw}){garbage}" if len(self.scopes) == 1 else ""
            return f"{raw} " + ", ".join(self.scopes[-1][n][0] + first for n in names) + ";"
        if word == ".param":
            v = ptx.variable(s.name, s.line)
            self.parameters[v.name] = v.count * width(v.type)
            return f"alignas(16) uint8_t P_{ident(v.name)}[{self.parameters[v.name]}];"
        if word in (".local", ".shared", ".extern", ".visible", ".global", ".const"):
            return ""  # placed before
        raise PtxError(s.line, f"directive not known: {word}")

    # ---- functions ----
    def signature(self, f):
        if f.is_entry:
            return f"static void k_{ident(f.name)}(uint8_t *const *parameters)"
        names = ", ".join(f"uint8_t *P_{ident(v.name)}" for v in f.results + f.parameters)
        return f"static void f_{ident(f.name)}({names})"

    def translate_function(self, f):
        self.function, self.scopes, self.locals, self.targets = f, [{}], {}, {}
        self.parameters = {v.name: v.count * width(v.type) for v in f.results + f.parameters}
        self.find_pointers(f)
        module_shared, module_size = dict(self.shared), self.shared_size
        local_size, label = 0, None
        for s in f.body:
            if s.kind == "targets":
                self.targets[label] = s.operands
            label = s.name if s.kind == "label" else None
            if s.kind == "directive" and s.name.startswith(".local"):
                v = ptx.variable(s.name, s.line)
                self.locals[v.name] = -(-local_size // 16) * 16
                local_size = self.locals[v.name] + v.count * width(v.type)
            elif s.kind == "directive" and s.name.startswith(".shared"):
                if not f.is_entry:
                    raise PtxError(s.line, "shared memory of a function that is called")
                self.place_shared(ptx.variable(s.name, s.line))
        out = [self.signature(f), "{"]
        if local_size:
            out.append(f"frame local_frame({local_size}, {f.line});")
        if f.is_entry:
            out += [f"const uint8_t *const P_{ident(v.name)} = parameters[{i}];"
                    for i, v in enumerate(f.parameters)]
        out += [self.statement(s) for s in f.body]
        out += ["}", ""]
        size, self.shared, self.shared_size = self.shared_size, module_shared, module_size
        return out, size

    def translate(self):
        out = ['#include "tests/gpu/machine.h"', '#include "tests/gpu/ops.h"', "namespace", "{",
               "using namespace gpu;"]
        for v in self.globals.values():
            image = ",".join(str(b) for b in bytes_of(v)) if v.initial else "0"
            out.append(f"alignas(16) uint8_t g_{ident(v.name)}[{width(v.type) * v.count}] = {{{image}}};")
        out += [self.signature(f) + ";" for f in self.module.functions]
        entries = []
        for f in self.module.functions:
            text, shared = self.translate_function(f)
            out += text
            if f.is_entry:
                sizes = ", ".join(str(v.count * width(v.type)) for v in f.parameters) or "0"
                out.append(f"const uint32_t s_{ident(f.name)}[] = {{{sizes}}};")
                entries.append(f'{{"{f.name}", k_{ident(f.name)}, {len(f.parameters)}, '
                               f"s_{ident(f.name)}, {shared}}},")
        out += ["const kernel kernels[] = {", *entries, "{}};", "const variable variables[] = {"]
        out += [f'{{"{v.name}", g_{ident(v.name)}, sizeof g_{ident(v.name)}, '
                f"{'true' if v.space == 'const' else 'false'}}}," for v in self.globals.values()]
        out += ["{}};", f"module registered({self.module.target}, kernels, {len(entries)}, variables, "
                f"{len(self.globals)});", "}"]
        return "\n".join(line for line in out if line is not None) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: translate.py INPUT.ptx OUTPUT.cpp")
    with open(sys.argv[1]) as f:
        source = f.read()
    try:
        text = Translator(ptx.parse(source)).translate()
    except PtxError as e:
        sys.exit(f"{sys.argv[1]}: {e}")
    with open(sys.argv[2], "w") as f:
        f.write(text)


if __name__ == "__main__":
    main()
