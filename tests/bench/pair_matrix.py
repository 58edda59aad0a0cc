#!/usr/bin/env python3
"""The 9x9 pair matrix (9 key x 9 value schemes, T = 4096, D = 128, 64 queries, one kv head) three ways.

kvant (`kvant bench`), and what a careful user of PyTorch and of NumPy writes: every scheme quantized
once, then a loop over the pairs. All three quantize, attend and compute errors and KL; kvant also
computes tensor errors, and in its first row total variation and top-k agreement. Medians of several runs: of the process's
CPU time for one thread (what other programs take is left out, as `kvant bench` does), of the wall
clock for several.

    python3 tests/bench/pair_matrix.py --kvant build/release/kvant --threads 1 --runs 7
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

TOKENS, CHANNELS, QUERIES = 4096, 128, 64
PRODUCTS = 2 * QUERIES * TOKENS * CHANNELS * (9 + 81)  # flop of the quantized products

# (bits or float format, zero point, tokens a scale spans, channels a scale spans)
KEYS = [(8, 0, TOKENS, CHANNELS), (8, 0, TOKENS, 1), (4, 1, TOKENS, 1), (4, 1, 32, 1), (2, 1, 32, 1),
        (8, 0, 1, CHANNELS), (4, 1, 1, CHANNELS), ("e4m3", 0, TOKENS, CHANNELS),
        ("e5m2", 0, TOKENS, CHANNELS)]
VALUES = [(8, 0, TOKENS, CHANNELS), (8, 0, 1, CHANNELS), (4, 1, 1, CHANNELS), (4, 1, 1, 32),
          (2, 1, 1, 32), (3, 1, 1, CHANNELS), ("e4m3", 0, TOKENS, CHANNELS),
          ("e5m2", 0, TOKENS, CHANNELS), ("e4m3", 0, 1, CHANNELS)]
LARGEST = {"e4m3": 448, "e5m2": 57344}


def rotated(keys, xp):
    """RoPE of layout half, base 10000."""
    half = CHANNELS // 2
    angle = xp.arange(TOKENS)[:, None] * 10000.0 ** (-xp.arange(half) / half)
    cos, sin = xp.cos(angle), xp.sin(angle)
    low, high = keys[:, :half], keys[:, half:]
    return low * cos - high * sin, high * cos + low * sin


class Torch:
    def __init__(self, threads):
        import torch
        self.torch = torch
        torch.set_grad_enabled(False)
        torch.set_num_threads(threads)
        self.generator = torch.Generator().manual_seed(0)
        self.floats = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}

    def quantized(self, x, grid, zero, tokens, channels):
        y = x.view(TOKENS // tokens, tokens, CHANNELS // channels, channels)
        if grid in LARGEST:
            scale = y.abs().amax((1, 3), True) / LARGEST[grid]
            return ((y / scale).to(self.floats[grid]).float() * scale).reshape(TOKENS, CHANNELS)
        if zero:
            low, high = y.amin((1, 3), True), y.amax((1, 3), True)
            scale = (high - low) / (2**grid - 1)
            codes = ((y - low) / scale).round().clamp(0, 2**grid - 1)
            return (codes * scale + low).reshape(TOKENS, CHANNELS)
        most = 2**(grid - 1) - 1
        scale = y.abs().amax((1, 3), True) / most
        return ((y / scale).round().clamp(-most, most) * scale).reshape(TOKENS, CHANNELS)

    def draw(self):
        torch = self.torch
        keys, values, queries = (torch.randn(n, CHANNELS, generator=self.generator)
                                 for n in (TOKENS, TOKENS, QUERIES))
        keys[:, [7, 23, 88]] *= 20
        return torch.cat(rotated(keys, torch), 1), values, queries

    def head(self, keys, values, queries):
        scale = 1 / math.sqrt(CHANNELS)
        exact = queries @ keys.T * scale
        weights = exact.softmax(-1)
        out = weights @ values
        decoded = [self.quantized(values, *v) for v in VALUES]
        found = []
        for k in KEYS:
            logits = queries @ self.quantized(keys, *k).T * scale
            p = logits.softmax(-1)
            err = (logits - exact).abs().max()
            kl = (weights * (exact.log_softmax(-1) - logits.log_softmax(-1))).sum(-1).mean()
            found += [((p @ v - out).norm() / out.norm(), err, kl) for v in decoded]
        return found


class Numpy:
    def __init__(self, threads):
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(threads)  # read when numpy is first imported
        import numpy
        import ml_dtypes
        self.np = numpy
        self.random = numpy.random.default_rng(0)
        self.floats = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}

    def quantized(self, x, grid, zero, tokens, channels):
        np = self.np
        y = x.reshape(TOKENS // tokens, tokens, CHANNELS // channels, channels)
        if grid in LARGEST:
            scale = np.abs(y).max((1, 3), keepdims=True) / np.float32(LARGEST[grid])
            y = (y / scale).astype(self.floats[grid]).astype(np.float32) * scale
        elif zero:
            low, high = y.min((1, 3), keepdims=True), y.max((1, 3), keepdims=True)
            scale = (high - low) / np.float32(2**grid - 1)
            y = np.clip(np.rint((y - low) / scale), 0, 2**grid - 1) * scale + low
        else:
            most = 2**(grid - 1) - 1
            scale = np.abs(y).max((1, 3), keepdims=True) / np.float32(most)
            y = np.clip(np.rint(y / scale), -most, most) * scale
        return y.reshape(TOKENS, CHANNELS)

    def draw(self):
        np = self.np
        keys, values, queries = (self.random.standard_normal((n, CHANNELS), dtype=np.float32)
                                 for n in (TOKENS, TOKENS, QUERIES))
        keys[:, [7, 23, 88]] *= 20
        return np.concatenate(rotated(keys, np), 1).astype(np.float32), values, queries

    def log_softmax(self, logits):
        np = self.np
        shifted = logits - logits.max(-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))

    def head(self, keys, values, queries):
        np = self.np
        scale = np.float32(1 / math.sqrt(CHANNELS))
        exact = queries @ keys.T * scale
        log_weights = self.log_softmax(exact)
        weights = np.exp(log_weights)
        out = weights @ values
        decoded = [self.quantized(values, *v) for v in VALUES]
        found = []
        for k in KEYS:
            logits = queries @ self.quantized(keys, *k).T * scale
            log_p = self.log_softmax(logits)
            p = np.exp(log_p)
            err = np.abs(logits - exact).max()
            kl = (weights * (log_weights - log_p)).sum(-1).mean()
            norm = np.linalg.norm
            found += [(norm(p @ v - out) / norm(out), err, kl) for v in decoded]
        return found


def median_seconds(library, threads, runs):
    """Medians of `runs` heads after one that warms up; the tensors are drawn outside the clock."""
    library = library(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    times = []
    for _ in range(runs + 1):
        tensors = library.draw()
        start = clock()
        library.head(*tensors)
        times.append(clock() - start)
    return statistics.median(times[1:])


KVANT_ROWS = {"kvant": "pair matrix 9x9", "alike": "pair matrix 9x9, no rows"}


def kvant_seconds(program, threads):
    """Medians of the benchmark's own medians, over three of its runs, of both rows; and the peak."""
    found = []
    for _ in range(3):
        text = subprocess.run([program, "bench", "--format", "json", "--threads", str(threads)],
                              check=True, capture_output=True, text=True).stdout
        rows = {r["kernel"]: r for r in json.loads(text)}
        found.append(([rows[kernel]["seconds"] for kernel in KVANT_ROWS.values()],
                      rows[KVANT_ROWS["kvant"]]["peak"]))
    seconds = [statistics.median(times) for times in zip(*(times for times, _ in found))]
    return seconds, statistics.median(peak for _, peak in found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kvant", default="build/release/kvant", help="the program to measure")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    try:
        ours, peak = kvant_seconds(options.kvant, options.threads)
    except FileNotFoundError:
        sys.exit(f"{options.kvant} is not there: build it, or name it with --kvant")
    rows = list(zip(KVANT_ROWS, ours))
    for name, library in (("NumPy", Numpy), ("PyTorch", Torch)):
        try:
            rows.append((name, median_seconds(library, options.threads, options.runs)))
        except ImportError as missing:
            print(f"{name}: left out, no module {missing.name} (pip install {missing.name})")
    print(f"{options.threads} thread(s), measured FMA peak {peak:.0f} GFLOP/s; \"alike\" is kvant with "
          "what the other two compute")
    for name, seconds in rows:
        rate = PRODUCTS / seconds * 1e-9
        print(f"{name:8} {1e3 * seconds:9.1f} ms a head  {rate:7.1f} GFLOP/s  "
              f"{100 * rate / peak:5.1f} % of peak  {seconds / ours[0]:6.2f} x kvant's time, "
              f"{seconds / ours[1]:6.2f} x alike")


if __name__ == "__main__":
    main()
