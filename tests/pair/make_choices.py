"""heldout.txt -> continuation.jsonl: which of four pieces of text goes on?

usage: make_choices.py HELDOUT.txt OUT.jsonl [ITEMS]

Contexts and continuations lie one after another along the text and never overlap. Four
items that have continuations of like length share them: each is the answer once and wrong
three times. So a model that looks at the choices alone gets one in four, exactly.
"""
import json
import random
import re
import sys

CONTEXT = 40        # words of context, at least; a continuation has the next WORDS
WORDS = 4
GROUP = 4


def pieces(text, n, rng):
    """n (context, continuation) from as many stretches of the text; both inside it. The
    continuation begins inside a paragraph and does not leave it."""
    words = [m.span() for m in re.finditer(r"\S+", text)]
    stretch = len(words) // n
    assert stretch > CONTEXT + WORDS
    for i in range(n):
        first, end = i * stretch, (i + 1) * stretch
        cuts = [c for c in range(first + CONTEXT, end - WORDS)
                if "\n\n" not in text[words[c - 1][1]:words[c + WORDS - 1][1]]]
        if cuts:
            c = rng.choice(cuts)
            begin = words[c - CONTEXT][0]
            yield text[begin:words[c - 1][1]], text[words[c][0]:words[c + WORDS - 1][1]]


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 400
    rng = random.Random("continuation")
    found = {p[1]: p for p in pieces(text, n, rng)}       # a continuation comes once
    found = sorted(found.values(), key=lambda p: len(p[1]))
    items = []
    for at in range(0, len(found) - GROUP + 1, GROUP):
        group = found[at:at + GROUP]
        for context, answer in group:
            choices = [p[1] for p in group]
            rng.shuffle(choices)
            items.append((text.index(context), context, choices, choices.index(answer)))
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        for i, (_, context, choices, answer) in enumerate(sorted(items)):
            out.write(json.dumps({"id": f"c{i:03d}", "context": context, "choices": choices,
                                  "answer": answer}, ensure_ascii=False) + "\n")
    print(f"{len(items)} items")


if __name__ == "__main__":
    main()
