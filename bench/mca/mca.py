#!/usr/bin/env python3
"""How fast the inner loops are on cores that are not at hand, by LLVM's models of them.

    bench/mca/mca.py [--build build/arm64] [--libraries FOLDER] [--check FILE | --update FILE]

Takes each inner loop of the arm64 build out of its object file, and KleidiAI's of the same formats
out of Debian's arm64 libXNNPACK, and puts them through llvm-mca. Prints the tables of bench/README.md;
--update puts them there, --check fails if others are there.
What llvm-mca assumes: data in the first-level cache, branches foretold. Run it by

    ./platforms/run --arch arm64 build && ./platforms/run --arch arm64 shell bench/mca/mca.py
"""

import argparse
import collections
import dataclasses
import functools
import json
import pathlib
import re
import subprocess
import sys

import devices
import disassembly

ITERATIONS = 200
OBJECTS = "src/kernels/CMakeFiles/sluice_kernels.dir/targets"
# d_model, d_ff
BLOCKS = [("SmolLM2-135M", 576, 1536), ("TinyLlama", 2048, 5632), ("Llama-3.2-3B", 3072, 8192),
          ("Llama-2-7B", 4096, 11008)]  # fmt: skip


def assembly(loop):
    """A loop as llvm-mca reads it: branches go nowhere in particular."""
    return "".join(
        f"\t{i.name} {re.sub(r'(^|, )[0-9a-f]+ <.*', r'\1.', i.operands)}\n" for i in loop
    )


@dataclasses.dataclass(frozen=True)
class Estimate:
    cycles: float  # of one turn
    port: str  # the unit that is busiest
    busy: float  # for how much of the time


@functools.cache
def estimate(text, model):
    ran = subprocess.run(
        ["llvm-mca", "-mtriple=aarch64", f"-mcpu={model}", "-mattr=+dotprod,+i8mm" + (",+sve" if "\tsdot z" in text or "\tsmmla z" in text else ""),
         f"-iterations={ITERATIONS}", "-json"],
        input=text, capture_output=True, text=True,
    )  # fmt: skip
    if ran.returncode:
        sys.exit(f"llvm-mca -mcpu={model} failed:\n{ran.stderr}")
    said = json.loads(ran.stdout)
    region = said["CodeRegions"][0]
    units = collections.Counter()
    counts = collections.Counter()
    for resource in said["TargetInfo"]["Resources"]:
        counts[resource.split(".")[0]] += 1
    for use in region["ResourcePressureView"]["ResourcePressureInfo"]:
        if use["InstructionIndex"] == len(region["Instructions"]):  # the sums
            name = said["TargetInfo"]["Resources"][use["ResourceIndex"]].split(".")[0]
            units[name] += use["ResourceUsage"]
    cycles = region["SummaryView"]["TotalCycles"] / ITERATIONS
    port, used = max(units.items(), key=lambda item: item[1] / counts[item[0]])
    return Estimate(cycles, re.sub(r"^.*Unit", "", port), used / counts[port] / cycles)


@functools.cache
def products_per_cycle(instruction, model):
    """The most that the core can multiply, by the same model: sums that do not wait for each other."""
    form = {"sdot": "v{0}.4s, v30.16b, v31.4b[0]", "smmla": "v{0}.4s, v30.16b, v31.16b"}.get(
        instruction, "v{0}.8h, v30.8b, v31.8b"
    )
    name = instruction if instruction in ("sdot", "smmla") else "smlal"
    text = "".join(f"\t{name} {form.format(i)}\n" for i in range(24))
    return 24 * devices.products(name) / estimate(text, model).cycles


# Cores with both, and the width of their SVE registers.
SVE = [("A510", "cortex-a510", 128), ("N2, A710", "neoverse-n2", 128),
       ("V1", "neoverse-v1", 256), ("V2", "neoverse-v2", 128)]  # fmt: skip


@functools.cache
def sve_products_per_cycle(instruction, model, bits):
    text = "".join(f"\t{instruction} z{i}.s, z30.b, z31.b\n" for i in range(24))
    return 24 * devices.products(instruction) * bits / 128 / estimate(text, model).cycles


@dataclasses.dataclass(frozen=True)
class Row:
    by: str
    device: devices.Device
    loop: devices.Loop
    instructions: int
    weights: int
    estimate: Estimate

    @property
    def gb_per_s(self):
        return self.weights * self.loop.weight_bytes / self.estimate.cycles * self.device.ghz

    @property
    def gop_per_s(self):
        return 2 * self.weights * self.loop.tokens / self.estimate.cycles * self.device.ghz

    @property
    def of_peak(self):
        peak = products_per_cycle(self.loop.dot, self.device.model)
        return self.weights * self.loop.tokens / self.estimate.cycles / peak


@functools.cache
def functions(binary, symbol):
    return list(disassembly.functions(binary, "aarch64-linux-gnu-objdump", symbol))


def loop_of(binary, wanted):
    """The inner loop of the one function that is wanted, and the weights that a turn multiplies."""
    symbol = wanted.function if re.fullmatch(r"\w+", wanted.function) else None
    named = functions(binary, symbol)
    found = [body for name, body in named if re.search(wanted.function, name)]
    if len(found) != 1:
        sys.exit(f"{binary}: {len(found)} functions are called {wanted.function}, not one")
    body = disassembly.hottest_loop(
        found[0], lambda i: re.match(rf"({wanted.dot})$", i.name), wanted.nest
    )
    if body is None:
        sys.exit(f"{binary}: {wanted.function} has no loop of {wanted.dot}")
    return body, sum(devices.products(i.name) for i in body) // wanted.tokens


def rows(build, libraries):
    for device in devices.DEVICES:
        groups = [("sluice", build / OBJECTS / f"{name}.cc.o", loops)
                  for name, loops in devices.KERNELS[device.target]]  # fmt: skip
        if kleidiai := devices.KLEIDIAI.get(device.target):
            groups.append(("KleidiAI", libraries / "libXNNPACK.so", kleidiai))
        for by, binary, loops in groups:
            for wanted in loops:
                body, weights = loop_of(binary, wanted)
                result = estimate(assembly(body), device.model)
                yield Row(by, device, wanted, len(body), weights, result)


def loops_table(all_rows):
    yield ("| core, GHz | kernels | weights | tokens | instructions | per weight | cycles | busiest unit "
          "| GB/s | GOP/s | of peak |\n|---|---|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    for r in all_rows:
        kernels = r.device.target if r.by == "sluice" else r.by
        gb = f"{r.gb_per_s:.1f}" if r.loop.tokens == 1 else ""
        yield (
            f"| {r.device.core}, {r.device.ghz} | {kernels} | `{r.loop.name}` | {r.loop.tokens} | "
            f"{r.instructions} | {r.instructions / r.weights:.3f} | {r.estimate.cycles:.1f} | "
            f"{r.estimate.port} {r.estimate.busy:.2f} | {gb} | {r.gop_per_s:.0f} | {r.of_peak:.2f} |"
        )


def blocks_table(all_rows):
    """What a block of one token takes on a board: its arithmetic on all cores, and its memory."""
    yield ("| board | block | weights | MB | arithmetic, 1 core, ms | all cores, ms | DRAM, ms | predicted, ms |"
          "\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    for r in all_rows:
        device = r.device
        if device.dram is None or r.by != "sluice" or r.loop.tokens != 1:
            continue
        if r.loop.name not in ("qb4w:32", "qc8w"):
            continue
        for name, d_model, d_ff in BLOCKS:
            megabytes = 3 * d_model * d_ff * r.loop.weight_bytes / 1e6
            one = megabytes / r.gb_per_s
            memory = megabytes / device.dram
            yield (
                f"| {device.example} | {name} | `{r.loop.name}` | {megabytes:.2f} | {one:.2f} | "
                f"{one / device.cores:.2f} | {memory:.2f} | {max(one / device.cores, memory):.2f} |"
            )


def sve_table():
    """Products a cycle of the same cores' NEON and SVE instructions."""
    yield "| core | SDOT | SDOT of SVE | SMMLA | SMMLA of SVE |\n|---|---|---|---|---|"
    for name, model, bits in SVE:
        sums = [products_per_cycle(instruction, model) for instruction in ("sdot", "smmla")]
        scalable = [
            sve_products_per_cycle(instruction, model, bits) for instruction in ("sdot", "smmla")
        ]
        yield f"| {name} | {sums[0]:.0f} | {scalable[0]:.0f} | {sums[1]:.0f} | {scalable[1]:.0f} |"


def tables(build, libraries):
    all_rows = list(rows(build, libraries))
    parts = [loops_table(all_rows), blocks_table(all_rows), sve_table()]
    return "\n\n".join("\n".join(part) for part in parts)


MARKED = re.compile(r"(<!-- mca\.py writes this -->\n).*?(\n<!-- to here -->)", re.S)


def main():
    top = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=top / "build/arm64")
    parser.add_argument("--libraries", type=pathlib.Path,
                        default=pathlib.Path("/usr/lib/aarch64-linux-gnu"),
                        help="the folder of libXNNPACK.so")  # fmt: skip
    parser.add_argument("--check", type=pathlib.Path)
    parser.add_argument("--update", type=pathlib.Path)
    options = parser.parse_args()
    text = tables(options.build, options.libraries)
    if not options.check and not options.update:
        print(text)
        return
    path = options.check or options.update
    page = path.read_text()
    updated = MARKED.sub(lambda found: found[1] + text + found[2], page)
    if text not in updated:
        sys.exit(f"{path} has no place for the tables")
    if options.update:
        path.write_text(updated)
    elif updated != page:
        sys.exit(f"{path} has other tables than the build; bench/mca/mca.py --update {path}")


if __name__ == "__main__":
    main()
