"""The program from outside: messages and exit codes of typical mistakes, results that do not depend
on threads, runs that are killed and taken up again. Standard library only.

    python3 test_program.py KVANT
"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

KVANT = os.path.abspath(sys.argv[1])
SEED = 20240611
failures = 0

SWEEP = """\
kvant: 1
heads: {tokens: 1024, head_dim: 32, queries: 3, seeds: 12, kv_heads: 2, outliers: {count: 2}}
schemes: [int8/token, int4/channel, "int4/32x1:zero:mse"]
metrics: all
sweep: {heads.outliers.scale: [1, 5]}
"""

SMALL = """\
kvant: 1
heads: {tokens: 64, head_dim: 16}
schemes: [int8/token]
"""


def check(condition, *what):
    global failures
    if not condition:
        failures += 1
        print("not true:", *what)


def run(*arguments, code=0):
    """Runs kvant to its end; what it printed on stdout and stderr."""
    done = subprocess.run([KVANT, *arguments], capture_output=True, text=True, timeout=120)
    check(done.returncode == code, arguments, "exit code", done.returncode, "expected", code,
          done.stderr)
    return done.stdout, done.stderr


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def small(old="", new=""):
    assert old in SMALL
    return SMALL.replace(old, new)


# ---- messages: (configuration, arguments, exit code, stderr to the letter) ----

GOLDEN = [
    (None, ["sweeep"], 2, 'kvant: unknown command "sweeep", did you mean "sweep"?; see kvant help'),
    (None, ["sweep"], 2, "kvant: usage: kvant sweep CONFIG.yaml; see kvant help sweep"),
    (None, ["sweep", "c.yaml", "--fast"], 2,
     'kvant: sweep does not take "--fast"; see kvant help sweep'),
    (None, ["sweep", "c.yaml", "-o"], 2, "kvant: -o needs a value; see kvant help sweep"),
    (None, ["sweep", "c.yaml", "--threads", "0"], 2,
     'kvant: --threads: expected a number from 1 to 4096, found "0"'),
    (None, ["check", "nowhere.yaml"], 2,
     "kvant: nowhere.yaml: cannot open: No such file or directory"),
    (None, ["show", "nowhere.h5"], 2, "kvant: nowhere.h5: No such file or directory"),
    (None, ["list", "format"], 2, None),
    ("", ["check", "c.yaml"], 2, "kvant: c.yaml: is empty"),
    (small("64", "4abc"), ["check", "c.yaml"], 2,
     "kvant: c.yaml:2:17: heads.tokens: expected an integer, found 4abc"),
    (small("tokens", "tokns"), ["check", "c.yaml"], 2,
     'kvant: c.yaml:2:9: heads.tokns: unknown key, did you mean "heads.tokens"?'),
    (small("}", ", tokens: 3}"), ["check", "c.yaml"], 2,
     "kvant: c.yaml:2:35: tokens: given twice, first on line 2"),
    (small("}", ", outliers: {channels: [16], scale: 9}}"), ["check", "c.yaml"], 2,
     "kvant: c.yaml: heads.outliers.channels: 16 is not below heads.head_dim = 16"),
    (small("}", ", kv_heads: 3, query_heads: 4}"), ["check", "c.yaml"], 2,
     "kvant: c.yaml: heads.query_heads: 4 is not a multiple of heads.kv_heads = 3"),
    (small("}", ", queries: 65}"), ["check", "c.yaml"], 2,
     "kvant: c.yaml: heads.queries: 65 queries at the last positions need as many tokens, "
     "heads.tokens = 64"),
    (small("16", "15, rope: {layout: half}"), ["check", "c.yaml"], 2,
     "kvant: c.yaml: heads.rope.rotary_dim: 15 must be even and at most heads.head_dim = 15"),
    (small("16", "16, rope: {layout: half, base: 1}"), ["check", "c.yaml"], 2,
     "kvant: c.yaml: heads.rope.base: must be above 1"),
    (small("16", "2, rope: {layout: half, scaling: {type: ntk, factor: 2}}"), ["check", "c.yaml"], 2,
     "kvant: c.yaml: heads.rope.rotary_dim: 2: scaling ntk needs 4 or more"),
    (small("}", ", layers: 100000, seeds: 1000}"), ["check", "c.yaml"], 2,
     "kvant: c.yaml: 100000000 units of work (sweep points x layers x seeds), at most 10000000 are "
     "possible"),
    (SMALL + "sweep: {heads.window: [" + ", ".join(map(str, range(10001))) + "]}\n",
     ["check", "c.yaml"], 2,
     "kvant: c.yaml:4:23: sweep: heads.window: 10001 values, at most 10000 are possible"),
    (small("int8/token", "int8/tokne"), ["check", "c.yaml"], 2,
     'kvant: c.yaml:3:11: schemes: "int8/tokne": unknown tile "tokne", did you mean "token"? '
     'tiles: tensor, head, channel, token, token-all, or TOKENSxCHANNELS like 32x1, with "all" '
     "allowed"),
    (small("int8/token", "q4_0"), ["check", "c.yaml"], 2,
     'kvant: c.yaml: schemes: "q4_0 | q4_0", value: q4_0: head_dim 16 is not a multiple of 32'),
    (small("int8/token", "kivi-3"), ["check", "c.yaml"], 2,
     'kvant: c.yaml:3:11: schemes: "kivi-3": no such preset, did you mean "kivi-2"?'),
    (small("int8/token", '"int8/token:static=8"'), ["check", "c.yaml"], 2, None),
    (SMALL + "metrics: [out_er]\n", ["check", "c.yaml"], 2,
     'kvant: c.yaml:4:11: metrics: unknown metric "out_er", did you mean "out_err"?'),
    (SMALL, ["check", "c.yaml", "--set", "heads.tokens"], 2,
     "kvant: --set heads.tokens: expected KEY=VALUE"),
    (SMALL, ["check", "c.yaml", "--set", "heads.tokens=0"], 2, None),
    (small("}", ", generator: capture, capture: none.h5}"), ["sweep", "c.yaml"], 1, None),
    (SMALL, ["sweep", "c.yaml", "-o", "nowhere/o.h5"], 1,
     "kvant: opening nowhere/o.h5.run: No such file or directory"),
    (SMALL, ["show", "c.yaml"], 2, None),
]


def test_messages():
    for config, arguments, code, expected in GOLDEN:
        if config is not None:
            write("c.yaml", config)
        _, found = run(*arguments, code=code)
        check(found.startswith("kvant: "), arguments, "stderr", found)
        if expected is not None:
            check(found.rstrip("\n") == expected, arguments, "\n  found   ", found, " expected", expected)


def test_backends():
    """Who computes, and why: named, chosen, refused. GPUs are looked for in a folder without any."""
    write("c.yaml", SMALL)
    nowhere = {**os.environ, "KVANT_CUDA_MODULE": "./nowhere.so"}
    reason = "./nowhere.so: cannot open shared object file: No such file or directory"
    for arguments, code, expected in (
            (["list", "backends"], 0, ""),
            (["sweep", "c.yaml", "-q"], 0, ""),
            (["sweep", "c.yaml", "--dry-run"], 0, f"backend cpu (not cuda: {reason})\n"),
            (["sweep", "c.yaml", "--dry-run", "--backend", "cpu"], 0, ""),
            (["sweep", "c.yaml", "--backend", "cuda"], 1, f"kvant: backend cuda: {reason}\n"),
            (["sweep", "c.yaml", "--backend", "gpu"], 2,
             "kvant: backend gpu: not known; there are: auto, cuda, cpu\n"),
            (["sweep", "c.yaml", "--device", "0"], 2,
             f"kvant: --device 0: backend cpu has no devices to choose from; not cuda: {reason}\n"),
            (["sweep", "c.yaml", "--device", "first"], 2,
             'kvant: --device: expected a device\'s number, from 0, found "first"\n')):
        done = subprocess.run([KVANT, *arguments], env=nowhere, capture_output=True, text=True,
                              timeout=60, check=False)
        check((done.returncode, done.stderr) == (code, expected), arguments, done.returncode,
              done.stderr)
        if arguments[0] == "list":
            check(f"; not available: {reason}\ncpu " in done.stdout, done.stdout)
    out, _ = run("show", "c.h5")
    check(f"backend_why              not cuda: {reason}\n" in out, out)


def test_full_stdout():
    if not os.path.exists("/dev/full"):
        return
    for arguments in (["list", "keys"], ["help"], ["--version"]):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([KVANT, *arguments], stdout=full, stderr=subprocess.PIPE,
                                  timeout=60, check=False)
        check(done.returncode == 1, arguments, "into a full disk: exit code", done.returncode)


# ---- policies ----

POLICY = """\
layers: [{layer: 1, value: f16, key: int8/1xall}, {layer: 0, key: theirs, value: "int4/token:zero"}]
kvant_policy: 1
"""

CANONICAL = """\
kvant_policy: 1
budget_met: true
complete: true
layers:
  - {layer: 0, key: theirs, value: int4/token:zero}
  - {layer: 1, key: int8/token, value: f16}
"""

POLICY_SWEEP = """\
kvant: 1
heads: {tokens: 64, head_dim: 16, layers: 2}
schemes: [{name: tuned, policy: p.yaml}]
"""


def test_policies():
    write("p.yaml", POLICY)
    out, err = run("check", "p.yaml")
    check(out == CANONICAL, out)
    check(err == '1 of 4 schemes are not kvant\'s, as "theirs": they cannot be simulated\n', err)
    _, err = run("check", "p.yaml", "--set", "title=x", code=2)
    check(err == "kvant: --set goes with a configuration; p.yaml is a policy\n", err)
    write("c.yaml", POLICY_SWEEP)
    _, err = run("sweep", "c.yaml", code=2)
    check(err.startswith('kvant: c.yaml:3:11: schemes: "tuned", layer 0, key: "theirs": unknown format'),
          err)
    write("p.yaml", POLICY.replace("theirs", "q8_0").replace("layers", "layer"))
    _, err = run("sweep", "c.yaml", code=2)
    check('/p.yaml:1:1: layer: unknown key, did you mean "layers"?\n' in err, err)
    write("p.yaml", POLICY.replace("theirs", "int2/head"))
    write("c.yaml", POLICY_SWEEP.replace("name: tuned, ", ""))
    _, err = run("check", "c.yaml", code=2)
    check(err == "kvant: c.yaml:3:11: schemes.name: must be given: the policy has no title\n", err)

    # an effective configuration runs without the policy's file
    write("p.yaml", POLICY.replace("theirs", "int2/head") + "title: tuned\n")
    run("sweep", "c.yaml", "-o", "by-policy.h5", "--quiet")
    effective, _ = run("check", "c.yaml")
    os.remove("p.yaml")
    write("e.yaml", effective)
    run("sweep", "e.yaml", "-o", "by-layer.h5", "--quiet")
    check(run("check", "e.yaml")[0] == effective, effective)
    rows = run("show", "by-layer.h5", "--format", "csv")[0].splitlines()
    check(rows[1].startswith("tuned,per layer,per layer,"), rows[1])
    check(show("by-policy.h5") == show("by-layer.h5"), "the effective configuration gives other numbers")


CAPACITY = [
    (["--model", "llama-3.1-8b"], "capacity needs --policy or --scheme"),
    (["--model", "llama-3.1-8b", "--scheme", "f16"],
     "capacity needs --context, 1 to 1000000000 tokens"),
    (["--context", "1k"], '--context: expected a number of tokens, found "1k"'),
    (["--memory", "0"], '--memory: expected GiB (2^30 bytes) above 0 to 1e6, found "0"'),
    (["--weights", "x"], '--weights: expected GiB (2^30 bytes) above 0 to 1e6, found "x"'),
    (["--format", "csv"], 'unknown format "csv"; capacity prints table or json'),
]


def test_capacity():
    for arguments, expected in CAPACITY:
        _, err = run("capacity", *arguments, code=2)
        check(err == f"kvant: {expected}\n", arguments, err)
    out, err = run("capacity", "--model", "llama-3.1-70b", "--scheme", "e4m3/tensor:unit", "--context",
                   "131072", "--memory", "141", "--weights", "37.5", "--format", "json")
    found = json.loads(out)
    check(found["f16"] == {"bytes": 40 << 30, "bytes_per_token": 327680, "sequences": 2,
                           "longest": 339148}, found["f16"])
    check(found["cache"]["bytes"] == 20 << 30 and found["cache"]["sequences"] == 5, found["cache"])
    check(len(found["layers"]) == 80 and err == "", len(found["layers"]))
    write("m.yaml", "about: a\nsource: b\nheads: {layers: 2, head_dim: 16}\n")
    write("p.yaml", POLICY.replace("theirs", "q8_0"))
    _, err = run("capacity", "--model", "./m.yaml", "--policy", "p.yaml", "--context", "10", code=2)
    check(err == "kvant: layer 0: q8_0: head_dim 16 is not a multiple of 32\n", err)
    write("p.yaml", POLICY.replace("theirs", "int8/token") + "model: ./m.yaml\n")
    out, _ = run("capacity", "--policy", "p.yaml", "--context", "10", "--pages", "vllm=32")
    check("pages of 1152 bytes hold 32 tokens, of larger layers 16: " in out, out)
    out, _ = run("capacity", "--policy", "p.yaml", "--context", "10")
    check(out.startswith("./m.yaml, p.yaml, 10 tokens; GiB = 2^30 bytes\n"), out)


# ---- threads, runs ----

def show(path):
    """Everything that is measured, in full precision, each seed and head by itself."""
    return run("show", path, "--format", "csv", "--rows", "seed")[0]


def expect_same(path, reference):
    check(show(path) == reference, path, "differs from the run that was not disturbed")
    check(not os.path.exists(path + ".run"), path, "its log is still there")


def test_threads():
    run("sweep", "sweep.yaml", "-o", "whole.h5", "-q", "--threads", "1")
    reference = show("whole.h5")
    check(reference.count("\n") == 1 + 3 * 2 * 12, "rows of the table", reference.count("\n"))
    for threads in "2", "5", "64":
        run("sweep", "sweep.yaml", "-o", "threads.h5", "-q", "--threads", threads)
        expect_same("threads.h5", reference)
    return reference


def start(*arguments):
    return subprocess.Popen([KVANT, "sweep", "sweep.yaml", "-q", *arguments],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_kill(reference):
    """Killed at random moments, also while it takes up; never a broken result, the same in the end."""
    rng = random.Random(SEED)
    began = time.monotonic()
    run("sweep", "sweep.yaml", "-o", "timed.h5", "-q", "--threads", "2")
    whole_s = time.monotonic() - began
    n_killed = 0
    for case in range(30):
        path = f"killed{case}.h5"
        for _ in range(rng.choice([1, 1, 2, 5])):
            process = start("-o", path, "--threads", rng.choice("125"), "--resume")
            time.sleep(rng.uniform(0, 1.2 * whole_s))
            process.kill()
            n_killed += process.wait() == -signal.SIGKILL
            if os.path.exists(path):
                check(show(path) == reference, path, "there after a kill, but not whole")
        run("sweep", "sweep.yaml", "-o", path, "-q", "--resume")
        expect_same(path, reference)
        os.remove(path)
    check(n_killed > 0, "no process was killed in time")


def test_interrupt(reference):
    process = start("-o", "stopped.h5", "--threads", "1")
    deadline = time.monotonic() + 60
    while not os.path.exists("stopped.h5.run") and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    code = process.wait(timeout=60)
    check(code in (-signal.SIGINT, 0, 1), "after SIGINT: exit code", code)
    run("sweep", "sweep.yaml", "-o", "stopped.h5", "-q", "--resume")
    expect_same("stopped.h5", reference)


def test_wrong_log(reference):
    """Another configuration's log, somebody else's file, two processes at once."""
    process = start("-o", "log.h5", "--threads", "1")
    while process.poll() is None and (not os.path.exists("log.h5.run")
                                      or os.path.getsize("log.h5.run") < 8000):
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)  # it holds its log
    stopped = process.poll() is None
    if stopped:
        _, found = run("sweep", "sweep.yaml", "-o", "log.h5", "-q", "--resume", code=2)
        check(found == "kvant: log.h5.run: another process is working on this run\n", found)
    process.kill()
    process.wait()
    if stopped:
        _, found = run("sweep", "sweep.yaml", "-o", "log.h5", "-q", code=2)
        check(found == "kvant: log.h5.run holds finished work of an earlier run: use --resume, or "
              "delete it\n", found)
        _, found = run("sweep", "sweep.yaml", "-o", "log.h5", "-q", "--resume", "--set",
                       "heads.tokens=1000", code=2)
        check(found == 'kvant: log.h5.run was made by another configuration: "  tokens: 1024" '
              'there, "  tokens: 1000" now; delete it to start over\n', found)
    run("sweep", "sweep.yaml", "-o", "log.h5", "-q", "--resume")
    expect_same("log.h5", reference)
    write("log.h5.run", "a letter")
    for resume in [], ["--resume"]:
        _, found = run("sweep", "sweep.yaml", "-o", "log.h5", "-q", *resume, code=2)
        check(found == "kvant: log.h5.run is in the way: not the progress of a run\n", found)
    check(show("log.h5") == reference, "a refused run touched the result")
    with open("log.h5.run", encoding="ascii") as file:
        check(file.read() == "a letter", "a refused run touched the file in its way")


def test_damaged_result():
    with open("whole.h5", "rb") as file:
        good = file.read()
    rng = random.Random(SEED)
    for case in range(20):
        bad = bytearray(good)
        if case % 2:
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        else:
            del bad[rng.randrange(len(bad)):]
        with open("damaged.h5", "wb") as file:
            file.write(bad)
        _, found = run("show", "damaged.h5", code=2)
        check("damaged" in found or "neither a result nor a capture" in found, found)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write("sweep.yaml", SWEEP)
        test_messages()
        test_policies()
        test_capacity()
        test_backends()
        test_full_stdout()
        reference = test_threads()
        test_damaged_result()
        test_kill(reference)
        test_interrupt(reference)
        test_wrong_log(reference)
        os.chdir("/")
    print(f"{failures} checks failed" if failures else "good")
    return failures != 0


sys.exit(main())
