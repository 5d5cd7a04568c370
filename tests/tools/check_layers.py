#!/usr/bin/env python3
"""The layer rule: a folder includes only folders above it in DESIGN's list.

    check_layers.py [TREE]

Prints one line for each violation, `file:line: what is wrong`, and exits 1 if there is any. Files
that have grown long are named too, as warnings, which do not fail.
"""

import pathlib
import re
import sys

# The house, top down. What a folder includes lies in itself or in a folder before it.
HOUSE = [
    "include/sluice",
    "src/base",
    "src/format",
    "src/kernels",
    "src/backends",
    "src/ffn",
    "src/file",
    "quant/checkpoint",
    "quant/linalg",
    "quant/decoder",
    "quant/quantizer",
    "quant/analysis",
    "quant/report",
    "quant/cli",
]

# Foreign headers with a place of their own: header prefix -> the only folders that include it.
FOREIGN = {
    "hwy/": ["src/kernels"],
    "xnnpack": ["src/backends"],
    "pthreadpool": ["src/base", "src/backends"],
    "cblas": ["quant/linalg"],
    "lapacke": ["quant/linalg"],
    "CLI/": ["quant/cli"],
    "kainjow/": ["quant/report"],
    "gtest/": [],
    "gmock/": [],
    "benchmark/": [],
}

LONG_FILE = 500  # lines
SOURCES = (".h", ".cc")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def folder_of(path):
    """The folder of the house that a path from the top lies in, or None."""
    for folder in HOUSE:
        if path.startswith(folder + "/"):
            return folder
    return None


def resolve(tree, name):
    """A quoted include as a path from the top: as written, or below include/. None if not there."""
    for candidate in (name, "include/" + name):
        if (tree / candidate).is_file():
            return candidate
    return None


def check_include(tree, folder, bracket, name):
    """What is wrong with one include of a file in `folder`, or None."""
    for prefix, homes in FOREIGN.items():
        if not name.startswith(prefix):
            continue
        if folder in homes:
            return None
        where = " and ".join(homes) if homes else "tests and bench"
        return f"<{name}> belongs in {where} only"
    if bracket == "<":
        if name.startswith(("sluice/", "src/", "quant/")):
            return f'<{name}> is ours and is included with quotes'
        return None
    target = resolve(tree, name)
    if target is None:
        return f'"{name}" is not a path from the top of the tree'
    theirs = folder_of(target)
    if theirs is None:
        return f"{folder} includes {target}, which is no part of the house"
    if HOUSE.index(theirs) > HOUSE.index(folder):
        return f"{folder} includes {target}, but {theirs} lies below it"
    return None


def check(tree):
    """Returns (violations, warnings), each a list of lines."""
    violations, warnings = [], []
    for top in ("include", "src", "quant", "tests", "bench"):
        for path in sorted((tree / top).rglob("*")):
            if path.suffix not in SOURCES or not path.is_file():
                continue
            name = path.relative_to(tree).as_posix()
            lines = path.read_text(encoding="utf-8").splitlines()
            if len(lines) > LONG_FILE:
                warnings.append(f"{name}: warning: {len(lines)} lines; split it by meaning")
            if top in ("tests", "bench"):
                continue
            folder = folder_of(name)
            if folder is None:
                violations.append(f"{name}: lies outside the folders of the house")
                continue
            for number, line in enumerate(lines, 1):
                match = INCLUDE.match(line)
                wrong = match and check_include(tree, folder, match.group(1), match.group(2))
                if wrong:
                    violations.append(f"{name}:{number}: {wrong}")
    return violations, warnings


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return 2
    here = pathlib.Path(__file__).resolve().parents[2]
    violations, warnings = check(pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else here)
    for line in warnings + violations:
        print(line)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
