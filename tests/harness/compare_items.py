#!/usr/bin/env python3
"""Figures of run_harness.py beside those of choices: compare_items.py HARNESS.json OURS.json

One line a task: items, requests, the largest relative difference of a log-likelihood, acc
and acc_norm of both. Names every request above the limit, every other verdict on an item
and every other answer to "greedy". Exit status 1 where there is any.
"""
import json
import sys

LIMIT = 1e-4


def relative(a, b):
    d = abs(a - b) / max(abs(a), abs(b), 1e-30)
    return d if d == d else float("inf")   # NaN must not pass for equal


def compare(task, theirs, ours):
    bad, worst, n = [], 0.0, 0
    if [len(x) for x in theirs["items"]] != [len(x) for x in ours["items"]]:
        return [f"{task}: other numbers of items or choices"], 0.0, 0
    for i, (x, y) in enumerate(zip(theirs["items"], ours["items"])):
        for j, ((a, ga), (b, gb)) in enumerate(zip(x, y)):
            n += 1
            d = relative(a, b)
            worst = max(worst, d)
            if not d <= LIMIT:
                bad.append(f"{task} item {i} choice {j}: harness {a:.6f}, ours {b:.6f}")
            if ga != gb:
                bad.append(f"{task} item {i} choice {j}: greedy {ga}, ours {gb}")
    norm = "acc_norm" in theirs
    for i, (x, y) in enumerate(zip(theirs["correct"], ours["correct"])):
        if x[0] != y[0] or (norm and x[1] != y[1]):
            bad.append(f"{task} item {i}: harness {x}, ours {y}: {theirs['items'][i]}")
    return bad, worst, n


def main():
    theirs, ours = (json.load(open(p)) for p in sys.argv[1:3])
    assert theirs["shots"] == ours["shots"]
    print(theirs["versions"], theirs["shots"], "shots")
    failed = []
    for task, a in theirs["tasks"].items():
        b = ours["tasks"][task]
        bad, worst, n = compare(task, a, b)
        for name in ("acc", "acc_norm"):
            if name in a and not abs(a[name] - b.get(name, -1)) < 1e-9:
                bad.append(f"{task}: {name} {a[name]}, ours {b.get(name)}")
        print(f"{task:14} {len(a['items'])} items {n} requests ({b['truncated']} truncated): "
              f"largest difference {worst:.1e}; acc {a['acc']:.4f} {b['acc']:.4f}"
              + (f"; acc_norm {a['acc_norm']:.4f} {b['acc_norm']:.4f}" if "acc_norm" in a else ""))
        failed += bad
    for line in failed[:60]:
        print(line)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
