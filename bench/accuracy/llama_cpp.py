#!/usr/bin/env python3
"""llama.cpp's own tools beside `sluice eval`, on the same tokens.

    llama_cpp.py MODEL.gguf FOLDER TOOLS [--windows 16] [--importance-windows 96]
                 [--sluice build/release/bin/sluice]

TOOLS is the folder with llama-perplexity, llama-imatrix and llama-quantize. MODEL, written by
off_grid.py as F32, must have a tokenizer that puts nothing before a text; FOLDER has calibration.npy,
test.npy and the packed files of tables.py. Compared by perplexity and KL divergence from FP32:

- packed files of sluice's, for llama.cpp as Q8_0 blocks with the same integers and scales
  (packed_to_gguf.py): both programs must come to the same;
- llama-quantize's formats with llama-imatrix's importance, feed-forward matrices only.

llama-perplexity scores the second half of each window of 512, 255 predictions. `sluice eval` scores
all, so it is run on the windows and on their first 257 tokens, whose predictions are taken away
again. Both get the tokens that llama.cpp made of the text. Everything is written to FOLDER/llama;
files that are there already are taken as they are.
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys

import numpy as np
import tables

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "quant/tools"))
from text_to_tokens import open_tokenizer

CONTEXT = 512
HEAD = CONTEXT // 2 + 1  # tokens; what predicts tokens after them is scored
TAIL = CONTEXT - HEAD  # predictions
PACKED = ["qb4w:32 rtn", "qb4w:32 gptq", "qb8w:32 rtn"]
FORMATS = ["q4_0", "iq4_nl", "q8_0"]
# As exact as it gets: the cache of keys and values in F32, no fused attention.
EXACT = ["-ctk", "f32", "-ctv", "f32", "-fa", "off", "-c", CONTEXT, "-b", CONTEXT, "--no-warmup"]
FIGURES = {
    "perplexity": r"Mean PPL\(Q\)\s*:\s*([\d.]+)",
    "mean": r"Mean\s+KLD:\s*(-?[\d.]+)",
    "median": r"Median\s+KLD:\s*(-?[\d.]+)",
    "p99": r"99\.0%\s+KLD:\s*(-?[\d.]+)",
    "top": r"Same top p:\s*([\d.]+)",
}


class LlamaBench(tables.Bench):
    def __init__(self, options):
        super().__init__(options)
        self.model = options.model
        self.out = self.folder / "llama"
        self.out.mkdir(exist_ok=True)

    def tool(self, label, name, *arguments):
        self.run(f"llama-{label}", self.options.tools / name, *arguments)
        return (self.logs / f"llama-{label}.txt").read_text(encoding="utf-8", errors="replace")

    def write_text(self, name, count):
        """The text that the first `count` token ids stand for."""
        ids = np.load(self.folder / f"{name}.npy").ravel()[:count]
        path = self.out / f"{name}.txt"
        text = open_tokenizer(pathlib.Path(self.model)).decode(ids, skip_special_tokens=False)
        path.write_text(text, encoding="utf-8")
        return path

    def base(self):
        """FP32's predictions."""
        path = self.out / "base.bin"
        if not path.exists():
            # A little more than is used: at the ends, tokens need not come out as they went in.
            text = self.write_text("test", (self.options.windows + 1) * CONTEXT)
            options = ["-f", text, "--chunks", self.options.windows, "--kl-divergence-base", path]
            threads = ["-t", self.options.threads]
            self.tool("base", "llama-perplexity", "-m", self.model, *EXACT, *threads, *options)
        return path

    def tokens(self):
        """int32 [windows, CONTEXT]: what llama.cpp predicted."""
        with open(self.base(), "rb") as file:
            magic, (context, _, windows) = file.read(8), np.fromfile(file, np.int32, 3)
            if magic != b"_logits_" or context != CONTEXT:
                raise ValueError(f"{self.base()} is no file of windows of {CONTEXT}")
            return np.fromfile(file, np.int32, windows * context).reshape(windows, context)

    def perplexity(self, label, model):
        options = ["--kl-divergence", "--kl-divergence-base", self.base()]
        threads = ["-t", self.options.threads]
        log = self.logs / f"llama-{label}.txt"
        if not log.exists() or "Same top p:" not in log.read_text(encoding="utf-8", errors="replace"):
            self.tool(label, "llama-perplexity", "-m", model, *EXACT, *threads, *options)
        text = log.read_text(encoding="utf-8", errors="replace")
        return {key: float(re.search(pattern, text)[1]) for key, pattern in FIGURES.items()}

    def importance(self):
        path = self.out / "imatrix.gguf"
        if not path.exists():
            text = self.write_text("calibration", None)
            options = ["-f", text, "-c", CONTEXT, "--no-ppl", "-t", self.options.threads]
            if self.options.importance_windows:
                options += ["--chunks", self.options.importance_windows]
            self.tool("imatrix", "llama-imatrix", "-m", self.model, "-o", path, *options)
        return path

    def by_llama(self, kind):
        path = self.out / f"{kind}.gguf"
        if not path.exists():
            others = ["--token-embedding-type", "f32", "--output-tensor-type", "f32"]
            types = ["--tensor-type", f"ffn_={kind}", "--tensor-type", "attn_=f32"]
            options = ["--imatrix", self.importance(), *others, *types]
            self.tool(f"quantize-{kind}", "llama-quantize", *options, self.model, path, kind.upper())
        return path

    def by_sluice(self, name):
        path = self.out / (tables.file_name(name) + ".gguf")
        if not path.exists():
            integers = path.with_suffix(".integers")
            unpack = ["unpack", self.quantize(name), "-o", integers, "--integers"]
            self.run(f"llama-{path.stem}-unpack", self.options.sluice, *unpack)
            self.script(f"llama-{path.stem}-gguf", "packed_to_gguf.py", self.model, integers, path)
            integers.unlink()
        return path

    def eval(self, names):
        """`sluice eval`'s perplexity, mean KL and top token over what llama-perplexity scores."""
        tokens = self.tokens()
        results = []
        for label, ids in (("whole", tokens), ("head", tokens[:, :HEAD])):
            path, result = self.out / f"{label}.npy", self.out / f"{label}.json"
            np.save(path, ids)
            text = ["--tokens", path, "--context", CONTEXT, "--json", result]
            files = [self.file_of(n) for n in names]
            self.sluice(f"llama-{label}", "eval", self.model, *files, *text)
            results.append(json.loads(result.read_text(encoding="utf-8")))
        whole, head = results
        figures = {"fp32": {"perplexity": tail_perplexity(whole["fp32"], head["fp32"]), "mean": 0.0}}
        for name, w, h in zip(names, whole["files"], head["files"], strict=True):
            top = w["top1_agreement"] * (CONTEXT - 1) - h["top1_agreement"] * (HEAD - 1)
            figures[name] = {
                "perplexity": tail_perplexity(w, h),
                "mean": float(np.mean(w["per_position"][HEAD - 1 :])),
                "top": 100 * top / TAIL,
            }
        return figures


def tail_perplexity(whole, head):
    """Of what follows the heads: mean log losses times predictions are sums."""
    logs = math.log(whole["perplexity"]) * (CONTEXT - 1) - math.log(head["perplexity"]) * (HEAD - 1)
    return math.exp(logs / TAIL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--importance-windows", type=int, help="of calibration text; else all")
    parser.add_argument("--sluice", default="build/release/bin/sluice")
    parser.add_argument("--library", default="libggml-base.so")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    options.context = CONTEXT

    bench = LlamaBench(options)
    print(f"{bench.tokens().shape[0] * TAIL} predictions\n")
    print("| | llama.cpp: perplexity | KL mean | median | 99 % | same top | sluice eval: perplexity | KL mean | same top |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    models = {"fp32": bench.model}
    models |= {name: bench.by_sluice(name) for name in PACKED}
    models |= {kind: bench.by_llama(kind) for kind in FORMATS}
    ours = bench.eval([*PACKED, *FORMATS])
    for name, model in models.items():
        theirs = bench.perplexity(tables.file_name(name), model)
        mine = ours[name]
        print(
            f"| {'ggml ' if name in FORMATS else ''}{name} | {theirs['perplexity']:.4f} "
            f"| {theirs['mean']:.5f} | {theirs['median']:.5f} | {theirs['p99']:.4f} "
            f"| {theirs['top']:.1f} % | {mine['perplexity']:.4f} | {mine['mean']:.5f} "
            f"| {mine.get('top', 100):.1f} % |"
        )


if __name__ == "__main__":
    main()
