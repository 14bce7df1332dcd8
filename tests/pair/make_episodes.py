"""heldout.txt -> retrieval.jsonl, the multi-needle episodes of the pair.

usage: make_episodes.py TOKENIZER.json HELDOUT.txt OUT.jsonl
"""
import json
import sys

import tokenizers

import episodes

PER_N = 100                 # a fifth at each depth
TOKENS = 470                # of context, with <s>, at most
DEPTHS = (0, 25, 50, 75, 100)


def main():
    tok = tokenizers.Tokenizer.from_file(sys.argv[1])
    text = open(sys.argv[2], encoding="utf-8").read()
    count = lambda s: len(tok.encode(s, add_special_tokens=False).ids)
    longest = 0
    with open(sys.argv[3], "w", encoding="utf-8") as out:
        for n in (1, 2, 4, 6):
            for i in range(PER_N):
                depth = DEPTHS[i % len(DEPTHS)]
                context, answer, span, _ = episodes.held_out(
                    text, n, f"episode {n} {i}", depth / 100, TOKENS, count)
                assert " " + context[span[0]:span[1]] + "." == answer
                longest = max(longest, len(tok.encode(context).ids))
                out.write(json.dumps({"id": f"n{n}-{i:03d}", "n": n, "depth": depth, "context": context,
                                      "answer": answer, "span": span}, ensure_ascii=False) + "\n")
    print(f"longest context {longest} tokens")


if __name__ == "__main__":
    main()
