"""What people do without diffquant: transformers, eager attention, and hooks that collect the
statistics of `diffquant analyze`. Prints seconds and peak memory as JSON.

    python hooks.py MODEL TOKENS CONTEXT N THREADS [--no-record]

Logits are seen where eager attention calls softmax; hidden states by forward hooks.
"""
import json
import resource
import sys
import time

import torch
import transformers

BINS, PEAKS = 65280, 100


class Values:
    """Statistics of values that arrive in pieces: those of record.h."""

    def __init__(self):
        self.hist = torch.zeros(BINS, dtype=torch.int64)
        self.moments = torch.zeros(5, dtype=torch.float64)
        self.peaks = torch.zeros(0)
        self.channel = None
        self.least, self.most = float("inf"), float("-inf")

    def add(self, x):
        """x [..., channels]; -inf is masked."""
        seen = x[torch.isfinite(x)]
        bits = seen.view(torch.int32) & 0x7FFFFFFF
        self.hist += torch.bincount(bits >> 15, minlength=BINS)[:BINS]
        wide = seen.double()
        mean = wide.mean()
        t = wide - mean
        self.moments += torch.stack([torch.tensor(float(t.numel())), wide.sum(), (t * t).sum(),
                                     (t ** 3).sum(), (t ** 4).sum()])
        self.least = min(self.least, seen.min().item())
        self.most = max(self.most, seen.max().item())
        size = seen.abs()
        top = torch.cat([self.peaks, size.topk(min(PEAKS, size.numel())).values])
        self.peaks = top.topk(min(PEAKS, top.numel())).values
        channel = torch.nan_to_num(x, neginf=0).abs().flatten(0, -2).amax(0)
        if self.channel is None or self.channel.shape != channel.shape:
            self.channel = channel
        else:
            self.channel = torch.maximum(self.channel, channel)


def main():
    path, tokens, context, n, threads = sys.argv[1:6]
    context, n = int(context), int(n)
    torch.set_num_threads(int(threads))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.tensor([int(t) for t in open(tokens).read().split()[:n]])
    logits, hidden = {}, {}
    at = [0]
    softmax = torch.nn.functional.softmax

    def recorded(x, *args, **kwargs):
        # The mask adds the least float: nothing that is seen is as small.
        logits.setdefault(at[0], Values()).add(
            torch.where(x < -1e30, float("-inf"), x.float()))
        return softmax(x, *args, **kwargs)

    def after(index):
        def hook(module, inputs, output):
            hidden.setdefault(index, Values()).add(
                (output[0] if isinstance(output, tuple) else output).float())
            at[0] = index + 1
        return hook

    if "--no-record" not in sys.argv:
        torch.nn.functional.softmax = recorded
        for i, layer in enumerate(model.model.layers):
            layer.register_forward_hook(after(i))
    begin = time.monotonic()
    total = 0.0
    with torch.inference_mode():
        for start in range(0, len(ids), context):
            window = ids[start:start + context]
            at[0] = 0
            out = model(window[None], use_cache=False).logits[0, :-1]
            total += torch.nn.functional.cross_entropy(out, window[1:], reduction="sum").item()
    print(json.dumps({"tokens": len(ids), "seconds": time.monotonic() - begin,
                      "nll": total / (len(ids) - 1),
                      "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                      "top": max((v.peaks[0].item() for v in logits.values()), default=None)}))


if __name__ == "__main__":
    main()
