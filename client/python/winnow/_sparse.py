# SPDX-License-Identifier: BSD-3-Clause
"""Converts COO tensors of torch to lists of rows, and back. On a GPU, all work is in the current stream."""

import math

import torch

from . import _cuda


def to_rows(tensor):
    """Returns (index, values, count) on the CPU for Comm.allreduce_rows(). Duplicates are added up.

    Waits for the GPU if the tensor is on one.
    """
    tensor = tensor.coalesce()
    sizes = tensor.shape[: tensor.sparse_dim()]
    index = tensor.indices()
    flat = index[0]
    for size, part in zip(sizes[1:], index[1:]):
        flat = flat * size + part
    rows = [flat.contiguous(), tensor.values().contiguous()]
    if _cuda.device_of(tensor) is not None:
        rows = _cuda.to_host(rows)
    return *rows, math.prod(sizes)


def size(rows):
    """Returns the bytes of a list of rows, which cross the bus when it is copied to or from a GPU."""
    return sum(part.numel() * part.element_size() for part in rows)


def from_rows(flat, values, like):
    """Returns a result as a coalesced COO tensor, with the shape and device of `like`."""
    device = _cuda.device_of(like)
    if device is not None:
        flat, values = _cuda.to_device([flat, values], device)
    parts = []
    for size in reversed(like.shape[1 : like.sparse_dim()]):
        parts.append(flat % size)
        flat = torch.div(flat, size, rounding_mode="floor")
    index = torch.stack([flat, *reversed(parts)])
    # Checks would take as long as the rest, and sparse_coo_tensor() without checks warns of memory errors.
    return torch.ops.aten._sparse_coo_tensor_unsafe(index, values, like.shape)._coalesced_(True)
