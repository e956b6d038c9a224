# SPDX-License-Identifier: BSD-3-Clause
"""winnow.jax: training on two workers ends where one worker with both batches ends; errors are heard."""

import unittest

import harness
import numpy

import winnow

WORLD, ROWS, STEPS = 2, 4000, 20


def start():
    generator = numpy.random.default_rng(1)
    return {
        "table": generator.standard_normal((ROWS, 16)).astype(numpy.float32),
        "out": [numpy.zeros((16, 1), numpy.float32), numpy.zeros(1, numpy.float16)],
    }


def batches(rank):
    generator = numpy.random.default_rng(100 + rank)
    for _ in range(STEPS):
        yield generator.integers(0, ROWS, 8), generator.standard_normal((8, 1)).astype(numpy.float32)


def train(combine, batches):
    """A few rows of a table touched in each step; `combine` what gradients go through."""
    import jax

    def loss(parameters, index, want):
        found = parameters["table"][index] @ parameters["out"][0] + parameters["out"][1]
        return ((found - want) ** 2).mean()

    @jax.jit
    def step(parameters, index, want):
        gradients = combine(jax.grad(loss)(parameters, index, want))
        return jax.tree_util.tree_map(lambda p, g: p - 0.05 * g, parameters, gradients)

    parameters = start()
    for index, want in batches:
        parameters = step(parameters, index, want)
    return [numpy.asarray(leaf, numpy.float32) for leaf in jax.tree_util.tree_leaves(parameters)]


def worker(rank, world, store, job, pipe):
    import winnow.jax

    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        trained = train(lambda tree: winnow.jax.allreduce(tree, comm), batches(rank))
        sent = comm.stats().sent_bytes
        try:
            import jax

            shape = 3000 + rank  # jax cannot know that the other worker has another
            jax.block_until_ready(jax.jit(lambda x: winnow.jax.allreduce(x, comm))(numpy.ones(shape)))
            error = "none"
        except Exception as caught:
            error = str(caught)
        comm.abort("the test is over")
    pipe.send((trained, sent, error))


class Jax(unittest.TestCase):
    def test_training(self):
        results = harness.spawned(worker, WORLD, harness.fresh_job())
        # Means of equal batches: one worker with both of them.
        both = [[numpy.concatenate(part) for part in zip(*step)] for step in zip(*map(batches, range(WORLD)))]
        want = train(lambda tree: tree, both)
        for trained, sent, error in results:
            for got, expected in zip(trained, want):
                self.assertLess(float(abs(got - expected).max()), 2e-3)
            # 8 of 4000 rows a step.
            self.assertLess(sent, STEPS * ROWS * 16 * 4 / 10)
            self.assertIn("workers do not agree on the operation: count is", error)
