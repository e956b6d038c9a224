# SPDX-License-Identifier: BSD-3-Clause
"""The largest elements of a gradient on the CPU, and a memory of the others."""

import ctypes

from . import _buffers, _native
from ._member import brief, failure, number
from ._native import lib

CHUNK = 4096


@brief
def topk(gradient, memory, k, chunk=CHUNK, decay=1.0, block=1):
    """Leaves the largest of each `chunk` of `gradient` + decay * `memory` in `gradient`, the rest in `memory`.

    gradient: numpy array or torch tensor on the CPU: float32, float16 or bfloat16. It is zero elsewhere afterwards:
        Comm.allreduce(gradient, block=block) sends what is left.
    memory: float32, of as many elements, zeros at first; each tensor has its own.
    k: how many blocks of each chunk.
    block: elements that are chosen together, by the largest of them: up to 1024, and chunk is a multiple of it.
    Returns how many elements are left. What is not finite is always left, and never remembered.
    """
    data = _buffers.describe_on_host(gradient, "gradient", "top-k is")
    kept = _buffers.describe_on_host(memory, "memory", "top-k is")
    if kept.dtype != _native.DTYPES["float32"] or kept.count != data.count:
        raise ValueError(f"memory has to be float32, and as large as the gradient: {data.count} elements")
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
