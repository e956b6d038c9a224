# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of a GPU of which something was chosen: they travel from the host's memory, with all that the host's can do."""

from . import _cuda


class Home:
    """Where a tensor is at home, and where it travels from, `there`. For one on the CPU that is the same. One of a GPU goes
    there with leave(), and what has become of it comes home with come_back(). Both use the current stream."""

    def __init__(self, tensor, leaves=True):
        self.tensor, self.device = tensor, _cuda.device_of(tensor)
        self.leaves = leaves and self.device is not None
        self.there = None if self.leaves else tensor

    def leave(self):
        """Waits for the GPU."""
        if self.leaves:
            (self.there,) = _cuda.to_host([self.tensor])

    def come_back(self):
        if self.leaves:
            self.tensor.copy_(*_cuda.to_device([self.there], self.device))
        return self.tensor

    def cost(self, stats):
        """With what has crossed the GPU's bus, which the library has not seen."""
        size = self.tensor.numel() * self.tensor.element_size()
        return stats._replace(staged_out_bytes=size, staged_in_bytes=size) if self.leaves else stats
