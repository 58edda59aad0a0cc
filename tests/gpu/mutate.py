"""Changes one PTX instruction of a kernel file at a time and tells which changes no test notices.

    mutate.py --ptx codes.ptx --build './make {cpp} {module}' --test './test_codes {module}'
              [--kernel PART] [--sample N] [--seed S] [--jobs 2] [--list]

All changes are woven into one translation: `if this is mutant 17, the changed instruction, else the
original`. So the build runs once, makes {module} from {cpp}, and every mutant costs one run of the
test with KVANT_MUTANT in its environment. The first run has no mutant and notes what is reached.

What is changed is variants(): operations by their neighbours or by one of their operands, roundings,
comparisons, choices, branch conditions, constants, addresses and parameters by an element, the order
in a vector; barriers, stores, atomics, copies and jumps are left out. Signs of integer types are not
changed: what they count is never negative. A mutant
is killed when the test fails, prints `not true`, or takes twice the CPU time of the first
run. Printed, and 1 returned: mutants that survive and, as "never reached", those that no test
executes. A person must judge them: some change nothing (`lt` for `le` at a bound that is never
met). With -lineinfo in nvcc's flags they name the line of the source.
"""

import argparse
import dataclasses
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import opcodes
import ptx
import translate

# Parts of opcodes, whole between dots, and what takes their place.
RENAMED = [("add", "sub"), ("sub", "add"), ("mul", "add"), ("mul.lo", "add"), ("mul.lo", "mul.hi"),
           ("mul.hi", "mul.lo"), ("mad.lo", "mad.hi"), ("min", "max"), ("max", "min"),
           ("and", "or"), ("or", "and"), ("xor", "or"), ("rem", "div"), ("div", "mul.lo"), ("div", "mul"), ("rn", "rz"),
           ("rni", "rzi"), ("rzi", "rni"), ("rmi", "rpi"), ("rpi", "rmi"), ("rm", "rp"), ("rp", "rm"),
           ("clz", "popc"), ("popc", "clz"), ("exch", "max"), ("inc", "dec"), ("any", "all"), ("all", "any"),
           ("up", "down"), ("down", "up"), ("bfly", "down"), ("idx", "bfly"),
           ("lt", "le"), ("le", "lt"), ("gt", "ge"), ("ge", "gt"), ("eq", "ne"), ("ne", "eq"),
           ("lt", "gt"), ("le", "ge"), ("gt", "lt"), ("ge", "le"),
           ("ltu", "leu"), ("leu", "ltu"), ("gtu", "geu"), ("geu", "gtu"), ("equ", "neu"),
           ("neu", "equ"), ("num", "nan"), ("nan", "num"), ("lt", "ltu"), ("le", "leu"),
           ("gt", "gtu"), ("ge", "geu"), ("eq", "equ"), ("ltu", "lt"), ("leu", "le"), ("gtu", "gt"),
           ("geu", "ge"), ("neu", "ne")]
LEFT_OUT = ("st", "red", "atom", "bar", "membar", "fence")
SPECIAL = {"tid": "0", "ctaid": "0", "laneid": "0", "warpid": "0", "ntid": "1", "nctaid": "1"}
KNOWN = set(opcodes.known())


def renamed(name):
    """Known opcodes that are one step away."""
    for old, new in RENAMED:
        for m in re.finditer(rf"(?<![^.]){re.escape(old)}(?![^.])", name):
            other = name[:m.start()] + new + name[m.end():]
            if other in KNOWN:
                yield other
    shift = re.fullmatch(r"(shl|shr)\.[bsu](\d+)", name)
    if shift:
        yield ("shr.u" if shift.group(1) == "shl" else "shl.b") + shift.group(2)
    if re.match(r"(atom|red)\..*\.add\.", name):
        yield name.replace(".add.", ".max.")


def constants(text):
    """Neighbours of a literal operand."""
    if re.fullmatch(r"-?\d+|0[xX][0-9A-Fa-f]+", text):
        return [str(int(text, 0) + 1), str(int(text, 0) - 1)]
    m = re.fullmatch(r"(0[fF]|0[dD])([0-9A-Fa-f]+)", text)
    if m:
        digits, bits = len(m.group(2)), int(m.group(2), 16)
        one = 0x3F800000 if digits == 8 else 0x3FF0000000000000
        return [f"{m.group(1)}{bits - 1 if bits else one:0{digits}X}"]
    m = re.fullmatch(r"%(\w+)\.[xyz]|%(\w+)", text)
    return [SPECIAL[m.group(1) or m.group(2)]] if m and (m.group(1) or m.group(2)) in SPECIAL else []


def moved(text, name):
    """An address, one element further and one nearer."""
    m = re.fullmatch(r"\[([^+\]]+)(?:\+(-?\d+))?\]", text)
    size = translate.width(name.split(".")[-1])
    return [f"[{m.group(1)}+{int(m.group(2) or 0) + step}]" for step in (size, -size)] if m else []


def operands(s):
    """Statements with one operand changed."""
    verb = s.name.split(".")[0]
    if verb in ("bra", "brx", "call", "ret", "exit", "trap", "bar", "cvta") or "st.param" in s.name:
        return
    for i in range(verb not in ("st", "red"), len(s.operands)):
        o = s.operands[i]
        is_address = o.startswith("[")
        for other in moved(o, s.name) if is_address else constants(o):
            yield dataclasses.replace(s, operands=s.operands[:i] + [other] + s.operands[i + 1:])


def swapped(s):
    """Statements with the first two elements of a vector exchanged."""
    for i, o in enumerate(s.operands):
        if o.startswith("{") and "call" not in s.name and len(ptx.split(o[1:-1])) > 1:
            names = ptx.split(o[1:-1])
            other = "{" + ", ".join([names[1], names[0], *names[2:]]) + "}"
            yield dataclasses.replace(s, operands=s.operands[:i] + [other] + s.operands[i + 1:])


def without(s):
    """Copies of one operand in place of the operation."""
    v, verb = opcodes.VALUES[s.name], s.name.split(".")[0]
    pairs = list(zip(v.operands, s.operands[1:]))  # without factors and counts:
    pairs = pairs[2:] if verb in ("fma", "mad") else pairs[:1] if verb in ("shl", "shr") else pairs
    for t, o in pairs:
        is_same_size = (t == "pred") == (v.result == "pred") and \
            translate.width(t) == translate.width(v.result)
        if is_same_size and "mov." + t in KNOWN and re.fullmatch(r"%\w+", o):
            yield dataclasses.replace(s, name="mov." + t, operands=[s.operands[0], o])


def variants(s):
    """What one instruction may be changed into; None is: left out."""
    verb = s.name.split(".")[0]
    if s.guard:
        if verb in ("bra", "ret", "exit"):  # always and never
            yield dataclasses.replace(s, guard="")
            yield None
        else:
            yield dataclasses.replace(s, guard=s.guard[1:] if s.guard[0] == "!" else "!" + s.guard)
    if verb in LEFT_OUT and ".param." not in s.name or s.name == "bra.uni" and not s.guard:
        yield None
    if verb == "mov" and re.fullmatch(r"%[a-z]+\d+", s.operands[1]):
        yield None
    if s.name in opcodes.VALUES:
        yield from without(s)
    yield from swapped(s)
    for name in dict.fromkeys(renamed(s.name)):
        yield dataclasses.replace(s, name=name)
    o = s.operands
    if verb in ("mad", "fma"):
        yield dataclasses.replace(s, name=s.name.replace(verb, "mul"), operands=o[:3])
    if verb == "mad":
        yield dataclasses.replace(s, name="add." + s.name.split(".")[-1], operands=[o[0], o[1], o[3]])
    if verb in ("selp", "sub", "div", "shf"):
        yield dataclasses.replace(s, operands=[o[0], o[2], o[1]] + o[3:])
    yield from operands(s)


@dataclasses.dataclass
class Mutant:
    number: int
    function: str
    source: str  # file:line of the source, where .loc tells
    before: ptx.Statement
    after: ptx.Statement  # or None


def text_of(s):
    if s is None:
        return "left out"
    return f"{'@' + s.guard + ' ' if s.guard else ''}{s.name} {', '.join(s.operands)}".strip()


def mutants_of(module, files, kernel):
    """All mutants of the functions whose name holds `kernel`."""
    found = []
    for f in module.functions:
        source = ""
        for s in f.body:
            loc = re.match(r"\.loc\s+(\d+)\s+(\d+)", s.name) if s.kind == "directive" else None
            if loc:
                source = f"{files.get(loc.group(1), '?')}:{loc.group(2)}: "
            if s.kind == "instruction" and kernel in f.name:
                found += [Mutant(0, f.name, source, s, other) for other in variants(s)]
    return found


CONTROL = """#include <cstdio>
#include <cstdlib>
namespace {
struct mutation {
    int number = getenv("KVANT_MUTANT") ? atoi(getenv("KVANT_MUTANT")) : -1;
    const char *reached_path = getenv("KVANT_MUTANTS_REACHED");
    char reached[%d + 1] = {};
    bool is_one_of(int first, int count)
    {
        if ((unsigned)(number - first) < (unsigned)count) return true;
        if (number < 0) reached[first] = 1;
        return false;
    }
    ~mutation()
    {
        FILE *f = reached_path ? fopen(reached_path, "ab") : nullptr;
        for (int i = 0; f && i < %d; i++) if (reached[i]) fprintf(f, "%%d\\n", i);
        if (f) fclose(f);
    }
} the_mutation;
}
"""


class Weaver(translate.Translator):
    """A translator that puts mutants beside their originals; those it refuses go to `refused`."""

    def __init__(self, module, mutants):
        super().__init__(module)
        self.refused, self.chosen = [], {}
        for m in mutants:
            self.chosen.setdefault(id(m.before), []).append(m)

    def statement(self, s):
        original = super().statement(s)
        cases = []
        for m in self.chosen.get(id(s), []):
            try:
                changed = super().statement(m.after) if m.after else ";"
                if changed == original:
                    raise ptx.PtxError(s.line, "no change")
                cases.append((m.number, changed))
            except ptx.PtxError:
                self.refused.append(m)
        if not cases:
            return original
        text = "".join(f"if (the_mutation.number == {n}) {{ {changed} }} else " for n, changed in cases)
        return (f"if (the_mutation.is_one_of({cases[0][0]}, {len(cases)})) {{ {text}{{}} }} "
                f"else {{ {original} }}")


def woven(module, mutants):
    for i, m in enumerate(mutants):
        m.number = i
    weaver = Weaver(module, mutants)
    return CONTROL % (len(mutants), len(mutants)) + weaver.translate(), weaver.refused


def run(command, environment, cpu_s):
    """("killed", "time" or "survives", CPU seconds) of one run of the test."""
    def limit():
        if cpu_s:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    p = subprocess.Popen(command, shell=True, text=True, errors="replace", stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, preexec_fn=limit, start_new_session=True,
                         env={**os.environ, **environment})
    is_failed = False
    for line in p.stdout:
        if "not true" in line:
            is_failed = True
            os.killpg(p.pid, 9)
            break
    p.stdout.close()
    _, status, usage = os.wait4(p.pid, 0)
    seconds = usage.ru_utime + usage.ru_stime
    p.returncode = status
    if cpu_s and seconds >= cpu_s:
        return "time", seconds
    return ("killed" if is_failed or status else "survives"), seconds


def arguments():
    parser = argparse.ArgumentParser(description="Finds changes of a kernel that no test notices.")
    parser.add_argument("--ptx", required=True)
    parser.add_argument("--build", help="makes {module} from {cpp}; a shell command")
    parser.add_argument("--test", help="must fail where {module} is wrong; a shell command")
    parser.add_argument("--kernel", default="", help="only functions whose name has this part")
    parser.add_argument("--sample", type=int, help="only so many mutants, drawn with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    return parser.parse_args()


def main():
    options = arguments()
    with open(options.ptx) as f:
        source = f.read()
    files = {n: os.path.basename(p) for n, p in re.findall(r'\.file\s+(\d+)\s+"([^"]+)"', source)}
    module = ptx.parse(source)
    mutants = mutants_of(module, files, options.kernel)
    refused = {id(m) for m in woven(module, mutants)[1]}
    mutants = [m for m in mutants if id(m) not in refused]
    if options.sample and options.sample < len(mutants):
        chosen = random.Random(options.seed).sample(range(len(mutants)), options.sample)
        mutants = [mutants[i] for i in sorted(chosen)]
    lines = [f"{options.ptx}:{m.before.line}: {m.function}: {m.source}{text_of(m.before)} -> "
             f"{text_of(m.after)}" for m in mutants]
    if options.list:
        print("\n".join(lines))
        return 0

    with tempfile.TemporaryDirectory() as folder:
        names = {"cpp": f"{folder}/mutants.cpp", "module": f"{folder}/mutants.so"}
        with open(names["cpp"], "w") as f:
            f.write(woven(module, mutants)[0])
        began = time.time()
        subprocess.run(options.build.format(**names), shell=True, check=True)
        test, reached_path = options.test.format(**names), f"{folder}/reached"
        print(f"{len(mutants)} mutants, built in {time.time() - began:.0f} s", flush=True)
        result, seconds = run(test, {"KVANT_MUTANTS_REACHED": reached_path}, None)
        if result != "survives":
            sys.exit("the test fails without a mutant")
        with open(reached_path) as f:
            reached = {mutants[int(n)].before.line for n in f}
        cpu_s = int(2 * seconds) + 2
        print(f"the test takes {seconds:.1f} s; a mutant may take {cpu_s}", flush=True)
        counts = {}

        def judge(m):
            if m.before.line not in reached:
                result = "never reached"
            else:
                result = run(test, {"KVANT_MUTANT": str(m.number)}, cpu_s)[0]
            counts[result] = counts.get(result, 0) + 1
            if result in ("survives", "never reached"):
                print(f"{lines[m.number]}: {result}", flush=True)

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(judge, mutants))
        print(", ".join(f"{n} {result}" for result, n in sorted(counts.items())))
        return int(bool(counts.keys() & {"survives", "never reached"}))


if __name__ == "__main__":
    sys.exit(main())
