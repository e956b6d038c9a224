# SPDX-License-Identifier: BSD-3-Clause
"""Communicators: those of client/winnow.h as Python objects."""

from __future__ import annotations

import ctypes
import os
import random
import time
from typing import TYPE_CHECKING, Any, Optional, Sequence, Tuple, TypeVar, Union

from . import _buffers, _member, _native
from ._member import BLOCK_MAX, Member, Request, WinnowError, brief, calls_of, check, check_pair, choice, configure
from ._member import number, options_of, refuse_unknown, segments_of, signature_of, tiles_of
from ._native import lib

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._settings import Founding, OfComm

Array = TypeVar("Array")  # a numpy array, a torch tensor, or an object with __cuda_array_interface__
Segments = Sequence[Tuple[int, ...]]

class RowsRequest(Request[Tuple[Any, Any]]):
    """An operation on rows that was started and may not be done yet.

    ``Comm.allreduce_rows_async()`` returns it; do not construct it yourself. Its ``wait()`` returns the pair
    ``(index, values)`` that ``Comm.allreduce_rows()`` describes. Everything else is as in Request.
    """

    def __init__(self, comm: Comm, send: Any):
        super().__init__(comm, send, None)
        self._rows = ctypes.c_void_p()

    def _collect(self, code):
        if code != _native.OK:
            return
        count = lib.winnow_rows_count(self._rows)
        index, values, found = _buffers.new_rows(self._kept.owner, count)
        lib.winnow_rows_read(self._rows, index, values)
        self._out = found  # last, because another thread may collect it at the same time

    def _free(self):
        lib.winnow_rows_free(ctypes.byref(self._rows))
        super()._free()


class Comm(Member):
    """One worker's membership of a job on its aggregators.

    The constructor joins the job and blocks until all workers have joined; Ctrl-C interrupts it.
    A setting that is None comes from the environment (the name in brackets, before its default), then from the file
    that ``WINNOW_CONFIG`` names unless it is about addresses and keys, and then from the library's default.

    Leave the job with ``close()``, with a ``with`` statement, or with the end of the program. If an exception ends the
    ``with`` statement or the program, the job is aborted and the other workers are told the exception.

    Threads: Several threads may share a communicator. Operations without a tag should then come from one thread only.
    A child process cannot use the communicator of its parent.

    Args:
        aggregators: ``"HOST:PORT[,HOST:PORT..]"``, in the same order on all workers; an IPv6 address as
            ``"[fd00::1]:5555"``. If a name has several addresses, the first that answers is used. [WINNOW_AGGREGATORS]
        job: The job's name, or ``"NAME/ID"`` for one membership: 1 to 64 letters, digits, ``.``, ``-`` and ``_`` each.
            Set it where several jobs share an aggregator. [WINNOW_JOB; ``"default"``]
        rank: This worker's number, from 0 to ``world - 1``. [RANK; 0]
        world: The number of workers in the job. [WORLD_SIZE; 1]
        key_file: The path of the job's key file. [WINNOW_KEY_FILE]
        key: The job's key itself, instead of ``key_file``. [WINNOW_KEY]
        insecure_no_key: True joins without a key, if winnowd runs with ``--insecure-no-key``.
            [WINNOW_INSECURE_NO_KEY; False]
        block: Elements in a block, 1 to 65536. Smaller blocks skip more zeros, and cost more CPU. [WINNOW_BLOCK; 256]
        wire: How float32 travels: see ``allreduce()``. [WINNOW_WIRE; ``"auto"``]
        threads: Threads that scan tensors, including the library's own. [WINNOW_THREADS; 1]
        silence_ms: A peer that sends nothing for so many milliseconds counts as lost. The shortest value of all workers
            applies. [WINNOW_SILENCE; 10 s]
        timeout_ms: The longest time that an operation waits for other workers, in milliseconds. [WINNOW_TIMEOUT; 600 s]
        join_timeout_ms: The longest time for all workers to join, in milliseconds. The default is longer than winnowd's
            own, because winnowd names the worker that is missing. [WINNOW_JOIN_TIMEOUT; 65 s]
        multicast: False does not use multicast even where it works. [WINNOW_MULTICAST; True]
        payload: The most bytes in a datagram; 0 takes what the path carries. [WINNOW_PAYLOAD; 0]
        datapath: ``"udp"`` sends through sockets, ``"dpdk"`` through a port of DPDK. DPDK's environment starts once in a
            process: one communicator at a time, and not in a process that forks. [WINNOW_DATAPATH; ``"udp"``]
        eal: With DPDK: the arguments of its EAL. By default they suit ``device``. [WINNOW_EAL]
        device: With DPDK: a kernel interface, or the name of the port. [WINNOW_DEVICE]
        data_address: With DPDK: this worker's ``"ADDR/BITS"`` on the device, IPv4 or IPv6. By default the kernel's
            address of that interface. [WINNOW_DATA_ADDRESS]
        gateway: With DPDK: the gateway to addresses beyond the device's network. By default none. [WINNOW_GATEWAY]
        staging_mb: The approximate page-locked memory for tensors on GPUs, in MB for each GPU. The library takes at least
            as much as the job's windows need. [WINNOW_STAGING_MB; 64]
        dscp: The class of this worker's datagrams for switches (DSCP, RFC 2474), 0 to 63. winnowd has an option for its
            own. [WINNOW_DSCP; 0]
        network: ``"shared"`` if others also use the network: heavy loss for ten seconds then ends the job. ``"private"`` if
            only Winnow uses it: queues may grow, which saves CPU time; loss slows a worker down only where packets queue,
            and ends nothing. [WINNOW_NETWORK; ``"shared"``]
        memory_mb: The most memory that this worker reserves for the aggregators' windows, in MB, and also the most
            page-locked memory for each GPU, unless ``staging_mb`` is more. A job that needs more fails with code
            ``MEMORY``. [WINNOW_MEMORY_MB; 2048]
        interface: With sockets: the interface that leads to the aggregators, ``"eth1"``, or its address, ``"10.0.0.7"``.
            By default the system chooses. [WINNOW_INTERFACE]
        debug: ``"off"``, ``"warn"`` or ``"info"``: up to this level, lines that the logger ``winnow`` does not take go to
            stderr. They tell why a join still waits, and with ``"info"`` how the job was joined. [WINNOW_DEBUG; ``"off"``]
        newcomer: True joins a job that is running, as soon as its members call ``admit()``. ``job`` is then the job's
            name. ``rank`` is the worker's former rank, if it comes back. The communicator finds out its rank and world.

    Attributes:
        rank: This worker's number in the present membership.
        world: The number of workers in the present membership.
        newcomer: Whether this worker joined a job that was already running.
        memberships: How often this worker has left a membership through ``reconfigure()`` or ``admit()``. When it
            changes, operations with tags of your own begin anew.

    Raises:
        TypeError: There is no setting of this name.
        ValueError: A setting has an impossible value.
        WinnowError: No aggregator answers, an aggregator refuses this worker, or not all workers joined in time.

    Example:
        >>> with winnow.Comm(aggregators="10.0.0.1:5555", job="train1", rank=0, world=4) as comm:
        ...     comm.allreduce(gradient, op="avg")
    """

    __signature__ = signature_of(newcomer=False)
    _noun = "communicator"
    _calls = calls_of("comm")

    @brief
    def __init__(self, *, newcomer: bool = False, **settings: Unpack[OfComm]):
        refuse_unknown("Comm", settings)
        config = configure(settings)
        self.rank, self.world, self._wire = config.rank, config.world, config.wire
        self.newcomer = newcomer
        self.memberships = 0
        if newcomer:
            self._calls = self._calls._replace(create=lib.winnow_comm_enter)
            super().__init__(config, config)
            self._look()
        else:
            super().__init__(config, config)

    @classmethod
    @brief
    def enter_or_found(
        cls, *, job: Optional[str] = None, found_after: float = 10, join_timeout_ms: Optional[int] = None,
        **settings: Unpack[Founding],
    ) -> Comm:
        """Join a running job as a newcomer, or found it as rank 0 of 1 if there is no such job.

        Use it for workers that come and go and know neither rank nor world, such as the pods of a Kubernetes Deployment.

        The call first waits like ``Comm(newcomer=True)``. If nobody has admitted the worker after about ``found_after``
        seconds, the worker founds the job. It does not found the job if an aggregator has members of it, or if another
        worker founds it first; then it waits again. The call blocks until it succeeds or ``join_timeout_ms`` have passed.

        Args:
            job: The job's name. By default ``WINNOW_JOB``, or ``"default"``.
            found_after: Seconds to wait before founding the job, plus a random part of at most half as much. It must be
                longer than a step of the job: after a restart of the only aggregator, members return when their step is done.
            join_timeout_ms: The longest time to wait, in milliseconds. By default ``WINNOW_JOIN_TIMEOUT``, or 65 s.
            **settings: Settings of ``Comm``, except rank and world.

        Returns:
            The communicator. Its ``newcomer`` is False if this worker founded the job.

        Raises:
            WinnowError: No aggregator answers, an aggregator refuses this worker, or the time is over.

        Example:
            >>> comm = winnow.Comm.enter_or_found(job="numbers")
            >>> elastic = winnow.torch.attach(ddp, comm, elastic=True)
        """
        config = configure({"job": job, "join_timeout_ms": join_timeout_ms})
        name, until = os.fsdecode(config.job), time.monotonic() + config.join_timeout_ms / 1000
        # Workers that came at the same time must not retry at the same time.
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
        self, data: Array, out: Optional[Array] = None, op: str = "sum", tag: int = 0, block: int = 0,
        wire: Optional[str] = None, segments: Optional[Segments] = None, priority: int = 0, stream: Optional[int] = None,
        tile: Optional[Tuple[int, int]] = None, lost: Optional[Any] = None,
    ) -> Array:
        """Combine ``data`` of all workers, element by element.

        Only blocks with a non-zero element travel. All workers call it, with the same size, type and ``op``. The call blocks
        until the result is there; other threads continue.

        Args:
            data: A numpy array, a torch tensor on the CPU or a GPU, or an array with ``__cuda_array_interface__``, such as
                CuPy's. It is contiguous, of type float32, float16, bfloat16, float64, int32 or int64. 16-bit floats are
                added in float32 and rounded once. Integers wrap.
            out: Where the result goes, of the size and type of ``data`` and on the same device. By default ``data`` itself
                is overwritten.
            op: ``"sum"``, ``"avg"``, ``"min"``, ``"max"`` or ``"prod"``. An average of integers is truncated towards zero.
                A block that a worker does not send counts as zeros. The sign of a zero is not kept.
            tag: A number that matches this operation with the same operation on the other workers. The default, 0, matches
                by order. Use tags if operations begin in different orders on different workers.
            block: Elements in a block, 1 to 65536. 0 is the communicator's.
            wire: How float32 travels in sums and averages; everything else travels as it is. By default the communicator's
                setting applies. docs/thin-links.md has the errors.

                - ``"native"``: as float32.
                - ``"fixed32"``: as integers of 32 bits, whose sums are the same bit for bit in any order.
                - ``"auto"``: as ``"fixed32"`` if all aggregators add in the kernel and the tensor exceeds about four
                  datagrams, else as ``"native"``.
                - ``"fixed16"``, ``"fixed8"``, ``"bf16"``: in 16 or 8 bits, for links that are too thin. Tensors of about
                  a datagram still travel as float32. Not for tensors on a GPU; ``"fixed8"`` at most for 256 workers.
            segments: The parts of the tensor that consist of rows, so that blocks begin where rows do: a list of
                ``(offset, count, row length)``, in elements. By default the tensor has no rows. With two more numbers, the
                rows and columns of a tile, a segment's blocks are tiles of its matrix. Segments are the same on all workers.
            priority: Of the operations that have started, those with higher numbers go first; equal ones go by age.
                Use the same numbers on all workers.
            stream: For data on a GPU, the number of the CUDA stream that produces it. By default torch's current stream, or
                the one that the array names. Only the operation waits for that stream.
            tile: ``(rows, columns)`` of a block, if ``data`` is a matrix on the CPU. Columns that are zero on all workers
                then cost nothing. At most 65536 elements; small tiles, a few elements wide, are best. Excludes ``segments``.
            lost: A float32 array on the CPU, as large as float32 ``data`` on the CPU. The rounding errors of this worker's
                elements, if ``wire`` is narrower, are added to it. By default they are dropped.

        Returns:
            ``out``, or ``data`` if ``out`` is None, with the result.

        Raises:
            TypeError: ``data`` or ``out`` is not an array, or has a type that is not supported.
            ValueError: An argument is impossible, or arguments contradict each other.
            MembersChanged: A worker or an aggregator is gone. Call ``reconfigure()`` and repeat the step.
            WinnowError: Workers differ in the operation, the time is over, the job was aborted, or the communicator is closed.

        Example:
            >>> comm.allreduce(gradient)                         # in place; a numpy array or a torch tensor
            >>> mean = comm.allreduce(matrix, out=numpy.empty_like(matrix), op="avg", tile=(16, 1))
        """
        return self.allreduce_async(data, out, op, tag, block, wire, segments, priority, stream, tile, lost).wait()

    @brief
    def allreduce_async(
        self, data: Array, out: Optional[Array] = None, op: str = "sum", tag: int = 0, block: int = 0,
        wire: Optional[str] = None, segments: Optional[Segments] = None, priority: int = 0, stream: Optional[int] = None,
        tile: Optional[Tuple[int, int]] = None, lost: Optional[Any] = None,
    ) -> Request[Array]:
        """Start an ``allreduce()`` and return without waiting for it.

        Do not read or write ``data``, ``out`` and ``lost`` until the operation is done.
        This also applies to a GPU: ``wait()`` and ``test()`` say when the operation is done. Work that you put into a stream
        after that finds the result.

        Args:
            data, out, op, tag, block, wire, segments, priority, stream, tile, lost: As in ``allreduce()``.

        Returns:
            A Request. Its ``wait()`` returns what ``allreduce()`` returns.

        Raises:
            TypeError, ValueError: As in ``allreduce()``.
            WinnowError: The operation cannot start. Later errors are raised by the request.
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
        request: Request = Request(self, (send, recv, kept), recv.owner)
        return self._start(request, start, (*what, ctypes.byref(options)))

    @brief
    def reduce_scatter(
        self, data: Any, out: Array, op: str = "sum", tag: int = 0, block: int = 0, wire: Optional[str] = None,
        priority: int = 0, lost: Optional[Any] = None,
    ) -> Array:
        """Combine ``data`` of all workers, and return this worker's share of the result.

        No worker receives more than its share, except that small operations, up to about four datagrams, arrive as a whole.
        All workers call it, with the same size, type and ``op``. The call blocks until the result is there.

        Args:
            data: A contiguous numpy array or torch tensor on the CPU. It holds the workers' shares in the order of their
                ranks, each with as many elements as ``out``. It is only read.
            out: Where this worker's share goes: part number ``rank`` of ``data`` itself, or memory that does not overlap it.
            op, tag, block, wire, priority, lost: As in ``allreduce()``.

        Returns:
            ``out``, with this worker's share.

        Raises:
            TypeError: ``data`` or ``out`` is not an array on the CPU, or has a type that is not supported.
            ValueError: ``out`` is read-only, or ``data`` is not ``world`` times as large as ``out`` and of the same type.
            WinnowError: As in ``allreduce()``.

        Example:
            >>> share = comm.reduce_scatter(gradient, numpy.empty(len(gradient) // comm.world, numpy.float32))
        """
        return self.reduce_scatter_async(data, out, op, tag, block, wire, priority, lost).wait()

    @brief
    def reduce_scatter_async(
        self, data: Any, out: Array, op: str = "sum", tag: int = 0, block: int = 0, wire: Optional[str] = None,
        priority: int = 0, lost: Optional[Any] = None,
    ) -> Request[Array]:
        """Start a ``reduce_scatter()`` and return without waiting for it.

        Do not read or write ``data``, ``out`` and ``lost`` until the operation is done.

        Args:
            data, out, op, tag, block, wire, priority, lost: As in ``reduce_scatter()``.

        Returns:
            A Request. Its ``wait()`` returns ``out``.

        Raises:
            TypeError, ValueError: As in ``reduce_scatter()``.
            WinnowError: The operation cannot start. Later errors are raised by the request.
        """
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
        request: Request = Request(self, (send, recv, kept), recv.owner)
        return self._start(request, lib.winnow_reduce_scatter_async, (*what, ctypes.byref(options)))

    @brief
    def broadcast(self, data: Array, root: int = 0, tag: int = 0, block: int = 0, priority: int = 0) -> Array:
        """Copy the contents of worker ``root``'s ``data`` to all workers, bit by bit.

        Blocks of zeros do not travel. All workers call it, with the same size. The call blocks until the contents are there.

        Args:
            data: A contiguous numpy array or torch tensor on the CPU, of a multiple of 4 bytes. The root's is only read, and
                the others' is only written.
            root: The rank of the worker whose contents all get.
            tag, priority: As in ``allreduce()``.
            block: As in ``allreduce()``, in elements of 4 bytes.

        Returns:
            ``data``.

        Raises:
            TypeError: ``data`` is not an array on the CPU, or has a type that is not supported.
            ValueError: ``data`` is read-only, or an argument is impossible.
            WinnowError: As in ``allreduce()``.
        """
        return self.broadcast_async(data, root, tag, block, priority).wait()

    @brief
    def broadcast_async(
        self, data: Array, root: int = 0, tag: int = 0, block: int = 0, priority: int = 0
    ) -> Request[Array]:
        """Start a ``broadcast()`` and return without waiting for it.

        Do not read or write ``data`` until the operation is done.

        Args:
            data, root, tag, block, priority: As in ``broadcast()``.

        Returns:
            A Request. Its ``wait()`` returns ``data``.

        Raises:
            TypeError, ValueError: As in ``broadcast()``.
            WinnowError: The operation cannot start. Later errors are raised by the request.
        """
        what = _buffers.describe_on_host(data, "data", "broadcast is")
        if not what.writable:
            raise ValueError("data is read-only")
        options = options_of(tag, block, None, priority)
        request: Request = Request(self, (what,), what.owner)
        args = (what.address, what.count * _native.SIZES[what.dtype], root)
        return self._start(request, lib.winnow_broadcast_async, (*args, ctypes.byref(options)))

    @brief
    def allreduce_rows(
        self, index: Any, values: Array, count: int, op: str = "sum", tag: int = 0, wire: Optional[str] = None,
        priority: int = 0,
    ) -> Tuple[Array, Array]:
        """Combine tables of ``count`` rows of which each worker has some.

        A row that a worker lacks counts as zeros. No worker holds, sends or scans the whole table. Announcing the rows costs
        one bit for each row of the table, so make hashed tables no larger than needed.
        All workers call it, with the same ``count``, row shape and type. The call blocks until the result is there.

        Args:
            index: The numbers of this worker's rows: a numpy array or torch tensor of int64 on the CPU. Each number occurs
                once, in any order. It may be empty.
            values: One row for each number: a numpy array or torch tensor on the CPU. All rows of all workers have the same
                shape, with 1 to 65536 elements.
            count: The number of rows in the whole table.
            op, tag, wire, priority: As in ``allreduce()``.

        Returns:
            ``(index, values)``: the number of each row that any worker has, int64 of shape ``(n,)`` in ascending order, and
            the combined rows, of shape ``(n, *row shape)``. Both are new, of the same kind (numpy or torch) as ``values``.

        Raises:
            TypeError: ``index`` or ``values`` is not an array on the CPU, or has a wrong type.
            ValueError: Sizes do not match, or an argument is impossible.
            WinnowError: As in ``allreduce()``.

        Example:
            >>> index, values = comm.allreduce_rows(numpy.array([7, 3]), gradient_of_two_rows, count=50000, op="avg")
        """
        return self.allreduce_rows_async(index, values, count, op, tag, wire, priority).wait()

    @brief
    def allreduce_rows_async(
        self, index: Any, values: Any, count: int, op: str = "sum", tag: int = 0, wire: Optional[str] = None,
        priority: int = 0,
    ) -> RowsRequest:
        """Start an ``allreduce_rows()`` and return without waiting for it.

        Do not read or write ``values`` until the operation is done.

        Args:
            index, values, count, op, tag, wire, priority: As in ``allreduce_rows()``.

        Returns:
            A RowsRequest. Its ``wait()`` returns ``(index, values)``.

        Raises:
            TypeError, ValueError: As in ``allreduce_rows()``.
            WinnowError: The operation cannot start. Later errors are raised by the request.
        """
        send = _buffers.describe_on_host(values, "values")
        length = _buffers.row_length(values)
        if not 1 <= length <= BLOCK_MAX:
            raise ValueError(f"rows have {length} elements: want 1 to {BLOCK_MAX}")
        starts = _buffers.starts(index, len(values), length)
        what: Tuple[Any, ...] = (send.address, starts.address, len(values), length)
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
    def reconfigure(
        self, id: Optional[Union[int, str]] = None, rank: int = 0, world: int = 1, timeout: Optional[float] = None
    ) -> None:
        """Leave the present membership, running or ended, and form another one.

        Without ``id``, the workers that are left after a failure continue, in the order of their ranks. The first aggregator
        decides which.

        With ``id``, the new membership consists of all workers that pass the same ``id``: fewer, more, or others. A new
        worker among them creates its communicator with ``job="NAME/ID"``.

        Operations that are not done raise MembersChanged, here and on the other workers. The call blocks until all workers
        of the new membership have joined; Ctrl-C interrupts it.

        Args:
            id: The name of the new membership: a number, or a text of letters, digits, ``.``, ``-`` and ``_``. Each
                membership of a job has a different one. By default the workers that are left continue.
            rank: With ``id``: this worker's rank in the new membership.
            world: With ``id``: the number of workers in it. Without: the least number of workers that may continue.
            timeout: Seconds, from this call on, until all must have joined. By default as when the job was joined.

        Raises:
            ValueError: ``rank`` or ``world`` is negative.
            WinnowError: With code ``INVALID`` an argument was refused and nothing has changed. After any other code there is
                no membership: call it again, with another ``id``. Without ``id`` it is also an error if fewer than ``world``
                workers are left.

        Example:
            >>> try:
            ...     comm.allreduce(gradient, op="avg")
            ... except winnow.MembersChanged:
            ...     comm.reconfigure()                           # the workers that are left; then repeat the step
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

    def hold(self) -> None:
        """Declare that this worker has the state of the job.

        A worker that has the state may continue even if all others are lost. Members from the beginning have it. A newcomer
        calls this when it has received the state. The call does not wait.

        Raises:
            WinnowError: The communicator is closed, or belongs to the parent process.
        """
        self._call(lib.winnow_comm_hold, ())

    @brief
    def admit(self, most: int = 2**32 - 1) -> int:
        """Let newcomers in: workers that create their ``Comm`` with ``newcomer=True``.

        All members call it at the same point, for example after each step. The call blocks until all have called it and the
        newcomers are in. While no newcomer waits, it costs as much as an allreduce of one element.

        If newcomers join, ``rank`` and ``world`` change as in ``reconfigure()``. Newcomers get ranks after those of the
        members, or the rank that they ask for, but never 0. So ``broadcast(.., root=0)`` can give them the state.

        Args:
            most: The most newcomers to admit. The smallest number of all members applies. By default there is no limit.

        Returns:
            The number of newcomers that have joined.

        Raises:
            MembersChanged: A worker or an aggregator is gone. Call ``reconfigure()``.
            WinnowError: The newcomers could not be admitted, or the communicator is closed.
        """
        came = ctypes.c_uint32(0)
        try:
            code = self._call(lib.winnow_comm_admit, (), (number("most", most), ctypes.byref(came)))
        finally:
            self._look()
        self.memberships += came.value > 0
        check(code)
        return came.value

    def rounds(self, wire: Optional[str] = None) -> bool:
        """Tell whether float32 is rounded before it is sent.

        Args:
            wire: As in ``allreduce()``. By default the communicator's.

        Returns:
            False for ``"native"``, and for ``"auto"`` if that means ``"native"``. Otherwise True.

        Raises:
            ValueError: There is no such ``wire``.
        """
        return self._sent_as(wire) != _native.WIRES["native"]

    def narrows(self, wire: Optional[str] = None) -> bool:
        """Tell whether float32 is sent in fewer than 32 bits, which tensors in a GPU's memory do not support.

        Args:
            wire: As in ``allreduce()``. By default the communicator's.

        Returns:
            True for ``"fixed16"``, ``"fixed8"`` and ``"bf16"``.

        Raises:
            ValueError: There is no such ``wire``.
        """
        return self._sent_as(wire) > _native.WIRES["fixed32"]

    def _sent_as(self, wire):
        return choice("wire", wire or "auto", _native.WIRES) or self._wire or self.stats().wire

    def say(self, text: str) -> None:
        """Set the text that ``winnow status --workers`` shows beside this worker.

        It appears within a quarter of the silence time. ``attach(way="auto")`` also uses it, to show its choice.

        Args:
            text: Up to 63 characters. ``""`` shows nothing.

        Raises:
            WinnowError: The communicator is closed, or belongs to the parent process.
        """
        self._call(lib.winnow_comm_say, (), (text.encode(errors="replace"),))

    def late(self) -> Optional[str]:
        """Name the worker that this worker's operation has been waiting for, for some seconds.

        The call never waits. While a thread waits for a request, the same line also goes to the logger ``winnow`` as a
        warning: once, then rarely.

        Returns:
            One line, such as ``waiting in operation #7 for rank 3 (host): in no operation for 8 s``. None if nobody is late,
            or if another worker that waits gets the line.

        Raises:
            WinnowError: The communicator is closed, or belongs to the parent process.
        """
        return self._call(lib.winnow_comm_late, ()).decode(errors="replace") or None
