"""Solves the same tables with the program and with HiGHS (scipy.optimize.milp).

    frontier_highs.py KVANT [--verbose]

Tables of 80 layers x 9 key and 9 value schemes, random, seeded: `uniform` with layers alike and
small sizes, `mixed` with sizes in bytes that differ by layer. `KVANT tune --table` gives the
frontier; at several budgets its best point is compared with HiGHS's answer to the integer program
with mip_rel_gap 0. Errors are multiples of 2^-40, so the sums are compared as integers: the program
must never be worse, and never better than HiGHS's own bound allows (1e-6 of the error: HiGHS
works in floating point, its feasibility tolerance is 1e-6). The assignment must have the size and
the error it claims.

Exit: 0 all agree, 1 some do not, 77 (skip) without NumPy or SciPy.
"""
import argparse
import csv
import io
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_matrix
except ImportError as missing:
    print(f"skipped: {missing} (pip install -r tests/requirements.txt)")
    sys.exit(77)

LAYERS, FORMATS = 80, 9
OPTIONS = FORMATS * FORMATS
UNIT = 2.0**-40
QUARTER_BITS = np.array([64, 32, 33, 26, 22, 20, 17, 14, 10])
NOISE = np.array([0, 4.0**-5, 4.0**-8, 4.0**-6, 4.0**-5, 0.6 * 4.0**-4, 1.5 * 4.0**-4, 4.0**-3,
                  4.0**-2])
failures = 0


def check(condition, *what):
    global failures
    if not condition:
        failures += 1
        print("not true:", *what)


def make(kind, seed):
    """Sizes and errors [LAYERS, OPTIONS], whole numbers; option = key * FORMATS + value."""
    rng = np.random.default_rng(seed)
    pair = QUARTER_BITS[:, None] + QUARTER_BITS[None, :]
    size, error = np.empty((2, LAYERS, OPTIONS), dtype=np.int64)
    for layer in range(LAYERS):
        gain = (1 + 8 * np.exp(-layer / 2)) * np.exp(0.6 * rng.standard_normal()) / LAYERS
        key = NOISE * 4 * np.exp(0.8 * rng.standard_normal())
        value = NOISE * np.exp(0.3 * rng.standard_normal())
        power = key[:, None] + value[None, :] + 0.2 * np.sqrt(key[:, None] * value[None, :])
        power *= gain * np.exp(0.05 * rng.standard_normal((FORMATS, FORMATS)))
        error[layer] = np.rint(power / UNIT).ravel()
        scale = 1 if kind == "uniform" else rng.choice([1, 2, 4, 8]) * rng.choice([64, 80, 96, 128])
        rest = 0 if kind == "uniform" else rng.integers(0, 4096)
        size[layer] = (scale * pair + rest).ravel()
    return size, error


def write(path, size, error):
    with open(path, "w") as f:
        f.write("layer,key,value,error,bytes\n")
        for layer in range(LAYERS):
            for j in range(OPTIONS):
                f.write(f"{layer},k{j // FORMATS},v{j % FORMATS},{float(error[layer, j] * UNIT)!r},"
                        f"{size[layer, j]}\n")


def frontier(kvant, path, budget, resolution):
    """Points of the program's frontier: size, error (in units), option per layer."""
    out = path + ".h5"
    extra = ["--resolution", str(resolution)] if resolution else []
    subprocess.run([kvant, "tune", "--table", path, "--max-bytes", str(budget), "-o", out, "-q",
                    *extra], check=True, stdout=subprocess.DEVNULL)
    text = subprocess.run([kvant, "show", out, "--metric", "frontier", "--format", "csv"],
                          check=True, capture_output=True, text=True).stdout
    points = []
    for row in csv.DictReader(io.StringIO(text)):
        names = [row[f"layer_{layer}"].split(" | ") for layer in range(LAYERS)]
        options = np.array([int(k[1:]) * FORMATS + int(v[1:]) for k, v in names])
        points.append((int(row["bytes"]), float(row["error"]) / UNIT, options,
                       float(row["lower_bound"]) / UNIT))
    return points


def highs(size, error, budget, scale):
    """HiGHS's assignment (its exact error) and its bound, in units."""
    n = LAYERS * OPTIONS
    one_each = coo_matrix((np.ones(n), (np.repeat(np.arange(LAYERS), OPTIONS), np.arange(n))))
    within = coo_matrix(size.reshape(1, n).astype(float))
    answer = milp(error.ravel() * scale, integrality=np.ones(n), bounds=Bounds(0, 1),
                  constraints=[LinearConstraint(one_each.tocsr(), 1, 1),
                               LinearConstraint(within.tocsr(), -np.inf, budget)],
                  options={"mip_rel_gap": 0, "time_limit": 120})
    if answer.status != 0:
        return None
    chosen = answer.x.reshape(LAYERS, OPTIONS).argmax(axis=1)
    rows = np.arange(LAYERS)
    return (int(size[rows, chosen].sum()), int(error[rows, chosen].sum()),
            answer.mip_dual_bound / scale)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvant")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    kvant = os.path.abspath(arguments.kvant)
    n = n_equal = 0
    rows = np.arange(LAYERS)
    with tempfile.TemporaryDirectory() as folder:
        for kind, seed in (("uniform", 1), ("uniform", 2), ("mixed", 3), ("mixed", 4)):
            size, error = make(kind, seed)
            least = size.min(axis=1).sum()
            span = size[rows, error.argmin(axis=1)].sum() - least
            # Budgets are on the resolution's grid, so that their best points are kept.
            resolution = int(span // 40) if kind == "mixed" else 0
            path = os.path.join(folder, f"{kind}{seed}.csv")
            write(path, size, error)
            points = frontier(kvant, path, int(least + span // 2), resolution)
            for s, e, options, bound in points[:: max(1, len(points) // 200)]:
                check(s == size[rows, options].sum(), kind, seed, "size", s)
                check(e == error[rows, options].sum(), kind, seed, "error", e)
                check(bound <= e, kind, seed, "bound", bound, e)
            for step in (1, 4, 9, 16, 24):
                budget = int(least + step * (span // 40))
                best = max((p for p in points if p[0] <= budget), key=lambda p: p[0])
                answer = highs(size, error, budget, 1000 / best[3])
                check(answer is not None, kind, seed, budget, "HiGHS has no answer")
                if answer is None:
                    continue
                s, e, bound = answer
                n, n_equal = n + 1, n_equal + (best[1] == e)
                check(s > budget or best[1] <= e, kind, seed, budget, "HiGHS is better", best[1], e)
                check(best[1] >= bound - 1e-6 * best[1], kind, seed, budget, "below HiGHS's bound",
                      best[1], bound)
                if arguments.verbose:
                    print(kind, seed, budget, "kvant", best[:2], "HiGHS", s, e, bound, flush=True)
    check(n_equal == n, f"HiGHS found the same error at {n_equal} of {n} budgets")
    print(f"{n} budgets compared, {n_equal} equal, {failures} failures")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
