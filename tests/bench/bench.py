"""Times diffquant against the bounds of this machine and against other programs.

    python3 tests/bench/bench.py build/release [-o bench.json] [--only PART ...] [--quick]
        [--sizes 135 1b] [--runs 5] [--threads N] [--work FOLDER]
        [--llama FOLDER] [--python PYTHON] [--gptq PYTHON] [--gptq-windows 16]
    python3 tests/bench/bench.py --note bench.json

prints one table and writes it as JSON; --note prints such a file as Markdown. What is compared
runs in turn, each at least five times; a ratio is the median of those within a round, since
machines are shared. A row that is short of its goal says so. Models are random (models.py).
FOLDER of --llama holds llama-bench, llama-quantize and llama-perplexity of llama.cpp; --python
has torch and transformers, --gptq has GPTQModel; rows against what is not there are left out.
"""
import argparse
import json
import os
import pathlib

import figures_files
import figures_prompt
import figures_score
import runs

PARTS = {part.__name__: part for part in [
    figures_prompt.threads, figures_prompt.prefill, figures_prompt.record, figures_prompt.hooks,
    figures_prompt.memory, figures_files.rounding, figures_files.gptq, figures_score.perplexity,
    figures_score.hellaswag, figures_score.generate, figures_files.build]}
MINUTES = ["gptq", "build"]   # what --quick leaves out


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("build", nargs="?", help="folder with diffquant and bounds")
    p.add_argument("-o", "--out", help="the table as JSON")
    p.add_argument("--note", metavar="JSON", help="print an earlier table as Markdown")
    p.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=" ".join(PARTS))
    p.add_argument("--quick", action="store_true",
                   help="three runs, 135 million weights, context 512, nothing of minutes")
    p.add_argument("--tiny", action="store_true",
                   help="sizes of no meaning, to see that all of it works")
    p.add_argument("--sizes", nargs="+", choices=["135", "1b"], help="of the models")
    p.add_argument("--runs", type=int)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--work", default="/tmp/diffquant-bench", help="models and outputs, some GB")
    p.add_argument("--llama", metavar="FOLDER", help="llama.cpp's programs")
    p.add_argument("--python", help="a Python with torch and transformers")
    p.add_argument("--gptq", metavar="PYTHON", help="a Python with GPTQModel")
    p.add_argument("--gptq-windows", type=int, default=16, metavar="N")
    options = p.parse_args()
    if not options.build and not options.note:
        p.error("a folder with diffquant and bounds, or --note")
    for program in ["diffquant", "bounds"] if not options.note else []:
        if not (pathlib.Path(options.build) / program).exists():
            p.error(f"{options.build}: no {program}; cmake --build {options.build} builds it")
    options.runs = options.runs or (1 if options.tiny else 3 if options.quick else 5)
    brief = options.quick or options.tiny
    options.only = options.only or [n for n in PARTS if not (brief and n in MINUTES)]
    return options


def measure(options):
    b = runs.Bench(options)
    print(*runs.heading(b.facts()), runs.HEAD, sep="\n", flush=True)
    for b.part in options.only:
        PARTS[b.part](b)
        if options.out:   # a later part may fail
            pathlib.Path(options.out).write_text(json.dumps(b.facts(), indent=1) + "\n")
    if options.tiny:
        return   # figures of no meaning have no goals
    missed = sum(row.get("met") is False for row in b.rows)
    judged = sum(row.get("met") is not None for row in b.rows)
    print(f"{missed} of {judged} goals not reached")


def note(facts):
    """For README.md."""
    print(*[f"{line}  " for line in runs.heading(facts)], sep="\n")
    print("\n| figure | value | ratio | against | goal |\n|---|---|---|---|---|")
    for row in facts["figures"]:
        ratio = runs.short(row["ratio"]) if "ratio" in row else ""
        print(f"| {row['figure']} | {runs.short(row['value'])} {row['unit']} | {ratio} | "
              f"{row.get('against') or ''} | {runs.goal(row)} |")


if __name__ == "__main__":
    given = arguments()
    if given.note:
        note(json.loads(pathlib.Path(given.note).read_text()))
    else:
        measure(given)
