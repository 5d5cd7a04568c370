#!/usr/bin/env python3
"""Trains the bundled byte-level Llama and writes it, with its data, as Hugging Face files.

Needs python3-torch, python3-safetensors and bible-kjv (see README.md); minutes on one core.
"""

import argparse
import math
import os
import pathlib
import time

# One thread, in the BLAS too (it reads this when loaded): then the order of summation, and so the
# result, does not depend on the machine's cores.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import torch
from torch.nn import functional as F

import corpus
import export
from llama import Config, Llama

BATCH = 8
PEAK_RATE = 4e-3
WARM_UP = 100
WEIGHT_DECAY = 0.1
CLIP = 1.0


def rate(step, steps):
    """Linear warm-up, then a cosine to zero."""
    if step < WARM_UP:
        return PEAK_RATE * (step + 1) / WARM_UP
    return PEAK_RATE * 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / max(1, steps - WARM_UP)))


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    gains = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": gains, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), eps=1e-8)


def train(model, config, text, steps, generator):
    """Runs `steps` steps on random windows of `text`; prints the loss as it goes."""
    tokens = torch.tensor(list(text))
    optimizer = make_optimizer(model)
    span = torch.arange(config.max_position_embeddings + 1)
    begun = time.monotonic()
    running = 0.0
    for step in range(steps):
        starts = torch.randint(len(tokens) - len(span), (BATCH,), generator=generator)
        windows = tokens[starts[:, None] + span]
        logits = model(windows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        optimizer.step()
        running += loss.item() / math.log(2)
        if (step + 1) % 100 == 0:
            seconds = time.monotonic() - begun
            mean = running / 100
            print(f"step {step + 1}/{steps}  {mean:.3f} bits/byte  {seconds:.0f} s", flush=True)
            running = 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    default_out = pathlib.Path(__file__).resolve().parent.parent / "tiny-llama"
    parser.add_argument("--out", type=pathlib.Path, default=default_out, help="folder to write")
    parser.add_argument("--steps", type=int, default=3600)
    parser.add_argument("--seed", type=int, default=1611)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)

    training, validation, sample = corpus.split(corpus.read_chapters())
    config = Config()
    context = config.max_position_embeddings
    model = Llama(config)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count} parameters; {len(training)} bytes to train on, {len(validation)} held out")
    train(model, config, training, args.steps, torch.Generator().manual_seed(args.seed))

    model.eval()
    unrounded = export.held_out_loss(model, validation, context)
    export.round_to_bf16(model)
    figures = {
        "parameters": count,
        "training_bytes": len(training),
        "training_tokens": args.steps * BATCH * context,
        "steps": args.steps,
        "seed": args.seed,
        "validation_bytes": len(validation),
        "validation_bits_per_byte": export.held_out_loss(model, validation, context),
        "heldout_bytes": len(sample),
        "heldout_bits_per_byte": export.held_out_loss(model, sample, context),
        "heldout_unigram_bits_per_byte": export.unigram_entropy(sample),
        "torch": torch.__version__,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "heldout.txt").write_bytes(sample)
    export.write_config(config, args.out / "config.json")
    export.write_model(model, args.out / "model.safetensors")
    export.write_calibration(model, sample, context, args.out / "calibration.safetensors")
    export.write_json(figures, args.out / "figures.json")
    print(f"before rounding to bf16: {unrounded:.4f} bits/byte on the books held out")
    print(figures)


if __name__ == "__main__":
    main()
