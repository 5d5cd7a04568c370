#!/usr/bin/env python3
"""Measures blocks and prints one table: sluice, other libraries, and how near each is to the limit.

    ./platforms/run bench [OPTION...]

Starts ffn_bench once for each shape and width of the weights, in which everything that is compared
takes turns (random interleaving, repetitions), and collects the medians. The quick default takes a
few minutes; --full is the grid that speed is judged by and takes hours of memory-bound work on two
cores. Options that are not listed here go to ffn_bench, whose --help explains them.
"""

import argparse
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import results

TOP = pathlib.Path(__file__).resolve().parents[1]

QUICK = {
    "shapes": "576x1536,2048x5632",
    "formats": "qb4w:32,qc8w",
    "tokens": "1,16,128",
    "rivals": "xnnpack",
}
FULL = {
    "shapes": "576x1536,2048x5632,4096x11008",
    "formats": "qb4w:32,qb4w:32+row,qb4w:128,qb4w:128+row,qc4w,qb8w:32,qc8w",
    "tokens": "1,4,16,128,512",
    "rivals": "all",
}
COLUMNS = [
    "shape", "weights", "cache", "tokens", "threads", "library",
    "time", "GB/s", "GOP/s", "of limit", "limit", "x rival", "fastest rival",
]  # fmt: skip
LEFT = {"shape", "weights", "cache", "library", "limit", "fastest rival"}


def bits(weights):
    """4 of qb4w:32, 8 of qc8w, 32 of f32: what is compared has the same."""
    return next((n for n in (4, 8, 16, 32) if f"{n}" in weights.split(":")[0]), 0)


def row_of(name, runs):
    """The medians of one benchmark, or None if it is not one of a block."""
    match = results.FFN_NAME.match(name)
    if not match:
        return None
    row = match.groupdict()
    row["tokens"], row["threads"] = int(row["tokens"]), int(row["threads"])
    failed = [run for run in runs if run.get("error_occurred")]
    if failed:
        return row | {"error": failed[0].get("error_message", "failed")}
    row["seconds"] = results.median_of(
        [{"t": t} for t in results.seconds(runs)], "t"
    )
    row["seconds_min"], row["seconds_max"] = min(results.seconds(runs)), max(results.seconds(runs))
    row["repetitions"] = len(runs)
    for counter in ("GB/s", "GOP/s", "of_dram", "of_dots", "of_mix", "of_limit"):
        row[counter] = results.median_of(runs, counter)
    dram, mix = row["of_dram"] or 0, row["of_mix"] or 0
    row["limit"] = None if row["of_limit"] is None else "DRAM" if dram >= mix else "arithmetic"
    row["label"] = runs[0].get("label", "")
    return row


def rows_of(data):
    """One row for each benchmark of a block, with its speed against the fastest rival of the same
    number of bits."""
    rows = [row_of(name, runs) for name, runs in results.repetitions(data).items()]
    rows = [row for row in rows if row]

    def group(row):
        return row["shape"], row["cache"], row["tokens"], row["threads"], bits(row["format"])

    rivals = {}
    for row in rows:
        if row["library"] == "sluice" or "error" in row:
            continue
        best = rivals.get(group(row))
        if best is None or row["seconds"] < best["seconds"]:
            rivals[group(row)] = row
    for row in rows:
        best = rivals.get(group(row))
        if "error" in row or best is None:
            continue
        row["ratio_to_rival"] = best["seconds"] / row["seconds"]
        row["rival"] = f"{best['library']} {best['format']}"
    rows.sort(
        key=lambda r: (
            [int(n) for n in r["shape"].split("x")], *group(r)[1:],
            r["library"] != "sluice", r["library"], r["format"],
        )  # fmt: skip
    )
    return rows


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}g}" if value < 100 else f"{value:.0f}"


def duration(value):
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{number(value / size)} {unit}"
    return f"{number(value / 1e-6)} us"


def cells(row):
    head = [row["shape"], row["format"], row["cache"], row["tokens"], row["threads"], row["library"]]
    if "error" in row:
        return [str(c) for c in head] + [f"ERROR: {row['error']}"]
    fraction = row["of_limit"]
    ratio = row.get("ratio_to_rival")
    return [str(c) for c in head] + [
        duration(row["seconds"]),
        number(row["GB/s"]),
        number(row["GOP/s"]),
        "" if fraction is None else f"{100 * fraction:.0f} %",
        row["limit"] or "",
        "" if ratio is None else f"{ratio:.2f}",
        row.get("rival", ""),
    ]


def table(rows):
    lines = [COLUMNS] + [cells(row) for row in rows]
    widths = [max([len(line[i]) for line in lines if len(line) > 7]) for i in range(len(COLUMNS))]
    text = []
    for line in lines:
        parts = [
            cell.ljust(width) if column in LEFT or len(line) < len(COLUMNS) else cell.rjust(width)
            for cell, width, column in zip(line, widths, COLUMNS)
        ]
        text.append("  ".join(parts).rstrip())
    return "\n".join(text)


def warning(context):
    """What makes the figures doubtful, or None: others that want the same CPUs."""
    load, cpus = (context.get("load_avg") or [0])[0], context.get("num_cpus", 1)
    if load <= cpus:
        return None
    return f"the load average was {load:.1f} on {cpus} CPUs: times on all threads mean nothing"


def ended(status):
    """How a program that wrote no results ended, and what can be done."""
    if status >= 0:
        return f"it wrote no results and ended with status {status}"
    name = signal.strsignal(-status) or f"signal {-status}"
    return f"it died ({name}) and took all of its cases along; --rivals leaves libraries out"


def measure(command, path):
    """Runs one ffn_bench; returns its parsed output, or None if it wrote none. What it prints goes to
    stderr, so that stdout has the table only."""
    status = subprocess.run(
        command + [f"--benchmark_out={path}"], stdout=sys.stderr, check=False
    ).returncode
    try:
        return results.read(path)
    except results.BadFile:
        print(f"bench: error: {ended(status)}", file=sys.stderr)
        return None


def commands(arguments, rest):
    """One for each shape and width of the weights."""
    formats = arguments.formats.split(",")
    for shape in arguments.shapes.split(","):
        for width in dict.fromkeys(bits(f) for f in formats):
            command = shlex.split(arguments.emulator) + [
                str(pathlib.Path(arguments.programs, "ffn_bench")),
                f"--shapes={shape}",
                "--formats=" + ",".join(f for f in formats if bits(f) == width),
                f"--tokens={arguments.tokens}",
                f"--rivals={arguments.rivals}",
                f"--benchmark_min_time={arguments.min_time}",
                f"--benchmark_repetitions={arguments.repetitions}",
                "--benchmark_out_format=json",
            ]
            if arguments.repetitions > 1:
                command.append("--benchmark_enable_random_interleaving=true")
            yield command + rest


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--full", action="store_true", help="the whole grid, beside all libraries built in")
    for name, what in [
        ("shapes", "DxM, a model or a file of them"),
        ("formats", "weight formats"),
        ("tokens", "tokens in a call"),
        ("rivals", "other libraries: xnnpack, onednn, onnxruntime, ggml, all or none"),
    ]:
        add(f"--{name}", metavar="LIST", help=f"{what} (quick: {QUICK[name]}; full: {FULL[name]})")
    add("--repetitions", type=int, default=5, metavar="N", help="of each case, in turn (5)")
    add("--min-time", default="0.1s", metavar="T", help="that each case runs, or 10x for calls (0.1s)")
    add("--json", default=str(TOP / "build/bench/results.json"), metavar="FILE", help="where results go (%(default)s)")
    add("--programs", required=True, help=argparse.SUPPRESS)
    add("--emulator", default="", help=argparse.SUPPRESS)
    arguments, rest = parser.parse_known_args(argv)
    for name, value in (FULL if arguments.full else QUICK).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments, rest


def main(argv):
    arguments, rest = parse(argv)
    # The others' weights on huge pages, like sluice's: the comparison is one of kernels.
    if "4k" not in " ".join(rest):
        os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    merged = {"context": None, "benchmarks": []}
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for command in commands(arguments, rest):
            print("bench: " + shlex.join(command), file=sys.stderr)
            data = measure(command, str(pathlib.Path(folder, "out.json")))
            pathlib.Path(folder, "out.json").unlink(missing_ok=True)
            if data is None:
                failed = True
                continue
            merged["context"] = merged["context"] or data.get("context")
            busy = warning(data.get("context") or {})
            if busy:
                print(f"bench: warning: {busy}", file=sys.stderr)
            merged["benchmarks"] += data["benchmarks"]
    rows = rows_of(merged)
    if not rows:
        print("bench: nothing was measured", file=sys.stderr)
        return 1
    path = pathlib.Path(arguments.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(merged | {"rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(table(rows))
    print(f"bench: {len(rows)} rows, in {path}", file=sys.stderr)
    return 1 if failed or any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
