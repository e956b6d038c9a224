# SPDX-License-Identifier: BSD-3-Clause
"""Which job, and which process has which GPU of which node: what the processes of a group tell each other first.

They do so by exchange(value), which gives all processes' values by rank. What is wrong with one of
them is raised on all, so that nobody waits for who has given up.
"""

import json
import uuid

import torch
import torch.distributed as dist

from . import _cuda
from ._member import WinnowError, variable
from ._node import node_id, said


_drawn = False
_NAME_MAX = 46  # and a suffix: a job's name has 63 characters at most


def draw_job():
    """A job's name, for a group's first rank to give to the others.

    The first one that the job's rank 0 draws is WINNOW_JOB. Others, and all where there is no WINNOW_JOB, have a
    random suffix: a process may be in several jobs at a time, and on an aggregator there may be several "default".
    """
    global _drawn
    name = variable("WINNOW_JOB")
    first = not _drawn and (not dist.is_initialized() or dist.get_rank() == 0)
    _drawn = True
    if name and first:
        return name
    return f"{(name or 'default')[:_NAME_MAX]}.{uuid.uuid4().hex[:10]}"


def exchange(value, group=None):
    """All values of a process group, by rank: what JSON can say. (What torch has for objects runs what others send.)"""
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
    """Where its tensors are: on GPUs, only if they can be nowhere else."""
    group = group or dist.distributed_c10d._get_default_group()
    kinds = getattr(group, "_device_types", None)  # from torch 2 on
    if torch.device("cpu") in kinds if kinds else not (dist.is_nccl_available() and isinstance(group, dist.ProcessGroupNCCL)):
        return torch.device("cpu")
    return torch.device("cuda", _cuda.current())


def agree(exchange, rank, node=None):
    """The arguments of winnow.Node() that are a process's own: node, nodes, local_rank, local_world, id.

    node: which node this is; None: GROUP_RANK. The group may be a part of the job: nodes and
    processes that are not in it do not count.
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
    """This process's node, and its number there."""
    local = said("local_rank", None, "LOCAL_RANK")
    node = said("node", node, "GROUP_RANK")
    world = variable("WORLD_SIZE")
    if node is None and world and world == variable("LOCAL_WORLD_SIZE"):
        node = 0  # all processes are on one host
    if node is None:
        raise ValueError("nobody says which node this is: set GROUP_RANK, as torchrun does, or pass node")
    return node, rank if local is None else local


def _by_node(places):
    """The ranks of each node, in the order of their numbers there."""
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
            f"has {len(nodes[other])}: each must have as many"
        )
    return [[nodes[node][local] for local in sorted(nodes[node])] for node in numbers]


def _shared(exchange, make):
    """What make() returns on each rank; what it raises on one is raised on all."""
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
