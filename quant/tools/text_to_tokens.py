#!/usr/bin/env python3
"""Turns text into a model's token ids, for `sluice eval`, `sluice capture` and `sluice quantize`.

    text_to_tokens.py MODEL TEXT… -o TOKENS.npy [--limit N] [--skip N]

MODEL: a folder with tokenizer.json, such a file itself, or a .gguf file whose metadata has the
tokenizer. The texts are joined as they are; nothing is put before or between them, and words such
as <s> in a text are text. Writes int32 [n], which appears when it is complete.

Needs NumPy and Hugging Face `tokenizers`; for GGUF also `gguf`:

    python3 -m venv venv && venv/bin/pip install numpy tokenizers gguf
"""

import argparse
import os
import pathlib
import sys

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

# How text is cut before pairs are merged, by the name that GGUF gives it. Expressions of the models'
# own tokenizer.json; GPT-2's is built into ByteLevel.
GPT2 = None
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS = {
    "gpt-2": GPT2,
    "smollm": GPT2,  # and every digit by itself
    "llama-bpe": LLAMA3,
    "qwen2": LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"),
}
DIGITS_APART = {"smollm"}

# GGUF's token types.
USER_DEFINED = 4


def from_byte_pairs(fields):
    """A tokenizer of GPT-2's kind: tokens and the merges between them, over bytes."""
    name = fields.get("tokenizer.ggml.pre", "gpt-2")
    if name not in SPLITS:
        raise ValueError(f"tokenizer.ggml.pre is {name!r}; known: {', '.join(SPLITS)}")
    vocabulary = {token: i for i, token in enumerate(fields["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    whole = name == "llama-bpe"  # a word that is a token is not taken apart
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=whole))
    steps = []
    if name in DIGITS_APART:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if SPLITS[name]:
        steps.append(pre_tokenizers.Split(Regex(SPLITS[name]), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not SPLITS[name]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def from_sentence_pieces(fields):
    """A tokenizer of SentencePiece's byte pair kind: pieces with scores, the best pair first."""
    pieces = fields["tokenizer.ggml.tokens"]
    scores = fields["tokenizer.ggml.scores"]
    types = fields["tokenizer.ggml.token_type"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    order = sorted(range(len(pieces)), key=lambda i: (-scores[i], i))
    merges = [
        (piece[:cut], piece[cut:])
        for piece in (pieces[i] for i in order)
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, fuse_unk=True))
    steps = [normalizers.Replace(" ", "▁")]
    if fields.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend("▁"))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    # Runs of line feeds or of spaces, for instance: whole wherever they stand.
    tokenizer.add_tokens(
        [
            AddedToken(pieces[i].replace("▁", " "), normalized=False)
            for i in range(len(pieces))
            if types[i] == USER_DEFINED and pieces[i].replace("▁", " ") == pieces[i]
        ]
    )
    return tokenizer


def open_tokenizer(model):
    if model.suffix == ".gguf":
        import gguf  # only for these files

        wanted = ("tokenizer.ggml.",)
        reader = gguf.GGUFReader(model)
        fields = {k: f.contents() for k, f in reader.fields.items() if k.startswith(wanted)}
        kinds = {"gpt2": from_byte_pairs, "llama": from_sentence_pieces}
        kind = fields.get("tokenizer.ggml.model")
        if kind not in kinds:
            raise ValueError(f"tokenizer.ggml.model is {kind!r}; known: {', '.join(kinds)}")
        return kinds[kind](fields)
    path = model / "tokenizer.json" if model.is_dir() else model
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path, nargs="+")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first N tokens")
    parser.add_argument("--limit", type=int, help="keep at most N tokens")
    options = parser.parse_args()

    text = "".join(p.read_bytes().decode("utf-8", errors="replace") for p in options.texts)
    try:
        tokenizer = open_tokenizer(options.model)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
    except (ValueError, KeyError, OSError) as error:
        print(f"{options.model}: {error}", file=sys.stderr)
        return 1
    end = None if options.limit is None else options.skip + options.limit
    ids = np.asarray(ids[options.skip : end], np.int32)
    partial = options.output.with_name(options.output.name + ".partial")
    with open(partial, "wb") as file:
        np.save(file, ids)
    os.replace(partial, options.output)
    print(f"{options.output}: {len(ids)} tokens of {len(text)} characters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
