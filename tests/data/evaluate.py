#!/usr/bin/env python3
"""Evaluates the bundled model with NumPy alone and checks what is stated about it.

Shares no code with the training: its own reader, its own forward pass in float64. Prints the loss
on heldout.txt and the unigram entropy of that text, and exits 1 if they or the calibration rows
differ from figures.json and calibration.safetensors by more than the tolerances below, or if the
model has not learned more than the frequencies of bytes.
"""

import argparse
import collections
import json
import math
import pathlib
import sys

import numpy as np

# figures.json was computed by PyTorch in float32. Each row is the end of a few hundred roundings of
# 6e-8, and in the loss, a mean over thousands of bytes, such errors cancel.
LOSS_TOLERANCE = 1e-6
ROW_TOLERANCE = 5e-6
# A model that has learned words, not only letters, is this far below the unigram entropy.
LEARNED = 0.6


def read_safetensors(path):
    """Returns {name: float64 array} of a file of F32 and BF16 tensors."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        raw = data[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]]
        if entry["dtype"] == "BF16":
            # A bfloat16 is the upper half of a float32.
            flat = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        elif entry["dtype"] == "F32":
            flat = np.frombuffer(raw, "<f4")
        else:
            raise ValueError(f"{path}: {name} has dtype {entry['dtype']}, not F32 or BF16")
        tensors[name] = flat.astype(np.float64).reshape(entry["shape"])
    return tensors


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def attention(x, weights, prefix, config):
    """Causal attention of one window x [t, d] with rotary positions 0…t-1."""
    t, d = x.shape
    heads = config["num_attention_heads"]
    half = d // heads // 2
    angles = np.arange(t)[:, None] * config["rope_theta"] ** (-np.arange(half) / half)
    turn = np.exp(1j * angles)

    def project(name):
        y = x @ weights[f"{prefix}.{name}_proj.weight"].T
        return y.reshape(t, heads, 2 * half).transpose(1, 0, 2)

    def rotate(y):
        # Element i and element i + half are the two parts of one complex number.
        z = (y[..., :half] + 1j * y[..., half:]) * turn
        return np.concatenate((z.real, z.imag), axis=-1)

    scores = rotate(project("q")) @ rotate(project("k")).transpose(0, 2, 1) / math.sqrt(2 * half)
    scores = np.where(np.tri(t, dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    y = (shares @ project("v")).transpose(1, 0, 2).reshape(t, d)
    return y @ weights[f"{prefix}.o_proj.weight"].T


def forward(tokens, weights, config):
    """Returns the logits [t, vocab] of one window and its feed-forward inputs, [t, d] per layer."""
    eps = config["rms_norm_eps"]
    embedding = weights["model.embed_tokens.weight"]
    x = embedding[tokens]
    inputs = []
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        normed = rms_norm(x, weights[f"{layer}.input_layernorm.weight"], eps)
        x = x + attention(normed, weights, f"{layer}.self_attn", config)
        normed = rms_norm(x, weights[f"{layer}.post_attention_layernorm.weight"], eps)
        inputs.append(normed)
        gate, up, down = (weights[f"{layer}.mlp.{m}_proj.weight"] for m in ("gate", "up", "down"))
        g = normed @ gate.T
        x = x + (g / (1 + np.exp(-g)) * (normed @ up.T)) @ down.T
    return rms_norm(x, weights["model.norm.weight"], eps) @ embedding.T, inputs


def evaluate(text, weights, config):
    """Returns the loss in bits per byte and the feed-forward inputs {name: [len(text), d]}.

    The text is cut into windows of the model's context that share no state. Every byte but the
    first is predicted once; the last byte of the text is only predicted, so it has no input row.
    """
    context = config["max_position_embeddings"]
    tokens = np.frombuffer(text, np.uint8)
    nats = 0.0
    windows = []
    for start in range(0, len(tokens) - 1, context):
        window = tokens[start : start + context + 1]
        logits, inputs = forward(window[:-1], weights, config)
        top = logits.max(axis=-1)
        log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
        nats += np.sum(log_sum - logits[np.arange(len(logits)), window[1:]])
        windows.append(inputs)
    rows = {
        f"model.layers.{i}.mlp.input": np.concatenate(parts)
        for i, parts in enumerate(zip(*windows))
    }
    return nats / math.log(2) / (len(tokens) - 1), rows


def unigram_entropy(text):
    """The loss, in bits per byte, of the best model that ignores the context of a byte."""
    shares = [n / len(text) for n in collections.Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)


def check_calibration(stored, computed, problems):
    """Compares the stored rows with the computed ones: relative L2 per layer."""
    if stored.keys() != computed.keys():
        problems.append(f"calibration has {sorted(stored)}, the model {sorted(computed)}")
        return
    for name, rows in stored.items():
        expected = computed[name][: len(rows)]
        error = np.linalg.norm(rows - expected) / np.linalg.norm(expected)
        print(f"{name}: {rows.shape[0]} rows of {rows.shape[1]}, relative L2 {error:.1e}")
        if not error <= ROW_TOLERANCE:
            problems.append(f"{name} is off by {error:.1e}, more than {ROW_TOLERANCE}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    default = pathlib.Path(__file__).resolve().parent / "tiny-llama"
    parser.add_argument("folder", type=pathlib.Path, nargs="?", default=default)
    folder = parser.parse_args().folder

    config = json.loads((folder / "config.json").read_text())
    figures = json.loads((folder / "figures.json").read_text())
    text = (folder / "heldout.txt").read_bytes()
    weights = read_safetensors(folder / "model.safetensors")
    loss, rows = evaluate(text, weights, config)
    entropy = unigram_entropy(text)
    print(f"loss on {len(text)} bytes: {loss:.6f} bits per byte (unigram entropy {entropy:.6f})")

    problems = []
    for key, value, tolerance in (
        ("heldout_bits_per_byte", loss, LOSS_TOLERANCE),
        ("heldout_unigram_bits_per_byte", entropy, LOSS_TOLERANCE),
        ("heldout_bytes", len(text), 0),
        ("parameters", sum(w.size for w in weights.values()), 0),
    ):
        if not abs(value - figures[key]) <= tolerance:
            problems.append(f"{key} is {value}, figures.json says {figures[key]}")
    if not loss < LEARNED * entropy:
        problems.append(f"loss {loss:.4f} is not well under the unigram entropy {entropy:.4f}")
    check_calibration(read_safetensors(folder / "calibration.safetensors"), rows, problems)
    for problem in problems:
        print(f"{folder}: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
