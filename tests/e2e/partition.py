"""partition.py ID [new] - a worker that steps until told to stop, whatever happens to its network; for test_partition.sh

Each worker adds 1 at its own number, so that a result says who has taken part. It ends with status 1 if a result has
other members than one membership can have. What happens is printed: "MILLISECONDS what world rank members".
"""

import os
import pathlib
import sys
import time

import numpy

import winnow

me, new = int(sys.argv[1]), "new" in sys.argv
workers, stop = int(os.environ["WORKERS"]), pathlib.Path(os.environ["STOP"])
begun = time.monotonic()


def say(what, *more):
    print(f"{(time.monotonic() - begun) * 1e3:.0f}", what, *more, flush=True)


def enter():
    """Until it is in: while it is cut off each try fails."""
    while True:
        try:
            return winnow.Comm(newcomer=True, rank=me)
        except winnow.WinnowError as error:
            say("waits", error)
            time.sleep(0.2)


def step(comm):
    """Who has taken part, and whether any of them wants to stop."""
    given = numpy.zeros((workers + 1, 3000), numpy.float32)
    given[me] = 1
    given[workers] = stop.exists()
    found = comm.allreduce(given)
    assert (found == found[:, :1]).all(), "parts of a result have different members"
    counts = found[:workers, 0]
    assert set(counts) <= {0, 1} and counts[me] == 1 and counts.sum() == comm.world, (comm.world, list(counts))
    return numpy.flatnonzero(counts).tolist(), found[workers, 0] > 0


comm, seen, over = enter() if new else winnow.Comm(rank=me, world=workers), None, False
while not over:
    try:
        who, over = step(comm)
        if who != seen:
            seen = who
            comm.hold()
            say("members", comm.world, comm.rank, *who)
        if not over:
            comm.admit()
    except winnow.WinnowError as error:
        say("ended", error)
        try:
            if not isinstance(error, winnow.MembersChanged):
                raise
            comm.reconfigure()
        except winnow.WinnowError as error:
            say("expelled", error)
            comm.close()
            comm = enter()
        seen = None
    time.sleep(0.01)
comm.close()
