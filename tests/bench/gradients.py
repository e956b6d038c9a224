#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradients.py OUT [biased] - gradients of the demo's skip-gram for winnow tune, as docs/BENCHMARKS.md uses them

Trains on the King James Bible (Debian's bible-kjv) with four workers in one process, and writes what each of
them would give to allreduce in the last step: OUT/RANK, the parameters as raw f32 in the order in which their
gradients become ready, as DistributedDataParallel fills its buckets.
"""
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "client/python/demo"))
sys.dont_write_bytecode = True

import corpus  # noqa: E402
import models  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402


class Biased(models.SkipGram):
    """Skip-gram with a bias a word, as GloVe has it: the tables no longer begin where blocks do."""

    def __init__(self, data):
        super().__init__(data)
        self.bias = torch.nn.Parameter(torch.zeros(len(data["word_counts"])))

    def forward(self, centre, others):
        scores = torch.einsum("bw,bnw->bn", self.centre(centre), self.near(others)) + self.bias[others]
        scores[:, 1:] *= -1
        return -torch.nn.functional.logsigmoid(scores).sum(1).mean()


STEPS, WORKERS = 20, 4


def ready_order(model, batch):
    """Names of the parameters, in the order in which backward() makes their gradients."""
    order = []
    hooks = [p.register_hook(lambda _, name=name: order.append(name)) for name, p in model.named_parameters()]
    gradients(model, batch)
    for hook in hooks:
        hook.remove()
    return order


def gradients(model, batch):
    model.zero_grad()
    model(*batch).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def main():
    out = pathlib.Path(sys.argv[1])
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        corpus.prepare(f"{folder}/corpus.npz")
        data = corpus.load(f"{folder}/corpus.npz")
    model = (Biased if sys.argv[2:] == ["biased"] else models.SkipGram)(data)
    optimizer = model.optimizer()
    draws = [numpy.random.default_rng((rank, 1)) for rank in range(WORKERS)]
    order = ready_order(model, model.batch(data, numpy.random.default_rng(0)))
    for _ in range(STEPS):
        each = [gradients(model, model.batch(data, draw)) for draw in draws]
        for name, parameter in model.named_parameters():
            parameter.grad = sum(grads[name] for grads in each) / len(each)
        optimizer.step()
    out.mkdir(parents=True, exist_ok=True)
    for rank, grads in enumerate(each):
        numpy.concatenate([grads[name].numpy().ravel() for name in order]).tofile(out / f"{rank}")


if __name__ == "__main__":
    main()
