#!/usr/bin/env python3
"""Instructions per weight of the dot kernels, counted: qemu runs them one instruction at a time and
writes down each.

    bench/mca/count.py [--build build/arm64] [--check FILE | --write FILE | --xnnpack]

Prints them: those executed in the tiles, scales and loops' ends included. --check compares with FILE
and fails if one differs by more than 2 %, --write makes FILE. --xnnpack counts what XNNPACK's
operators of the same formats take on a few CPUs: the instructions inside its library of two calls,
less those of one. (Debian's qemu has no plugins, which would count faster.)
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TOLERANCE = 0.02
WEIGHTS = 64 * 512  # of the matrix in kernel_calls.cc
# The functions that are a kernel's inner part, and how they show it.
TILE = re.compile(
    r"::N_(\w+)::(\w+)::(Row|Token|Lane)Tile<.*?::(Int[48]Weights)>?, \(.*?Mode\)(\d), "
)
FORMATS = {"0": "qb{}w:32", "3": "qc{}w"}  # by mode; row activations for the latter
# Without randomized addresses, so that a range of them can be found in one run and used in another.
EMULATOR = ["setarch", "-R", "qemu-aarch64", "-L", "/", "-cpu"]


def text_of(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def run_logged(cpu, what, begin, size, program):
    """Runs a program. Returns how many instructions of each function within a range it executed, and
    what else qemu wrote down."""
    # (NEON, which needs aes, is NEON_WITHOUT_AES under another name.)
    with tempfile.TemporaryFile("w+") as log:
        subprocess.run(
            [*EMULATOR, cpu, "-one-insn-per-tb", "-d", f"exec,nochain,{what}", "-dfilter",
             f"{begin:#x}+{size:#x}", "-D", "/dev/stdout", *program],
            check=True, stdout=log, env={**os.environ, "SLUICE_DISABLE": "aes"},
        )  # fmt: skip
        log.seek(0)
        counts = collections.Counter()
        rest = []
        for line in log:
            if line.startswith("Trace"):
                counts[line.rpartition("]")[2].strip()] += 1
            else:
                rest.append(line)
    return counts, "".join(rest)


def executed(cpu, what, base_in, offset, size, program):
    """Counts the instructions of each function in [base + offset, … + size) that a program executes.
    Where the base is, base_in(log of `what`) tells after the fact: it runs again until it is where it
    was expected."""
    base = 0
    for _ in range(10):
        counts, log = run_logged(cpu, what, base + offset, size, program)
        if base == (found := base_in(log)):
            return counts
        base = found
    sys.exit("addresses are others in every run")


def program_base(log):
    return int(re.search(r"^([0-9a-f]+)-[0-9a-f]+ [0-9a-f]+ r-x$", log, re.M)[1], 16)


def xnnpack_base(log):
    return int(re.search(r"libXNNPACK.*?mmap\(0x(\w+),(\d+),PROT_EXEC", log, re.S)[1], 16)


def tiles_range(program):
    """First address and size of all tiles in the program's file."""
    symbols = [line.split() for line in text_of(["aarch64-linux-gnu-nm", "-S", program]).splitlines()]
    tiles = [(int(s[0], 16), int(s[1], 16)) for s in symbols if len(s) == 4 and "Tile" in s[3]]
    begin = min(at for at, _ in tiles)
    return begin, max(at + size for at, size in tiles) - begin


def count(program):
    """Returns {"TARGET/FORMAT/TOKENS": instructions per weight}."""
    counts = executed("max", "page", program_base, *tiles_range(program), [program])
    names = subprocess.run(["aarch64-linux-gnu-c++filt"], input="\n".join(counts), check=True,
                           capture_output=True, text=True).stdout.split("\n")  # fmt: skip
    by_case = collections.Counter()
    for instructions, name in zip(counts.values(), names):
        if not (tile := TILE.search(name)) or tile[5] not in FORMATS:
            continue
        target = tile[1] if tile[2] == "plain" else f"NEON_{tile[2].upper()}"
        tokens = 1 if tile[3] == "Row" else 16
        # NEON_I8MM's single tokens are NEON_DOTPROD's.
        calls = 2 if (target, tokens) == ("NEON_DOTPROD", 1) else 1
        weights = FORMATS[tile[5]].format(tile[4][3])
        by_case[f"{target}/{weights}/{tokens}"] += instructions / calls
    return {case: round(total / WEIGHTS, 4) for case, total in sorted(by_case.items())}


def xnnpack_counts(program, library):
    """Yields (CPU, format, tokens, instructions per weight) of XNNPACK's operators."""
    mapped = library.stat().st_size  # more than its code, and nothing else's
    for cpu in ("cortex-a72", "cortex-a76", "max,sve=off"):
        for weights in ("qb4w:32", "qc4w", "qc8w"):
            for tokens in (1, 16):
                one, two = (
                    executed(cpu, "strace", xnnpack_base, 0, mapped,
                             [program, weights, str(tokens), str(calls)]).total()
                    for calls in (1, 2)
                )  # fmt: skip
                yield cpu, weights, tokens, (two - one) / WEIGHTS


def main():
    top = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=top / "build/arm64")
    parser.add_argument("--check", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--xnnpack", action="store_true")
    parser.add_argument("--library", type=pathlib.Path,
                        default=pathlib.Path("/usr/lib/aarch64-linux-gnu/libXNNPACK.so"))  # fmt: skip
    options = parser.parse_args()
    program = str(options.build / "bench/kernel_calls")
    if options.xnnpack:
        for cpu, weights, tokens, per_weight in xnnpack_counts(program, options.library):
            print(f"{cpu} {weights} {tokens}: {per_weight:.4f} instructions per weight", flush=True)
        return
    counts = count(program)
    for case, per_weight in counts.items():
        print(f"{case}: {per_weight} instructions per weight")
    if options.write:
        options.write.write_text(json.dumps(counts, indent=2) + "\n")
    if options.check:
        kept = json.loads(options.check.read_text())
        wrong = [f"{case}: {counts.get(case)}, not {kept.get(case)} as in {options.check}"
                 for case in sorted({*kept, *counts})
                 if not (case in kept and case in counts)
                 or abs(counts[case] / kept[case] - 1) > TOLERANCE]  # fmt: skip
        if wrong:
            sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
