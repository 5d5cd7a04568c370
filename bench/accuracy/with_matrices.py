#!/usr/bin/env python3
"""A copy of a model with the matrices of a packed file in place of its own.

    sluice unpack PACKED.safetensors -o VALUES.safetensors
    with_matrices.py MODEL VALUES.safetensors OUT

`sluice quantize OUT --weights f32` then gives a file that `sluice eval` runs with those matrices and
activations in float. MODEL is a GGUF file or a folder with model.safetensors, OUT is the same kind.
Needs the packages `gguf`, `numpy`, `safetensors`.
"""

import argparse
import sys

from model_files import open_model
from safetensors.numpy import load_file


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("values")
    parser.add_argument("out")
    arguments = parser.parse_args()

    model = open_model(arguments.model)
    values = load_file(arguments.values)
    for name, matrix in values.items():
        if name not in model.tensors or model.tensors[name].shape != matrix.shape:
            print(f"{name} {matrix.shape}: no such tensor in {arguments.model}", file=sys.stderr)
            return 1
    model.tensors.update(values)
    model.write(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
