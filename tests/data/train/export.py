"""Writes a trained model as Hugging Face files, with its calibration data and its figures."""

import json
import math

import torch
from safetensors.torch import save_file

CALIBRATION_TOKENS = 384


def round_to_bf16(model):
    """Rounds every parameter to bfloat16 in place: all that is computed afterwards is computed
    from the values that the file holds."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16))


def write_config(config, path):
    """The keys of transformers' LlamaConfig. Tokens are bytes, none of them special."""
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": config.num_hidden_layers,
        "num_key_value_heads": config.num_attention_heads,
        "pretraining_tp": 1,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_scaling": None,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": config.vocab_size,
    }
    write_json(fields, path)


def write_json(value, path):
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_model(model, path):
    tensors = {name: p.detach().to(torch.bfloat16) for name, p in model.named_parameters()}
    save_file(tensors, path, metadata={"format": "pt"})


def unigram_entropy(text):
    """The loss, in bits per byte, of the best model that ignores the context of a byte."""
    counts = torch.bincount(torch.tensor(list(text))).double()
    return -torch.xlogy(counts, counts / counts.sum()).sum().item() / len(text) / math.log(2)


@torch.no_grad()
def held_out_loss(model, text, context):
    """Mean loss in bits per byte over `text`, cut into windows of `context` bytes that share no
    state. Every byte but the first is predicted once."""
    tokens = torch.tensor(list(text))
    bits = 0.0
    for start in range(0, len(tokens) - 1, context):
        window = tokens[start : start + context + 1]
        logits = model(window[None, :-1])[0]
        bits += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
    return bits / math.log(2) / (len(tokens) - 1)


@torch.no_grad()
def write_calibration(model, text, context, path):
    """Writes the input of every feed-forward block, `model.layers.N.mlp.input` [tokens, d] F32, for
    the first CALIBRATION_TOKENS bytes of `text`, cut into windows as for the loss."""
    inputs = {}
    handles = []
    for i, layer in enumerate(model.model.layers):
        seen = inputs.setdefault(f"model.layers.{i}.mlp.input", [])
        handles.append(
            layer.mlp.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0][0]))
        )
    tokens = torch.tensor(list(text[:CALIBRATION_TOKENS]))
    for start in range(0, len(tokens), context):
        model(tokens[None, start : start + context])
    for handle in handles:
        handle.remove()
    save_file({name: torch.cat(rows).contiguous() for name, rows in inputs.items()}, path)
