# SPDX-License-Identifier: BSD-3-Clause
"""The process group backend "winnow".

    import winnow.torch
    torch.distributed.init_process_group("winnow", ...)     # or new_group(backend="winnow")

These go through Winnow: all_reduce of dense and sparse tensors on the CPU or a GPU, with SUM, AVG, MIN, MAX and
PRODUCT; reduce_scatter of tensors on the CPU, of which each worker receives only its part; broadcast of tensors on the
CPU, of any type; and barrier. Everything else, and types that the library does not add (bytes, booleans, complex),
goes through an inner Gloo group, or an inner NCCL group if the tensors are on a GPU. all_gather also goes there,
because a sum of parts would send each worker its own part back.

With WINNOW_NODE=1 dense tensors on a GPU go through a winnow.Node, which the first such tensor creates.

With init_process_group("winnow", enable_reconfigure=True), from torch 2.15 on, a group has no members until
torch.distributed._reconfigure() names some. It may be called again when members are lost or join.
"""

import collections
import contextlib
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

from . import _cuda, _native, _places, _plain, _sparse
from ._comm import Comm
from ._futures import Completer, calling_back
from ._member import WinnowError, brief, flag_of, variable
from ._node import Node
from ._plain import Plain

_OPS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.PRODUCT: "prod",
}
# Methods of Gloo that are not defined below.
_FALLBACK = (
    "all_to_all_single allreduce_coalesced alltoall "
    "alltoall_base gather gather_into_tensor gather_single recv recv_anysource reduce "
    "scatter send"
).split()
_GLOO_TYPES = {torch.float32, torch.float64, torch.float16, torch.int32, torch.int64, torch.int8, torch.uint8}
if hasattr(dist.ProcessGroup, "_register_backend"):  # torch 2
    _GLOO_TYPES |= {torch.bfloat16, torch.bool}
_BLOCK = 256
_JOIN_MS = 65000  # the library's default; all ranks have already waited for each other, in Gloo
_TIMEOUT_MS = (100, 86400000)  # the library's limits
_BETWEEN = (__name__, "torch._dynamo", "torch._compile")  # modules of frames that _eager() adds
_SLICE_S = 0.1  # Python handles signals between slices


def _eager(call):
    """Excludes a call from torch.compile, which would otherwise also trace Python code that C++ calls."""
    disable = getattr(torch, "_disable_dynamo", None)
    if disable is None:
        return call
    disabled = disable(call)

    @functools.wraps(call)
    def run(*arguments, **options):
        # `disabled` imports the compiler, which takes seconds, so it is only used if a program compiles.
        return (disabled if "torch._dynamo" in sys.modules else call)(*arguments, **options)

    return run


class _Order:
    """The order in which all ranks begin the operations of one group."""

    def __init__(self):
        self.numbers = itertools.count()
        self.asked = set()  # operations that are not over, whose futures were returned


class _Operation:
    """An operation's place in its group's order.

    Operations match by number on all ranks. Callbacks (Future.then()) may begin operations, so their order must not depend
    on the time at which they run. Each operation therefore waits for the callbacks of earlier ones whose futures were
    returned. Operations that a callback begins come after its own operation and before the program's next one. In
    another group, they count as begun by the program.
    """

    def __init__(self, order):
        self._order, self._outer = order, calling_back()
        self._parent = self._outer
        while self._parent is not None and self._parent._order is not order:
            self._parent = self._parent._outer
        self._over = threading.Event()
        self.error = None
        while not all(earlier._over.wait(_SLICE_S) for earlier in list(order.asked) if self._follows(earlier)):
            pass
        self._number = next(order.numbers)

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
        """Notes that the future was returned, so that callbacks may be attached."""
        self._order.asked.add(self)
        if self._over.is_set():
            self._order.asked.discard(self)

    def is_over(self):
        return self._over.is_set()

    def wait(self, seconds):
        """Returns whether it is over within so many seconds."""
        return self._over.wait(seconds)

    def fail(self, error):
        """Keeps the exception, of which the future has only the text."""
        self.error = error

    def end(self):
        """Notes that its callbacks are over. Callbacks that are attached later run at once, in the attaching thread."""
        self._over.set()
        self._order.asked.discard(self)


def _asked_by_python():
    """Returns False for DDP's reducer. Its callbacks begin no operations, so its buckets need not wait for each other."""
    frame = sys._getframe(1)
    while frame is not None and _module(frame).startswith(_BETWEEN):
        frame = frame.f_back
    return frame is not None and not _module(frame).startswith("torch.autograd")  # None is a C++ thread


def _module(frame):
    return frame.f_globals.get("__name__") or ""


class _Halves:
    """Keeps the Python half of each Work until a wait, because before torch 2.7 C++ only keeps the C++ half.

    A Python program holds the Python half itself. Of a Work that is over and that no program holds, only the outcome is
    kept, and its tensors are freed.
    """

    needed = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 7)
    _MOST = 4096
    _LOOK = 4  # Works to look at for each new one
    _OWN_REFERENCES = 2  # a variable, and the argument of getrefcount()

    def __init__(self):
        self._whole, self._light = collections.OrderedDict(), collections.OrderedDict()
        self._lock = threading.Lock()

    def add(self, work):
        if not self.needed:
            return
        with self._lock:
            for _ in range(min(self._LOOK, len(self._whole))):
                key, other = self._whole.popitem(last=False)
                over = other.is_over() and sys.getrefcount(other) <= self._OWN_REFERENCES
                if over:
                    other.lighten()
                (self._light if over else self._whole)[key] = other
            self._whole[id(work)] = work
            for kept in self._whole, self._light:
                if len(kept) > self._MOST:
                    kept.popitem(last=False)

    def drop(self, work):
        with self._lock:
            self._whole.pop(id(work), None)
            self._light.pop(id(work), None)


_halves = _Halves()


class _Work(getattr(dist, "_Work", None) or dist.Work):  # type: ignore[misc]
    """The Work of an operation. Both wait() and the future raise its error, because torch uses one or the other."""

    def __init__(self, future, operation):
        super().__init__()
        self._future, self._operation = future, operation
        _halves.add(self)

    @brief
    @_eager
    def wait(self, timeout=None):
        seconds = _seconds(timeout)
        if seconds is not None and not self._operation.wait(seconds):
            raise RuntimeError(f"the operation is not done after {seconds} s; it continues, and you can wait for it again")
        _halves.drop(self)
        try:
            self._future.wait()
        except RuntimeError:
            if isinstance(self._operation.error, WinnowError):
                raise self._operation.error from None
            raise
        return True

    def is_over(self):
        """Returns whether the operation and its callbacks are over."""
        return self._operation.is_over()

    def lighten(self):
        """Frees the result, which nobody can ask for. wait() still works."""
        self._future = self._future.then(_nothing_of)

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


def _nothing_of(future):
    future.value()  # raises if the operation has failed


class _Elsewhere:
    """A Work of Gloo as a request of the library; None if there is nothing to do. Gloo has its own time-out."""

    def __init__(self, work):
        self._work = work

    def wait(self, seconds=None):
        if self._work is not None:
            self._work.wait()


class _Lent(_Work):
    """A Work of Gloo, with a function to call when it is over. A thread waits for it only if its future is asked for."""

    def __init__(self, work, promise, operation, finish=None):
        self._work, self._promise, self._finish = work, promise, finish
        self._lock = threading.Lock()
        super().__init__(None, operation)
        self.__dict__.pop("_future", None)

    @functools.cached_property
    def _future(self):
        return self._promise(self.finish)

    def _source_rank(self):
        return self._work._source_rank()

    @_eager
    def wait(self, timeout=None):
        _halves.drop(self)
        if self._work is not None:
            self._work.wait(*_given(timeout))
        self.finish()
        return True

    def finish(self, request=None):
        """Calls the function, once."""
        with self._lock:
            finish, self._finish = self._finish, None
            if finish is not None:
                finish()

    def is_completed(self):
        completed = self._work is None or self._work.is_completed()
        if completed and self._finish is not None:
            with contextlib.suppress(RuntimeError):  # wait() raises it again
                self.wait()
        return completed

    def is_over(self):
        try:
            return self._finish is None and self._work.is_completed() and self._work.wait()
        except RuntimeError:
            return False

    def lighten(self):
        self._work = self._promise = None
        self.__dict__.pop("_future", None)


class ProcessGroupWinnow(dist.ProcessGroup):
    @brief
    def __init__(self, store, rank, size, timeout, *, comm=None, reconfigurable=False):
        """comm: a communicator of these members for this group alone. The store then also serves this group alone."""
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._timeout = timeout
        self._limit = None  # seconds for an operation, if not the library's default
        self._reconfigurable = reconfigurable
        options = {"enable_reconfigure": True} if reconfigurable else {}
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout, **options)
        self._store, self._comm = store, comm
        self.error = None
        """The first failure of an operation in the present membership."""
        if reconfigurable:
            # The members do not wait for each other here, so the first name in the store counts.
            self._job = store.compare_set("winnow-job", "", _places.draw_job()).decode()
        elif comm is None:
            self._join()
        self._nccl = self._node = None
        self._words = self._store  # a store for this membership alone
        self._tags = itertools.count(1)
        self._order = _Order()
        self._completer = Completer("winnow-group")
        if hasattr(dist.ProcessGroup, "_register_backend"):
            # From torch 2 on a group takes its name, and methods that are not defined here, from a backend.
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
        """Returns rank 0's random word, because a restarted job may find an earlier run's entries in the store."""
        word = torch.tensor([int.from_bytes(os.urandom(7), "little")], device="cpu")
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
            raise ValueError("this process's handle is not among the handles, which change with each membership")
        place = handles.index(mine), len(handles)
        operation = _Operation(self._order)
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
        """Applies to operations that begin from now on."""
        self._timeout, self._limit = timeout, _seconds(timeout)
        self._gloo.set_timeout(timeout)

    def shutdown(self):
        """Leaves the job. From torch 2 on destroy_process_group() calls it."""
        self.leave()
        if self._comm is not None:
            self._comm.close()

    def leave(self):
        """Ends this group but not its communicator."""
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
            return self._through(self._other(tensors), "allreduce", tensors, *_given(opts))
        device = _cuda.device_of(tensor)
        if tensor.is_sparse:
            return self._allreduce_sparse(tensor, op, opts, device)
        plain, reducer = Plain(), self._reducer(tensor, op, device)
        return self._run(
            lambda tag: reducer.allreduce_async(plain.of(tensor), op=op, tag=tag),
            lambda request: plain.come_back(),
            tensors,
            opts,
            device,
        )

    def _reducer(self, tensor, op, device):
        """Returns the communicator or Node for a dense tensor. All ranks choose the same, in the same order."""
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
            tensor.data = _sparse.from_rows(*request.wait(), tensor)  # copy_() would copy everything again

        return self._run(start, finish, [tensor], opts, device, staged)

    @_eager
    def broadcast(self, tensors, opts):
        (tensor,) = tensors = _listed(tensors)
        if not _movable(tensor):
            return self._through(self._other(tensors), "broadcast", tensors, opts)
        words = torch.empty(_words(tensor), dtype=torch.int32, device="cpu")

        def start(tag):
            if self._rank == opts.rootRank:
                words[-1:] = 0
                _plain.bytes_of(words)[: _plain.size(tensor)] = _plain.bytes_of(tensor)
            return self._comm.broadcast_async(words, opts.rootRank, block=_BLOCK, tag=tag)

        def finish(request):
            if self._rank != opts.rootRank:
                _plain.fill(tensor, _plain.bytes_of(words))

        return self._run(start, finish, tensors, opts)

    @_eager
    def allgather(self, outputs, inputs, opts=None):
        inputs = _listed(inputs)
        return self._gather([[output] for output in outputs[0]], inputs, "allgather", (outputs, inputs), outputs, opts)

    @_eager
    def allgather_coalesced(self, outputs, inputs, opts=None):
        return self._gather(outputs, inputs, "allgather_coalesced", (outputs, inputs), outputs, opts)

    @_eager
    def _allgather_base(self, output, tensor, opts=None):
        if not _movable(output):
            return self._other([output, tensor])._allgather_base(output, tensor, *_given(opts))
        plain = Plain()
        parts, inputs = self._parts(plain.of(output)), [_plain.values(tensor).view(-1)]
        return self._gather([[part] for part in parts], inputs, "allgather", ([parts], inputs), [output], opts, plain)

    @_eager
    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        if not all(map(_movable, outputs)):
            other = self._other([*outputs, *inputs])
            name = _name_in(other, "all_gather_single_coalesced", "allgather_into_tensor_coalesced")
            return self._through(other, name, outputs, inputs, *_given(opts))
        plain = Plain()
        parts = [list(ranks) for ranks in zip(*map(self._parts, plain.of(outputs)))]
        inputs = [_plain.values(tensor).view(-1) for tensor in inputs]
        return self._gather(parts, inputs, "allgather_coalesced", (parts, inputs), outputs, opts, plain)

    def _parts(self, output):
        return list(output.detach().view(-1).chunk(self._size))

    def _gather(self, outputs, inputs, name, arguments, value, opts, plain=None):
        """Fills `outputs`, a list for each rank, with Gloo's method `name`, or as bytes if Gloo does not take the types.
        plain: the copies of which outputs are parts."""
        fits = len(outputs) == self._size and [_kind(t) for t in outputs[self._rank]] == [_kind(t) for t in inputs]
        fits = fits and all([t.dtype for t in part] == [t.dtype for t in inputs] for part in outputs)
        shapes = [[t.shape for t in part] for part in (inputs, *outputs)]
        usual = {t.dtype for t in inputs} <= _GLOO_TYPES and shapes.count(shapes[0]) == len(shapes)
        if not all(map(_movable, inputs)):
            return getattr(self._other(inputs), name)(*arguments, *_given(opts))
        plain = plain or Plain()
        if not fits or (usual and any(t.numel() for t in inputs)):
            call, operation = getattr(self._gloo, name), _Operation(self._order)
            return self._through_gloo(call, (*arguments, *_given(opts)), 1, value, opts, plain, operation)
        return self._gather_bytes(outputs, inputs, value, opts, plain)

    def _gather_bytes(self, outputs, inputs, value, opts, plain):
        sizes = [sum(map(_plain.size, part)) for part in outputs]
        mine = torch.zeros(max(sizes), dtype=torch.uint8, device="cpu")
        everyone = [torch.empty_like(mine) for _ in outputs]

        def start():
            mine[: sizes[self._rank]] = torch.cat([_plain.bytes_of(t) for t in inputs])
            # Gloo of torch 1.13 crashes on empty tensors.
            return _Elsewhere(self._gloo.allgather([everyone], [mine], *_given(opts)) if len(mine) else None)

        def finish(request):
            for part, data in zip(outputs, everyone):
                for tensor in part:
                    _plain.fill(tensor, data)
                    data = data[_plain.size(tensor) :]
            plain.come_back()

        operation = _Operation(self._order)
        return _Work(self._promise(operation, start, finish, value, opts), operation)

    @_eager
    def reduce_scatter(self, outputs, inputs, opts=None):
        (output,) = outputs = _listed(outputs)
        op, (parts,) = _OPS.get(_plain_op(opts)), inputs
        if op is None or not _scatterable(output, *parts):
            return self._through(self._other(outputs), "reduce_scatter", outputs, inputs, *_given(opts))
        whole = None

        def joined():
            nonlocal whole
            whole = torch.cat([_plain.values(t).view(-1) for t in parts])
            return whole

        def finish(request):
            first = sum(t.numel() for t in parts[: self._rank])
            output.detach().copy_(whole[first : first + output.numel()].view(output.shape))

        if all(t.numel() == output.numel() for t in parts):
            return self._scatter([output], joined, op, outputs, opts)
        # Parts of different sizes: an all_reduce of which each rank keeps its part.
        return self._run(lambda tag: self._comm.allreduce_async(joined(), op=op, tag=tag), finish, outputs, opts)

    @_eager
    def _reduce_scatter_base(self, output, tensor, opts=None):
        return self._scatter_whole([output], [tensor], opts, (output, tensor), "_reduce_scatter_base")

    @_eager
    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        """Reduces all tensors in one operation, in which a rank's share consists of its shares of all tensors."""
        names = "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"
        return self._scatter_whole(outputs, inputs, opts, (outputs, inputs), *names)

    def _scatter_whole(self, outputs, inputs, opts, arguments, *names):
        """Scatters the reduced inputs. names: names of the method in other groups, which have one of them."""
        op = _OPS.get(_plain_op(opts))
        if op is None or not outputs or not _scatterable(*outputs, *inputs):
            other = self._other([*outputs, *inputs])
            return self._through(other, _name_in(other, *names), *arguments, *_given(opts))

        def whole():
            self._refuse_sizes(outputs, inputs)
            if len(inputs) == 1:
                return _plain.values(inputs[0]).view(-1)
            return torch.cat([_plain.values(tensor).view(self._size, -1) for tensor in inputs], dim=1).view(-1)

        return self._scatter(outputs, whole, op, outputs, opts)

    def _refuse_sizes(self, outputs, inputs):
        sizes = [[tensor.numel() for tensor in tensors] for tensors in (inputs, outputs)]
        if sizes[0] != [self._size * size for size in sizes[1]]:
            raise ValueError(
                f"inputs of {sizes[0]} elements and outputs of {sizes[1]}: want {self._size} times as many inputs, "
                f"because there are {self._size} ranks"
            )

    def _scatter(self, outputs, whole, op, value, opts):
        """Reduces the tensor of whole() and writes this rank's share to the outputs, one after the other."""
        share = None

        def start(tag):
            nonlocal share
            tensor = whole()
            share = outputs[0].detach() if len(outputs) == 1 else None
            if share is None or not _plain.is_plain(share) or _overlap(share, tensor):
                share = tensor.new_empty(tensor.numel() // self._size)
            share = share.view(-1)
            return self._comm.reduce_scatter_async(tensor, share, op=op, tag=tag)

        def finish(request):
            for output, part in zip(outputs, share.split([output.numel() for output in outputs])):
                if output.data_ptr() != part.data_ptr():
                    output.detach().copy_(part.view(output.shape))

        return self._run(start, finish, value, opts)

    @_eager
    def barrier(self, opts=None):
        nothing = torch.zeros(1, device="cpu")
        return self._run(
            lambda tag: self._comm.allreduce_async(nothing, tag=tag), lambda request: None, [], opts
        )

    def _run(self, start, finish, value, opts, device=None, staged=False):
        """Runs an operation. start takes a tag, because operations that wait for a GPU are submitted out of order. Code that
        may fail on one rank alone belongs in start, so that the other ranks are told."""
        operation, tag = _Operation(self._order), next(self._tags)

        def or_aside(begin):
            try:
                return begin()
            except Exception:
                self._stand_aside(tag)
                raise

        def begin():
            begun = or_aside(lambda: start(tag))
            return (lambda: or_aside(begun)) if staged else begun

        return _Work(self._promise(operation, begin, finish, value, opts, device, staged), operation)

    def _stand_aside(self, tag):
        """Begins a dummy operation instead of one that failed here, so that a mismatch ("workers do not agree") ends the job.
        If the operation failed on all ranks, the dummies match and do no harm."""
        with contextlib.suppress(Exception):
            self._comm.allreduce_async(torch.zeros(7, dtype=torch.float64, device="cpu"), op="prod", tag=tag, block=7)

    def _through(self, group, name, *arguments, outputs=1, **options):
        """Calls a method of another group. The first `outputs` arguments receive results."""
        call = functools.partial(getattr(group, name), **options)
        if group is not self._gloo:
            return call(*arguments)
        opts = arguments[-1] if hasattr(arguments[-1], "timeout") else None
        return self._through_gloo(call, arguments, outputs, arguments[0], opts, Plain())

    def _through_gloo(self, call, arguments, outputs, value, opts, plain, operation=None):
        """Calls Gloo with plain copies of the arguments, because Gloo treats all tensors as contiguous."""
        work = call(*[plain.of(argument, comes_back=i < outputs) for i, argument in enumerate(arguments)])
        if not plain and operation is None:
            return work
        operation = operation or _Operation(self._order)
        promise = lambda finish: self._promise(operation, lambda: _Elsewhere(work), finish, value, opts)
        return _Lent(work, promise, operation, plain.come_back if plain else None)

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
        """Returns the inner group for other operations: Gloo, or NCCL for tensors on a GPU."""
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
            # torch needs it for coalescing, for example. It does not accept a second one.
            if hasattr(dist.ProcessGroup, "_register_backend") and not self._reconfigurable:
                self._register_backend(torch.device("cuda"), dist.ProcessGroup.BackendType.NCCL, self._nccl)
        return self._nccl

    def _get_backend(self, device):
        """Returns the inner group of a device. torch may ask before any use: init_process_group(device_id=..) does."""
        return self._gloo if torch.device(device).type == "cpu" else self._group_of_gpus()

    def _end_nccl(self, how):
        """Ends the inner NCCL group with "shutdown", or with "abort", which does not wait for other ranks."""
        nccl, self._nccl = self._nccl, None
        getattr(nccl, how, lambda: None)()


def _name_in(group, *names):
    """Returns the name that this version of torch uses."""
    return next(name for name in names if hasattr(group, name))


def _through_other(name):
    outputs = 0 if name == "send" else 1

    def call(self, *arguments, **options):
        return self._through(self._other(_tensors_in(arguments)), name, *arguments, outputs=outputs, **options)

    call.__name__ = name
    return call


for _name in _FALLBACK:
    if hasattr(dist.ProcessGroupGloo, _name):
        setattr(ProcessGroupWinnow, _name, _eager(_through_other(_name)))
# Their names from torch 2.15 on.
ProcessGroupWinnow.all_gather_single = ProcessGroupWinnow._allgather_base
ProcessGroupWinnow.allgather_into_tensor_coalesced = ProcessGroupWinnow.all_gather_single_coalesced
ProcessGroupWinnow.reduce_scatter_single = ProcessGroupWinnow._reduce_scatter_base
ProcessGroupWinnow.reduce_scatter_single_coalesced = ProcessGroupWinnow.reduce_scatter_tensor_coalesced


def register():
    """Registers the backend, once, because torch refuses a known name."""
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
    """Converts a group's timeout to settings of the library. WINNOW_TIMEOUT comes first, because it is meant for Winnow."""
    lowest, highest = _TIMEOUT_MS
    limit = min(max(timeout // datetime.timedelta(milliseconds=1), lowest), highest)
    found = {"join_timeout_ms": min(limit, _JOIN_MS), "timeout_ms": limit}
    chosen = [name for name in found if any(variable("WINNOW_" + given.upper()) for given in (name, name[:-3]))]
    return {name: value for name, value in found.items() if name not in chosen}


def _seconds(timeout):
    """Returns the seconds of a timedelta, or None if torch has given none."""
    return timeout.total_seconds() if timeout is not None and timeout > datetime.timedelta(0) else None


def _exchange(store, rank, size):
    """Returns an exchange function for _places.agree()."""
    rounds = itertools.count()

    def exchange(value):
        name = f"winnow-node-{next(rounds)}"
        store.set(f"{name}-{rank}", json.dumps(value))
        return [json.loads(store.get(f"{name}-{other}")) for other in range(size)]

    return exchange


def _given(opts):
    """Returns `opts` as a list of arguments, which is empty for the defaults of Gloo and NCCL."""
    return [] if opts is None else [opts]


def _plain_op(opts):
    op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
    return next((known for known in _OPS if op == known), None)


def _listed(tensors):
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _tensors_in(value):
    """Returns all tensors in nested lists."""
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
    """Returns whether two contiguous tensors share memory."""
    return a.data_ptr() < b.data_ptr() + _plain.size(b) and b.data_ptr() < a.data_ptr() + _plain.size(a)


def _movable(tensor):
    return tensor.device.type == "cpu" and tensor.layout == torch.strided


def _kind(tensor):
    return tensor.dtype, tensor.numel(), tensor.device


def _words(tensor):
    return -(-_plain.size(tensor) // 4)
