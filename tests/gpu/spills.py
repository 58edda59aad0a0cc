"""What NVIDIA's assembler makes of every kernel: registers, shared memory, and that nothing is spilled
or kept on a stack, by the functions they call neither. Reads PTX files, which name their kernels.

    python3 spills.py PTXAS ARCH FILE.ptx...
"""
import os
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def kernels(ptxas, arch, path):
    """(name, registers, bytes of static shared memory, bytes of stack and spills) of one file."""
    done = subprocess.run([ptxas, "-v", f"-arch=sm_{arch}", path, "-o", os.devnull], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit(f"{path}: {done.stdout}")
    parts = ENTRY.split(done.stdout)
    for name, text in zip(parts[1::2], parts[2::2]):
        shared = SHARED.search(text)
        yield (name, int(USED.search(text)[1]), int(shared[1]) if shared else 0,
               sum(int(n) for found in STACK.findall(text) for n in found))


def main():
    ptxas, arch, *files = sys.argv[1:]
    found = [kernel for path in files for kernel in kernels(ptxas, arch, path)]
    for name, registers, shared, spilled in found:
        print(f"{registers:4} registers {shared:6} B shared  {name}"
              + (f": {spilled} bytes of stack and spills" if spilled else ""))
    return not found or any(spilled for *_, spilled in found)


sys.exit(main())
