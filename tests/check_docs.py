#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Do the links of README.md and docs/*.md lead somewhere, and are the pages easy to read?

Each relative link names a file, and each anchor a heading, by GitHub's rule. Prose is neither code, table nor heading; a
list item is a paragraph. All prose together keeps the limits below, and no page has a paragraph of more than 90 words.
Exit status 1: a link is dead, or a limit is exceeded. `--figures` prints those of each page.
"""
import re
import sys
from pathlib import Path

LIMITS = {"words": 24000, "par mean": 30, "par p95": 75, "par max": 90, "sent mean": 16, "sent p95": 32}
NOT_COUNTED = {"PROTOCOL", "MEMBERS", "CONGESTION", "options", "metrics", "api"}  # the specification, and what is generated
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1[^\n]*$", re.M | re.S)
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s+")


def anchors(path):
    """Lower case, without punctuation, with hyphens for blanks; the second one of a name ends in -1."""
    names, found = [], []
    for title in re.findall(r"^#+ +(.*?)[ #]*$", FENCE.sub("", path.read_text()), re.M):
        name = re.sub(r"[^\w\- ]", "", LINK.sub(r"\1", title).lower()).replace(" ", "-")
        found.append(f"{name}-{names.count(name)}" if name in names else name)
        names.append(name)
    return found


def dead_links(page):
    for _, target in LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))):
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        if re.match(r"[a-z]+:", target):
            continue
        if not there.exists():
            yield f"{page}: {target}: no such file"
        elif anchor and anchor not in anchors(there):
            yield f"{page}: {target}: no such heading"


def paragraphs(text):
    block = []
    for line in FENCE.sub("\n", text).split("\n") + [""]:
        item = ITEM.match(line)
        ends = not line.strip() or line.strip().startswith(("#", "|", ">", "<"))
        if block and (ends or item):
            yield " ".join(block)
            block = []
        if not ends and (block or item or not line.startswith(("    ", "\t"))):
            block.append(line[item.end() :] if item else line.strip())


def words(text):
    return len(re.findall(r"[A-Za-z0-9][\w'./%+-]*", text))


def figures(texts):
    """Words; then mean, 95th percentile and most words of paragraphs and of sentences."""
    texts = [re.sub(r"`[^`]*`", "code", LINK.sub(r"\1", text)) for text in texts if words(text) >= 4]
    sentences = [one for text in texts for one in re.split(r"(?<=[.!?])\s+(?=[A-Z`*(\"'\[])", text) if words(one)]
    row = {"words": sum(map(words, texts))}
    for kind, counts in ("par", sorted(map(words, texts))), ("sent", sorted(map(words, sentences))):
        row |= {f"{kind} mean": sum(counts) / len(counts), f"{kind} p95": counts[len(counts) * 95 // 100], f"{kind} max": counts[-1]}
    return row


pages = [Path("README.md"), *sorted(Path("docs").glob("*.md"))]
bad = [link for page in pages for link in dead_links(page)]
texts = {page.stem: list(paragraphs(page.read_text())) for page in pages}
rows = {name: figures(text) for name, text in texts.items()}
rows["in all"] = figures([one for name, text in texts.items() if name not in NOT_COUNTED for one in text])
bad += [f"in all: {name} is {rows['in all'][name]:.1f}, limit {limit}" for name, limit in LIMITS.items() if rows["in all"][name] > limit]
bad += [f"{page}: a paragraph of {row['par max']} words, limit {LIMITS['par max']}" for page, row in rows.items() if row["par max"] > LIMITS["par max"]]
print(f"{'page':14}" + "".join(f"{name:>10}" for name in rows["in all"]))
for page, row in rows.items():
    if page == "in all" or "--figures" in sys.argv:
        print(f"{page:14}" + "".join(f"{value:10.{name != 'words':d}f}" for name, value in row.items()))
print("\n".join(bad) or "All links lead somewhere.")
sys.exit(bool(bad))
