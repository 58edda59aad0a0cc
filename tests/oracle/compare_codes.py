"""Compares every code, value and the stored bits of the quantizers with kvant_oracle.py: all equal.

    compare_codes.py DUMP         (DUMP: the program of dump.c)

Inputs hold outlier channels, channel means, zero and constant rows, numbers near the smallest
float and past the largest f16; shapes are ragged. Zeros of either sign are equal. Where the program
refuses a quantizer because f16 cannot hold the numbers, it is not compared; how many is printed.
Exit: 0 equal, 1 not, 77 (skip) without NumPy, h5py or ml_dtypes.
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np

    import compare
    import kvant_oracle as oracle
except ImportError as missing:
    print(f"skipped: {missing} (pip install -r tests/requirements.txt)")
    sys.exit(77)

SCHEMES = list(dict.fromkeys(compare.EVERYTHING + compare.PRE_ROPE))
NARROW = [s for s in SCHEMES if "=64" not in s]  # head_dim 32


def tensor(rng, G, T, D):
    x = rng.standard_normal((G, T, D)).astype(np.float32)
    x[..., 3] *= np.float32(20)
    x[..., D // 2] += np.float32(8)
    return x


def inputs():
    """(name, x, rope, schemes)"""
    rng = np.random.default_rng(3)
    none = oracle.Rope(None, 64)
    yield "ragged", tensor(rng, 2, 300, 64), none, SCHEMES
    yield "half", tensor(rng, 2, 300, 128), oracle.Rope({"layout": "half"}, 128), SCHEMES
    yield ("interleaved, partial", tensor(rng, 1, 77, 64),
           oracle.Rope({"layout": "interleaved", "rotary_dim": 32}, 64), SCHEMES)
    yield "three tokens", tensor(rng, 1, 3, 32), none, NARROW
    yield "f16 numbers", oracle.f16(tensor(rng, 2, 130, 64)), none, SCHEMES
    x = tensor(rng, 2, 128, 64)
    x[0, 5], x[:, :, 7], x[1, 10:20], x[1, 64:] = 0, 0, 2.5, -0.0
    yield "zero and constant", x, none, SCHEMES
    yield "all zero", np.zeros((2, 64, 32), np.float32), none, NARROW
    yield "denormal", tensor(rng, 2, 64, 64) * np.float32(1e-38), none, SCHEMES
    yield "large", tensor(rng, 2, 64, 64) * np.float32(1e4), none, SCHEMES


def dumped(dump, folder, x, rope, schemes):
    """[(bits, values, codes)] as the program makes them; bits -1: refused."""
    source, target = os.path.join(folder, "in"), os.path.join(folder, "out")
    with open(source, "wb") as file:
        np.array([*x.shape, rope.dim, rope.layout == "interleaved"], np.int64).tofile(file)
        x.tofile(file)
    subprocess.run([dump, source, target], input="\n".join(schemes) + "\n", text=True,
                   stderr=subprocess.PIPE, check=True)
    record = np.dtype([("bits", "<i8"), ("values", "<f4", x.shape), ("codes", "<u4", x.shape)])
    return np.fromfile(target, record)


def main():
    dump, count, refused, wrong = sys.argv[1], 0, 0, 0
    np.seterr(over="ignore", invalid="ignore")  # of f16, in parts of a tensor that are replaced
    with tempfile.TemporaryDirectory() as folder:
        for name, x, rope, schemes in inputs():
            for text, found in zip(schemes, dumped(dump, folder, x, rope, schemes)):
                if found["bits"] < 0:
                    refused += 1
                    continue
                q = oracle.Quantizer.parse(text)
                D = x.shape[2]
                pair = np.arange(D) if q.has("pre-rope") or not rope.dim else rope.partner(D)
                value, code, bits = oracle.quantize(x, q, pair)
                differ = (found["values"] != value).sum()
                codes = 0
                if code is not None:  # symmetric codes are stored in two's complement
                    width = int(q.format[3:]) if q.format.startswith("int") else 16
                    width = 8 if q.format == "q8_0" else width
                    stored = np.where(code == oracle.KEPT, 0xFFFFFFFF, code & (2 ** width - 1))
                    codes = (stored != found["codes"]).sum()
                count += 1
                if differ or codes or bits != found["bits"]:
                    wrong += 1
                    print(f"{name}: {text}: {differ} values and {codes} codes of {x.size} differ; "
                          f"bits {found['bits']}, expected {bits}")
    print(f"{count} quantizations are equal, {refused} refused (numbers f16 cannot hold)"
          if not wrong else f"{wrong} of {count} quantizations differ")
    return wrong != 0 or count < 6 * len(NARROW)


if __name__ == "__main__":
    sys.exit(main())
