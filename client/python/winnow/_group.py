# SPDX-License-Identifier: BSD-3-Clause
"""The process group backend "winnow".

    import winnow.torch
    torch.distributed.init_process_group("winnow", ...)     # or new_group(backend="winnow")

Through Winnow go all_reduce, dense or sparse, with SUM, AVG, MIN, MAX and PRODUCT, of tensors on the
CPU or a GPU; reduce_scatter of tensors on the CPU, of which each receives only its part; and, of tensors on
the CPU and any type, broadcast, barrier. Everything else, and types that the library does not add
(bytes, booleans, complex), goes through a Gloo group inside, or through an NCCL group inside if the
tensors are on a GPU. all_gather is among that: a sum of parts would also send each worker its own part back.

WINNOW_NODE=1: dense tensors on a GPU go through a winnow.Node, made when the first one comes.

init_process_group("winnow", enable_reconfigure=True), from torch 2.15 on: a group without members, until
torch.distributed._reconfigure() names some; again and again, for those who are left and those who come.
"""

import collections
import datetime
import functools
import inspect
import itertools
import json
import os
import sys
import threading

import torch
import torch.distributed as dist

from . import _cuda, _native, _places, _sparse
from ._comm import Comm
from ._futures import Completer, calling_back
from ._member import WinnowError, brief, flag_of, variable
from ._node import Node

_OPS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.PRODUCT: "prod",
}
# Whatever is not defined below, where Gloo has it.
_FALLBACK = (
    "all_to_all_single allreduce_coalesced alltoall "
    "alltoall_base gather gather_into_tensor gather_single recv recv_anysource reduce "
    "scatter send"
).split()
_GLOO_TYPES = {torch.float32, torch.float64, torch.float16, torch.int32, torch.int64, torch.int8, torch.uint8}
if hasattr(dist.ProcessGroup, "_register_backend"):  # torch 2
    _GLOO_TYPES |= {torch.bfloat16, torch.bool}
_BLOCK = 256
_JOIN_MS = 65000  # the library's: each has waited for the others before, in Gloo
_TIMEOUT_MS = (100, 86400000)  # the library's limits
# torch 1.13 keeps a Work's C++ half only: each of ours is kept until somebody has waited for it.
_works = collections.OrderedDict()
_WORKS_MAX = 4096
_BETWEEN = (__name__, "torch._dynamo", "torch._compile")  # modules of frames that _eager() adds
_SLICE_S = 0.1  # Python looks at signals in between


def _eager(call):
    """torch.compile also traces Python that C++ calls beneath what it compiles: there is nothing for it in here."""
    disable = getattr(torch, "_disable_dynamo", None)
    if disable is None:
        return call
    disabled = disable(call)

    @functools.wraps(call)
    def run(*arguments, **options):
        # It imports all of the compiler, which takes seconds: not where nobody compiles.
        return (disabled if "torch._dynamo" in sys.modules else call)(*arguments, **options)

    return run


class _Operation:
    """A place in the one order in which all ranks begin their operations.

    They meet by number, so callbacks (Future.then()) may begin some only if it does not matter when
    they run. So each waits for the callbacks of those before it whose futures somebody has asked for:
    what callbacks begin comes after their own operation and before what the program begins next.
    """

    _numbers = itertools.count()
    _asked = set()  # not over; of all groups, since callbacks may begin operations of others

    def __init__(self):
        self._parent = calling_back()
        self._over = threading.Event()
        self.error = None
        while not all(earlier._over.wait(_SLICE_S) for earlier in list(self._asked) if self._follows(earlier)):
            pass
        self._number = next(self._numbers)

    def _follows(self, earlier):
        if self._parent is None or earlier._parent is self._parent:
            return True
        return earlier._number < self._parent._number and not self._is_within(earlier)

    def _is_within(self, other):
        outer = self._parent
        while outer is not None and outer is not other:
            outer = outer._parent
        return outer is other

    def ask(self):
        """Somebody may attach callbacks now."""
        self._asked.add(self)
        if self._over.is_set():
            self._asked.discard(self)

    def wait(self, seconds):
        """Is it over within so many seconds?"""
        return self._over.wait(seconds)

    def fail(self, error):
        """The future has only its text."""
        self.error = error

    def end(self):
        """Its callbacks are over; those attached later run at once, where they are attached."""
        self._over.set()
        self._asked.discard(self)


def _asked_by_python():
    """Not by DDP's reducer, whose callbacks begin nothing: it need not have one bucket wait for another."""
    frame = sys._getframe(1)
    while frame is not None and _module(frame).startswith(_BETWEEN):
        frame = frame.f_back
    return frame is not None and not _module(frame).startswith("torch.autograd")  # None: a thread of C++


def _module(frame):
    return frame.f_globals.get("__name__") or ""


class _Work(getattr(dist, "_Work", None) or dist.Work):
    """wait() raises, and the future of get_future() raises: torch looks at one or the other."""

    def __init__(self, future, operation):
        super().__init__()
        self._future, self._operation = future, operation
        _works[id(self)] = self
        if len(_works) > _WORKS_MAX:
            _works.popitem(last=False)

    @brief
    @_eager
    def wait(self, timeout=None):
        seconds = _seconds(timeout)
        if seconds is not None and not self._operation.wait(seconds):
            raise RuntimeError(f"the operation is not done after {seconds} s; it goes on, and can be waited for again")
        _works.pop(id(self), None)
        try:
            self._future.wait()
        except RuntimeError:
            if isinstance(self._operation.error, WinnowError):
                raise self._operation.error from None
            raise
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._future.done()

    def is_success(self):
        return self._future.done() and self.exception() is None

    def exception(self):
        try:
            self._future.value()
        except RuntimeError as error:
            return error
        return None

    def result(self):
        return self._future.wait()

    @_eager
    def get_future(self):
        if _asked_by_python():
            self._operation.ask()
        return self._future


class _Elsewhere:
    """Gloo's work as a request of the library, with a time-out of its own; None: there is nothing to do."""

    def __init__(self, work):
        self._work = work

    def wait(self, seconds=None):
        if self._work is not None:
            self._work.wait()


class _Lent(_Work):
    """Gloo's work: only where somebody asks for its future does a thread of ours wait for it."""

    def __init__(self, work, promise, operation):
        super().__init__(None, operation)
        self._work, self._promise = work, promise
        del self._future

    @functools.cached_property
    def _future(self):
        return self._promise()

    @_eager
    def wait(self, timeout=None):
        _works.pop(id(self), None)
        return self._work.wait(*_given(timeout))

    def is_completed(self):
        return self._work.is_completed()


class ProcessGroupWinnow(dist.ProcessGroup):
    @brief
    def __init__(self, store, rank, size, timeout, *, comm=None, reconfigurable=False):
        """comm: of these members, and nobody else uses it; the store is then for nothing else, either."""
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._timeout = timeout
        self._limit = None  # for an operation, where it is not the library's own
        self._reconfigurable = reconfigurable
        options = {"enable_reconfigure": True} if reconfigurable else {}
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout, **options)
        self._store, self._comm = store, comm
        self.error = None
        """The first failure of an operation in the present membership."""
        if reconfigurable:
            # Nobody waits for anybody here: the first word counts.
            self._job = store.compare_set("winnow-job", "", _places.draw_job()).decode()
        elif comm is None:
            self._join()
        self._nccl = self._node = None
        self._words = self._store  # of this membership alone
        self._tags = itertools.count(1)
        self._completer = Completer("winnow-group")
        if hasattr(dist.ProcessGroup, "_register_backend"):
            # From torch 2 on a group has its name, and what is not defined here, from a backend.
            kind = dist.ProcessGroup.BackendType.GLOO
            self._register_backend(torch.device("cpu"), kind, self._gloo)
            self._set_default_backend(kind)

    def _join(self):
        self._store = store = dist.PrefixStore(self._drawn(), self._store)
        if self._rank == 0:
            store.set("winnow-job", _places.draw_job())
        self._job = store.get("winnow-job").decode()
        self._comm = Comm(job=self._job, rank=self._rank, world=self._size, **time_outs(self._timeout))

    def _drawn(self):
        """Rank 0's random word: a restarted job may find in the store what its earlier self has left there."""
        word = torch.tensor([int.from_bytes(os.urandom(7), "little")])
        self._gloo.broadcast([word], dist.BroadcastOptions()).wait()
        return f"winnow-{word.item():x}"

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    @property
    def supports_reconfigure(self):
        return self._reconfigurable

    def get_reconfigure_handle(self):
        return self._gloo.get_reconfigure_handle()

    @brief
    def reconfigure(self, opts):
        """Continues with the processes of these handles, in their order."""
        handles = sorted(opts.handles) if isinstance(opts.handles, set) else list(opts.handles)
        mine = self.get_reconfigure_handle()
        if mine not in handles:
            raise ValueError("this process's own handle is not among the handles: handles change with each membership")
        place = handles.index(mine), len(handles)
        operation = _Operation()
        work = _Work(torch.futures.Future(), operation)

        def form():
            try:
                self._gloo.reconfigure(opts).wait()
                self._move(str(opts.uuid), *place, opts.timeout)
                work._future.set_result([])
            except Exception as error:
                operation.fail(error)
                work._future.set_exception(error)
            operation.end()

        threading.Thread(target=form, name="winnow-reconfigure", daemon=True).start()
        return work

    def _move(self, id, rank, size, timeout):
        seconds = _seconds(timeout) or _seconds(self._timeout)
        if self._node is not None:
            self._node.close()
        self._node = None
        self._end_nccl("abort")
        self._words = dist.PrefixStore(id, self._store)
        if self._comm is None:
            limits = {**time_outs(self._timeout), "join_timeout_ms": int(seconds * 1000)}
            self._comm = Comm(job=f"{self._job}/{id}", rank=rank, world=size, **limits)
        else:
            self._comm.reconfigure(id, rank, size, seconds)
        self._rank, self._size = rank, size
        self._tags = itertools.count(1)
        self.error = None

    def getBackendName(self):
        return "winnow"

    def name(self):
        return "winnow"

    def get_group_store(self):
        return self._store

    def split_group(
        self, new_ranks, timeout=None, opts=None, group_name=None, group_desc=None, device_types=None
    ):
        if self._rank not in new_ranks:
            return None
        store = dist.PrefixStore(f"{group_name}/", self._store)
        rank = list(new_ranks).index(self._rank)
        group = ProcessGroupWinnow(store, rank, len(new_ranks), timeout or self._timeout)
        group._set_group_name(group_name)
        group._set_group_desc(group_desc or "undefined")
        return group

    def set_timeout(self, timeout):
        """For operations that begin from now on."""
        self._timeout, self._limit = timeout, _seconds(timeout)
        self._gloo.set_timeout(timeout)

    def shutdown(self):
        """destroy_process_group() calls it, from torch 2 on."""
        self.leave()
        if self._comm is not None:
            self._comm.close()

    def leave(self):
        """Ends this group, but not its communicator."""
        self._completer.close()
        if self._node is not None:
            self._node.close()
        self._end_nccl("shutdown" if self.error is None else "abort")

    def abort(self):
        if self._comm is not None:
            self._comm.abort("its process group was aborted")
        self._end_nccl("abort")
        if self._reconfigurable:
            self._gloo.abort()

    @_eager
    def allreduce(self, tensors, opts=None):
        (tensor,) = tensors = _listed(tensors)
        op = _OPS.get(_plain_op(opts))
        if op is None or not _reducible(tensor):
            return self._other(tensors).allreduce(tensors, *_given(opts))
        device = _cuda.device_of(tensor)
        if tensor.is_sparse:
            return self._allreduce_sparse(tensor, op, opts, device)
        flat = tensor.detach().contiguous()

        def finish(request):
            if not tensor.is_contiguous():
                tensor.detach().copy_(flat)
                _cuda.used_here(tensor, flat)

        reducer = self._reducer(flat, op, device)
        return self._run(
            lambda tag: reducer.allreduce_async(flat, op=op, tag=tag), finish, tensors, opts, device
        )

    def _reducer(self, tensor, op, device):
        """What adds up a dense tensor. All ranks come to the same, in the same order."""
        if not flag_of("WINNOW_NODE") or device is None or (op == "avg" and not tensor.is_floating_point()):
            return self._comm
        if self._node is None:
            place = _places.agree(_exchange(self._words, self._rank, self._size), self._rank)
            self._node = Node(gpus=device.index, job=self._job, **place)
        return self._node

    def _allreduce_sparse(self, tensor, op, opts, device):
        staged = device is not None

        def start(tag):
            go = lambda: self._comm.allreduce_rows_async(*_sparse.to_rows(tensor), op=op, tag=tag)
            return go if staged else go()

        def finish(request):
            tensor.data = _sparse.from_rows(*request.wait(), tensor)  # copy_() would copy all of it again

        return self._run(start, finish, [tensor], opts, device, staged)

    @_eager
    def broadcast(self, tensors, opts):
        (tensor,) = tensors = _listed(tensors)
        if not _movable(tensor):
            return self._other(tensors).broadcast(tensors, opts)
        words = torch.empty(_words(tensor), dtype=torch.int32)
        if self._rank == opts.rootRank:
            words[-1:] = 0
            _bytes(words)[: _size(tensor)] = _bytes(tensor)
        return self._run(
            lambda tag: self._comm.broadcast_async(words, opts.rootRank, block=_BLOCK, tag=tag),
            lambda request: _fill(tensor, _bytes(words)),
            tensors,
            opts,
        )

    @_eager
    def allgather(self, outputs, inputs, opts=None, value=None):
        inputs = _listed(inputs)
        direct = lambda group: group.allgather(outputs, inputs, *_given(opts))
        return self._gather([[output] for output in outputs[0]], inputs, direct, value or outputs, opts)

    @_eager
    def allgather_coalesced(self, outputs, inputs, opts=None, value=None):
        direct = lambda group: group.allgather_coalesced(outputs, inputs, *_given(opts))
        return self._gather(outputs, inputs, direct, value or outputs, opts)

    @_eager
    def _allgather_base(self, output, tensor, opts=None):
        if not _movable(output) or not output.is_contiguous():
            return self._other([output, tensor])._allgather_base(output, tensor, *_given(opts))
        return self.allgather([self._parts(output)], [tensor.reshape(-1)], opts, [output])

    @_eager
    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        if not all(_movable(output) and output.is_contiguous() for output in outputs):
            other = self._other([*outputs, *inputs])
            gather = _named(other, "all_gather_single_coalesced", "allgather_into_tensor_coalesced")
            return gather(outputs, inputs, *_given(opts))
        parts = [list(ranks) for ranks in zip(*map(self._parts, outputs))]
        return self.allgather_coalesced(parts, [tensor.reshape(-1) for tensor in inputs], opts, outputs)

    def _parts(self, output):
        return list(output.detach().view(-1).chunk(self._size))

    def _gather(self, outputs, inputs, direct, value, opts):
        """`outputs` of each rank: Gloo's direct(group) fills them, or, of what Gloo does not take, its bytes do."""
        fits = len(outputs) == self._size and [_kind(t) for t in outputs[self._rank]] == [_kind(t) for t in inputs]
        fits = fits and all([t.dtype for t in part] == [t.dtype for t in inputs] for part in outputs)
        shapes = [[t.shape for t in part] for part in (inputs, *outputs)]
        usual = {t.dtype for t in inputs} <= _GLOO_TYPES and shapes.count(shapes[0]) == len(shapes)
        if not all(map(_movable, inputs)):
            return direct(self._other(inputs))
        if not fits or (usual and any(t.numel() for t in inputs)):
            operation = _Operation()
            work = direct(self._gloo)
            promise = lambda: self._promise(operation, lambda: _Elsewhere(work), lambda request: None, value, opts)
            return _Lent(work, promise, operation)
        sizes = [sum(map(_size, part)) for part in outputs]
        mine = torch.zeros(max(sizes), dtype=torch.uint8)
        mine[: sizes[self._rank]] = torch.cat([_bytes(t) for t in inputs])
        everyone = [torch.empty_like(mine) for _ in outputs]

        def finish(request):
            for part, data in zip(outputs, everyone):
                for tensor in part:
                    _fill(tensor, data)
                    data = data[_size(tensor) :]

        # Of nothing, Gloo of torch 1.13 ends the process.
        start = lambda tag: _Elsewhere(self._gloo.allgather([everyone], [mine], *_given(opts)) if len(mine) else None)
        return self._run(start, finish, value, opts)

    @_eager
    def reduce_scatter(self, outputs, inputs, opts=None):
        (output,) = outputs = _listed(outputs)
        op, (parts,) = _OPS.get(_plain_op(opts)), inputs
        if op is None or not _scatterable(output, *parts):
            return self._other(outputs).reduce_scatter(
                outputs, inputs, *_given(opts)
            )
        whole = torch.cat([t.detach().reshape(-1) for t in parts])
        if all(t.numel() == output.numel() for t in parts):
            return self._scatter([output], whole, op, outputs, opts)
        # Of different sizes: an all_reduce of which each keeps its part.
        first = sum(t.numel() for t in parts[: self._rank])
        mine = whole[first : first + output.numel()]
        return self._run(
            lambda tag: self._comm.allreduce_async(whole, op=op, tag=tag),
            lambda request: output.detach().copy_(mine.view(output.shape)),
            outputs,
            opts,
        )

    @_eager
    def _reduce_scatter_base(self, output, tensor, opts=None):
        op = _OPS.get(_plain_op(opts))
        if op is None or not _scatterable(output, tensor) or tensor.numel() != output.numel() * self._size:
            return self._other([output])._reduce_scatter_base(output, tensor, *_given(opts))
        whole = tensor.detach().contiguous().view(-1)
        return self._scatter([output], whole, op, [output], opts)

    @_eager
    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        """One operation for all: each share is the shares of all tensors."""
        op = _OPS.get(_plain_op(opts))
        fitting = len(outputs) == len(inputs) > 0 and all(
            tensor.numel() == output.numel() * self._size for output, tensor in zip(outputs, inputs)
        )
        if op is None or not fitting or not _scatterable(*outputs, *inputs):
            other = self._other([*outputs, *inputs])
            scatter = _named(other, "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced")
            return scatter(outputs, inputs, *_given(opts))
        shares = [tensor.detach().reshape(self._size, -1) for tensor in inputs]
        return self._scatter(outputs, torch.cat(shares, dim=1).view(-1), op, outputs, opts)

    def _scatter(self, outputs, whole, op, value, opts):
        """This rank's share of what `whole` reduces to, into the outputs, one after the other."""
        share = outputs[0].detach() if len(outputs) == 1 else None
        if share is None or not share.is_contiguous() or _overlap(share, whole):
            share = whole.new_empty(whole.numel() // self._size)
        share = share.view(-1)

        def finish(request):
            for output, part in zip(outputs, share.split([output.numel() for output in outputs])):
                if output.data_ptr() != part.data_ptr():
                    output.detach().copy_(part.view(output.shape))

        return self._run(
            lambda tag: self._comm.reduce_scatter_async(whole, share, op=op, tag=tag), finish, value, opts
        )

    @_eager
    def barrier(self, opts=None):
        nothing = torch.zeros(1)
        return self._run(
            lambda tag: self._comm.allreduce_async(nothing, tag=tag), lambda request: None, [], opts
        )

    def _run(self, start, finish, value, opts, device=None, staged=False):
        """start takes a tag: operations that wait for a GPU first are submitted out of order."""
        operation, tag = _Operation(), next(self._tags)
        return _Work(self._promise(operation, lambda: start(tag), finish, value, opts, device, staged), operation)

    def _promise(self, operation, start, finish, value, opts, device=None, staged=False):
        def finished(request):
            finish(request)
            return value

        def failed(error):
            operation.fail(error)
            self.error = self.error or error

        return self._completer.future(
            start,
            finished,
            failed,
            device,
            staged,
            operation,
            _seconds(getattr(opts, "timeout", None)) or self._limit,
        )

    def _other(self, tensors):
        """The group that does what we do not: Gloo, or, for tensors on a GPU, NCCL."""
        if all(_cuda.device_of(tensor) is None for tensor in tensors):
            return self._gloo
        return self._group_of_gpus()

    def _group_of_gpus(self):
        if self._nccl is None:
            if not dist.is_nccl_available():
                raise RuntimeError(
                    "backend winnow: only all_reduce takes tensors on a GPU without NCCL, and this "
                    "torch was built without it: pass tensors on the CPU"
                )
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = self._timeout
            store = dist.PrefixStore("nccl", self._words)
            self._nccl = dist.ProcessGroupNCCL(store, self._rank, self._size, options)
            # For what torch itself does with it, such as coalescing. A second one it would not take.
            if hasattr(dist.ProcessGroup, "_register_backend") and not self._reconfigurable:
                self._register_backend(torch.device("cuda"), dist.ProcessGroup.BackendType.NCCL, self._nccl)
        return self._nccl

    def _get_backend(self, device):
        """torch asks for that of GPUs before it has been used: init_process_group(device_id=..), batch_isend_irecv()."""
        return self._gloo if torch.device(device).type == "cpu" else self._group_of_gpus()

    def _end_nccl(self, how):
        """With "shutdown", or "abort", which waits for nobody."""
        nccl, self._nccl = self._nccl, None
        getattr(nccl, how, lambda: None)()


def _named(group, *names):
    """What torch has called by one name, and then by another."""
    return next(getattr(group, name) for name in names if hasattr(group, name))


def _through_other(name):
    def call(self, *arguments, **options):
        return getattr(self._other(_tensors_in(arguments)), name)(*arguments, **options)

    call.__name__ = name
    return call


for _name in _FALLBACK:
    if hasattr(dist.ProcessGroupGloo, _name):
        setattr(ProcessGroupWinnow, _name, _eager(_through_other(_name)))
# What torch calls them from 2.15 on.
ProcessGroupWinnow.all_gather_single = ProcessGroupWinnow._allgather_base
ProcessGroupWinnow.allgather_into_tensor_coalesced = ProcessGroupWinnow.all_gather_single_coalesced
ProcessGroupWinnow.reduce_scatter_single = ProcessGroupWinnow._reduce_scatter_base
ProcessGroupWinnow.reduce_scatter_single_coalesced = ProcessGroupWinnow.reduce_scatter_tensor_coalesced


def register():
    """Once: torch refuses a name that it knows."""
    if hasattr(dist.Backend, "WINNOW"):
        return
    known = inspect.signature(dist.Backend.register_backend).parameters
    options = {"devices": ["cpu", "cuda"]} if "devices" in known else {}
    if "extended_api" in known:
        options["extended_api"] = True
    dist.Backend.register_backend("winnow", _extended if "extended_api" in known else ProcessGroupWinnow, **options)


def _extended(opts, backend_options):
    reconfigurable = getattr(opts, "enable_reconfigure", False)
    return ProcessGroupWinnow(
        opts.store, opts.group_rank, opts.group_size, opts.timeout, reconfigurable=reconfigurable
    )


def time_outs(timeout):
    """What a group's timeout is for the library; WINNOW_TIMEOUT has been chosen for Winnow, and comes first."""
    lowest, highest = _TIMEOUT_MS
    limit = min(max(timeout // datetime.timedelta(milliseconds=1), lowest), highest)
    found = {"join_timeout_ms": min(limit, _JOIN_MS), "timeout_ms": limit}
    chosen = [name for name in found if any(variable("WINNOW_" + given.upper()) for given in (name, name[:-3]))]
    return {name: value for name, value in found.items() if name not in chosen}


def _seconds(timeout):
    """Of a timedelta; None where torch has put nothing in particular."""
    return timeout.total_seconds() if timeout is not None and timeout > datetime.timedelta(0) else None


def _exchange(store, rank, size):
    """For _places.agree()."""
    rounds = itertools.count()

    def exchange(value):
        name = f"winnow-node-{next(rounds)}"
        store.set(f"{name}-{rank}", json.dumps(value))
        return [json.loads(store.get(f"{name}-{other}")) for other in range(size)]

    return exchange


def _given(opts):
    """As arguments: Gloo and NCCL have defaults of their own."""
    return [] if opts is None else [opts]


def _plain_op(opts):
    op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
    return next((known for known in _OPS if op == known), None)


def _listed(tensors):
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _tensors_in(value):
    """All tensors of lists within lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    if not isinstance(value, (list, tuple)):
        return []
    return [tensor for part in value for tensor in _tensors_in(part)]


def _reducible(tensor):
    return (
        tensor.device.type in ("cpu", "cuda")
        and str(tensor.dtype)[6:] in _native.DTYPES
        and tensor.layout in (torch.strided, torch.sparse_coo)
    )


def _scatterable(*tensors):
    alike = {tensor.dtype for tensor in tensors}
    return len(alike) == 1 and all(_reducible(t) and t.device.type == "cpu" and not t.is_sparse for t in tensors)


def _overlap(a, b):
    """Do two contiguous tensors share memory?"""
    return a.data_ptr() < b.data_ptr() + _size(b) and b.data_ptr() < a.data_ptr() + _size(a)


def _movable(tensor):
    return tensor.device.type == "cpu" and tensor.layout == torch.strided


def _kind(tensor):
    return tensor.dtype, tensor.numel(), tensor.device


def _size(tensor):
    return tensor.numel() * tensor.element_size()


def _words(tensor):
    return -(-_size(tensor) // 4)


def _bytes(tensor):
    """The bytes of a tensor; of a contiguous one without a copy."""
    flat = tensor.detach().contiguous().view(-1)
    return flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8)


def _fill(tensor, data):
    """Bytes into a tensor, contiguous or not."""
    found = data[: _size(tensor)].clone().view(tensor.dtype)
    tensor.detach().copy_(found.view(tensor.shape))
