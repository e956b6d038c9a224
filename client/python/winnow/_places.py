# SPDX-License-Identifier: BSD-3-Clause
"""The processes of a group agree on a job, and on the GPU and node of each process.

They use exchange(value), which returns all processes' values by rank. An error of one process is raised on all, so that
the others do not wait for it.
"""

import json
import uuid

import torch
import torch.distributed as dist

from . import _cuda
from ._member import WinnowError, variable
from ._node import node_id, said


_drawn = False
_NAME_MAX = 46  # before a suffix; a job's name has at most 64 characters


def draw_job():
    """Returns a job's name, which a group's first rank gives to the others.

    The first name of the job's rank 0 is WINNOW_JOB. Other names, or all without WINNOW_JOB, have a random suffix,
    because a process may be in several jobs, and several jobs named "default" may share an aggregator.
    """
    global _drawn
    name = variable("WINNOW_JOB")
    first = not _drawn and (not dist.is_initialized() or dist.get_rank() == 0)
    _drawn = True
    if name and first:
        return name
    return f"{(name or 'default')[:_NAME_MAX]}.{uuid.uuid4().hex[:10]}"


def exchange(value, group=None):
    """Returns all processes' values by rank, sent as JSON. (torch's own exchange of objects executes received code.)"""
    device, world = _device_of(group), dist.get_world_size(group)
    own = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8, device=device)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(own)], device=device), group=group)
    room = torch.zeros(world, max(map(int, sizes)), dtype=torch.uint8, device=device)
    mine = torch.zeros_like(room[0])
    mine[: len(own)] = own
    dist.all_gather(list(room), mine, group=group)
    return [json.loads(bytes(row[: int(size)].tolist())) for row, size in zip(room.cpu(), sizes)]


def _device_of(group):
    """Returns the device for a group's tensors: the current GPU only if the group takes no tensors on the CPU."""
    group = group or dist.distributed_c10d._get_default_group()
    kinds = getattr(group, "_device_types", None)  # from torch 2 on
    if torch.device("cpu") in kinds if kinds else not (dist.is_nccl_available() and isinstance(group, dist.ProcessGroupNCCL)):
        return torch.device("cpu")
    return torch.device("cuda", _cuda.current())


def agree(exchange, rank, node=None):
    """Returns the arguments of winnow.Node() that depend on the process: node, nodes, local_rank, local_world, id.

    node: the number of this node, by default GROUP_RANK. Nodes and processes outside the group do not count.
    """
    nodes = _by_node(_shared(exchange, lambda: _here(rank, node)))
    number, mine = next((number, mine) for number, mine in enumerate(nodes) if rank in mine)
    ids = _shared(exchange, lambda: node_id().hex() if rank == mine[0] else "")
    return {
        "node": number,
        "nodes": len(nodes),
        "local_rank": mine.index(rank),
        "local_world": len(mine),
        "id": bytes.fromhex(ids[mine[0]]),
    }


def _here(rank, node):
    """Returns this process's node, and its number there."""
    local = said("local_rank", None, "LOCAL_RANK")
    node = said("node", node, "GROUP_RANK")
    world = variable("WORLD_SIZE")
    if node is None and world and world == variable("LOCAL_WORLD_SIZE"):
        node = 0  # all processes are on one host
    if node is None:
        raise ValueError("the number of this node is unknown: set GROUP_RANK, as torchrun does, or pass node")
    return node, rank if local is None else local


def _by_node(places):
    """Returns the ranks of each node, in the order of their numbers there."""
    nodes = {}
    for rank, (node, local) in enumerate(places):
        other = nodes.setdefault(node, {}).setdefault(local, rank)
        if other != rank:
            raise ValueError(f"ranks {other} and {rank} are both process {local} of node {node}")
    numbers = sorted(nodes)
    other = next((node for node in numbers if len(nodes[node]) != len(nodes[numbers[0]])), None)
    if other is not None:
        raise ValueError(
            f"node {numbers[0]} has {len(nodes[numbers[0]])} of the {len(places)} processes and node {other} "
            f"has {len(nodes[other])}: all must have the same number"
        )
    return [[nodes[node][local] for local in sorted(nodes[node])] for node in numbers]


def _shared(exchange, make):
    """Returns the values of make() on all ranks. An error on one rank is raised on all."""
    try:
        mine = [make(), None, ""]
    except (WinnowError, ValueError) as error:
        mine = [None, getattr(error, "code", 0), str(error)]
    everyone = exchange(mine)
    for rank, (_, code, text) in enumerate(everyone):
        if code is not None:
            text = f"rank {rank}: {text}"
            raise WinnowError(code, text) if code else ValueError(text)
    return [value for value, _, _ in everyone]
