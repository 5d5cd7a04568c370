#!/usr/bin/env python3
"""A copy of a GGUF model with a packed file's integers and scales as Q8_0 blocks.

    sluice unpack PACKED.safetensors -o INTEGERS.safetensors --integers
    packed_to_gguf.py MODEL.gguf INTEGERS.safetensors OUT.gguf

llama.cpp's tools then measure the same weights, with its own rounding of activations, beside its own
formats. Exact where every scale, a bf16, is also an fp16: at least 2^-17 in size. The number of
scales that are not is an error; with --inexact a note. Needs the packages `gguf`, `numpy` and
`safetensors`.
"""

import argparse
import sys

import gguf
import numpy as np
from model_files import GgufModel
from safetensors.numpy import load_file

BLOCK = 32


def q8_0(integers, scales):
    """uint8 [rows, bytes], and how many scales an fp16 does not hold."""
    rows, columns = integers.shape
    if columns % BLOCK:
        raise ValueError(f"{columns} columns are no whole blocks of {BLOCK}")
    scales = np.repeat(scales, columns // BLOCK // scales.shape[1], axis=1)
    halves = scales.astype(np.float16)
    blocks = np.zeros((rows, columns // BLOCK, 2 + BLOCK), np.uint8)
    blocks[:, :, :2] = halves[:, :, None].view(np.uint8)
    blocks[:, :, 2:] = integers.reshape(rows, -1, BLOCK).view(np.uint8)
    return blocks.reshape(rows, -1), int((halves.astype(np.float32) != scales).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("integers")
    parser.add_argument("out")
    parser.add_argument("--inexact", action="store_true", help="do not refuse scales that change")
    arguments = parser.parse_args()

    model = GgufModel(arguments.model)
    stored = load_file(arguments.integers)
    encoded = {}
    changed = 0
    for layer in range(model.layers):
        for name in model.matrix_names(layer):
            if name + ".scale" not in stored:
                continue  # not quantized, or not in the packed file
            data, inexact = q8_0(stored[name], stored[name + ".scale"])
            encoded[name] = data, gguf.GGMLQuantizationType.Q8_0
            changed += inexact
    print(f"{len(encoded)} matrices; {changed} scales are not fp16 numbers", file=sys.stderr)
    if changed and not arguments.inexact:
        return 1
    model.write(arguments.out, encoded)
    return 0


if __name__ == "__main__":
    sys.exit(main())
