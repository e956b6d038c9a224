# SPDX-License-Identifier: BSD-3-Clause
"""A worker in a container: trains the demo's skip-gram over Winnow, step by step, until it is stopped.

RANK, WORLD_SIZE and MASTER_ADDR as for any DistributedDataParallel (in Kubernetes JOB_COMPLETION_INDEX is the rank, too);
WINNOW_AGGREGATORS, WINNOW_JOB and WINNOW_KEY_FILE as for any use of Winnow. With --elastic workers come and go, and
need only these.
"""

import argparse
import os
import pathlib
import signal
import sys
import threading
import time

DATA = pathlib.Path(__file__).resolve().parent / "corpus.npz"


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=0, help="end after so many; 0: never [0]")
    parser.add_argument("--report", type=int, default=20, help="steps between two lines of rank 0 [20]")
    parser.add_argument("--pause", type=float, default=0, help="seconds to wait after each step [0]")
    parser.add_argument("--elastic", action="store_true", help="workers come and go; each reports, and SIGTERM ends it after a step")
    parser.add_argument("--found-after", type=float, default=10, metavar="SECONDS", help="then there is no such job yet [10]")
    parser.add_argument("--data", type=pathlib.Path, default=DATA, help="the text as numbers [beside this file]")
    parser.add_argument("--prepare", action="store_true", help="only write it")
    return parser.parse_args()


def on_sigterm(act):
    """Whatever the main thread does. The first process of a container would ignore the signal otherwise, as it does
    until this is called: so what takes long to import comes later."""

    def wait():
        signal.sigwait({signal.SIGTERM})
        act()

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=wait, daemon=True).start()


def total_of(model):
    return sum(float(p.detach().double().sum()) for p in model.parameters())


def train(given, rank):
    import corpus
    import models
    import numpy
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import winnow.torch

    begun = time.monotonic()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = corpus.load(given.data)
    dist.init_process_group("gloo")
    model = models.SkipGram(data)
    ddp = DistributedDataParallel(model)
    state = winnow.torch.attach(ddp)
    optimizer = model.optimizer()
    draw = numpy.random.default_rng((rank, 1))
    step = 0
    while given.steps == 0 or step < given.steps:
        optimizer.zero_grad(set_to_none=True)
        loss = ddp(*model.batch(data, draw))
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and (step == 1 or step % given.report == 0):
            stats = state.stats()
            print(
                f"step {step}: loss {loss.item():.4f}, {time.monotonic() - begun:.1f} s, "
                f"{stats.sent_bytes / step / 1e6:.2f} MB out and {stats.received_bytes / step / 1e6:.2f} in a step "
                f"of {stats.bytes / step / 1e6:.2f} MB, d {stats.density:.3f}, U {stats.union:.3f}",
                flush=True,
            )
        time.sleep(given.pause)
    state.close()
    print(f"rank {rank} done: {step} steps, parameters add up to {total_of(model):.9e}", flush=True)
    dist.destroy_process_group()


def train_elastic(given, leaves):
    """leaves: an Event; from the first step on, it ends this worker after a step, instead of at once."""
    import corpus
    import models
    import numpy
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import winnow.torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = corpus.load(given.data)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = models.SkipGram(data)
    ddp, optimizer = DistributedDataParallel(model), model.optimizer()
    comm = winnow.Comm.enter_or_found(found_after=given.found_after)
    leaves.trains = True
    state = winnow.torch.attach(ddp, comm, elastic=True)
    say = lambda what: print(f"step {state.step}: {what}, {comm.rank} of {comm.world}", flush=True)
    state.share(optimizer)
    say("is there")
    while not leaves.is_set() and (given.steps == 0 or state.step < given.steps):
        try:
            draw = numpy.random.default_rng((comm.rank, state.step))
            optimizer.zero_grad(set_to_none=True)
            loss = ddp(*model.batch(data, draw))
            loss.backward()
            optimizer.step()
            state.admit()
            if state.step % given.report == 0:
                say(f"loss {loss.item():.4f}, parameters add up to {total_of(model):.9e}")
            time.sleep(given.pause)
        except winnow.MembersChanged as error:
            print(f"step {state.step} again: {error}", flush=True)
            state.resume()
    say("leaves" if leaves.is_set() else "done")
    comm.close()


def main():
    given = options()
    leaves = threading.Event()
    leaves.trains = False
    on_sigterm(lambda: leaves.set() if leaves.trains else os._exit(0))
    if given.prepare:
        import corpus

        corpus.prepare(given.data)
        return 0
    if given.elastic:
        train_elastic(given, leaves)
        return 0
    os.environ.setdefault("RANK", os.environ.get("JOB_COMPLETION_INDEX", "0"))
    os.environ.setdefault("WORLD_SIZE", "1")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    try:
        train(given, int(os.environ["RANK"]))
    except Exception as error:
        print(f"worker {os.environ['RANK']}: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
        os._exit(1)  # threads of a broken process group may wait for ever
    return 0


if __name__ == "__main__":
    sys.exit(main())
