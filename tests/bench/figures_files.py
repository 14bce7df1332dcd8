"""Figures of files: checkpoints by rounding and by GPTQ, and the program's own build."""
import json
import os
import shutil
import tempfile
import time

from runs import HERE, ROOT, over


def rounding(b):
    """Checkpoints by rounding, in bytes of input a second: against llama-quantize and a copy."""
    for size in b.sizes:
        name = "llama" + size
        with b.ggufs(name, ["F16"]) as f16:
            for kind, goal in [("Q8_0", 10), ("Q4_0", 10), ("Q4_K_M", 5), ("Q6_K", 5)]:
                round_to(b, name, kind, ["--gguf-type", kind], f16, goal)
            round_to(b, name, "W4", ["--method", "rtn", "--bits", 4, "--group", 32], [], None)


def round_to(b, name, kind, options, f16, goal):
    model, row = b.model(name), f"quantize {name} {kind}"
    source = model / "model.safetensors"
    out = b.work / ("out.gguf" if "--gguf-type" in options else "out")
    size = source.stat().st_size / 1e9

    def ours():
        return size / b.seconds(b.command("quantize", model, "-o", out, "-f", *options))

    def copy():
        begin = time.monotonic()
        shutil.copyfile(source, b.work / "copy")
        return size / (time.monotonic() - begin)

    def theirs():
        return size / b.seconds([b.llama / "llama-quantize", *f16, b.work / "peer.gguf", kind,
                                 b.threads])
    rates, copies, *peer = b.in_turn(ours, copy, *[theirs for _ in f16])
    if peer:
        b.row(row, rates, "GB/s", over(rates, peer[0]), "llama-quantize", at_least=goal)
    b.row(row, rates, "GB/s", over(rates, copies), "copying the file",
          at_least=0.5 if kind in ["Q8_0", "Q4_0", "W4"] else None)


def gptq(b):
    """GPTQ of 4 bits in groups of 64 on the same windows, against GPTQModel (gptq_peer.py)."""
    windows, context = (2, 64) if b.tiny else (b.gptq_windows, 512)
    model, text, out, peer = b.model("llama135"), windows_text(b, windows), b.work / "gptq", \
        b.work / "gptq-peer"

    def ours():
        return windows * context / b.seconds(gptq_command(b, model, text, windows, context, out))

    def theirs():
        return windows * context / peer_seconds(b, model, text, windows, context, peer)
    rates, *other = b.in_turn(ours, *[theirs for _ in [0] if b.gptq])
    b.row(f"gptq llama135, {windows} x {context}", rates, "tok/s",
          *([over(rates, other[0]), "GPTQModel"] if other else []), at_least=5)
    if b.gptq:
        accuracy(b, min(windows, 96), context)


def accuracy(b, windows, context):
    """Of the trained pair's baseline, since random weights have none to lose."""
    base, text, left = ROOT / "tests/pair/base", windows_text(b, windows), b.work / "text-left"
    ours, theirs = b.work / "gptq-base", b.work / "gptq-base-peer"
    left.write_text((ROOT / "tests/pair/heldout.txt").read_text()[-60000:])
    b.output(gptq_command(b, base, text, windows, context, ours))
    peer_seconds(b, base, text, windows, context, theirs)
    a, c = [json.loads(b.diffquant("eval", folder, "--text", left, "--logit-bits", 16, "--json"))
            ["accuracy"][0]["perplexity"] for folder in [ours, theirs]]
    b.row("gptq pair/base, perplexity", [a], "", [a / c], "GPTQModel's", at_most=1)


def windows_text(b, windows):
    """Windows of 512 tokens and little more: what follows them would be scored."""
    return b.text(1835 * windows)


def gptq_command(b, model, text, windows, context, out):
    return b.command("quantize", model, "--method", "gptq", "--bits", 4, "--group", 64, "--text",
                     text, "--windows", windows, "--context", context, "--dtype", "bf16", "-f",
                     "-o", out)


def peer_seconds(b, *arguments):
    """Of the program, but for its imports. It leaves logs where it runs."""
    out = b.output([b.gptq, HERE / "gptq_peer.py", *arguments, b.threads], cwd=b.work)
    return json.loads(out.splitlines()[-1])["seconds"]


def build(b):
    """The program alone, from nothing, on all cores."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []

    def run():
        with tempfile.TemporaryDirectory() as folder:
            return b.seconds(["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
                              "-DDQ_CUDA=OFF", *generator]) + \
                b.seconds(["cmake", "--build", folder, "--target", "diffquant", "-j",
                           len(os.sched_getaffinity(0))])
    seconds, = b.in_turn(run)
    b.row("build from nothing, without CUDA", seconds, "s", [s / 120 for s in seconds],
          "two minutes", at_most=1)
