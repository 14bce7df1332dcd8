#!/usr/bin/env python3
"""Some of the items with the harness's figures for the example pair, for CI.

    make_golden.py ITEMS DIFF.json BASE.json FOLDER

DIFF.json and BASE.json are of run_harness.py, without shots, for tests/pair. ARC-Challenge
has the layout of ARC-Easy and is left out. Items whose verdict hangs on less than f32 can
tell are not taken, but for choices that are equal.
"""
import json
import pathlib
import sys

TASKS = ("hellaswag", "arc_easy", "piqa", "winogrande", "boolq", "openbookqa")
WANTED = 18
LONG = 226          # items from here on: contexts of 511 tokens and more
MARGIN = 1e-4


def close(logliks, choices):
    """Two different choices nearly alike, by their sums or per character?"""
    for scale in ([1] * len(logliks), [len(c) for c in choices]):
        v = sorted((x / s, c) for (x, _), s, c in zip(logliks, scale, choices))[-2:]
        if v[0][1] != v[1][1] and abs(v[0][0] - v[1][0]) < MARGIN * abs(v[1][0]):
            return True
    return False


def choices_of(item):
    for keys in (("sol1", "sol2"), ("option1", "option2")):
        if keys[0] in item:
            return [item[k] for k in keys]
    return item.get("endings") or (item["choices"]["text"] if "choices" in item else ["no", "yes"])


def main():
    items, diff, base, folder = sys.argv[1:]
    runs = {"diff": json.load(open(diff)), "base": json.load(open(base))}
    assert all(r["shots"] == 0 for r in runs.values())
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    golden = {"versions": runs["diff"]["versions"], "diff": {}, "base": {}}
    for task in TASKS:
        lines = pathlib.Path(items, f"{task}.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
        good = [i for i, line in enumerate(lines)
                if not any(close(r["tasks"][task]["items"][i], choices_of(json.loads(line)))
                           for r in runs.values())]
        # The traps recur in the first hundred; then the two sides of the longest context.
        short = [i for i in good if i < 100]
        kept = short[::max(1, len(short) // WANTED)][:WANTED]
        kept += [i for i in (4, 10, 15, 54, 64) if i in good and i not in kept]
        kept += [i for i in good if i >= LONG][:2]
        kept = sorted(kept)
        (folder / f"{task}.jsonl").write_text("".join(lines[i] + "\n" for i in kept), encoding="utf-8")
        for name, r in runs.items():
            t = r["tasks"][task]
            golden[name][task] = {
                "loglik": [round(x, 6) for i in kept for x, _ in t["items"][i]],
                "greedy": [int(g) for i in kept for _, g in t["items"][i]],
                "acc": [int(t["correct"][i][0]) for i in kept],
                "acc_norm": [int(t["correct"][i][1]) for i in kept] if "acc_norm" in t else []}
    (folder / "expected.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
