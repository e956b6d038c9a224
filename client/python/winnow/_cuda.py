# SPDX-License-Identifier: BSD-3-Clause
"""What hooks and groups need of a GPU: streams of their own, and copies that nobody waits for.

Every call of torch.cuda that is not in _buffers.py is here, so that tests can put something else
in its place.
"""

import contextlib
import threading

import torch

_lock = threading.Lock()
_streams: dict = {}  # (device, role): torch.cuda.Stream


def device_of(tensor):
    """The GPU that a tensor is on, or None."""
    return tensor.device if tensor.is_cuda else None


def current():
    """The number of the GPU that this process works on."""
    return torch.cuda.current_device()


def on(device):
    """Makes a GPU the current one: over NCCL, Python objects travel through that."""
    return torch.cuda.device(device) if device is not None and torch.cuda.is_available() else contextlib.nullcontext()


def future(device):
    """A Future for a value on `device`: who waits for it has its own stream wait, too."""
    return torch.futures.Future() if device is None else torch.futures.Future(devices=[device])


def mark(device):
    """What is in the caller's current stream by now; for after(). None: of the CPU's memory."""
    if device is None:
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


@contextlib.contextmanager
def side(device, role, after=None):
    """Makes this process's stream for `role` the current one; it waits for a mark().

    For threads of our own, whose current GPU it is from then on: a thread begins on GPU 0, and to
    go back there would make a context on it, half a gigabyte for every process of the machine.
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
    """Copies in page-locked memory; blocks until they, and what the stream holds, are done."""
    copies = [
        torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
        for tensor in tensors
    ]
    torch.cuda.current_stream(tensors[0].device).synchronize()
    return copies


def to_device(tensors, device):
    """Copies on the GPU, in the current stream's order."""
    return [tensor.to(device, non_blocking=True) for tensor in tensors]


def used_here(*tensors):
    """Their memory is not given to others before what the current stream holds now is done."""
    for tensor in tensors:
        if tensor.is_cuda:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))


class Home:
    """Where a tensor is at home, and where it travels from, `there`. For one on the CPU that is the same. One of a GPU goes
    there with leave(), and what has become of it comes home with come_back(). Both use the current stream."""

    def __init__(self, tensor, leaves=True):
        self.tensor, self.device = tensor, device_of(tensor)
        self.leaves = leaves and self.device is not None
        self.there = None if self.leaves else tensor

    def leave(self):
        """Waits for the GPU."""
        if self.leaves:
            (self.there,) = to_host([self.tensor])

    def come_back(self):
        if self.leaves:
            self.tensor.copy_(*to_device([self.there], self.device))
        return self.tensor

    def cost(self, stats):
        """With what has crossed the GPU's bus, which the library has not seen."""
        size = self.tensor.numel() * self.tensor.element_size()
        return stats._replace(staged_out_bytes=size, staged_in_bytes=size) if self.leaves else stats
