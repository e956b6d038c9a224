# SPDX-License-Identifier: BSD-3-Clause
"""Streams and asynchronous copies on a GPU, for hooks and groups.

All calls of torch.cuda outside _buffers.py are here, so that tests can replace them.
"""

import contextlib
import threading

import torch

_lock = threading.Lock()
_streams: dict = {}  # (device, role): torch.cuda.Stream


def device_of(tensor):
    """Returns the GPU that a tensor is on, or None."""
    return tensor.device if tensor.is_cuda else None


def current():
    """Returns the number of torch's current GPU."""
    return torch.cuda.current_device()


def on(device):
    """Makes a GPU the current one, because exchanges of Python objects over NCCL use that."""
    return torch.cuda.device(device) if device is not None and torch.cuda.is_available() else contextlib.nullcontext()


def future(device):
    """Returns a Future for a value on `device`. Waiting for it also makes the waiter's stream wait."""
    return torch.futures.Future() if device is None else torch.futures.Future(devices=[device])


def mark(device):
    """Records an event in the caller's current stream, for side(). Returns None for the CPU."""
    if device is None:
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


@contextlib.contextmanager
def side(device, role, after=None):
    """Makes this process's stream for `role` the current one. The stream waits for the mark() in `after`.

    Only for threads of this package, because `device` stays their current GPU. Returning to GPU 0, where threads
    begin, would make a context there, which takes half a gigabyte for each process of the machine.
    """
    if device is None:
        yield
        return
    torch.cuda.set_device(device)
    with _lock:
        if (device, role) not in _streams:
            _streams[device, role] = torch.cuda.Stream(device)
        stream = _streams[device, role]
    with torch.cuda.stream(stream):
        if after is not None:
            stream.wait_event(after)
        yield


def to_host(tensors):
    """Returns copies in page-locked memory. Blocks until all earlier work of the stream and the copies are done."""
    copies = [
        torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
        for tensor in tensors
    ]
    torch.cuda.current_stream(tensors[0].device).synchronize()
    return copies


def to_device(tensors, device):
    """Returns copies on the GPU, made in the current stream."""
    return [tensor.to(device, non_blocking=True) for tensor in tensors]


def used_here(*tensors):
    """Keeps the tensors' memory reserved until the present work of the current stream is done."""
    for tensor in tensors:
        if tensor.is_cuda:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))


class Home:
    """A tensor, and the copy of it that travels, `there`. A tensor that does not leave its place is its own copy. leave()
    copies a GPU's tensor to the host, and come_back() copies the result back. Both use the current stream."""

    def __init__(self, tensor, leaves=True):
        self.tensor, self.device = tensor, device_of(tensor)
        self.leaves = leaves and self.device is not None
        self.there = None if self.leaves else tensor

    def leave(self):
        """Copies the tensor to the host if it leaves, and waits for the GPU."""
        if self.leaves:
            (self.there,) = to_host([self.tensor])

    def come_back(self):
        if self.leaves:
            self.tensor.copy_(*to_device([self.there], self.device))
        return self.tensor

    def cost(self, stats):
        """Returns `stats` with the bytes of these copies on the GPU's bus, which the library does not know."""
        size = self.tensor.numel() * self.tensor.element_size()
        return stats._replace(staged_out_bytes=size, staged_in_bytes=size) if self.leaves else stats
