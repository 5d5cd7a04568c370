#!/usr/bin/env python3
"""What rounding the feed-forward matrices costs a model: sluice's methods beside ggml's formats.

    tables.py MODEL FOLDER [--sluice build/release/bin/sluice] [--library libggml-base.so]
              [--only "gptq;q8_0"] [--context 512] [--threads 2]

FOLDER has calibration.npy and test.npy (texts.py) or calibration.txt and test.txt (bible.py, for the
bundled model, with --context 256), and gets everything that is made on the way; what is there
already is taken as it is, figures too (figures.json). The rows that have none are measured on the
held-out text together: `sluice eval` for the model, `sluice report` for the blocks, each on the
inputs that it has in the FP32 model, at 128 tokens of that text. The table goes to the screen as
Markdown; what commands print, and the seconds of CPU time that they took, to FOLDER/logs.

ggml's matrices are rounded by ggml_grid.py with the second moments that `sluice capture` finds on the
calibration text as importance, and run with activations in float. Rows of sluice's that say so are
run in the same way; all others with int8 activations, as always. llama.cpp rounds activations too:
llama_cpp.py compares with that.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# What each method is told of the calibration text: mse what blocks get in the FP32 model, at a sample
# of its tokens, which is the simple way, and nearest to what ggml's formats get.
METHODS = {
    "rtn": [],
    "mse": ["--method", "mse", "INPUTS"],
    "gptq": ["--method", "gptq", "TEXT"],
}
# Name -> options of `sluice quantize`; TEXT and INPUTS stand for the calibration text and its inputs.
SLUICE = {
    f"{weights} {method}": ["--weights", weights, *options]
    for weights in ("qb4w:32", "qc8w", "qb8w:32")
    for method, options in METHODS.items()
} | {f"{bits} bits gptq": ["--bits", bits, *METHODS["gptq"]] for bits in ("4.5", "5")}
# Added to a name: the same integers and scales with activations in float.
IN_FLOAT = ", activations in float"
# Name -> bits per weight.
GGML = {"q4_0": 4.5, "iq4_nl": 4.5, "q5_0": 5.5, "q8_0": 8.5}
# Rows that are there in both ways.
IN_BOTH = ["qb4w:32 gptq", "qb8w:32 rtn", "qb8w:32 mse", "qb8w:32 gptq"]
ROWS = [*SLUICE, *(n + IN_FLOAT for n in IN_BOTH), *GGML]
# Tokens whose inputs blocks are compared on: in double precision, so not many.
BLOCK_TOKENS = 128
# Those that mse may use.
CALIBRATION_TOKENS = 1024


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = options.folder
        suffix = "npy" if (self.folder / "calibration.npy").exists() else "txt"
        self.text_option = "--tokens" if suffix == "npy" else "--text"
        self.calibration = self.folder / f"calibration.{suffix}"
        self.test = self.folder / f"test.{suffix}"
        self.logs = self.folder / "logs"
        self.logs.mkdir(exist_ok=True)

    def run(self, label, command, *arguments):
        line = [*map(str, [command, *arguments])]
        print(" ".join(line), file=sys.stderr)
        before = cpu_seconds()
        with open(self.logs / f"{label}.txt", "w", encoding="utf-8") as log:
            print(" ".join(line), file=log, flush=True)
            subprocess.run(line, check=True, stdout=log, stderr=log)
            print(f"{cpu_seconds() - before:.0f} seconds of CPU time", file=log)

    def sluice(self, label, *arguments):
        self.run(label, self.options.sluice, *arguments, "--threads", self.options.threads)

    def script(self, label, name, *arguments):
        self.run(label, sys.executable, HERE / name, *arguments)

    def text(self, path):
        return [self.text_option, path, "--context", self.options.context]

    def packed(self, name):
        return self.folder / (file_name(name) + ".safetensors")

    def file_of(self, name):
        if name in GGML:
            return self.round_by_ggml(name)
        if name.endswith(IN_FLOAT):
            return self.in_float(name)
        return self.quantize(name)

    def quantize(self, name):
        path = self.packed(name)
        if not path.exists():
            arguments = []
            for argument in SLUICE[name]:
                arguments += self.expand(argument)
            self.sluice(file_name(name), "quantize", self.options.model, "-o", path, *arguments)
        return path

    def expand(self, argument):
        if argument == "INPUTS":
            return ["--calibration", self.capture()]
        return self.text(self.calibration) if argument == "TEXT" else [argument]

    def capture(self):
        """The calibration text's inputs, a sample of them, and second moments, of all."""
        path = self.folder / "calibration-inputs.safetensors"
        if not path.exists():
            options = ["--sample", CALIBRATION_TOKENS, *self.text(self.calibration)]
            self.sluice("capture", "capture", self.options.model, "-o", path, *options)
        return path

    def pack_floats(self, name, rounded):
        """The matrices of a model as they are, so that activations stay in float."""
        path = self.packed(name)
        self.sluice(file_name(name), "quantize", rounded, "-o", path, "--weights", "f32")
        return path

    def copy_of_model(self, name):
        return self.folder / (file_name(name) + pathlib.Path(self.options.model).suffix)

    def round_by_ggml(self, kind):
        path = self.packed(kind)
        if path.exists():
            return path
        rounded = self.copy_of_model(kind)
        options = ["--type", kind, "--moments", self.capture(), "--library", self.options.library]
        self.script(f"{kind}-grid", "ggml_grid.py", self.options.model, rounded, *options)
        return self.pack_floats(kind, rounded)

    def in_float(self, name):
        path = self.packed(name)
        if path.exists():
            return path
        values = self.folder / (file_name(name) + ".values")
        packed = self.quantize(name.removesuffix(IN_FLOAT))
        self.run(f"{file_name(name)}-unpack", self.options.sluice, "unpack", packed, "-o", values)
        rounded = self.copy_of_model(name)
        self.script(f"{file_name(name)}-copy", "with_matrices.py", self.options.model, values, rounded)
        values.unlink()
        return self.pack_floats(name, rounded)

    def evaluate(self, figures, files):
        result = self.folder / "eval.json"
        text = self.text(self.test)
        self.sluice("eval", "eval", self.options.model, *files.values(), *text, "--json", result)
        evaluation = json.loads(result.read_text(encoding="utf-8"))
        figures["predictions"] = evaluation["predictions"]
        figures["fp32"] = evaluation["fp32"]["perplexity"]
        for name, file in zip(files, evaluation["files"], strict=True):
            figures.setdefault(name, {}).update(file)

    def compare_blocks(self, figures, files):
        inputs = self.folder / "inputs.safetensors"
        if not inputs.exists():
            options = ["--sample", BLOCK_TOKENS, *self.text(self.test)]
            self.sluice("inputs", "capture", self.options.model, "-o", inputs, *options)
        result = self.folder / "report.json"
        options = ["--calibration", inputs, "--json", result]
        self.sluice("report", "report", self.options.model, *files.values(), *options)
        reports = json.loads(result.read_text(encoding="utf-8"))
        reports = reports.get("reports", [reports])  # of one file: itself
        for name, report in zip(files, reports, strict=True):
            errors = [layer["output"]["relative_l2"] for layer in report["layers"]]
            figures.setdefault(name, {})["block_errors"] = errors

    def measure(self, names, blocks=True):
        """figures.json with those rows; without `blocks` their errors may be missing."""
        path = self.folder / "figures.json"
        figures = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        steps = [(self.evaluate, "kl"), (self.compare_blocks, "block_errors")]
        for what, key in steps if blocks else steps[:1]:
            files = {n: self.file_of(n) for n in names if key not in figures.get(n, {})}
            if files:
                what(figures, files)
                path.write_text(json.dumps(figures, indent=1), encoding="utf-8")
        return figures


def file_name(name):
    return name.replace(",", "").replace(" ", "-").replace(":", "_")


def cpu_seconds():
    """Of all programs that have been run and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(figures, names):
    print(f"{figures['predictions']} predictions; FP32's perplexity {figures['fp32']:.4f}\n")
    print("| | bits | block error | perplexity | KL mean | median | 99 % | same top token |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in names:
        file = figures[name]
        kl, errors = file["kl"], file.get("block_errors")
        block = f"{sum(errors) / len(errors):.4f}" if errors else "–"
        packed = name.removesuffix(IN_FLOAT)
        bits = GGML.get(name, figures.get(packed, {}).get("bits_per_weight", float("nan")))
        print(
            f"| {'ggml ' if name in GGML else ''}{name} | {bits:.2f} "
            f"| {block} | {file['perplexity']:.4f} | {kl['mean']:.3g} | {kl['median']:.3g} "
            f"| {kl['p99']:.3g} | {100 * file['top1_agreement']:.1f} % |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--sluice", default="build/release/bin/sluice")
    parser.add_argument("--library", default="libggml-base.so")
    parser.add_argument("--only", help="rows by name, or by a part of names; with ; between")
    parser.add_argument("--no-blocks", action="store_true", help="leave block errors for later")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    names = ROWS
    if options.only:
        wanted = options.only.split(";")
        names = [n for n in ROWS if any(w == n or (w not in ROWS and w in n) for w in wanted)]
    table(Bench(options).measure(names, not options.no_blocks), names)


if __name__ == "__main__":
    main()
