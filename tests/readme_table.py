"""The README's script that measures a table of sensitivities on a transformers model: it compiles,
and where torch and transformers are installed it is run on a tiny model with random weights and its
table is solved.

    python3 readme_table.py KVANT README.md
"""
import csv
import itertools
import os
import re
import subprocess
import sys
import tempfile

KVANT, README = os.path.abspath(sys.argv[1]), sys.argv[2]

TINY = """
import sys, torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
torch.manual_seed(0)
words = {word: i for i, word in enumerate(sorted(set(open("text.txt").read().split())))}
words["<unk>"] = len(words)
tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained("tiny")
model = LlamaForCausalLM(LlamaConfig(vocab_size=len(words), hidden_size=64, intermediate_size=64,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32))
for parameter in model.parameters():
    parameter.data *= 3
model.save_pretrained("tiny")
"""


def script():
    blocks = re.findall(r"```python\n(.*?)```", open(README, encoding="utf-8").read(), re.S)
    found = [block for block in blocks if "QuantizedCache" in block]
    assert len(found) == 1, "README.md has no script with a QuantizedCache"
    compile(found[0], "README.md", "exec")
    return found[0]


def best_error(rows, limit):
    """Least error of all assignments within `limit` bytes, by enumeration of pairs per layer."""
    totals = [(0, 0.0)]
    for layer in sorted({row["layer"] for row in rows}):
        sides = [[(int(r["bytes"]), float(r["error"])) for r in rows
                  if r["layer"] == layer and r["tensor"] == tensor] for tensor in ("key", "value")]
        pairs = [(k[0] + v[0], k[1] + v[1]) for k, v in itertools.product(*sides)]
        totals = [(a[0] + b[0], a[1] + b[1]) for a in totals for b in pairs if a[0] + b[0] <= limit]
    return min(error for _, error in totals)


def main():
    source = script()
    try:
        import torch, transformers  # noqa: F401
    except ImportError as missing:
        print(f"compiled only: {missing}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        def run(*command, **options):
            return subprocess.run(command, cwd=folder, check=True, text=True, **options)

        for name, text in (("measure.py", source), ("tiny.py", TINY),
                           ("text.txt", " ".join(re.findall("[a-z]+", source)) * 3)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        run(sys.executable, "tiny.py", capture_output=True)
        table = run(sys.executable, "measure.py", "tiny", "text.txt", stdout=subprocess.PIPE).stdout
        with open(os.path.join(folder, "table.csv"), "w", encoding="utf-8") as file:
            file.write(table)
        rows = list(csv.DictReader(table.splitlines()))
        assert len(rows) == 2 * 2 * 7, len(rows)
        assert all(float(r["error"]) == 0 for r in rows if r["scheme"] == "f16"), "f16 changes bits"
        most = {t: max((float(r["error"]), r["scheme"]) for r in rows if r["tensor"] == t)[1]
                for t in ("key", "value")}
        assert all(scheme.startswith("int2") for scheme in most.values()), most
        limit = 2 * 180
        run(KVANT, "tune", "--table", "table.csv", "--max-bytes", str(limit), "-o", "out.h5", "--quiet")
        shown = run(KVANT, "show", "out.h5", "--metric", "frontier", "--format", "csv",
                    stdout=subprocess.PIPE).stdout
        within = [p for p in csv.DictReader(shown.splitlines()) if float(p["bytes"]) <= limit]
        found, expected = min(float(p["error"]) for p in within), best_error(rows, limit)
        assert abs(found - expected) <= 1e-6 * expected, (found, expected)
    return 0


sys.exit(main())
