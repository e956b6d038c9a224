# SPDX-License-Identifier: BSD-3-Clause
"""Reads the King James Bible of Debian's bible-kjv, and turns it into numbers for the two models."""

import collections
import re
import subprocess

import numpy

from processes import DemoError

RARE = 2  # rarer words are left out
VERSES = 31102
WINDOW = 5
NEGATIVES = 5


def read_text():
    """Returns all verses, one per line, without their numbers."""
    command = ["bible", "-f", "-p", "/usr/lib", "Gen1:1-Rev22:21"]
    try:
        output = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
    except FileNotFoundError:
        raise DemoError("the program `bible` is missing: apt-get install bible-kjv") from None
    except subprocess.CalledProcessError as error:
        raise DemoError(f"`bible` failed: {error.stderr.decode(errors='replace').strip()}") from None
    verses = output.decode("ascii").splitlines()
    if len(verses) != VERSES:
        raise DemoError(f"`bible` printed {len(verses)} verses, but {VERSES} were expected")
    return "\n".join(verse.split(" ", 1)[1] for verse in verses)


def prepare(path):
    """Writes the workers' data to `path`."""
    text = read_text()
    words = re.findall(r"[a-z]+", text.lower())
    counted = collections.Counter(words).most_common()
    kept = [(word, count) for word, count in counted if count >= RARE]
    number = {word: index for index, (word, _) in enumerate(kept)}
    letters = sorted(set(text))
    index = {letter: place for place, letter in enumerate(letters)}
    numpy.savez(
        path,
        words=numpy.array([number[word] for word in words if word in number], numpy.int64),
        word_counts=numpy.array([count for _, count in kept], numpy.float64),
        letters=numpy.array([index[letter] for letter in text], numpy.int64),
        letter_count=len(letters),
    )


def skipgram_batch(data, draw, size):
    """Draws centre words and, for each, a word near it and NEGATIVES words by frequency^0.75."""
    words = data["words"]
    at = draw.integers(WINDOW, len(words) - WINDOW, size)
    away = draw.integers(1, WINDOW + 1, size) * draw.choice((-1, 1), size)
    negative = numpy.searchsorted(data["negative_cdf"], draw.random((size, NEGATIVES)))
    return words[at], numpy.concatenate([words[at + away][:, None], negative], axis=1)


def letters_batch(data, draw, size, length):
    """Draws `size` passages of `length` letters, and the letter that follows each of their letters."""
    at = draw.integers(0, len(data["letters"]) - length - 1, size)
    passages = data["letters"][at[:, None] + numpy.arange(length + 1)]
    return passages[:, :-1], passages[:, 1:]


def load(path):
    data = dict(numpy.load(path))
    weights = numpy.cumsum(data["word_counts"] ** 0.75)
    data["negative_cdf"] = weights / weights[-1]
    return data
