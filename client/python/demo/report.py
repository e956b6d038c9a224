# SPDX-License-Identifier: BSD-3-Clause
"""What the workers measured, as a table and a picture."""

import statistics

import numpy

WARM_UP_STEPS = 2  # DDP lays its buckets out anew after the first
# Sums in another order round differently; this many steps do not make more of it.
LOSS_TOLERANCE = 1e-3
HOME_RATE = 20 * 10**6  # bit/s
SMOOTH = 5  # steps over which a loss is averaged
GLOO_COLOUR, SENT_COLOUR, RECEIVED_COLOUR, LOCAL_COLOUR = "#D55E00", "#0072B2", "#56B4E9", "#009E73"  # Okabe and Ito


class Result:
    """One model: all ranks' measurements, averaged over ranks, step by step."""

    def __init__(self, ranks, aggregators=1):
        gloo, over = [rank["gloo"] for rank in ranks], [rank["winnow"] for rank in ranks]
        self.workers = len(ranks)
        self.aggregators = aggregators
        self.title, self.about, self.bytes = gloo[0]["title"], gloo[0]["about"], gloo[0]["bytes"]
        self.losses = [mean([rank["losses"] for rank in ranks]) for ranks in (gloo, over)]
        self.seconds = [mean([rank["seconds"] for rank in ranks]) for ranks in (gloo, over)]
        # One counter for all workers; rank 0 read it.
        self.loopback = [numpy.array(ranks[0]["loopback"]) for ranks in (gloo, over)]
        self.gloo_each = self.loopback[0] / self.workers
        self.sent = mean([rank["sent"] for rank in over])
        self.received = mean([rank["received"] for rank in over])
        self.density = statistics.mean(rank["density"] for rank in over)
        self.union = statistics.mean(rank["union"] for rank in over)
        self.retransmits = sum(rank["retransmits"] for rank in over)
        self.multicast = over[0]["multicast"] == aggregators
        self.bucket_blocks, self.recorded_step = over[0]["bucket_blocks"], over[0]["recorded_step"]

    def largest_difference(self):
        return float(abs(self.losses[0] - self.losses[1]).max())

    def losses_agree(self):
        # The comparison is false for NaN, too.
        return bool((abs(self.losses[0] - self.losses[1]) <= LOSS_TOLERANCE * abs(self.losses[0])).all())

    def ring_bytes(self):
        return 2 * (self.workers - 1) / self.workers * self.bytes

    def bound(self, aggregators):
        """max(d, U, N*d/A, F*U/A): what the busiest port must carry, as a share of the tensor."""
        copies = 1 if self.multicast else self.workers
        terms = {
            "d": self.density,
            "U": self.union,
            "N*d/A": self.workers * self.density / aggregators,
            "F*U/A": copies * self.union / aggregators,
        }
        term = max(terms, key=terms.get)
        return terms[term], term


class Thin:
    """What the dense model's ways take on links as thin as what a home sends with, by the bytes that were counted."""

    def __init__(self, ranks):
        local = [rank["local"] for rank in ranks]
        self.result, self.period = Result(ranks), local[0]["period"]
        self.losses = [*self.result.losses, mean([rank["losses"] for rank in local])]
        self.sent = [self.result.gloo_each, self.result.sent, mean([rank["sent"] for rank in local])]
        self.received = [self.result.gloo_each, self.result.received, mean([rank["received"] for rank in local])]
        # Most of the local steps exchange nothing.
        self.compute = float(numpy.median(warm(mean([rank["seconds"] for rank in local]))))

    def times(self):
        """Of each way: when each step is over, in seconds."""
        bytes_ = (numpy.maximum(sent, received) for sent, received in zip(self.sent, self.received))
        return [numpy.cumsum(self.compute + 8 * each / HOME_RATE) for each in bytes_]

    def table(self):
        steps = len(self.losses[0])
        rows = [
            ("", "Gloo", "Winnow", f"every {self.period} steps"),
            ("sent by a worker a step", *(size(each.mean()) for each in self.sent)),
            ("received by a worker a step", *(size(each.mean()) for each in self.received)),
            (f"time of {steps} steps", *(f"{times[-1]:.0f} s" for times in self.times())),
            ("loss then", *(f"{smooth(losses)[-1]:.3f}" for losses in self.losses)),
        ]
        title = f"{self.result.title}, over links of {HOME_RATE // 10**6} Mbit/s; an exchange of bf16 numbers every {self.period} steps"
        lines = [title] + [f"  {name:34}{gloo:>14}{over:>14}{local:>18}" for name, gloo, over, local in rows]
        return lines + [f"  a step alone: {self.compute:.3f} s; to it come bytes / rate, whichever direction has more; loss: mean of {SMOOTH} steps"]


def smooth(losses):
    return [statistics.mean(losses[max(0, at - SMOOTH + 1) : at + 1]) for at in range(len(losses))]


def mean(rows):
    return numpy.mean(numpy.array(rows, float), axis=0)


def warm(values):
    """Without the first steps, unless there are no others."""
    return values[WARM_UP_STEPS:] if len(values) > WARM_UP_STEPS else values


def size(count):
    return f"{count / 1e6:.3f} MB"


def table(result):
    """The lines for one model."""
    rows = [("", "Gloo", "Winnow")]
    steps = len(result.losses[0])
    for step in sorted({0, steps // 4, steps // 2, steps * 3 // 4, steps - 1}):
        rows.append((f"loss at step {step}", *(f"{losses[step]:.6f}" for losses in result.losses)))
    each = warm(result.gloo_each).mean()
    rows += [
        ("sent by a worker a step", size(each), size(warm(result.sent).mean())),
        ("received by a worker a step", size(each), size(warm(result.received).mean())),
        ("on loopback a step, all workers", *(size(warm(bytes_).mean()) for bytes_ in result.loopback)),
        ("median time of a step", *(f"{numpy.median(warm(seconds)):.3f} s" for seconds in result.seconds)),
    ]
    lines = [f"{result.title}: {result.about}", f"  gradient S = {size(result.bytes)}, {steps} steps"]
    lines += [f"  {name:34}{gloo:>14}{over:>14}" for name, gloo, over in rows]
    return lines + footer(result)


def footer(result):
    relative = result.largest_difference() / abs(result.losses[0]).min()
    share, term = result.bound(result.aggregators)
    more, more_term = result.bound(result.workers)
    copies = "1 (multicast)" if result.multicast else f"{result.workers} (unicast)"
    return [
        f"  largest difference of the losses, all steps: {result.largest_difference():.2e} ({relative:.1e} of it)",
        f"  non-zero blocks: d = {result.density:.4f} of each worker, U = {result.union:.4f} of any"
        f"; {result.retransmits} packets sent again",
        f"  a ring's worker sends, and receives, 2(N-1)/N*S = {size(result.ring_bytes())}",
        f"  bound max(d, U, N*d/A, F*U/A), A = {result.aggregators}, F = {copies}: "
        f"{share:.4f} of S ({size(share * result.bytes)}, by {term}); "
        f"with A = {result.workers}: {more:.4f} (by {more_term})",
    ]


def picture(results, thin, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plot

    figure, axes = plot.subplots(1, len(results) + 1, figsize=(13, 3.6), dpi=100)
    for axis, result in zip(axes, results):
        steps = range(len(result.sent))
        axis.plot(steps, result.gloo_each / 1e6, color=GLOO_COLOUR, label="Gloo: sent, and as much received")
        axis.plot(steps, result.received / 1e6, "--", color=RECEIVED_COLOUR, label="Winnow: received")
        axis.plot(steps, result.sent / 1e6, ":", color=SENT_COLOUR, label="Winnow: sent")
        axis.set_title(f"{result.title}\nd = {result.density:.3f}, U = {result.union:.3f}", fontsize=10)
        axis.set_xlabel("step")
        axis.set_ylabel("MB a worker and step")
        axis.set_ylim(0, 1.1 * max(result.gloo_each.max(), result.received.max()) / 1e6)
        for line in axis.get_lines():
            line.set_linewidth(2)
        axis.grid(alpha=0.3)
    names = ("Gloo", "Winnow", f"Winnow, every {thin.period} steps")
    for name, colour, times, losses in zip(names, (GLOO_COLOUR, RECEIVED_COLOUR, LOCAL_COLOUR), thin.times(), thin.losses):
        axes[-1].plot(times, smooth(losses), color=colour, label=name, linewidth=2)
    axes[-1].set_title(f"{thin.result.title}\nlinks of {HOME_RATE // 10**6} Mbit/s", fontsize=10)
    axes[-1].set_xlabel("seconds")
    axes[-1].set_ylabel("loss")
    axes[-1].set_xscale("log")
    axes[-1].grid(alpha=0.3)
    axes[-1].legend(fontsize=8, frameon=False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path)
