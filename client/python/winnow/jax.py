# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of jax on the CPU over Winnow, inside jax.jit:

    import winnow, winnow.jax

    comm = winnow.Comm(rank=rank, world=world)

    @jax.jit
    def step(parameters, batch):
        gradients = jax.grad(loss)(parameters, batch)
        gradients = winnow.jax.allreduce(gradients, comm)
        return jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, parameters, gradients)

allreduce() is an ordered callback: all workers run the same program, so their operations match by order. Arrays are
copied on the way in and out. An error of the library ends the computation, with its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import jax
import numpy
from jax.experimental import io_callback

if TYPE_CHECKING:
    from ._comm import Comm


def allreduce(tree: Any, comm: Comm, op: str = "avg", block: int = 0, wire: Optional[str] = None) -> Any:
    """Combine every array of a tree over all workers.

    All workers call it with trees of the same structure. Inside ``jax.jit`` it is an ordered callback, which waits for the
    result. All arrays of the tree travel at the same time, and are copied on the way in and out.

    Args:
        tree: A pytree of arrays on the CPU, such as gradients.
        comm: The communicator.
        op: ``"avg"``, ``"sum"``, ``"min"``, ``"max"`` or ``"prod"``.
        block, wire: As in ``winnow.Comm.allreduce()``.

    Returns:
        A tree of the same structure, with the results.

    Raises:
        winnow.WinnowError: As in ``winnow.Comm.allreduce()``. Inside ``jax.jit`` it ends the computation, with its text.
    """
    leaves, structure = jax.tree_util.tree_flatten(tree)

    def reduce(*arrays):
        # All travel at the same time. They are copied because jax's memory must not be written to.
        copies = [numpy.array(array, order="C") for array in arrays]
        requests = [comm.allreduce_async(copy, op=op, block=block, wire=wire) for copy in copies]
        return [request.wait() for request in requests]

    leaves = [jax.numpy.asarray(leaf) for leaf in leaves]
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    return jax.tree_util.tree_unflatten(structure, io_callback(reduce, shapes, *leaves, ordered=True))
