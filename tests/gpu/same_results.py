#!/usr/bin/env python3
"""Whether two result files of `kvant sweep` hold the same numbers, up to the order of sums.

    python3 tests/gpu/same_results.py KVANT EXPECTED.h5 FOUND.h5

Compares the full-precision tables of `kvant show` seed by seed, head by head, layer by layer and
query class by query class. A number may differ by 1e-5 of itself, and by what rounding leaves where
the number itself is all rounding: errors of outputs by 2e-7, as outputs are sums of floats, others by
1e-12. Exit code 1 where one differs by more.
"""
import csv
import subprocess
import sys

DIMENSIONS = "seed", "head", "layer", "class"
RELATIVE, OF_OUTPUTS, OF_OTHERS = 1e-5, 2e-7, 1e-12


def table(kvant, path, dimension):
    done = subprocess.run([kvant, "show", path, "--format", "csv", "--rows", dimension],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return list(csv.DictReader(done.stdout.splitlines()))


def excess(column, expected, found):
    """How far apart two cells are, in units of what they may be."""
    try:
        a, b = float(expected), float(found)
    except ValueError:
        return 0 if expected == found else float("inf")
    if a == b or (a != a and b != b):
        return 0
    floor = OF_OUTPUTS if column.startswith(("out_", "stack_")) else OF_OTHERS
    apart = abs(a - b) / (RELATIVE * abs(a) + floor)
    return apart if apart == apart else float("inf")


def main():
    kvant, *files = sys.argv[1:]
    cells, bad, worst = 0, 0, (0, "")
    for dimension in DIMENSIONS:
        expected, found = (table(kvant, path, dimension) for path in files)
        if len(expected) != len(found) or not expected:
            sys.exit(f"{len(expected)} and {len(found)} rows by {dimension}")
        for a, b in zip(expected, found):
            if list(a) != list(b):
                sys.exit(f"other columns by {dimension}: {list(a)}, {list(b)}")
            for column in a:
                off = excess(column, a[column], b[column])
                where = f"{a.get('scheme', '')}, {dimension} {a.get(dimension, '')}: {column}"
                cells += 1
                worst = max(worst, (off, f"{where} {a[column]}, found {b[column]}"))
                if off > 1:
                    bad += 1
                    if bad <= 10:
                        print(f"differs: {where}: {a[column]}, found {b[column]}")
    print(f"{cells} cells, {bad} differ; the farthest is at {worst[0]:.2g} of what it may"
          + (f" ({worst[1]})" if worst[0] > 0 else ""))
    return bad > 0


sys.exit(main())
