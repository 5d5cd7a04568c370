#!/usr/bin/env python3
"""The main job on the bundled model: quantize it in several formats, compare, look at the speed.

    demo.py SLUICE [OUT]

SLUICE is the built command. Prints one table of errors and this machine's speed; OUT (build/demo)
receives each format's packed file and report, and as report.html and report.json that of the last
one, the mixture.
"""

import json
import pathlib
import statistics
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[1]
MODEL = TREE / "tests/data/tiny-llama"
CALIBRATION = MODEL / "calibration.safetensors"

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


def quantize(sluice, out, name, options):
    """Quantizes the model and returns the report as `sluice` wrote it."""
    stem = name.replace(":", "-").replace(", ", "-").replace(" ", "-")
    report = out / f"{stem}.json"
    command = [sluice, "quantize", MODEL, "-o", out / f"{stem}.safetensors", "--force"]
    command += ["--calibration", CALIBRATION, "--report", report, *options]
    if name == list(FORMATS)[-1]:
        command += ["--report", out / "report.json", "--report", out / "report.html"]
    print(f"demo: quantizing as {name}", file=sys.stderr)
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stdout + result.stderr + "demo: that was `sluice quantize`")
    return json.loads(report.read_text(encoding="utf-8"))


def percent(value):
    return "-" if value is None else f"{100 * value:.3f} %"


def row(name, report):
    totals = report["totals"]
    cells = [name, f"{totals['bits_per_weight']:.2f}", f"{totals['ffn_bytes'] / 1024:.0f} KiB"]
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
    first = next(iter(reports.values()))
    tokens = first["calibration"]["tokens"]
    print(f"Error of each block against FP32 ({MODEL.relative_to(TREE)}, {tokens} held-out tokens),")
    print("relative L2; on the right what each part alone would cause, mean over the layers:\n")
    header = ["format", "bits/weight", "FFN size", "mean", "max"]
    header += ["gate only", "up only", "down only", "input only", "hidden only"]
    print_table([header] + [row(name, report) for name, report in reports.items()])

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
