"""What the program and the CUDA module are linked with: the program with nothing of CUDA, the module
with nothing but the C library, of which it shows one symbol.

    python3 linked.py READELF NM PROGRAM MODULE
"""
import re
import subprocess
import sys

LIBC = re.compile(r"lib(c|m|dl|rt|pthread)\.so\.\d+|ld-linux.*")


def needs(readelf, path):
    text = subprocess.run([readelf, "-d", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def main():
    readelf, nm, program, module = sys.argv[1:]
    wrong = [f"{program} needs {name}" for name in needs(readelf, program) if "cuda" in name]
    wrong += [f"{module} needs {name}" for name in needs(readelf, module) if not LIBC.fullmatch(name)]
    shown = subprocess.run([nm, "-D", "--defined-only", "--format=posix", module],
                           capture_output=True, text=True, check=True).stdout.split("\n")
    wrong += [f"{module} shows {line}" for line in shown
              if line and not line.startswith("kv_cuda_module_table ")]
    print(*wrong, sep="\n")
    return bool(wrong)


sys.exit(main())
