"""A Llama in plain PyTorch, with the parameter names and arithmetic of `LlamaForCausalLM`."""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass(frozen=True)
class Config:
    vocab_size: int = 256
    hidden_size: int = 128
    intermediate_size: int = 352
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    max_position_embeddings: int = 256
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    @property
    def head_dim(self):
        return self.hidden_size // self.num_attention_heads


class RmsNorm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.hidden_size))
        self.eps = config.rms_norm_eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def linear(n_in, n_out):
    return nn.Linear(n_in, n_out, bias=False)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        d = config.hidden_size
        self.heads = config.num_attention_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (linear(d, d) for _ in range(4))

    def forward(self, x, cos, sin):
        b, t, d = x.shape

        def split_heads(y):
            return y.view(b, t, self.heads, d // self.heads).transpose(1, 2)

        def rotate(y):
            # Llama's pairs are (i, i + head_dim/2), not neighbours.
            lower, upper = y.chunk(2, dim=-1)
            return y * cos + torch.cat((-upper, lower), dim=-1) * sin

        q, k, v = (split_heads(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, d))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        d, m = config.hidden_size, config.intermediate_size
        self.gate_proj, self.up_proj, self.down_proj = linear(d, m), linear(d, m), linear(m, d)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = RmsNorm(config)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(config)
        self.mlp = Mlp(config)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RmsNorm(config)

    def forward(self, tokens, cos, sin):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class Llama(nn.Module):
    """Maps tokens [b, t] to logits [b, t, vocab]. The head is the embedding, transposed."""

    def __init__(self, config):
        super().__init__()
        self.model = Body(config)
        self._initialize(config)
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        angles = torch.outer(
            torch.arange(config.max_position_embeddings, dtype=torch.float32),
            config.rope_theta**-half,
        )
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def _initialize(self, config):
        """Variance-preserving, the residual branches scaled down by their number."""
        for name, p in self.named_parameters():
            if p.dim() < 2:
                continue
            std = 0.02 if "embed" in name else 1 / math.sqrt(p.shape[1])
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                std /= math.sqrt(2 * config.num_hidden_layers)
            nn.init.normal_(p, std=std)

    def forward(self, tokens):
        t = tokens.shape[-1]
        x = self.model(tokens, self.cos[:t], self.sin[:t])
        return F.linear(x, self.model.embed_tokens.weight)
