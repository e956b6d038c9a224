# SPDX-License-Identifier: BSD-3-Clause
"""Winnow: allreduce for sparse gradients. Only the non-zero blocks of a tensor travel.

``Comm`` is one worker of a job. ``Node`` makes the GPUs of a host one worker. For DistributedDataParallel import
``winnow.torch``; this package does not import it by itself.

Attributes:
    library_path: The ``libwinnow.so`` that was loaded. Set ``WINNOW_LIBRARY`` to load another one.
    library_version: The version of that library.

Example:
    >>> import winnow
    >>> with winnow.Comm(aggregators="10.0.0.1:5555", job="train1", rank=0, world=4) as comm:
    ...     comm.allreduce(gradient)                     # in place; a numpy array or a torch tensor
"""

from ._comm import Comm, RowsRequest
from ._topk import topk
from ._member import MembersChanged, Request, WinnowError
from ._native import lib as _lib
from ._native import library_path
from ._node import Node, node_id
from ._stats import CommStats, OpStats

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


def __dir__():
    imported = [name for name in ("jax", "torch", "torchft") if name in globals()]
    return [*__all__, *imported, "__version__"]
