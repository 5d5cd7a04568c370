#!/usr/bin/env python3
"""Calibration and held-out text for the bundled model: the King James Bible, whose books Ruth and
James it was not trained on.

    bible.py FOLDER [--calibration 262144]

Writes FOLDER/test.txt, the two books complete, and FOLDER/calibration.txt: whole chapters of the
other books, every eighth and so on until there are that many bytes. Needs Debian's `bible-kjv`.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/data/train"))
import corpus

STEP = 8


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--calibration", type=int, default=262144, help="bytes")
    options = parser.parse_args()

    training, held_out, _ = corpus.split(corpus.read_chapters())
    chapters = training.split(b"\n\n")
    text = b"\n\n".join(c for first in range(STEP) for c in chapters[first::STEP])
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "calibration.txt").write_bytes(text[: options.calibration])
    (options.folder / "test.txt").write_bytes(held_out)


if __name__ == "__main__":
    main()
