"""GGUF read with NumPy, sharing no code with ours: the header, and the block formats that the real
models' feed-forward matrices come in."""

import struct

import numpy as np

BLOCK = {0: (1, 4), 1: (1, 2), 3: (32, 20), 6: (32, 22), 8: (32, 34), 12: (256, 144), 14: (256, 210)}
NAMES = {0: "F32", 1: "F16", 3: "Q4_1", 6: "Q5_0", 8: "Q8_0", 12: "Q4_K", 14: "Q6_K"}
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, code):
        size = struct.calcsize("<" + code)
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += size
        return value

    def text(self):
        size = self.take("Q")
        self.at += size
        return bytes(self.data[self.at - size : self.at]).decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            element, count = self.take("I"), self.take("Q")
            return [self.value(element) for _ in range(count)]
        return self.take(SCALARS[kind])


def read(path):
    """Metadata, and by name a pair of a tensor's type and a function that decodes it."""
    data = np.memmap(path, np.uint8, mode="r")
    reader = Reader(data)
    assert bytes(data[:4]) == b"GGUF"
    reader.at = 8
    tensors, entries = reader.take("Q"), reader.take("Q")
    metadata = {}
    for _ in range(entries):
        key = reader.text()
        metadata[key] = reader.value(reader.take("I"))
    infos = []
    for _ in range(tensors):
        name = reader.text()
        shape = [reader.take("Q") for _ in range(reader.take("I"))]
        infos.append((name, shape[::-1], reader.take("I"), reader.take("Q")))
    alignment = metadata.get("general.alignment", 32)
    start = -(-reader.at // alignment) * alignment

    def decoder(shape, kind, offset):
        def decode():
            values, size = BLOCK[kind]
            blocks = int(np.prod(shape)) // values
            raw = np.asarray(data[start + offset :][: blocks * size]).reshape(blocks, size)
            return DECODE[kind](raw).reshape(shape).astype(np.float32)

        return decode

    found = {}
    for name, shape, kind, offset in infos:
        if kind in BLOCK:
            found[name] = (NAMES[kind], decoder(shape, kind, offset))
    return metadata, found


def f16(raw, at):
    return raw[:, at : at + 2].copy().view("<f2").astype(np.float32)


def nibbles(raw):
    """Low nibbles first, then high ones."""
    return np.concatenate([raw & 15, raw >> 4], axis=1)


def q4_1(raw):
    return f16(raw, 0) * nibbles(raw[:, 4:]) + f16(raw, 2)


def q5_0(raw):
    high = np.unpackbits(raw[:, 2:6], axis=1, bitorder="little")
    return f16(raw, 0) * ((nibbles(raw[:, 6:]) | high << 4).astype(np.int32) - 16)


def q8_0(raw):
    return f16(raw, 0) * raw[:, 2:].copy().view(np.int8)


def q4_k(raw):
    d, dmin = f16(raw, 0), f16(raw, 2)
    s = raw[:, 4:16]
    scale = np.concatenate([s[:, :4] & 63, s[:, 8:] & 15 | s[:, :4] >> 6 << 4], axis=1)
    least = np.concatenate([s[:, 4:8] & 63, s[:, 8:] >> 4 | s[:, 4:8] >> 6 << 4], axis=1)
    chunks = raw[:, 16:].reshape(-1, 4, 32)
    q = np.stack([chunks & 15, chunks >> 4], axis=2).reshape(-1, 8, 32)
    return (d * scale)[:, :, None] * q - (dmin * least)[:, :, None]


def q6_k(raw):
    low = raw[:, :128].reshape(-1, 2, 2, 32)  # half, part, column
    high = raw[:, 128:192].reshape(-1, 2, 1, 32)
    scales = raw[:, 192:208].copy().view(np.int8).astype(np.float32)
    low = np.concatenate([low & 15, low >> 4], axis=2)  # half, quarter, column
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    q = (low | (high >> shifts & 3) << 4).astype(np.int32) - 32
    scale = f16(raw, 208) * scales
    return q.reshape(-1, 16, 16) * scale[:, :, None]


DECODE = {
    0: lambda raw: raw.copy().view("<f4"),
    1: lambda raw: raw.copy().view("<f2"),
    3: q4_1,
    6: q5_0,
    8: q8_0,
    12: q4_k,
    14: q6_k,
}
