"""What the restatements share: norms, RoPE, softmax maps, lambda.

Written from the papers' formulas, for float64. In bfloat16 they round where the
published code rounds: products, norms' results and softmax weights are bfloat16, the
insides of norms, softmax, activations, exp and scan are float32 (`wide`).
x [T,C] is one sequence; heads are [T,H,d].
"""
import math
from dataclasses import dataclass, field

import torch
from torch.nn.functional import silu, softplus


def wide(x):
    """The precision of sums and special functions: float64, else float32."""
    return x if x.dtype == torch.float64 else x.float()


def linear(x, tensors, name):
    y = x @ tensors[name + ".weight"].T
    bias = tensors.get(name + ".bias")
    return y if bias is None else y + bias


def heads(x, d):
    return x.unflatten(-1, (-1, d))


# --- norms ---------------------------------------------------------------------------

def rms_norm(x, weight, eps):
    z = wide(x)
    z = z / torch.sqrt((z * z).mean(-1, keepdim=True) + eps)
    return z.to(x.dtype) * weight


def layer_norm(x, weight, bias, eps):
    z = wide(x)
    z = z - z.mean(-1, keepdim=True)
    z = z / torch.sqrt((z * z).mean(-1, keepdim=True) + eps)
    return (z * wide(weight) + wide(bias)).to(x.dtype)


def poly_norm(x, weight, bias, eps=1e-6):
    """arXiv 2411.03884: w0 N(x^3) + w1 N(x^2) + w2 N(x) + b, N over the whole row."""
    z = wide(x)
    y = wide(bias)
    for w, power in zip(wide(weight), (3, 2, 1)):
        p = z ** power
        y = y + w * p / torch.sqrt((p * p).mean(-1, keepdim=True) + eps)
    return y.to(x.dtype)


def swiglu(gate, x):
    return (silu(wide(gate)) * wide(x)).to(x.dtype)


# --- RoPE ----------------------------------------------------------------------------

def frequencies(d, theta, scaling=None, max_positions=None):
    """Angle per position of each of the d/2 pairs, and the factor of cos and sin."""
    inv = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    if not scaling:
        return inv, 1.0
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling["factor"]
    if kind == "linear":
        return inv / factor, 1.0
    if kind != "yarn":
        raise ValueError(f"rope_scaling of type {kind}")
    # YaRN, arXiv 2309.00071: pairs that turn often stay, those that turn seldom slow down.
    M = scaling.get("original_max_position_embeddings", max_positions)
    often, seldom = (d * math.log(M / (2 * math.pi * turns)) / (2 * math.log(theta))
                     for turns in (32, 1))   # numbers of the pairs that turn so often in M
    low, high = max(math.floor(often), 0), min(math.ceil(seldom), d - 1)
    ramp = (torch.arange(d // 2, dtype=torch.float64) - low) / max(high - low, 1e-3)
    ramp = ramp.clamp(0, 1)
    return inv / factor * ramp + inv * (1 - ramp), 0.1 * math.log(factor) + 1


def angles(T, d, theta, scaling=None, max_positions=None):
    """cos, sin [T,1,d/2]."""
    inv, factor = frequencies(d, theta, scaling, max_positions)
    a = torch.arange(T, dtype=torch.float64)[:, None, None] * inv
    return a.cos() * factor, a.sin() * factor


def rotate(x, cos, sin, interleaved):
    """Turns pairs (0,1), (2,3).. of each head; not interleaved: (0,d/2), (1,d/2+1).."""
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    a, b = a * cos - b * sin, b * cos + a * sin
    return torch.stack([a, b], -1).flatten(-2) if interleaved else torch.cat([a, b], -1)


# --- differential attention ----------------------------------------------------------

@dataclass
class Pair:
    """One differential head: numbers of its q heads, their k heads, and its v head."""
    signal: int
    noise: int
    signal_key: int
    noise_key: int
    value: int


@dataclass
class Attended:
    out: torch.Tensor                                # [T,H,dv]
    maps: dict = field(default_factory=dict)         # number of the q head: [T,T]
    absmax: torch.Tensor = None                      # [N] of the logits


def softmax_map(q, k, reach=None):
    """Weights [T,T] and largest |logit|; a query sees `reach` keys, itself among them."""
    T = len(q)
    logits = wide(q) @ wide(k).T / math.sqrt(q.shape[-1])
    age = torch.arange(T)[:, None] - torch.arange(T)
    allowed = (age >= 0) & (age < (reach or T))
    weights = logits.masked_fill(~allowed, -math.inf).softmax(-1)
    return weights.to(q.dtype), logits.masked_fill(~allowed, 0).abs().max()


def differential(q, k, v, pairs, lam, reach=None):
    """O_h = A_signal V - lambda A_noise V; lam a number, or [T,H]. Each q head has one k head,
    however many differential heads share it."""
    got = Attended(None, {}, torch.zeros(q.shape[1], dtype=wide(q).dtype))
    out = []
    for h, p in enumerate(pairs):
        for head, key in ((p.signal, p.signal_key), (p.noise, p.noise_key)):
            if head not in got.maps:
                got.maps[head], got.absmax[head] = softmax_map(q[:, head], k[:, key], reach)
        share = lam[:, h, None] if torch.is_tensor(lam) and lam.ndim == 2 else lam
        out.append(got.maps[p.signal] @ v[:, p.value]
                   - share * (got.maps[p.noise] @ v[:, p.value]))
    got.out = torch.stack(out, 1)
    return got


def lambda_init(depth):
    """0.8 - 0.6 exp(-0.3 depth); depth 0 is the first layer of the paper."""
    return 0.8 - 0.6 * math.exp(-0.3 * depth)


def lambda_of(tensors, prefix, depth, dtype):
    """exp(q1.k1) - exp(q2.k2) + init, each term rounded to dtype."""
    def term(i):
        dot = (tensors[f"{prefix}lambda_q{i}"] * tensors[f"{prefix}lambda_k{i}"]).sum()
        return torch.exp(wide(dot)).to(dtype)

    return term(1) - term(2) + lambda_init(depth)


def finish(out, weight, eps, depth):
    """Norm over each head's dv, times 1 - lambda_init, heads side by side: [T,H*dv]."""
    return (rms_norm(out, weight, eps) * (1 - lambda_init(depth))).flatten(1)


# --- Mamba-1 -------------------------------------------------------------------------

def causal_conv(x, weight, bias):
    """silu(b + sum_j w[:,j] x[t - (J-1) + j]), zeros before the start; weight [E,J]."""
    J = weight.shape[1]
    padded = torch.cat([wide(x).new_zeros(J - 1, x.shape[1]), wide(x)])
    y = wide(bias) + sum(wide(weight)[:, j] * padded[j:j + len(x)] for j in range(J))
    return silu(y).to(x.dtype)


def selective_scan(u, dt, B, C, A_log, D, dt_bias):
    """arXiv 2312.00752, algorithm 2; u, dt [T,E], B, C [T,n]. Result in `wide`."""
    u, B, C, A = wide(u), wide(B), wide(C), -torch.exp(wide(A_log))
    delta = softplus(wide(dt) + wide(dt_bias))
    state, y = torch.zeros_like(A), []
    for t in range(len(u)):
        state = torch.exp(delta[t, :, None] * A) * state \
            + (delta[t] * u[t])[:, None] * B[t]
        y.append(state @ C[t])
    return torch.stack(y) + wide(D) * u


# --- results -------------------------------------------------------------------------

@dataclass
class Trace:
    """What a forward pass leaves behind."""
    hidden: list = field(default_factory=list)    # of each layer: [T,C] after it
    absmax: list = field(default_factory=list)    # [N], zeros without attention
    lam: list = field(default_factory=list)       # 0 without attention
    attended: list = field(default_factory=list)  # Attended or None
    logits: torch.Tensor = None                   # [T,V]
