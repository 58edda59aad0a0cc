"""kvant export from outside: what it prints is parsed by grammars taken from the engines' own
documentation, and its bytes and errors are added up again from the table. Standard library only;
YAML is also read by the yaml module where there is one.

    python3 test_export.py KVANT
"""
import argparse
import ast
import csv
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import types

KVANT = os.path.abspath(sys.argv[1])
LAYERS = 6
failures = 0


def check(condition, *what):
    global failures
    if not condition:
        failures += 1
        print("not true:", *what)


def run(*arguments, code=0):
    done = subprocess.run([KVANT, *arguments], capture_output=True, text=True, timeout=120)
    check(code is None or done.returncode == code, arguments, "exit code", done.returncode, "expected", code,
          done.stderr)
    return done.stdout, done.stderr


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class Parser(argparse.ArgumentParser):
    """Says what is wrong instead of ending the program."""

    def error(self, message):
        raise ValueError(message)


def parse(parser, text):
    return parser.parse_args(text.split())


# ---- what each engine's output says: words per layer for keys and for values ----

def read_vllm(text):
    """vllm/engine/arg_utils.py; names of vllm/config/cache.py."""
    parser = Parser(allow_abbrev=False)
    parser.add_argument("--kv-cache-dtype", choices=[
        "auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla",
        "turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc",
        "int4_per_token_head", "int8_per_token_head", "fp8_per_token_head", "nvfp4",
        "nvfp4_4over6"])
    parser.add_argument("--kv-cache-dtype-skip-layers", nargs="+", default=[])
    found = parse(parser, text)
    skipped = {int(layer) for layer in found.kv_cache_dtype_skip_layers}
    words = ["auto" if i in skipped else found.kv_cache_dtype for i in range(LAYERS)]
    return words, words


LLAMA_TYPES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]


def read_llama(text):
    """common/arg.cpp."""
    words = text.split()
    is_plain = words[0] == "LLAMA_ATTN_ROT_DISABLE=1"
    check(words[is_plain] == "llama-server", text)
    parser = Parser(allow_abbrev=False)
    parser.add_argument("-fa", "--flash-attn", choices=["on", "off", "auto"])
    parser.add_argument("-ctk", "--cache-type-k", choices=LLAMA_TYPES)
    parser.add_argument("-ctv", "--cache-type-v", choices=LLAMA_TYPES)
    found = parser.parse_args(words[1 + is_plain:])
    check(found.flash_attn == "on" or found.cache_type_v in ("f16", "bf16", "f32"), text)
    suffix = "" if is_plain else " rotated"
    return [found.cache_type_k + suffix] * LAYERS, [found.cache_type_v + suffix] * LAYERS


def read_ik(text):
    """common/common.cpp; src/llama.cpp: the last wins."""
    words = text.split()
    check(words[0] == "llama-server", text)
    parser = Parser(allow_abbrev=False)
    kinds = LLAMA_TYPES + ["q6_0", "q8_KV"]
    for tensor in "kv":
        parser.add_argument(f"-ct{tensor}", choices=kinds, required=True)
        parser.add_argument(f"-ct{tensor}-first", default="f16,0")
        parser.add_argument(f"-ct{tensor}-last", default="f16,0")
        parser.add_argument(f"-{tensor}had", action="store_true")
    found = vars(parser.parse_args(words[1:]))
    both = []
    for tensor in "kv":
        layers = [found[f"ct{tensor}"]] * LAYERS
        for end, chosen in ("first", lambda i, n: i < n), ("last", lambda i, n: i >= LAYERS - n):
            kind, n = found[f"ct{tensor}_{end}"].split(",")
            check(kind in kinds, text)
            layers = [kind if chosen(i, int(n)) else old for i, old in enumerate(layers)]
        both.append([kind + " rotated" * found[f"{tensor}had"] for kind in layers])
    return both


def read_lmdeploy(text):
    """lmdeploy/cli/utils.py: TurboMind has 0, 4 and 8 only."""
    parser = Parser(allow_abbrev=False)
    parser.add_argument("--backend", choices=["pytorch", "turbomind"], default="turbomind")
    parser.add_argument("--quant-policy", choices=["0", "4", "8", "16", "17", "42"])
    found = parse(parser, text)
    check(found.backend == "pytorch" or found.quant_policy in ("0", "4", "8"), text)
    return [found.quant_policy] * LAYERS, [found.quant_policy] * LAYERS


def read_sglang(text):
    """python/sglang/srt/server_args.py."""
    parser = Parser(allow_abbrev=False)
    parser.add_argument("--kv-cache-dtype", choices=[
        "auto", "fp8_e5m2", "fp8_e4m3", "mxfp8", "bf16", "bfloat16", "nvfp4", "fp4_mx_block16"])
    parser.add_argument("--quantization-param-path")
    found = parse(parser, text)
    return [found.kv_cache_dtype] * LAYERS, [found.kv_cache_dtype] * LAYERS


def read_yaml(text):
    try:
        import yaml
    except ImportError:
        return None
    return yaml.safe_load(text)


def read_exllamav3(text):
    """tabbyAPI: FP16, Q4, Q6, Q8 or two numbers of 2 to 8."""
    loaded = read_yaml(text)
    mode = re.fullmatch(r'cache_mode: "?([^"\n]*)"?\n', text)[1]
    check(loaded is None or loaded == {"cache_mode": mode}, text)
    check(re.fullmatch(r"FP16|[2-8],[2-8]", mode), text)
    key, value = mode.split(",") if "," in mode else (mode, mode)
    return [key] * LAYERS, [value] * LAYERS


def read_kvtuner(text):
    """calibration_presets: {layer: {nbits_key, nbits_value}}."""
    found = {}
    for number, key, value in re.findall(r"^(\d+):\n  nbits_key: (\d+)\n  nbits_value: (\d+)\n",
                                         text, re.M):
        found[int(number)] = {"nbits_key": int(key), "nbits_value": int(value)}
    loaded = read_yaml(text)
    check(loaded is None or loaded == found, text)
    check(sorted(found) == list(range(LAYERS)), text)
    mode = " kivi" if "residual_length=32" in text.split("\n")[0] else ""
    return ([f"{found[i]['nbits_key']}{mode}" for i in range(LAYERS)],
            [f"{found[i]['nbits_value']}{mode}" for i in range(LAYERS)])


class Layer:
    """Stands for a layer class of cache_utils.py."""

    def __init__(self, name, allowed):
        self.name, self.allowed = name, allowed

    def __call__(self, *, config=None, **given):
        check(set(given) == set(self.allowed), self.name, given)
        return self.name, given


def read_transformers(text):
    """Runs the Python on stand-ins with the signatures of cache_utils.py."""
    ast.parse(text)
    module = types.ModuleType("transformers.cache_utils")
    module.Cache = lambda *, layers: layers
    module.DynamicLayer = Layer("DynamicLayer", [])
    module.DynamicSlidingWindowLayer = Layer("DynamicSlidingWindowLayer", ["sliding_window"])
    module.QuantoQuantizedLayer = Layer("QuantoQuantizedLayer", [
        "nbits", "axis_key", "axis_value", "q_group_size", "residual_length"])
    sys.modules["transformers"] = types.ModuleType("transformers")
    sys.modules["transformers.cache_utils"] = module
    scope = {}
    exec(compile(text, "cache.py", "exec"), scope)
    layers = scope["kv_cache"]()
    check(len(layers) == LAYERS, text)
    words = []
    for name, given in layers:
        if name != "QuantoQuantizedLayer":
            words.append(name)
            continue
        check(given["nbits"] in (2, 4) and given["axis_key"] == given["axis_value"] == 0, text)
        words.append(f"{given['nbits']}/{given['q_group_size']}/{given['residual_length']}")
    return words, words


def read_tensorrt(text):
    module = types.ModuleType("tensorrt_llm.llmapi")
    module.KvCacheConfig = lambda *, dtype: dtype
    sys.modules["tensorrt_llm"] = types.ModuleType("tensorrt_llm")
    sys.modules["tensorrt_llm.llmapi"] = module
    scope = {}
    exec(compile(text, "config.py", "exec"), scope)
    check(scope["kv_cache_config"] in ("auto", "fp8", "nvfp4"), text)
    return [scope["kv_cache_config"]] * LAYERS, [scope["kv_cache_config"]] * LAYERS


# ---- tables: schemes with the words they must come out as, bits, and noise ----

ENGINES = {
    "vllm": (read_vllm, [("f16", "auto", 16, 0), ("e4m3/tensor", "fp8", 8, 4),
                         ("int8/token", "int8_per_token_head", 8.25, 1),
                         ("e2m1/1x16:scale=e4m3", "nvfp4", 4.5, 90),
                         ("int3/token", None, 3.25, 5)]),
    "llama.cpp": (read_llama, [("f16", "f16", 16, 0), ("q8_0", "q8_0", 8.5, 2),
                               ("q5_1", "q5_1", 6, 12), ("q4_0", "q4_0", 4.5, 80),
                               ("int3/token", None, 3.25, 5)]),
    "ik_llama.cpp": (read_ik, [("f16", "f16", 16, 0), ("q8_0", "q8_0", 8.5, 2),
                               ("q5_0", "q5_0", 5.5, 20), ("iq4_nl", "iq4_nl", 4.5, 60),
                               ("q6_0", "q6_0", 6.5, 9), ("int3/token", None, 3.25, 5)]),
    "lmdeploy": (read_lmdeploy, [("f16", "0", 16, 0), ("int8/token:zero:scale=f16", "8", 8.25, 2),
                                 ("int4/token:zero:scale=f16", "4", 4.25, 70),
                                 ("e4m3/tensor:unit", "16", 8, 9), ("int3/token", None, 3.25, 5)]),
    "sglang": (read_sglang, [("f16", "auto", 16, 0), ("e4m3/tensor", "fp8_e4m3", 8, 4),
                             ("e4m3/1x32:scale=e8m0", "mxfp8", 8.25, 5),
                             ("e2m1/1x16:scale=e8m0", "fp4_mx_block16", 4.5, 95),
                             ("int3/token", None, 3.25, 5)]),
    "exllamav3": (read_exllamav3, [("f16", "FP16", 16, 0), ("6", "6", 6.5, 6),
                                   ("exl5:hadamard=32", "5", 5.5, 21),
                                   ("exl4:hadamard=32", "4", 4.5, 60),
                                   ("int3/token", None, 3.25, 5)]),
    "kvtuner": (read_kvtuner, [("int8/token:zero", "8", 8.25, 2), ("int4/token:zero", "4", 4.25, 70),
                               ("int2/token:zero", "2", 2.25, 900), ("f16", None, 16, 0)]),
    "transformers": (read_transformers, [
        ("f16", "DynamicLayer", 16, 0),
        ("int4/1x64:zero:scale=bf16:flush=128", "4/64/128", 4.5, 60),
        ("int2/1x32:zero:scale=bf16:flush=64", "2/32/64", 3, 700), ("q8_0", None, 8.5, 2)]),
    "tensorrt-llm": (read_tensorrt, [("f16", "auto", 16, 0), ("e4m3/tensor", "fp8", 8, 4),
                                     ("int3/token", None, 3.25, 5)]),
}


def table_of(schemes):
    """Rows (layer, tensor, scheme, error, bytes): keys matter more, and the ends of the model."""
    rows = {}
    for layer in range(LAYERS):
        gain = 1 + 6 * (layer in (0, LAYERS - 1)) + layer / 8
        for tensor, weight in ("key", 3), ("value", 1):
            for scheme, _, bits, noise in schemes:
                rows[layer, tensor, scheme] = (gain * weight * noise / 1024, int(bits * 32))
    return rows


def write_table(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["layer", "tensor", "scheme", "error", "bytes"])
        for (layer, tensor, scheme), (error, size) in rows.items():
            writer.writerow([layer, tensor, scheme, repr(error), size])


def costs(notes, name):
    """Bytes and error of a line of the notes."""
    found = re.search(rf"^{re.escape(name)} +(\d+) bytes, additive error (\S+)$", notes, re.M)
    return int(found[1]), float(found[2])


def test_engine(name):
    read, schemes = ENGINES[name]
    rows = table_of(schemes)
    names = {}
    for scheme, word, _, _ in schemes:
        names[word] = scheme
        names[f"{word} rotated"] = scheme  # 16 bit under a switch of the cache
    write_table("table.csv", rows)
    most = sum(max(rows[i, t, s][0] for s, *_ in schemes) for i in range(LAYERS)
               for t in ("key", "value"))
    for share in 0.0005, 0.01, 0.08, 0.4:
        limit = share * most
        run("tune", "--table", "table.csv", "--max-error", repr(limit), "-o", "out.h5", "--policy",
            "policy.yaml", "-q")
        text, notes = run("export", "policy.yaml", "--engine", name, "-o", "words.txt",
                          code=None if name == "kvtuner" else 0)
        check(text == "", name, "prints although there is -o")
        with open("words.txt", encoding="utf-8") as file:
            text = file.read()
        check(text == run("export", "policy.yaml", "--engine", name, "--table", "table.csv",
                          code=None if name == "kvtuner" else 0)[0], name, "-o differs")
        keys, values = read(text)
        error = sum(rows[i, "key", names[keys[i]]][0] + rows[i, "value", names[values[i]]][0]
                    for i in range(LAYERS))
        size = sum(rows[i, "key", names[keys[i]]][1] + rows[i, "value", names[values[i]]][1]
                   for i in range(LAYERS))
        said = costs(notes, name)
        check(said[0] == size and abs(said[1] - error) <= 1e-3 * error, name, text, notes, size,
              error)
        free = costs(notes, "free optimum")
        check(free[1] <= limit * 1.001, name, notes)
        if "within the budget" not in notes:
            check(error <= limit * (1 + 1e-9), name, "over its budget", error, limit)
            check(free[0] <= size, name, "cheaper than the free optimum", notes)


# ---- scales ----

POLICY = """\
kvant_policy: 1
layers:
""" + "".join(f"  - {{layer: {i}, key: e4m3/tensor, value: e4m3/tensor, head_dim: 64, "
              f"key_absmax: {4.48 * (i + 1)}, value_absmax: 4.48}}\n" for i in range(LAYERS))


def test_scales():
    write("policy.yaml", POLICY)
    _, notes = run("export", "policy.yaml", "--engine", "vllm", "--scales", "kv.safetensors")
    check("kv.safetensors belongs beside the checkpoint's weights" in notes, notes)
    with open("kv.safetensors", "rb") as file:
        data = file.read()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    check(len(header) == 2 * LAYERS and length % 8 == 0, header)
    for i in range(LAYERS):
        for tensor, expected in ("k", 0.01 * (i + 1)), ("v", 0.01):
            entry = header[f"model.layers.{i}.self_attn.{tensor}_scale"]
            check(entry["dtype"] == "F32" and entry["shape"] == [1], entry)
            begin, end = entry["data_offsets"]
            scale, = struct.unpack("<f", data[8 + length:][begin:end])
            check(abs(scale - expected) < 1e-6 * expected, i, tensor, scale)
    text, notes = run("export", "policy.yaml", "--engine", "sglang", "--scales", "kv.json")
    check(text == "--kv-cache-dtype fp8_e4m3 --quantization-param-path kv.json\n", text)
    with open("kv.json", encoding="utf-8") as file:
        loaded = json.load(file)
    check(loaded["kv_cache"]["dtype"] == "float8_e4m3fn", loaded)
    factors = loaded["kv_cache"]["scaling_factor"]["0"]
    check(len(factors) == LAYERS and all(abs(factors[str(i)] / (0.01 * (i + 1)) - 1) < 1e-6
                                         for i in range(LAYERS)), factors)


# ---- messages ----

GOLDEN = [
    (["export", "policy.yaml"], 2, "kvant: export needs --engine NAME; see kvant list engines"),
    (["export"], 2, "kvant: usage: kvant export POLICY.yaml; see kvant help export"),
    (["export", "policy.yaml", "--engine", "tgi"], 2,
     'kvant: unknown engine "tgi"; engines: vllm, llama.cpp, ik_llama.cpp, transformers, kvtuner, '
     "lmdeploy, sglang, exllamav3, tensorrt-llm"),
    (["export", "policy.yaml", "--engine", "vllmm"], 2,
     'kvant: unknown engine "vllmm", did you mean "vllm"? engines: vllm, llama.cpp, ik_llama.cpp, '
     "transformers, kvtuner, lmdeploy, sglang, exllamav3, tensorrt-llm"),
    (["export", "nowhere.yaml", "--engine", "vllm"], 2,
     "kvant: nowhere.yaml: cannot open: No such file or directory"),
    (["export", "policy.yaml", "--engine", "vllm", "--table", "nowhere.csv"], 2,
     "kvant: nowhere.csv: No such file or directory"),
    (["export", "policy.yaml", "--engine", "vllm", "--table", "policy.yaml"], 2, None),
    (["export", "policy.yaml", "--engine", "vllm", "-o", "policy.yaml"], 2,
     "kvant: policy.yaml is read by this run; name another output"),
    (["export", "policy.yaml", "--engine", "vllm", "--scales", "policy.yaml"], 2,
     "kvant: policy.yaml is read by this run; name another output"),
    (["export", "policy.yaml", "--engine", "llama.cpp", "--scales", "s"], 2,
     "kvant: llama.cpp takes no scales: ggml's blocks carry their own scales"),
    (["export", "policy.yaml", "--engine", "exllamav3"], 2,
     "kvant: exllamav3: layer 0: key e4m3/tensor is none of the cache types that kvant can "
     "simulate: FP16 = f16, 2 = exl2:hadamard=32, 3 = exl3:hadamard=32, 4 = exl4:hadamard=32, "
     "5 = exl5:hadamard=32, 6 = exl6:hadamard=32, 7 = exl7:hadamard=32, 8 = exl8:hadamard=32; "
     "kvant list engines says why others are refused"),
    (["export", "policy.yaml", "--engine", "vllm", "-o", "nowhere/words"], 1,
     "kvant: writing nowhere/words: No such file or directory"),
]


def test_messages():
    write("policy.yaml", POLICY)
    for arguments, code, expected in GOLDEN:
        text, found = run(*arguments, code=code)
        check(text == "", arguments, "prints", text)
        check("kvant: " in found, arguments, found)
        if expected is not None:  # notes may stand before
            check(f"\n{found}".endswith(f"\n{expected}\n"), arguments, "\n  found   ", found, "  expected", expected)


def test_infeasible():
    """Nothing within the budget: the nearest, and exit code 3."""
    write_table("table.csv", table_of(ENGINES["vllm"][1]))
    run("tune", "--table", "table.csv", "--max-bytes", "1500", "-o", "out.h5", "--policy",
        "policy.yaml", "-q")
    text, notes = run("export", "policy.yaml", "--engine", "vllm", code=3)
    check(text == "--kv-cache-dtype nvfp4\n", text)
    check(notes.startswith("vllm: nothing it can express is within the budget; the nearest at "
                           "1500 bytes\n"), notes)


def test_list():
    text, _ = run("list", "engines")
    for name in ENGINES:
        check(re.search(rf"^{re.escape(name)}: ", text, re.M), name, "is not listed")
    for line in ("  int8_per_token_head  int8/token",
                 "  q6_0                 refused: its scale is m/-32 on CUDA and a least-squares one "
                 "on the CPU; kvant has no such format yet",
                 "  turboquant_3bit_nc   refused: Lloyd-Max codebooks: kvant has no fitted grid"):
        check(line in text.split("\n"), "no line", line)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in ENGINES:
            test_engine(name)
        test_scales()
        test_messages()
        test_infeasible()
        test_list()
        os.chdir("/")
    print(f"{failures} checks failed" if failures else "good")
    return failures != 0


sys.exit(main())
