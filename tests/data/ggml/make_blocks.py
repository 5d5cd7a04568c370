#!/usr/bin/env python3
"""Writes blocks.safetensors: random blocks of every ggml type that sluice reads, and their values.

The values are worked out here one element at a time, from the prose in ggml's documentation and
not from any C++: `TYPE.blocks` (U8) is what a file holds, `TYPE.values` (F32) what it means. Each
step is one float32 operation, so the C++ must agree bit for bit. With --check nothing is written;
the committed file is compared instead, and also llama.cpp's own Python package `gguf`, if it is
installed, must give the same values.
"""

import argparse
import pathlib
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

SEED = 20240229
PATH = pathlib.Path(__file__).with_name("blocks.safetensors")
F32 = np.float32


def f16(block, at):
    return F32(block[at : at + 2].view(np.float16)[0])


def bit(block, at, i):
    return (int(block[at + i // 8]) >> (i % 8)) & 1


def half_order_nibble(block, at, i):
    """Element i of 32: the first 16 are low nibbles, the last 16 the high nibbles of the same."""
    return int(block[at + i]) % 16 if i < 16 else int(block[at + i - 16]) // 16


def q4_0(b, i):
    return F32(half_order_nibble(b, 2, i) - 8) * f16(b, 0)


def q4_1(b, i):
    return F32(F32(half_order_nibble(b, 4, i)) * f16(b, 0)) + f16(b, 2)


def q5_0(b, i):
    return F32(half_order_nibble(b, 6, i) + 16 * bit(b, 2, i) - 16) * f16(b, 0)


def q5_1(b, i):
    return F32(F32(half_order_nibble(b, 8, i) + 16 * bit(b, 4, i)) * f16(b, 0)) + f16(b, 2)


def q8_0(b, i):
    return F32(b[2 + i : 3 + i].view(np.int8)[0]) * f16(b, 0)


def six_bit_pair(packed, s):
    """Scale and minimum of sub-block s, six bits each, packed in 12 bytes."""
    low4 = lambda byte: int(byte) & 15
    if s < 4:
        return int(packed[s]) & 63, int(packed[4 + s]) & 63
    top_scale, top_minimum = int(packed[s - 4]) >> 6, int(packed[s]) >> 6
    return low4(packed[4 + s]) + 16 * top_scale, (int(packed[4 + s]) >> 4) + 16 * top_minimum


def k_value(b, integer, s):
    scale, minimum = six_bit_pair(b[4:16], s)
    return F32(F32(f16(b, 0) * F32(scale)) * F32(integer)) - F32(f16(b, 2) * F32(minimum))


def pair_nibble(b, at, i):
    """Element i of 256: 64 elements share 32 bytes, the first half of them the low nibbles."""
    byte = int(b[at + 32 * (i // 64) + i % 32])
    return byte % 16 if i % 64 < 32 else byte // 16


def q4_k(b, i):
    return k_value(b, pair_nibble(b, 16, i), i // 32)


def q5_k(b, i):
    fifth = (int(b[16 + i % 32]) >> (i // 32)) & 1
    return k_value(b, pair_nibble(b, 48, i) + 16 * fifth, i // 32)


def q6_k(b, i):
    half, within = divmod(i, 128)
    quarter, j = divmod(within, 32)
    byte = int(b[64 * half + 32 * (quarter % 2) + j])
    low = byte % 16 if quarter < 2 else byte // 16
    high = (int(b[128 + 32 * half + j]) >> (2 * quarter)) & 3
    scale = F32(b[192 + i // 16 : 193 + i // 16].view(np.int8)[0])
    return F32(f16(b, 208) * scale) * F32(low + 16 * high - 32)


# name: (bytes of a block, values of a block, where its f16 numbers are, value i of a block)
TYPES = {
    "Q4_0": (18, 32, (0,), q4_0),
    "Q4_1": (20, 32, (0, 2), q4_1),
    "Q5_0": (22, 32, (0,), q5_0),
    "Q5_1": (24, 32, (0, 2), q5_1),
    "Q8_0": (34, 32, (0,), q8_0),
    "Q4_K": (144, 256, (0, 2), q4_k),
    "Q5_K": (176, 256, (0, 2), q5_k),
    "Q6_K": (210, 256, (208,), q6_k),
}


def random_blocks(rng, size, halves, count):
    """Bytes at random, but finite f16 scales of either sign, a subnormal among them."""
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in halves:
        scales = rng.normal(0, 0.02, count).astype(np.float16)
        scales[-1] = np.float16(3e-7)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(count, 2)
    return blocks


def make():
    rng = np.random.default_rng(SEED)
    tensors = {}
    for name, (size, values, halves, value) in TYPES.items():
        blocks = random_blocks(rng, size, halves, 2 if values == 256 else 4)
        decoded = [value(b, i) for b in blocks for i in range(values)]
        tensors[f"{name}.blocks"] = blocks
        tensors[f"{name}.values"] = np.array(decoded, F32).reshape(len(blocks), values)
    return tensors


def same_bits(a, b):
    return np.array_equal(a.view(np.uint8), b.view(np.uint8))


def check(tensors):
    committed = load_file(PATH)
    ok = committed.keys() == tensors.keys()
    ok = ok and all(same_bits(committed[k], tensors[k]) for k in tensors)
    print(f"{PATH.name}: {'as made here' if ok else 'differs from what is made here'}")
    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        print("gguf: not installed, not compared")
        return ok
    for name in TYPES:
        theirs = dequantize(tensors[f"{name}.blocks"], GGMLQuantizationType[name])
        agrees = same_bits(theirs.astype(F32), tensors[f"{name}.values"])
        print(f"gguf {name}: {'equal' if agrees else 'DIFFERENT'}")
        ok = ok and agrees
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    if parser.parse_args().check:
        return 0 if check(make()) else 1
    save_file(make(), PATH)
    return 0


if __name__ == "__main__":
    sys.exit(main())
