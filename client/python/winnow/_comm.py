# SPDX-License-Identifier: BSD-3-Clause
"""Communicators: client/winnow.h's as Python objects."""

import ctypes
import os
import random
import time

from . import _buffers, _member, _native
from ._member import BLOCK_MAX, Member, Request, WinnowError, brief, calls_of, check, check_pair, choice, configure
from ._member import number, options_of, refuse_unknown, segments_of, signature_of, tiles_of
from ._native import lib


class RowsRequest(Request):
    """One whose result is a list of rows. Made by Comm.allreduce_rows_async()."""

    def __init__(self, comm, send):
        super().__init__(comm, send, None)
        self._rows = ctypes.c_void_p()

    def _collect(self, code):
        if code != _native.OK:
            return
        count = lib.winnow_rows_count(self._rows)
        index, values, found = _buffers.new_rows(self._kept.owner, count)
        lib.winnow_rows_read(self._rows, index, values)
        self._out = found  # not before: another thread may collect it at the same time

    def _free(self):
        lib.winnow_rows_free(ctypes.byref(self._rows))
        super()._free()


class Comm(Member):
    """One worker's membership of a job on its aggregators.

    settings: aggregators, job, rank, world, key_file, key, insecure_no_key, block, wire, threads, silence_ms, timeout_ms,
    join_timeout_ms, multicast, payload, datapath, eal, device, data_address, gateway, staging_mb, dscp, network, memory_mb,
    interface and debug, as struct winnow_config in winnow.h has them. What is left out, or None, comes from the environment or
    has the library's default. Blocks until all workers have joined. newcomer=True: to a job that runs, as soon as its members call admit();
    job is its name, rank the one that it had, if it comes back; then rank and world are found out. Threads may share
    a communicator; operations without a tag should then come from one thread.

    Close it, use it in a `with` statement, or let the program's end close it. If an exception
    ends the statement or the program, the job is aborted and the other workers are told why.
    """

    __signature__ = signature_of(newcomer=False)
    _noun = "communicator"
    _calls = calls_of("comm")

    @brief
    def __init__(self, *, newcomer=False, **settings):
        refuse_unknown("Comm", settings)
        config = configure(settings)
        self.rank, self.world, self._wire = config.rank, config.world, config.wire
        self.newcomer = newcomer
        """Did it come to a job that was there already?"""
        self.memberships = 0
        """How often it has left one, by reconfigure() and admit(): operations with tags of their own begin anew."""
        if newcomer:
            self._calls = self._calls._replace(create=lib.winnow_comm_enter)
            super().__init__(config, config)
            self._look()
        else:
            super().__init__(config, config)

    @classmethod
    @brief
    def enter_or_found(cls, *, job=None, found_after=10, join_timeout_ms=None, **settings):
        """One of workers that come and go, and know no rank and no world: a newcomer; or rank 0 of 1, if there is no such job.

        Waits as with newcomer=True. If nobody has let it in after about `found_after` seconds, it founds the job, unless an
        aggregator has members of it, or another worker is faster; then it waits again, until join_timeout_ms have passed.
        Members that look for the only aggregator, since that was killed, are back when they have done their step: it
        should not take as long as found_after.
        settings: as in Comm(), but for rank and world.
        """
        config = configure({"job": job, "join_timeout_ms": join_timeout_ms})
        name, until = os.fsdecode(config.job), time.monotonic() + config.join_timeout_ms / 1000
        # Those who came at the same time shall not go on meeting.
        wait = found_after * (1 + random.random() / 2)
        while True:
            try:
                left = max(until - time.monotonic(), 0.1)
                return cls(job=name, newcomer=True, join_timeout_ms=int(1000 * min(wait, left)), **settings)
            except WinnowError as error:
                if error.code not in (WinnowError.TIMEOUT, WinnowError.UNREACHABLE, WinnowError.LOST):
                    raise
            try:
                return cls(job=name, rank=0, world=1, join_timeout_ms=config.join_timeout_ms, **settings)
            except WinnowError as error:
                if error.code not in (WinnowError.REFUSED, WinnowError.UNREACHABLE) or time.monotonic() >= until:
                    raise
            wait *= 1 + random.random()

    @brief
    def allreduce(
        self, data, out=None, op="sum", tag=0, block=0, wire=None, segments=None, priority=0, stream=None,
        tile=None, lost=None,
    ):
        """Combines `data` of all workers, element by element, and returns the result.

        data: numpy array, torch tensor on the CPU or a GPU, or an array with
            __cuda_array_interface__; contiguous, the same size and type everywhere.
        out: where the result goes; None: into `data` itself.
        op: "sum", "avg", "min", "max" or "prod".
        tag: matches the operation with the other workers'; 0: by order.
        block: elements of a block; 0: the communicator's.
        wire: how f32 travels, "auto", "native", "fixed32", "fixed16", "fixed8" or "bf16" (docs/thin-links.md); None:
            the communicator's.
        segments: parts of the tensor that are made of rows, so that blocks begin where rows do:
            a list of (offset, count, row length), in elements; None: the tensor has no rows. With two
            more numbers, rows and columns of a tile, a segment's blocks are tiles of its matrix.
        priority: of the operations under way, those with higher numbers go first.
        stream: of data on a GPU, the CUDA stream (a number) that it is produced in; None:
            torch's current one, or what the array says. Only the operation waits for it.
        tile: (rows, columns) of a block, of data that is a matrix on the CPU: columns that are zero on
            all workers cost nothing. At most 65536 elements; small ones are a few elements wide.
        lost: of float32 on the CPU: float32, as large; what rounding to a narrower `wire` takes from this
            worker's elements is added to it.
        """
        return self.allreduce_async(data, out, op, tag, block, wire, segments, priority, stream, tile, lost).wait()

    @brief
    def allreduce_async(
        self, data, out=None, op="sum", tag=0, block=0, wire=None, segments=None, priority=0, stream=None,
        tile=None, lost=None,
    ):
        """The same without waiting: a Request. Leave both buffers alone until it is done.

        On a GPU, too, "done" is what wait() and test() say; work that is put into a stream
        after that finds the result.
        """
        send = _buffers.describe(data, "data")
        recv = send if out is None else _buffers.describe(out, "out")
        check_pair(send, recv)
        what = (send.address, recv.address, send.count, send.dtype, choice("op", op, _native.OPS))
        start = lib.winnow_allreduce_async
        if tile is not None and segments is not None:
            raise ValueError("tile and segments exclude each other: a segment has its own tile")
        if tile is not None:
            segments = tiles_of(data, tile)
        if segments is not None:
            start = lib.winnow_allreduce_segments_async
            what += segments_of(segments)
        kept = None if lost is None else _buffers.describe_on_host(lost, "lost", "what is lost is")
        options = options_of(tag, block, wire, priority, send, stream, kept)
        request = Request(self, (send, recv, kept), recv.owner)
        return self._start(request, start, (*what, ctypes.byref(options)))

    @brief
    def reduce_scatter(self, data, out, op="sum", tag=0, block=0, wire=None, priority=0, lost=None):
        """Combines `data` of all workers, and returns this worker's share of the result in `out`.

        data: numpy array or torch tensor on the CPU, contiguous, with as many elements for each worker as
            `out` has: share 0, share 1 and so on. The same size and type everywhere. It is only read.
        out: this worker's share: data's own part number `rank` (in place), or apart from data.
        The rest as in allreduce(). No worker receives more than its share; small operations, up to about
        four datagrams in all, come as a whole.
        """
        return self.reduce_scatter_async(data, out, op, tag, block, wire, priority, lost).wait()

    @brief
    def reduce_scatter_async(self, data, out, op="sum", tag=0, block=0, wire=None, priority=0, lost=None):
        """The same without waiting: a Request. Leave both buffers alone until it is done."""
        send = _buffers.describe_on_host(data, "data", "reduce_scatter is")
        recv = _buffers.describe_on_host(out, "out", "reduce_scatter is")
        if not recv.writable:
            raise ValueError("out is read-only")
        if recv.dtype != send.dtype or send.count != recv.count * self.world:
            raise ValueError(
                f"data has {send.count} elements and out {recv.count}: want the same type, "
                f"and {self.world} times as many, since there are {self.world} workers"
            )
        what = (send.address, recv.address, recv.count, send.dtype, choice("op", op, _native.OPS))
        kept = None if lost is None else _buffers.describe_on_host(lost, "lost", "what is lost is")
        options = options_of(tag, block, wire, priority, send, lost=kept)
        request = Request(self, (send, recv, kept), recv.owner)
        return self._start(request, lib.winnow_reduce_scatter_async, (*what, ctypes.byref(options)))

    @brief
    def broadcast(self, data, root=0, tag=0, block=0, priority=0):
        """Gives all workers the contents of worker `root`'s `data`, with every bit as it is; returns it.

        data: numpy array or torch tensor on the CPU, contiguous, of a multiple of 4 bytes; the same size
            everywhere. The others' is only written. Blocks of zeros do not travel.
        tag, block (in elements of 4 bytes), priority: as in allreduce().
        """
        return self.broadcast_async(data, root, tag, block, priority).wait()

    @brief
    def broadcast_async(self, data, root=0, tag=0, block=0, priority=0):
        """The same without waiting: a Request. Leave the buffer alone until it is done."""
        what = _buffers.describe_on_host(data, "data", "broadcast is")
        if not what.writable:
            raise ValueError("data is read-only")
        options = options_of(tag, block, None, priority)
        request = Request(self, (what,), what.owner)
        args = (what.address, what.count * _native.SIZES[what.dtype], root)
        return self._start(request, lib.winnow_broadcast_async, (*args, ctypes.byref(options)))

    @brief
    def allreduce_rows(self, index, values, count, op="sum", tag=0, wire=None, priority=0):
        """Combines tables of `count` rows of which each worker has some; returns (index, values).

        index: the numbers of this worker's rows, int64, each there once; none is fine.
        values: a row for each, numpy array or torch tensor, on the CPU; rows have one shape everywhere.
        A row that a worker lacks counts as zeros. The result holds each row that any worker
        has, in ascending order; no worker holds, sends or scans the whole table.
        """
        return self.allreduce_rows_async(index, values, count, op, tag, wire, priority).wait()

    @brief
    def allreduce_rows_async(self, index, values, count, op="sum", tag=0, wire=None, priority=0):
        """The same without waiting: a RowsRequest. Leave `values` alone until it is done."""
        send = _buffers.describe_on_host(values, "values")
        length = _buffers.row_length(values)
        if not 1 <= length <= BLOCK_MAX:
            raise ValueError(f"rows have {length} elements: want 1 to {BLOCK_MAX}")
        starts = _buffers.starts(index, len(values), length)
        what = (send.address, starts.address, len(values), length)
        what += (number("count", count, 2**48) * length, send.dtype, choice("op", op, _native.OPS))
        options = options_of(tag, 0, wire, priority)
        request = RowsRequest(self, send)
        return self._start(
            request,
            lib.winnow_allreduce_rows_async,
            (*what, ctypes.byref(options)),
            (ctypes.byref(request._rows),),
        )

    @brief
    def reconfigure(self, id=None, rank=0, world=1, timeout=None):
        """Leaves the present membership, running or ended, and forms another one with all that pass the same id.
        Without an id, those who are left after a failure continue, in the order of their ranks, as the first
        aggregator says: it is an error if there are fewer than `world`.

        id: its name, a number or a text of letters, digits and ".-_"; each membership of a job has another.
        rank, world: this worker's place in it, and how many there are: fewer, more, or others.
        timeout: seconds until all must have come, from now on; None: as before.
        Operations under way raise MembersChanged, here and on the others. Blocks until all are there. A newcomer
        makes its Comm with job="NAME/ID". After a failure, but for a refused argument, there is no
        membership: call it again with another id.
        """
        given_up = ctypes.c_int(0)
        membership = _native.Membership(
            id=None if id is None else os.fsencode(str(id)),
            rank=number("rank", rank),
            world=number("world", world),
            join_timeout_ms=0 if timeout is None else max(int(timeout * 1000), 1),
            give_up=ctypes.pointer(given_up),
        )

        def form():
            try:
                check(self._call(lib.winnow_comm_reconfigure, (), (ctypes.byref(membership),)))
            except WinnowError as error:
                return error

        refused = False
        try:
            error = _member.wait_for(form, given_up)
            refused = error is not None and error.code == WinnowError.INVALID  # all is as it was
        finally:
            self.memberships += not refused
            self._look()
        if error is not None:
            raise error

    def _look(self):
        self.rank, self.world = (self._call(call, ()) for call in (lib.winnow_comm_rank, lib.winnow_comm_world))

    def hold(self):
        """This worker has the state of the job from now on, as those have that were members from the beginning: should all
        others be lost, it may continue. A newcomer says so when it has got that."""
        self._call(lib.winnow_comm_hold, ())

    @brief
    def admit(self, most=2**32 - 1):
        """Lets newcomers in, those who make their Comm with newcomer=True; returns how many have come.

        All members call it at the same point, for example after each step; while nobody waits it costs as much as
        an allreduce of one element. Else ranks and world change as by reconfigure(): newcomers come after the members
        of before, or have the rank they ask for, but 0, so broadcast(.., root=0) gives them what they lack.
        most: admit no more at a time; the least that any member says.
        """
        came = ctypes.c_uint32(0)
        try:
            code = self._call(lib.winnow_comm_admit, (), (number("most", most), ctypes.byref(came)))
        finally:
            self._look()
        self.memberships += came.value > 0
        check(code)
        return came.value

    def rounds(self, wire=None):
        """Whether float32 is rounded before it is sent with this `wire`; None: the communicator's."""
        return self._sent_as(wire) != _native.WIRES["native"]

    def narrows(self, wire=None):
        """Whether it is sent so in less than 32 bits, which tensors in a GPU's memory are not."""
        return self._sent_as(wire) > _native.WIRES["fixed32"]

    def _sent_as(self, wire):
        return choice("wire", wire or "auto", _native.WIRES) or self._wire or self.stats().wire

    def say(self, text):
        """What `winnow status --workers` shows beside this worker, up to 63 characters; way="auto" says its choice so."""
        self._call(lib.winnow_comm_say, (), (text.encode(),))

    def late(self):
        """Whom this worker's operation has been waiting for, for some seconds, in a line; None: nobody, or another
        worker is told. While a request is waited for, it goes to the log `winnow`, as a warning: once, then rarely."""
        return self._call(lib.winnow_comm_late, ()).decode(errors="replace") or None
