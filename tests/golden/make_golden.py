"""Writes the golden files: tiny checkpoints and what transformers makes of them.

    python make_golden.py               every tiny model       -> models/NAME/
    python make_golden.py NAME...       these only
    python make_golden.py --pair        the pair in tests/pair -> pair/{diff,base}.safetensors
    python make_golden.py --check       recompute, compare with what is on disk, write nothing

After a new export of the pair, `python make_golden.py --pair` is all there is to do.
Needs torch, safetensors, tokenizers and transformers 5 (written with 5.24). The cases
marked odd_kv need transformers 4 (written with 4.57.6), as later versions refuse them:
whatever the version at hand refuses is left as it is on disk and named.

expected.safetensors holds, in float32, from eager attention on the CPU:
  ids [T], start [n+1]  int32: the sequences, one after another
  rows [R]              int32: the rows of [T] that hidden and logits are kept for
  hidden [L,R,C]        output of every decoder layer, before the final norm
  logits [R,V]
  logit_absmax [L,N]    largest |q.k|/sqrt(d) of each (half-)head over allowed entries
  lambda [L]            differential models only
  maps [L,N,S,S]        cases with maps: softmax weights of the first sequence, raw:
                        half-heads i and i + N/2 belong together
  bf16_loss [2]         largest relative error of logits and hidden of the same model
                        run by transformers in bfloat16
Every sequence is run alone, with fresh RoPE buffers: transformers would let one
sequence of a batch change the RoPE of another.
"""
import argparse
import copy
import json
import math
import pathlib
import sys
import zlib

import safetensors.torch
import tokenizers
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

import cases

HERE = pathlib.Path(__file__).resolve().parent
PAIR = HERE.parent / "pair"
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


# --- weights -------------------------------------------------------------------------

def draw(name, shape, gain, gen):
    """Values large enough for every tensor to matter in the logits."""
    x = torch.randn(shape, generator=gen)
    if "norm" in name:
        return 1 + 0.3 * x.clamp(-2, 2)
    if name.endswith("bias"):
        return 0.3 * x
    if "embed_tokens" in name:
        return x
    if "q_proj" in name or "k_proj" in name:
        return x * gain / math.sqrt(shape[-1])
    return x / math.sqrt(shape[-1])


def set_lambdas(tensors, layer, gen):
    """Vectors of random direction with the wished dot products."""
    prefix = f"model.layers.{layer}.self_attn.lambda_"
    for map_number, dot in zip("12", cases.LAMBDAS[layer]):
        q = 0.5 * torch.randn(tensors[prefix + "q1"].shape, generator=gen)
        k = 0.5 * torch.randn(q.shape, generator=gen)
        k += q * (dot - q @ k) / (q @ q)
        tensors[prefix + "q" + map_number], tensors[prefix + "k" + map_number] = q, k


def make_tensors(case, config):
    gen = torch.Generator().manual_seed(zlib.crc32(case["name"].encode()))
    shapes = AutoModelForCausalLM.from_config(config).state_dict()
    tensors = {name: draw(name, t.shape, case["gain"], gen) for name, t in shapes.items()}
    if config.model_type == "diffllama":
        for layer in range(config.num_hidden_layers):
            set_lambdas(tensors, layer, gen)
    if config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    if "lm_head.weight" in case["copies"]:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    if "rotary_emb.inv_freq" in case["copies"]:
        d = config.hidden_size // config.num_attention_heads
        for layer in range(config.num_hidden_layers):
            name = f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"
            tensors[name] = 1e4 ** (-torch.arange(0, d, 2) / d)
    dtype = DTYPES[case["stored"]]
    return {name: t.to(dtype).contiguous() for name, t in tensors.items()}


def write_checkpoint(case, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    text = json.dumps(case["config"], indent=2)
    (folder / "config.json").write_text(text + "\n")
    tensors = make_tensors(case, AutoConfig.from_pretrained(folder))
    n = case["shards"]
    if n == 1:
        safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return
    # Dealt round in turn: a layer's tensors lie in different files.
    where = {name: f"model-{i % n + 1:05}-of-{n:05}.safetensors"
             for i, name in enumerate(sorted(tensors))}
    for file in sorted(set(where.values())):
        part = {name: tensors[name] for name in where if where[name] == file}
        safetensors.torch.save_file(part, folder / file, {"format": "pt"})
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


# --- reference run -------------------------------------------------------------------

def load(folder, dtype):
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=dtype, attn_implementation="eager", output_loading_info=True)
    missing = set(info["missing_keys"]) - {"lm_head.weight"}
    surplus = [k for k in info["unexpected_keys"] if "inv_freq" not in k
               and "masked_bias" not in k]
    if missing or surplus or info["mismatched_keys"]:
        sys.exit(f"{folder}: transformers did not load it whole: {info}")
    return model.eval()


class Watch:
    """Hooks on the decoder layers: outputs, and attention logits from the inputs."""

    def __init__(self, model):
        self.hidden, self.absmax, self.hooks = [], [], []
        self.rotate = sys.modules[type(model).__module__].apply_rotary_pos_emb
        for layer in model.model.layers:
            self.hooks += [layer.register_forward_hook(self.layer_hook),
                           layer.self_attn.register_forward_hook(self.attention_hook,
                                                                 with_kwargs=True)]

    def close(self):
        for hook in self.hooks:
            hook.remove()

    def layer_hook(self, module, args, out):
        self.hidden.append((out[0] if isinstance(out, tuple) else out)[0].float())

    def attention_hook(self, m, args, kwargs, out):
        x = kwargs["hidden_states"]
        q, k = (p(x).unflatten(-1, (-1, m.head_dim)).transpose(1, 2)
                for p in (m.q_proj, m.k_proj))
        q, k = self.rotate(q, k, *kwargs["position_embeddings"])
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        logits = (q @ k.transpose(2, 3)).abs().tril() / math.sqrt(m.head_dim)
        self.absmax.append(logits[0].amax(dim=(1, 2)).float())


@torch.no_grad()
def run(model, sequences, with_maps=False):
    watch = Watch(model)
    rotary = model.model.rotary_emb
    logits, hidden, absmax, maps = [], [], [], None
    for ids in sequences:
        model.model.rotary_emb = copy.deepcopy(rotary)
        watch.hidden, watch.absmax = [], []
        out = model(ids[None].long(), output_attentions=with_maps, use_cache=False)
        logits.append(out.logits[0].float())
        hidden.append(torch.stack(watch.hidden))
        absmax.append(torch.stack(watch.absmax))
        if with_maps and maps is None:
            maps = torch.stack([a[0] for a in out.attentions])
    model.model.rotary_emb = rotary
    watch.close()
    got = {"logits": torch.cat(logits), "hidden": torch.cat(hidden, dim=1),
           "logit_absmax": torch.stack(absmax).amax(dim=0)}
    if maps is not None:
        got["maps"] = maps
    return got


@torch.no_grad()
def lambdas(model):
    values = []
    for layer in model.model.layers:
        a = layer.self_attn
        dots = [(q.double() * k.double()).sum()
                for q, k in ((a.lambda_q1, a.lambda_k1), (a.lambda_q2, a.lambda_k2))]
        values.append(math.exp(dots[0]) - math.exp(dots[1]) + a.lambda_init)
    return torch.tensor(values, dtype=torch.float32)


def worst(a, b):
    """Largest difference relative to the largest value of b."""
    return ((a - b).abs().max() / b.abs().max()).item()


def worst_hidden(a, b):
    return max(worst(x, y) for x, y in zip(a, b))


def expect(folder, sequences, rows, with_maps=False, run=run):
    model = load(folder, torch.float32)
    got = run(model, sequences, with_maps)
    coarse = run(load(folder, torch.bfloat16), sequences)
    got["bf16_loss"] = torch.tensor([worst(coarse["logits"], got["logits"]),
                                     worst_hidden(coarse["hidden"], got["hidden"])])
    if model.config.model_type == "diffllama":
        got["lambda"] = lambdas(model)
    ends = torch.tensor([0] + [len(s) for s in sequences]).cumsum(0)
    got["ids"], got["start"] = torch.cat(sequences).int(), ends.int()
    got["rows"] = torch.tensor(rows, dtype=torch.int32)
    got["logits"], got["hidden"] = got["logits"][rows], got["hidden"][:, rows]
    return {name: t.contiguous() for name, t in got.items()}, model


# --- do the goldens test anything? ---------------------------------------------------

@torch.no_grad()
def check_sensitivity(name, model, sequences, rows, expected, run=run, idle=()):
    """Every tensor but the idle ones changes the logits by far more than the tests
    allow for."""
    for key, p in model.named_parameters():
        if key in idle:
            continue
        kept = p.data
        p.data = kept.roll(1, dims=-1) * 1.1
        change = worst(run(model, sequences)["logits"][rows], expected["logits"])
        p.data = kept
        if not change > 1e-3:
            sys.exit(f"{name}: {key} changes the logits by {change:.1e} only")


def check_rope(name, model, sequences, rows, expected):
    """A scaled RoPE does something that the plain one would not."""
    rotary = model.model.rotary_emb
    plain = copy.deepcopy(rotary)
    d = model.config.head_dim
    plain.rope_type, plain.attention_scaling = "default", 1.0
    plain.inv_freq = 1e4 ** (-torch.arange(0, d, 2).float() / d)
    model.model.rotary_emb = plain
    change = worst(run(model, sequences)["logits"][rows], expected["logits"])
    model.model.rotary_emb = rotary
    if not change > 1e-2:
        sys.exit(f"{name}: its RoPE changes the logits by {change:.1e} only")


# --- the two jobs --------------------------------------------------------------------

def rows_of(sequences, step):
    """Every step-th row, counted back from the last row of each sequence."""
    rows, start = [], 0
    for s in sequences:
        rows += sorted({start} | set(range(start + len(s) - 1, start - 1, -step)))
        start += len(s)
    return rows


def store(path, expected, check):
    if not check:
        path.parent.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(expected, path)
        return
    kept = safetensors.torch.load_file(path)
    for name, t in expected.items():
        measure = worst_hidden if name == "hidden" else worst
        print(f"    {name}: {measure(t.float(), kept[name].float()):.1e} from the file")


def report(name, got):
    print(f"{name}: logits to {got['logits'].abs().max():.1f}, attention logits to "
          f"{got['logit_absmax'].max():.1f}, bf16 loses {got['bf16_loss'][0]:.1e} "
          f"and {got['bf16_loss'][1]:.1e}", flush=True)


def make_case(case, check):
    name, folder = case["name"], HERE / "models" / case["name"]
    if case["odd_kv"] and int(transformers.__version__.split(".")[0]) > 4:
        print(f"{name}: left as it is, transformers {transformers.__version__} refuses it")
        return
    if not check:
        write_checkpoint(case, folder)
    gen = torch.Generator().manual_seed(len(name))
    vocab = case["config"]["vocab_size"]
    sequences = [torch.randint(vocab, (n,), generator=gen) for n in case["lengths"]]
    rows = rows_of(sequences, case["step"])
    expected, model = expect(folder, sequences, rows, case["maps"])
    report(name, expected)
    store(folder / "expected.safetensors", expected, check)
    check_sensitivity(name, model, sequences, rows, expected)
    if name.startswith("rope_") or name in ("diff_llama3", "diff_yarn"):
        check_rope(name, model, sequences, rows, expected)


def held_out_text():
    """The evaluation text beside the pair."""
    texts = sorted(p for p in PAIR.glob("*.txt") if p.name != "licences.txt")
    if not texts:
        sys.exit(f"{PAIR}: no held-out text (*.txt)")
    return texts[0].read_text(encoding="utf-8")


def make_pair(check):
    text = held_out_text()[:8000]
    for kind in ("diff", "base"):
        tokenizer = tokenizers.Tokenizer.from_file(str(PAIR / kind / "tokenizer.json"))
        ids = torch.tensor(tokenizer.encode(text).ids)
        sequences = [ids[:93], ids[93:93 + 300]]
        expected, _ = expect(PAIR / kind, sequences, rows_of(sequences, 60))
        report(kind, expected)
        store(HERE / "pair" / f"{kind}.safetensors", expected, check)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("names", nargs="*")
    p.add_argument("--pair", action="store_true")
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)  # one order of summation, so the same bytes every time
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if args.pair:
        make_pair(args.check)
        return
    for case in cases.CASES:
        if not args.names or case["name"] in args.names:
            make_case(case, args.check)


if __name__ == "__main__":
    main()
