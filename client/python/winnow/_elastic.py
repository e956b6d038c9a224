# SPDX-License-Identifier: BSD-3-Clause
"""attach(ddp, elastic=True): a training whose workers come and go. docs/recipes.md has a whole script."""

from __future__ import annotations

import collections
import contextlib
import itertools
import logging
import os
import weakref
import zlib
from typing import Any, Dict, List, Optional

import numpy
import torch
import torch.distributed as dist
from torch.autograd import Variable

from . import _plain, _state, _way
from ._comm import Comm
from ._compress import TopK, lost_of, parts_of, remember_lost
from ._cuda import Home
from ._member import MembersChanged, WinnowError

_log = logging.getLogger("winnow")
_TAG_OF_ELASTIC = 3 << 61  # plus a parameter's number, because members may have different buckets
_TAG_OF_CHECK = _TAG_OF_ELASTIC | 1 << 33
_TAG_OF_BUFFERS = _TAG_OF_CHECK + 1
_NEWCOMERS_MAX = 2**12 - 1
_CHECKED = 1 << 16  # elements to compare after a step, other ones after each step
_HOSTS_DIFFER = (
    "pass everything that a step depends on to share(). If hosts only round differently, because their processors or "
    "versions of torch differ, use share(.., compare=False)"
)


_taken: weakref.WeakSet[Comm] = weakref.WeakSet()  # communicators that have an Elastic

# A parameter's part of a bucket that is being reduced, and its rounding errors.
_Part = collections.namedtuple("_Part", "parameter values lost request")


class _Buffers:
    """The buffers of a model, such as those of norms. DistributedDataParallel makes them equal before each forward pass, but
    only in its own group, which has one process. So here all members get the first member's buffers after each step.
    A step that is repeated begins with the buffers from before it."""

    def __init__(self, ddp):
        kept = set(ddp.module.state_dict()) - set(ddp.parameters_to_ignore)
        names = [name for name, _ in ddp.module.named_buffers() if name in kept]
        self._module, self._names = ddp.module, names if ddp.broadcast_buffers else []
        self._own = self._theirs = None

    def __bool__(self):
        return len(self._names) > 0

    def note(self):
        """Keeps the buffers, because the step counts."""
        self._own = self._joined()

    def restore(self):
        if self._own is not None:
            self._take(self._own)

    def give(self, comm, root):
        """Starts to give root's buffers to all. Returns the request, after which take() must be called."""
        self._theirs = self._own if comm.rank == root else torch.empty_like(self._own)
        return comm.broadcast_async(self._theirs, root, tag=_TAG_OF_BUFFERS)

    def take(self):
        if self._theirs is not self._own:
            self._own = self._theirs
            self._take(self._own)

    def _present(self):
        there = dict(self._module.named_buffers())
        return [there[name] for name in self._names]

    def _joined(self):
        data = torch.cat([_plain.bytes_of(buffer.cpu()) for buffer in self._present()])
        return torch.nn.functional.pad(data, (0, -len(data) % 4)).view(torch.int32)

    def _take(self, words):
        data, at = words.view(torch.uint8), 0
        for buffer in self._present():
            _plain.fill(buffer, data[at:])
            at += _plain.size(buffer)


class Elastic:
    """A training whose workers come and go. ``attach(ddp, elastic=True)`` returns it.

    ``backward()`` raises ``winnow.MembersChanged`` if members or an aggregator are lost, before the optimizer has changed
    anything. Then call ``resume()``. All members make the same calls. Use it from one thread.

    With ``compress``, a repeated step compresses its gradients again. So the memory from before the step is kept until
    ``admit()`` makes the step count. If another member has completed the step, it has received what this worker sent;
    then the memory after the step is kept.

    Attributes:
        comm: The ``winnow.Comm``. Its ``rank`` and ``world`` say which part of the data is this worker's.
        ddp: The DistributedDataParallel.
        compress: The ``TopK``, or None.
        step: The number of steps that this worker has done; -1 before it has a state.
        error: The error of the last ``backward()``, or None.

    Example:
        >>> elastic = winnow.torch.attach(ddp, comm, elastic=True)
        >>> elastic.share(optimizer, scheduler)              # before the first step
        >>> while elastic.step < 60:
        ...     try:
        ...         loss_of(ddp, batch_of(elastic.step, comm.rank, comm.world)).backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        ...         elastic.admit()                          # the step counts; newcomers come in
        ...     except winnow.MembersChanged:
        ...         elastic.resume()                         # the workers that are left repeat the step
    """

    def __init__(
        self, ddp: Any, comm: Optional[Comm] = None, block: Optional[int] = None, wire: Optional[str] = None,
        compress: Optional[TopK] = None, way: Optional[str] = None,
    ):
        _refuse_group(ddp)
        _refuse_settings(ddp)
        if comm in _taken:  # newcomers get the state of one model, between two of its steps
            raise ValueError(
                "this communicator already has an elastic model: put both into one module with one DistributedDataParallel, or "
                "close() the other one"
            )
        self.ddp = ddp
        self.compress, self._way, self._seen = compress, way, _way.seen_of(way, block)
        self._owned = comm is None
        self.comm = Comm() if comm is None else comm
        self.step = 0 if self.comm.rank == 0 and not self.comm.newcomer else -1
        self.error = None
        self._things = None  # the arguments of share(), by name
        self._compares = True
        ignored = set(ddp.parameters_to_ignore)
        self._compared = [(name, one) for name, one in ddp.module.named_parameters() if name not in ignored]
        self._buffers = _Buffers(ddp)
        self._options = {"op": "avg", "block": block or 0, "wire": wire}
        self._numbers = {id(parameter): i for i, parameter in enumerate(ddp.module.parameters())}
        self._memberships = self.comm.memberships
        self._parts: List[_Part] = []  # of a backward() that may be incomplete on this worker
        self._homes: List[Home] = []  # the buckets of that backward()
        self._queued = False
        if compress is not None:
            compress._learn(ddp.module)
            compress._begin()
        ddp.register_comm_hook(self, Elastic._reduce)
        _taken.add(self.comm)

    def share(self, *things: Any, least: int = 1, compare: bool = True) -> None:
        """Give the model and ``things`` of the member with the most steps to members that have done fewer.

        All members call it before the first step, with the same arguments. ``admit()`` and ``resume()`` then repeat it where
        it is needed. If some members are lost already, the others continue. The call blocks until all members have called it.

        Args:
            *things: Everything that has ``state_dict()`` and ``load_state_dict()`` and must be the same on all workers, in
                the same order: optimizer, learning rate scheduler, GradScaler, your own counters. The model is always
                included. States consist of dict, list, tuple, None, bool, int, float, str and tensors.
            least: The least number of members that may continue.
            compare: True compares checksums of parameters and ``things`` whenever they are shared, and of some parameters
                after each step. Use False on hosts that round differently.

        Raises:
            TypeError: One of ``things`` has no ``state_dict()`` and ``load_state_dict()``, or its state contains another
                type. The text names the place.
            ValueError: The settings of this newcomer differ from the others', or the state that it received is unusable.
            RuntimeError: Parameters or ``things`` differ between workers, or the member with the state cannot hand it over.
            winnow.WinnowError: The job cannot continue.

        Example:
            >>> elastic.share(optimizer, scheduler)
        """
        self._things, self._compares = _named(things, self.ddp), compare
        for name, value in self._states().items():
            _state.check(value, name)
        try:
            self._share()
        except MembersChanged:
            self.resume(least=least)

    def admit(self, *, most: int = _NEWCOMERS_MAX) -> None:
        """Count the step, and let newcomers in.

        All members call it after ``optimizer.step()``. Newcomers get the state, and ``comm.rank`` and ``comm.world`` may
        change. While no newcomer waits, it costs two allreduces of one or two elements, and a broadcast of the model's
        buffers. The call blocks until all members have called it.

        Args:
            most: The most newcomers to admit. The smallest number of all members applies.

        Raises:
            winnow.MembersChanged: A worker or an aggregator is lost. Call ``resume()``.
            RuntimeError: ``share()`` was not called, or parameters differ between workers.
        """
        self._refuse_early()
        self.step += 1
        self._keep()
        begun = self._even_out()
        came = self.comm.admit(most)
        for request, end in begun:
            if came:  # its membership has ended, and _share() replaces it
                with contextlib.suppress(WinnowError):
                    request.wait()
            else:
                request.wait()
                end()
        if came:
            self._share()

    def resume(self, *, least: int = 1) -> None:
        """Continue after MembersChanged with the workers that are left, from the same step and state.

        It clears the gradients. Repeat the whole step, including what was accumulated under ``no_sync()``. The call blocks
        until all remaining members have called it.

        Args:
            least: The least number of members that may continue.

        Raises:
            RuntimeError: ``share()`` was not called, or parameters differ between workers.
            winnow.WinnowError: Fewer than ``least`` members are left, none of them has the state, or the job continued
                without this worker.
        """
        self._refuse_early()
        for parameter in self.ddp.module.parameters():
            parameter.grad = None
        while True:
            self.comm.reconfigure(world=least)
            try:
                self._share()
                return
            except MembersChanged:
                pass

    def close(self) -> None:
        """Leave the job, if ``attach()`` joined it. A ``comm`` that you passed stays open."""
        _taken.discard(self.comm)
        if self._owned:
            self.comm.close()

    def ways(self) -> Dict[str, str]:
        """Tell in which form the gradient of each parameter travels now.

        Returns:
            By the parameter's name: ``"blocks"``, ``"rows"``, ``"columns"`` or ``"elements"``.
        """
        return _way.ways_of(self.ddp.module, self.compress, self._seen)

    def _keep(self):
        """Keeps the memory, because the step counts."""
        if self.compress is not None:
            self.compress._begin()

    def _undo(self):
        """Restores the memory, because the step will be repeated."""
        self._parts = []
        if self.compress is not None:
            self.compress._undo()

    def _refuse_early(self):
        if self._things is None:
            raise RuntimeError("call share() first: all members do, before the first step")

    # Exchanging state.

    def _everyone(self, row):
        """Returns the rows of all members, by rank."""
        table = numpy.zeros((self.comm.world, len(row)), numpy.int64)
        table[self.comm.rank] = row
        return self.comm.allreduce(table).tolist()

    def _share(self):
        self._buffers.restore()
        rows = self._everyone([self.step, self._compares])
        steps = [step for step, _ in rows]
        most = max(0, *steps)
        root = steps.index(max(steps))  # if nobody has begun, all are founders with the same state
        if self.comm.rank == root:
            self.step = most
        self._compares = all(compares for _, compares in rows)
        behind = self.step < most
        if any(step < most for rank, step in enumerate(steps) if rank != root):
            self._hand_over(root, behind)
        self._undo()
        self.step = most
        if self._buffers:
            self._buffers.note()
            self._buffers.give(self.comm, root).wait()
            self._buffers.take()
        self.comm.hold()
        if self._compares:
            self._compare(took=behind)

    def _hand_over(self, root, behind):
        """Gives root's state to the members that have done fewer steps."""
        room = self._packed() if self.comm.rank == root else numpy.empty(0, numpy.int32)
        size = numpy.array([len(room)])
        self.comm.broadcast(size, root)
        if self.comm.rank != root:
            room = self._room(int(size[0]), root)
        self.comm.broadcast(room, root)
        if behind:
            with self._or_leave():
                self._take(room, root)

    def _room(self, words, root):
        most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with self._or_leave():
            if not 0 < 4 * words < most:
                raise _state.StateError(f"the state of rank {root} has {4 * words} bytes, but this machine's memory only {most}")
        return numpy.zeros(words, numpy.int32)

    @contextlib.contextmanager
    def _or_leave(self):
        """Leaves the job before an error is raised, so that the others can continue without this worker."""
        try:
            yield
        except Exception:
            self.comm.close()
            raise

    def _states(self):
        """Returns the states of the model and of the arguments of share(), by name."""
        return {"model": self.ddp.module.state_dict(), **{name: thing.state_dict() for name, thing in self._things.items()}}

    def _packed(self):
        steps = {} if self.compress is None else self.compress._steps_taken()
        states = self._states()
        try:
            for name, value in states.items():
                _state.check(value, name)
        except TypeError as error:  # it has changed since share(), which must not end the other members
            _log.warning("rank %d cannot hand over its state, so newcomers cannot stay: %s", self.comm.rank, error)
            return _state.pack([str(error), None, None], "error")
        return _state.pack([self._settings(), states, steps], "state")

    def _settings(self):
        names = " and ".join(self._things) or "nothing"
        return f"compress is {self.compress!r}, way {self._way!r} and {names} is shared"

    def _take(self, room, root):
        """Takes the state of another member, which has done more steps."""
        things, wrong = {"model": self.ddp.module, **self._things}, f"what rank {root} has sent is not the state of a training"
        try:
            settings, states, steps = _state.unpack(room)
        except (ValueError, TypeError) as error:
            raise _state.StateError(f"{wrong}: {error}") from None
        if states is None:
            raise RuntimeError(f"rank {root} cannot hand over its state: {settings}")
        if settings != self._settings():
            raise ValueError(f"{self._settings()} on this worker, but {settings} on the others: want the same on all")
        if not isinstance(states, dict) or states.keys() != things.keys() or not _are_counts(steps):
            raise _state.StateError(f"{wrong}: parts of it are missing")
        for name, thing in things.items():
            thing.load_state_dict(states[name])
        self._remember_lost(self._parts)
        if self.compress is not None:
            self.compress._begin_at(steps)
        self._keep()

    # Comparing state.

    def _even_out(self):
        """Starts to give the first member's buffers to all, and to compare parameters, while admit() does its own work.
        Returns pairs of a request and a function to call when it is done."""
        begun = []
        if self._buffers:
            self._buffers.note()
            begun.append((self._buffers.give(self.comm, 0), self._buffers.take))
        if self._compares:
            found = self._checksum_of_some()
            said = numpy.array([found, -found])
            check = self.comm.allreduce_async(said, op="max", tag=_TAG_OF_CHECK)
            begun.append((check, lambda: said[0] == -said[1] or self._compare()))
        return begun

    def _checksum_of_some(self):
        """Returns a checksum of _CHECKED elements of the parameters, which are other ones after the next step."""
        first = self.step * _CHECKED % max(sum(parameter.numel() for _, parameter in self._compared), 1)
        checksum = 0
        for _, parameter in self._compared:
            if first < parameter.numel() and first + _CHECKED > 0:
                some = parameter.detach().flatten()[max(first, 0) : first + _CHECKED]
                checksum = zlib.crc32(_plain.bytes_of(some.cpu()).numpy(), checksum)
            first -= parameter.numel()
        return checksum

    def _compare(self, took=False):
        """Compares the whole state. took: this worker has just taken it, so it must leave if it differs from the others."""
        found = [(f"parameter {name}", _state.checksum(parameter)) for name, parameter in self._compared]
        for name, thing in self._things.items():
            try:
                found += _state.leaves(thing.state_dict(), name)
            except TypeError as error:  # see _packed()
                found.append((name, str(error)))
        sums = [zlib.crc32(f"{where} {checksum}".encode()) for where, checksum in found]
        rows = self._everyone([len(sums), zlib.crc32(numpy.array(sums).tobytes()), took])
        if all(row[:2] == rows[0][:2] for row in rows):
            return
        width = max(count for count, _, _ in rows)
        table = self._everyone(sums + [0] * (width - len(sums)))
        column, others, first = _odd_ones(list(zip(*table)), [took for _, _, took in rows])
        where = found[column][0] if column < len(found) else "an argument of share()"
        names = f"rank{'s' * (len(others) > 1)} {', '.join(map(str, others))}"
        text = f"{where} is not the same on {names} as on rank {first}, after {self.step} steps: {_HOSTS_DIFFER}"
        if all(rows[rank][2] for rank in others):
            if not took or self.comm.rank not in others:
                return
            with self._or_leave():
                raise RuntimeError(text)
        raise RuntimeError(text)

    # The backward pass.

    def _reduce(self, bucket):
        """The communication hook. Begins the operations of a bucket; DDP takes the result after the callback _wait()."""
        if not self._queued:
            self._queued, self.error, self._parts, self._homes = True, None, [], []
            if self.step < 0 or self._things is None:
                self.error = RuntimeError("this worker has no state yet: all members must call share() before the first step")
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
        """Makes `way` begin anew after a change of members, because members may have seen different averages."""
        if self._seen is None:
            return
        if self._memberships != self.comm.memberships:
            self._memberships = self.comm.memberships
            self._seen.forget()
        self._seen.tell(self.comm, self.ways)

    def _begin(self, buffer, parameters):
        for parameter, values in parts_of(buffer, parameters):
            if self.compress is not None:
                self.compress._take_or_end(self.comm, values, parameter)
        parts = parts_of(buffer, parameters)
        segments = [_way.segments([parameter], values, self.compress, self._seen) for parameter, values in parts]
        home = Home(buffer, self.compress is not None or any(map(_way.leaves, segments)))
        home.leave()
        self._homes.append(home)
        for (parameter, values), cut in zip(parts_of(home.there, parameters), segments):
            lost = lost_of(self.compress, values, [parameter], self.comm, self._options["wire"])
            tag = _TAG_OF_ELASTIC + self._numbers[id(parameter)]
            request = self.comm.allreduce_async(values, tag=tag, segments=cut, lost=lost, **self._options)
            self._parts.append(_Part(parameter, values, lost, request))

    def _wait(self):
        """Waits for all buckets. DDP takes their results next, and then calls _tell()."""
        self._queued = False
        for part in self._parts:
            try:
                part.request.wait()
            except WinnowError as error:
                self.error = self.error or error
        if self.error is None:
            self._arrived()
        Variable._execution_engine.queue_callback(self._tell)

    def _arrived(self):
        """Uses the averages, which have all arrived on this worker, so all members have sent theirs."""
        parts, self._parts = self._parts, []
        self._remember_lost(parts)
        for part in parts if self._seen is not None else ():
            self._seen.look(part.parameter, part.values)
        for home in self._homes:
            home.come_back()

    def _remember_lost(self, parts):
        for part in parts:
            remember_lost(self.compress, part.lost, [part.parameter])

    def _tell(self):
        if self.error is not None:
            raise self.error


def _named(things, ddp):
    """Returns `things` by names that are the same on all workers: those of their classes."""
    named = {}
    for thing in things:
        if thing is ddp or thing is ddp.module:
            continue
        kind = type(thing).__name__
        if not all(callable(getattr(thing, name, None)) for name in ("state_dict", "load_state_dict")):
            raise TypeError(f"share() takes objects with state_dict() and load_state_dict(), and this {kind} lacks them")
        name = next(name for name in (f"{kind} {n}" if n > 1 else kind for n in itertools.count(1)) if name not in named)
        named[name] = thing
    return named


def _are_counts(steps):
    return isinstance(steps, dict) and all(type(count) is int and count >= 0 for count in steps.values())


def _odd_ones(columns, took):
    """Returns the first column that differs between ranks, the ranks whose value differs from the usual one, and a rank with
    the usual one. Values of ranks that have just taken the state count least."""
    column = next(number for number, each in enumerate(columns) if len(set(each)) > 1)
    each = columns[column]
    weight = lambda value: (any(v == value and not t for v, t in zip(each, took)), each.count(value), -each.index(value))
    usual = max(set(each), key=weight)
    return column, [rank for rank, value in enumerate(each) if value != usual], each.index(usual)


def _refuse_group(ddp):
    if dist.get_world_size(ddp.process_group) > 1:
        raise ValueError(
            "elastic=True needs a process group of one process, because process groups do not survive the loss of a "
            'process: init_process_group("gloo", store=HashStore(), rank=0, world_size=1)'
        )


def _refuse_settings(ddp):
    """With these settings DDP uses buckets as for one process, and partly before the callback of _reduce()."""
    for name in ("static_graph", "find_unused_parameters"):
        if getattr(ddp, name):
            raise ValueError(f"elastic=True does not work with a DistributedDataParallel with {name}=True: leave it out")
    for name, module in ddp.module.named_modules():
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse:
            raise ValueError(f"elastic=True needs dense gradients, but {name or 'the module'} has sparse=True: leave that out")
