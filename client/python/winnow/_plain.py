# SPDX-License-Identifier: BSD-3-Clause
"""Converts tensors of any strides to plain memory, with values one after the other as bytes, and back."""

import torch

from . import _cuda


def size(tensor):
    """Returns the bytes of its values."""
    return tensor.numel() * tensor.element_size()


def is_plain(tensor):
    """Returns whether its values lie in memory one after the other."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def values(tensor):
    """Returns the tensor, or a copy of it, whose values lie one after the other."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def bytes_of(tensor):
    """Returns the values as a tensor of bytes, without a copy if the tensor is plain."""
    flat = values(tensor)
    flat = flat.as_strided((flat.numel(),), (1,))  # a single element is contiguous with any stride, and view() wants 1
    return flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8, device="cpu")


def fill(tensor, data):
    """Copies bytes into a tensor, plain or not."""
    found = data[: size(tensor)].clone().view(tensor.dtype)
    tensor.detach().copy_(found.view(tensor.shape))


class Plain:
    """Makes plain copies of tensors where needed, and copies results back."""

    def __init__(self):
        self._copies = []

    def of(self, value, comes_back=True):
        """Returns a plain tensor for a tensor, or for each one in nested lists."""
        if isinstance(value, (list, tuple)):
            return [self.of(part, comes_back) for part in value]
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return value
        plain = values(value)
        if comes_back and plain.data_ptr() != value.data_ptr():
            self._copies.append((value.detach(), plain))
        return plain

    def __bool__(self):
        return len(self._copies) > 0

    def come_back(self):
        for tensor, plain in self._copies:
            tensor.copy_(plain)
            _cuda.used_here(tensor, plain)
