"""Figures of prompts: their rate, what recording costs, what hooks in Python would cost, memory
over the context, and that threads change nothing."""
import filecmp
import json
import os

import models
from runs import HERE, best, over

# Options, llama.cpp's types held against, and by how much the best of them is to be passed.
WAYS = {"f32": (["--dtype", "f32"], ["F32"], 2),
        "bf16": (["--dtype", "bf16"], ["BF16"], 5),
        "w4": (["--dtype", "bf16", "--weights", "w4:g32"], ["Q4_0", "Q8_0"], 1.5),
        "w8": (["--dtype", "bf16", "--weights", "w8"], ["Q4_0", "Q8_0"], 1.5)}


def prefill(b):
    """Prompts with recording on, against llama.cpp without any, or what registers can do."""
    for size in b.sizes:
        for way, (_, kinds, _) in WAYS.items():
            with b.ggufs("llama" + size, kinds) as peers:
                for context in b.contexts:
                    prompts(b, "llama" + size, way, context, peers)
                    prompts(b, "diff" + size, way, context, [])


def prompts(b, name, way, context, peers):
    """llama-bench has no loss: its product with the vocabulary is of the last token alone."""
    options, kinds, goal = WAYS[way]
    n = 16 * b.contexts[0] if "135" in name else max(b.contexts)
    model, row = b.model(name), f"prefill {name} {way} {context}"
    plain, loss, *theirs = b.in_turn(
        b.rate(model, context, n, *options, "--no-loss"), b.rate(model, context, n, *options),
        *[b.llama_rate(peer, context, 0) for peer in peers])
    registers = rate_of_registers(b, way) / products(name)
    if peers:
        fastest, whose = best(*theirs), "llama.cpp " + "/".join(kinds)
        b.row(row, plain, "tok/s", over(plain, fastest), whose, at_least=goal)
        b.row(row + ", loss", loss, "tok/s", over(loss, fastest), whose)
    else:
        b.row(row, plain, "tok/s", [r / registers for r in plain], "registers' rate")
        b.row(row + ", loss", loss, "tok/s")
    if "1b" in name and way in ["f32", "bf16"]:
        b.row(f"products {name} {way} {context}", [r * products(name) / 1e9 for r in plain],
              "GFLOP/s", [r / registers for r in plain], "registers' rate",
              at_least=0.5 if way == "bf16" else None)


def products(name):
    """Multiplications and additions of a token's products with the layers' weights; neither the
    vocabulary's nor attention's are counted."""
    kind, s = models.SHAPES[name]
    return 2 * sum(d[0] * d[1] for t, d in models.tensors(kind, s)
                   if len(d) > 1 and "embed" not in t)


def rate_of_registers(b, way):
    return b.bounds["f32"] if way == "f32" else \
        b.bounds.get("amx_bf16", b.bounds.get("bf16", b.bounds["f32"]))


def record(b):
    """What recording costs, over as many tokens at every context."""
    n = 16 * b.contexts[0]
    for name in ["llama135", "diff135"]:
        for dtype in ["f32", "bf16"]:
            for context in b.contexts:
                ways = [b.rate(b.model(name), context, n, "--dtype", dtype, *off)
                        for off in [[], ["--no-record"]]]
                on, off = b.in_turn(*ways)
                b.row(f"record {name} {dtype} {context}", on, "tok/s", over(off, on),
                      "time without", at_most=1.05)


def hooks(b):
    """All statistics, against transformers with hooks that gather them (hooks.py)."""
    context = max(b.contexts)
    for name in ["llama135", "diff135"] if b.python else []:
        model, tokens = b.model(name), b.tokens(context)

        def theirs():
            out = b.output([b.python, HERE / "hooks.py", model, tokens, context, context,
                            b.threads])
            result = json.loads(out.splitlines()[-1])
            return result["tokens"] / result["seconds"]
        ours, peer = b.in_turn(b.rate(model, context, context), theirs)
        b.row(f"analyze {name} f32 {context}", ours, "tok/s", over(ours, peer),
              "transformers, hooks", at_least=10)


def memory(b):
    """Most memory over the context, and against what inspect says of it beforehand."""
    first = 128 if b.tiny else 1024 if b.quick else 8192
    contexts = [first << i for i in range(4)]
    found = [peak(b, "llama16", context, context) for context in contexts]
    grown = [(high - low) / (longer - shorter) * 1024 for low, high, shorter, longer
             in zip(found, found[1:], contexts, contexts[1:])]
    b.row("memory llama16 a token", [grown[-1]], "KiB", [grown[-1] / grown[0]],
          "that of 1/4 of it", at_most=1.1)
    for stream in [[], ["--stream"]]:
        peak(b, "llama135", b.contexts[0], 8 * b.contexts[0], *stream)


def peak(b, name, context, n, *stream):
    """MiB of a run in bf16 that no file backs: those that inspect tells of."""
    model, row = b.model(name), " ".join(["memory", name, str(context), *stream])
    said = json.loads(b.diffquant("inspect", model, "--context", context, "--max-tokens", n,
                                  "--json"))["memory"]
    stated = (said["bf16_stream" if stream else "bf16"]["peak"] +
              n * said["bytes_per_token"]) / 2**20
    whole, own = b.peak(b.analyze(model, context, n, "--dtype", "bf16", *stream))
    b.row(row, [whole], "MiB", [whole / stated], "inspect's estimate")
    b.row(row + ", own", [own], "MiB", [max(own / stated, stated / own)], "inspect's, either",
          at_most=1.1)
    return own


def threads(b):
    """Figures of one thread and of all: the same bytes. Threads are as many as CPUs are lent, so
    that the command, which is written down too, is one."""
    cpus = sorted(os.sched_getaffinity(0))
    for name in ["llama135", "diff135"]:
        for way, (options, _, _) in WAYS.items():
            for n in [1, len(cpus)]:
                folder = b.work / f"threads-{n}"
                folder.mkdir(exist_ok=True)
                (folder / "out.h5").unlink(missing_ok=True)
                b.output([b.build / "diffquant", "analyze", b.model(name), "--tokens",
                          b.tokens(2 * b.contexts[0]), "--bos", "none", "--context",
                          b.contexts[0], "-o", "out.h5", "-q", *options], cwd=folder,
                         preexec_fn=lambda: os.sched_setaffinity(0, cpus[:n]))
            files = [b.work / f"threads-{n}" / "out.h5" for n in [1, len(cpus)]]
            same = filecmp.cmp(*files, shallow=False)
            b.row(f"same bytes {name} {way}", [files[0].stat().st_size / 1024], "KiB",
                  [float(same)], f"1, {len(cpus)} threads", at_least=1)
