#!/usr/bin/env python3
"""The command on CPUs that have less than the one it was built on (CASES H20).

    older_cpus_test.py SLUICE EMULATOR CPU

Runs the built `sluice` under qemu's user emulation as CPU, and natively (or, in a cross build, as
qemu's `max`): it must not meet an instruction that the CPU lacks, must choose an instruction set that
it has and name it, must refuse others in one sentence, and must give the same file and the same bits.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file, save_file

TREE = pathlib.Path(__file__).resolve().parents[2]
MODEL = TREE / "tests/data/tiny-llama"

# CPU -> (targets that it must offer, the first of them its best; targets that it must refuse;
#         whether it has fused multiply-add, and with it the contract's bits)
CPUS = {
    "Nehalem": (["SSSE3", "SSE2"], ["SSE4", "AVX2", "AVX2_VNNI", "AVX3", "AVX3_ZEN4"], False),
    "Haswell": (["AVX2", "SSE4"], ["AVX2_VNNI", "AVX3", "AVX3_DL", "AVX3_ZEN4"], True),
    "cortex-a53": (["NEON", "NEON_WITHOUT_AES"], ["NEON_DOTPROD"], True),
    "cortex-a72": (["NEON", "NEON_WITHOUT_AES"], ["NEON_DOTPROD"], True),
    "cortex-a76": (["NEON_DOTPROD", "NEON"], [], True),
    "neoverse-v1": (["NEON_DOTPROD", "NEON"], [], True),
    "max,sve=off": (["NEON_DOTPROD", "NEON"], [], True),
}


class Sluice:
    def __init__(self, prefix, program):
        self.prefix = [*prefix, program]

    def __call__(self, *arguments, status=0):
        result = subprocess.run(
            [*self.prefix, *map(str, arguments)], capture_output=True, text=True, timeout=300
        )
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
    best = listed["kernels"]["qb4w:32"]["decode"]
    expect(f"{best} was chosen, not {offered[0]}", best == offered[0] or best not in refused)
    run = ["run", model, "--layer", 0, "--input", x, "--output", y, "--target"]
    for target in refused:
        said = sluice(*run, target, status=1).stderr.splitlines()
        errors = [line for line in said if not line.startswith("qemu-")]  # what it cannot emulate
        expect(f"{target} is refused in one line: {errors}", len(errors) == 1)
        expect(f"the line names {target}: {errors}", target in errors[0])
    for target in offered:
        sluice(*run, target)


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
        check_targets(older, folder / "older/model.safetensors", x, folder / "z", offered, refused)
    print(f"PASSED on {cpu}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
