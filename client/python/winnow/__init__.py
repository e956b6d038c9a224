# SPDX-License-Identifier: BSD-3-Clause
"""Winnow: allreduce of tensors of which only the non-zero blocks travel.

    import numpy, winnow

    with winnow.Comm(aggregators="10.0.0.1:5555", job="train1", rank=0, world=4) as comm:
        comm.allreduce(gradient)                      # in place, numpy or torch

Several GPUs of a host are one worker with winnow.Node. For DistributedDataParallel see winnow.torch,
which is imported by itself.
"""

from ._comm import Comm, RowsRequest
from ._topk import topk
from ._member import CommStats, MembersChanged, OpStats, Request, WinnowError
from ._native import lib as _lib
from ._native import library_path
from ._node import Node, node_id

__version__ = "0.1.0"
library_version = _lib.winnow_version().decode()

__all__ = [
    "Comm",
    "CommStats",
    "MembersChanged",
    "Node",
    "OpStats",
    "Request",
    "RowsRequest",
    "WinnowError",
    "library_path",
    "library_version",
    "node_id",
    "topk",
]
