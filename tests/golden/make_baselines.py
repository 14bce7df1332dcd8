"""Writes the golden files of the baselines: tiny checkpoints and transformers' results.

    python make_baselines.py               every case -> baselines/NAME/
    python make_baselines.py NAME...       these only
    python make_baselines.py --check       recompute, compare with the disk, write nothing

Needs what make_golden.py needs, which says what expected.safetensors holds. Here
logit_absmax is over the entries that the causal mask and the layer's window allow, of
the logits as they go into the softmax: with whatever scale the model has, its norms of
q and k and its biases behind it.
"""
import argparse
import json
import math
import shutil
import sys
import zlib

import safetensors.torch
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

import baseline_cases
from make_golden import DTYPES, HERE, check_sensitivity, expect, report, rows_of, store, worst

OUT = HERE / "baselines"


# --- weights -------------------------------------------------------------------------

def draw(name, shape, case, gen):
    """Values large enough for every tensor to matter in the logits."""
    x = torch.randn(shape, generator=gen)
    config, gain = case["config"], case["gain"]
    if name.endswith("bias"):
        return 0.3 * x
    if "norm" in name or ".ln_" in name:
        return 1 + 0.3 * x.clamp(-2, 2)
    if "embed_positions" in name or "wpe" in name:
        return 0.5 * x
    if "embed" in name or "wte" in name:
        return x
    # GPT-2 keeps its matrices the other way round.
    x = x / math.sqrt(shape[0 if ".h." in name else 1])
    if "q_proj" in name or "k_proj" in name:
        x *= gain
    elif "c_attn" in name:
        x[:, :2 * config["n_embd"]] *= gain
    elif "query_key_value" in name:
        x.view(config["num_attention_heads"], 3, -1)[:, :2] *= gain
    return x


def buffers(config):
    """What old files carry besides: causal masks, a mask's value, RoPE's frequencies."""
    n = config.max_position_embeddings
    mask = torch.ones(n, n).tril().view(1, 1, n, n)
    tensors = {}
    for layer in range(config.num_hidden_layers):
        if config.model_type == "gpt2":
            tensors[f"h.{layer}.attn.bias"] = mask.clone()
            tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
            continue
        rope, d = config.rope_parameters, config.hidden_size // config.num_attention_heads
        d = int(d * rope["partial_rotary_factor"])
        attention = f"model.layers.{layer}.self_attn"
        if config.model_type == "gpt_neox":
            attention = f"gpt_neox.layers.{layer}.attention"
            tensors[f"{attention}.bias"] = mask.to(torch.uint8)
            tensors[f"{attention}.masked_bias"] = torch.tensor(-1e9)
        frequencies = rope["rope_theta"] ** (-torch.arange(0, d, 2) / d)
        tensors[f"{attention}.rotary_emb.inv_freq"] = frequencies
    return tensors


def make_tensors(case, config):
    gen = torch.Generator().manual_seed(zlib.crc32(case["name"].encode()))
    shapes = AutoModelForCausalLM.from_config(config).state_dict()
    tensors = {name: draw(name, t.shape, case, gen) for name, t in shapes.items()}
    if config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    if case["head"]:
        opt = config.model_type == "opt"
        embedding = "model.decoder.embed_tokens" if opt else "transformer.wte"
        tensors["lm_head.weight"] = tensors[f"{embedding}.weight"].clone()
    for old, new in case["rename"]:
        tensors = {new + name[len(old):] if name.startswith(old) else name: t
                   for name, t in tensors.items()}
    return {name: t.to(DTYPES[case["stored"]]) for name, t in tensors.items()}


def write_checkpoint(case, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text = json.dumps(case["config"], indent=2)
    (folder / "config.json").write_text(text + "\n")
    if case["twin"]:
        twin = OUT / case["twin"]
        config = AutoConfig.from_pretrained(twin)
        tensors = safetensors.torch.load_file(twin / "model.safetensors")
    else:
        config = AutoConfig.from_pretrained(folder)
        tensors = make_tensors(case, config)
    if case["buffers"]:
        tensors |= buffers(config)
    tensors = {name: t.contiguous() for name, t in tensors.items()}
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})


# --- reference run -------------------------------------------------------------------

def layers_of(model):
    base = model.base_model
    base = getattr(base, "decoder", base)
    return base.h if hasattr(base, "h") else base.layers


class Watch:
    """What the decoder layers give, and the logits that each attention really used.

    Takes the place of the module's eager attention, which every model calls with
    queries and keys that are ready for their product, and with its mask."""

    def __init__(self, model):
        self.module = sys.modules[type(model).__module__]
        self.eager = self.module.eager_attention_forward
        self.module.eager_attention_forward = self.attend
        self.hooks = [layer.register_forward_hook(self.layer_hook)
                      for layer in layers_of(model)]
        self.clear()

    def clear(self):
        self.hidden, self.absmax, self.maps, self.keys = [], [], [], []

    def close(self):
        self.module.eager_attention_forward = self.eager
        for hook in self.hooks:
            hook.remove()

    def layer_hook(self, module, args, out):
        self.hidden.append((out[0] if isinstance(out, tuple) else out)[0].float())

    def attend(self, module, query, key, value, mask, **kwargs):
        out, weights = self.eager(module, query, key, value, mask, **kwargs)
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        logits = (query @ key.transpose(2, 3))[0].abs() * kwargs["scaling"]
        allowed = mask[0, 0] == 0
        self.absmax.append(logits.masked_fill(~allowed, 0).amax(dim=(1, 2)).float())
        self.maps.append(weights[0])
        self.keys.append(allowed)
        return out, weights


@torch.no_grad()
def run(model, sequences, with_maps=False):
    watch = Watch(model)
    logits, hidden, absmax, got = [], [], [], {}
    for ids in sequences:
        watch.clear()
        out = model(ids[None].long(), use_cache=False)
        logits.append(out.logits[0].float())
        hidden.append(torch.stack(watch.hidden))
        absmax.append(torch.stack(watch.absmax))
        if with_maps and "maps" not in got:
            got["maps"] = torch.stack(watch.maps)
    watch.close()
    return got | {"logits": torch.cat(logits), "hidden": torch.cat(hidden, dim=1),
                  "logit_absmax": torch.stack(absmax).amax(dim=0)}


# --- do the goldens test anything? ---------------------------------------------------

@torch.no_grad()
def check_windows(case, model, ids):
    """The masks are the windows that the case names, and each hides something."""
    watch = Watch(model)
    model(ids[None].long(), use_cache=False)
    watch.close()
    i = torch.arange(len(ids))
    back = i[:, None] - i
    for layer, got in enumerate(watch.keys):
        window = case["windows"][layer] if case["windows"] else None
        if not torch.equal(got, (back >= 0) & (back < (window or len(ids)))):
            sys.exit(f"{case['name']}: layer {layer} has another window than {window}")
        if window and window >= len(ids):
            sys.exit(f"{case['name']}: layer {layer}'s window hides nothing")


def idle_biases(model):
    """Without positions in them, keys' biases move all logits of a row alike, and the
    softmax undoes it: only logit_absmax can show them."""
    if model.config.model_type != "opt":
        return {}
    return {key: p for key, p in model.named_parameters() if key.endswith("k_proj.bias")}


@torch.no_grad()
def check_idle(name, model, sequences, idle, expected):
    for key, p in idle.items():
        kept = p.data
        p.data = kept.roll(1, dims=-1) * 1.1
        got = run(model, sequences)["logit_absmax"]
        p.data = kept
        if not worst(got, expected["logit_absmax"]) > 1e-3:
            sys.exit(f"{name}: {key} does not change the attention logits")


# --- the job -------------------------------------------------------------------------

def make_case(case, checking):
    name, folder = case["name"], OUT / case["name"]
    if not checking:
        write_checkpoint(case, folder)
    if case["twin"]:
        expected = safetensors.torch.load_file(OUT / case["twin"] / "expected.safetensors")
        store(folder / "expected.safetensors", expected, checking)
        print(f"{name}: as {case['twin']}")
        return
    gen = torch.Generator().manual_seed(len(name))
    vocab = case["config"]["vocab_size"]
    sequences = [torch.randint(vocab, (n,), generator=gen) for n in case["lengths"]]
    rows = rows_of(sequences, case["step"])
    expected, model = expect(folder, sequences, rows, case["maps"], run)
    report(name, expected)
    store(folder / "expected.safetensors", expected, checking)
    idle = idle_biases(model)
    check_idle(name, model, sequences, idle, expected)
    check_sensitivity(name, model, sequences, rows, expected, run, idle)
    check_windows(case, model, max(sequences, key=len))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("names", nargs="*")
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)  # one order of summation, so the same bytes every time
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for case in baseline_cases.CASES:
        if not args.names or case["name"] in args.names:
            make_case(case, args.check)


if __name__ == "__main__":
    main()
