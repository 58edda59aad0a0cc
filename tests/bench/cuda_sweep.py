#!/usr/bin/env python3
"""One sweep on one GPU, by kvant's CUDA backend and by what a careful user of PyTorch writes.

8 kv heads, 64 queries each, 128 channels, 32 schemes (tests/gpu/bench.c lists them and times
kvant). Both quantize keys and values, attend, and compute errors of outputs, of logits and KL; all
heads at once, in float32 without TF32. kvant's time includes drawing the tensors, PyTorch's does
not. The two take turns, so that what the GPU's clock does meets both; medians of the turns.

    python3 tests/bench/cuda_sweep.py --bench build/on_device/tests/bench_cuda \\
        --watch build/on_device/tests/libkvant_watch.so --module build/on_device/libkvant_cuda.so

Exit code 77 where there is no PyTorch or no GPU that it sees.
"""
import argparse
import math
import re
import statistics
import subprocess
import sys
import time

HEADS, QUERIES, CHANNELS, TURNS = 8, 64, 128, 3
LARGEST = {"e4m3": 448, "e5m2": 57344}


def parse(text):
    """Format, whether with a zero point, tile: "int4/32x1:zero"."""
    grid, tile, zero = re.fullmatch(r"(\w+)/(\w+)(:zero)?", text).groups()
    return grid if grid in LARGEST else int(grid[3:]), zero is not None, tile


class Torch:
    def __init__(self, torch, device, tokens, queries, schemes):
        self.torch, self.device = torch, torch.device(device)
        self.tokens, self.queries = tokens, queries
        self.schemes = [tuple(map(parse, s)) for s in schemes]
        torch.set_grad_enabled(False)
        torch.backends.cuda.matmul.allow_tf32 = False
        self.floats = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
        self.tensors = self.draw()
        # query i is the i-th of the last tokens; it sees tokens up to its own
        position = torch.arange(tokens - queries, tokens, device=self.device)
        self.hidden = torch.arange(tokens, device=self.device)[None, :] > position[:, None]

    def draw(self):
        torch = self.torch
        generator = torch.Generator(self.device).manual_seed(0)
        keys, values, queries = (torch.randn(HEADS, n, CHANNELS, generator=generator,
                                             device=self.device)
                                 for n in (self.tokens, self.tokens, self.queries))
        keys[:, :, [7, 23, 88]] *= 20
        half = CHANNELS // 2
        angle = (torch.arange(self.tokens, device=self.device)[:, None]
                 * 10000.0 ** (-torch.arange(half, device=self.device) / half))
        low, high, cos, sin = keys[..., :half], keys[..., half:], angle.cos(), angle.sin()
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1), values, queries

    def tiles(self, x, tile):
        """x as [heads, rows, tokens, columns, channels] and the dimensions a scale spans."""
        tokens, channels = {"tensor": (self.tokens, CHANNELS), "head": (self.tokens, CHANNELS),
                            "channel": (self.tokens, 1), "token": (1, CHANNELS)}.get(
                                tile) or map(int, tile.split("x"))
        view = x.view(HEADS, self.tokens // tokens, tokens, CHANNELS // channels, channels)
        return view, (0, 2, 4) if tile == "tensor" else (2, 4)

    def quantized(self, x, grid, zero, tile):
        y, over = self.tiles(x, tile)
        if grid in LARGEST:
            scale = y.abs().amax(over, True) / LARGEST[grid]
            return ((y / scale).to(self.floats[grid]).float() * scale).view(x.shape)
        if zero:
            low, high = y.amin(over, True), y.amax(over, True)
            scale = (high - low) / (2**grid - 1)
            codes = ((y - low) / scale).round().clamp(0, 2**grid - 1)
            return (codes * scale + low).view(x.shape)
        most = 2**(grid - 1) - 1
        scale = y.abs().amax(over, True) / most
        return ((y / scale).round().clamp(-most, most) * scale).view(x.shape)

    def logits(self, queries, keys):
        logits = queries @ keys.transpose(1, 2) * (1 / math.sqrt(CHANNELS))
        return logits.masked_fill_(self.hidden, -math.inf)

    def sweep(self):
        keys, values, queries = self.tensors
        exact = self.logits(queries, keys)
        log_weights = exact.log_softmax(-1)
        weights = log_weights.exp()
        out = weights @ values
        found = []
        for key, value in self.schemes:
            logits = self.logits(queries, self.quantized(keys, *key))
            off = (logits - exact).masked_fill_(self.hidden, 0)
            log_p = logits.log_softmax(-1)
            kl = (weights * (log_weights - log_p).masked_fill_(self.hidden, 0)).sum(-1).mean()
            err = log_p.exp_() @ self.quantized(values, *value) - out
            found.append(self.torch.stack((err.norm() / out.norm(), off.abs().max(), kl)))
        return self.torch.stack(found).cpu()  # waits

    def seconds(self):
        start = time.perf_counter()
        self.sweep()
        return time.perf_counter() - start


def kvant_seconds(options):
    """The benchmark's median of both rows: all numbers, and what PyTorch computes."""
    text = subprocess.run([options.bench, options.watch, options.module, str(options.tokens),
                           str(options.runs), str(options.queries)],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    return [float(re.search(rf"^{name} +([0-9.]+) ms", text, re.M)[1]) * 1e-3
            for name in ("kvant", "alike")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bench", required=True, help="the program bench_cuda")
    parser.add_argument("--watch", required=True, help="its module that watches")
    parser.add_argument("--module", required=True, help="libkvant_cuda.so")
    parser.add_argument("--tokens", type=int, default=131072)
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--device", default="cuda", help="PyTorch's; cpu only tries this program")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("PyTorch: left out, no module torch (pip install torch)")
        return 77
    if options.device == "cuda" and not torch.cuda.is_available():
        print("PyTorch: left out, it sees no GPU")
        return 77
    schemes = subprocess.run([options.bench, "schemes"], check=True, capture_output=True,
                             text=True).stdout.splitlines()
    ours, theirs = [], []
    for _ in range(TURNS):
        ours.append(kvant_seconds(options))
        library = Torch(torch, options.device, options.tokens, options.queries,
                        [line.split() for line in schemes])
        library.seconds()
        theirs += [library.seconds() for _ in range(options.runs)]
        del library
        if options.device == "cuda":
            torch.cuda.empty_cache()  # kvant plans with what is free
    everything, alike = (statistics.median(times) for times in zip(*ours))
    torch_seconds = statistics.median(theirs)
    print(f"PyTorch {torch.__version__} beside kvant, T {options.tokens}, {TURNS} turns")
    for name, seconds in (("kvant", everything), ("alike", alike), ("PyTorch", torch_seconds)):
        print(f"{name:8} {1e3 * seconds:10.3f} ms  {1e3 * seconds / len(schemes):9.4f} ms a scheme"
              f"  {torch_seconds / seconds:6.2f} times as fast as PyTorch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
