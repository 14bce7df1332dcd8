"""The figures of README.md: perplexity on heldout.txt and exact match on retrieval.jsonl.

usage: evaluate.py FOLDER diff|base        (f32 from the bf16 weights; torch alone)
"""
import collections
import json
import math
import pathlib
import sys

import safetensors.torch
import tokenizers
import torch
from torch.nn import functional as F

import corpus
from model import CausalLM, Shape


@torch.no_grad()
def perplexity(net, ids, length):
    """<s> and length - 1 tokens a window, no overlap, every token but <s> predicted once."""
    total, count = 0.0, 0
    for start in range(0, len(ids), length - 1):
        x = torch.tensor([[corpus.BOS] + ids[start:start + length - 1].tolist()])
        if x.shape[1] < 2:
            continue
        total += F.cross_entropy(net(x[:, :-1])[0], x[0, 1:], reduction="sum").item()
        count += x.shape[1] - 1
    return math.exp(total / count), count


@torch.no_grad()
def exact_match(net, tok, path):
    """-> {(n, depth): [right, asked]}; right when greedy decoding gives the whole answer."""
    hits = collections.defaultdict(lambda: [0, 0])
    for line in open(path, encoding="utf-8"):
        e = json.loads(line)
        head = tok.encode(e["context"]).ids
        tail = tok.encode(e["answer"], add_special_tokens=False).ids
        guess = net(torch.tensor([head + tail[:-1]]))[0, len(head) - 1:].argmax(-1).tolist()
        hits[e["n"], e["depth"]][0] += guess == tail
        hits[e["n"], e["depth"]][1] += 1
    return hits


def main():
    here = pathlib.Path(__file__).parent
    folder, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
    net = CausalLM(Shape(), kind == "diff")
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    net.load_state_dict({n: w.float() for n, w in weights.items()})
    tok = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = corpus.encode_text(tok, (here / "heldout.txt").read_text(encoding="utf-8"))[:-1]
    value, count = perplexity(net, ids, Shape().context)
    print(f"{kind}: perplexity {value:.2f} over {count} tokens")
    hits = exact_match(net, tok, here / "retrieval.jsonl")
    for n in sorted({n for n, _ in hits}):
        at = {d: r / a for (m, d), (r, a) in sorted(hits.items()) if m == n}
        print(f"  N={n} {sum(at.values()) / len(at):.2f}  by depth " + " ".join(f"{d}%:{v:.2f}" for d, v in at.items()))


if __name__ == "__main__":
    main()
