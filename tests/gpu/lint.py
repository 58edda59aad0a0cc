"""Checks the PTX of our kernels for what would make the GPU's bits differ from the CPU's.

    lint.py [--local KERNEL]... kernel.ptx ...

Refused: .approx and .ftz anywhere; f32 and f64 mul, add, sub, fma, div, rcp, sqrt without a rounding
to nearest (nvcc may fuse a product and a sum that name none, and ours are all rounded to nearest);
mad on floats; atomic sums of floats, whose order is open; local memory (arrays that did not become
registers), but for kernels named with --local. Prints one line per finding and returns 1.
"""

import argparse
import re
import sys

import ptx

ROUNDED = ("mul", "add", "sub", "fma", "div", "rcp", "sqrt")


def instruction(s):
    """What is wrong with one instruction, or None."""
    op, *modifiers = s.name.split(".")
    is_float = bool(modifiers) and re.fullmatch(r"b?f(16|32|64)(x2)?", modifiers[-1])
    if "approx" in modifiers:
        return "approximate"
    if "ftz" in modifiers:
        return "flushes subnormals"
    if is_float and op == "mad":
        return "mad of floats leaves its rounding open"
    if is_float and op in ("atom", "red"):
        return "the order of an atomic float operation is open"
    if is_float and op in ROUNDED and "rn" not in modifiers:
        others = [m for m in modifiers if m in ("rz", "rm", "rp")]
        return f"rounds .{others[0]}" if others else "names no rounding, so that it may be fused"
    if op in ("ld", "st") and "local" in modifiers:
        return "local"
    return None


def lint(module, local):
    """Findings as (line, function, text)."""
    findings = []
    for f in module.functions:
        is_local_known = False
        for s in f.body:
            wrong = None
            if s.kind == "instruction":
                wrong = instruction(s)
            elif s.kind == "directive" and s.name.startswith(".local"):
                wrong = "local"
            if wrong == "local":
                if is_local_known or any(k in f.name for k in local):
                    continue
                is_local_known = True
                findings.append((s.line, f.name, "uses local memory"))
            elif wrong:
                findings.append((s.line, f.name, f"{s.name}: {wrong}"))
    return findings


def main():
    parser = argparse.ArgumentParser(description="Checks PTX for arithmetic that is not ours.")
    parser.add_argument("--local", action="append", default=[], metavar="KERNEL",
                        help="part of the name of a kernel that may use local memory")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    count = 0
    for path in options.files:
        with open(path) as f:
            try:
                module = ptx.parse(f.read())
            except ptx.PtxError as e:
                print(f"{path}: {e}")
                count += 1
                continue
        for line, function, text in lint(module, options.local):
            print(f"{path}:{line}: {function}: {text}")
            count += 1
    return bool(count)


if __name__ == "__main__":
    sys.exit(main())
