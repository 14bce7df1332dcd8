#!/usr/bin/env python3
"""Perplexity of lm-evaluation-harness beside ours, page by page.

    run_rolling.py ROLLING_PROGRAM MODEL TEXT [PAGES]

The task is wikitext of the installed package, its pages cut from TEXT (default 6, from one
of a few tokens to one of many windows; words as the detokenizer leaves them). Prints the
three figures of each page by both; exit status 1 where any differs in its fifth digit.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

import lm_eval
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

LIMIT = 5e-6
FIGURES = ("word_perplexity", "byte_perplexity", "bits_per_byte")


def cut(text, n, detokenize):
    """Pages that the detokenizer leaves alone: 20 characters, then four times as many each."""
    out, at, size = [], 0, 20
    for i in range(n):
        page = text[at:at + size].replace("\n\n", "\n \n" if i % 2 else "\n\n")
        at, size = at + size, size * 4
        for _ in range(8):
            page = detokenize({"page": page})
        assert page == detokenize({"page": page}), "the detokenizer does not settle"
        out.append(page)
    return out


def theirs(config, pages, model, folder):
    file = pathlib.Path(folder, "pages.jsonl")
    file.write_text("".join(json.dumps({"page": p}) + "\n" for p in pages))
    config.update(dataset_path="json", dataset_name=None, training_split=None,
                  validation_split=None, dataset_kwargs={"data_files": {"test": str(file)}})
    found = lm_eval.simple_evaluate(
        model="hf", device="cpu", batch_size=1, bootstrap_iters=0, tasks=[config],
        model_args={"pretrained": model, "dtype": "float32"})
    samples = sorted(found["samples"]["wikitext"], key=lambda s: s["doc_id"])
    def figures(s):
        word, byte = s["word_perplexity"], s["byte_perplexity"]
        return {"word_perplexity": math.exp(-word[0] / word[1]),
                "byte_perplexity": math.exp(-byte[0] / byte[1]),
                "bits_per_byte": -byte[0] / byte[1] / math.log(2)}
    return [figures(s) for s in samples]


def ours(program, pages, model, folder):
    files = []
    for i, page in enumerate(pages):
        files.append(pathlib.Path(folder, f"{i}.txt"))
        files[-1].write_bytes(page.encode("utf-8"))
    out = subprocess.run([program, model, *files], check=True, capture_output=True)
    return json.loads(out.stdout)


def main():
    program, model, path = sys.argv[1:4]
    n = int(sys.argv[4]) if len(sys.argv) > 4 else 6
    entry = TaskManager().task_index["wikitext"]
    config = dict(load_yaml(entry.yaml_path, resolve_func=True))
    config.pop("tag", None)
    text = pathlib.Path(path).read_text(encoding="utf-8")
    pages = cut(text, n, config["doc_to_target"])
    with tempfile.TemporaryDirectory() as folder:
        a, b = theirs(config, pages, model, folder), ours(program, pages, model, folder)
    worst = 0.0
    for page, x, y in zip(pages, a, b):
        for name in FIGURES:
            d = abs(x[name] - y[name]) / abs(x[name])
            worst = max(worst, d if d == d else float("inf"))
            print(f"{len(page):6} characters  {name:15} harness {x[name]:.8g} ours {y[name]:.8g}")
    print(f"{model}: largest relative difference {worst:.1e}")
    sys.exit(not worst <= LIMIT)


if __name__ == "__main__":
    main()
