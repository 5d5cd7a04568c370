#!/usr/bin/env python3
"""A copy of a GGUF model that computes the same function with weights off their old grid.

    off_grid.py MODEL.gguf OUT.gguf [--norms fold|rescale] [--seed 1]

The small models that can be had as packages were quantized once already, so their weights lie on a
grid, and a quantizer of the same kind gives them back without any error. This folds each block's
norm into gate and up, W·diag(n) with the norm then 1, and rescales the rows of up against the
columns of down by factors between 2^-½ and 2^½: exact in real numbers, one rounding to f32 for each
weight. Everything is written as F32. Needs the packages `gguf` and `numpy`.

--norms rescale is for models whose norm weights hold back channels that are huge before them, as
Gemma's do: without them one channel has nearly all of the norm, and blocks of int8 activations have
nothing left for its neighbours. It divides each norm weight by another such factor and multiplies
the columns of gate and up by it, so that blocks get inputs like those of the model as it is.
"""

import argparse

import numpy as np
from model_files import GgufModel


def factors(random, count):
    return 2.0 ** random.uniform(-0.5, 0.5, count)


def leave_grid(model, layer, norms, random):
    """In place. (Gemma's files hold norms with the 1 that its code adds.)"""
    tensors = model.tensors
    gate, up, down = model.matrix_names(layer)
    norm = f"blk.{layer}.ffn_norm.weight"
    for name in (gate, up, down, norm):
        tensors[name] = tensors[name].astype(np.float64)
    weights = tensors[norm]
    scale = weights if norms == "fold" else factors(random, len(weights))
    for name in (gate, up):
        tensors[name] = tensors[name] * scale[None, :]
    tensors[norm] = np.ones_like(weights) if norms == "fold" else weights / scale
    rows = factors(random, tensors[up].shape[0])
    tensors[up] = tensors[up] * rows[:, None]
    tensors[down] = tensors[down] / rows[None, :]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--norms", choices=["fold", "rescale"], default="fold")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    model = GgufModel(arguments.model)
    random = np.random.default_rng(arguments.seed)
    for layer in range(model.layers):
        leave_grid(model, layer, arguments.norms, random)
    model.write(arguments.out)


if __name__ == "__main__":
    main()
