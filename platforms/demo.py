#!/usr/bin/env python3
"""The main job on the bundled model: quantize it in several formats, compare, look at the speed.

    demo.py SLUICE [OUT]

SLUICE is the built command. Prints one table of errors, what they cost the model, and this machine's
speed; OUT (build/demo) receives each format's packed file and report, the model's losses (eval.json),
and as report.html and report.json the report of the last one, the mixture.
"""

import json
import pathlib
import statistics
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[1]
MODEL = TREE / "tests/data/tiny-llama"
CALIBRATION = MODEL / "calibration.safetensors"
HELD_OUT = MODEL / "heldout.txt"
CONTEXT = 256  # tokens in a window: what the model was trained with

# name -> options of `sluice quantize`. The mixture spends its bits where the error comes from.
FORMATS = {
    "qb4w:64": ["--weights", "qb4w:64"],
    "qb4w:32": ["--weights", "qb4w:32"],
    "qc8w": ["--weights", "qc8w"],
    "qb8w:32": ["--weights", "qb8w:32"],
    "qb4w:32, down qc8w": ["--gate", "qb4w:32", "--up", "qb4w:32", "--down", "qc8w"],
}
PARTS = ["gate", "up", "down", "input_activations", "hidden_activations"]
SHAPES = ["576,1536", "2048,5632"]  # SmolLM2-135M and TinyLlama-1.1B


def run(what, *command):
    """Runs a command of sluice's that need not be seen unless it fails."""
    print(f"demo: {what}", file=sys.stderr)
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stdout + result.stderr + f"demo: that was `sluice {command[1]}`")


def packed(out, name):
    stem = name.replace(":", "-").replace(", ", "-").replace(" ", "-")
    return out / f"{stem}.safetensors"


def quantize(sluice, out, name, options):
    """Quantizes the model and returns the report as `sluice` wrote it."""
    path = packed(out, name)
    report = path.with_suffix(".json")
    options = ["--force", "--calibration", CALIBRATION, "--report", report, *options]
    run(f"quantizing as {name}", sluice, "quantize", MODEL, "-o", path, *options)
    return json.loads(report.read_text(encoding="utf-8"))


def evaluate(sluice, out):
    """What the formats cost the model on text that it has not seen; as `sluice eval` wrote it."""
    files = [packed(out, name) for name in FORMATS]
    options = ["--text", HELD_OUT, "--context", CONTEXT, "--json", out / "eval.json"]
    run("running the model with each", sluice, "eval", MODEL, *files, *map(str, options))
    return json.loads((out / "eval.json").read_text(encoding="utf-8"))


def report_last(sluice, out):
    options = ["--calibration", CALIBRATION, "--eval", out / "eval.json"]
    options += ["--json", out / "report.json", "--html", out / "report.html"]
    last = list(FORMATS)[-1]
    run(f"reporting {last}", sluice, "report", MODEL, packed(out, last), *options)


def percent(value):
    return "-" if value is None else f"{100 * value:.3f} %"


def row(name, report, loss):
    totals = report["totals"]
    cells = [name, f"{totals['bits_per_weight']:.2f}", f"{totals['ffn_bytes'] / 1024:.0f} KiB"]
    cells += [f"{loss['perplexity']:.4f}", f"{loss['kl']['mean']:.2g}"]
    cells += [percent(totals["relative_l2_mean"]), percent(totals["relative_l2_max"])]
    for part in PARTS:
        values = [layer["attribution"].get(part) for layer in report["layers"]]
        cells.append(percent(statistics.mean(values) if None not in values else None))
    return cells


def print_table(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    for cells in rows:
        aligned = [cells[0].ljust(widths[0])]
        aligned += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:])]
        print("  ".join(aligned))


def main():
    if len(sys.argv) not in (2, 3) or any(a.startswith("-") for a in sys.argv[1:]):
        print(__doc__, file=sys.stderr)
        return 2
    sluice = pathlib.Path(sys.argv[1]).resolve()
    out = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else TREE / "build/demo").resolve()
    out.mkdir(parents=True, exist_ok=True)

    reports = {name: quantize(sluice, out, name, options) for name, options in FORMATS.items()}
    evaluation = evaluate(sluice, out)
    report_last(sluice, out)
    first = next(iter(reports.values()))
    tokens, predictions = first["calibration"]["tokens"], evaluation["predictions"]
    perplexity = evaluation["fp32"]["perplexity"]
    print(f"What each format costs {MODEL.relative_to(TREE)}: the model's perplexity (FP32: {perplexity:.4f})")
    print(f"and KL divergence in nats per token over {predictions} predictions of held-out text; the error of a")
    print(f"block against FP32 at {tokens} tokens of it, relative L2, and what each part alone would cause of")
    print("that, mean over the layers:\n")
    header = ["format", "bits/weight", "FFN size", "perplexity", "KL", "error", "max"]
    header += ["gate only", "up only", "down only", "input only", "hidden only"]
    rows = zip(reports.items(), evaluation["files"], strict=True)
    print_table([header] + [row(name, report, loss) for (name, report), loss in rows])

    print("\nSpeed of this machine, weights cold:\n", flush=True)
    for shape in SHAPES:
        command = [sluice, "bench", "--shape", shape, "--weights", "qb4w:32,qc8w"]
        subprocess.run(command + ["--batch", "1,16", "--rounds", "9"], check=True)
    print(f"\nReport of {list(FORMATS)[-1]}: {out / 'report.html'} (and report.json)")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        # `sluice` has already said why.
        sys.exit(f"demo: {' '.join(map(str, error.cmd))} failed with status {error.returncode}")
