"""Unpacked documentation packages -> one text file for training, one held out.

usage: extract.py UNPACKED_DIR OUT_DIR

A document is one file of a package. A paragraph that was seen before, anywhere,
is dropped, so nothing of the held-out documents occurs in the training text.
"""
import gzip
import hashlib
import html.parser
import multiprocessing
import pathlib
import re
import sys

HOLD_OUT_BYTES = 270_000      # of running text in heldout.txt
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
                 r"translations|[a-z]{2}_[a-z]{2}|[a-z]{2}-[a-z]{2})/", name):
        return False
    if re.search(r"\.html\.(?!en)[a-z]{2}", name) or re.search(r"\.(de|fr|ja|ko|es|tr|pt-br|zh-cn|da|ru)(\.|$)", name):
        return False
    if "gnome" in name or "mate-user-guide" in name:
        return "/c/" in name and name.endswith((".page", ".xml", ".docbook"))
    return name.endswith((".html", ".htm", ".html.gz", ".html.en", ".xhtml", ".txt", ".txt.gz", ".dict.dz", ".en.html"))


def main():
    root, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    files = sorted(p for p in root.rglob("*") if p.is_file() and not p.is_symlink() and wanted(p, root))
    seen, documents = set(), []
    with multiprocessing.Pool() as pool:
        for path, found in pool.imap(paragraphs, files, chunksize=16):
            new = []
            for p in found:
                key = hashlib.blake2b(p.lower().encode(), digest_size=8).digest()
                if key not in seen:
                    seen.add(key)
                    new.append(p)
            text = "\n\n".join(new)
            if len(text) >= 400:
                documents.append((str(path.relative_to(root)), text))

    # Order by hash: the same shuffle on every machine. The first documents are held out.
    documents.sort(key=lambda d: hashlib.sha256(d[0].encode()).digest())
    held, size, i = [], 0, 0
    while size < HOLD_OUT_BYTES:
        name, text = documents[i]
        if len(text) < 40_000:          # no single book may fill it
            held.append(text)
            size += len(text) + 2
        else:
            documents.append(documents[i])
        i += 1
    (out / "heldout.txt").write_text("\n\n".join(held) + "\n", encoding="utf-8")
    train = [text for _, text in documents[i:]]
    # \f separates documents; train.py puts EOS there.
    (out / "train.txt").write_text("\f".join(train), encoding="utf-8")
    by_package = {}
    for name, text in documents:
        by_package[name.split("/")[0]] = by_package.get(name.split("/")[0], 0) + len(text)
    for package, n in sorted(by_package.items()):
        print(f"{package} {n}")
    print(f"{len(train)} documents, {sum(map(len, train))} characters; held out {len(held)}, {size}")


if __name__ == "__main__":
    main()
