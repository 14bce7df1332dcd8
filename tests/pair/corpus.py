"""The tokenizer and the batches. The same step gives the same batch for both models."""
import random

import numpy
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

import episodes

PAD, BOS, EOS = 0, 1, 2
VOCAB = 4096
IGNORE = -100
DIGITS = 4


def train_tokenizer(text, path):
    """Byte-level BPE on a sample of text; every digit is a token of its own."""
    rng = random.Random(1)
    sample = [text[i:i + 20_000] for i in range(0, len(text), 20_000)]
    rng.shuffle(sample)
    sample = sample[:700]
    # Enough of the needles that each city becomes one token.
    sample += [" " + episodes.STEM.format(c) for c in episodes.CITIES] * 300
    tok = tokenizers.Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(sample, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["<pad>", "<s>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    tok.save(str(path))
    return tok


def encode_text(tok, text):
    """All documents, EOS between them -> uint16."""
    out = []
    documents = text.split("\f")
    for i in range(0, len(documents), 256):
        for e in tok.encode_batch_fast(documents[i:i + 256], add_special_tokens=False):
            out.append(numpy.array(e.ids + [EOS], dtype=numpy.uint16))
    return numpy.concatenate(out)


class Batches:
    """batch(step, windows, phase) -> inputs, labels int64 and weights f32, [windows, length]."""

    def __init__(self, tok, text, ids, seed):
        self.tok, self.text, self.ids, self.seed = tok, text, ids, seed

    def count(self, s):
        return len(self.tok.encode(s, add_special_tokens=False).ids)

    def batch(self, step, windows, phase):
        rng = random.Random(f"{self.seed} {step}")
        length = phase["length"]
        inputs = numpy.full((windows, length), PAD, dtype=numpy.int64)
        labels = numpy.full((windows, length), IGNORE, dtype=numpy.int64)
        weights = numpy.ones((windows, length), dtype=numpy.float32)
        for i in range(windows):
            kind, w = rng.random(), None
            if kind < phase["retrieval"]:
                x, y, w = self.retrieval_window(rng, length, phase["bare"], phase["answer_weight"])
                weights[i] = w[1:length + 1]
            elif kind < phase["retrieval"] + phase["repeats"]:
                x, y = self.repeat_window(rng, length)
            elif kind < phase["retrieval"] + phase["repeats"] + phase["echoes"]:
                x, y = self.echo_window(rng, length)
            else:
                x, y = self.text_window(rng, length)
            inputs[i], labels[i] = x[:length], y[1:length + 1]
        return inputs, labels, weights

    def text_window(self, rng, length):
        start = rng.randrange(len(self.ids) - length)
        x = [BOS] + self.ids[start:start + length].tolist()
        return x, x

    def repeat_window(self, rng, length):
        """Random tokens, then the same again: nothing helps but looking back."""
        period = rng.randrange(length // 8, length // 2)
        once = [rng.randrange(3, VOCAB) for _ in range(period)]
        x = [BOS] + (once * (length // period + 1))[:length]
        return x, [IGNORE] * (period + 1) + x[period + 1:]

    def echo_window(self, rng, length):
        """A few scraps of text in random order again and again: induction, but in words it knows."""
        scraps = []
        for _ in range(rng.randint(2, 5)):
            start = rng.randrange(len(self.ids) - length)
            scraps.append(self.ids[start:start + rng.randint(5, 20)].tolist())
        x = [BOS]
        while len(x) <= length:
            x += rng.choice(scraps)
        return x[:length + 1], x[:length + 1]

    def retrieval_window(self, rng, length, bare, answer_weight):
        """Episodes, each with all its needles asked, until the window is full."""
        x, y, w, taken = [BOS], [IGNORE], [1.0], []
        while True:
            most = min(6, (length - len(x) - 10) // 24)      # 12 tokens a needle, 12 a question
            if most < 1 or len(taken) > 60:
                break
            n = rng.randint(1, most)
            room = 0 if rng.random() < bare else int((length - len(x) - 24 * n) * rng.random())
            ep = episodes.make(episodes.fill(self.text, rng, room, self.count), n, rng, taken)
            taken += [needle[0] for needle in ep.needles]
            # The digits in the haystack are chance: no loss there, only on the answers.
            hidden = {p for _, _, at in ep.needles for p in range(at, at + DIGITS)}
            asked = rng.sample(ep.needles, n)
            whole = ep.haystack + "".join(" " + episodes.STEM.format(c) + f" {d}." for c, d, _ in asked)
            code = self.tok.encode(whole, add_special_tokens=False)
            for token, (start, end) in zip(code.ids, code.offsets):
                is_digit = end - start == 1 and whole[start].isdigit()
                x.append(token)
                y.append(IGNORE if is_digit and start in hidden else token)
                w.append(answer_weight if is_digit and start >= len(ep.haystack) else 1.0)
            x, y, w = x + [EOS], y + [EOS], w + [1.0]
        rest = length + 1 - len(x)
        if rest > 0:
            start = rng.randrange(len(self.ids) - length)
            more = self.ids[start:start + rest].tolist()
            x, y, w = x + more, y + more, w + [1.0] * rest
        return x, y, w
