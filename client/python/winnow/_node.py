# SPDX-License-Identifier: BSD-3-Clause
"""Nodes: several GPUs of a host as one worker. The last part of client/winnow.h as Python objects."""

import ctypes
import os

from . import _buffers, _native
from ._comm import Comm
from ._member import Member, Request, brief, calls_of, check, check_pair, choice, configure, number
from ._member import options_of, refuse_unknown, segments_of
from ._native import lib

_STREAM_MAX = 2**64 - 1


def node_id():
    """What winnow.Node() wants as `id`: made in one process of each node, and given to the node's others."""
    made = _native.NodeId()
    check(lib.winnow_node_id_make(ctypes.byref(made)))
    return bytes(made.bytes)


class Node(Member):
    """The GPUs of a host as one worker: NCCL adds up inside, and each GPU sends its share of the sum.

    Has either one process for each GPU, as torchrun starts them:

        winnow.Node(gpus=3, id=id, node=0, nodes=2, local_rank=3, local_world=8)

    gpus: this process's GPU, a CUDA device number.
    id: what node_id() has returned in one process of this node; new for each Node.
    node, nodes: which node this is, and of how many; None: GROUP_RANK, and WORLD_SIZE / LOCAL_WORLD_SIZE.
    local_rank, local_world: which of the node's processes this is, and of how many, the same on all
        nodes; None: LOCAL_RANK and LOCAL_WORLD_SIZE.

    or one process for all GPUs of the node, which then gives a list wherever this text says array:

        winnow.Node(gpus=[0, 1, 2, 3], node=0, nodes=2)         # None: RANK and WORLD_SIZE

    The rest is as in Comm, whose rank and world these take the place of. Here `world` counts the GPUs of
    all nodes, and `rank` is the first of this process's among them. All processes of a node make the
    same calls in the same order. Blocks until all are there; ends as a Comm does.
    """

    _noun = "node"
    _calls = calls_of("node")

    @brief
    def __init__(
        self, *, gpus, id=None, node=None, nodes=None, local_rank=None, local_world=None, **settings
    ):
        refuse_unknown("Node", settings, "rank", "world")
        self._one = not isinstance(gpus, (list, tuple))
        self.gpus = [gpus] if self._one else list(gpus)
        if self._one:
            local_rank, local_world = _local(local_rank, local_world)
            node, nodes = _nodes(node, nodes, local_world)
        elif local_rank is not None or local_world is not None:
            raise ValueError("local_rank and local_world are of processes with one GPU: gpus is a list")
        else:
            local_rank, local_world = 0, len(self.gpus)
        config = configure({**settings, "rank": node, "world": nodes})
        self._settings = {**settings, "job": os.fsdecode(config.job)}
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
        self, data, out=None, op="sum", tag=0, block=0, wire=None, segments=None, priority=0, stream=None
    ):
        """Combines `data` of all GPUs of all nodes, element by element, and returns the result.

        data: torch tensor or array with __cuda_array_interface__ on the process's GPU; contiguous,
            the same size and type everywhere.
        out: where the result goes; None: into `data` itself.
        op: "sum", "avg" (not of integers), "min", "max" or "prod". Inside the node NCCL computes it.
        tag, block, wire, segments, priority: as in Comm.allreduce(), of what travels between nodes.
        stream: the CUDA stream (a number) that the data is produced in; None: torch's current one, or
            what the array says. Only the operation waits for it.
        """
        return self.allreduce_async(data, out, op, tag, block, wire, segments, priority, stream).wait()

    @brief
    def allreduce_async(
        self, data, out=None, op="sum", tag=0, block=0, wire=None, segments=None, priority=0, stream=None
    ):
        """The same without waiting: a Request. Leave both buffers alone until it is done.

        "Done" is what wait() and test() say; work that is put into a stream after that finds the
        result. Statistics are of the shares of this process's GPUs. Waits for NCCL to have
        begun: at the first call, for the node's other processes.
        """
        send = self._described(data, "data")
        recv = send if out is None else self._described(out, "out")
        for one, other in zip(send, recv):
            check_pair(one, other)
        if len({(part.count, part.dtype) for part in send}) > 1:
            raise ValueError("data differs in size or type between GPUs")
        what = (_addresses(send), _addresses(recv), send[0].count, send[0].dtype)
        what += (choice("op", op, _native.OPS),)
        what += segments_of(segments) if segments is not None else (None, 0)
        what += (_streams(send, stream),)
        options = options_of(tag, block, wire, priority)
        request = Request(self, (send, recv), data if out is None else out)
        return self._start(request, lib.winnow_node_allreduce_async, (*what, ctypes.byref(options)))

    def check(self):
        """Raises WinnowError if something has ended the node, on whichever of its processes."""
        check(self._call(lib.winnow_node_check, ()))

    def comm(self):
        """A Comm in which each process is a worker of its own, for what nodes do not do: lists of rows,
        and data on the CPU. Its job is NAME.flat; all processes of all nodes call this."""
        settings = {**self._settings, "job": self._settings["job"] + ".flat"}
        if self._one:
            return Comm(rank=self.rank, world=self.world, **settings)
        return Comm(rank=self.node, world=self.nodes, **settings)

    def _described(self, data, name):
        """A Buffer for each of this process's GPUs."""
        parts = _listed(data)
        if len(parts) != len(self.gpus):
            raise TypeError(f"{name} is not a list of {len(self.gpus)} arrays, one for each of the GPUs")
        names = [name] if parts is not data else [f"{name}[{index}]" for index in range(len(parts))]
        found = [_buffers.describe(part, called) for part, called in zip(parts, names)]
        for buffer, called in zip(found, names):
            if buffer.memory != "cuda":
                raise TypeError(
                    f"{called} is on the CPU: a node's GPUs reduce what is in their memory; "
                    f"pass {called}.cuda(), or take a winnow.Comm"
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
                "id is None, and the node has other processes: one of them calls winnow.node_id() "
                "and gives it to all; winnow.torch.make_node() does so"
            )
        given = node_id()
    size = ctypes.sizeof(_native.NodeId)
    if not isinstance(given, bytes) or len(given) != size:
        raise ValueError(f"id is not {size} bytes as winnow.node_id() returns them")
    return _native.NodeId.from_buffer_copy(given)


def said(name, value, variable):
    """`value`, or else the environment's; None: neither."""
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
            "nobody says which of the node's processes this is: pass local_rank and local_world, or set "
            "LOCAL_RANK and LOCAL_WORLD_SIZE as torchrun does; gpus as a list are all in one process"
        )
    if rank >= world:
        raise ValueError(f"local_rank is {rank}: want 0 to {world - 1}, below local_world")
    return rank, world


def _nodes(node, nodes, local_world):
    if nodes is None:
        world = said("nodes", None, "WORLD_SIZE")
        if world is None or world % local_world != 0:
            raise ValueError(
                f"WORLD_SIZE is {world} and each node has {local_world} processes: "
                "pass nodes, or set WORLD_SIZE to a multiple of LOCAL_WORLD_SIZE"
            )
        nodes = world // local_world
    node = said("node", node, "GROUP_RANK")
    if node is None and nodes != 1:
        raise ValueError("nobody says which node this is: pass node, or set GROUP_RANK as torchrun does")
    node = node or 0
    if node >= nodes:
        raise ValueError(f"node is {node}: want 0 to {nodes - 1}, below nodes")
    return node, nodes
