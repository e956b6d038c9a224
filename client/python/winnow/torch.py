# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel over Winnow, in two lines.

    import winnow.torch
    winnow.torch.attach(ddp)        # after ddp = DistributedDataParallel(model)

``attach()`` registers a communication hook. The process group stays what it was, Gloo or NCCL for example, and still
serves the start and the buffers. Gradients, dense and sparse, on the CPU or a GPU, go to the aggregators that
``WINNOW_AGGREGATORS`` names. ``attach(ddp, node=True)`` makes the GPUs of each host one worker.
``OuterOptimizer`` exchanges less often, for thin links.

Importing this module also registers the backend "winnow" for ``torch.distributed.init_process_group()``.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
import zlib
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, Sequence, Tuple, Union, overload

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import _cuda, _group, _native, _places, _sparse, _timeline, _way
from ._comm import Comm
from ._compress import SHORT_WARM_UP, SHORT_WIRE, compressor_of, lost_of, parts_of, remember_lost
from ._compress import TopK, merge_memories
from ._cuda import Home
from ._elastic import Elastic
from ._futures import Completer
from ._member import BLOCK_MAX, brief, choice, end_job, flag_of, number, told_late
from ._node import Node
from ._outer import OuterOptimizer
from ._stats import OfHook, OpStats, Shares

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._settings import OfNode

__all__ = [
    "Elastic",
    "HookState",
    "HookStats",
    "OuterOptimizer",
    "TopK",
    "attach",
    "hook",
    "make_node",
    "merge_memories",
]

_group.register()

# Tags of hooks have this bit, so that they never meet the program's own on one communicator.
_TAG_OF_HOOKS = 1 << 62
_hook_numbers: weakref.WeakKeyDictionary[Union[Comm, Node], int] = weakref.WeakKeyDictionary()  # hooks by communicator
_attached: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
_VALUES = 16  # values of each parameter to compare between ranks
_PYTHON_REDUCER = (
    'the hook needs DDP\'s buckets, but torch._dynamo.config.optimize_ddp is "python_reducer", which has none: '
    "set it to True before you create the DistributedDataParallel"
)
_WIRE_TOTALS = ("sent_bytes", "received_bytes", "retransmits")  # of the communicator, since the hook was attached


class HookStats(Shares, OfHook):
    """Totals of a hook since it was attached. ``HookState.stats()`` returns them.

    With nodes, blocks and bytes are those of this GPU's share.

    Attributes:
        buckets: Buckets that were reduced.
        bytes: The size of these buckets as dense tensors, in bytes.
        blocks, blocks_nonzero, blocks_union: As in ``winnow.OpStats``.
        time_us: The times of all buckets added up, in microseconds.
        staged_out_bytes, staged_in_bytes: Bytes that a GPU sent and received over its bus. Of a sparse bucket these are
            its rows and indices, and of a compressed one the whole bucket.
        sent_bytes, received_bytes: Bytes that the communicator sent and received, as Ethernet frames.
        retransmits: Packets that the communicator sent again.
    """

    __slots__ = ()


@overload
def attach(
    ddp: torch.nn.Module, comm: Optional[Union[Comm, Node]] = None, *, block: Optional[int] = None,
    wire: Optional[str] = None, node: bool = False, check_nan: Optional[bool] = None,
    compress: Optional[Union[str, TopK]] = None, way: Optional[str] = None, elastic: Literal[False] = False,
) -> HookState: ...


@overload
def attach(
    ddp: torch.nn.Module, comm: Optional[Comm] = None, *, block: Optional[int] = None, wire: Optional[str] = None,
    compress: Optional[Union[str, TopK]] = None, way: Optional[str] = None, elastic: Literal[True],
) -> Elastic: ...


@brief
def attach(
    ddp: torch.nn.Module, comm: Optional[Union[Comm, Node]] = None, *, block: Optional[int] = None,
    wire: Optional[str] = None, node: bool = False, check_nan: Optional[bool] = None,
    compress: Optional[Union[str, TopK]] = None, way: Optional[str] = None, elastic: bool = False,
) -> Union[HookState, Elastic]:
    """Average the gradients of a DistributedDataParallel model through Winnow.

    Call it on every rank, after constructing ``ddp`` and before the first backward pass. If a process has several
    models, attach them in the same order on every rank; each model is a separate job. All ranks pass the same
    arguments.

    The call blocks until all ranks have called it and have joined the job. A rank that waits for more than
    5 seconds logs a warning to the logger ``winnow``. Later, ``backward()`` raises RuntimeError if the job fails.

    Args:
        ddp: The DistributedDataParallel module, compiled or not. Its parameters are on the CPU or on CUDA GPUs.
        comm: An existing communicator: a ``winnow.Comm`` with one worker, or a ``winnow.Node`` with one GPU, for each
            process of ``ddp``. By default a new one with the rank and world size of ``ddp``, for the aggregators in the
            environment variable ``WINNOW_AGGREGATORS``. ``HookState.close()`` or the program's end closes it.
        block: Elements in a block, 1 to 65536, by default ``WINNOW_BLOCK``, or 256. Blocks that are zero are not sent.
            Smaller blocks skip more zeros, and cost more CPU. Large tables, such as embeddings, are always cut at their rows.
        wire: How float32 travels: ``"native"``, ``"fixed32"``, ``"bf16"``, ``"fixed16"``, ``"fixed8"`` or ``"auto"``.
            By default ``WINNOW_WIRE``, or ``"auto"``. Use ``"bf16"`` on thin links to halve the bytes.
            ``Comm.allreduce()`` describes each.
        node: True makes the GPUs of each host one worker, as ``make_node()`` does. The whole model is then on this
            process's GPU. Use it if a host has several GPUs.
        check_nan: True ends the job on all ranks if a gradient of this process has a NaN, and names rank and parameter.
            It reads each gradient once more, and on a GPU waits for it, so only use it to find a fault. Infinities pass.
            By default ``WINNOW_CHECK_NAN`` decides, or it is off.
        compress: ``"topk:0.01"``, or a ``TopK``: only the largest 1 % of a gradient's elements are sent. The rest is
            remembered and sent later, which changes what the model learns. The text stands for
            ``TopK(0.01, warm_up=20)`` with ``wire="bf16"``, and with nodes for the default wire. With nodes each GPU
            chooses from its own gradient, before NCCL adds up. By default all non-zero blocks are sent. Use it on thin
            links only; docs/thin-links.md compares it with other ways.
        way: ``"auto"`` picks, for each matrix, the form that needs the fewest bytes: blocks, rows, columns or single
            elements. It decides by the averages of earlier steps, which all ranks have received;
            ``HookState.ways(ddp.module)`` shows its choice. With None, and with nodes, the shape decides. Use ``"auto"`` if
            a layer's gradient has zero columns.
        elastic: True lets workers and aggregators come and go, and returns an Elastic. The process group of ``ddp`` then
            has one process, and ``comm``, by default one from the environment, any number of workers. It excludes
            nodes, ``check_nan``, ``static_graph``, ``find_unused_parameters`` and sparse gradients. docs/elastic.md has
            the loop.

    Returns:
        The HookState, with ``stats()`` and ``close()``. With ``elastic=True`` the Elastic, with ``share()``, ``admit()``
        and ``resume()``.

    Raises:
        TypeError: ``ddp`` is not a DistributedDataParallel, or an argument has a wrong type.
        ValueError: Arguments contradict each other, or arguments or parameters differ between ranks.
        RuntimeError: The model already has a communication hook.
        winnow.WinnowError: No aggregator answers, an aggregator refuses this worker, or not all ranks joined in time.

    Example:
        >>> ddp = torch.nn.parallel.DistributedDataParallel(model)
        >>> state = winnow.torch.attach(ddp)
        >>> ...                                              # train as before
        >>> print(state.stats().density)                     # the share of blocks that this worker sent
    """
    ddp = getattr(ddp, "_orig_mod", ddp)  # of torch.compile()
    _refuse_module(ddp)
    _refuse_arguments(comm, block, wire, way, node=node, check_nan=check_nan, elastic=elastic)
    if getattr(ddp, "_use_python_reducer", False):
        raise ValueError(_PYTHON_REDUCER)
    nodes = node or isinstance(comm, Node)
    if isinstance(compress, str) and not nodes:  # nothing would remember the rounding errors of NCCL's sums
        wire = wire or SHORT_WIRE
    if elastic:
        _refuse_parameters(ddp)
        if nodes or check_nan:
            raise ValueError("elastic=True takes block, wire, compress and way: leave node and check_nan out")
        compress = compressor_of(compress, warm_up=SHORT_WARM_UP)
        with _as_only_hook(ddp):
            return Elastic(ddp, comm, block=block, wire=wire, compress=compress, way=way)  # type: ignore[arg-type]
    group = ddp.process_group
    world = dist.get_world_size(group)
    if comm is not None and node:
        raise ValueError("node=True creates a winnow.Node: leave comm out")
    _refuse_parameters(ddp)
    if ddp in _attached:
        raise RuntimeError("this model already has its hook: call attach() only once for each DistributedDataParallel")
    if comm is not None and comm.world != world:
        raise ValueError(
            f"the communicator has {comm.world} workers, but DDP has {world}: "
            "create it with the rank and world of DDP's process group"
        )
    compress = compressor_of(compress, warm_up=SHORT_WARM_UP)
    check_nan = flag_of("WINNOW_CHECK_NAN") if check_nan is None else check_nan
    with _cuda.on(_cuda.device_of(next(ddp.module.parameters()))):
        _refuse_difference(
            ddp,
            compress=repr(compress),
            way=repr(way),
            block=block or 0,
            wire=repr(wire),
            node=nodes,
            comm="one of its own" if comm is None else f"the program's, with {_hook_numbers.get(comm, 0)} hooks already",
        )
    if nodes:
        gpu = _only_gpu(ddp, comm)
    state = HookState(comm, block=block, wire=wire, node=node, check_nan=check_nan, compress=compress, way=way)
    with _as_only_hook(ddp):
        state.name(ddp.module, ddp.find_unused_parameters)
        ddp.register_comm_hook(state, hook)
    _attached.add(ddp)
    if node or comm is None:
        with _cuda.on(_cuda.device_of(next(ddp.module.parameters()))):
            state.open(group=group, gpu=gpu if node else None)
    return state


@brief
def make_node(
    group: Optional[Any] = None, *, gpu: Optional[int] = None, node: Optional[int] = None, **settings: Unpack[OfNode]
) -> Node:
    """Create a ``winnow.Node`` of all processes of a process group, with one GPU for each process.

    All processes of the group call it, and it blocks until they have. Over NCCL, call ``torch.cuda.set_device()`` first.

    Args:
        group: The process group. By default torch's default group.
        gpu: This process's GPU, a CUDA device number. By default torch's current one.
        node: The number of the node that this process is on. By default ``GROUP_RANK``, which torchrun sets. Each node
            has the same number of processes.
        **settings: Settings of ``winnow.Comm``, except rank and world.

    Returns:
        The node. Close it with ``close()``; otherwise it ends with the program.

    Raises:
        ValueError: Neither an argument nor the environment says where a process is. All processes get the error.
        winnow.WinnowError: As in ``winnow.Node()``.

    Example:
        >>> torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        >>> winnow.torch.attach(ddp, winnow.torch.make_node(node=0))
    """
    place = _places.agree(lambda value: _exchange(value, group), dist.get_rank(group), node)
    of_node: Dict[str, Any] = {"job": _job_of(group), **settings}
    return Node(gpus=_cuda.current() if gpu is None else gpu, **place, **of_node)


def _job_of(group):
    return _exchange(_places.draw_job() if dist.get_rank(group) == 0 else None, group)[0]


def _exchange(value, group):
    """Returns all processes' values, by rank."""
    with told_late(f"rank {dist.get_rank(group)}: waiting for other ranks, which must also call attach() or make_node()"):
        return _places.exchange(value, group)


def hook(state: HookState, bucket):  # without other annotations, because DDP compares these and would see texts
    """The communication hook that ``attach()`` registers.

    Use it for wrappers such as ``fp16_compress_wrapper()``, with ``register_comm_hook()`` instead of ``attach()``. The
    name ``bucket`` is one that DDP looks for. DDP calls the hook during ``backward()``. The hook does not wait for the
    average.

    Args:
        state: The HookState.
        bucket: DDP's bucket of gradients, a ``torch.distributed.GradBucket``.

    Returns:
        A ``torch.futures.Future`` of the averaged bucket.

    Raises:
        ValueError: ``torch._dynamo.config.optimize_ddp`` is ``"python_reducer"``, which has no buckets.

    Example:
        >>> hook = fp16_compress_wrapper(winnow.torch.hook)
        >>> ddp.register_comm_hook(winnow.torch.HookState(), hook)
    """
    if isinstance(bucket, tuple):
        raise ValueError(_PYTHON_REDUCER)
    tensor = bucket.buffer()
    parameters = bucket.parameters()
    # No priorities: DDP needs the results in the order of the buckets.
    segments = state.segments(parameters, tensor) if tensor.layout == torch.strided else None
    if bucket.index() == 0:
        state.tell_way()
    return state.reduce(tensor, segments, parameters=parameters)


class HookState:
    """The state of ``hook()``: a communicator, how to use it, and a thread that completes futures.

    ``attach()`` makes one. Make one yourself only for ``register_comm_hook()``. A HookState can be pickled with its
    settings; a copy joins the job that the environment names when it is first used.

    Args:
        comm: The ``winnow.Comm`` or ``winnow.Node`` to use. By default ``open()``, or the first bucket, joins a job.
        block, wire, node, check_nan, way: As in ``attach()``.
        compress: A ``TopK``, or None.

    Attributes:
        comm: The communicator or node; None before a job is joined.
        error: The first failure, or None. For a failure of the library it is the WinnowError, of which ``backward()``
            raises only the text.

    Raises:
        TypeError, ValueError: As in ``attach()``.
    """

    def __init__(
        self, comm: Optional[Union[Comm, Node]] = None, *, block: Optional[int] = None, wire: Optional[str] = None,
        node: bool = False, check_nan: Optional[bool] = None, compress: Optional[TopK] = None, way: Optional[str] = None,
    ):
        _refuse_arguments(comm, block, wire, way, node=node, check_nan=check_nan)
        self.comm = None
        self.way = way
        self._seen = _way.seen_of(way, block)
        self._module = None
        self.check_nan = flag_of("WINNOW_CHECK_NAN") if check_nan is None else check_nan
        self.node = node or isinstance(comm, Node)
        self.block = block
        self.wire = wire
        self.compress = compress
        self.error = None
        self._owned = False
        self._rows = None  # with a Node: the communicator for sparse gradients
        self._closed = None  # totals of the communicator after close()
        self._totals = _Totals()
        self._names: Dict[int, str] = {}  # names of parameters, by id
        self._completer = Completer("winnow-hook")
        if comm is not None:
            self._use(comm)

    def name(self, module: torch.nn.Module, find_unused_parameters: bool = False) -> None:
        """Give the state its model, so that errors name the model's parameters and ``compress`` knows them.

        ``attach()`` calls it. Call it yourself before the first step if you use ``register_comm_hook()``.

        Args:
            module: The model, ``ddp.module``.
            find_unused_parameters: What the DistributedDataParallel was given.

        Raises:
            ValueError: ``compress`` has a model already, or cannot take a parameter.
        """
        self._names.update((id(parameter), name) for name, parameter in module.named_parameters())
        self._module = module
        if self.compress is not None:
            self.compress._learn(module, find_unused_parameters)

    @brief
    def open(
        self, rank: Optional[int] = None, world: Optional[int] = None, *, group: Optional[Any] = None,
        gpu: Optional[int] = None,
    ) -> None:
        """Join a job. The call blocks until all workers have joined.

        Without ``rank`` and ``world`` all processes of ``group`` call it, and the job is their own, as in ``attach()``.
        With them the job is the one that the environment names.

        Args:
            rank: This worker's number.
            world: The number of workers.
            group: The process group. By default torch's default group.
            gpu: With nodes, this process's GPU, as in ``make_node()``.

        Raises:
            winnow.WinnowError: As in ``winnow.Comm()``.
        """
        if self.node:
            self._use(make_node(group, gpu=gpu))
        elif rank is None:
            job = _job_of(group)
            self._use(Comm(job=job, rank=dist.get_rank(group), world=dist.get_world_size(group)))
        else:
            self._use(Comm(rank=rank, world=world))
        self._owned = True

    def close(self) -> None:
        """End the thread, and leave the job if ``attach()`` or ``open()`` joined it.

        ``stats()`` still works afterwards.
        """
        self._completer.close()
        if self.comm is None or self._closed:
            return
        if self._owned or self._rows is not None:
            self._closed = self._wire_totals()
        if self._rows is not None:
            self._rows.close()
        if self._owned:
            self.comm.close()

    def segments(
        self, parameters: Sequence[torch.nn.Parameter], buffer: torch.Tensor
    ) -> Optional[List[Tuple[int, ...]]]:
        """Return the segments of a bucket for ``reduce()``.

        Args:
            parameters: The parameters of the bucket, in its order.
            buffer: The bucket's dense tensor.

        Returns:
            A list as ``winnow.Comm.allreduce()`` takes it, or None if the bucket needs none.
        """
        self._notice_members()
        compress = self.compress if _cuda.device_of(buffer) is None else None
        return _way.segments(parameters, buffer, compress, self._seen)

    def ways(self, module: torch.nn.Module) -> Dict[str, str]:
        """Tell in which form the gradient of each parameter travels now.

        Args:
            module: The model, ``ddp.module``.

        Returns:
            By the parameter's name: ``"blocks"``, ``"rows"``, ``"columns"`` or ``"elements"``.
        """
        return _way.ways_of(module, self.compress, self._seen)

    def costs(self, module: torch.nn.Module) -> Dict[str, Dict[str, int]]:
        """Explain the choice of ``way="auto"`` that ``ways()`` shows.

        Args:
            module: The model, ``ddp.module``.

        Returns:
            By the parameter's name: the bytes that each form would have needed for the last average that was examined.
            Empty without ``way="auto"``.
        """
        return {name: self._seen.costs(parameter) for name, parameter in module.named_parameters() if self._seen is not None}

    def tell_way(self) -> None:
        """Send the choice of ``way="auto"`` to ``winnow status --workers``, if it may have changed. ``hook()`` calls it."""
        if self._seen is not None and self._module is not None and isinstance(self.comm, Comm):
            self._seen.tell(self.comm, lambda: self.ways(self._module))

    def stats(self) -> HookStats:
        """Return the totals since the hook was attached. Any thread may call it, and it does not wait.

        Returns:
            A HookStats. ``density`` and ``union`` are the shares of blocks that this worker, and any worker, sent.
        """
        return HookStats(*self._totals.read(), *self._wire_totals())

    def reduce(
        self, tensor: torch.Tensor, segments: Optional[Sequence[Tuple[int, ...]]] = None, priority: int = 0,
        parameters: Sequence[torch.nn.Parameter] = (),
    ) -> torch.futures.Future[torch.Tensor]:
        """Start averaging a tensor over all workers, and return without waiting.

        Use it in a hook of your own. All ranks start the same tensors in the same order. A tensor on a GPU is taken as the
        current stream leaves it, and only the operation waits for that stream.

        Args:
            tensor: Floating-point, on the CPU or a GPU. Either dense and flat, and then overwritten with the average; or
                sparse COO.
            segments, priority: As in ``winnow.Comm.allreduce()``.
            parameters: The parameters that the tensor consists of, one after the other. ``compress``, ``way`` and errors
                need them.

        Returns:
            A future. Its value is ``tensor``, or for a sparse one a new, coalesced tensor with the rows of all workers. It
            raises RuntimeError if the operation fails; ``error`` then has the WinnowError.
        """
        device = _cuda.device_of(tensor)
        compressed = self.compress is not None and tensor.layout == torch.strided
        leaves = compressed and not self.node or _way.leaves(segments)
        staged = device is not None and (tensor.is_sparse or leaves)
        if tensor.is_sparse:
            start, finish, cost = self._sparse(tensor, staged)
        else:
            start, finish, cost = self._dense(tensor, segments, parameters, staged)
        options: Dict[str, Any] = {}
        begun, lane = _timeline.now(), self._totals.begin()

        def submit():
            _refuse_tensor(tensor)
            if self.node and device is None:
                raise TypeError(
                    "a gradient is on the CPU: with nodes, the whole model must be on the process's GPU"
                )
            if self.comm is None:
                self.open(gpu=device.index if self.node else None)
            self._notice_members()
            if self.check_nan:
                self._refuse_nan(tensor, parameters)
            for parameter, part in parts_of(tensor, parameters) if compressed else ():
                self.compress._take_or_end(self.comm, part, parameter)
            # Tags follow the order of buckets.
            options.update(op="avg", tag=next(self._tags), wire=self.wire, priority=priority)
            return start(options)

        def done(request):
            stats = cost(request)
            self._totals.end(tensor, stats, lane)
            self._note(tensor, stats, lane, begun)
            result = finish(request)
            if self._seen is not None and not self.node and not tensor.is_sparse:
                for parameter, part in parts_of(result, parameters):
                    self._seen.look(parameter, part)
            return result

        return self._completer.future(submit, done, self._failed, device, staged)

    def __getstate__(self):
        return {name: getattr(self, name) for name in ("block", "wire", "node", "check_nan", "compress", "way")}

    def __setstate__(self, settings):
        self.__init__(**settings)

    def _dense(self, tensor, segments, parameters, staged):
        home = lost = None
        compress = None if self.node else self.compress

        def start(options):
            nonlocal home
            home, begin = self._leaving(tensor, segments, parameters)

            def go():
                nonlocal lost
                home.leave()
                lost = lost_of(compress, home.there, parameters, self.comm, self.wire)
                return begin(options if lost is None else {**options, "lost": lost})

            return go if staged else go()

        def finish(request):
            remember_lost(compress, lost, parameters)
            return home.come_back()

        return start, finish, lambda request: home.cost(request.stats)

    def _leaving(self, tensor, segments, parameters):
        """Returns the Home of a bucket, and a function that begins its operation. A GPU's bucket travels from the host's memory
        if elements were chosen, or for tiles or a narrow wire; otherwise from the GPU. With nodes it stays on the GPU,
        because NCCL adds up first."""
        chose = self.compress is not None and any(map(self.compress._chose, parameters))
        block = self.block or 0
        narrows = self.compress is not None and not self.node and self.comm.narrows(self.wire)
        home = Home(tensor, not self.node and (chose or narrows or _way.leaves(segments)))
        if home.leaves and chose:
            segments = _way.segments(parameters, tensor, self.compress, self._seen)
        elif self.node and chose:
            segments, block = None, self.compress.block
        return home, lambda options: self.comm.allreduce_async(home.there, block=block, segments=segments, **options)

    def _sparse(self, tensor, staged):
        sent = 0

        def start(options):
            comm = self._comm_of_rows()

            def go():
                nonlocal sent
                *rows, count = _sparse.to_rows(tensor)
                sent = _sparse.size(rows)
                return comm.allreduce_rows_async(*rows, count, **options)

            return go if staged else go()

        def cost(request):
            """Returns the statistics with the bytes of rows copied from and to a GPU, which the library does not know."""
            if not staged:
                return request.stats
            return request.stats._replace(staged_out_bytes=sent, staged_in_bytes=_sparse.size(request.wait()))

        return start, lambda request: _sparse.from_rows(*request.wait(), tensor), cost

    def _comm_of_rows(self):
        """Returns the communicator for rows. Nodes do not reduce rows, so their processes join another job for these."""
        if self.node and self._rows is None:
            self._rows = self.comm.comm()
        return self._rows if self.node else self.comm

    def _refuse_nan(self, tensor, parameters):
        """Ends the job if a gradient has a NaN, before it gets into the average."""
        values = tensor._values() if tensor.is_sparse else tensor
        if not values.isnan().any():
            return
        if tensor.is_sparse:
            found = list(parameters)
        else:
            found = [parameter for parameter, part in parts_of(values, parameters) if part.isnan().any()]
        names = [self._names.get(id(parameter), "a parameter without a name") for parameter in found]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        where = ", ".join(names[:3]) + more or "a bucket"
        end_job(self.comm, f"NaN in the gradient of {where} on rank {self.comm.rank}, before it was averaged")

    def _failed(self, error):
        self.error = self.error or error
        if self._seen is not None:
            self._seen.forget()  # other ranks may have seen this average

    def _note(self, tensor, stats, lane, begun):
        timeline = _timeline.of_rank(self.comm.rank)
        if timeline is not None:
            timeline.span(
                f"allreduce of {tensor.numel()} {str(tensor.dtype)[6:]}{' sparse' * tensor.is_sparse}",
                lane,
                begun,
                _timeline.now(),
                **stats._asdict(),
            )

    def _wire_totals(self):
        if self._closed or self.comm is None:
            return self._closed or [0] * len(_WIRE_TOTALS)
        totals = [self.comm.stats()] + ([self._rows.stats()] if self._rows is not None else [])
        return [
            sum(getattr(now, name) for now in totals) - getattr(self._before, name) for name in _WIRE_TOTALS
        ]

    def _use(self, comm):
        self.comm = comm
        self._before = comm.stats()
        number = _hook_numbers.get(comm, 0)
        _hook_numbers[comm] = number + 1
        self._first_tag, self._membership = _TAG_OF_HOOKS | number << 40, getattr(comm, "memberships", 0)
        self._begin()

    def _notice_members(self):
        """Begins anew after Comm.reconfigure(), because ranks may have completed different operations."""
        now = getattr(self.comm, "memberships", 0)  # a Node has one membership
        if self.comm is not None and now != self._membership:
            self._membership = now
            self._begin()

    def _begin(self):
        self._tags = itertools.count(self._first_tag)
        if self._seen is not None:
            self._seen.forget()


class _Totals:
    """Sums over buckets. Also gives each bucket that is under way the smallest free number, its lane."""

    def __init__(self):
        self._lock = threading.Lock()
        self._values = [0] * (2 + len(OpStats._fields))
        self._lanes = set()

    def begin(self):
        with self._lock:
            lane = next(lane for lane in itertools.count() if lane not in self._lanes)
            self._lanes.add(lane)
            return lane

    def end(self, tensor, stats, lane):
        size = tensor.numel() * tensor.element_size()
        with self._lock:
            self._lanes.discard(lane)
            for index, value in enumerate((1, size, *stats)):
                self._values[index] += value

    def read(self):
        with self._lock:
            return list(self._values)


def _refuse_module(module):
    if isinstance(module, DistributedDataParallel):
        return
    kinds = {kind.__name__ for kind in type(module).__mro__}
    if kinds & {"FullyShardedDataParallel", "FSDPModule"}:
        raise TypeError(
            "attach() takes a DistributedDataParallel, but this model is sharded (FSDP), which has no such hook: "
            'use init_process_group("winnow") instead of attach()'
        )
    raise TypeError(
        f"attach() takes a DistributedDataParallel, but this is {type(module).__name__}: "
        "wrap it first, ddp = DistributedDataParallel(model), and pass that"
    )


def _refuse_arguments(comm, block, wire, way, **flags):
    """Refuses arguments that the library would refuse in the first backward()."""
    if comm is not None and not isinstance(comm, (Comm, Node)):
        raise TypeError(f"comm is a {type(comm).__name__}: want a winnow.Comm, a winnow.Node or None")
    if block is not None:
        number("block", block, BLOCK_MAX)
    choice("wire", wire or "auto", _native.WIRES)
    _way.seen_of(way, block)
    for name, flag in flags.items():
        if flag not in (True, False, None):
            raise TypeError(f"{name} is {flag!r}: want True or False")


@contextlib.contextmanager
def _as_only_hook(ddp):
    """Explains the error of a second register_comm_hook(), if possible before a job is joined."""
    once = "can only be called once"
    try:
        if getattr(ddp, "_comm_hooks", []):  # from torch 2.1 on
            raise RuntimeError(once)
        yield
    except RuntimeError as error:
        if once not in str(error):
            raise
        raise RuntimeError(
            "this model already has a communication hook, and attach() registers one: leave register_comm_hook() out; "
            "register fp16_compress_wrapper(winnow.torch.hook) without attach()"
        ) from None


def _refuse_parameters(ddp):
    """Refuses parameters that no bucket can carry, before the first step."""
    for name, parameter in ddp.module.named_parameters():
        if parameter.device.type not in ("cpu", "cuda"):
            raise ValueError(
                f"parameter {name} is on {parameter.device}: the hook only takes gradients on the CPU or on a "
                "CUDA GPU"
            )


def _refuse_difference(ddp, **mine):
    """Raises an error on all ranks if settings or weights differ."""
    weights = _weights(ddp)
    everyone = _exchange((mine, list(weights.values())), ddp.process_group)
    for rank, (other, values) in enumerate(everyone):
        for name, value in mine.items():
            if other[name] != value:
                raise ValueError(f"{name} is {value} on this rank, but {other[name]} on rank {rank}: want the same on all")
        for (name, value), its in zip(weights.items(), values):
            if its != value:
                raise ValueError(
                    f"parameter {name} has other values on rank {rank} than on this one: attach several models in the "
                    "same order on all ranks, after loading the same weights on all of them"
                )


def _weights(ddp):
    """Returns a checksum of the first values of each parameter that DDP has made equal on all ranks, by name. They
    distinguish models of the same shape."""
    ignored = set(ddp.parameters_to_ignore)
    return {
        name: zlib.crc32(parameter.detach().flatten()[:_VALUES].cpu().view(torch.uint8).numpy())
        for name, parameter in ddp.module.named_parameters()
        if name not in ignored and type(parameter) is torch.nn.Parameter and parameter.layout == torch.strided
    }


def _only_gpu(ddp, node):
    """Returns the GPU that the whole model is on, as nodes need it. It must be that of `node` if that is given."""
    gpu = node.gpus[0] if node is not None else None
    for name, parameter in ddp.module.named_parameters():
        device = _cuda.device_of(parameter)
        found = None if device is None else device.index
        gpu = found if gpu is None else gpu
        if found is None or found != gpu:
            raise ValueError(
                f"parameter {name} is on {parameter.device}: with nodes, the whole model must be on the process's "
                + ("GPU" if gpu is None else f"GPU, which is {gpu}")
            )
    return gpu


def _refuse_tensor(tensor):
    if tensor.layout not in (torch.strided, torch.sparse_coo):
        raise TypeError(f"a gradient is {tensor.layout}: want a dense or COO tensor")
    if not tensor.is_floating_point():
        raise TypeError(f"a gradient is {tensor.dtype}: averages need a floating-point type")


def __dir__():
    return __all__
