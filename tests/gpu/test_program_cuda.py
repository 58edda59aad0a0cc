"""The program on CUDA modules: who is found, who is refused and why, and results beside the CPU's.

    python3 test_program_cuda.py KVANT EMULATED OTHER_VERSION [MODULE]
"""
import csv
import os
import subprocess
import sys
import tempfile

KVANT, EMULATED, OTHER, *MODULE = map(os.path.abspath, sys.argv[1:])
RANKS = "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"
SWEEP = """\
kvant: 1
heads: {tokens: 96, head_dim: 20, queries: 3, kv_heads: 2, outliers: {count: 1}, rope: {layout: half}}
schemes: [int8/token, int4/channel, "int4/32x1:zero:mse"]
metrics: all
"""
CPU = "cpu        this machine's processors: OpenMP, and the widest vectors there are\n"
failures = 0


def check(condition, *what):
    global failures
    if not condition:
        failures += 1
        print("not true:", *what)


def run(*arguments, code=0, module=EMULATED, **environment):
    """Runs kvant with a module to its end; what it printed on stdout and stderr."""
    inherited = {k: v for k, v in os.environ.items() if k not in RANKS}
    done = subprocess.run([KVANT, *arguments], capture_output=True, text=True, timeout=300,
                          check=False,
                          env={**inherited, "KVANT_CUDA_MODULE": module, **environment})
    check(done.returncode == code, arguments, environment, "exit code", done.returncode,
          "expected", code, done.stderr)
    return done.stdout, done.stderr


def test_list():
    """kvant list backends, as far as it speaks of CUDA."""
    row = "cuda       an NVIDIA GPU, one for each process; --device chooses; "
    for module, environment, expected in (
            (EMULATED, {}, "here: kvant emulator (PTX of sm_90)"),
            (EMULATED, {"KVANT_GPU_DEVICES": "0"},
             "not available: CUDA: cudaGetDeviceCount: CUDA driver version is insufficient for CUDA "
             "runtime version (cudaErrorInsufficientDriver)"),
            (EMULATED, {"KVANT_GPU_DEVICES": "-1"}, "not available: CUDA finds no device"),
            (OTHER, {}, f"not available: {OTHER}: belongs to another version of kvant")):
        out, err = run("list", "backends", module=module, **environment)
        check(out.startswith(row + expected) and out.endswith("\n" + CPU) and not err, out, err)
    for module in MODULE:  # the real one, whatever this machine has
        out, _ = run("list", "backends", module=module)
        check(out.startswith(row + "here: ") or out.startswith(row + "not available: CUDA"), out)


def test_devices():
    """Which of four devices is taken: the first, the one asked for, the one of an MPI rank."""
    four = {"KVANT_GPU_DEVICES": "4"}
    dry = ["sweep", "c.yaml", "--dry-run"]
    for environment, arguments, number in (
            ({}, [], 0), ({}, ["--device", "3"], 3),
            *(({name: "6"}, [], 2) for name in RANKS),
            ({RANKS[0]: "1"}, ["--device", "2"], 2),
            ({RANKS[0]: "first", RANKS[3]: "1"}, [], 1)):
        _, err = run(*dry, *arguments, **four, **environment)
        name = "kvant emulator (PTX of sm_90)" + (f", device {number}" if number else "")
        check(err == f"backend cuda ({name})\n", environment, arguments, err)
    _, err = run(*dry, "--device", "4", code=2, **four)
    check(err == "kvant: no CUDA device 4: this machine has 4, counted from 0\n", err)
    _, err = run(*dry, "--device", "0", "--backend", "cpu", code=2)
    check(err == "kvant: --device 0: backend cpu has no devices to choose from\n", err)


def table(path):
    return list(csv.reader(run("show", path, "--format", "csv", "--rows", "seed")[0].splitlines()))


def is_near(a, b):
    """Numbers that differ at most in the order of sums, or equal words."""
    try:
        x, y = float(a), float(b)
    except ValueError:
        return a == b
    return abs(x - y) <= 1e-6 * abs(y) + 1e-12 or (x != x and y != y)


def test_sweep():
    run("sweep", "c.yaml", "-o", "cpu.h5", "-q", "--backend", "cpu")
    run("sweep", "c.yaml", "-o", "cuda.h5", "-q", "--backend", "cuda", KVANT_GPU_LEAKS="1")
    expected, found = table("cpu.h5"), table("cuda.h5")
    check(len(found) == len(expected) > 3, "rows", len(found), len(expected))
    for a, b in zip(found, expected):
        check(len(a) == len(b) and all(map(is_near, a, b)), "\n found   ", a, "\n expected", b)
    out, _ = run("show", "cuda.h5")
    check("backend                  cuda\n" in out, out)
    check("device                   kvant emulator (PTX of sm_90)\n" in out, out)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("c.yaml", "w", encoding="utf-8") as file:
            file.write(SWEEP)
        test_list()
        test_devices()
        test_sweep()
        os.chdir("/")
    print(f"{failures} checks failed" if failures else "good")
    return failures != 0


sys.exit(main())
