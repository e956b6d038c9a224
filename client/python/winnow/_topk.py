# SPDX-License-Identifier: BSD-3-Clause
"""The largest elements of a gradient on the CPU, and a memory of the others."""

from __future__ import annotations

import ctypes
from typing import Any

from . import _buffers, _native
from ._member import brief, failure, number
from ._native import lib

CHUNK = 4096


@brief
def topk(gradient: Any, memory: Any, k: int, chunk: int = CHUNK, decay: float = 1.0, block: int = 1) -> int:
    """Keep the largest elements of a gradient, and remember the others for later.

    For each ``chunk`` of elements, the sum of ``gradient`` and ``decay * memory`` is divided: its ``k`` largest blocks
    stay in ``gradient``, which is zero elsewhere afterwards, and the rest goes to ``memory``. Then
    ``comm.allreduce(gradient, block=block)`` sends only what is left. NaN and infinity always stay in ``gradient`` and
    are never remembered. The call computes in the calling thread and does not communicate.

    Args:
        gradient: A numpy array or torch tensor on the CPU, of type float32, float16 or bfloat16. It is overwritten.
        memory: A float32 array with as many elements. It starts with zeros, and each tensor needs its own.
        k: The number of blocks to keep in each chunk.
        chunk: The number of elements among which the largest are chosen, a multiple of ``block``.
        decay: The factor for the memory, from 0 to 1. Below 1 old gradients are forgotten.
        block: Elements that are chosen together, by the largest of them, 1 to 1024. Larger blocks are cheaper to name and
            choose less well.

    Returns:
        The number of elements left in ``gradient``.

    Raises:
        TypeError: An array is not on the CPU, or has a type that is not supported.
        ValueError: ``memory`` is not float32 or has another size, an array is read-only, or a number is impossible.

    Example:
        >>> memory = numpy.zeros(len(gradient), numpy.float32)
        >>> winnow.topk(gradient, memory, k=41)                  # 1 % of each 4096 elements
        >>> comm.allreduce(gradient, op="avg", block=1)
    """
    data = _buffers.describe_on_host(gradient, "gradient", "top-k is")
    kept = _buffers.describe_on_host(memory, "memory", "top-k is")
    if kept.dtype != _native.DTYPES["float32"] or kept.count != data.count:
        raise ValueError(f"memory must be float32, and as large as the gradient: {data.count} elements")
    if not (data.writable and kept.writable):
        raise ValueError("gradient or memory is read-only")
    choice = _native.Choice(
        chunk=number("chunk", chunk, 2**63),
        k=number("k", k, 2**63),
        block=number("block", block),
        decay=decay,
    )
    taken = ctypes.c_uint64()
    code = lib.winnow_topk(
        data.address, kept.address, data.count, data.dtype, ctypes.byref(choice), ctypes.byref(taken)
    )
    if code != _native.OK:
        raise ValueError(str(failure(code)))
    return taken.value
