"""Both models as one small module, and their Hugging Face form.

Parameter names are those of transformers' DiffLlamaForCausalLM and LlamaForCausalLM,
so export is a copy. The mathematics is theirs too, with one attention call for all
half-heads: half-heads i and i + H/2 form a differential head (H half-heads), its
value is v_i and v_{i+H/2} side by side.
"""
import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Shape:
    vocab: int = 4096
    hidden: int = 256
    inter: int = 512
    layers: int = 4
    heads: int = 8           # half-heads in the DIFF model
    context: int = 512
    eps: float = 1e-5
    theta: float = 10000.0

    @property
    def d(self):
        return self.hidden // self.heads


def rope_tables(shape):
    inv = shape.theta ** (-torch.arange(0, shape.d, 2).float() / shape.d)
    angle = torch.outer(torch.arange(shape.context).float(), inv)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin


class Norm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, shape, layer, differential):
        super().__init__()
        self.shape, self.differential = shape, differential
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(shape.hidden, shape.hidden, bias=False))
        if differential:
            self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer)
            for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
                setattr(self, name, nn.Parameter(torch.randn(shape.d) * 0.1))

    def forward(self, x, cos, sin):
        B, T, C = x.shape
        H, d = self.shape.heads, self.shape.d
        q, k, v = (p(x).view(B, T, H, d).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if not self.differential:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.o_proj(y.transpose(1, 2).reshape(B, T, C))

        v = torch.cat(v.chunk(2, dim=1), dim=-1).repeat(1, 2, 1, 1)      # [B,H,T,2d]
        y1, y2 = wide_attention(q, k, v).chunk(2, dim=1)
        lam = (torch.exp((self.lambda_q1 * self.lambda_k1).sum())
               - torch.exp((self.lambda_q2 * self.lambda_k2).sum()) + self.lambda_init)
        y = y1.float() - lam * y2.float()
        y = (1 - self.lambda_init) * F.rms_norm(y, (2 * d,), eps=self.shape.eps)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, C))


def wide_attention(q, k, v):
    """Values twice as wide as keys; the CPU's fused kernel wants them equal."""
    zero = q.new_zeros(1).expand(q.shape)
    return F.scaled_dot_product_attention(torch.cat([q, zero], -1), torch.cat([k, zero], -1), v,
                                          is_causal=True, scale=q.shape[-1] ** -0.5)


class Mlp(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.inter, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.inter, bias=False)
        self.down_proj = nn.Linear(shape.inter, shape.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape, layer, differential):
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, shape.eps)
        self.self_attn = Attention(shape, layer, differential)
        self.post_attention_layernorm = Norm(shape.hidden, shape.eps)
        self.mlp = Mlp(shape)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, shape, differential):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape, i, differential) for i in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.eps)


class CausalLM(nn.Module):
    def __init__(self, shape, differential):
        super().__init__()
        self.model = Decoder(shape, differential)
        cos, sin = rope_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        """ids [B,T] -> logits [B,T,V]; the output matrix is the embedding."""
        T = ids.shape[1]
        x = self.model.embed_tokens(ids)
        cos, sin = self.cos[:T].to(x.dtype), self.sin[:T].to(x.dtype)
        if torch.is_autocast_enabled("cpu"):
            cos, sin = cos.bfloat16(), sin.bfloat16()
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def loss(self, ids, labels, weights):
        """Weighted mean over the labels that are not -100."""
        each = F.cross_entropy(self(ids).flatten(0, 1).float(), labels.flatten(),
                               ignore_index=-100, reduction="none")
        weights = (weights * (labels != -100)).flatten()
        return (each * weights).sum() / weights.sum()
