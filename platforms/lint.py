#!/usr/bin/env python3
"""Runs clang-tidy over the sources, as many at a time as there are CPUs.

    lint.py BUILD [FILE...]

BUILD holds compile_commands.json. Without FILEs: every source of src, quant and bench. (Tests are left
to the compiler's warnings and the sanitizers; name one to have it looked at.) A file that was clean
is not looked at again until it, a header of ours that it includes, or the rules change; what was clean
is remembered in the user's cache, as the compiler's is, so that another checkout knows it too.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[1]
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.M)
# One instruction set stands for all: the other files of this folder include the same kernels.
TARGETS = "src/kernels/targets/"


def chosen(name):
    if name.startswith(TARGETS):
        return name.endswith("/avx2.cc") or name.endswith("/neon.cc")
    return name.startswith(("src/", "quant/", "bench/"))


def ours(path, seen):
    """`path` and all headers of this tree that it includes, directly or not."""
    if path in seen:
        return seen
    seen.add(path)
    for name in INCLUDE.findall(path.read_bytes()):
        for root in (TREE, TREE / "include"):
            if (root / name.decode()).is_file():
                ours(root / name.decode(), seen)
    return seen


class Linter:
    def __init__(self, build):
        self.build = build
        cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        self.stamps = pathlib.Path(cache) / "sluice" / "lint"
        self.stamps.mkdir(parents=True, exist_ok=True)
        version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True)
        self.rules = version.stdout + (TREE / ".clang-tidy").read_bytes()

    def fingerprint(self, name, command):
        digest = hashlib.sha256(self.rules + command.replace(str(TREE), "").encode())
        for path in sorted(ours(TREE / name, set())):
            digest.update(path.relative_to(TREE).as_posix().encode() + path.read_bytes())
        return digest.hexdigest()

    def check(self, name, command):
        """Returns (name, output); the output is empty if the file is clean."""
        stamp = self.stamps / self.fingerprint(name, command)
        if stamp.is_file():
            return name, ""
        result = subprocess.run(
            ["clang-tidy", "--quiet", "-p", str(self.build), str(TREE / name)],
            capture_output=True,
            text=True,
        )
        if result.returncode == 0:
            stamp.touch()
            return name, ""
        return name, result.stdout + ("" if result.stdout else result.stderr)


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    if not shutil.which("clang-tidy"):
        print("lint: clang-tidy is not installed", file=sys.stderr)
        return 1
    build = pathlib.Path(sys.argv[1])
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if path.is_relative_to(TREE):
            commands[path.relative_to(TREE).as_posix()] = entry["command"]
    wanted = [os.path.relpath(os.path.abspath(name), TREE) for name in sys.argv[2:]]
    for name in wanted:
        if name not in commands:
            print(f"lint: {name} is not compiled, so it cannot be linted", file=sys.stderr)
            return 1
    names = wanted or sorted(filter(chosen, commands))

    linter = Linter(build)
    dirty = 0
    jobs = int(os.environ.get("SLUICE_JOBS") or os.cpu_count())
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        done = [pool.submit(linter.check, name, commands[name]) for name in names]
        for count, future in enumerate(concurrent.futures.as_completed(done), 1):
            name, output = future.result()
            if sys.stderr.isatty():
                print(f"\r\033[K[{count}/{len(names)}] {name}", end="", file=sys.stderr)
            if output:
                dirty += 1
                print(output)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(f"lint: clang-tidy: {len(names)} files, {dirty} with findings")
    return 1 if dirty else 0


if __name__ == "__main__":
    sys.exit(main())
