"""What bench.py's figures share: programs run in turn and timed, models, and the table's rows."""
import contextlib
import datetime
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import models

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SETS = ["avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16",
        "amx_tile", "amx_bf16", "amx_int8"]
HEAD = f"{'figure':<38} {'value':>7} {'unit':<8} {'ratio':>6}    {'against':<19} goal"


def over(ours, theirs):
    """Ratios within a round: machines are shared, and a round sees the same of it."""
    return [x / y for x, y in zip(ours, theirs)]


def best(*ways):
    return [max(rates) for rates in zip(*ways)]


def short(x):
    """Three digits, whole numbers in full."""
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:.3g}" if abs(x) >= 0.1 else f"{x:.2g}"


def cpu():
    lines = dict(l.split(":", 1) for l in open("/proc/cpuinfo") if ":" in l)
    lines = {k.strip(): v.strip() for k, v in lines.items()}
    flags = lines.get("flags", "").split()
    return {"name": lines.get("model name", "unknown"), "sets": [s for s in SETS if s in flags],
            "family": "{cpu family}.{model}".format_map(lines) if "model" in lines else ""}


class Bench:
    def __init__(self, options):
        self.build = pathlib.Path(options.build).resolve()
        self.llama = options.llama and pathlib.Path(options.llama).resolve()
        self.python, self.gptq = program(options.python), program(options.gptq)
        self.gptq_windows = options.gptq_windows
        self.tiny, self.quick = options.tiny, options.quick or options.tiny
        self.work = pathlib.Path(options.work).resolve() / ("tiny" if self.tiny else ".")
        self.runs, self.threads = options.runs, options.threads
        self.sizes = options.sizes or (["135"] if self.quick else ["135", "1b"])
        self.contexts = [64] if self.tiny else [512] if self.quick else [512, 2048]
        self.part, self.rows = None, []
        self.work.mkdir(parents=True, exist_ok=True)
        self.bounds = json.loads(self.output([self.build / "bounds", self.threads]))
        self.versions = self.find_versions()

    # --- running ---

    def environment(self):
        """As users have it: no other word to OpenMP than the number of threads."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
        return own | {"OMP_NUM_THREADS": str(self.threads), "CUDA_VISIBLE_DEVICES": ""}

    def output(self, command, **options):
        """What a program prints; its messages too where stderr=subprocess.STDOUT."""
        options = {"stderr": subprocess.PIPE} | options
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True,
                              env=self.environment(), errors="replace", **options)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout)[-500:]}")
        return done.stdout

    def seconds(self, command):
        return self.timed(self.output, command)

    def timed(self, way, *arguments):
        begin = time.monotonic()
        way(*arguments)
        return time.monotonic() - begin

    def command(self, *arguments):
        return [self.build / "diffquant", *arguments, "--threads", self.threads, "-q"]

    def diffquant(self, *arguments):
        return self.output(self.command(*arguments))

    def peak(self, command):
        """Most memory of a process in MiB: all of it, and without pages of files, which the
        system may drop. Looked at often: what wait4 tells of a child counts from before its
        exec, when it was this program."""
        with tempfile.TemporaryFile() as messages:
            child = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL,
                                     stderr=messages, env=self.environment())
            whole, own = 0, 0
            while child.poll() is None:
                is_now = status(child.pid)
                whole = max(whole, is_now.get("VmHWM", 0))
                own = max(own, is_now.get("RssAnon", 0))
                time.sleep(0.005)
            if child.returncode:
                messages.seek(0)
                sys.exit(f"{' '.join(map(str, command))}: {messages.read()[-500:]}")
        return whole / 1024, own / 1024

    def in_turn(self, *ways, runs=None):
        """The figures of each way, called in turn so often."""
        found = [[] for _ in ways]
        for _ in range(runs or self.runs):
            for figures, way in zip(found, ways):
                figures.append(way())
        return found

    # --- results ---

    def row(self, name, values, unit, ratios=None, against=None, at_least=None, at_most=None):
        """values and ratios: one a run. Without a goal a row says what is."""
        row = {"part": self.part, "figure": name, "value": statistics.median(values),
               "unit": unit, "values": values}
        if self.tiny:
            at_least = at_most = None
        if ratios is not None:
            ratio = statistics.median(ratios)
            met = None
            if at_least is not None or at_most is not None:   # NaN meets nothing
                met = ratio >= at_least if at_most is None else ratio <= at_most
            row |= {"ratio": ratio, "against": against, "at_least": at_least,
                    "at_most": at_most, "met": met, "ratios": ratios}
        self.rows.append(row)
        print(line(row), flush=True)

    # --- what is run ---

    def model(self, name):
        folder = self.work / name
        if not (folder / "model.safetensors").exists():
            models.write(name, folder, self.tiny)
        return folder

    def tokens(self, n):
        path = self.work / f"tokens-{n}"
        if not path.exists():
            rng = random.Random(2)
            path.write_text(" ".join(str(rng.randrange(models.N_IDS)) for _ in range(n)))
        return path

    def text(self, n_bytes):
        """The beginning of a text in English."""
        path = self.work / f"text-{n_bytes}"
        whole = (ROOT / "tests/pair/heldout.txt").read_bytes()
        path.write_text(whole[:n_bytes].decode(errors="ignore"))
        return path

    def analyze(self, model, context, n, *options):
        return self.command("analyze", model, "--tokens", self.tokens(n), "--context", context,
                            "--max-tokens", n, "--bos", "none", "--json", *options)

    def rate(self, model, context, n, *options):
        """A way to tokens a second, loading left out."""
        def run():
            result = json.loads(self.output(self.analyze(model, context, n, *options)))
            return result["tokens"] / result["seconds"]
        return run

    def gguf(self, name, kind):
        path = self.work / f"{name}-{kind}.gguf"
        if not path.exists():
            self.diffquant("quantize", self.model(name), "--gguf-type", kind, "-o", path)
        return path

    @contextlib.contextmanager
    def ggufs(self, name, kinds):
        """Files that are there within a `with`: of a large model they go again."""
        paths = [self.gguf(name, kind) for kind in kinds] if self.llama else []
        yield paths
        for path in paths:
            if path.stat().st_size > 600e6:
                path.unlink()

    def llama_rate(self, gguf, prompt, steps):
        """A way to llama.cpp's tokens a second, of a prompt or of steps of generation."""
        def run():
            out = self.output([self.llama / "llama-bench", "-m", gguf, "-p", prompt, "-n", steps,
                               "-t", self.threads, "-r", 1, "-o", "json"])
            return json.loads(out)[0]["avg_ts"]
        return run

    # --- of what ---

    def find_versions(self):
        found = {"diffquant": self.output([self.build / "diffquant", "--version"]).split()[-1]}
        git = shutil.which("git") and subprocess.run(
            ["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True,
            text=True).stdout.strip()
        if git:
            found["diffquant"] += f" ({git})"
        if self.llama:
            gguf = self.work / "version.gguf"
            self.diffquant("quantize", ROOT / "tests/pair/base", "--gguf-type", "F16", "-f",
                           "-o", gguf)
            it = json.loads(self.output([self.llama / "llama-bench", "-m", gguf, "-p", 1, "-n",
                                         0, "-r", 1, "-o", "json"]))[0]
            ggml = [p.name.split(".so.")[1] for p in self.llama.glob("libggml-base.so.*.*")]
            found["llama.cpp"] = f"build {it['build_number']} ({it['build_commit']})" + \
                "".join(f", ggml {v}" for v in ggml[:1])
        for python, names in [(self.python, ["torch", "transformers"]),
                              (self.gptq, ["torch", "gptqmodel"])]:
            if python:
                code = f"from importlib.metadata import version as v; print(*map(v, {names}))"
                found |= zip(names, self.output([python, "-c", code]).split())
        return found

    def facts(self):
        return {"date": datetime.date.today().isoformat(), "cpu": cpu(), "threads": self.threads,
                "runs": self.runs, "bounds": self.bounds, "versions": self.versions,
                "figures": self.rows}


def program(name):
    """From any folder; a link stays one, since a virtual environment's Python is."""
    return name and os.path.abspath(shutil.which(name) or name)


def status(pid):
    """What the system says of a process, in KiB."""
    with contextlib.suppress(OSError):
        lines = [l.split() for l in open(f"/proc/{pid}/status")]
        return {l[0][:-1]: int(l[1]) for l in lines if l[-1] == "kB"}
    return {}


def goal(row):
    """A row's goal, and 'short' where it is not reached."""
    if row.get("met") is None:
        return ""
    sense = f">= {row['at_least']:g}" if row["at_least"] is not None else f"<= {row['at_most']:g}"
    return sense if row["met"] else f"{sense} short"


def line(row):
    shown = f"{row['figure']:<38} {short(row['value']):>7} {row['unit']:<8}"
    if "ratio" in row:
        shown += f" {short(row['ratio']):>6} of {row['against']:<19} {goal(row)}"
    return shown.rstrip()


def heading(facts):
    """What the figures are of: lines of 100 columns at most."""
    c = facts["cpu"]
    yield f"{c['name']} ({c['family']}), {facts['threads']} threads: {' '.join(c['sets'])}"
    bounds = {k: v / 1e9 for k, v in facts["bounds"].items() if k != "threads"}
    yield "at most: " + ", ".join(f"{k} {v:.4g} {'GB' if k in ('copy', 'read') else 'Gop'}/s"
                                  for k, v in bounds.items())
    for name, version in facts["versions"].items():
        yield f"{name} {version}"
    yield f"{facts['date']}, medians of {facts['runs']} runs in turn"
