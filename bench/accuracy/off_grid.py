#!/usr/bin/env python3
"""A copy of a GGUF model that computes the same function with weights off their old grid.

    off_grid.py MODEL.gguf OUT.gguf [--seed 1]

The small models that can be had as packages were quantized once already, so their weights lie on a
grid, and a quantizer of the same kind gives them back without any error. This folds each block's
norm into gate and up, W·diag(n) with the norm then 1, and rescales the rows of up against the
columns of down by factors between 2^-½ and 2^½: exact in real numbers, one rounding to f32 for each
weight. Everything is written as F32. Needs the packages `gguf` and `numpy`.
"""

import argparse

import gguf
import numpy as np

# Metadata that the writer makes itself.
OWN_KEYS = {"general.architecture", "general.file_type", "general.quantization_version"}


def copy_metadata(reader, writer):
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in OWN_KEYS:
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=sub)


def read_f32(tensor):
    shape = tuple(int(n) for n in reversed(tensor.shape))
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64).reshape(shape)


def fold(tensors, layer, random):
    """Off the grid, in place. (Gemma's files hold norms with the 1 that its code adds.)"""
    prefix = f"blk.{layer}."
    gate, up, down, norm = (prefix + n + ".weight"
                            for n in ("ffn_gate", "ffn_up", "ffn_down", "ffn_norm"))
    scale = tensors[norm]
    for name in (gate, up):
        tensors[name] = tensors[name] * scale[None, :]
    tensors[norm] = np.ones_like(scale)
    factors = 2.0 ** random.uniform(-0.5, 0.5, tensors[up].shape[0])
    tensors[up] = tensors[up] * factors[:, None]
    tensors[down] = tensors[down] / factors[None, :]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    reader = gguf.GGUFReader(arguments.model)
    architecture = reader.fields["general.architecture"].contents()
    tensors = {t.name: read_f32(t) for t in reader.tensors}
    random = np.random.default_rng(arguments.seed)
    for layer in range(int(reader.fields[architecture + ".block_count"].contents())):
        fold(tensors, layer, random)

    writer = gguf.GGUFWriter(arguments.out, architecture)
    copy_metadata(reader, writer)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for name, values in tensors.items():
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
