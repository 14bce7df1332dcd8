#!/usr/bin/env python3
"""lm-evaluation-harness over items of make_items.py.

    run_harness.py MODEL ITEMS OUT.json [--shots N] [--tasks a,b,...]

The tasks are those of the installed package, functions and templates untouched; only the
place of the data is another (dataset_path, dataset_name, dataset_kwargs). OUT.json has for
each task its figures and, for every item, [log-likelihood, greedy] of each choice.
"""
import argparse
import importlib.metadata
import json
import os
import pathlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

import lm_eval
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

TASKS = "hellaswag,arc_easy,arc_challenge,piqa,winogrande,boolq,openbookqa"


def local(manager, name, items):
    """The task's own configuration, with its splits in files."""
    config = dict(load_yaml(manager.task_index[name].yaml_path, resolve_func=True))
    scored = config.get("test_split") or config["validation_split"]
    files = {scored: str(items / f"{name}.jsonl"),
             config["training_split"]: str(items / f"{name}.train.jsonl")}
    if scored != config["validation_split"]:
        config["validation_split"] = None   # nothing is read from it
    config.update(dataset_path="json", dataset_name=None, dataset_kwargs={"data_files": files})
    config.pop("tag", None)
    return config


def figures(result, samples):
    names = ("acc", "acc_norm", "acc_stderr", "acc_norm_stderr")
    out = {n: result[n + ",none"] for n in names if n + ",none" in result}
    samples = sorted(samples, key=lambda s: s["doc_id"])
    out["items"] = [[[r[0][0], r[0][1]] for r in s["resps"]] for s in samples]
    out["correct"] = [[s["acc"], s.get("acc_norm")] for s in samples]
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("items", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--shots", type=int, default=0)
    p.add_argument("--tasks", default=TASKS)
    o = p.parse_args()
    manager = TaskManager()
    found = lm_eval.simple_evaluate(
        model="hf", device="cpu", batch_size=32, num_fewshot=o.shots, bootstrap_iters=0,
        model_args={"pretrained": o.model, "dtype": "float32"}, task_manager=manager,
        tasks=[local(manager, t, o.items) for t in o.tasks.split(",")])
    tasks = {t: figures(found["results"][t], found["samples"][t]) for t in found["samples"]}
    versions = {n: importlib.metadata.version(n) for n in ("lm_eval", "transformers", "torch")}
    o.out.write_text(json.dumps({"versions": versions, "shots": o.shots, "tasks": tasks}))


if __name__ == "__main__":
    main()
