# SPDX-License-Identifier: BSD-3-Clause
"""A worker in a container: trains the demo's skip-gram over Winnow, step by step, until it is stopped.

RANK, WORLD_SIZE and MASTER_ADDR as for any DistributedDataParallel (in Kubernetes JOB_COMPLETION_INDEX is the rank, too);
WINNOW_AGGREGATORS, WINNOW_JOB and WINNOW_KEY_FILE as for any use of Winnow.
"""

import argparse
import os
import pathlib
import signal
import sys
import time

import corpus

DATA = pathlib.Path(__file__).resolve().parent / "corpus.npz"


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=0, help="end after so many; 0: never [0]")
    parser.add_argument("--report", type=int, default=20, help="steps between two lines of rank 0 [20]")
    parser.add_argument("--pause", type=float, default=0, help="seconds to wait after each step [0]")
    parser.add_argument("--prepare", action="store_true", help="only write the text as numbers beside this file")
    return parser.parse_args()


def train(given, rank):
    import models
    import numpy
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import winnow.torch

    begun = time.monotonic()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = corpus.load(DATA)
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
    total = sum(float(p.detach().double().sum()) for p in model.parameters())
    print(f"rank {rank} done: {step} steps, parameters add up to {total:.9e}", flush=True)
    dist.destroy_process_group()


def main():
    given = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # process 1 of a container ignores it otherwise
    if given.prepare:
        corpus.prepare(DATA)
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
