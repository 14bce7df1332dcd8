#!/usr/bin/env python3
"""Perplexity of the pair's models under every method of `diffquant quantize`.

    methods.py PROGRAM [METHOD...]       default: all rows

Calibrates on the first 64 windows of heldout.txt, checks with the windows after them,
and prints one row a method: perplexity, and its rise over the unquantized model in
percent, per channel and in groups of 64. Needs nothing but the program.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TEXT = ["--text", str(HERE / "heldout.txt"), "--windows", "64"]
METHODS = {
    "rtn": ["--method", "rtn"],
    "clip": ["--method", "clip"],
    "awq": ["--method", "rtn", "--awq"],
    "awq + clip": ["--method", "clip", "--awq"],
    "gptq": ["--method", "gptq"],
    "awq + gptq": ["--method", "gptq", "--awq"],
    "rotate + rtn": ["--method", "rtn", "--rotate"],
    "rotate + gptq": ["--method", "gptq", "--rotate"],
}
WIDTHS = [("4", "channel"), ("4", "64"), ("6", "channel"), ("8", "channel")]


def run(program, model, bits, group, options):
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "quantize", HERE / model, "--bits", bits, "--group", group,
                   "--json", "--quiet", "-o", pathlib.Path(folder, "out"), *TEXT, *options]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main():
    program, *names = sys.argv[1:]
    head = "  ".join(f"{bits} bits {group:>7}" for bits, group in WIDTHS)
    print(f"model  method         {head}")
    for model in ("diff", "base"):
        for name in names or METHODS:
            cells = []
            for bits, group in WIDTHS:
                r = run(program, model, bits, group, METHODS[name])
                rise = 100 * (r["perplexity_after"] / r["perplexity_before"] - 1)
                cells.append(f"{r['perplexity_after']:6.2f} {rise:+6.2f} %")
            print(f"{model:5}  {name:13}  {'  '.join(cells)}", flush=True)
        print(f"{model:5}  unquantized    {r['perplexity_before']:6.2f}", flush=True)


if __name__ == "__main__":
    main()
