#!/usr/bin/env python3
"""What rounding the feed-forward matrices costs a model: sluice's methods beside ggml's formats.

    tables.py MODEL FOLDER [--sluice build/release/bin/sluice] [--library libggml-base.so]
              [--only rtn,gptq,iq4_nl] [--context 512] [--threads 2]

FOLDER has calibration.npy and test.npy (texts.py) or calibration.txt and test.txt (bible.py, for the
bundled model, with --context 256), and gets everything that is made on the way; what is there
already is taken as it is. `sluice eval` measures all on the held-out text in one pass: the table goes
to the screen as Markdown, the figures to FOLDER/eval.json.

ggml's matrices are rounded by ggml_grid.py with the second moments that `sluice capture` finds on the
calibration text as importance, and run with activations in float. llama.cpp rounds these to int8 as
sluice does, so that ggml looks a little better here than it is; of 8 bits more than a little.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# Name -> options of `sluice quantize`; TEXT stands for the calibration text.
SLUICE = {
    "qb4w:32 rtn": [],
    "qb4w:32 mse": ["--method", "mse", "TEXT"],
    "qb4w:32 gptq": ["--method", "gptq", "TEXT"],
    "4.5 bits gptq": ["--method", "gptq", "--bits", "4.5", "TEXT"],
    "5 bits gptq": ["--method", "gptq", "--bits", "5", "TEXT"],
    "qc8w rtn": ["--weights", "qc8w"],
    "qb8w:32 rtn": ["--weights", "qb8w:32"],
    "qb8w:32 gptq": ["--weights", "qb8w:32", "--method", "gptq", "TEXT"],
}
# Name -> bits per weight.
GGML = {"q4_0": 4.5, "iq4_nl": 4.5, "q5_0": 5.5, "q8_0": 8.5}


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = options.folder
        suffix = "npy" if (self.folder / "calibration.npy").exists() else "txt"
        self.text_option = "--tokens" if suffix == "npy" else "--text"
        self.calibration = self.folder / f"calibration.{suffix}"
        self.test = self.folder / f"test.{suffix}"

    def run(self, command, *arguments):
        line = [*map(str, [command, *arguments])]
        print(" ".join(line), file=sys.stderr)
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)

    def sluice(self, *arguments):
        self.run(self.options.sluice, *arguments, "--threads", self.options.threads)

    def text(self, path):
        return [self.text_option, path, "--context", self.options.context]

    def packed(self, name):
        return self.folder / (name.replace(" ", "-").replace(":", "_") + ".safetensors")

    def quantize(self, name):
        path = self.packed(name)
        if not path.exists():
            arguments = []
            for argument in SLUICE[name]:
                arguments += self.text(self.calibration) if argument == "TEXT" else [argument]
            self.sluice("quantize", self.options.model, "-o", path, *arguments)
        return path

    def moments(self):
        path = self.folder / "moments.safetensors"
        if not path.exists():
            text = self.text(self.calibration)
            self.sluice("capture", self.options.model, "-o", path, "--sample", 16, *text)
        return path

    def round_by_ggml(self, kind):
        path = self.packed(kind)
        if not path.exists():
            suffix = pathlib.Path(self.options.model).suffix
            rounded = self.folder / (kind + suffix)
            script = [sys.executable, HERE / "ggml_grid.py", self.options.model, rounded]
            options = ["--type", kind, "--moments", self.moments()]
            self.run(*script, *options, "--library", self.options.library)
            self.sluice("quantize", rounded, "-o", path, "--weights", "f32")
        return path

    def table(self, names):
        files = [self.quantize(n) if n in SLUICE else self.round_by_ggml(n) for n in names]
        result = self.folder / "eval.json"
        text = self.text(self.test)
        self.sluice("eval", self.options.model, *files, *text, "--json", result)
        evaluation = json.loads(result.read_text(encoding="utf-8"))
        fp32 = evaluation["fp32"]["perplexity"]
        print(f"{evaluation['predictions']} predictions; FP32's perplexity {fp32:.4f}\n")
        print("| | bits | perplexity | KL mean | median | 99 % | same top token |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for name, file in zip(names, evaluation["files"], strict=True):
            bits = GGML.get(name, file["bits_per_weight"])
            kl = file["kl"]
            print(
                f"| {'ggml ' if name in GGML else ''}{name} | {bits:.2f} "
                f"| {file['perplexity']:.4f} | {kl['mean']:.3g} | {kl['median']:.3g} "
                f"| {kl['p99']:.3g} | {100 * file['top1_agreement']:.1f} % |"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--sluice", default="build/release/bin/sluice")
    parser.add_argument("--library", default="libggml-base.so")
    parser.add_argument("--only", help="rows, by a part of their names, comma-separated")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    names = [*SLUICE, *GGML]
    if options.only:
        names = [n for n in names if any(part in n for part in options.only.split(","))]
    Bench(options).table(names)


if __name__ == "__main__":
    main()
