#!/usr/bin/env python3
"""What the code cites of the specification, which is PROTOCOL.md, MEMBERS.md and CONGESTION.md.

Comments name sections ("section 8.3", "MEMBERS.md 3"), and quote what the code below them keeps, a sentence or a part:

    /* 8.2: "A worker drops a RESULT whose plan it lacks" */

Exit status 1: a section or a sentence that a comment names is not there, or code of the product, or the second
implementation, names no section of a number that it has to keep. `--sentences` lists those that nothing quotes, and
says how many of all are quoted.
"""
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

PAGES = ("PROTOCOL", "MEMBERS", "CONGESTION")
NUMBER = r"\d+(?:\.\d+)?"
LIST = rf"{NUMBER}(?:(?:, | and | to |, and )(?:section )?{NUMBER})*"
CITE = re.compile(rf"(?:(PROTOCOL|MEMBERS|CONGESTION)(?:\.md)?(?:,? sections?)? |[Ss]ections? )({LIST})")
QUOTE = re.compile(r'(?:(PROTOCOL|MEMBERS|CONGESTION)(?:\.md)? |(?:/\*|//|\*|#|"""|[.:;-]) )'
                   r'(\d\d?(?:\.\d\d?)?): "([^"]+)"')
# Sections that explain, or name what others say.
NO_RULES = {("PROTOCOL", "1"), ("PROTOCOL", "2"), ("PROTOCOL", "8.6")}


def plain(text):
    """Words alone: no marks of Markdown, of comments or of lines."""
    text = re.sub(r"\n\s*(?:\*|//|#)?\s*", " ", text)
    return " ".join(re.sub(r"[*`]", "", text).split())


def sections(page):
    """number -> its text, of the sections of a page that have text of their own."""
    parts = re.split(r"^#{2,3} (\d+(?:\.\d+)?)\.? [^\n]*\n", Path(f"docs/{page}.md").read_text(), flags=re.M)
    return {number: text for number, text in zip(parts[1::2], parts[2::2])}


def split(words):
    return re.split(r"(?<=[.;])\s+(?=[A-Z])", words)


def sentences(text):
    rows = [cell for line in text.split("\n") for cell in (line.split("|") if line.startswith("|") else [line])]
    return [s for row in rows for s in split(plain(row)) if len(s.split()) > 5]


def main():
    spec = {(page, number): text for page in PAGES for number, text in sections(page).items()}
    files = subprocess.run(["git", "ls-files", "aggregator", "client", "bitmap", "ebpf", "kernels", "tests"],
                           capture_output=True, text=True, check=True).stdout.split()
    cited, quoted, bad = {False: set(), True: set()}, defaultdict(list), []
    for name in files:
        if not name.endswith((".c", ".h", ".cu", ".py", ".pml")) or name == "tests/check_spec.py":
            continue
        text = Path(name).read_text()
        second = name.startswith("tests/")
        flat = re.sub(r"\n\s*(?:\*|//|#)?\s*", " ", text)
        for page, numbers in CITE.findall(flat):
            for number in re.findall(NUMBER, numbers):
                where = (page or "PROTOCOL", number)
                cited[second].add(where)
                if page and where not in spec:
                    bad.append(f"{name}: {page}.md has no section {number}")
        for page, number, quote in QUOTE.findall(text):
            where = (page or "PROTOCOL", number)
            cited[second].add(where)
            if len(quote.split()) < 4:
                bad.append(f'{name}: "{quote}" is too short to say which sentence of {where[0]}.md {number} it is')
            if plain(quote) not in plain(spec.get(where, "")):
                bad.append(f'{name}: {where[0]}.md {number} does not say "{quote}"')
            quoted[where] += split(plain(quote))
    for where in sorted(set(spec) - NO_RULES):
        if len(spec[where].split()) > 20 and not {where, (where[0], where[1].split(".")[0])} & cited[False]:
            bad.append(f"{where[0]}.md {where[1]}: no code of the product names it")
    if "--sentences" in sys.argv[1:]:
        rules = [(where, rule) for where, text in spec.items() if where not in NO_RULES for rule in sentences(text)]
        missing = [(where, rule) for where, rule in rules if not any(q in rule for q in quoted[where])]
        for (page, number), rule in missing:
            print(f"{page}.md {number}: {rule}")
        print(f"{len(rules) - len(missing)} of {len(rules)} sentences are quoted")
    for line in bad:
        print(line, file=sys.stderr)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
