# SPDX-License-Identifier: BSD-3-Clause
"""Tensors as plain memory: their values one after the other, as bytes, and back; whatever strides a view has."""

import torch

from . import _cuda


def size(tensor):
    """Bytes of its values."""
    return tensor.numel() * tensor.element_size()


def is_plain(tensor):
    """Are its values, one after the other, what is in memory?"""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def values(tensor):
    """The tensor, or a copy, for which that is so."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def bytes_of(tensor):
    """The bytes of a tensor; of a plain one without a copy."""
    flat = values(tensor)
    flat = flat.as_strided((flat.numel(),), (1,))  # a single element is contiguous with any stride, and view() wants 1
    return flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8, device="cpu")


def fill(tensor, data):
    """Bytes into a tensor, plain or not."""
    found = data[: size(tensor)].clone().view(tensor.dtype)
    tensor.detach().copy_(found.view(tensor.shape))


class Plain:
    """Tensors that are plain, or copies of them; and back."""

    def __init__(self):
        self._copies = []

    def of(self, value, comes_back=True):
        """Of a tensor, or of all in lists within lists."""
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
