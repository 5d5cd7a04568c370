#!/usr/bin/env python3
"""Makes small random-weight models of every family that sluice's decoder runs, with the logits that
Hugging Face transformers computes for them.

    make_fixtures.py [FOLDER]

Writes FOLDER/NAME.safetensors (default: beside this script) for each model of MODELS: its weights,
`tokens` (I64 [windows, length]) and `logits` (F32 [windows, length, vocabulary]) as tensors, and its
config.json as the metadata `config`. One file a model, so that a fixture cannot come apart. Needs
torch and transformers; the test that reads the files does not. The sizes are awkward on purpose:
no two of them are equal, so that no transposition or swap goes unnoticed, and sequences are longer
than the sliding windows.
"""

import argparse
import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

SEED = 1611
VOCABULARY = 61
WINDOWS, LENGTH = 2, 23

# What every family shares; grouped heads whose width is not d_model / heads.
COMMON = dict(
    vocab_size=VOCABULARY,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    attn_implementation="eager",
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=10000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=4.0)

MODELS = {
    "llama": ("Llama", dict(tie_word_embeddings=False)),
    "llama_tied_biased": (
        "Llama",
        dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    ),
    "llama3_scaled": ("Llama", dict(rope_parameters=LLAMA3)),
    "llama_linear": ("Llama", dict(rope_parameters=LINEAR)),
    "mistral_sliding": ("Mistral", dict(sliding_window=7)),
    "qwen2": ("Qwen2", dict()),
    "qwen2_sliding": (
        "Qwen2",
        dict(use_sliding_window=True, sliding_window=5, max_window_layers=1),
    ),
    "qwen3": ("Qwen3", dict(tie_word_embeddings=True)),
    "gemma": ("Gemma", dict()),
    "gemma2": ("Gemma2", dict(sliding_window=6, query_pre_attn_scalar=20)),
    "gemma3": (
        "Gemma3Text",
        dict(
            num_hidden_layers=3,
            sliding_window=6,
            query_pre_attn_scalar=20,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters=dict(
                sliding_attention=dict(rope_type="default", rope_theta=100.0),
                full_attention=dict(rope_type="linear", rope_theta=10000.0, factor=2.0),
            ),
        ),
    ),
}


def randomize(model, generator):
    """Gives every parameter values that matter: biases and norms start as zeros and ones."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                # Scores, logits and hidden values of a few units, so that caps and softmax bend.
                parameter.copy_(noise * (1.5 / parameter.shape[-1] ** 0.5))
            elif "norm" in name:
                parameter.add_(0.3 * noise)
            else:
                parameter.copy_(0.5 * noise)


def make(name, family, changes, generator):
    """Returns the tensors of a fixture and its configuration."""
    settings = {**COMMON, **changes}
    if family == "Qwen2":
        # This family's heads are as wide as d_model / heads.
        settings.pop("head_dim")
    config = getattr(transformers, f"{family}Config")(**settings)
    suffix = "ForCausalLM"
    model = getattr(transformers, family.removesuffix("Text") + suffix)(config).float().eval()
    randomize(model, generator)
    tokens = torch.randint(0, VOCABULARY, (WINDOWS, LENGTH), generator=generator)
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits
    assert logits.isfinite().all(), name
    tensors = {k: v.contiguous().clone() for k, v in model.state_dict().items()}
    if config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    return {**tensors, "tokens": tokens, "logits": logits.contiguous()}, config


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("folder", type=pathlib.Path, nargs="?", default=here)
    folder = parser.parse_args().folder
    for name, (family, changes) in MODELS.items():
        generator = torch.Generator().manual_seed(SEED)
        torch.manual_seed(SEED)
        tensors, config = make(name, family, changes, generator)
        text = json.dumps(json.loads(config.to_json_string(use_diff=False)), sort_keys=True)
        save_file(tensors, folder / f"{name}.safetensors", metadata={"config": text})
        print(f"{name}: logits of {tensors['logits'].std():.2f} on average")


if __name__ == "__main__":
    main()
