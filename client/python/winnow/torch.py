# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel over Winnow: two lines.

    import winnow.torch
    winnow.torch.attach(ddp)        # after ddp = DistributedDataParallel(model)

attach() registers a communication hook, so the process group stays what it was (Gloo, NCCL,
..) and serves start-up and buffers; gradients, dense and sparse, on the CPU or on a GPU, go to the
aggregators of WINNOW_AGGREGATORS. attach(ddp, node=True) makes the GPUs of each host one worker.

Importing this module also registers the process group backend "winnow": see _group.py.
"""

import collections
import contextlib
import itertools
import threading
import weakref
import zlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import _cuda, _group, _native, _places, _sparse, _timeline, _way
from ._comm import Comm
from ._compress import SHORT_WARM_UP, SHORT_WIRE, compressor_of, lost_of, parts_of, remember_lost
from ._compress import TopK, merge_memories  # noqa: F401 - for programs
from ._cuda import Home
from ._elastic import Elastic
from ._futures import Completer
from ._member import BLOCK_MAX, OpStats, Shares, brief, choice, end_job, flag_of, number, told_late
from ._node import Node
from ._outer import OuterOptimizer  # noqa: F401 - for programs

_group.register()

# Tags of hooks have this bit, so that they never meet the program's own on one communicator.
_TAG_OF_HOOKS = 1 << 62
_hook_numbers = weakref.WeakKeyDictionary()  # communicator: hooks attached so far
_attached = weakref.WeakSet()
_VALUES = 16  # of each parameter, that are compared between ranks
_PYTHON_REDUCER = (
    'the hook takes DDP\'s buckets, and torch._dynamo.config.optimize_ddp is "python_reducer", which has none: '
    "set it to True before the DistributedDataParallel is made"
)
_WIRE_TOTALS = ("sent_bytes", "received_bytes", "retransmits")  # of the communicator, since the hook was attached


class HookStats(Shares, collections.namedtuple("HookStats", ("buckets", "bytes", *OpStats._fields, *_WIRE_TOTALS))):
    """Totals of a hook: buckets reduced and their dense bytes; blocks as in winnow.OpStats; the
    buckets' times added up; bytes that a GPU sent and received over its bus, of sparse buckets their
    rows and indices, of compressed ones the whole bucket; sent_bytes, received_bytes and retransmits of
    the communicator since the hook was attached. With nodes, blocks and bytes are those of this GPU's share."""

    __slots__ = ()


@brief
def attach(ddp, comm=None, *, block=None, wire=None, node=False, check_nan=None, compress=None, way=None, elastic=False):
    """Makes `ddp` average its gradients over Winnow; returns the HookState. All ranks call it, in the same order of models.

    ddp: a DistributedDataParallel, compiled or not. Several in a process are so many jobs.
    comm: a winnow.Comm with a worker, or a winnow.Node with a GPU, for each of ddp's processes; None: one
    is made from the environment with ddp's rank and world size, and closed with HookState.close() or at exit.
    block, wire: as in Comm.allreduce(). Whatever the block, large tables (the weights of
    embeddings) are cut at their rows, but not with nodes.
    node: True: each host's GPUs are one worker, as in make_node(); the model is on this process's GPU.
    check_nan: True: a NaN in a gradient of this process ends the job on all, with its rank and parameter; each
    gradient is read once more, and on a GPU waited for. None: WINNOW_CHECK_NAN.
    compress: "topk:0.01", or a TopK: only the largest 1 % of a gradient's elements are sent; the rest is remembered, and
    sent later. The text stands for TopK(0.01, warm_up=20) and wire="bf16" (with nodes the default wire). The same on all
    ranks. With nodes each GPU chooses of its own gradient, before NCCL adds up.
    way: "auto": each matrix travels in blocks, rows, columns or single elements, whichever would have been the fewest
    bytes of what all have received in earlier steps; HookState.ways(ddp.module) tells. With nodes, and with None, by its
    shape. The same on all ranks.
    elastic: True: workers, and aggregators, may come and go; an Elastic is returned. The process group of `ddp` has one
    process, `comm` any number; None: that of the environment. Without nodes, check_nan, static_graph,
    find_unused_parameters and sparse gradients. See docs/elastic.md.
    """
    ddp = getattr(ddp, "_orig_mod", ddp)  # of torch.compile()
    _refuse_module(ddp)
    _refuse_arguments(comm, block, wire, way, node=node, check_nan=check_nan, elastic=elastic)
    if getattr(ddp, "_use_python_reducer", False):
        raise ValueError(_PYTHON_REDUCER)
    nodes = node or isinstance(comm, Node)
    if isinstance(compress, str) and not nodes:  # what NCCL's sums lose on the wire, nobody remembers
        wire = wire or SHORT_WIRE
    if elastic:
        _refuse_parameters(ddp)
        if nodes or check_nan:
            raise ValueError("elastic=True takes block, wire, compress and way: leave node and check_nan out")
        compress = compressor_of(compress, warm_up=SHORT_WARM_UP)
        with _as_only_hook(ddp):
            return Elastic(ddp, comm, block=block, wire=wire, compress=compress, way=way)
    group = ddp.process_group
    world = dist.get_world_size(group)
    if comm is not None and node:
        raise ValueError("node=True makes a winnow.Node, and there is one, or a communicator, already")
    _refuse_parameters(ddp)
    if ddp in _attached:
        raise RuntimeError("this model has its hook: call attach() once for each DistributedDataParallel")
    if comm is not None and comm.world != world:
        raise ValueError(
            f"the communicator has {comm.world} workers and DDP has {world}: "
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
def make_node(group=None, *, gpu=None, node=None, **settings):
    """A winnow.Node of all processes of a process group, which all call this; each has one GPU.

    gpu: this process's, a CUDA device number; None: torch's current one.
    node: which node this process is on, a number; None: GROUP_RANK, which torchrun sets. There must be
    as many processes on each.
    The rest is as in winnow.Node(). Over NCCL, call torch.cuda.set_device() first.
    """
    place = _places.agree(lambda value: _exchange(value, group), dist.get_rank(group), node)
    settings = {"job": _job_of(group), **settings}
    return Node(gpus=_cuda.current() if gpu is None else gpu, **place, **settings)


def _job_of(group):
    return _exchange(_places.draw_job() if dist.get_rank(group) == 0 else None, group)[0]


def _exchange(value, group):
    """All processes' values, by rank."""
    with told_late(f"rank {dist.get_rank(group)}: waiting for other ranks, which must call attach(), or make_node(), as well"):
        return _places.exchange(value, group)


def hook(state, bucket):
    """The communication hook, for register_comm_hook() and wrappers like fp16_compress_wrapper().

    DDP looks for the name `bucket`.
    """
    if isinstance(bucket, tuple):
        raise ValueError(_PYTHON_REDUCER)
    tensor = bucket.buffer()
    parameters = bucket.parameters()
    # DDP takes results in the order in which it has given the buckets: the oldest is needed first.
    segments = state.segments(parameters, tensor) if tensor.layout == torch.strided else None
    if bucket.index() == 0:
        state.tell_way()
    return state.reduce(tensor, segments, parameters=parameters)


class HookState:
    """What hook() needs: a communicator, how to use it, and a thread that completes futures.

    Pickles as its settings: a copy joins the job that the environment names when it is first used.
    """

    def __init__(self, comm=None, *, block=None, wire=None, node=False, check_nan=None, compress=None, way=None):
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
        """The first failure, a WinnowError for one of the library: backward() has only its text."""
        self._owned = False
        self._rows = None  # of a Node: the communicator for sparse gradients
        self._closed = None  # totals of a communicator that is no more
        self._totals = _Totals()
        self._names = {}  # of parameters, by id
        self._completer = Completer("winnow-hook")
        if comm is not None:
            self._use(comm)

    def name(self, module, find_unused_parameters=False):
        """Errors tell this module's parameters by their names; attach() calls it, with what DDP was given."""
        self._names.update((id(parameter), name) for name, parameter in module.named_parameters())
        self._module = module
        if self.compress is not None:
            self.compress.learn(module, find_unused_parameters)

    @brief
    def open(self, rank=None, world=None, *, group=None, gpu=None):
        """Joins a job. Without rank and world, all processes of the group call this, and it is one of their own, as
        for attach(); with them, it is that of the environment. With nodes, group and gpu are as in make_node()."""
        if self.node:
            self._use(make_node(group, gpu=gpu))
        elif rank is None:
            job = _job_of(group)
            self._use(Comm(job=job, rank=dist.get_rank(group), world=dist.get_world_size(group)))
        else:
            self._use(Comm(rank=rank, world=world))
        self._owned = True

    def close(self):
        """Ends the thread and leaves the job, if open() joined it."""
        self._completer.close()
        if self.comm is None or self._closed:
            return
        if self._owned or self._rows is not None:
            self._closed = self._wire_totals()
        if self._rows is not None:
            self._rows.close()
        if self._owned:
            self.comm.close()

    def segments(self, parameters, buffer):
        """Those of a bucket, for reduce(); None if it needs none."""
        self._notice_members()
        compress = self.compress if _cuda.device_of(buffer) is None else None
        return _way.segments(parameters, buffer, compress, self._seen)

    def ways(self, module):
        """In what each parameter of it travels now, by name: "blocks", "rows", "columns" or "elements"."""
        return _way.ways_of(module, self.compress, self._seen)

    def costs(self, module):
        """With way="auto", why: by name, the bytes in which each way would have brought the last average that was looked at."""
        return {name: self._seen.costs(parameter) for name, parameter in module.named_parameters() if self._seen is not None}

    def tell_way(self):
        """To `winnow status --workers`, when it may have changed."""
        if self._seen is not None and self._module is not None and isinstance(self.comm, Comm):
            self._seen.tell(self.comm, lambda: self.ways(self._module))

    def stats(self):
        """HookStats from the beginning to now."""
        return HookStats(*self._totals.read(), *self._wire_totals())

    def reduce(self, tensor, segments=None, priority=0, parameters=()):
        """Starts averaging a tensor; a torch Future of the result.

        A dense one is flat and the result is in place; segments, priority: as in Comm.allreduce().
        Of a sparse COO one the result is a new, coalesced one, with what any worker has. One on a
        GPU is taken as the current stream leaves it, and nothing waits for that but the operation.
        parameters: what it is made up of, one after the other: `compress`, `way` and errors go by that.
        """
        device = _cuda.device_of(tensor)
        compressed = self.compress is not None and tensor.layout == torch.strided
        leaves = compressed and not self.node or _way.leaves(segments)
        staged = device is not None and (tensor.is_sparse or leaves)
        if tensor.is_sparse:
            start, finish, cost = self._sparse(tensor, staged)
        else:
            start, finish, cost = self._dense(tensor, segments, parameters, staged)
        options = {}
        begun, lane = _timeline.now(), self._totals.begin()

        def submit():
            _refuse_tensor(tensor)
            if self.node and device is None:
                raise TypeError(
                    "a gradient is on the CPU: with nodes, the whole model is on the process's GPU"
                )
            if self.comm is None:
                self.open(gpu=device.index if self.node else None)
            self._notice_members()
            if self.check_nan:
                self._refuse_nan(tensor, parameters)
            for parameter, part in parts_of(tensor, parameters) if compressed else ():
                self.compress.take_or_end(self.comm, part, parameter)
            # Tags are drawn in the order of buckets.
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
        """Where a bucket travels from, and what begins that. What was chosen of a GPU's travels in its elements, from the
        host's memory, as tiles and narrow values do; while nothing is, in the GPU's blocks. With nodes it stays: NCCL
        adds up first."""
        chose = self.compress is not None and any(map(self.compress.chose, parameters))
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
            """The library sees rows of a GPU, which were copied, in this process's memory."""
            if not staged:
                return request.stats
            return request.stats._replace(staged_out_bytes=sent, staged_in_bytes=_sparse.size(request.wait()))

        return start, lambda request: _sparse.from_rows(*request.wait(), tensor), cost

    def _comm_of_rows(self):
        """Nodes do not reduce lists: there each process is a worker of its own, from the first list on."""
        if self.node and self._rows is None:
            self._rows = self.comm.comm()
        return self._rows if self.node else self.comm

    def _refuse_nan(self, tensor, parameters):
        """Before it is in everybody's sum; the other ranks learn whose it is."""
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
            self._seen.forget()  # others may have, or lack, the average that this rank lacks

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
        """After Comm.reconfigure() all begin anew: some may have completed, and learned from, what others have not."""
        now = getattr(self.comm, "memberships", 0)  # a Node has one membership
        if self.comm is not None and now != self._membership:
            self._membership = now
            self._begin()

    def _begin(self):
        self._tags = itertools.count(self._first_tag)
        if self._seen is not None:
            self._seen.forget()


class _Totals:
    """Sums over buckets; and a number for each that is under way, the smallest that is free."""

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
            "attach() takes a DistributedDataParallel, and this model is sharded (FSDP), which has no hook for that: "
            'make the process group init_process_group("winnow") and leave attach() out'
        )
    raise TypeError(
        f"attach() takes a DistributedDataParallel, and this is {type(module).__name__}: "
        "wrap it first, ddp = DistributedDataParallel(model), and pass that"
    )


def _refuse_arguments(comm, block, wire, way, **flags):
    """What the library would refuse in the first backward()."""
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
    """For a call of register_comm_hook(), which can be called once; and then before a job is joined, if DDP tells it."""
    once = "can only be called once"
    try:
        if getattr(ddp, "_comm_hooks", []):  # from torch 2.1 on
            raise RuntimeError(once)
        yield
    except RuntimeError as error:
        if once not in str(error):
            raise
        raise RuntimeError(
            "this model has a communication hook already, and attach() is one: leave register_comm_hook() out; "
            "fp16_compress_wrapper(winnow.torch.hook) is registered without attach()"
        ) from None


def _refuse_parameters(ddp):
    """What no bucket could carry is better refused before the first step."""
    for name, parameter in ddp.module.named_parameters():
        if parameter.device.type not in ("cpu", "cuda"):
            raise ValueError(
                f"parameter {name} is on {parameter.device}: gradients can be on the CPU or on a "
                "CUDA GPU; train there, or leave the hook out"
            )


def _refuse_difference(ddp, **mine):
    """All ranks learn of one that differs."""
    weights = _weights(ddp)
    everyone = _exchange((mine, list(weights.values())), ddp.process_group)
    for rank, (other, values) in enumerate(everyone):
        for name, value in mine.items():
            if other[name] != value:
                raise ValueError(f"{name} is {value} on this rank and {other[name]} on rank {rank}: want the same on all")
        for (name, value), its in zip(weights.items(), values):
            if its != value:
                raise ValueError(
                    f"parameter {name} has other values on rank {rank} than on this one: attach several models in the "
                    "same order on all ranks, and load weights on all of them before that"
                )


def _weights(ddp):
    """Of each parameter that DDP has made equal on all ranks, by name: its first values, as a checksum. They tell a model
    from another of the same shape."""
    ignored = set(ddp.parameters_to_ignore)
    return {
        name: zlib.crc32(parameter.detach().flatten()[:_VALUES].cpu().view(torch.uint8).numpy())
        for name, parameter in ddp.module.named_parameters()
        if name not in ignored and type(parameter) is torch.nn.Parameter and parameter.layout == torch.strided
    }


def _only_gpu(ddp, node):
    """The GPU that all of a model is on, as nodes need it: that of `node`, if there is one already."""
    gpu = node.gpus[0] if node is not None else None
    for name, parameter in ddp.module.named_parameters():
        device = _cuda.device_of(parameter)
        found = None if device is None else device.index
        gpu = found if gpu is None else gpu
        if found is None or found != gpu:
            raise ValueError(
                f"parameter {name} is on {parameter.device}: with nodes, the whole model is on the process's "
                + ("GPU" if gpu is None else f"GPU, which is {gpu}")
            )
    return gpu


def _refuse_tensor(tensor):
    if tensor.layout not in (torch.strided, torch.sparse_coo):
        raise TypeError(f"a gradient is {tensor.layout}: it must be dense or COO")
    if not tensor.is_floating_point():
        raise TypeError(f"a gradient is {tensor.dtype}: its average needs a floating point type")
