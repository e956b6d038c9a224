# SPDX-License-Identifier: BSD-3-Clause
"""attach(ddp, elastic=True): a training whose workers come and go. docs/RECIPES.md has the loop."""

import io

import numpy
import torch
import torch.distributed as dist
from torch.autograd import Variable

from . import _way
from ._comm import Comm
from ._member import MembersChanged, WinnowError

_TAG_OF_ELASTIC = 3 << 61  # plus a parameter's number: no bucket's, since members may have other buckets
# Before 2.0 it takes no numbers. Members have the job's key, and send each other what they like in any case.
_LOAD = {"weights_only": True} if int(torch.__version__.split(".")[0]) >= 2 else {}
_RANK_BITS = 12  # WIRE_WORKERS_MAX
_LAST_RANK = 2**_RANK_BITS - 1


class Elastic:
    """What attach(ddp, elastic=True) returns.

    step: how many steps this worker has done. backward() raises MembersChanged where members, or an aggregator,
    are lost: then resume().
    """

    def __init__(self, ddp, comm=None, block=None, wire=None):
        _refuse_group(ddp)
        self.ddp = ddp
        self._owned = comm is None
        self.comm = Comm() if comm is None else comm
        self.step = 0 if self.comm.rank == 0 else -1
        self.error = None
        self._options = {"op": "avg", "block": block or 0, "wire": wire}
        self._numbers = {id(parameter): i for i, parameter in enumerate(ddp.module.parameters())}
        self._requests = []
        self._queued = False
        ddp.register_comm_hook(self, _hook)

    def share(self, optimizer):
        """Gives model and optimizer of the member with most steps to those that have done fewer. All members call it
        before the first step; admit() and resume() do where it matters."""
        said = numpy.array([self.step << _RANK_BITS | _LAST_RANK - self.comm.rank, -self.step])
        self.comm.allreduce(said, op="max")
        most, root, least = int(said[0]) >> _RANK_BITS, _LAST_RANK - (int(said[0]) & _LAST_RANK), -int(said[1])
        if most == least:
            return
        state = self._pack(optimizer) if self.comm.rank == root else b""
        size = numpy.array([len(state)])
        self.comm.broadcast(size, root)
        data = numpy.zeros(-(-int(size[0]) // 4), numpy.int32)
        data.view(numpy.uint8)[: len(state)] = numpy.frombuffer(state, numpy.uint8)
        self.comm.broadcast(data, root)
        if self.step < most:
            self._unpack(data, optimizer)
        self.step = most

    def admit(self, optimizer, most=_LAST_RANK):
        """After optimizer.step(): the step counts, and newcomers, at most so many, come in and get what they lack."""
        self.step += 1
        if self.comm.admit(most):
            self.share(optimizer)

    def resume(self, optimizer, least=1):
        """After MembersChanged: those who are left, at least so many, continue with the same step and state."""
        while True:
            self.comm.reconfigure(world=least)
            try:
                self.share(optimizer)
                return
            except MembersChanged:
                pass

    def close(self):
        """Leaves the job, if attach() has joined it."""
        if self._owned:
            self.comm.close()

    def _pack(self, optimizer):
        file = io.BytesIO()
        torch.save((self.ddp.module.state_dict(), optimizer.state_dict()), file)
        return file.getvalue()

    def _unpack(self, data, optimizer):
        model, rest = torch.load(io.BytesIO(data.tobytes()), map_location="cpu", **_LOAD)
        self.ddp.module.load_state_dict(model)
        optimizer.load_state_dict(rest)

    def _reduce(self, bucket):
        """Begins the operations of a bucket. DDP takes the result after the callback that waits for them."""
        if not self._queued:
            self._queued, self.error = True, None
            Variable._execution_engine.queue_callback(self._wait)
        buffer, offset = bucket.buffer(), 0
        for parameter in bucket.parameters():
            part = buffer[offset : offset + parameter.numel()]
            offset += parameter.numel()
            self._begin(parameter, part)
        done = torch.futures.Future()
        done.set_result(buffer)
        return done

    def _begin(self, parameter, part):
        if self.error is not None:
            return
        try:
            tag = _TAG_OF_ELASTIC + self._numbers[id(parameter)]
            segments = _way.segments([parameter], part)
            self._requests.append(self.comm.allreduce_async(part, tag=tag, segments=segments, **self._options))
        except WinnowError as error:
            self.error = error

    def _wait(self):
        """All of DDP's buckets are under way; it takes their results next, and then comes _tell()."""
        requests, self._requests, self._queued = self._requests, [], False
        for request in requests:
            try:
                request.wait()
            except WinnowError as error:
                self.error = self.error or error
        Variable._execution_engine.queue_callback(self._tell)

    def _tell(self):
        if self.error is not None:
            raise self.error


def _hook(state, bucket):
    return state._reduce(bucket)


def _refuse_group(ddp):
    if dist.get_world_size(ddp.process_group) > 1:
        raise ValueError(
            "elastic=True is for a DistributedDataParallel of one process, since its process group does not survive a "
            'loss: init_process_group("gloo", store=HashStore(), rank=0, world_size=1)'
        )
