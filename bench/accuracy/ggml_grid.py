#!/usr/bin/env python3
"""A copy of a model whose feed-forward matrices are rounded by ggml's own code.

    ggml_grid.py MODEL OUT --type iq4_nl [--moments CAPTURED.safetensors] [--encoded]

Calls ggml_quantize_chunk of ggml's library, which is what llama-quantize calls for a tensor. With
--moments, from `sluice capture`, each column's mean of x² weights its errors: that is the importance
matrix which llama-imatrix makes (it sums the squares of the same inputs, of the FP32 model). The
matrices are written dequantized, as F32, so that any tool reads them; with --encoded (GGUF alone) in
ggml's format. MODEL is a GGUF file or a folder with model.safetensors. Needs the packages `gguf`, `numpy`, `safetensors`; --library names libggml-base.so, where
the system does not find it.
"""

import argparse
import ctypes

import gguf
import numpy as np
from model_files import open_model
from safetensors.numpy import load_file

FLOATS = ctypes.POINTER(ctypes.c_float)


class Ggml:
    def __init__(self, path):
        library = ctypes.CDLL(path)
        self.quantize_chunk = library.ggml_quantize_chunk
        self.quantize_chunk.restype = ctypes.c_size_t
        self.quantize_chunk.argtypes = [
            ctypes.c_int, FLOATS, ctypes.c_void_p,
            ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, FLOATS,
        ]  # fmt: skip

    def quantize(self, weights, kind, importance):
        """uint8 [rows, bytes per row]"""
        rows, columns = weights.shape
        weights = np.ascontiguousarray(weights, np.float32)
        block, size = gguf.GGML_QUANT_SIZES[kind]
        out = np.zeros((rows, columns // block * size), np.uint8)
        pointer = None
        if importance is not None:
            importance = np.ascontiguousarray(importance, np.float32)
            if importance.shape != (columns,):
                raise ValueError(f"{columns} columns, importance for {importance.shape}")
            pointer = importance.ctypes.data_as(FLOATS)
        written = self.quantize_chunk(
            int(kind), weights.ctypes.data_as(FLOATS), out.ctypes.data, 0, rows, columns, pointer
        )
        if written != out.nbytes:
            raise RuntimeError(f"ggml wrote {written} bytes, {out.nbytes} expected")
        return out


def importance_of(moments, layer, name):
    if moments is None:
        return None
    what = "hidden" if "down" in name else "input"
    return moments[f"model.layers.{layer}.mlp.{what}.second_moment"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--type", required=True, help="q4_0, iq4_nl, q5_0, q8_0, ...")
    parser.add_argument("--moments")
    parser.add_argument("--encoded", action="store_true")
    parser.add_argument("--library", default="libggml-base.so")
    arguments = parser.parse_args()

    kind = gguf.GGMLQuantizationType[arguments.type.upper()]
    ggml = Ggml(arguments.library)
    moments = load_file(arguments.moments) if arguments.moments else None
    model = open_model(arguments.model)
    encoded = {}
    for layer in range(model.layers):
        for name in model.matrix_names(layer):
            weights = model.tensors[name]
            data = ggml.quantize(weights, kind, importance_of(moments, layer, name))
            if arguments.encoded:
                encoded[name] = data, kind
            else:
                model.tensors[name] = gguf.quants.dequantize(data, kind).reshape(weights.shape)
    if encoded:
        model.write(arguments.out, encoded)
    else:
        model.write(arguments.out)


if __name__ == "__main__":
    main()
