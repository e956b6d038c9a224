# SPDX-License-Identifier: BSD-3-Clause
"""The two models: layers, loss, batches from a random generator, and an optimizer."""

import math

import corpus
import torch
import torch.nn.functional as functional
from torch import nn


class SkipGram(nn.Module):
    """word2vec's skip-gram with negative sampling; gradients of two dense tables, mostly zero rows."""

    title = "word vectors"
    steps = 150
    width = 128
    batch_size = 256

    def __init__(self, data):
        super().__init__()
        count = len(data["word_counts"])
        self.centre = nn.Embedding(count, self.width)
        self.near = nn.Embedding(count, self.width)
        for table in (self.centre, self.near):
            nn.init.normal_(table.weight, std=1 / math.sqrt(self.width))

    def describe(self):
        count, width = self.centre.weight.shape
        return f"{count} words x {width}, two embeddings (sparse=False), batch {self.batch_size} a worker"

    def batch(self, data, draw):
        return [torch.from_numpy(part) for part in corpus.skipgram_batch(data, draw, self.batch_size)]

    def forward(self, centre, others):
        scores = torch.einsum("bw,bnw->bn", self.centre(centre), self.near(others))
        scores[:, 1:] *= -1  # all but the first are negatives
        return -functional.logsigmoid(scores).sum(1).mean()

    def optimizer(self):
        # The rate is high because a row's gradient is divided by the batch size.
        return torch.optim.SGD(self.parameters(), lr=20)


class CharacterModel(nn.Module):
    """A small causal transformer over letters; its gradients are dense."""

    title = "letter transformer"
    steps = 45
    # Few letters per step but many parameters, because Debian's reference BLAS has only a few GFLOP/s.
    width, layers, heads, length = 192, 2, 4, 32
    batch_size = 4

    def __init__(self, data):
        super().__init__()
        self.letters = nn.Embedding(int(data["letter_count"]), self.width)
        self.places = nn.Embedding(self.length, self.width)
        layer = lambda: nn.TransformerEncoderLayer(
            self.width, self.heads, 4 * self.width, dropout=0, batch_first=True, norm_first=True
        )
        self.stack = nn.ModuleList(layer() for _ in range(self.layers))
        self.head = nn.Linear(self.width, self.letters.num_embeddings)
        mask = torch.full((self.length, self.length), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def describe(self):
        return f"{self.layers} layers x {self.width}, {self.length} letters of context, batch {self.batch_size} a worker"

    def batch(self, data, draw):
        parts = corpus.letters_batch(data, draw, self.batch_size, self.length)
        return [torch.from_numpy(part) for part in parts]

    def forward(self, given, following):
        x = self.letters(given) + self.places.weight
        for layer in self.stack:
            x = layer(x, self.mask)
        return functional.cross_entropy(self.head(x).flatten(0, 1), following.flatten())

    def optimizer(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


MODELS = {"skipgram": SkipGram, "letters": CharacterModel}
