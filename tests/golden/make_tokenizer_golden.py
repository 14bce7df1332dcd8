#!/usr/bin/env python3
"""Writes tokenizers/: small tokenizers, ten thousand lines, and the library's ids.

usage: make_tokenizer_golden.py        (tokenizers 0.23.3; text: the licences in
                                        /usr/share/common-licenses and this file)

STYLE/tokenizer.json   one of each kind, trained here
lines.bin              records of a u16 length and that many bytes, some not UTF-8
STYLE/expected.bin     per line two little-endian u32: FNV-1a of the ids (as i32,
                       with the post-processor's) and of their decoded text
"""
import json
import pathlib
import random
import struct

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as pre
from tokenizers import processors, trainers

HERE = pathlib.Path(__file__).parent / "tokenizers"
LICENCES = pathlib.Path("/usr/share/common-licenses")
N_LINES = 10000

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

SENTENCES = """
The magic number of Lisbon is 4817, isn't it? They'll say we've won, I'm sure.
La lumière de l'été s'éteint; où êtes-vous, garçon? C'est déjà fini, Noël approche.
Größe und Maß: süße Äpfel übertrafen jede Erwartung, fünfundzwanzig Straßen weit.
El niño comió piñas en Logroño mientras la cigüeña volaba. ¿Qué día es hoy? ¡Mañana!
Być albo nie być, oto jest pytanie; żółta łódź płynie wśród gęstych mgieł.
Příliš žluťoučký kůň úpěl ďábelské ódy, řekl šťastný čtenář.
Съешь же ещё этих мягких французских булок, да выпей чаю. Йод и ёж в подъезде.
Чуєш їх, доцю, га? Кумедна ж ти, прощайся без ґольфів!
Η γρήγορη αλεπού πηδάει πάνω από το σκυλί· ποιος είναι ἐκεῖνος ὁ ἄνθρωπος;
עטלף אבק נס דרך מזגן שהתפוצץ כי חם. שָׁלוֹם עֲלֵיכֶם
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. السَّلَامُ عَلَيْكُم
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले भगवान।
আমি বাংলায় গান গাই, আমি বাংলার গান গাই।
தமிழ் மொழி மிகவும் தொன்மையானது; அதன் இலக்கியம் செழுமையானது.
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน
いろはにほへと ちりぬるを。東京タワーへ行きました、カタカナも書けます。ｶﾞｷﾞｸﾞ
天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。我们今天去北京大学学习人工智能。
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.
ღმერთსი შემვედრე, ნუთუ კვლა დამხსნას სოფლისა შრომასა.
Այբ Բեն Գիմ. Բոլոր մարդիկ ծնվում են ազատ ու հավասար.
Tiếng Việt có nhiều dấu: phở bò, bánh mì, cà phê sữa đá, đường Nguyễn Huệ.
አማርኛ የኢትዮጵያ ቋንቋ ነው። ሰላም ለዓለም።
Pijamalı hasta yağız şoföre çabucak güvendi; İstanbul'da ılık ışık.
""".strip().split("\n")

CODE = """
static int add(const int *a, size_t n) { return n ? a[0] + add(a + 1, n - 1) : 0; }
\tfor (int i = 0; i < 1024; ++i)\r
        if (x[i] >= 0x7fff && !(flags & MASK)) break;
def softmax(x, axis=-1):  # numerically stable
    return np.exp(x - x.max(axis)) / np.exp(x - x.max(axis)).sum(axis)
<div class="note" id='n-12'><a href="https://example.org/?q=1&amp;r=2#top">link</a></div>
SELECT name, COUNT(*) FROM t WHERE d >= '2024-01-31' GROUP BY 1 ORDER BY 2 DESC;
{"key": [1, 2.5e-3, null, true], "text": "a\\u00e9\\n"}
$ tar -xzf file.tar.gz --strip-components=1 && cd ./file && make -j"$(nproc)"
git commit -m 'fix(#123): don''t crash' 2>/dev/null || exit 1;
    \\begin{equation} \\lambda = e^{q_1 k_1} - e^{q_2 k_2} + \\lambda_{init} \\end{equation}
""".strip("\n").split("\n")

ODD = ["👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "❤️", "🇵🇹🇯🇵", "🧑🏿‍🚀", "e\u0301", "o\u0302\u0323", "a\u0323\u0302\u0301",
       "q\u0307\u0323", "\u1100\u1161\u11a8", "가\u11a8", "\u0958", "\u2126", "\u212b", "\ufb01", "Å",
       "\u0344", "\u1e9b\u0323", "\u09c7\u09be", "\u0f73", "\ufb2a", "\U0001d15e", "\u00a0", "\u3000",
       "\u2003", "\u200b", "\ufeff", "\u180e", "\u0085", "\u2028", "\x0b", "\x0c", "\x00", "\x7f",
       "½", "²³¹", "Ⅷ", "٣٤٥", "१२३", "𝟘𝟙𝟚", "㊿", "①②", "Ⓐⓩ", "🄰", "ſ's 'ſ", "'LL 'Re", "K",
       "\U00031350\U0002ebf0", "\u1c89\u1c8a", "\U00010d40\U00010d4a", "\ua7cb", "\u0897",
       "\U0001faea", "_under_score__", "don't", "I'VE", "x\u200dy", "«»„“”‘’", "…—–‐", "€£¥₿",
       "∑∫√∞≠≤", "→⇒↔", "█▓▒░", "▁", "▁▁a", "Ġ", "ĠĊ", "<0x0A>", "<0x41", "\U000e0041", "\ue000",
       "\U0010ffff", "\ufffd", "ß", "ŉ", "ǆ", "ﷺ", "\u0345\u0301", "\u1abf\u0323", "\u0c3c\u0301"]
SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>",
           "<mask>", "<mask", "[SEP]", "yes", "eyes", "yesno", "  wide  ", "café", "cafe\u0301",
           "NEW\u00a0LINE", "<x>", "<x><y>", "<x><y"]
BROKEN = [b"\xff", b"\xc3", b"\xc3\x28", b"\xe2\x82", b"\xe2\x28\xa1", b"\xf0\x9f\x98", b"\xf0\x28\x8c\xbc",
          b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\x80",
          b"\xf4\x90\x80\x80", b"\x80\x80", b"\xfe\xfe", b"\xf8\x88\x80\x80\x80", b"\xe1\x80\xe2", b"\xf1\x80\x80"]
GAPS = [" ", " ", " ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", " \n ", "   \n\n\n  ", "", "", "\t\t ", "                "]


def part(rng, words):
    """A few words, or something odd, as bytes."""
    kind = rng.random()
    if kind < 0.42:
        return " ".join(rng.choice(words) for _ in range(rng.randint(1, 3))).encode()
    if kind < 0.56:
        line = rng.choice(CODE)
        at = rng.randrange(len(line))
        return line[at:at + rng.randint(3, 24)].encode()
    if kind < 0.66:
        return str(rng.randrange(10 ** rng.randint(1, 9))).encode()
    if kind < 0.80:
        return rng.choice(ODD).encode()
    if kind < 0.86:
        return rng.choice(SPECIAL).encode()
    if kind < 0.90:
        return rng.choice(BROKEN)
    if kind < 0.93:  # any characters at all, often of one block
        base = rng.choice([0x20, 0xa0, 0x300, 0x590, 0x900, 0x1100, 0x1e00, 0x2000, 0x3040, 0x4e00,
                           0xa960, 0xac00, 0xf900, 0xfb00, 0x10000, 0x11000, 0x1d100, 0x1f300, 0x2f800])
        return "".join(chr(base + rng.randrange(0x100)) for _ in range(rng.randint(1, 4))).encode()
    if kind < 0.97:
        return (rng.choice("aA1 -=.é漢🙂\n") * rng.randint(2, 12)).encode()
    return bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))


def make_lines():
    rng = random.Random(20240531)
    words = " ".join(SENTENCES).split() + (LICENCES / "BSD").read_text().split()
    lines = [b"", b" ", b"  ", b"\n", b"<s>", b"</s><s>", b" <s>", b"a" * 2000, b" " * 2000,
             "é".encode() * 500, b"\xff" * 300, "🙂".encode() * 300, ("a" + "\u0301\u0323" * 300).encode()]
    lines += [t.encode() for t in SENTENCES + CODE + ODD + SPECIAL] + BROKEN
    while len(lines) < N_LINES:
        line = b""
        for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
            line += part(rng, words) + rng.choice(GAPS).encode()
        lines.append(line[:-1] if rng.random() < 0.5 else line)
    return lines


def corpus():
    rng = random.Random(7)
    texts = [f.read_text() for f in sorted(LICENCES.iterdir()) if f.is_file() and not f.is_symlink()]
    words = [s.split() for s in SENTENCES]
    texts += [" ".join(rng.choice(w) for _ in range(60)) for w in words for _ in range(20)]
    return texts + ["\n".join(CODE)] * 30 + [" ".join(SENTENCES)] * 5


def train(tok, size, special, alphabet=()):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=list(alphabet), limit_alphabet=600)
    tok.train_from_iterator(corpus(), trainer)
    return tok


def byte_level(pre_tokenizer, size, special, normalizer=None, **options):
    tok = Tokenizer(models.BPE(**options))
    if normalizer:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre_tokenizer
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(tok, size, special, pre.ByteLevel.alphabet())


def split(regex):
    return pre.Sequence([pre.Split(Regex(regex), "isolated"),
                         pre.ByteLevel(add_prefix_space=False, use_regex=False)])


def template(tok, text, *names):
    return processors.TemplateProcessing(single=text, pair=text + " $B",
                                         special_tokens=[(n, tok.token_to_id(n)) for n in names])


def gpt2():
    return byte_level(pre.ByteLevel(add_prefix_space=False), 2000, ["<|endoftext|>"])


def gpt2_prefix():
    """add_prefix_space, and added tokens of all flags."""
    tok = byte_level(pre.ByteLevel(add_prefix_space=True), 1000, ["<|endoftext|>"])
    tok.add_tokens([AddedToken("yes", single_word=True), AddedToken("<x>"), AddedToken("<x><y>"),
                    AddedToken("  wide  "), AddedToken("[SEP]", lstrip=True, rstrip=True)])
    tok.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<|im_end|>", rstrip=True)])
    return tok


def llama3():
    tok = byte_level(split(LLAMA3), 2000, ["<|begin_of_text|>", "<|im_end|>"], ignore_merges=True)
    tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                              template(tok, "<|begin_of_text|> $A", "<|begin_of_text|>")])
    return tok


def qwen2():
    tok = byte_level(split(QWEN2), 2000, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                     normalizers.NFC())
    tok.add_tokens([AddedToken("cafe\u0301"), AddedToken("NEW\u00a0LINE", normalized=False)])
    return tok


def o200k():
    return byte_level(split(O200K), 2000, ["<|endoftext|>"])


def digits():
    tok = byte_level(pre.Sequence([pre.Digits(individual_digits=True),
                                   pre.ByteLevel(add_prefix_space=False)]), 1000, ["<s>", "</s>"])
    tok.post_processor = template(tok, "<s> $A </s>", "<s>", "</s>")
    return tok


def splits():
    """Every behaviour of Split, some inverted."""
    return byte_level(pre.Sequence([
        pre.Digits(individual_digits=False), pre.Split("-", "removed"),
        pre.Split(Regex(r"[.,;:!?]"), "merged_with_previous"), pre.Split("'", "merged_with_next"),
        pre.Split(Regex(r"\w"), "contiguous", invert=True), pre.Split(Regex(r"\S+"), "isolated", invert=True),
        pre.ByteLevel(add_prefix_space=False, use_regex=False)]), 1000, ["<|endoftext|>"])


def sentencepiece(size, fallback, **options):
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] * fallback
    tok = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=fallback, **options))
    return tok, lambda: train(tok, size, special)


def llama2():
    tok, run = sentencepiece(1500, True, fuse_unk=True)
    tok.pre_tokenizer = pre.Metaspace()  # for the training only
    run()
    tok.pre_tokenizer = None
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                     decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.post_processor = template(tok, "<s> $A", "<s>")
    return tok


def metaspace(scheme, cut, fallback, **options):
    tok, run = sentencepiece(1000, fallback, **options)
    tok.pre_tokenizer = pre.Metaspace(prepend_scheme=scheme)
    run()
    tok.pre_tokenizer = pre.Metaspace(prepend_scheme=scheme, split=cut)
    step = decoders.Metaspace(prepend_scheme=scheme)
    tok.decoder = decoders.Sequence([step, decoders.ByteFallback(), decoders.Fuse()]) if fallback else step
    tok.post_processor = template(tok, "<s> $A", "<s>")
    return tok


STYLES = {
    "gpt2": gpt2, "gpt2_prefix": gpt2_prefix, "llama3": llama3, "qwen2": qwen2, "o200k": o200k,
    "digits": digits, "splits": splits, "llama2": llama2,
    "meta_first": lambda: metaspace("first", True, True),
    "meta_always": lambda: metaspace("always", False, False, fuse_unk=True),
    "meta_never": lambda: metaspace("never", True, False),
}


def edit(style, text):
    """What the library does not write itself, but reads."""
    tree = json.loads(text)
    model = tree["model"]
    byte = {f"<0x{b:02X}>" for b in range(256)}
    tree["added_tokens"] = [t for t in tree["added_tokens"] if t["content"] not in byte]
    if style == "gpt2":  # merges as older versions write them
        model["merges"] = [" ".join(m) for m in model["merges"]]
    if style in ("llama2", "meta_never"):  # legacy files look for these after the normalizer
        for t in tree["added_tokens"]:
            t["normalized"] = True
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":")) + "\n"


def fnv(data):
    h = 0x811C9DC5
    for b in data:
        h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
    return h


def main():
    lines = make_lines()
    HERE.mkdir(exist_ok=True)
    (HERE / "lines.bin").write_bytes(b"".join(struct.pack("<H", len(t)) + t for t in lines))
    texts = [t.decode("utf-8", "replace") for t in lines]
    for style, make in STYLES.items():
        (HERE / style).mkdir(exist_ok=True)
        (HERE / style / "tokenizer.json").write_text(edit(style, make().to_str()))
        tok = Tokenizer.from_file(str(HERE / style / "tokenizer.json"))
        out = b""
        for enc in tok.encode_batch(texts):
            text = tok.decode(enc.ids, skip_special_tokens=True)
            text = text.split("\0")[0]  # decoded texts end at a zero in C
            out += struct.pack("<II", fnv(struct.pack(f"<{len(enc.ids)}i", *enc.ids)), fnv(text.encode()))
        (HERE / style / "expected.bin").write_bytes(out)
        print(style, tok.get_vocab_size(), (HERE / style / "tokenizer.json").stat().st_size)


if __name__ == "__main__":
    main()
