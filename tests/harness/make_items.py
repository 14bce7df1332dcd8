#!/usr/bin/env python3
"""Items by hand in the layouts of seven tasks, for both programs to score.

    make_items.py TOKENIZER.json TEXT FOLDER [ITEMS]

Writes FOLDER/<task>.jsonl with ITEMS items each (default 240) and FOLDER/<task>.train.jsonl
with 40 for few-shot, in the layouts of the data sets on the Hugging Face hub. The wording
comes from TEXT; what matters are the traps: every rule of the harness that a reader could
get wrong has items that tell. Seeded: the same bytes each time. Not among them: choices
that are empty after preprocessing, which the harness scores and choice.h refuses.
"""
import json
import pathlib
import random
import re
import sys

import tokenizers

TRAIN = 40
SPACES = ("\u00a0", "\u3000", "\u2009", "\t", "\n", " \n ", "\x1f", "\x85", "  ")
FOREIGN = ("naïve café", "Größe", "ÉCOLE", "東京都", "Ελλάδα ΟΔΟΣ", "İstanbul", "ﬁx", "ǆak",
           "😀 ok", "e\u0301t\u00e9", "\u200bzero", "ŉ", "Ωmega", "Жук", "STRASSE ẞ")


class Text:
    """Sentences and clauses of a text, and tokens to measure them by."""

    def __init__(self, tokenizer, path):
        self.tok = tokenizers.Tokenizer.from_file(tokenizer)
        text = pathlib.Path(path).read_text(encoding="utf-8")
        found = re.findall(r"[A-Z][^.\n]{30,200}\.", text)
        self.sentences = list(dict.fromkeys(found))

    def sentence(self, rng):
        return rng.choice(self.sentences)

    def words(self, rng, least, most):
        s = self.sentence(rng).rstrip(".").split()
        n = rng.randint(least, most)
        at = rng.randint(0, max(0, len(s) - n))
        return " ".join(s[at:at + n])

    def count(self, s):
        return len(self.tok.encode(s, add_special_tokens=False).ids)

    def long(self, rng, n_tokens):
        """Text of just so many tokens: the last ones are the word " the"."""
        s = self.sentence(rng)
        while self.count(s) < n_tokens - 60:
            s += " " + self.sentence(rng)
        while self.count(s) < n_tokens:
            s += " the"
        return s


def spoil(rng, s, i):
    """One of the traps of any text, by the item's number; most texts stay as they are."""
    at = rng.randrange(len(s)) if s else 0
    kind = i % 16
    if kind == 1:
        return s[:at] + rng.choice(FOREIGN) + " " + s[at:]
    if kind == 3:
        return s + rng.choice(SPACES)
    if kind == 5:
        return rng.choice(SPACES) + s
    if kind == 7:
        return s.replace(" ", "  ", 2)
    if kind == 8:
        return s.replace(" ", "   ", 1) + "    "
    if kind == 9:
        return rng.choice(['"{}"', "'{}'", "\\{}\\n", "{{{{{}}}}}", "{{% {} %}}"]).format(s)
    if kind == 11:
        return s.upper()
    if kind == 13:
        return s[:at] + "\n" + s[at:]
    if kind == 14 and i % 3 == 0:
        return s[:at] + rng.choice(("<s>", "</s>", "<pad>")) + s[at:]
    return s


def brackets(rng, s, i):
    """What HellaSwag's preprocessing looks for."""
    words = s.split(" ")
    at = rng.randrange(len(words))
    mark = ("[title]", "[step]", "[header]", "[substeps]", "[]", "[a\nb]", "[ [b] ]", "[title] [title]",
            "[TITLE]", "]x[")[i % 10]
    where = i // 10 % 4
    if where == 0:
        return mark + " " + s
    if where == 1:
        return s + " " + mark
    if where == 2:
        return " ".join(words[:at] + [mark] + words[at:])
    return " ".join(words[:at]) + mark + " ".join(words[at:])


def length_of(i, n):
    """Tokens of the long contexts: every count around the pair's 512, and far beyond."""
    return 485 + i if i < n - 4 else 600 * (i - n + 5)


def choices(text, rng, i, n):
    """n endings; every 20th item has two alike, every 20th has all alike."""
    out = [spoil(rng, text.words(rng, 1, 12), i + j if i % 3 == 0 else 0) for j in range(n)]
    if i % 20 == 10:
        out[-1] = out[0]
    if i % 20 == 15:
        out = [out[0]] * n
    if i % 20 == 18:
        out = [c.split()[0] for c in out]
    return out


def hellaswag(text, rng, i, long):
    a, b = text.sentence(rng), text.words(rng, 2, 6)
    endings = choices(text, rng, i, 4)
    if i % 4 == 1:
        a = brackets(rng, a, i // 4)
        endings[i % 3] = brackets(rng, endings[i % 3], i // 4)
    if i % 4 == 2:
        b = (b.upper(), b.title(), rng.choice(FOREIGN) + " " + b, "")[i // 4 % 4]
    if i % 4 == 3:
        a = spoil(rng, a, i // 4)
        b = spoil(rng, b, i // 8)
    if i % 24 == 0:
        a = ""
    a = long or a
    return {"ind": i, "activity_label": text.words(rng, 1, 3) if i % 30 else "",
            "ctx_a": a, "ctx_b": b, "ctx": a + " " + b, "endings": endings,
            "source_id": f"wikihow~{i}", "split": "val", "split_type": "indomain",
            "label": str(rng.randrange(4))}


def labelled(text, rng, i):
    n = (4, 4, 4, 3, 5)[i % 5]
    labels = [str(j + 1) for j in range(n)] if i % 7 == 3 else list("ABCDE")[:n]
    return {"text": choices(text, rng, i, n), "label": labels}


def arc(text, rng, i, long):
    c = labelled(text, rng, i)
    question = long or spoil(rng, text.sentence(rng), i)
    if i % 40 == 4:
        question = ""
    return {"id": f"Mercury_{i}", "question": question, "choices": c, "answerKey": rng.choice(c["label"])}


def piqa(text, rng, i, long):
    a, b = choices(text, rng, i, 2)
    goal = long or spoil(rng, text.words(rng, 3, 14), i)
    return {"goal": "" if i % 40 == 4 else goal, "sol1": a, "sol2": b, "label": rng.randrange(2)}


def winogrande(text, rng, i, long):
    words = text.words(rng, 6, 20).replace("_", "-").split()
    at = i % 6 if i % 6 < len(words) - 1 else 1
    tail = " ".join(words[at:])
    if i % 9 == 3:
        tail += " _ " + text.words(rng, 1, 3)
    tail = ("", "'s ", ", ", " ")[i % 4] + tail + ("", "  ", "\n", "\u00a0")[i // 4 % 4]
    head = " ".join(words[:at] + [""])
    if i % 8 == 5:
        head = spoil(rng, head or "So ", i)
    sentence = (long.replace("_", "-") + " " if long else "") + head + "_" + ("" if i % 4 else " ") + tail
    a, b = choices(text, rng, i, 2)
    return {"qID": f"Q{i}", "sentence": sentence, "option1": a, "option2": b,
            "answer": str(rng.randrange(1, 3))}


def boolq(text, rng, i, long):
    passage = long or " ".join(text.sentence(rng) for _ in range(1 + i % 4))
    question = text.words(rng, 3, 9).lower()
    return {"question": spoil(rng, question, i // 2) + ("?" if i % 11 == 0 else ""),
            "passage": "" if i % 40 == 4 else passage if long else spoil(rng, passage, i),
            "idx": i, "label": rng.randrange(2)}


def openbookqa(text, rng, i, long):
    c = labelled(text, rng, i)
    stem = long or spoil(rng, text.words(rng, 2, 12), i)
    bare = {4: "", 14: " ", 24: "\n\n", 34: "\u3000", 44: "42", 54: "<s>", 64: "<s> and so",
            74: "The end </s>", 84: "\u00a0 ", 94: "7 "}
    key = rng.choice(c["label"])
    return {"id": f"7-{i}", "question_stem": bare.get(i, stem), "choices": c,
            "answerKey": " " + key if i % 13 == 2 else key}


TASKS = {"hellaswag": hellaswag, "arc_easy": arc, "arc_challenge": arc, "piqa": piqa,
         "winogrande": winogrande, "boolq": boolq, "openbookqa": openbookqa}


def write(path, text, make, seed, n, n_long):
    with open(path, "w", encoding="utf-8") as out:
        for i in range(n):
            rng = random.Random(f"{seed} {i}")
            at = i - (n - n_long)
            long = text.long(rng, length_of(at, n_long)) if at >= 0 else None
            # Half of the items in \u escapes: both spellings are JSON.
            item = make(text, rng, i, long)
            out.write(json.dumps(item, ensure_ascii=i % 2 == 0) + "\n")


def main():
    tokenizer, path, folder = sys.argv[1:4]
    n = int(sys.argv[4]) if len(sys.argv) > 4 else 240
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = Text(tokenizer, path)
    for task, make in TASKS.items():
        write(folder / f"{task}.jsonl", text, make, task, n, n // 6)
        write(folder / f"{task}.train.jsonl", text, make, task + " train", TRAIN, 0)


if __name__ == "__main__":
    main()
