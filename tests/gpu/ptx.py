"""Reads PTX text into functions of numbered statements, for translate.py and lint.py.

    module = ptx.parse(open("kernel.ptx").read())
    for f in module.functions:
        for s in f.body: print(s.line, s.guard, s.name, s.operands)
"""

import re
from dataclasses import dataclass, field


class PtxError(Exception):
    """Something this tool does not know, with its line."""

    def __init__(self, line, message):
        super().__init__(f"line {line}: {message}")


@dataclass
class Statement:
    line: int
    kind: str  # instruction, label, directive, targets, open, close
    name: str = ""  # opcode with modifiers, label, or directive text
    guard: str = ""  # "", "%p1" or "!%p1"
    operands: list = field(default_factory=list)


@dataclass
class Variable:
    line: int
    space: str  # global const shared local param
    alignment: int
    type: str
    name: str
    count: int = 1  # 0: extern array
    is_array: bool = False
    initial: str = ""


@dataclass
class Function:
    line: int
    is_entry: bool
    name: str
    results: list
    parameters: list
    body: list


@dataclass
class Module:
    target: int = 0
    variables: list = field(default_factory=list)
    functions: list = field(default_factory=list)


TYPES = {k + b for k in "bsu" for b in ("8", "16", "32", "64")} | {"f32", "f64"}
VARIABLE = re.compile(
    r"\.(global|const|shared|local|param)\s+(?:\.align\s+(\d+)\s+)?(?:\.attribute\([^)]*\)\s*)?"
    r"\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?([\w$]+)((?:\[\d*\])*)\s*(?:=\s*(.*))?$",
    re.S)


def variable(text, line):
    text = re.sub(r"^\s*(\.(visible|weak|extern|common)\s+)*", "", text).strip()
    m = VARIABLE.match(text)
    if not m or m.group(3) not in TYPES:
        raise PtxError(line, f"declaration not understood: {text[:80]}")
    space, alignment, kind, name, dimensions, initial = m.groups()
    count = 1
    for d in re.findall(r"\[(\d*)\]", dimensions):
        count *= int(d or 0)
    return Variable(line, space, int(alignment or 0), kind, name, count, bool(dimensions),
                    (initial or "").strip())


def split(text):
    """Operands at the top-level commas."""
    parts, depth, current = [], 0, ""
    for c in text:
        depth += (c in "{[(") - (c in "}])")
        if c == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += c
    if current.strip():
        parts.append(current.strip())
    return parts


def instruction(text, line):
    m = re.match(r"(?:@\s*(!?)\s*([%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)$", text, re.S)
    if not m:
        raise PtxError(line, f"statement not understood: {text[:80]}")
    negated, guard, name, rest = m.groups()
    return Statement(line, "instruction", name, (negated or "") + (guard or ""),
                     split(" ".join(rest.split())))


def body(text, line):
    """Statements of a function body; `line` is that of its first character."""
    statements, current, start = [], "", line
    i = 0
    while i < len(text):
        c = text[i]
        if not current.strip():
            start = line
        if c == "\n":
            line += 1
        if c in "{}" and not current.strip():
            statements.append(Statement(line, "open" if c == "{" else "close"))
            current = ""
        elif c == ":" and re.match(r"\s*[\w$]+$", current):
            statements.append(Statement(start, "label", current.strip()))
            current = ""
        elif c == ";":
            word = current.strip()
            if word.startswith(".branchtargets"):
                statements.append(Statement(start, "targets", "", "", split(word[14:])))
            elif word.startswith("."):
                statements.append(Statement(start, "directive", word))
            elif word:
                statements.append(instruction(word, start))
            current = ""
        else:
            current += c
        i += 1
    if current.strip():
        raise PtxError(start, f"statement without an end: {current.strip()[:80]}")
    return statements


def header(text, line):
    m = re.match(r"\s*((?:\.(?:visible|weak|extern|common)\s+)*)\.(entry|func)\s*(.*)$", text, re.S)
    rest, results = m.group(3), []
    if rest.startswith("("):
        inside, rest = rest[1:].split(")", 1)
        results = [variable(p, line) for p in split(inside)]
    m2 = re.match(r"\s*([\w$]+)\s*(?:\((.*?)\))?(.*)$", rest, re.S)
    parameters = [variable(p, line) for p in split(m2.group(2) or "")]
    for word in re.findall(r"\.\w+", m2.group(3)):
        if word not in (".maxntid", ".minnctapersm", ".reqntid", ".maxnreg", ".noreturn"):
            raise PtxError(line, f"directive not known: {word}")
    return Function(line, m.group(2) == "entry", m2.group(1), results, parameters, [])


def parse(source):
    # Comments become blanks, so that lines keep their numbers.
    source = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), source, flags=re.S)
    source = re.sub(r"//[^\n]*", "", source)
    # nvcc's -lineinfo: .loc ends with its line, sections of debug information with their brace.
    source = re.sub(r"(?m)^(\s*\.loc\s[^\n;]*)$", r"\1;", source)
    source = re.sub(r"\.section\s[^{;]*\{[^}]*\}", lambda m: re.sub(r"[^\n]", " ", m.group()), source)
    module, i, line = Module(), 0, 1
    while i < len(source):
        m = re.compile(r"\s*").match(source, i)
        line += m.group().count("\n")
        i = m.end()
        if i == len(source):
            break
        m = re.compile(r"\.(version|target|address_size|file)\b([^\n]*)").match(source, i)
        if m:
            if m.group(1) == "target":
                module.target = int(re.search(r"sm_(\d+)", m.group(2)).group(1))
            if m.group(1) == "address_size" and m.group(2).strip() != "64":
                raise PtxError(line, "only 64-bit addresses")
            i = m.end()
            continue
        is_code = re.compile(r"(\.(visible|weak|extern|common)\s+)*\.(entry|func)\b").match(source, i)
        end = re.compile(r"[{;]" if is_code else r";").search(source, i)
        if not end:
            raise PtxError(line, "the text ends inside a declaration")
        text, begin = source[i:end.start()], line
        line += text.count("\n")
        i = end.end()
        if not is_code:
            module.variables.append(variable(text, begin))
        elif end.group() == "{":
            depth, j = 1, i
            while depth:
                if j == len(source):
                    raise PtxError(begin, "a function without an end")
                depth += (source[j] == "{") - (source[j] == "}")
                j += 1
            f = header(text, begin)
            f.body = body(source[i:j - 1], line)
            module.functions.append(f)
            line += source[i:j].count("\n")
            i = j
    return module
