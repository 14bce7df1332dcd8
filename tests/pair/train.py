"""Trains one model of the pair: train.py WORK_DIR diff|base

WORK_DIR holds train.txt and check.txt (make_text.sh) and plan.json; ours is beside this
file. The plan is a list of phases (from which step, length of the windows, shares of
retrieval, repeat and echo windows, share of episodes without filler, weight of an answer
digit in the loss, factor on the learning rates) and the two steps between which the rates
fall to zero. A step is 2048 tokens. The plan is read again at every step, so that its end
can follow the speed of the machine; both runs must see the same one.
Leaves WORK_DIR/{diff,base}/ (Hugging Face folders), .pt (resumed from) and .log files.
"""
import json
import pathlib
import sys
import time

import numpy
import tokenizers
import torch
from torch.nn import functional as F

import corpus
import episodes
import export
from model import CausalLM, Shape

SEED = 20
TOKENS_PER_STEP = 2048
WARMUP = 150
MUON_LR, ADAM_LR = 0.02, 0.003
CHECK_EVERY = 250


def prepare(work):
    """Tokenizer and encoded text, made by whichever run comes first."""
    text = (work / "train.txt").read_text(encoding="utf-8")
    if not (work / "tokenizer.json").exists():
        corpus.train_tokenizer(text, work / "tokenizer.json")
    tok = tokenizers.Tokenizer.from_file(str(work / "tokenizer.json"))
    if not (work / "train.npy").exists():
        numpy.save(work / "train.npy", corpus.encode_text(tok, text))
    return tok, text, numpy.load(work / "train.npy", mmap_mode="r")


def optimizers(net):
    """Muon for the matrices inside the layers, AdamW for embedding, norms and lambdas."""
    matrices = [p for p in net.model.layers.parameters() if p.dim() == 2]
    rest = [p for p in net.parameters() if not any(p is m for m in matrices)]
    return [torch.optim.Muon(matrices, lr=MUON_LR, momentum=0.95, weight_decay=0.01),
            torch.optim.AdamW(rest, lr=ADAM_LR, betas=(0.9, 0.95), weight_decay=0.0)]


def phase(step, plan):
    """-> the entry of the plan that holds at this step."""
    return [p for p in plan["phases"] if p["from"] <= step][-1]


@torch.no_grad()
def shrink(net, factor):
    """A rate too high had blown the matrices up until every softmax was one-hot and
    attention stopped learning. Scaled back, they are a good start again. The lambda
    vectors, which had run away with them, begin anew."""
    for name, p in net.model.layers.named_parameters():
        if p.dim() == 2:
            p.mul_(factor)
        elif "lambda" in name:
            p.normal_(std=0.1)


def rate(step, plan):
    """Warm-up, the phase's own factor, linear decay: a factor on both learning rates."""
    down = (plan["stop"] - step) / (plan["stop"] - plan["decay_from"])
    return phase(step, plan)["rate"] * max(0.0, min(1.0, (step + 1) / WARMUP, down))


@torch.no_grad()
def validation_loss(net, ids, length, windows=40):
    """Mean loss per token over windows spread evenly over text that is not trained on."""
    total = 0.0
    for i in range(windows):
        start = i * (len(ids) - length) // (windows - 1)
        x = torch.tensor([[corpus.BOS] + ids[start:start + length].tolist()])
        total += F.cross_entropy(net(x[:, :-1]).float()[0], x[0, 1:]).item()
    return total / windows


@torch.no_grad()
def exact_match(net, tok, text, n, room, samples):
    """Share of episodes whose answer is the arg-max at each of its tokens (= greedy decoding)."""
    count = lambda s: len(tok.encode(s, add_special_tokens=False).ids)
    right = 0
    for i in range(samples):
        depth = (i % 5) / 4
        context, answer, _, _ = episodes.held_out(text, n, f"check {n} {i}", depth, room, count)
        head = tok.encode(context).ids
        tail = tok.encode(answer, add_special_tokens=False).ids
        x = torch.tensor([head + tail])
        guess = net(x[:, :-1])[0, len(head) - 1:].argmax(-1)
        right += guess.tolist() == tail
    return right / samples


def main():
    work, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    tok, text, ids = prepare(work)
    check_text = (work / "check.txt").read_text(encoding="utf-8")
    check_ids = corpus.encode_text(tok, check_text)
    batches = corpus.Batches(tok, text, ids, SEED)

    torch.manual_seed(SEED)
    net = CausalLM(Shape(), kind == "diff")
    loss_of = torch.compile(net.loss, dynamic=False)
    opts = optimizers(net)
    first, seen = 0, 0
    state = work / f"{kind}.pt"
    if state.exists():
        saved = torch.load(state)
        net.load_state_dict(saved["net"])
        for o, s in zip(opts, saved["opts"]):
            o.load_state_dict(s)
        first, seen = saved["step"], saved["seen"]

    log = open(work / f"{kind}.log", "a")
    began, losses = time.time(), []
    step = first
    while True:
        plan = json.loads((work / "plan.json").read_text())
        now = phase(step, plan)
        if "shrink" in now and step == now["from"]:
            shrink(net, now["shrink"])
            opts = optimizers(net)
        length = now["length"]
        last = step >= plan["stop"]
        if step > first and step % CHECK_EVERY == 0 or last:
            with torch.autocast("cpu", torch.bfloat16):
                val = validation_loss(net, check_ids, length)
                hits = {n: exact_match(net, tok, check_text, n, length - 32, 40) for n in (1, 2, 4)}
            train = sum(losses) / max(1, len(losses))
            print(f"step {step} tokens {seen} length {length} train {train:.4f} val {val:.4f} "
                  + " ".join(f"em{n} {h:.3f}" for n, h in hits.items())
                  + f" rate {rate(step, plan):.3f} seconds {time.time() - began:.0f}", file=log, flush=True)
            losses = []
            torch.save({"net": net.state_dict(), "opts": [o.state_dict() for o in opts],
                        "step": step, "seen": seen}, state)
            export.folder(net, kind, work / "tokenizer.json", work / kind)
        if last:
            break

        x, y, weight = batches.batch(step, TOKENS_PER_STEP // length, now)
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(*map(torch.from_numpy, (x, y, weight)))
        loss.backward()
        for o, lr in zip(opts, (MUON_LR, ADAM_LR)):
            for g in o.param_groups:
                g["lr"] = lr * rate(step, plan)
            o.step()
            o.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seen += x.size
        step += 1
        if step % 100 == 0:
            print(f"  {step} loss {sum(losses[-100:]) / len(losses[-100:]):.4f} "
                  f"tokens/s {TOKENS_PER_STEP * (step - first) / (time.time() - began):.0f}", file=log, flush=True)


if __name__ == "__main__":
    main()
