"""`kvant tune CONFIG.yaml` from outside: messages and exit codes, threads, and tunings that are
stopped, killed or cut short and taken up again. Standard library only.

    python3 test_tune_program.py KVANT
"""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

KVANT = os.path.abspath(sys.argv[1])
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive")  # threads wait, not spin
failures = 0

HEADS = """\
kvant: 1
title: four layers
heads: {layers: 4, kv_heads: 1, query_heads: 2, head_dim: 32, tokens: 256, seeds: 2, outliers: {count: 1, bias: 5}}
"""
TUNE = HEADS + "tune: {max_error: 0.05}\n"


def check(condition, *what):
    global failures
    if not condition:
        failures += 1
        print("not true:", *what)


def run(*arguments, code=0):
    done = subprocess.run([KVANT, *arguments], capture_output=True, text=True, timeout=200,
                          env=ENVIRONMENT)
    check(done.returncode == code, arguments, "exit code", done.returncode, "expected", code,
          done.stderr)
    return done.stdout, done.stderr


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def clean():
    for name in os.listdir("."):
        os.unlink(name)


# ---- messages: (configuration, further arguments, exit code, stderr to the letter) ----

GOLDEN = [
    (HEADS, [], 2, "kvant: c.yaml:1:1: schemes: must be given: what to compare"),
    (HEADS + "tune: {}\n", [], 2,
     "kvant: tune: no budget; give one of max_error, max_bytes_per_token, max_bits or match"),
    (HEADS + "schemes: [q8_0, {name: mine, layers: {0: [f16, f16], 1-3: [q8_0, q8_0]}}]\n"
     "tune: {max_error: 0.05}\n", [], 2,
     'kvant: schemes: "mine" differs between layers, which is what a tuning chooses; compare with '
     "it in a sweep"),
    (TUNE, ["--set", "heads.seeds=[9007199254740990]"], 2,
     "kvant: heads.seeds: the held-out seeds follow the largest search seed and end at "
     "9007199254741006; at most 9007199254740992 is possible"),
    (TUNE, ["--effort", "all"], 2,
     'kvant: --set tune.effort=all: tune.effort: unknown value "all"; choose one of: estimate, '
     "measure, patient, exhaustive"),
    (TUNE, ["--time-limit", "0"], 2, 'kvant: --time-limit: expected seconds above 0, found "0"'),
    (TUNE, ["--time-limit", "soon"], 2,
     'kvant: --time-limit: expected seconds above 0, found "soon"'),
    (TUNE, ["--max-error", "-1"], 2,
     'kvant: --max-error: expected a number, 0 or more, found "-1"'),
    (TUNE, ["--explain", "x"], 2, 'kvant: --explain: expected a layer\'s number, found "x"'),
    (TUNE, ["--explain", "9"], 2, "kvant: --explain: there is no layer 9; there are 4, from 0 to 3"),
    (TUNE, ["--resolution", "1.5"], 2,
     'kvant: --resolution: expected a whole number, 0 or more, found "1.5"'),
    (TUNE, ["-o", "c.yaml"], 2,
     "kvant: c.yaml is read by this run; name another output"),
    (TUNE, ["--policy", "c.yaml"], 2,
     "kvant: c.yaml is read by this run; name another output"),
    (TUNE, ["--policy", "c.h5"], 2, "kvant: c.h5 cannot be both the result and the policy"),
    (TUNE, ["--policy", "c.h5.cache"], 2,
     "kvant: c.h5.cache cannot be both the policy and the cache"),
    (TUNE, ["--backend", "cpu", "--time-limit", "1e-6"], 1,
     "kvant: 0 measurements are kept in c.h5.cache; the same command goes on\n"
     "kvant: stopped before the tuning was finished"),
]


def test_messages():
    for config, arguments, code, expected in GOLDEN:
        clean()
        write("c.yaml", config)
        _, err = run("tune", "c.yaml", *arguments, code=code)
        check(err.strip() == expected, arguments, "\n found   ", err.strip(), "\n expected",
              expected)


# ---- results ----

def tune(*arguments, code=0):
    out, err = run("tune", "c.yaml", "--backend", "cpu", *arguments, code=code)
    return out, err, read("c.policy.yaml") if os.path.exists("c.policy.yaml") else None


def layers_of(policy):
    return policy[policy.index("layers:"):policy.index("result:")]


def test_notes():
    clean()
    write("c.yaml", TUNE.replace("head_dim: 32", "head_dim: 24"))
    _, err, _ = tune("--effort", "estimate", "--set", "tune.baselines=[]")
    for tensor in ("key", "value"):
        check(tensor + " q8_0 is not considered: " in err, err)
    generator, rows = random.Random(1), ["layer,key,value,error,bytes"]
    for layer in range(60):
        weight, sizes = generator.random(), sorted(generator.sample(range(1 << 20, 1 << 24), 16))
        rows += [f"{layer},k{i},v,{weight / b},{b}" for i, b in enumerate(sizes)]
    write("many.csv", "\n".join(rows) + "\n")
    write("c.yaml", "kvant: 1\nschemes: [f16]\ntune: {table: many.csv, max_error: 6e-6}\n")
    out, err, _ = tune()
    check(re.search(r"The frontier is exact at budgets \d+ bytes apart: \d+ points", out), out)
    check(re.search("the frontier has more than 100000 points; its sizes are taken at a resolution "
                    r"of \d+ bytes\n", err), err)


def test_result():
    clean()
    write("c.yaml", TUNE)
    out, err, policy = tune("--threads", "1")
    check(err == "written to c.h5 and c.policy.yaml\n", err)
    check("budget    max_error 0.05: met\n" in out, out)
    check("held-out seeds, 95 % interval" in out, out)
    for family in ("uniform", "ends high", "random", "NSGA-II"):
        check(re.search(family, out), family, out)
    check("is_complete: false" not in policy, policy)
    summary, _ = run("show", "c.h5")
    check("complete" in summary and "config" in summary, summary)
    sha256 = re.search(r"config_sha256: ([0-9a-f]{64})", policy)
    check(sha256 and sha256[1] in summary, "the policy names its configuration", policy)
    check("\nresult: c.h5\n" in policy, "beside each other they may be moved", policy)
    check(re.search(r"^[0-9]+ more: kvant show FILE --metric candidate$", out, re.M), out)
    run("show", "c.h5", "--metric", "policy", "--format", "csv")
    again_out, again_err, again = tune("--threads", "3")  # everything is in the cache
    check(re.fullmatch(r"[0-9]+ measurements of an earlier run are in c\.h5\.cache\n"
                       r"written to c\.h5 and c\.policy\.yaml\n", again_err), again_err)
    check(again_out == out and again == policy, "the cache changes nothing")
    os.unlink("c.h5.cache")
    fresh_out, _, fresh = tune("--threads", "3")
    check(fresh_out == out and fresh == policy, "threads change nothing")
    _, quiet, _ = tune("--quiet")
    check(quiet == "", quiet)
    out, _, _ = tune("--max-error", "1e-9", code=3)
    check("max_error 1e-09: NOT MET" in out, out)
    out, _, _ = tune("--max-bytes", "65536")
    check("max_bytes_per_token 256: met" in out, out)
    out, _, _ = tune("--explain", "2")
    check("Layer 2: " in out, out)
    write("c.yaml", HEADS.replace("seeds: 2", "seeds: 1") + "tune: {match: q4_0}\n")
    out, _, _ = tune()
    check("match q4_0 | q4_0" in out and ": met: no more in the paired difference" in out, out)
    return fresh_out, fresh


def test_dry_run():
    clean()
    write("c.yaml", TUNE)
    out, _ = run("tune", "c.yaml", "--dry-run")
    check(os.listdir(".") == ["c.yaml"], "nothing is written", os.listdir("."))
    check(re.search(r"^# products +[0-9.e+]+ FLOP without the comparison$", out, re.M), out)
    write("c.yaml", out)
    again, _ = run("tune", "c.yaml", "--dry-run")
    check(again == out, "the effective configuration reads back")
    checked, _ = run("check", "c.yaml")
    check(out.startswith(checked) and "tune:" in checked, "check prints it", checked)
    write("c.yaml", HEADS + "tune: {max_error: 0.1}\n")
    _, notes = run("sweep", "c.yaml", code=2)
    check(notes == "kvant: c.yaml: has no schemes; it is for kvant tune\n", notes)
    keys, _ = run("list", "keys")
    for key in ("tune.max_error", "tune.held_out", "tune.pin", "tune.baselines"):
        check(key in keys, key)
    names, _ = run("list", "baselines")
    check([line.split()[0] for line in names.splitlines()] ==
          ["uniform", "ends-high", "random", "nsga2"], names)


# ---- stopped and taken up again ----

def test_stops(out, policy):
    """Killed, interrupted or cut short at several moments, the tuning ends as if it never was."""
    clean()
    write("c.yaml", TUNE)
    for number, delay in ((signal.SIGKILL, 0.15), (signal.SIGINT, 0.3), (signal.SIGTERM, 0.3),
                          (signal.SIGKILL, 0.5)):
        process = subprocess.Popen([KVANT, "tune", "c.yaml"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        time.sleep(delay)
        process.send_signal(number)
        _, err = process.communicate(timeout=100)
        if process.returncode == 0:
            continue  # a fast machine
        if number == signal.SIGKILL:
            check(process.returncode == -number, "killed", process.returncode, err)
        else:
            check(process.returncode == 1, "interrupted", process.returncode, err)
            check("measurements are kept in c.h5.cache; the same command goes on" in err, err)
    final, _, again = tune("--resume")
    check(final == out, "the report")
    check(again == policy, "the policy")
    os.unlink("c.h5.cache")
    done = subprocess.run([KVANT, "tune", "c.yaml", "--time-limit", "0.4"], capture_output=True,
                          text=True, timeout=100, env=ENVIRONMENT)
    check(done.returncode in (0, 1, 3), done.returncode, done.stderr)
    if "NOT COMPLETE" in done.stdout:
        check("c.h5.cache; the same command goes on" in done.stderr, done.stderr)
    final, _, again = tune()
    check(final == out and again == policy, "after a time limit")


def test_locked():
    clean()
    write("c.yaml", TUNE)
    write("c.h5.cache", "something else")
    _, err = run("tune", "c.yaml", code=2)
    check(err == "kvant: c.h5.cache is in the way: not the measurements of a tuning\n", err)
    check(read("c.h5.cache") == "something else", "never overwritten")


def test_closed():
    """Where standard output is closed, what is printed does not end up in the measurements."""
    clean()
    write("c.yaml", TUNE)
    done = subprocess.run([KVANT, "tune", "c.yaml"], stderr=subprocess.PIPE, text=True, timeout=100,
                          env=ENVIRONMENT, preexec_fn=lambda: os.close(1))
    check(done.returncode == 1, "standard output closed", done.returncode, done.stderr)
    check("kvant: writing to standard output: Bad file descriptor\n" in done.stderr, done.stderr)
    with open("c.h5.cache", "rb") as file:
        check(file.read(8) == b"kvtune1\n", "the cache was written over")
    _, err = run("tune", "c.yaml")
    check("measurements of an earlier run are in c.h5.cache" in err, err)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        test_messages()
        test_notes()
        out, policy = test_result()
        test_dry_run()
        test_stops(out, policy)
        test_locked()
        test_closed()
        os.chdir("/")
    if failures:
        print(failures, "checks failed")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
