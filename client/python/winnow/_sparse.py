# SPDX-License-Identifier: BSD-3-Clause
"""COO tensors of torch as lists of rows, and back. On a GPU, all work is in the current stream."""

import math

import torch

from . import _cuda


def to_rows(tensor):
    """(index, values, count) for Comm.allreduce_rows(), on the CPU: duplicates are added up.

    Waits for a GPU, if the tensor is on one.
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
    """Bytes of a list of rows: what crosses a GPU's bus when it is copied."""
    return sum(part.numel() * part.element_size() for part in rows)


def from_rows(flat, values, like):
    """The coalesced COO tensor of a result, of the shape of `like` and where that is."""
    device = _cuda.device_of(like)
    if device is not None:
        flat, values = _cuda.to_device([flat, values], device)
    parts = []
    for size in reversed(like.shape[1 : like.sparse_dim()]):
        parts.append(flat % size)
        flat = torch.div(flat, size, rounding_mode="floor")
    index = torch.stack([flat, *reversed(parts)])
    # Checks would cost as much as the rest; and sparse_coo_tensor(), told not to check, warns of memory errors.
    return torch.ops.aten._sparse_coo_tensor_unsafe(index, values, like.shape)._coalesced_(True)
