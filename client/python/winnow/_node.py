# SPDX-License-Identifier: BSD-3-Clause
"""Nodes, which are several GPUs of a host as one worker: the last part of client/winnow.h as Python objects."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

from . import _buffers, _native
from ._comm import Array, Comm, Segments
from ._member import Member, Request, brief, calls_of, check, check_pair, choice, configure, number
from ._member import options_of, refuse_unknown, segments_of
from ._native import lib

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._settings import OfNode

_STREAM_MAX = 2**64 - 1


def node_id() -> bytes:
    """Return a new id for ``winnow.Node()``.

    Call it in one process of each node, and give the id to the node's other processes.

    Returns:
        128 bytes.

    Raises:
        WinnowError: The id cannot be made, for example because there is no NCCL.
    """
    made = _native.NodeId()
    check(lib.winnow_node_id_make(ctypes.byref(made)))
    return bytes(made.bytes)


class Node(Member):
    """The GPUs of a host as one worker.

    NCCL adds up the data inside the node, each GPU sends its share of the sum, and NCCL distributes the result.
    NCCL 2.18 or newer is loaded at run time: torch's own, or the library that ``WINNOW_NCCL`` names.

    Each node has either one process for each GPU, as torchrun starts them, or one process for all its GPUs. In the
    latter case pass a list, one entry for each GPU, where this text says array. All nodes have the same number of GPUs.

    The constructor blocks until all processes of all nodes are there. Leave the job as with ``Comm``.

    Threads: Any thread may call any method. All processes of all nodes make the same calls in the same order.
    A child process cannot use the node of its parent.

    Args:
        gpus: This process's GPU, a CUDA device number, or the list of all GPUs of the node.
        id: The result of ``node_id()`` in one process of this node, new for each ``Node``. Leave it out if the node has
            one process. ``winnow.torch.make_node()`` passes it to all.
        node: The number of this node, from 0 on. By default ``GROUP_RANK``, which torchrun sets; with a list of GPUs
            ``RANK``.
        nodes: The number of nodes. By default ``WORLD_SIZE / LOCAL_WORLD_SIZE``; with a list of GPUs ``WORLD_SIZE``.
        local_rank: This process's number in the node. By default ``LOCAL_RANK``. Leave it out with a list of GPUs.
        local_world: The number of the node's processes, the same on all nodes. By default ``LOCAL_WORLD_SIZE``. Leave it
            out with a list of GPUs.
        **settings: Settings of ``Comm``, except rank and world.

    Attributes:
        rank: The number of this process's first GPU among the GPUs of all nodes.
        world: The number of GPUs of all nodes.
        gpus: The CUDA device numbers of this process's GPUs, a list.
        node, nodes, local_rank, local_world: The values that apply.

    Raises:
        TypeError: There is no setting of this name.
        ValueError: An argument is impossible, or neither an argument nor the environment gives this process's number.
        WinnowError: No aggregator answers, one refuses this node, not all processes came in time, or NCCL failed.

    Example:
        >>> node = winnow.Node(gpus=3, id=id, node=0, nodes=2, local_rank=3, local_world=8)   # a process for each GPU
        >>> node = winnow.Node(gpus=[0, 1, 2, 3], node=0, nodes=2)                             # one process for all
    """

    _noun = "node"
    _calls = calls_of("node")

    @brief
    def __init__(
        self, *, gpus: Union[int, List[int]], id: Optional[bytes] = None, node: Optional[int] = None,
        nodes: Optional[int] = None, local_rank: Optional[int] = None, local_world: Optional[int] = None,
        **settings: Unpack[OfNode],
    ):
        refuse_unknown("Node", settings, "rank", "world")
        self._one = not isinstance(gpus, (list, tuple))
        self.gpus: List[int] = list(gpus) if isinstance(gpus, (list, tuple)) else [gpus]
        if self._one:
            local_rank, local_world = _local(local_rank, local_world)
            node, nodes = _nodes(node, nodes, local_world)
        elif local_rank is not None or local_world is not None:
            raise ValueError("local_rank and local_world are for processes with one GPU: leave them out with a list of gpus")
        else:
            local_rank, local_world = 0, len(self.gpus)
        config = configure({**settings, "rank": node, "world": nodes})
        self._settings: Dict[str, Any] = {**settings, "job": os.fsdecode(config.job)}
        self.node, self.nodes = config.rank, config.world
        self.local_rank, self.local_world = local_rank, local_world
        self.rank = self.node * local_world + local_rank
        self.world = self.nodes * local_world
        setup = _native.NodeConfig(
            config=ctypes.pointer(config),
            id=_id(id, len(self.gpus) == local_world),
            local_world=number("local_world", local_world),
            local_rank=number("local_rank", local_rank),
            gpu_count=len(self.gpus),
            gpus=(ctypes.c_int * len(self.gpus))(*[number("gpus", gpu, 2**31 - 1) for gpu in self.gpus]),
        )
        super().__init__(setup, config)

    @brief
    def allreduce(
        self, data: Array, out: Optional[Array] = None, op: str = "sum", tag: int = 0, block: int = 0,
        wire: Optional[str] = None, segments: Optional[Segments] = None, priority: int = 0, stream: Optional[Any] = None,
    ) -> Array:
        """Combine ``data`` of all GPUs of all nodes, element by element.

        All processes call it, with the same size, type and ``op``. The call blocks until the result is there.

        Args:
            data: A torch tensor, or an array with ``__cuda_array_interface__``, on this process's GPU. It is contiguous.
                With a list of GPUs, a list of those.
            out: Where the result goes. By default ``data`` itself is overwritten.
            op: ``"sum"``, ``"avg"`` (not of integers), ``"min"``, ``"max"`` or ``"prod"``. NCCL computes it inside the node.
            tag, block, wire, segments, priority: As in ``Comm.allreduce()``, for what travels between nodes.
            stream: The CUDA stream, a number, that produces the data. By default torch's current stream, or the one that the
                array names. Only the operation waits for that stream. With a list of GPUs, a list of streams.

        Returns:
            ``out``, or ``data`` if ``out`` is None, with the result.

        Raises:
            TypeError: ``data`` or ``out`` is not on a GPU, has an unsupported type, or is not a list of the right length.
            ValueError: An argument is impossible, or ``data`` differs in size or type between GPUs.
            WinnowError: Processes differ in the operation, one of them failed, or the node is closed. A failure on one GPU
                ends the node, and all nodes.
        """
        return self.allreduce_async(data, out, op, tag, block, wire, segments, priority, stream).wait()

    @brief
    def allreduce_async(
        self, data: Array, out: Optional[Array] = None, op: str = "sum", tag: int = 0, block: int = 0,
        wire: Optional[str] = None, segments: Optional[Segments] = None, priority: int = 0, stream: Optional[Any] = None,
    ) -> Request[Array]:
        """Start an ``allreduce()`` and return without waiting for its result.

        The call waits only until NCCL has started. At the first call it therefore waits for the node's other processes.
        Do not read or write ``data`` and ``out`` until ``wait()`` or ``test()`` says that the operation is done. Work that
        you put into a stream after that finds the result.

        Args:
            data, out, op, tag, block, wire, segments, priority, stream: As in ``allreduce()``.

        Returns:
            A Request. Its ``wait()`` returns what ``allreduce()`` returns. Its ``stats`` count the shares of this process's
            GPUs.

        Raises:
            TypeError, ValueError: As in ``allreduce()``.
            WinnowError: The operation cannot start. Later errors are raised by the request.
        """
        send = self._described(data, "data")
        recv = send if out is None else self._described(out, "out")
        for one, other in zip(send, recv):
            check_pair(one, other)
        if len({(part.count, part.dtype) for part in send}) > 1:
            raise ValueError("data differs in size or type between GPUs")
        what: Tuple[Any, ...] = (_addresses(send), _addresses(recv), send[0].count, send[0].dtype)
        what += (choice("op", op, _native.OPS),)
        what += segments_of(segments) if segments is not None else (None, 0)
        what += (_streams(send, stream),)
        options = options_of(tag, block, wire, priority)
        request: Request = Request(self, (send, recv), data if out is None else out)
        return self._start(request, lib.winnow_node_allreduce_async, (*what, ctypes.byref(options)))

    def check(self) -> None:
        """Raise an error if the node has ended, whichever process caused it. The call does not wait.

        Raises:
            WinnowError: The node has ended. The text is the reason.
        """
        check(self._call(lib.winnow_node_check, ()))

    def comm(self) -> Comm:
        """Join a second job in which each process is a worker of its own.

        Use it for what nodes cannot reduce: rows, and data on the CPU. All processes of all nodes call it. It blocks until
        all have joined.

        Returns:
            A Comm. Its job is the node's, with ``.flat`` after the name. Close it yourself.

        Raises:
            WinnowError: As in ``Comm()``.
        """
        settings: Dict[str, Any] = {**self._settings, "job": self._settings["job"] + ".flat"}
        if self._one:
            return Comm(rank=self.rank, world=self.world, **settings)
        return Comm(rank=self.node, world=self.nodes, **settings)

    def _described(self, data, name):
        """Returns a Buffer for each of this process's GPUs."""
        parts = _listed(data)
        if len(parts) != len(self.gpus):
            raise TypeError(f"{name} is not a list of {len(self.gpus)} arrays, one for each of the GPUs")
        names = [name] if parts is not data else [f"{name}[{index}]" for index in range(len(parts))]
        found = [_buffers.describe(part, called) for part, called in zip(parts, names)]
        for buffer, called in zip(found, names):
            if buffer.memory != "cuda":
                raise TypeError(
                    f"{called} is on the CPU, but a node reduces data on its GPUs: "
                    f"pass {called}.cuda(), or use a winnow.Comm"
                )
        return found


def _streams(send, given):
    streams = [part.stream or 0 for part in send] if given is None else _listed(given)
    if len(streams) != len(send):
        raise ValueError(f"stream is not a list of {len(send)}, one for each of the GPUs")
    return (ctypes.c_void_p * len(send))(*[number("stream", one, _STREAM_MAX) for one in streams])


def _listed(given):
    return given if isinstance(given, (list, tuple)) else [given]


def _addresses(buffers):
    return (ctypes.c_void_p * len(buffers))(*[buffer.address for buffer in buffers])


def _id(given, alone):
    if given is None:
        if not alone:
            raise ValueError(
                "id is None, but the node has other processes: call winnow.node_id() in one of them "
                "and give the id to all, as winnow.torch.make_node() does"
            )
        given = node_id()
    size = ctypes.sizeof(_native.NodeId)
    if not isinstance(given, bytes) or len(given) != size:
        raise ValueError(f"id is not {size} bytes as winnow.node_id() returns them")
    return _native.NodeId.from_buffer_copy(given)


def said(name, value, variable):
    """Returns `value`, or the environment's, or None."""
    if value is None and variable in os.environ:
        name, value = variable, os.environ[variable]
    if value is None:
        return None
    try:
        return number(name, value)
    except ValueError:
        raise ValueError(f"{name} is {value!r}: want a number from 0 on") from None


def _local(rank, world):
    rank = said("local_rank", rank, "LOCAL_RANK")
    world = said("local_world", world, "LOCAL_WORLD_SIZE")
    if rank is None or world is None:
        raise ValueError(
            "this process's number in the node is unknown: pass local_rank and local_world, or set "
            "LOCAL_RANK and LOCAL_WORLD_SIZE as torchrun does, or pass all gpus of the node as a list"
        )
    if rank >= world:
        raise ValueError(f"local_rank is {rank}: want 0 to {world - 1}, below local_world")
    return rank, world


def _nodes(node, nodes, local_world):
    if nodes is None:
        world = said("nodes", None, "WORLD_SIZE")
        if world is None or world % local_world != 0:
            raise ValueError(
                f"WORLD_SIZE is {world}, but each node has {local_world} processes: "
                "pass nodes, or set WORLD_SIZE to a multiple of LOCAL_WORLD_SIZE"
            )
        nodes = world // local_world
    node = said("node", node, "GROUP_RANK")
    if node is None and nodes != 1:
        raise ValueError("the number of this node is unknown: pass node, or set GROUP_RANK as torchrun does")
    node = node or 0
    if node >= nodes:
        raise ValueError(f"node is {node}: want 0 to {nodes - 1}, below nodes")
    return node, nodes
