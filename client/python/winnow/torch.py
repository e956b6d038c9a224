# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel over Winnow: two lines.

    import winnow.torch
    winnow.torch.attach(ddp)        # after ddp = DistributedDataParallel(model)

attach() registers a communication hook, so the process group stays what it was (Gloo, NCCL,
..) and serves start-up and buffers; gradients go to the aggregators of WINNOW_AGGREGATORS.
"""

import collections
import itertools
import queue
import threading
import weakref

import torch
import torch.distributed as dist

from ._comm import Comm

# Tags of hooks have this bit, so that they never meet the program's own on one communicator.
_TAG_OF_HOOKS = 1 << 62
_hook_numbers = weakref.WeakKeyDictionary()  # communicator: hooks attached so far


class HookStats(
    collections.namedtuple(
        "HookStats",
        "buckets bytes blocks blocks_nonzero blocks_union time_us sent_bytes received_bytes retransmits",
    )
):
    """Totals of a hook: buckets reduced and their dense bytes; blocks as in winnow.OpStats; the
    buckets' times added up. The last three are of the communicator since the hook was attached."""

    __slots__ = ()

    @property
    def density(self):
        return self.blocks_nonzero / self.blocks if self.blocks else 0.0

    @property
    def union(self):
        return self.blocks_union / self.blocks if self.blocks else 0.0


def attach(ddp, comm=None, *, block=None, wire=None):
    """Makes `ddp` average its gradients over Winnow; returns the HookState.

    comm: a winnow.Comm with a worker for each of ddp's processes; None: one is made from the
    environment with ddp's rank and world size, and closed with HookState.close() or at exit.
    block, wire: as in Comm.allreduce().
    """
    group = ddp.process_group
    world = dist.get_world_size(group)
    _refuse_parameters(ddp)
    if comm is not None and comm.world != world:
        raise ValueError(
            f"the communicator has {comm.world} workers and DDP has {world}: "
            "create it with the rank and world of DDP's process group"
        )
    state = HookState(comm, block=block, wire=wire)
    if comm is None:
        state.open(dist.get_rank(group), world)
    ddp.register_comm_hook(state, hook)
    return state


def hook(state, bucket):
    """The communication hook, for register_comm_hook() and wrappers like fp16_compress_wrapper().

    DDP looks for the name `bucket`.
    """
    return state.reduce(bucket.buffer())


class HookState:
    """What hook() needs: a communicator, how to use it, and a thread that completes futures.

    Pickles as its settings: a copy joins the job that the environment names when it is first used.
    """

    def __init__(self, comm=None, *, block=None, wire=None):
        self.comm = None
        self.block = block
        self.wire = wire
        self.error = None
        """The first failure, a WinnowError for one of the library: backward() has only its text."""
        self._owned = False
        self._closed = None  # totals of a communicator that is no more
        self._totals = _Totals()
        self._queue = queue.SimpleQueue()
        if comm is not None:
            self._use(comm)

    def open(self, rank=None, world=None):
        """Joins the job of the environment; rank and world default to torch.distributed's."""
        if rank is None:
            rank, world = dist.get_rank(), dist.get_world_size()
        self._use(Comm(rank=rank, world=world))
        self._owned = True

    def close(self):
        """Ends the thread and leaves the job, if open() joined it."""
        self._queue.put(None)
        if self._owned and self.comm is not None and not self._closed:
            self._closed = self._wire_totals()
            self.comm.close()

    def stats(self):
        """HookStats from the beginning to now."""
        return HookStats(*self._totals.read(), *self._wire_totals())

    def reduce(self, tensor):
        """Starts averaging a flat tensor in place; a torch Future of it."""
        future = torch.futures.Future()
        # An exception in a callback is the one way that DDP reports a failure well: that of
        # Future.set_exception() crashes torch 1.13 or reads as a failed cast.
        checked = future.then(self._check)
        try:
            if self.comm is None:
                self.open()
            request = self._submit(tensor)
        except Exception as error:
            future.set_result(_Failure(error))
            return checked
        self._queue.put((request, tensor, future))
        return checked

    def __getstate__(self):
        return {"block": self.block, "wire": self.wire}

    def __setstate__(self, settings):
        self.__init__(**settings)

    def _wire_totals(self):
        if self._closed or self.comm is None:
            return self._closed or [0] * len(_WIRE_TOTALS)
        now = self.comm.stats()
        return [getattr(now, name) - getattr(self._before, name) for name in _WIRE_TOTALS]

    def _use(self, comm):
        self.comm = comm
        self._before = comm.stats()
        number = _hook_numbers.get(comm, 0)
        _hook_numbers[comm] = number + 1
        self._tags = itertools.count(_TAG_OF_HOOKS | number << 40)
        # The thread must not keep this object, and with it the communicator, alive.
        arguments = (self._queue, self._totals)
        threading.Thread(target=_complete, args=arguments, name="winnow-hook", daemon=True).start()

    def _submit(self, tensor):
        _refuse_tensor(tensor)
        return self.comm.allreduce_async(
            tensor, op="avg", tag=next(self._tags), block=self.block or 0, wire=self.wire
        )

    def _check(self, future):
        value = future.value()
        if isinstance(value, _Failure):
            self.error = self.error or value.error
            raise RuntimeError(str(value.error))
        return value


class _Failure:
    """A future's value that stands for an exception."""

    def __init__(self, error):
        self.error = error


_WIRE_TOTALS = ("sent_bytes", "received_bytes", "retransmits")


class _Totals:
    def __init__(self):
        self._lock = threading.Lock()
        self._values = [0] * 6

    def add(self, tensor, stats):
        size = tensor.numel() * tensor.element_size()
        with self._lock:
            for index, value in enumerate((1, size, *stats)):
                self._values[index] += value

    def read(self):
        with self._lock:
            return list(self._values)


def _complete(requests, totals):
    """The thread: waits for each bucket, in order, and completes its future."""
    while True:
        item = requests.get()
        if item is None:
            return
        request, tensor, future = item
        try:
            request.wait()
            totals.add(tensor, request.stats)
        except Exception as error:
            future.set_result(_Failure(error))
        else:
            future.set_result(tensor)
        del item, request, tensor, future  # get() may take long; the gradient need not stay


def _refuse_parameters(ddp):
    """What no bucket could carry is better refused before the first step."""
    for name, module in ddp.module.named_modules():
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse:
            raise ValueError(
                f"{name or 'the module'} has sparse=True: use sparse=False; its zero rows do not "
                "travel either. Sparse gradients come in a later version"
            )
    for name, parameter in ddp.module.named_parameters():
        if parameter.is_cuda:
            raise ValueError(
                f"parameter {name} is on {parameter.device}: train on the CPU, or leave the hook "
                "out; CUDA gradients come in a later version"
            )


def _refuse_tensor(tensor):
    if tensor.layout != torch.strided:
        raise TypeError(
            "a gradient is sparse: use sparse=False in its embedding; sparse gradients come in a later version"
        )
    if tensor.is_cuda:
        raise TypeError("a gradient is on a GPU: train on the CPU; CUDA gradients come in a later version")
    if not tensor.is_floating_point():
        raise TypeError(f"a gradient is {tensor.dtype}: its average needs a floating point type")
