# SPDX-License-Identifier: BSD-3-Clause
"""allreduce of tensors on one GPU: Winnow and, alternating, NCCL over sockets, on this machine.

check.sh runs it; WINNOW_AGGREGATORS says where winnowd is. Each worker is a process; all share the
GPU, and both systems use the loopback device and the same CPUs. A measurement begins when all workers
and the GPU are idle and ends when the slowest worker's GPU is idle again; rows are medians. Prints a
table and writes all numbers to --json FILE. DEVICE=cpu: against Gloo, to see that it runs.

A worker alone has the GPU to itself, as in most jobs. "beside": its time while the GPU also multiplies
matrices, from before it until after it; "taken": by how much longer these multiplications are than alone,
as a share of the operation's time. (Of several processes that share a GPU one's kernels can wait for as long
as another has any.)
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import harness  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import winnow  # noqa: E402

DEVICE = os.environ.get("DEVICE", "cuda")
ON_GPU = DEVICE == "cuda"
if ON_GPU:
    harness.start_method = "spawn"
BLOCK = 256
LEAST_ITERATIONS = 3
MATRIX = 4096  # rows and columns
ANSWER_SECONDS = 400
_kept = {}  # of this process: communicator and group


def idle():
    if ON_GPU:
        torch.cuda.synchronize()


def open_both(rank, world, job, wire):
    os.environ.update(
        NCCL_HOSTID=f"winnow-bench-{rank}",  # one GPU is taken from several hosts only
        NCCL_SOCKET_IFNAME="lo",
        NCCL_P2P_DISABLE="1",
        NCCL_SHM_DISABLE="1",
        NCCL_IB_DISABLE="1",
        NCCL_NET="Socket",
    )
    if ON_GPU:
        torch.cuda.set_device(0)
    _kept["comm"] = winnow.Comm(job=job, rank=rank, world=world, wire=wire, insecure_no_key=True)
    _kept["group"] = dist.new_group(backend="nccl" if ON_GPU else "gloo")
    dist.all_reduce(torch.ones(1, device=DEVICE), group=_kept["group"])
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if ON_GPU else "none"
    return torch.cuda.get_device_name() if ON_GPU else "no GPU", torch.__version__, nccl


def close_both(rank, world):
    _kept.pop("comm").close()
    dist.destroy_process_group(_kept.pop("group"))
    return True


def tensor_of(rank, count, density):
    """Blocks at random places, each worker's its own, as gradients' rows are."""
    draw = torch.Generator(device=DEVICE).manual_seed(1000 + rank)
    blocks = -(-count // BLOCK)
    tensor = torch.randn(blocks, BLOCK, generator=draw, device=DEVICE)
    tensor[torch.rand(blocks, generator=draw, device=DEVICE) >= density] = 0
    return tensor.view(-1)[:count]


def slowest(seconds):
    """Of all workers, over the Gloo group that the team started with."""
    worst = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return float(worst)


def timed(operation):
    idle()
    dist.barrier()
    begun = time.perf_counter()
    found = operation()
    idle()
    return slowest(time.perf_counter() - begun), found


def multiplications(matrix, count):
    """So many in a stream of their own: the events around them."""
    stream, product = torch.cuda.Stream(), torch.empty_like(matrix)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    with torch.cuda.stream(stream):
        events[0].record()
        for _ in range(count):
            torch.mm(matrix, matrix, out=product)
        events[1].record()
    return events


def beside_work(operation, took, iterations):
    """Medians: the operation's seconds beside multiplications, and the share of them that these took longer."""
    matrix = torch.randn(MATRIX, MATRIX, device=DEVICE, dtype=torch.bfloat16)
    times, shares = [], []

    def passed(events):
        idle()
        return events[0].elapsed_time(events[1]) / 1e3

    passed(multiplications(matrix, 10))
    count = 10 + int(3 * took / (passed(multiplications(matrix, 50)) / 50))
    for _ in range(iterations):
        alone = passed(multiplications(matrix, count))
        events = multiplications(matrix, count)
        begun = time.perf_counter()
        operation()  # returns when the host knows that the result is there
        times.append(time.perf_counter() - begun)
        shares.append((passed(events) - alone) / times[-1])
    return statistics.median(times), statistics.median(shares)


def row(rank, world, size, density, iterations, seconds):
    """Both systems by turns, at most `iterations` times or for about `seconds`."""
    comm, group = _kept["comm"], _kept["group"]
    given = tensor_of(rank, size // 4, density)
    ours, theirs = torch.empty_like(given), torch.empty_like(given)

    def by_winnow():
        request = comm.allreduce_async(given, out=ours, block=BLOCK)
        request.wait()
        return request.stats

    def by_nccl():
        theirs.copy_(given)  # NCCL's is in place; a copy on the device is small beside it
        dist.all_reduce(theirs, group=group)

    times, begun = {"winnow": [], "nccl": []}, time.perf_counter()
    for i in range(iterations + 1):
        took, stats = timed(by_winnow)
        other, _ = timed(by_nccl)
        if i > 0:  # the first one reserves memory and connects
            times["winnow"].append(took)
            times["nccl"].append(other)
        if i >= LEAST_ITERATIONS and slowest(time.perf_counter() - begun) > seconds:
            break
    error = float((ours - theirs).abs().max()) if size else 0.0
    assert error <= 1e-5 * world, f"the results differ by {error}"
    median = statistics.median(times["winnow"])
    beside, taken = beside_work(by_winnow, median, len(times["winnow"])) if ON_GPU and world == 1 else (None, None)
    return {
        "beside": beside, "taken": taken,
        "size": size, "world": world, "density": density, "times": times, "iterations": len(times["winnow"]),
        **{name: statistics.median(values) for name, values in times.items()}, **stats._asdict(),
    }  # fmt: skip


def ask(team, function, *arguments):
    """The first worker's answer; all have to give one."""
    team.start(function, *arguments)
    answers = team.collect(ANSWER_SECONDS)
    for rank, answer in enumerate(answers):
        if isinstance(answer, (harness.Failure, str)):
            sys.exit(f"bench_allreduce: worker {rank}: {getattr(answer, 'trace', answer)}")
    return answers[0]


def size_of(text):
    units = {"K": 10**3, "M": 10**6, "G": 10**9}
    return int(float(text[:-1]) * units[text[-1]]) if text[-1] in units else int(text)


def print_row(found):
    staged = (found["staged_out_bytes"] + found["staged_in_bytes"]) / 1e6
    print(
        f"{found['size'] / 1e6:8.0f} {found['world']:7} {found['density']:8g} {found['union']:6.3f} "
        f"{found['winnow'] * 1e3:10.1f} {found['nccl'] * 1e3:10.1f} "
        f"{found['nccl'] / found['winnow']:7.2f} {staged:10.2f} {found['iterations']:6} "
        + (f"{found['beside'] * 1e3:9.1f} {found['taken']:6.1%}" if found["beside"] else f"{'-':>9} {'-':>6}"),
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="100M,1G")
    parser.add_argument("--worlds", default="2,4")
    parser.add_argument("--densities", default="0.001,0.01,0.1,1")
    parser.add_argument("--iterations", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=20, help="of a row, about")
    parser.add_argument("--wire", default="auto", help="as in winnow.Comm()")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rows = []
    for world in map(int, arguments.worlds.split(",")):
        with harness.Team(world) as team:
            device, version, nccl = ask(team, open_both, harness.fresh_job(), arguments.wire)
            if not rows:
                print(
                    f"# {device}, PyTorch {version}, NCCL {nccl} over sockets, {os.cpu_count()} CPUs, all "
                    f"on one machine's loopback; f32, blocks of {BLOCK}, wire {arguments.wire}; medians\n"
                    "# MB      workers  density  union  Winnow ms    NCCL ms  faster    PCIe MB  times beside ms  taken",
                    flush=True,
                )
            for size in map(size_of, arguments.sizes.split(",")):
                for density in map(float, arguments.densities.split(",")):
                    found = ask(team, row, size, density, arguments.iterations, arguments.seconds)
                    found["union"] = found["blocks_union"] / max(found["blocks"], 1)
                    rows.append(found)
                    print_row(found)
            ask(team, close_both)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"device": device, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
