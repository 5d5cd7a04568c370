#!/usr/bin/env python3
"""The command on CPUs that have less than the one it was built on (CASES H20).

    older_cpus_test.py SLUICE EMULATOR CPU

Runs the built `sluice` under qemu's user emulation as CPU, and natively (or, in a cross build, as
qemu's `max`): it must not meet an instruction that the CPU lacks, must choose an instruction set that
it has and name it, must refuse others in one sentence, and must give the same file and the same bits.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file, save_file

TREE = pathlib.Path(__file__).resolve().parents[2]
MODEL = TREE / "tests/data/tiny-llama"

# CPU -> (targets that it must offer, the first of them its best, which must be chosen; targets that
#         it must refuse; whether it has fused multiply-add, and with it the contract's bits)
CPUS = {
    "Nehalem": (["SSSE3", "SSE2"], ["SSE4", "AVX2", "AVX2_VNNI", "AVX3", "AVX3_ZEN4"], False),
    "Haswell": (["AVX2", "SSE4"], ["AVX2_VNNI", "AVX3", "AVX3_DL", "AVX3_ZEN4"], True),
    "cortex-a53": (["NEON", "NEON_WITHOUT_AES"], ["NEON_DOTPROD", "NEON_I8MM"], True),
    "cortex-a55": (["NEON_DOTPROD", "NEON"], ["NEON_I8MM"], True),
    "cortex-a72": (["NEON", "NEON_WITHOUT_AES"], ["NEON_DOTPROD", "NEON_I8MM"], True),
    "cortex-a76": (["NEON_DOTPROD", "NEON"], ["NEON_I8MM"], True),
    "neoverse-n1": (["NEON_DOTPROD", "NEON"], ["NEON_I8MM"], True),
    "neoverse-v1": (["NEON_I8MM", "NEON_DOTPROD", "NEON"], [], True),
    "a64fx": (["NEON", "NEON_WITHOUT_AES"], ["NEON_DOTPROD", "NEON_I8MM"], True),
    "max": (["NEON_I8MM", "NEON_DOTPROD", "NEON"], [], True),
    "max,sve=off": (["NEON_I8MM", "NEON_DOTPROD", "NEON"], [], True),
}

# What is left of a CPU's features when SLUICE_DISABLE hides some -> what must be chosen then. The
# emulator cannot switch these off.
HIDDEN = {
    "cortex-a76": {"dotprod": "NEON", "dotprod,aes": "NEON_WITHOUT_AES"},
    "max": {"bf16": "NEON_I8MM", "i8mm": "NEON_DOTPROD", "dotprod": "NEON",
            "i8mm,bf16,dotprod,aes": "NEON_WITHOUT_AES"},
}  # fmt: skip


class Sluice:
    def __init__(self, prefix, program):
        self.prefix = [*prefix, program]

    def __call__(self, *arguments, status=0, disable=""):
        result = subprocess.run(
            [*self.prefix, *map(str, arguments)], capture_output=True, text=True, timeout=300,
            env={**os.environ, "SLUICE_DISABLE": disable},
        )  # fmt: skip
        if result.returncode != status:
            sys.exit(
                f"FAILED: {' '.join(map(str, [*self.prefix, *arguments]))}: status "
                f"{result.returncode}, not {status}\n{result.stdout}{result.stderr}"
            )
        return result


def expect(what, condition):
    if not condition:
        sys.exit(f"FAILED: {what}")


def quantize_and_run(sluice, folder, x, *options):
    """Returns the packed file's bytes and layer 0's output."""
    model, y = folder / "model.safetensors", folder / "y.safetensors"
    sluice("quantize", MODEL, "-o", model, "--force")
    sluice("run", model, "--layer", 0, "--input", x, "--output", y, *options)
    return model.read_bytes(), load_file(y)["y"]


def check_targets(sluice, model, x, y, offered, refused):
    listed = json.loads(sluice("cpu", "--json").stdout)
    available = [target["name"] for target in listed["targets"] if target["available"]]
    expect(f"{offered} are available, but they are {available}", set(offered) <= set(available))
    expect(f"{refused} are not available, but {available}", not set(refused) & set(available))
    for use, best in listed["kernels"]["qb4w:32"].items():
        expect(f"{best} was chosen for {use}, not {offered[0]}", best == offered[0])
    run = ["run", model, "--layer", 0, "--input", x, "--output", y, "--target"]
    for target in refused:
        said = sluice(*run, target, status=1).stderr.splitlines()
        errors = [line for line in said if not line.startswith("qemu-")]  # what it cannot emulate
        expect(f"{target} is refused in one line: {errors}", len(errors) == 1)
        expect(f"the line names {target}: {errors}", target in errors[0])
    for target in offered:
        sluice(*run, target)


def check_hidden(sluice, cpu, model, x, y):
    """Hidden features are not used, and the result stays the same."""
    bits = set()
    for disable, target in HIDDEN.get(cpu, {}).items():
        kernels = json.loads(sluice("cpu", "--json", disable=disable).stdout)["kernels"]["qb4w:32"]
        expect(f"without {disable} {kernels} are chosen", set(kernels.values()) == {target})
        sluice("run", model, "--layer", 0, "--input", x, "--output", y, disable=disable)
        bits.add(load_file(y)["y"].tobytes())
    expect("the same bits come out, whatever is hidden", len(bits) <= 1)


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in CPUS:
        print(__doc__, file=sys.stderr)
        return 2
    program, emulator, cpu = sys.argv[1:]
    offered, refused, exact = CPUS[cpu]
    cross = emulator != "qemu-x86_64"
    older = Sluice([emulator, "-L", "/", "-cpu", cpu], program)
    newer = Sluice([emulator, "-L", "/", "-cpu", "max"] if cross else [], program)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "older").mkdir()
        (folder / "newer").mkdir()
        x = folder / "x.safetensors"
        values = numpy.random.default_rng(20).standard_normal((5, 128), dtype=numpy.float32)
        save_file({"x": values}, x)

        packed, y = quantize_and_run(older, folder / "older", x)
        packed_newer, y_newer = quantize_and_run(newer, folder / "newer", x)
        expect("the same packed file comes out", packed == packed_newer)
        if exact:
            expect("the same bits come out", y.tobytes() == y_newer.tobytes())
        error = numpy.linalg.norm(y - y_newer) / numpy.linalg.norm(y_newer)
        expect(f"relative L2 is {error}", error <= 1e-3)
        model = folder / "older/model.safetensors"
        check_targets(older, model, x, folder / "z", offered, refused)
        check_hidden(older, cpu, model, x, folder / "z")
    print(f"PASSED on {cpu}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
