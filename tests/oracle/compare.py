"""Runs the program on configurations and compares every number with kvant_oracle.py.

    compare.py KVANT [--only WORD] [--keep DIR] [--verbose]

For each case a configuration is written, `KVANT sweep` makes a result file, and every metric of
every scheme, layer, head and seed in it is compared. Exact: stored bits. Codes: equal counts,
except that one may differ after a transform. Relative 1e-5: errors of keys and values. Attention,
float against double: 1e-3 relative, 2e-6 absolute, for logits 8 roundings of the largest logit (a
product of D = 64 numbers in float is off by about sqrt(D) / 2 of them, and two are compared). Top-k:
one near tie. Real captures are used where the environment's KVANT_CAPTURES names a folder of some.

Exit: 0 all agree, 1 some do not, 77 (skip) without NumPy, h5py or ml_dtypes.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np

    import kvant_oracle as oracle
except ImportError as missing:
    print(f"skipped: {missing} (pip install -r tests/requirements.txt)")
    sys.exit(77)

EXACT = {"bits_key", "bits_value", "bits", "bytes_per_token"}
TENSOR = {"key_err", "value_err", "key_absmax_over_median"}
METRICS = ["out_err", "out_err_median", "out_err_p95", "out_err_max", "logit_err_max",
           "logit_err_rms", "weight_factor", "attn_kl", "attn_kl_max", "attn_tv", "attn_tv_max",
           "top1_agree", "top8_agree", "top64_agree", "key_err", "value_err",
           "key_absmax_over_median", "key_levels", "bits_key", "bits_value", "bits",
           "bytes_per_token"]

# Quantizers, each used for keys and (where it can be) for values.
TILES = ["int8/tensor", "int8/head", "int8/channel", "int8/token", "int8/token-all", "int4/32x1",
         "int4/1x32", "int3/7x5", "int4/64x64", "int2/token", "int5/head", "int6/channel",
         "int7/token"]
ZERO = ["int4/token:zero", "int2/32x1:zero", "int8/tensor:zero", "int3/channel:zero",
        "int4/token-all:zero", "int2/1x32:zero:scale=f16", "int6/50x3:zero:scale=bf16"]
RANGES = ["int4/channel:mse", "int3/token:mse:zero", "int4/tensor:percentile=99.5",
          "int4/token:zero:percentile=99", "int4/channel:static=64", "int8/tensor:static=100:zero",
          "int4/head:static=50:mse", "e4m3/tensor:static=32", "e4m3/channel:percentile=98"]
FLOATS = [f"{name}/{tile}" for name in ("e4m3", "e4m3fnuz", "e5m2", "e5m2fnuz")
          for tile in ("tensor", "channel", "token")]
FLOATS += ["e4m3/tensor:unit", "e4m3fnuz/token:unit", "e5m2/tensor:unit", "e4m3/1x32:scale=e8m0",
           "int4/1x16:scale=e4m3", "int4/token:scale=e4m3", "int4/1x32:scale=e8m0",
           "int8/token:scale=f16", "e4m3/head:mse"]
WHOLE = ["f32", "f16", "bf16", *oracle.BLOCKS]
CENTER = ["int4/token:center", "int4/token:smooth", "int4/token:smooth=0.7:zero",
          "int4/channel:center:mse", "int4/token:center:smooth", "q4_0:center"]
ROTATED = ["int4/token:hadamard", "int4/token:hadamard=16", "int3/1x32:zero:hadamard=32",
           "q8_0:hadamard", "q4_0:hadamard=64", "q5_1:hadamard", "iq4_nl:hadamard=64",
           "exl4:hadamard=32", "exl7:hadamard=32", "int4/token:center:smooth:hadamard",
           "e4m3/tensor:hadamard"]
SPARSE = ["int4/channel:outliers=1", "int3/token:outliers=2:zero", "int4/32x1:outliers=1:zero",
          "int4/tensor:outliers=0.5", "int2/channel:outliers=1:zero:mse",
          "int4/token:hadamard:outliers=1", "int3/token-all:outliers=1"]
WINDOWS = ["int4/token:window=32", "int2/32x1:zero:flush=64", "int4/channel:sinks=4",
           "int4/tensor:sinks=1:window=17", "int2/1x32:zero:window=128:sinks=5",
           "int4/channel:center:sinks=2:window=9", "int4/channel:window=100000",
           "q4_0:window=10", "int4/channel:static=40:sinks=3", "int3/channel:outliers=1:sinks=2",
           "int4/32x1:zero:flush=32:window=10"]
PRE_ROPE = ["int3/channel:zero:pre-rope", "int4/token:pre-rope", "int4/token:hadamard:pre-rope",
            "int3/channel:zero:outliers=1:pre-rope:sinks=1", "int4/32x1:zero:flush=64:pre-rope",
            "int4/token:smooth:pre-rope", "q4_0:pre-rope", "e4m3/tensor:pre-rope"]
EVERYTHING = TILES + ZERO + RANGES + FLOATS + WHOLE + CENTER + ROTATED + SPARSE + WINDOWS
BRIEF = ["int8/tensor", "int4/token:zero", "int2/32x1:zero:flush=32", "int4/channel:outliers=1",
         "e4m3/tensor", "q4_0", "q8_0:hadamard", "int4/token:smooth", "int4/channel:center:sinks=1"]


def pairs(keys):
    """Every key quantizer with a value quantizer; pre-RoPE is for keys alone."""
    values = [k for k in keys if "pre-rope" not in k]
    return [(k, values[(i * 7 + 3) % len(values)]) for i, k in enumerate(keys)]


def heads(**settings):
    base = {"generator": "numpy-pcg64", "seeds": [0], "tokens": 300, "head_dim": 64, "queries": 3,
            "rope": "none", "outliers": {"channels": [3, 17], "scale": 20}}
    return {**base, **settings}


def half(**more):
    return {"layout": "half", "base": 10000, **more}


def cases(folder):
    """(name, heads, schemes)"""
    yield "all schemes", heads(), pairs(EVERYTHING)
    yield ("published table", heads(tokens=4096, head_dim=128, queries=1,
                                    outliers={"channels": [7, 23, 88], "scale": 20}),
           [row[:2] for row in oracle.PUBLISHED])
    yield "seeds", heads(seeds=[1, 2, 3, 12345, 4294967296]), pairs(BRIEF)
    yield "odd sizes", heads(tokens=257, head_dim=96, queries=5), pairs(
        [s for s in BRIEF + TILES + SPARSE if "hadamard" not in s and "64x" not in s])
    yield "tiny", heads(tokens=3, head_dim=32, queries=2), pairs(BRIEF + WINDOWS)
    yield "one token", heads(tokens=1, head_dim=32, queries=1), pairs(
        ["int8/tensor", "int4/token:zero", "q8_0", "e4m3/channel", "int4/channel:center"])
    yield "half", heads(rope=half(), queries=4), pairs(EVERYTHING + PRE_ROPE)
    yield ("interleaved", heads(rope={"layout": "interleaved", "base": 500000}, head_dim=128),
           pairs(BRIEF + PRE_ROPE))
    yield ("partial rotary", heads(rope=half(rotary_dim=32)), pairs(BRIEF + PRE_ROPE))
    for kind, more in (("linear", {}), ("ntk", {}), ("yarn", {"original_length": 128}),
                       ("llama3", {"original_length": 128, "low_freq_factor": 1,
                                   "high_freq_factor": 4})):
        yield (kind, heads(rope=half(scaling={"type": kind, "factor": 8, **more})),
               pairs(BRIEF[:3] + PRE_ROPE[:3]))
    yield "gain", heads(query={"gain": 2.5}, queries=20), pairs(BRIEF)
    yield "window", heads(window=100, queries=7), pairs(BRIEF)
    yield ("grouped", heads(kv_heads=2, query_heads=6, rope=half()), pairs(EVERYTHING + PRE_ROPE))
    yield "calibration", heads(seeds=[4, 9], kv_heads=2), pairs(
        ["int8/tensor:static=seed:1", "int4/channel:static=seed:3:zero", "e4m3/head:static=seed:2"])
    yield "layers", heads(layers=3, kv_heads=2, seeds=[0, 5]), pairs(BRIEF)
    yield ("many heads", heads(kv_heads=3, tokens=130, rope=half(), value_outliers={
        "channels": [5], "scale": 6}), pairs(BRIEF + ["int4/token-all:zero", "int3/token-all"]))
    yield "long", heads(tokens=5000, queries=2), pairs(BRIEF + ["int4/tensor:mse"])
    for position in ("post-rope", "pre-rope"):
        for kind in (np.float16, np.float32):
            path = os.path.join(folder, f"made-{position}-{np.dtype(kind).name}.h5")
            make_capture(path, position, kind)
            yield (f"capture {position} {np.dtype(kind).name}",
                   {"generator": "capture", "capture": path}, pairs(BRIEF + PRE_ROPE + WINDOWS))
    for path in sorted(glob.glob(os.path.join(os.environ.get("KVANT_CAPTURES", "/-"), "*.h5"))):
        yield (f"{os.path.basename(path)}", {"generator": "capture", "capture": path},
               pairs(BRIEF + ["int3/channel:zero:outliers=1:pre-rope:sinks=1"]))


def make_capture(path, position, kind):
    """Two layers with biased channels and a sink: grouped queries, one sliding window."""
    rng = np.random.default_rng(7)
    G, H, T, Q, D = 2, 6, 150, 11, 64
    with h5py.File(path, "w") as file:
        file.attrs.update({"kvant_capture": 1, "model": "made up", "source": "compare.py"})
        for layer, window, layout, theta in ((3, 0, "half", 1e6), (8, 40, "interleaved", 1e4)):
            key = rng.standard_normal((G, T, D)) + 8 * (rng.random((G, 1, D)) < 0.05)
            key[:, 0] *= 0.1
            group = file.create_group(f"layer_{layer:03}")
            group["key"] = key.astype(kind)
            group["value"] = (rng.standard_normal((G, T, D)) * 0.3).astype(kind)
            group["query"] = rng.standard_normal((H, Q, D)).astype(kind)
            group["query_position"] = np.sort(rng.choice(np.arange(T), Q, replace=False))
            group.attrs.update({"layer": layer, "key_position": position, "rope_theta": theta,
                                "rope_layout": layout, "window": window})


def run(kvant, folder, name, settings, schemes):
    """The result file of one case, or an error text."""
    stem = os.path.join(folder, name.replace(" ", "-").replace("/", "-"))
    config = {"kvant": 1, "title": name, "heads": settings, "metrics": METRICS,
              "schemes": [{"name": f"{i:03}", "key": k, "value": v}
                          for i, (k, v) in enumerate(schemes)]}
    with open(stem + ".yaml", "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)  # YAML reads JSON
    done = subprocess.run([kvant, "sweep", stem + ".yaml", "-o", stem + ".h5", "--quiet"],
                          capture_output=True, text=True, check=False)
    return stem + ".h5", done.stderr if done.returncode else None


def selected(data, **where):
    """Values of a labelled dataset at `where` (dimension: index); of `class`, "all"."""
    index = []
    for axis in data.dims:
        name = os.path.basename(axis[0].name)
        if name == "class":
            labels = [v.decode() if isinstance(v, bytes) else v for v in axis[0][()]]
            index.append(labels.index("all"))
        else:
            index.append(where.get(name, slice(None)))
    return data[tuple(index)]


def allowed(metric, expected, scheme, rows, largest_logit):
    """Largest difference that is not a disagreement."""
    if metric in EXACT:
        return 1e-12 * abs(expected)
    if metric in TENSOR:
        return 1e-5 * abs(expected)
    if metric == "key_levels":
        return 1 if "hadamard" in scheme or "smooth" in scheme else 0
    if metric.startswith("top"):  # one near tie that float and double rank differently
        return 1.01 / (int(metric[3:].split("_")[0]) * rows)
    rounding = 8 * 2.0 ** -24 * largest_logit if metric.startswith("logit") else 0
    return max(1e-3 * abs(expected), 2e-6, rounding)


def layers_of(settings):
    """(seed, layers) as the oracle makes them."""
    if settings["generator"] == "capture":
        yield 0, oracle.captured(settings["capture"])
    else:
        extra = [oracle.synthetic(settings, max(settings["seeds"]) + k) for k in (1, 2, 3)]
        for seed in settings["seeds"]:
            layers = oracle.synthetic(settings, seed)
            for layer, *others in zip(layers, *extra):
                layer.others = others
            yield seed, layers


def excess_of(metric, found, expected, scheme, rows, largest_logit):
    """Difference over what is allowed: above 1 they disagree."""
    if found == expected or (np.isnan(found) and np.isnan(expected)):
        return 0.0
    limit = allowed(metric, expected, scheme, rows, largest_logit)
    excess = abs(found - expected) / limit if limit else np.inf
    return np.inf if np.isnan(excess) else excess


def compare(path, settings, schemes):
    """Yields (metric, scheme, where, found, expected, excess)."""
    with h5py.File(path) as file:
        for s, (_, layers) in enumerate(layers_of(settings)):
            for l, layer in enumerate(layers):
                rows = layer.query.shape[0] // layer.key.shape[0] * layer.query.shape[1]
                for i, wanted in enumerate(oracle.evaluate(layer, schemes)):
                    for metric in METRICS:
                        found = selected(file[metric], scheme=i, layer=l, seed=s)
                        found = np.broadcast_to(found, wanted[metric].shape)
                        for g, (a, b) in enumerate(zip(found, wanted[metric])):
                            yield (metric, " | ".join(schemes[i]),
                                   f"layer {layer.number} head {g} seed index {s}", a, b,
                                   excess_of(metric, a, b, schemes[i][0], rows,
                                             wanted["largest_logit"][g]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kvant")
    parser.add_argument("--only", default="", help="cases whose name holds this word")
    parser.add_argument("--keep", help="write configurations and results here and keep them")
    parser.add_argument("--verbose", action="store_true", help="print every disagreement")
    arguments = parser.parse_args()
    worst, wrong, total, failed, n_cases = {}, 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or temporary
        os.makedirs(folder, exist_ok=True)
        for name, settings, schemes in cases(folder):
            if arguments.only not in name:
                continue
            n_cases += 1
            path, error = run(arguments.kvant, folder, name, settings, schemes)
            if error:
                failed += 1
                print(f"{name}: the program failed: {error.strip()}")
                continue
            here, seen = 0, 0
            for metric, scheme, where, found, expected, excess in compare(path, settings, schemes):
                seen += 1
                bad = excess > 1
                here += bad
                if excess > worst.get(metric, (-1,))[0]:
                    worst[metric] = (excess, name, scheme, where, found, expected)
                if bad and arguments.verbose:
                    print(f"  {metric}: {scheme}: {where}: {found:.9g}, expected {expected:.9g}")
            total, wrong = total + seen, wrong + here
            print(f"{name:32}{len(schemes):5} schemes {seen:8} numbers {here:6} disagree",
                  flush=True)
    if not n_cases:
        print(f"skipped: no case is named like {arguments.only} (captures: set KVANT_CAPTURES)")
        return 77
    print(f"\n{'metric':24}{'worst/limit':>12}  where")
    for metric, (excess, name, scheme, where, found, expected) in worst.items():
        print(f"{metric:24}{excess:12.3g}  {name}: {scheme}: {where}: "
              f"{found:.9g}, expected {expected:.9g}")
    print(f"\n{total} numbers, {wrong} disagree, {failed} runs failed")
    return 1 if wrong or failed or not total else 0


if __name__ == "__main__":
    sys.exit(main())
