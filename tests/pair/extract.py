"""Unpacked documentation packages -> train.txt, check.txt, heldout.txt.

usage: extract.py UNPACKED_DIR OUT_DIR

UNPACKED_DIR/train/PACKAGE feeds the first two, UNPACKED_DIR/apart/PACKAGE the third.
A document is one file of a package. A paragraph that was seen before, anywhere,
is dropped, so nothing of the training text occurs in the other two.
"""
import gzip
import hashlib
import html.parser
import multiprocessing
import pathlib
import re
import sys

CHECK_CHARACTERS = 270_000     # of running text in check.txt
HELD_OUT_CHARACTERS = 260_000  # in heldout.txt
BLOCK = {"p", "li", "dd", "dt", "h1", "h2", "h3", "h4", "h5", "title", "td", "th",
         "div", "section", "tr", "item", "page", "note", "table", "body", "blockquote"}
SKIP = {"script", "style", "pre", "head", "nav", "form", "svg", "math", "table",
        "screen", "code-block", "info", "programlisting", "button", "footer"}
VOID = {"br", "hr", "img", "meta", "link", "input", "col", "wbr", "area", "base"}


class Paragraphs(html.parser.HTMLParser):
    """Running text of HTML (or Mallard XML): one string per block element."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.done, self.part, self.skipping = [], [], []

    def close_block(self):
        text = " ".join("".join(self.part).split())
        if text:
            self.done.append(text)
        self.part = []

    def handle_starttag(self, tag, attrs):
        if tag in VOID:
            if tag == "br":
                self.part.append(" ")
            return
        if tag in SKIP:
            self.skipping.append(tag)
        if tag in BLOCK or tag in SKIP:
            self.close_block()

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if self.skipping and tag == self.skipping[-1]:
            self.skipping.pop()
        if tag in BLOCK or tag in SKIP:
            self.close_block()

    def handle_data(self, data):
        if not self.skipping:
            self.part.append(data)


def is_prose(text):
    """Long enough, mostly ASCII letters and spaces, more words than symbols."""
    if not 60 <= len(text) <= 4000:
        return False
    letters = sum(c.isalpha() and c.isascii() or c == " " for c in text)
    return letters >= 0.88 * len(text) and re.search(r"[.:;!?)\"]$", text) is not None


def is_english(text):
    """The commonest English words make up a quarter of English prose, a few per cent of others."""
    words = re.findall(r"[a-z]+", text.lower())
    common = sum(w in {"the", "of", "to", "and", "is", "that", "for", "with", "be"} for w in words)
    return common >= 0.08 * len(words)


def paragraphs(path):
    """-> (path, [paragraph])."""
    raw = path.read_bytes()
    if path.suffix == ".gz" or path.suffix == ".dz":
        raw = gzip.decompress(raw)
    text = raw.decode("utf-8", errors="ignore")
    text = text.translate({0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"', 0x00B6: None,
                           0xA0: " ", 0x2013: "-", 0x2014: "-", 0x2026: "..."})
    name = path.name.removesuffix(".gz")
    if name.endswith((".html", ".htm", ".xhtml", ".page", ".xml", ".en")) or "<html" in text[:500].lower():
        parser = Paragraphs()
        parser.feed(text)
        parser.close_block()
        found = parser.done
    else:
        found = [" ".join(p.split()) for p in re.split(r"\n\s*\n", text)]
    return path, [p for p in found if is_prose(p)]


def wanted(path, root):
    """Documentation in English; copyright files, change logs and indexes are not prose."""
    name = str(path.relative_to(root)).lower()
    if re.search(r"copyright|changelog|genindex|search\.html|/_sources/|news|\.(js|css|png|jpg|svg)", name):
        return False
    if re.search(r"/(ca|cs|da|de|el|es|fr|fi|gl|hu|it|ja|ko|nl|pl|pt|pt_br|pt-br|ru|sl|sv|tr|uk|zh_cn|zh_tw|"
                 r"translations|[a-z]{2}_[a-z]{2}|(?!en-)[a-z]{2}-[a-z]{2})/", name):
        return False
    if re.search(r"\.html\.(?!en)[a-z]{2}", name) or re.search(r"\.(de|fr|ja|ko|es|tr|pt-br|zh-cn|da|ru)(\.|$)", name):
        return False
    if "gnome" in name or "mate-user-guide" in name:
        return "/c/" in name and name.endswith((".page", ".xml", ".docbook"))
    return name.endswith((".html", ".htm", ".html.gz", ".html.en", ".xhtml", ".txt", ".txt.gz", ".dict.dz", ".en.html"))


def documents(root, seen):
    """-> [(name, text)] in an order that is the same shuffle on every machine."""
    files = sorted(p for p in root.rglob("*") if p.is_file() and not p.is_symlink() and wanted(p, root))
    found = []
    with multiprocessing.Pool() as pool:
        for path, parts in pool.imap(paragraphs, files, chunksize=16):
            new = []
            for p in parts:
                key = hashlib.blake2b(p.lower().encode(), digest_size=8).digest()
                if key not in seen:
                    seen.add(key)
                    new.append(p)
            text = "\n\n".join(new)
            if len(text) >= 400 and is_english(text):
                found.append((str(path.relative_to(root)), text))
    return sorted(found, key=lambda d: hashlib.sha256(d[0].encode()).digest())


def by_package(found):
    sizes = {}
    for name, text in found:
        package = name.split("/")[0]
        sizes[package] = sizes.get(package, 0) + len(text)
    return sizes


def main():
    root, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    seen = set()
    found = documents(root / "train", seen)

    # The first documents of the shuffle are for the checks during training.
    held, size, i = [], 0, 0
    while size < CHECK_CHARACTERS:
        name, text = found[i]
        if len(text) < 40_000:          # no single book may fill it
            held.append(text)
            size += len(text) + 2
        else:
            found.append(found[i])
        i += 1
    (out / "check.txt").write_text("\n\n".join(held) + "\n", encoding="utf-8")
    # \f separates documents; corpus.py puts EOS there.
    (out / "train.txt").write_text("\f".join(t for _, t in found[i:]), encoding="utf-8")

    # Packages kept wholly apart, an equal share of each.
    apart = documents(root / "apart", seen)
    share = HELD_OUT_CHARACTERS // len(by_package(apart))
    left, held = {}, []
    for name, text in apart:
        package = name.split("/")[0]
        if len(text) < min(20_000, left.get(package, share)):
            held.append((name, text))
            left[package] = left.get(package, share) - len(text)
    (out / "heldout.txt").write_text("\n\n".join(t for _, t in held) + "\n", encoding="utf-8")

    for title, part in ("train and check", found), ("held out", held):
        print(f"{title}: {len(part)} documents, {sum(len(t) for _, t in part)} characters")
        for package, n in sorted(by_package(part).items()):
            print(f"    {package} {n}")


if __name__ == "__main__":
    main()
