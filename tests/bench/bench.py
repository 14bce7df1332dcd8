"""Times diffquant against the bounds of this machine and against other programs.

    python3 tests/bench/bench.py build/release [-o bench.json] [--only NAME ...] [--runs 5]
        [--threads N] [--work FOLDER] [--llama FOLDER] [--python PYTHON]

prints one table and writes it as JSON. What is compared runs in turn, each at least five
times; a figure is the median of the ratios within a pair of runs, since machines are shared. Models
are random (models.py). FOLDER of --llama holds llama-bench, llama-quantize and
llama-perplexity of llama.cpp, PYTHON has torch and transformers; without them their rows are
left out.
"""
import argparse
import json
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time

import models

HERE = pathlib.Path(__file__).resolve().parent


class Bench:
    def __init__(self, options):
        self.build = pathlib.Path(options.build).resolve()
        self.llama = options.llama and pathlib.Path(options.llama).resolve()
        self.python = options.python
        self.work = pathlib.Path(options.work)
        self.runs, self.threads = options.runs, options.threads
        self.rows = []
        self.work.mkdir(parents=True, exist_ok=True)
        self.bounds = json.loads(self.output([self.build / "bounds", self.threads]))

    # --- running ---

    def output(self, command):
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                              env=os.environ | {"OMP_NUM_THREADS": str(self.threads)})
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def seconds(self, command):
        begin = time.monotonic()
        self.output(command)
        return time.monotonic() - begin

    def diffquant(self, *arguments):
        return self.output([self.build / "diffquant", *arguments, "--threads", self.threads, "-q"])

    def in_turn(self, *ways):
        """The figures of each way, called in turn so often."""
        found = [[] for _ in ways]
        for _ in range(self.runs):
            for figures, way in zip(found, ways):
                figures.append(way())
        return found

    # --- results ---

    def add(self, name, value, unit, against=None, ratio=None, goal=None):
        row = {"figure": name, "value": value, "unit": unit, "against": against, "ratio": ratio,
               "goal": goal}
        self.rows.append(row)
        shown = f"{name:<52} {value:>10.4g} {unit:<10}"
        if ratio is not None:
            shown += f" {ratio:>7.2f} of {against}" + (f" (goal {goal})" if goal else "")
        print(shown, flush=True)

    def compare(self, name, unit, ours, theirs, against, goal):
        a, b = self.in_turn(ours, theirs)
        ratio = statistics.median(x / y for x, y in zip(a, b))
        self.add(name, statistics.median(a), unit, against, ratio, goal)

    # --- what is run ---

    def model(self, name):
        folder = self.work / name
        if not (folder / "model.safetensors").exists():
            models.write(name, folder)
        return folder

    def tokens(self, n):
        path = self.work / f"tokens-{n}"
        if not path.exists():
            rng = random.Random(2)
            path.write_text(" ".join(str(rng.randrange(49152)) for _ in range(n)))
        return path

    def rate(self, model, context, n, *options):
        """Tokens a second, loading left out."""
        def run():
            out = self.diffquant("analyze", model, "--tokens", self.tokens(n), "--context",
                                 context, "--max-tokens", n, "--bos", "none", "--json", *options)
            result = json.loads(out)
            return result["tokens"] / result["seconds"]
        return run

    def gguf(self, name, kind):
        path = self.work / f"{name}-{kind}.gguf"
        if not path.exists():
            self.diffquant("quantize", self.model(name), "--gguf-type", kind, "-o", path)
        return path

    def llama_rate(self, gguf, context):
        def run():
            out = self.output([self.llama / "llama-bench", "-m", gguf, "-p", context, "-n", 0,
                               "-t", self.threads, "-r", 1, "-o", "json"])
            return json.loads(out)[0]["avg_ts"]
        return run


# --- the figures ---

def prefill(b):
    """Prompts: recording on, against llama.cpp without any."""
    ways = {"f32": ["--dtype", "f32"], "bf16": ["--dtype", "bf16"],
            "w4": ["--dtype", "bf16", "--weights", "w4:g32"],
            "w8": ["--dtype", "bf16", "--weights", "w8"]}
    peers = {"f32": ["F32"], "bf16": ["BF16"], "w4": ["Q4_0", "Q8_0"], "w8": ["Q4_0", "Q8_0"]}
    goals = {"f32": 2, "bf16": 5, "w4": 1.5, "w8": 1.5}
    for size in ["135", "1b"]:
        for context in [512, 2048]:
            n = 4 * context if size == "135" else context
            for way, options in ways.items():
                for kind in ["llama", "diff"]:
                    ours = b.rate(b.model(kind + size), context, n, *options)
                    name = f"prefill {kind}{size} {way}, context {context}, recording"
                    if kind == "diff" or not b.llama or size == "1b":
                        b.add(name, statistics.median(b.in_turn(ours)[0]), "tokens/s")
                        continue
                    for peer in peers[way]:
                        b.compare(name, "tokens/s", ours,
                                  b.llama_rate(b.gguf(kind + size, peer), context),
                                  f"llama.cpp {peer}", goals[way])


def record(b):
    """What recording costs."""
    for name in ["llama135", "diff135"]:
        for dtype in ["f32", "bf16"]:
            on = b.rate(b.model(name), 512, 2048, "--dtype", dtype)
            off = b.rate(b.model(name), 512, 2048, "--dtype", dtype, "--no-record")
            slow, fast = b.in_turn(on, off)
            ratio = statistics.median(f / s for s, f in zip(slow, fast))
            b.add(f"recording {name} {dtype}, context 512", statistics.median(slow), "tokens/s",
                  "time without", ratio, "1.05 at most")


def hooks(b):
    """All statistics, against transformers with hooks that gather them (hooks.py)."""
    if not b.python:
        return
    for name in ["llama135", "diff135"]:
        model, tokens = b.model(name), b.tokens(2048)

        def theirs():
            out = b.output([b.python, HERE / "hooks.py", model, tokens, 2048, 2048, b.threads])
            result = json.loads(out.splitlines()[-1])
            return result["tokens"] / result["seconds"]
        b.compare(f"analyze {name} f32, context 2048", "tokens/s", b.rate(model, 2048, 2048),
                  theirs, "transformers with hooks", 10)


def flops(name):
    """Multiplications and additions of one token of a prompt, products of weights alone."""
    kind, s = models.SHAPES[name]
    n = sum(d[0] * d[1] for t, d in models.tensors(kind, s) if len(d) > 1)
    return 2 * n


def arithmetic(b):
    """Share of what the registers can do."""
    for name in ["llama1b", "diff1b"]:
        for dtype in ["f32", "bf16"]:
            bound = b.bounds.get("amx_bf16", b.bounds.get("bf16", b.bounds["f32"])) \
                if dtype == "bf16" else b.bounds["f32"]
            rate = statistics.median(
                b.in_turn(b.rate(b.model(name), 512, 1024, "--dtype", dtype))[0])
            b.add(f"arithmetic {name} {dtype}, context 512", rate * flops(name) / 1e9,
                  "GFLOP/s", "the registers' rate", rate * flops(name) / bound,
                  "0.5" if dtype == "bf16" else None)


def memory(b):
    """Peak memory over the context."""
    peaks = {}
    for context in [8192, 16384, 32768, 65536]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        b.rate(b.model("llama135"), context, context, "--dtype", "bf16")()
        peaks[context] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        if peaks[context] <= before / 1024:
            peaks[context] = float("nan")   # an earlier run took more: not seen
        b.add(f"peak memory llama135 bf16, context {context}", peaks[context], "MiB")


def rounding(b):
    """Checkpoints by rounding, in bytes of input a second."""
    for name in ["llama135", "llama1b"]:
        model, out = b.model(name), b.work / "out"
        size = (model / "model.safetensors").stat().st_size

        def ours(*options):
            def run():
                target = out.with_suffix(".gguf") if "--gguf-type" in options else out
                command = [b.build / "diffquant", "quantize", model, "-o", target, "-f", "-q",
                           "--method", "rtn", "--threads", b.threads, *options]
                return size / b.seconds(command) / 1e9
            return run

        def copy():
            begin = time.monotonic()
            shutil.copyfile(model / "model.safetensors", b.work / "copy")
            return size / (time.monotonic() - begin) / 1e9

        for kind, goal in [("Q8_0", 10), ("Q4_0", 10), ("Q4_K_M", 5), ("Q6_K", 5)]:
            if not b.llama:
                b.add(f"quantize {name} {kind}",
                      statistics.median(b.in_turn(ours("--gguf-type", kind))[0]), "GB/s")
                continue
            f16 = b.gguf(name, "F16")

            def theirs():
                return size / b.seconds([b.llama / "llama-quantize", f16, b.work / "peer.gguf",
                                         kind, b.threads]) / 1e9
            b.compare(f"quantize {name} {kind}", "GB/s", ours("--gguf-type", kind), theirs,
                      "llama-quantize", goal)
        b.compare(f"quantize {name} Q8_0", "GB/s", ours("--gguf-type", "Q8_0"), copy,
                  "a copy of the file", 0.5)
        b.compare(f"quantize {name} compressed-tensors W4", "GB/s",
                  ours("--bits", 4, "--group", 32), copy, "a copy of the file", 0.5)


def generate(b):
    """Steps of one token: bytes of weights a second against what memory gives."""
    for name in ["llama135", "llama1b"]:
        folder = b.work / f"{name}-w4"
        if not folder.exists():
            b.diffquant("quantize", b.model(name), "--bits", 4, "--group", 128, "--method", "rtn",
                        "-o", folder)
        size = (folder / "model.safetensors").stat().st_size
        steps = 64

        def run(n):
            return b.seconds([b.build / "diffquant", "generate", folder, "--prompt", "The", "-n",
                              n, "-q", "--dtype", "bf16", "--threads", b.threads])
        few, many = b.in_turn(lambda: run(1), lambda: run(1 + steps))
        rate = statistics.median(steps / (m - f) for f, m in zip(few, many))
        b.add(f"generate {name} 4 bits", rate, "tokens/s", "the rate of reading memory",
              rate * size / b.bounds["read"], None)


FIGURES = {f.__name__: f for f in [prefill, record, hooks, arithmetic, memory, rounding,
                                  generate]}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("build", help="folder with diffquant and bounds")
    p.add_argument("-o", "--out", help="the table as JSON")
    p.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES))
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--work", default="/tmp/diffquant-bench", help="models and outputs, some GB")
    p.add_argument("--llama", help="folder of llama.cpp's programs")
    p.add_argument("--python", help="a Python with torch and transformers")
    options = p.parse_args()
    b = Bench(options)
    print(f"bounds of {options.threads} threads: " +
          ", ".join(f"{k} {v / 1e9:.1f} G/s" for k, v in b.bounds.items() if k != "threads"))
    for name in options.only:
        FIGURES[name](b)
    if options.out:
        cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if "model name" in l),
                   "unknown")
        pathlib.Path(options.out).write_text(json.dumps(
            {"cpu": cpu, "bounds": b.bounds, "figures": b.rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
