# SPDX-License-Identifier: BSD-3-Clause
"""COO tensors of torch as lists of rows, and back."""

import math

import torch

# Checks would cost as much as the rest; torch 2 wants to be told.
_UNCHECKED = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}


def to_rows(tensor):
    """(index, values, count) for Comm.allreduce_rows(): duplicates are added up."""
    tensor = tensor.coalesce()
    sizes = tensor.shape[: tensor.sparse_dim()]
    index = tensor.indices()
    flat = index[0]
    for size, part in zip(sizes[1:], index[1:]):
        flat = flat * size + part
    return flat.contiguous(), tensor.values().contiguous(), math.prod(sizes)


def from_rows(flat, values, like):
    """The coalesced COO tensor of a result, of the shape of `like`."""
    parts = []
    for size in reversed(like.shape[1 : like.sparse_dim()]):
        parts.append(flat % size)
        flat = torch.div(flat, size, rounding_mode="floor")
    index = torch.stack([flat, *reversed(parts)])
    return torch.sparse_coo_tensor(index, values, like.shape, **_UNCHECKED)._coalesced_(True)
