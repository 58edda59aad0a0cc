"""`kvant tune --table` from outside: messages and exit codes, and the frontier, the policy and the
candidates it stores against brute force over all assignments. Standard library only.

    python3 test_tune_table.py KVANT
"""
import csv
import io
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from fractions import Fraction

KVANT = os.path.abspath(sys.argv[1])
failures = 0

TABLE = """\
layer,tensor,scheme,error,bytes
0,key,f16,0,64
0,key,int8/channel,0.001,32
0,value,f16,0,64
0,value,int8/token,0.002,33
3,key,f16,0,64
3,key,int8/channel,0.004,32
3,value,f16,0,64
3,value,int8/token,0.003,33
"""


def check(condition, *what):
    global failures
    if not condition:
        failures += 1
        print("not true:", *what)


def run(*arguments, code=0):
    done = subprocess.run([KVANT, *arguments], capture_output=True, text=True, timeout=120)
    check(done.returncode == code, arguments, "exit code", done.returncode, "expected", code,
          done.stderr)
    return done.stdout, done.stderr


def write(path, text):
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


# ---- messages ----

GOLDEN = [
    (["tune"], 2, "kvant: tune needs a CONFIG.yaml, or --table TABLE with --max-error or "
     "--max-bytes; see kvant help tune"),
    (["tune", "--table", "t.csv"], 2, "kvant: a table needs one budget: --max-error or --max-bytes"),
    (["tune", "--table", "t.csv", "--max-error", "1", "--max-bytes", "1"], 2,
     "kvant: a table needs one budget: --max-error or --max-bytes"),
    (["tune", "--table", "t.csv", "--max-error", "1", "--effort", "patient"], 2,
     "kvant: --effort goes with a CONFIG.yaml; a table alone leaves nothing to measure"),
    (["tune", "--table", "t.csv", "--max-error", "1", "--set", "heads.tokens=3"], 2,
     "kvant: --set goes with a CONFIG.yaml; a table alone leaves nothing to measure"),
    (["tune", "--table", "t.csv", "--max-error", "1%"], 2,
     'kvant: --max-error: expected a number, 0 or more, found "1%"'),
    (["tune", "--table", "t.csv", "--max-error", "-1"], 2,
     'kvant: --max-error: expected a number, 0 or more, found "-1"'),
    (["tune", "--table", "t.csv", "--max-error", "nan"], 2,
     'kvant: --max-error: expected a number, 0 or more, found "nan"'),
    (["tune", "--table", "t.csv", "--max-bytes", "1.5"], 2,
     'kvant: --max-bytes: expected a whole number, 0 or more, found "1.5"'),
    (["tune", "--table", "t.csv", "--max-bytes", "200", "--resolution", "fine"], 2,
     'kvant: --resolution: expected a whole number, 0 or more, found "fine"'),
    (["tune", "--table", "t.csv", "--max-bytes", "200", "--explain", "x"], 2,
     'kvant: --explain: expected a layer\'s number, found "x"'),
    (["tune", "--table", "t.csv", "--max-bytes", "200", "--explain", "1"], 2,
     "kvant: --explain: there is no layer 1; there are 2, from 0 to 3"),
    (["tune", "--table", "t.csv", "--max-bytes", "200", "--format", "xml"], 2,
     'kvant: format "xml": there are table, csv, json and markdown'),
    (["tune", "--table", "t.csv", "--max-bytes", "200", "-o", "t.csv"], 2,
     "kvant: t.csv is read by this run; name another output"),
    (["tune", "--table", "t.csv", "--max-bytes", "200", "--policy", "./t.csv"], 2,
     "kvant: ./t.csv is read by this run; name another output"),
    (["tune", "--table", "t.csv", "--max-bytes", "200", "-o", "x", "--policy", "x"], 2,
     "kvant: x cannot be both the result and the policy"),
    (["tune", "--table", "none.csv", "--max-bytes", "200"], 2,
     "kvant: none.csv: No such file or directory"),
    (["tune", "--table", "bad.csv", "--max-bytes", "200"], 2,
     'kvant: bad.csv: column error is missing; is it "eror"?'),
    (["tune", "--table", "t.csv", "--max-bytes", "200", "-o", "nowhere/x.h5"], 1, None),
]


def test_messages():
    write("t.csv", TABLE)
    write("bad.csv", TABLE.replace("error", "eror"))
    for arguments, code, expected in GOLDEN:
        out, found = run(*arguments, code=code)
        check(out == "", arguments, "printed", out)
        if expected is not None:
            check(found.rstrip("\n") == expected, arguments, "\n  found   ", found, " expected",
                  expected)
    check(not os.path.exists("t.h5"), "a refused request left a result")
    with open("t.csv", encoding="utf-8") as file:
        check(file.read() == TABLE, "the table was changed")


def test_outputs():
    """Default name, what is printed, what is written, and exit code 3."""
    out, found = run("tune", "--table", "t.csv", "--max-bytes", "200")
    check(out.startswith("t.csv\nbudget    max_bytes 200: met\n"), out)
    check("steps 3 and 4) have nothing to run" in out, out)
    check(found == "written to t.h5\n", found)
    out, found = run("tune", "--table", "t.csv", "--max-bytes", "200", "-q", "-o", "q.h5",
                     "--policy", "q.yaml", "--explain", "3")
    check(out.startswith("\nLayer 3: ") and found == "", out, found)
    run("check", "q.yaml")
    out, _ = run("tune", "--table", "t.csv", "--max-bytes", "129", code=3)
    check("NOT MET: no choice has so few bytes; below is the nearest, of least bytes\n"
          "size      130 bytes" in out, out)
    out, _ = run("tune", "--table", "bits.csv", "--max-error", "0.5", code=3)
    check("NOT MET: no choice has so small an error; below is the nearest, of least error\n"
          "size      7 bytes" in out, out)
    out, _ = run("tune", "--table", "t.csv", "--max-error", "0.003", "--format", "csv")
    check(out.splitlines()[1].startswith("0,int8/channel,int8/token,65,0.003,"), out)
    once, _ = run("tune", "--table", "t.h5", "--max-error", "0.003", "--format", "csv", "-o", "r.h5")
    check(once == out, "solved from a result:", once)


PAIRS = """\
layer,key,value,error,bytes
0,f16,f16,0,64
0,q4_0,q8_0,0.1,20
0,int8/token,q4_0,0.3,21
1,f16,f16,0,64
1,q4_0,q8_0,0.2,20
1,int8/token,q4_0,0.4,21
"""


def test_results_as_tables():
    """A table of pairs that happen to add up, and results made from it, are restricted alike."""
    write("p.csv", PAIRS)
    run("tune", "--table", "p.csv", "--max-error", "1", "-q", "-o", "p.h5")
    run("tune", "--table", "p.h5", "--max-error", "1", "-q", "-o", "pp.h5")
    check("policy_key_bytes" not in run("show", "pp.h5")[0], "bytes that nobody stated")
    for table in ("p.csv", "p.h5", "pp.h5"):
        write("p.yaml", f"kvant: 1\nheads: {{layers: 2}}\n"
              f"tune: {{max_error: 1, table: {table}, key_at_least_value: true}}\n")
        out, _ = run("tune", "p.yaml", "-o", "q.h5", "--format", "csv")
        check([line.split(",")[:4] for line in out.splitlines()[1:]] ==
              [["0", "int8/token", "q4_0", "21"], ["1", "int8/token", "q4_0", "21"]], table, out)


# ---- brute force ----

def random_layers(rng):
    """{layer: [(key, value, error, bytes)]}, and the CSV. Few different numbers, so there are ties."""
    layers, rows = {}, []
    n_layers = rng.randint(1, 4)
    digits = rng.choice([10, 1000, 10**9])
    error = lambda: Fraction(rng.randrange(50 * digits // 10), digits)
    for layer in rng.sample(range(20), n_layers):
        layers[layer] = []
    if rng.random() < 0.5:
        header = ["layer", "tensor", "scheme", "error", "bytes"]
        for layer in layers:
            sides = {}
            for tensor in "key", "value":
                sides[tensor] = [(f"{tensor[0]}{i}", error(), rng.randrange(12))
                                 for i in rng.sample(range(4), rng.randint(1, 3))]
                rows += [[layer, tensor, name, float(e), b] for name, e, b in sides[tensor]]
            layers[layer] = [(k, v, ke + ve, kb + vb)
                             for (k, ke, kb), (v, ve, vb)
                             in itertools.product(sides["key"], sides["value"])]
    else:
        header = ["layer", "key", "value", "error", "bytes"]
        for layer in layers:
            for i in rng.sample(range(9), rng.randint(1, 6)):
                choice = (f"k{i // 3}", f"v{i % 3}", error(), rng.randrange(25))
                layers[layer].append(choice)
                rows.append([layer, choice[0], choice[1], float(choice[2]), choice[3]])
    order = list(range(len(header)))
    rng.shuffle(order)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=rng.choice(["\n", "\r\n"]),
                        quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    for row in [header] + rows:
        writer.writerow([repr(row[i]) if isinstance(row[i], float) else row[i] for i in order])
    return dict(sorted(layers.items())), text.getvalue()


def brute_force(layers):
    """Pareto points by rising bytes: [(bytes, error)]."""
    best = {}
    for pick in itertools.product(*layers.values()):
        size, error = sum(c[3] for c in pick), sum(c[2] for c in pick)
        best[size] = min(best.get(size, error), error)
    points = []
    for size in sorted(best):
        if not points or best[size] < points[-1][1]:
            points.append((size, best[size]))
    return points


def read_csv(*arguments):
    return list(csv.DictReader(io.StringIO(run(*arguments)[0])))


def close(a, b):
    return abs(a - b) <= 1e-12 * max(1, abs(b))


def check_frontier(case, layers, points, rows):
    check(len(rows) == len(points), case, len(rows), "points instead of", len(points))
    previous = None
    for row, (size, error) in zip(rows, points):
        check(int(row["bytes"]) == size and close(float(row["error"]), error), case, row, size, error)
        check(float(row["lower_bound"]) <= float(row["error"]), case, row)
        check(float(row["multiplier"]) >= 0, case, row)
        picked = []
        for layer, choices in layers.items():
            names = {f"{k} | {v}": (e, b) for k, v, e, b in choices}
            picked.append(names[row[f"layer_{layer}"]])
        check(sum(b for _, b in picked) == size and sum(e for e, _ in picked) == error, case, row)
        if previous:  # the bound is convex: its slope is the multiplier
            drop = float(previous["error"]) - float(row["lower_bound"])
            check(drop >= -1e-12, case, previous, row)
        previous = row


def check_policy(case, layers, points, kind, limit, arguments):
    fits = [p for p in points if p[kind == "--max-error"] <= limit]
    met = bool(fits)
    if kind == "--max-error":
        best = fits[0] if fits else points[-1]
    else:
        best = fits[-1] if fits else points[0]
    text = str(limit) if kind == "--max-bytes" else repr(float(limit))
    run("tune", "--table", "r.csv", kind, text, "-q", "-o", "r.h5", *arguments, code=0 if met else 3)
    rows = read_csv("show", "r.h5", "--metric", "policy", "--format", "csv")
    check([int(r["layer"]) for r in rows] == list(layers), case, rows)
    check(sum(int(r["bytes"]) for r in rows) == best[0] and
          close(sum(float(r["error"]) for r in rows), best[1]), case, kind, limit, rows, best)


def test_brute_force():
    rng = random.Random(20240612)
    for case in range(60):
        layers, text = random_layers(rng)
        write("r.csv", text)
        points = brute_force(layers)
        limit = Fraction(rng.randrange(200), 10) if case % 3 else rng.choice(points)[1]
        check_policy(case, layers, points, "--max-error", limit, [])
        check_frontier(case, layers, points,
                       read_csv("show", "r.h5", "--metric", "frontier", "--format", "csv"))
        check_policy(case, layers, points, "--max-bytes", rng.randrange(80),
                     ["--resolution", str(rng.randrange(1, 9))] if case % 2 else [])


def test_candidates():
    """Every uniform pair that all layers have, with its sums."""
    rng = random.Random(7)
    for case in range(20):
        layers, text = random_layers(rng)
        write("r.csv", text)
        run("tune", "--table", "r.csv", "--max-bytes", "1000", "-q", "-o", "r.h5")
        found = json.loads(run("show", "r.h5", "--metric", "candidate", "--format", "json")[0])
        check(found[0]["family"] == "policy", case, found[0])
        uniform = {c["candidate"]: c for c in found if c["family"] == "uniform"}
        several = [c for c in layers.values() if len(c) > 1]
        for k, v in {(c[0], c[1]) for choices in layers.values() for c in choices}:
            name = f"uniform {k} | {v}"
            picked = [c[0] if len(c) == 1 else next((x for x in c if x[:2] == (k, v)), None)
                      for c in layers.values()]
            is_there = all(picked) and (not several or any(x[:2] == (k, v) for x in several[0]))
            check(is_there == (name in uniform) or not several, case, name, list(uniform))
            if is_there and name in uniform:
                check(uniform[name]["bytes"] == sum(c[3] for c in picked) and
                      close(uniform[name]["error"], sum(c[2] for c in picked)), case, uniform[name])


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write("bits.csv", "layer,key,value,error,bytes\n0,a,b,1,5\n0,a,c,.75,7\n0,c,c,.8,8\n")
        test_messages()
        test_outputs()
        test_results_as_tables()
        test_brute_force()
        test_candidates()
        os.chdir("/")
    print(f"{failures} checks failed" if failures else "good")
    return failures != 0


sys.exit(main())
