"""Are the restatements right? Invariants that need no reference, and the parts that
transformers and torch do have. Everything in float64; a failed check raises SystemExit."""
import importlib
import sys

import torch
import torch.nn.functional as F
from transformers import AutoConfig, MambaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.mamba.modeling_mamba import MambaMixer

import make_golden
from make_golden import worst, worst_hidden
from restate import blocks, motif, phi4flash, unilm
from restate.blocks import Pair


def need(name, error, bound):
    if not error <= bound:
        sys.exit(f"{name}: off by {error:.1e}, allowed {bound:.0e}")


def need_change(name, change, least):
    if not change > least:
        sys.exit(f"{name}: changes by {change:.1e} only")


def random(*shape):
    gen = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=gen, dtype=torch.float64)


# --- parts ---------------------------------------------------------------------------

def check_lambda():
    for depth, value in ((-1, -0.0099153), (0, 0.2), (1, 0.3555091), (15, 0.7933346)):
        need("lambda_init", abs(blocks.lambda_init(depth) - value), 6e-8)
    names = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
    for dots in ((0.0, 0.0), (0.7, 0.7), (0.7, 0.0)):
        vectors = dict(zip(names, (torch.tensor([v, 0.0], dtype=torch.float64) for v in
                                   (dots[0], 1.0, dots[1], 1.0))))
        want = torch.tensor(dots, dtype=torch.float64).exp()
        got = blocks.lambda_of(vectors, "", 3, torch.float64)
        need("lambda", abs(got - (want[0] - want[1] + blocks.lambda_init(3))), 1e-15)


def check_attention():
    """lambda 0 leaves softmax attention; the norm leaves an RMS of 1 - lambda_init."""
    T, H, d = 23, 3, 8
    q, k, v = random(T, 2 * H, d), random(T, 2 * H, d), random(T, H, 2 * d)
    pairs = [Pair(2 * h, 2 * h + 1, 2 * h, 2 * h + 1, h) for h in range(H)]
    out = blocks.differential(q, k, v, pairs, 0.0).out
    want = F.scaled_dot_product_attention(q[:, ::2].transpose(0, 1), k[:, ::2].transpose(0, 1),
                                          v.transpose(0, 1), is_causal=True)
    need("attention without noise", worst(out, want.transpose(0, 1)), 1e-12)
    y = blocks.finish(out, torch.ones(2 * d, dtype=torch.float64), 0.0, 2).unflatten(1, (H, -1))
    rms = y.square().mean(-1).sqrt()
    need("RMS of a head", worst(rms, torch.full_like(rms, 1 - blocks.lambda_init(2))), 1e-12)


def check_pairings():
    """Motif's list of heads against the reshapes that its own code makes; with as many noise
    as signal heads it is everybody's list of neighbours."""
    for N, K in ((4, 4), (8, 4), (12, 6), (16, 4)):
        n = N // K
        neighbours = [Pair(2 * h, 2 * h + 1, 2 * (h // n), 2 * (h // n) + 1, h // n)
                      for h in range(N // 2)]
        if motif.head_pairs(N, N // 2, K) != neighbours:
            sys.exit(f"{N} heads, {K} keys: not the neighbours")
    for N, noise, K in ((10, 2, 4), (6, 2, 4), (12, 4, 4), (40, 8, 16), (15, 3, 2)):
        r = N // noise - 1
        q = torch.arange(N).view(noise, r + 1)
        signal, last = q[:, :r].flatten(), q[:, r].repeat_interleave(r)
        groups = torch.arange(K // 2)
        by_signal = groups.repeat_interleave((N - noise) // (K // 2))
        by_noise = groups.repeat_interleave(noise // (K // 2)).repeat_interleave(r)
        want = [Pair(*map(int, p)) for p in zip(signal, last, 2 * by_signal, 2 * by_noise + 1,
                                                by_signal)]
        if motif.head_pairs(N, noise, K) != want:
            sys.exit(f"{N} heads, {noise} noise, {K} keys: not Motif's groups")


def check_layer_kinds():
    hub = phi4flash.layer_kinds(32)
    want = {phi4flash.MAMBA: range(0, 16, 2), phi4flash.SLIDING: range(1, 16, 2),
            phi4flash.MEMORY: [16], phi4flash.FULL: [17], phi4flash.GMU: range(18, 32, 2),
            phi4flash.CROSS: range(19, 32, 2)}
    for kind, numbers in want.items():
        if [i for i, k in enumerate(hub) if k == kind] != list(numbers):
            sys.exit(f"layers of kind {kind}")


def check_mamba():
    """The whole mixer against transformers' own."""
    T, C, E, n, rank = 19, 24, 48, 5, 2
    mixer = MambaMixer(MambaConfig(hidden_size=C, state_size=n, conv_kernel=3, expand=2,
                                   time_step_rank=rank, use_bias=False), 0).double().eval()
    with torch.no_grad():
        for p in mixer.parameters():
            p += 0.3 * random(*p.shape)
        x = random(T, C)
        tensors = dict(mixer.named_parameters())
        c = {"mamba_d_state": n, "dt_rank": rank}
        want = mixer(x[None])[0]
        for leaves_memory in (False, True):   # the memory changes no result
            got, memory = phi4flash.mamba(x, tensors, "", c, leaves_memory)
            need("Mamba", worst(got, want), 1e-6)
        # The memory is what the gate multiplies.
        gate = blocks.linear(x, tensors, "in_proj")[:, E:]
        need("memory", worst(blocks.linear(memory * F.silu(gate), tensors, "out_proj"), got),
             1e-12)


def check_small_parts():
    x, w, b = random(7, 20), random(20), random(1, 20)[0]
    need("LayerNorm", worst(blocks.layer_norm(x, w, b, 1e-5),
                            F.layer_norm(x, (20,), w, b, 1e-5)), 1e-12)
    need("RMSNorm", worst(blocks.rms_norm(x, w, 1e-5), F.rms_norm(x, (20,), w, 1e-5)), 1e-12)
    poly, bias = random(3), torch.tensor([0.25], dtype=torch.float64)
    want = bias + sum(p * F.rms_norm(x ** e, (20,), None, 1e-6)
                      for p, e in zip(poly, (3, 2, 1)))
    need("PolyNorm", worst(blocks.poly_norm(x, poly, bias), want), 1e-12)
    # Either pairing turns the same planes, named differently.
    cos_sin, q = blocks.angles(9, 12, 100.0), random(9, 2, 12)
    order = unilm.even_then_odd(12)
    need("RoPE", worst(blocks.rotate(q[..., order], *cos_sin, interleaved=False),
                       blocks.rotate(q, *cos_sin, interleaved=True)[..., order]), 1e-14)


def check_rope_scaling():
    for theta, d, limit in ((500000.0, 16, 64), (10000.0, 64, 4096), (1e6, 128, 32768)):
        config = AutoConfig.for_model(
            "llama", hidden_size=2 * d, num_attention_heads=2, max_position_embeddings=limit,
            rope_parameters={"rope_type": "yarn", "rope_theta": theta, "factor": 4.0})
        want, factor = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
        inv, own = blocks.frequencies(d, theta, {"rope_type": "yarn", "factor": 4.0}, limit)
        need("YaRN", (inv / want.double() - 1).abs().max().item(), 1e-6)
        need("YaRN's factor", abs(own - factor), 1e-12)


def check_blocks():
    check_lambda()
    check_attention()
    check_pairings()
    check_layer_kinds()
    check_mamba()
    check_small_parts()
    check_rope_scaling()
    print("parts: as they should be")


# --- whole models --------------------------------------------------------------------

def same_as_transformers(folder, expected):
    """A converted model, in float32, at the golden's rows."""
    start, ids = expected["start"].tolist(), expected["ids"]
    sequences = [ids[a:b] for a, b in zip(start, start[1:])]
    model = make_golden.load(folder, torch.float32)
    got = make_golden.run(model, sequences)
    rows = expected["rows"].tolist()
    for name, error in (("logits", worst(got["logits"][rows], expected["logits"])),
                        ("hidden", worst_hidden(got["hidden"][:, rows], expected["hidden"])),
                        ("attention logits", worst(got["logit_absmax"],
                                                   expected["logit_absmax"])),
                        ("lambda", worst(make_golden.lambdas(model), expected["lambda"]))):
        need(f"{folder.name}: transformers' {name}", error, 2e-6)
        print(f"    {folder.name}: transformers' {name} differ by {error:.1e}")


def check_maps(name, trace):
    for layer, got in enumerate(trace.attended):
        for number, a in (got.maps if got else {}).items():
            need(f"{name}: row sums of map {number} of layer {layer}",
                 (a.sum(-1) - 1).abs().max().item(), 1e-12)
            need(f"{name}: map {number} of layer {layer} looks ahead",
                 a.triu(1).abs().max().item(), 0)


def value_rows(tensors, config):
    """Of the first attention layer: tensors whose rows make the first differential value
    head, and where; None where no norm follows."""
    if config and config["model_type"] == "phi4flash":
        c = phi4flash.settings(config)
        first = (c["num_attention_heads"] + c["num_key_value_heads"]) * c["head_dim"]
        names = ["model.layers.1.attn.Wqkv.weight", "model.layers.1.attn.Wqkv.bias"]
        return names, first, c["head_dim"]
    prefix = "model.layers.0.self_attn."
    if prefix + "lambda_q1" not in tensors:
        return None
    return [prefix + "v_proj.weight"], 0, len(tensors[prefix + "lambda_q1"])


def check_value_scale(case, forward, tensors, ids, want):
    """A whole value head may grow: the norm takes it back. Half of it may not."""
    found = value_rows(tensors, case["config"])
    eps = (case["config"] or {}).get("attn_rms_norm_eps", 1e-5)
    if found is None or eps > 1e-5:
        return
    names, first, d = found
    for width, change in ((2 * d, "none"), (d, "some")):
        scaled = dict(tensors)
        for name in names:
            scaled[name] = tensors[name].clone()
            scaled[name][first:first + width] *= 3
        got = worst(forward(scaled, case["config"], ids, torch.float64).logits, want)
        if change == "none":
            need(f"{case['name']}: a larger value head", got, 2e-3)
        else:
            need_change(f"{case['name']}: half a value head", got, 1e-2)


def check_window(case, trace):
    """Rows of a windowed map have min(t + 1, window) weights."""
    c = phi4flash.settings(case["config"])
    for layer, got in enumerate(trace.attended):
        for a in (got.maps if got else {}).values():
            T = len(a)
            reach = c["sliding_window"][layer] or T
            if (a > 0).sum(-1).tolist() != [min(t + 1, reach) for t in range(T)]:
                sys.exit(f"{case['name']}: the window of layer {layer} is not {reach}")


@torch.no_grad()
def check_case(case, tensors, ids):
    name = case["name"]
    forward = importlib.import_module("restate." + case["family"]).forward
    trace = forward(tensors, case["config"], ids, torch.float64)
    check_maps(name, trace)
    prefix = forward(tensors, case["config"], ids[:11], torch.float64)
    need(f"{name}: a prefix", worst(prefix.logits, trace.logits[:11]), 1e-12)
    check_value_scale(case, forward, tensors, ids, trace.logits)
    if case["family"] == "phi4flash":
        check_window(case, trace)
    if case["family"] == "motif" and "num_noise_heads" not in case["config"]:
        N = case["config"]["num_attention_heads"]
        grouped = {**case["config"], "num_noise_heads": N // 2, "k_ratio": 1,
                   "head_dim": len(tensors["model.layers.0.self_attn.lambda_q1"])}
        got = forward(tensors, grouped, ids, torch.float64).logits
        need(f"{name}: as groups of one", worst(got, trace.logits), 1e-14)
