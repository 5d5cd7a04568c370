#!/usr/bin/env python3
"""Calibration and held-out token ids from Debian's text packages, disjoint.

    texts.py MODEL FOLDER [--calibration 49152] [--test 20480]

Downloads the packages `anarchism` and `debian-handbook` with apt-get, strips their pages' markup,
cuts the pages into pieces of 6000 characters and shuffles these; every fourth piece is test, the
others are calibration. MODEL gives the tokenizer, as for quant/tools/text_to_tokens.py. Writes
FOLDER/calibration.npy and FOLDER/test.npy, int32 [n].

Where the tokenizer puts a begin token before a text, as Gemma's does, they are int32 [windows,
--context], and each row is that token and what comes next in the text: such a model is far worse
without it, and sluice puts nothing before a window by itself.
"""

import argparse
import html
import pathlib
import random
import re
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "quant/tools"))
from text_to_tokens import open_tokenizer

PAGES = {
    "anarchism": "usr/share/doc/anarchism/**/*.html",
    "debian-handbook": "usr/share/doc/debian-handbook/html/en-US/*.html",
}
PIECE = 6000  # characters
TEST_PART = 4


def unpack(package, folder):
    """Downloads and unpacks a package; returns where."""
    root = folder / package
    if not root.is_dir():
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True)
        (archive,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "--extract", archive, root], check=True)
    return root


def text_of(page):
    text = page.read_text(encoding="utf-8", errors="replace")
    text = re.sub(r"(?is)<(script|style|head)\b.*?</\1>", "", text)
    text = re.sub(r"(?is)<(p|br|h\d|li|div|tr)\b[^>]*>", "\n", text)
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    text = re.sub(r"[ \t]+", " ", text)
    return re.sub(r"\n\s*\n+", "\n\n", text).strip()


def pieces(folder):
    found = []
    for package, pattern in PAGES.items():
        for page in sorted(unpack(package, folder).glob(pattern)):
            text = text_of(page)
            # What is left of a page after its last whole piece is dropped if it is short.
            found += [text[i : i + PIECE] for i in range(0, len(text) - PIECE // 2, PIECE)]
    random.Random(1).shuffle(found)
    return found


def begin_tokens(model, tokenizer):
    """What the model's tokenizer puts before a text."""
    if model.suffix != ".gguf":
        with_them = tokenizer.encode("a").ids
        plain = tokenizer.encode("a", add_special_tokens=False).ids
        return with_them[: with_them.index(plain[0])]
    import gguf  # only for these files

    fields = gguf.GGUFReader(model).fields
    add = fields.get("tokenizer.ggml.add_bos_token")
    if add is None or not add.contents():
        return []
    return [int(fields["tokenizer.ggml.bos_token_id"].contents())]


def windows(ids, begin, context):
    """[n] as it is, or [windows, context] with `begin` before the tokens of each."""
    ids = np.asarray(ids, np.int32)
    if not begin:
        return ids
    rows = ids[: len(ids) // (context - len(begin)) * (context - len(begin))]
    rows = rows.reshape(-1, context - len(begin))
    return np.hstack([np.tile(np.asarray(begin, np.int32), (len(rows), 1)), rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--calibration", type=int, default=49152, help="tokens")
    parser.add_argument("--test", type=int, default=20480, help="tokens")
    parser.add_argument("--context", type=int, default=512, help="with a begin token")
    options = parser.parse_args()

    options.folder.mkdir(parents=True, exist_ok=True)
    tokenizer = open_tokenizer(options.model)
    begin = begin_tokens(options.model, tokenizer)
    wanted = {"calibration": options.calibration, "test": options.test}
    ids = {name: [] for name in wanted}
    for i, piece in enumerate(pieces(options.folder)):
        name = "test" if i % TEST_PART == 0 else "calibration"
        if len(ids[name]) < wanted[name]:
            ids[name] += tokenizer.encode(piece, add_special_tokens=False).ids
        elif all(len(ids[other]) >= wanted[other] for other in wanted):
            break
    for name, count in wanted.items():
        if len(ids[name]) < count:
            print(f"only {len(ids[name])} tokens for {name}, {count} wanted", file=sys.stderr)
            return 1
        text = windows(ids[name][:count], begin, options.context)
        np.save(options.folder / f"{name}.npy", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
