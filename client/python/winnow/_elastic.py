# SPDX-License-Identifier: BSD-3-Clause
"""attach(ddp, elastic=True): a training whose workers come and go. docs/RECIPES.md has the loop."""

import io

import numpy
import torch
import torch.distributed as dist
from torch.autograd import Variable

from . import _way
from ._comm import Comm
from ._home import Home
from ._member import MembersChanged, WinnowError
from ._sums import Exchange, parts_of

_TAG_OF_ELASTIC = 3 << 61  # plus a parameter's number: no bucket's, since members may have other buckets
_TAG_OF_SUMS = _TAG_OF_ELASTIC | 1 << 32  # of the first of two operations
# Before 2.0 it takes no numbers. Members have the job's key, and send each other what they like in any case.
_LOAD = {"weights_only": True} if int(torch.__version__.split(".")[0]) >= 2 else {}
_RANK_BITS = 12  # WIRE_WORKERS_MAX
_LAST_RANK = 2**_RANK_BITS - 1


class _Part:
    """A parameter's part of a bucket under way, and what is to be known when it is known what has become of it."""

    def __init__(self, number, parameter, values):
        self.number, self.parameter, self.values = number, parameter, values

    def start(self, compress, comm, segments, options):
        """What is left of the gradient is sent. Of largest sums, this is the first operation."""
        wire = options["wire"]
        self._exchange = Exchange(compress, [self.parameter], self.values, comm, wire)
        self._begin = lambda: comm.allreduce_async(
            self.values, tag=_TAG_OF_ELASTIC + self.number, segments=segments, lost=self._exchange.lost, **options
        )
        if self._exchange.two:
            self._request = self._exchange.start(comm, wire, tag=_TAG_OF_SUMS + self.number)
        else:
            self._request = self._begin()

    def choose(self):
        if self._exchange.two:
            self._request.wait()
            self._exchange.choose()
            self._request = self._begin()

    def wait(self):
        self._request.wait()

    def average(self):
        """Of largest sums: what there is of it. None: nobody has to be told, since what was sent is in it."""
        if not self._exchange.two:
            return None
        index = self.values.nonzero().flatten()
        return index, self.values[index]

    def settle(self, average=None):
        """All has arrived. Where this worker has not seen it, `average` is what another one has seen."""
        if average is not None:
            index, values = average
            self.values.zero_()[index] = values
        self._exchange.settle()


class Elastic:
    """What attach(ddp, elastic=True) returns.

    step: how many steps this worker has done. backward() raises MembersChanged where members, or an aggregator,
    are lost: then resume().

    With compress, a step that is repeated takes its gradients again, so what the memory was before it is kept until
    admit() says that the step counts. Has another member done the step? Then it has what this one has sent, and so
    the memory is the one after it.
    """

    def __init__(self, ddp, comm=None, block=None, wire=None, compress=None, way=None):
        _refuse_group(ddp)
        _refuse_settings(ddp)
        self.ddp = ddp
        self.compress, self._way, self._seen = compress, way, _way.seen_of(way, block)
        self._owned = comm is None
        self.comm = Comm() if comm is None else comm
        self.step = 0 if self.comm.rank == 0 else -1
        self.error = None
        self._options = {"op": "avg", "block": block or 0, "wire": wire}
        self._numbers = {id(parameter): i for i, parameter in enumerate(ddp.module.parameters())}
        self._memberships = self.comm.memberships
        self._parts = []  # of a backward() of which this worker does not know whether all has arrived
        self._homes = []  # its buckets
        self._averages = {}  # of the last one of which it does: by number, for others
        self._queued = False
        if compress is not None:
            compress.learn(ddp.module)
            compress.begin()
        ddp.register_comm_hook(self, Elastic._reduce)

    def share(self, optimizer, least=1):
        """Gives model and optimizer of the member with most steps to those that have done fewer. All members call it
        before the first step; admit() and resume() do where it matters. If some are lost already, the rest, at least
        so many, goes on."""
        try:
            self._share(optimizer)
        except MembersChanged:
            self.resume(optimizer, least)

    def _share(self, optimizer):
        said = numpy.array([self.step << _RANK_BITS | _LAST_RANK - self.comm.rank, -self.step])
        self.comm.allreduce(said, op="max")
        most, root, least = int(said[0]) >> _RANK_BITS, _LAST_RANK - (int(said[0]) & _LAST_RANK), -int(said[1])
        if most == least:
            self._undo()
            return
        state = self._pack(optimizer) if self.comm.rank == root else b""
        size = numpy.array([len(state)])
        self.comm.broadcast(size, root)
        data = numpy.zeros(-(-int(size[0]) // 4), numpy.int32)
        data.view(numpy.uint8)[: len(state)] = numpy.frombuffer(state, numpy.uint8)
        self.comm.broadcast(data, root)
        if self.step < most:
            self._unpack(data, optimizer)
        self._undo()
        self.step = most

    def admit(self, optimizer, most=_LAST_RANK):
        """After optimizer.step(): the step counts, and newcomers, at most so many, come in and get what they lack."""
        self.step += 1
        self._keep()
        if self.comm.admit(most):
            self._share(optimizer)

    def resume(self, optimizer, least=1):
        """After MembersChanged: those who are left, at least so many, continue with the same step and state."""
        while True:
            self.comm.reconfigure(world=least)
            try:
                self._share(optimizer)
                return
            except MembersChanged:
                pass

    def close(self):
        """Leaves the job, if attach() has joined it."""
        if self._owned:
            self.comm.close()

    def ways(self):
        """In what each parameter travels now, by name: "blocks", "rows", "columns" or "elements"."""
        named = self.ddp.module.named_parameters()
        return {name: _way.way_of(one, one.element_size(), self.compress, self._seen) for name, one in named}

    def _keep(self):
        """The step counts."""
        if self.compress is not None:
            self.compress.begin()

    def _undo(self):
        """A step that does not count will be repeated, with its gradients."""
        self._parts = []
        if self.compress is not None:
            self.compress.undo()

    def _settings(self):
        return f"compress is {self.compress!r} and way {self._way!r}"

    def _pack(self, optimizer):
        file = io.BytesIO()
        steps = {} if self.compress is None else self.compress.steps()
        state = (self.ddp.module.state_dict(), optimizer.state_dict(), self._settings(), steps, self._averages)
        torch.save(state, file)
        return file.getvalue()

    def _unpack(self, data, optimizer):
        """What another member has, which has done a step that this one has not."""
        state = torch.load(io.BytesIO(data.tobytes()), map_location="cpu", **_LOAD)
        model, rest, settings, steps, self._averages = state
        if settings != self._settings():
            raise ValueError(f"{self._settings()} on this worker, and {settings} on the others: want the same on all")
        self.ddp.module.load_state_dict(model)
        optimizer.load_state_dict(rest)
        for part in self._parts:
            part.settle(self._averages.get(part.number))
        if self.compress is not None:
            self.compress.begin_at(steps)
        self._keep()

    def _reduce(self, bucket):
        """The hook: begins the operations of a bucket. DDP takes the result after the callback that waits for them."""
        if not self._queued:
            self._queued, self.error, self._parts, self._homes = True, None, [], []
            self._notice_members()
            Variable._execution_engine.queue_callback(self._wait)
        if self.error is None:
            try:
                self._begin(bucket.buffer(), bucket.parameters())
            except WinnowError as error:
                self.error = error
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def _notice_members(self):
        """Some may have learned from what others have not."""
        if self._seen is None:
            return
        if self._memberships != self.comm.memberships:
            self._memberships = self.comm.memberships
            self._seen.forget()
        self._seen.tell(self.comm, self.ways)

    def _begin(self, buffer, parameters):
        for parameter, values in parts_of(buffer, parameters):
            if self.compress is not None:
                self.compress.take_or_end(self.comm, values, parameter)
        parts = parts_of(buffer, parameters)
        segments = [_way.segments([parameter], values, self.compress, self._seen) for parameter, values in parts]
        home = Home(buffer, self.compress is not None or any(map(_way.leaves, segments)))
        home.leave()
        self._homes.append(home)
        for (parameter, values), cut in zip(parts_of(home.there, parameters), segments):
            part = _Part(self._numbers[id(parameter)], parameter, values)
            part.start(self.compress, self.comm, cut, self._options)
            self._parts.append(part)

    def _wait(self):
        """All of DDP's buckets are under way; it takes their results next, and then comes _tell()."""
        self._queued = False
        for finish in (_Part.choose, _Part.wait):
            for part in self._parts:
                try:
                    finish(part)
                except WinnowError as error:
                    self.error = self.error or error
        if self.error is None:
            self._arrived()
        Variable._execution_engine.queue_callback(self._tell)

    def _arrived(self):
        """On this worker, and so all have sent it."""
        parts, self._parts = self._parts, []
        averages = {part.number: part.average() for part in parts}
        self._averages = {number: average for number, average in averages.items() if average is not None}
        for part in parts:
            part.settle()
            if self._seen is not None:
                self._seen.look(part.parameter, part.values)
        for home in self._homes:
            home.come_back()

    def _tell(self):
        if self.error is not None:
            raise self.error


def _refuse_group(ddp):
    if dist.get_world_size(ddp.process_group) > 1:
        raise ValueError(
            "elastic=True is for a DistributedDataParallel of one process, since its process group does not survive a "
            'loss: init_process_group("gloo", store=HashStore(), rank=0, world_size=1)'
        )


def _refuse_settings(ddp):
    """What DDP does with a bucket it decides for its own one process, and not always after the callback of _reduce()."""
    for name in ("static_graph", "find_unused_parameters"):
        if getattr(ddp, name):
            raise ValueError(f"elastic=True is not for a DistributedDataParallel with {name}=True: leave it out")
    for name, module in ddp.module.named_modules():
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse:
            raise ValueError(f"elastic=True takes dense gradients, and {name or 'the module'} has sparse=True: leave that out")
