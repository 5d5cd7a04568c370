#!/usr/bin/env python3
"""The inner loops as they were compiled: each contains its target's dot product, and neither calls,
nor divides, nor keeps vectors on the stack.

    disassembly_test.py OBJDUMP OBJECT…

OBJECTs are those of src/kernels/targets that the build made; at least one must be known here.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/mca"))
import disassembly  # noqa: E402

ROW = r"::RowTile<.*::Int[48]Weights, \(.*Mode\)[03], \d+ul>::Run\("
# (Without SDOT, int8 weights in blocks keep their four float sums on the stack, once in 32 columns.)
PLAIN_ROW = r"::RowTile<.*::(Int4Weights, \(.*Mode\)[03]|Int8Weights, \(.*Mode\)3), \d+ul>::Run\("
LANES = r"::LaneTile<.*::Int[48]Weights, \(.*Mode\)[023], [248]ul, 1ul>::Run\("
PANEL = r"::TokenTile<.*::PanelWeights<.*::Int[48]Weights>, \(.*Mode\)[03], 6ul, \d+ul>::Run\("

# Object -> the functions whose inner loops are looked at, how many there must be at least, and the
# instruction that they must be made of.
EXPECTED = {
    "neon_without_aes.cc.o": [(PLAIN_ROW, 3, "smlal2?")],
    "neon_dotprod.cc.o": [(ROW, 4, "sdot"), (LANES, 18, "sdot")],
    "neon_i8mm.cc.o": [(LANES, 18, "smmla")],
    "avx2_vnni.cc.o": [(ROW, 4, "vpdpbusd"), (PANEL, 4, "vpdpbusd")],
    "avx3_dl.cc.o": [(ROW, 4, "vpdpbusd"), (PANEL, 4, "vpdpbusd")],
}

CALL = r"(bl|blr|call)$"
DIVISION = r"([su]div|fdiv|i?div|v?div[ps][sd])$"


def touches_stack(instruction):
    """Whether a vector goes to the stack or comes from there; a pointer may."""
    if not re.search(r"\[(sp|x29)[],]|\(%r[sb]p", instruction.operands):
        return False
    return bool(re.search(r"(^|, )[qds]\d+|%[xyz]mm", instruction.operands))


def faults(body, dot):
    loop = disassembly.hottest_loop(body, lambda i: re.match(rf"({dot})$", i.name))
    if loop is None:
        return [f"has no loop of {dot}"]
    found = []
    for instruction in loop:
        said = f"{instruction.name} {instruction.operands}"
        if re.match(CALL, instruction.name):
            found.append(f"calls: {said}")
        if re.match(DIVISION, instruction.name):
            found.append(f"divides: {said}")
        if touches_stack(instruction):
            found.append(f"spills: {said}")
    return found


def check(path, objdump):
    """Prints what is wrong with an object's loops; returns how many are right and how many not."""
    functions = list(disassembly.functions(path, objdump))
    right = wrong = 0
    for pattern, least, dot in EXPECTED[path.name]:
        matching = [(name, body) for name, body in functions if re.search(pattern, name)]
        if len(matching) < least:
            print(f"{path.name}: {len(matching)} functions match {pattern}, not {least}")
            wrong += 1
        for name, body in matching:
            for fault in (found := faults(body, dot)):
                print(f"{path.name}: {name}: {fault}")
            wrong += bool(found)
            right += not found
    return right, wrong


def main():
    objdump, *objects = sys.argv[1:]
    known = [p for p in map(pathlib.Path, objects) if p.name in EXPECTED]
    if not known:
        sys.exit(f"none of the objects is one of {', '.join(EXPECTED)}")
    results = [check(path, objdump) for path in known]
    print(f"{sum(r for r, _ in results)} loops are right, {sum(w for _, w in results)} are not")
    return 1 if any(w for _, w in results) else 0


if __name__ == "__main__":
    sys.exit(main())
