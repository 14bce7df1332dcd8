"""Figures of scoring and of generation: perplexity, HellaSwag, memory of both, steps."""
import json
import re
import subprocess

from runs import ROOT, over

SCORE = ["--dtype", "bf16", "--weights", "fp", "--logit-bits", 16, "--json"]


def perplexity(b):
    """Of one text and by one convention, against llama.cpp in f16: with loading and without,
    and the figure itself."""
    context = b.contexts[0]
    n = (4 if b.quick else 16) * context
    model, text, found = b.model("llama135"), b.text(12 * n), {}

    def ours(n):
        out = b.diffquant("eval", model, "--text", text, "--context", context, "--max-tokens", n,
                          *SCORE, "--convention", "llama.cpp")
        found["ours"] = json.loads(out)["accuracy"][0]["perplexity"]

    def theirs(n, gguf):
        out = b.output([b.llama / "llama-perplexity", "-m", gguf, "-f", text, "-c", context,
                        "--chunks", n // context, "-t", b.threads], stderr=subprocess.STDOUT)
        found["theirs"] = float(re.search(r"Final estimate: PPL = ([\d.]+)", out)[1])

    with b.ggufs("llama135", ["F16"]) as f16:
        ways = [lambda n=n: b.timed(ours, n) for n in [context, n]]
        ways += [lambda n=n: b.timed(theirs, n, f16[0]) for n in [context, n] if f16]
        few, many, *peer = b.in_turn(*ways)
    whole = [n / s for s in many]
    loaded = [(n - context) / (s - f) for f, s in zip(few, many)]
    if peer:
        peer_whole = [n / s for s in peer[1]]
        peer_loaded = [(n - context) / (s - f) for f, s in zip(*peer)]
        b.row("perplexity", whole, "tok/s", over(whole, peer_whole), "llama.cpp f16", at_least=3)
        b.row("perplexity, loaded", loaded, "tok/s", over(loaded, peer_loaded), "llama.cpp f16",
              at_least=3)
        ratio = found["ours"] / found["theirs"]
        b.row("perplexity itself", [found["ours"]], "", [max(ratio, 1 / ratio)],
              "llama.cpp's, either", at_most=1.01)
    else:
        b.row("perplexity", whole, "tok/s")
        b.row("perplexity, loaded", loaded, "tok/s")
    memory_row(b, "perplexity", model, b.command(
        "eval", model, "--text", text, "--context", context, "--max-tokens", n, *SCORE))


def hellaswag(b):
    """Tasks of HellaSwag's form, cut from a text, against llama.cpp in f16."""
    n = 4 if b.tiny else 10 if b.quick else 40
    model, (lines, text) = b.model("llama135"), tasks(b, n)
    command = b.command("eval", model, "--task", lines, *SCORE)
    with b.ggufs("llama135", ["F16"]) as f16:
        peers = [lambda: n / b.seconds([b.llama / "llama-perplexity", "-m", *f16, "-f", text,
                                        "--hellaswag", "--hellaswag-tasks", n, "-t", b.threads])
                 for _ in f16]
        rates, *peer = b.in_turn(lambda: n / b.seconds(command), *peers)
    b.row("hellaswag", rates, "tasks/s",
          *([over(rates, peer[0]), "llama.cpp f16"] if peer else []), at_least=3)
    memory_row(b, "hellaswag", model, command)


def tasks(b, n):
    """n tasks as HellaSwag is published, and as llama-perplexity reads it: a context of 40 words
    and four endings of 20, the lengths of HellaSwag's."""
    lines, text = b.work / f"hellaswag-{n}.jsonl", b.work / f"hellaswag-{n}.txt"
    words = (ROOT / "tests/pair/heldout.txt").read_text().split()
    ours, theirs = [], []
    for i in range(n):
        at, label = 200 * i, i % 4
        begin = " ".join(words[at:at + 40])
        endings = [" ".join(words[j:j + 20]) for j in range(at + 60, at + 140, 20)]
        endings[label] = " ".join(words[at + 40:at + 60])
        ours.append({"ind": i, "activity_label": "Reading", "ctx_a": begin, "ctx_b": "",
                     "endings": endings, "label": label})
        theirs += [f"Reading: {begin}", str(label), *endings]
    lines.write_text("".join(json.dumps(task) + "\n" for task in ours))
    text.write_text("".join(line + "\n" for line in theirs))
    return lines, text


def memory_row(b, name, model, command):
    """Most memory, and what of it is no file's, against the checkpoint's size and 300 MiB."""
    bound = (model / "model.safetensors").stat().st_size / 2**20 + 300
    for what, mib in zip(["memory", "memory, own"], b.peak(command)):
        b.row(f"{name}: {what}", [mib], "MiB", [mib / bound], "model + 300 MiB", at_most=1)


def generate(b):
    """Steps of one token: bytes of weights a second against what memory gives, and against
    llama.cpp. The tied embedding is read once a step, as the head."""
    for size in b.sizes:
        name = "llama" + size
        for bits, kind in [(4, "Q4_0"), (8, "Q8_0"), (16, "BF16")]:
            folder, row = packed(b, name, bits), f"generate {name} {bits} bits"
            rates, *peer = step_rates(b, folder, name, kind)
            bound = b.bounds["read"] / data_bytes(folder)
            b.row(row, rates, "tok/s", [rate / bound for rate in rates], "reading memory")
            if peer:
                b.row(row, rates, "tok/s", over(rates, peer[0]), f"llama.cpp {kind}")


def packed(b, name, bits):
    folder = b.work / f"{name}-w{bits}"
    if bits == 16:
        return b.model(name)
    if not folder.exists():
        b.diffquant("quantize", b.model(name), "--bits", bits, "--group", 64, "--method", "rtn",
                    "-o", folder)
    return folder


def step_rates(b, folder, name, kind):
    """Tokens a second of steps past the first, ours and llama.cpp's."""
    steps = 8 if b.tiny else 64

    def ours():
        said = json.loads(b.output(b.command("generate", folder, "--prompt", "The", "-n",
                                             1 + steps, "--dtype", "bf16", "--json")))
        return (len(said["ids"]) - 1) / said["step_seconds"]   # fewer where a text ends
    ours()   # a checkpoint just written is slow to read at first
    with b.ggufs(name, [kind]) as gguf:
        return b.in_turn(ours, *[b.llama_rate(path, 0, steps) for path in gguf])


def data_bytes(folder):
    """Of the tensors in a checkpoint of one file."""
    with open(folder / "model.safetensors", "rb") as f:
        header = int.from_bytes(f.read(8), "little")
        return f.seek(0, 2) - 8 - header
