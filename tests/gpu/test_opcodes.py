"""Every PTX instruction the translator knows, one by one, against exact arithmetic.

    test_opcodes.py --write opcodes.ptx      the test kernels
    test_opcodes.py --check libopcodes.so    runs them and compares; fails if the translator knows an
                                             instruction that no kernel showed to be right
    test_opcodes.py --assemble ptxas opcodes.ptx   NVIDIA's assembler accepts every spelling
"""

import ctypes
import os
import subprocess
import sys
import tempfile

import move_cases
import opcodes
import value_cases

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"
BLOCK = 64


class Machine:
    """The emulator with the translated test kernels."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.gpu_message.restype = ctypes.c_char_p
        self.library.gpu_map.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.library.gpu_unmap.argtypes = [ctypes.c_void_p]

    def message(self):
        return self.library.gpu_message().decode()

    def launch(self, label, blocks, threads, buffers, values):
        """Buffers become pointers to mapped memory; values are other parameters. True if it ran."""
        pointers = [ctypes.c_uint64(ctypes.addressof(b)) for b in buffers]
        for p, b in zip(pointers, buffers):
            self.library.gpu_map(p.value, ctypes.sizeof(b))
        arguments = [ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in pointers + values]
        failed = self.library.gpu_run(label.encode(), blocks, threads, 0,
                                      (ctypes.c_void_p * len(arguments))(*arguments))
        for p in pointers:
            self.library.gpu_unmap(p.value)
        return not failed

    def run(self, label, n, columns, numbers):
        """Columns of n numbers in slots of 8 bytes; returns the result's slots."""
        out = (ctypes.c_uint64 * n)()
        buffers = [out] + [(ctypes.c_uint64 * n)(*c) for c in columns]
        if not self.launch(label, (n + BLOCK - 1) // BLOCK, BLOCK, buffers,
                           [ctypes.c_uint32(v) for v in numbers]):
            raise SystemExit(f"{label}: {self.message()}")
        return list(out)

    def run_bytes(self, label, data, some):
        """16 bytes in and out per lane; None if the launch was ended."""
        size = 16 * len(data)
        source, out = (ctypes.c_uint8 * size)(*b"".join(data)), (ctypes.c_uint8 * size)()
        if not self.launch(label, 1, len(data), [out, source], [(ctypes.c_uint8 * 16)(*some)]):
            return None
        return [bytes(out[16 * i:16 * i + 16]) for i in range(len(data))]


def check(path):
    machine = Machine(os.path.abspath(path))
    right = set(value_cases.check(machine)) | set(move_cases.check(machine))
    unproved = sorted(set(opcodes.known()) - right)
    if unproved:
        print(f"{len(unproved)} instructions of the translator are not shown to be right: "
              + " ".join(unproved[:20]))
    print(f"{len(right)} of {len(opcodes.known())} instructions right")
    return bool(unproved)


def main():
    mode, *rest = sys.argv[1:]
    if mode == "--write":
        with open(rest[0], "w") as f:
            f.write(HEAD + move_cases.ptx() + value_cases.ptx())
        return 0
    if mode == "--assemble":
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.call([rest[0], "-arch=sm_90", "-O0", rest[1], "-o", folder + "/x.cubin"])
    return check(rest[0])


if __name__ == "__main__":
    sys.exit(main())
