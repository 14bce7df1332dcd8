#!/usr/bin/env python3
"""Writes nfc_table.h, newer_table.h and case_table.h beside this file.

usage: make_unicode.py            (needs the packages `tokenizers`, Python 3.11)

nfc_table.h: canonical (de)composition from Python's unicodedata, with combining
classes only for the marks that the library's own normalizer knows: it is older,
and ids must be the library's.
newer_table.h: characters that the library's regular expressions classify and
Unicode 14 (PCRE2 10.42, unicodedata of Python 3.11) does not.
case_table.h: str.lower and str.title of single characters.
"""
import pathlib
import unicodedata as u

from tokenizers import Regex
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import Split

HERE = pathlib.Path(__file__).parent
CHARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HEAD = "/* {} - {}\n * Written by make_unicode.py; do not edit. */\n"


def ranges(pairs):
    """[(code, value)] in order -> [(first, last, value)]"""
    out = []
    for c, v in pairs:
        if out and out[-1][1] == c - 1 and out[-1][2] == v:
            out[-1][1] = c
        else:
            out.append([c, c, v])
    return out


def rows(name, type_, items):
    text, line = f"static const {type_} {name}[] = {{\n", "   "
    for item in items:
        if len(line) + len(item) + 2 > 94:
            text, line = text + line + "\n", "   "
        line += f" {item},"
    return text + line + "\n};\n"


def known_mark(c, nfc=NFC()):
    """Does the library reorder this mark (class 1 cannot move before class 1)?"""
    probe = "a\u0345" + chr(c) if u.combining(chr(c)) == 1 else "a" + chr(c) + "\u0334"
    return nfc.normalize_str(probe) != probe


def nfc_table():
    marks = [(c, u.combining(chr(c))) for c in CHARS if u.combining(chr(c)) and known_mark(c)]
    pairs, one_way = [], []
    for c in CHARS:
        parts = u.decomposition(chr(c)).split()
        if not parts or parts[0].startswith("<") or 0xAC00 <= c <= 0xD7A3:
            continue
        parts = [int(p, 16) for p in parts]
        if len(parts) == 2 and u.normalize("NFC", chr(c)) == chr(c):
            pairs.append((c, *parts))
        else:
            one_way.append((c, parts[0], parts[1] if len(parts) > 1 else 0))
    order = sorted(range(len(pairs)), key=lambda i: pairs[i][1:])
    second = {b for _, _, b in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    maybe = sorted(second | {c for c, _ in marks} | {c for c, _, _ in one_way})
    assert maybe[0] == 0x300 and len(order) < 65536
    triple = lambda r: "{%s}" % ",".join(f"0x{x:x}" if x else "0" for x in r)
    text = HEAD.format("nfc_table.h", "canonical composition, for nfc.c.")
    text += "\n/* character, first, second part: both ways */\n"
    text += rows("NFC_PAIRS", "NfcPair", map(triple, pairs))
    text += "\n/* decomposed only; a second part of 0 is none */\n"
    text += rows("NFC_ONE_WAY", "NfcPair", map(triple, one_way))
    text += "\n/* places in NFC_PAIRS by first, then second part */\n"
    text += rows("NFC_BY_PARTS", "uint16_t", map(str, order))
    text += "\n/* first, last, combining class */\n"
    text += rows("NFC_MARKS", "NfcRange", [f"{{0x{a:x},0x{b:x},{v}}}" for a, b, v in ranges(marks)])
    text += "\n/* first, last: may change in NFC, or change what stands before */\n"
    text += rows("NFC_MAYBE", "NfcRange",
                 [f"{{0x{a:x},0x{b:x},0}}" for a, b, _ in ranges((c, 0) for c in maybe)])
    (HERE / "nfc_table.h").write_text(text)


def newer_table():
    unassigned = [c for c in CHARS if c < 0xF0000 and u.category(chr(c)) == "Cn"]
    kind = {}
    for name in "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So".split():
        split = Split(Regex(r"\p{%s}" % name), "removed")
        for c in unassigned:
            if not split.pre_tokenize_str(chr(c)):
                kind[c] = name
    text = HEAD.format("newer_table.h", "characters newer than Unicode 14, for pattern.c.")
    text += "\n/* first, last, general category */\n"
    text += rows("NEWER", "NewerRange",
                 [f'{{0x{a:x},0x{b:x},"{v}"}}' for a, b, v in ranges(sorted(kind.items()))])
    (HERE / "newer_table.h").write_text(text)


def steps(pairs):
    """[(code, difference)] in order -> [first, last, difference, step], step 1 or 2"""
    out = []
    for c, d in pairs:
        r = out[-1] if out else None
        if r and r[2] == d and c - r[1] in ((1, 2) if r[0] == r[1] else (r[3],)):
            r[1], r[3] = c, c - r[1]
        else:
            out.append([c, c, d, 1])
    return out


def case_table():
    text = HEAD.format("case_table.h", "lower and title case, for case.c.")
    for name, change in (("LOWER", str.lower), ("TITLE", str.title)):
        one = [(c, ord(change(chr(c))) - c) for c in CHARS if len(change(chr(c))) == 1]
        text += "\n/* first, last, what to add, step */\n"
        text += rows(name, "CaseRange", [f"{{0x{a:x},0x{b:x},{d},{k}}}"
                                         for a, b, d, k in steps([x for x in one if x[1]])])
    many = [(c, chr(c).title()) for c in CHARS if len(chr(c).title()) > 1]
    hexes = lambda t: "".join(f"\\x{b:02x}" for b in t.encode())
    text += "\n/* titles of several characters */\n"
    text += rows("TITLE_LONG", "CaseText", [f'{{0x{c:x},"{hexes(t)}"}}' for c, t in many])
    (HERE / "case_table.h").write_text(text)


if __name__ == "__main__":
    assert u.unidata_version == "14.0.0", u.unidata_version
    nfc_table()
    newer_table()
    case_table()
