#!/usr/bin/env python3
"""Names: of files, header guards, targets, and of files that documents speak of.

    check_names.py [TREE]

Prints one line for each violation and exits 1 if there is any.
"""

import pathlib
import re
import sys

SOURCE_NAME = re.compile(r"[a-z0-9_]+(-inl)?\.(h|cc)")
TARGET = re.compile(r"^\s*(?:sluice_library|add_library|add_executable)\(\s*([\w-]+)", re.M)
# `path/of/a.file` in a document, as code. NAME in it stands for any.
DOCUMENTED = re.compile(r"`((?:include|src|quant|tests|bench|platforms|cmake|docs)/[\w./-]+)`")


def guard_of(name):
    """The header guard of a file: its path from the top, from include/ for public headers."""
    path = name.removeprefix("include/sluice/")
    return "SLUICE_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"


def check_source(name, text):
    base = name.rsplit("/", 1)[1]
    if not SOURCE_NAME.fullmatch(base):
        yield f"{name}: a source file is named in lower_snake_case, .h or .cc"
    if name.startswith("tests/") and "TEST" in text and base.endswith(".cc"):
        if re.search(r"^(TEST|TEST_F|TEST_P|TYPED_TEST)\(", text, re.M) and not base.endswith(
            "_test.cc"
        ):
            yield f"{name}: a file with tests is named *_test.cc"
    # A -inl.h is included once for each target, so a plain guard would be wrong there.
    if base.endswith(".h") and not base.endswith("-inl.h"):
        guard = guard_of(name)
        if not re.search(rf"^#ifndef {guard}\n#define {guard}$", text, re.M):
            yield f"{name}: its header guard is {guard}"


def check_targets(name, text):
    """src/base and quant/report define the target sluice_base and sluice_report; cli the command."""
    parts = name.split("/")
    if parts[0] not in ("src", "quant") or len(parts) != 3:
        return
    wanted = "sluice" if parts[1] == "cli" else f"sluice_{parts[1]}"
    if wanted not in TARGET.findall(text):
        yield f"{name}: defines no target {wanted}"


def check_document(tree, name, text):
    for number, line in enumerate(text.splitlines(), 1):
        for path in DOCUMENTED.findall(line):
            if "NAME" not in path and not (tree / path).exists():
                yield f"{name}:{number}: speaks of {path}, which is not there"


def check(tree):
    violations = []
    for top in ("include", "src", "quant", "tests", "bench"):
        for path in sorted((tree / top).rglob("*")):
            name = path.relative_to(tree).as_posix()
            if path.suffix in (".h", ".cc"):
                violations += check_source(name, path.read_text(encoding="utf-8"))
            elif path.name == "CMakeLists.txt":
                violations += check_targets(name, path.read_text(encoding="utf-8"))
    for path in sorted(tree.glob("*.md")) + sorted((tree / "docs").rglob("*.md")):
        name = path.relative_to(tree).as_posix()
        violations += check_document(tree, name, path.read_text(encoding="utf-8"))
    return violations


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return 2
    here = pathlib.Path(__file__).resolve().parents[2]
    violations = check(pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else here)
    for line in violations:
        print(line)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
