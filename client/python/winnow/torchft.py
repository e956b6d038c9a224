# SPDX-License-Identifier: BSD-3-Clause
"""Fault tolerance with torchft: a process group that its Manager configures.

    import torchft, winnow.torchft

    manager = torchft.Manager(pg=winnow.torchft.ProcessGroupWinnow(), ...)
    ddp = torchft.DistributedDataParallel(manager, model)

Each quorum is a membership of the job that WINNOW_JOB names (default "torchft"). A worker that dies costs a step, and
a worker that joins is in the next quorum. Tensors travel as with the backend "winnow".
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from torchft.process_group import ProcessGroupWrapper

from . import _group
from ._comm import Comm
from ._member import brief, variable


class ProcessGroupWinnow(ProcessGroupWrapper):
    """The process group for ``torchft.Manager``.

    Each quorum is a membership of one job. torchft calls the methods; your program only passes the object.

    Args:
        timeout: How long all members of a quorum may take to come, and how long an operation may wait.
            ``set_timeout()`` changes it.
        **settings: Settings of ``winnow.Comm``, such as ``key_file`` or ``block``. By default the environment's.

    Example:
        >>> manager = torchft.Manager(pg=winnow.torchft.ProcessGroupWinnow(), min_replica_size=2, ...)
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60), **settings: Any):
        super().__init__(timeout)
        self._settings = settings
        self._comm = None
        self._name = settings.pop("job", None) or variable("WINNOW_JOB") or "torchft"

    def getBackendName(self):
        return "torchft-winnow"

    def abort(self, errored: bool = True) -> None:
        """End all operations, on all members. ``configure()`` calls it before it forms another group."""
        if errored and self._comm is not None:
            self._comm.abort("its process group was aborted")
        self._drop()

    def shutdown(self):
        self._drop()
        if self._comm is not None:
            self._comm.close()
            self._comm = None

    def errored(self):
        return None if self._pg is None else self._pg.error

    def set_timeout(self, timeout):
        super().set_timeout(timeout)
        if self._pg is not None:
            self._pg.set_timeout(timeout)

    def _drop(self):
        if self._pg is not None:
            self._pg.leave()
            self._pg = None

    @brief
    def _create_pg(self, store, rank, world_size):
        self._form(self._drawn(store, rank), rank, world_size)
        return _group.ProcessGroupWinnow(store, rank, world_size, self._timeout, comm=self._comm)

    def _drawn(self, store, rank):
        """Returns a name for the quorum. Rank 0 adds a random word, because a restarted lighthouse counts from 0 again."""
        if rank == 0:
            number = "" if self._quorum_id is None else self._quorum_id
            store.set("winnow-membership", f"{number}.{self._group_rank or 0}.{os.urandom(4).hex()}")
        return store.get("winnow-membership").decode()

    def _form(self, id, rank, world):
        limits = _group.time_outs(self._timeout)
        if self._comm is None:
            settings = {**limits, **self._settings}
            self._comm = Comm(job=f"{self._name}/{id}", rank=rank, world=world, **settings)
            return
        self._comm.reconfigure(id, rank, world, limits.get("join_timeout_ms", 0) / 1000 or None)
