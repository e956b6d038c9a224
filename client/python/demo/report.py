# SPDX-License-Identifier: BSD-3-Clause
"""Shows the workers' measurements as a few sentences with bars, a picture, and a file with all numbers."""

import statistics

import numpy

WARM_UP_STEPS = 2  # DDP rearranges its buckets after the first step
# Sums in another order round differently. This many steps do not increase the difference beyond this.
LOSS_TOLERANCE = 1e-3
HOME_RATE, OFFICE_RATE = 20 * 10**6, 100 * 10**6  # bit/s
SMOOTH = 5  # steps over which a loss is averaged
BAR = 30  # characters
GLOO_COLOUR, WINNOW_COLOUR, LOCAL_COLOUR = "#D55E00", "#0072B2", "#009E73"  # Okabe and Ito


class Result:
    """The measurements of a model, averaged over all ranks, step by step."""

    def __init__(self, ranks, aggregators=1):
        gloo, over = [rank["gloo"] for rank in ranks], [rank["winnow"] for rank in ranks]
        self.workers = len(ranks)
        self.aggregators = aggregators
        self.title, self.about, self.bytes = gloo[0]["title"], gloo[0]["about"], gloo[0]["bytes"]
        self.losses = [mean([rank["losses"] for rank in ranks]) for ranks in (gloo, over)]
        self.seconds = [mean([rank["seconds"] for rank in ranks]) for ranks in (gloo, over)]
        # One counter covers all workers; rank 0 read it.
        self.gloo_each = numpy.array(ranks[0]["gloo"]["loopback"]) / self.workers
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
        # The comparison is also false for NaN.
        return bool((abs(self.losses[0] - self.losses[1]) <= LOSS_TOLERANCE * abs(self.losses[0])).all())

    def times_fewer(self, counts):
        """Returns how many times fewer bytes these are than those that Gloo sends or receives."""
        return warm(self.gloo_each).mean() / warm(counts).mean()

    def numbers(self):
        """Returns the numbers for result.json."""
        means = {"gloo_bytes": self.gloo_each, "sent_bytes": self.sent, "received_bytes": self.received}
        return {
            "about": self.about,
            "gradient_bytes": self.bytes,
            "steps": len(self.losses[0]),
            **{name: float(warm(values).mean()) for name, values in means.items()},
            "losses": {"gloo": list(self.losses[0]), "winnow": list(self.losses[1])},
            "largest_difference": self.largest_difference(),
            "median_seconds": [float(numpy.median(warm(seconds))) for seconds in self.seconds],
            "density": self.density,
            "union": self.union,
            "multicast": self.multicast,
            "retransmits": self.retransmits,
            "bucket_blocks": self.bucket_blocks,
            "recorded_step": self.recorded_step,
        }


class Thin:
    """The times of the dense model's three ways on thin links, computed from the counted bytes."""

    def __init__(self, ranks):
        local = [rank["local"] for rank in ranks]
        self.result, self.period, self.warm_up = Result(ranks), local[0]["period"], local[0]["warm_up"]
        self.losses = [*self.result.losses, mean([rank["losses"] for rank in local])]
        winnow = numpy.maximum(self.result.sent, self.result.received)
        self.bytes = [self.result.gloo_each, winnow, numpy.maximum(*(mean([rank[way] for rank in local]) for way in ("sent", "received")))]
        # Most of the local steps exchange nothing.
        self.compute = float(numpy.median(warm(mean([rank["seconds"] for rank in local]))))

    def times(self):
        """Returns for each way the end of each step, in seconds."""
        return [numpy.cumsum(self.compute + 8 * each / HOME_RATE) for each in self.bytes]


def smooth(losses):
    return [statistics.mean(losses[max(0, at - SMOOTH + 1) : at + 1]) for at in range(len(losses))]


def mean(rows):
    return numpy.mean(numpy.array(rows, float), axis=0)


def warm(values):
    """Returns the values without those of the first steps, unless there are no others."""
    return values[WARM_UP_STEPS:] if len(values) > WARM_UP_STEPS else values


def factor(times):
    return f"{times:.0f}" if times >= 9.5 else f"{times:.1f}"


def headline(result):
    return f"Winnow sends {factor(result.times_fewer(result.sent))} times fewer bytes than Gloo, and learns the same"


def bars(rows, whole):
    """Returns lines with a name, a count of bytes as a bar, and a remark."""
    lines = []
    for name, count, remark in rows:
        bar = "#" * max(1, round(BAR * count / whole))
        lines.append(f"  {name:<26}{bar:<{BAR}} {count / 1e6:6.2f} MB{remark}")
    return lines


def link(counts, rate):
    """Returns the seconds that bytes take on a link of this rate."""
    return f"{8 * counts / rate:.0f} s"


def sparse_lines(result):
    """Returns lines about the model whose gradients are mostly zeros."""
    gloo, sent, received = (warm(counts).mean() for counts in (result.gloo_each, result.sent, result.received))
    steps, most = len(result.losses[0]), numpy.maximum(result.sent, result.received).sum()
    fewer = lambda counts: f", {factor(result.times_fewer(counts))} times fewer"
    return [
        f"{headline(result)}: {result.title}, whose gradients are mostly zeros.",
        f"  On links of {OFFICE_RATE // 10**6} Mbit/s the exchanges of {steps} steps take {link(result.gloo_each.sum(), OFFICE_RATE)}"
        f" over Gloo, {link(most, OFFICE_RATE)} over Winnow.",
        *bars(
            (
                ("Gloo sends in a step", gloo, ""),
                ("Winnow sends", sent, fewer(result.sent)),
                ("Gloo receives", gloo, ""),
                ("Winnow receives", received, fewer(result.received)),
            ),
            gloo,
        ),
        f"  Training loss at the end: {result.losses[0][-1]:.4f} over Gloo, {result.losses[1][-1]:.4f} over Winnow.",
    ]


def dense_lines(thin):
    """Returns lines about the model whose gradients have no zeros."""
    gloo, winnow, local = (each.mean() for each in thin.bytes)
    steps, times = len(thin.losses[0]), [f"{times[-1]:.0f} s" for times in thin.times()]
    losses = [smooth(losses)[-1] for losses in thin.losses]
    fewer = lambda count: f", {factor(gloo / count)} times fewer"
    return [
        f"Without zeros it is {factor(gloo / winnow)} times fewer: {thin.result.title}."
        f" Local steps exchange only every {thin.period} steps, after {thin.warm_up} whole ones.",
        f"  On links of {HOME_RATE // 10**6} Mbit/s {steps} steps take {times[0]} over Gloo, {times[1]} over Winnow,"
        f" {times[2]} with local steps.",
        *bars(
            (
                ("Gloo sends, receives", gloo, ""),
                ("Winnow", winnow, fewer(winnow)),
                ("Winnow, local steps", local, fewer(local)),
            ),
            gloo,
        ),
        f"  Training loss at the end: {losses[0]:.3f} over Gloo, {losses[1]:.3f} over Winnow, {losses[2]:.3f} with local steps.",
    ]


def draw_bars(axis, title, rows):
    """Draws bars of megabytes, each with its number and the factor to the first one."""
    names, counts, colours = zip(*rows)
    axis.barh(range(len(rows)), [count / 1e6 for count in counts], color=colours)
    for at, count in enumerate(counts):
        text = f" {count / 1e6:.2f} MB" + (f": {factor(counts[0] / count)} x fewer" if count < counts[0] / 1.05 else "")
        axis.text(count / 1e6, at, text, va="center", fontsize=9)
    axis.set_yticks(range(len(rows)), names)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.7 * max(counts) / 1e6)
    axis.set_xlabel("MB a worker and step")
    axis.set_title(title, fontsize=10)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def picture(sparse, thin, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plot

    figure, axes = plot.subplots(1, 3, figsize=(13.5, 3.9), dpi=100)
    gloo, sent, received = (warm(counts).mean() for counts in (sparse.gloo_each, sparse.sent, sparse.received))
    rows = [("Gloo sends", gloo), ("Gloo receives", gloo), ("Winnow sends", sent), ("Winnow receives", received)]
    draw_bars(axes[0], f"{sparse.title}: mostly zeros", [(*row, GLOO_COLOUR if "Gloo" in row[0] else WINNOW_COLOUR) for row in rows])
    names, colours = ("Gloo", "Winnow", "Winnow,\nlocal steps"), (GLOO_COLOUR, WINNOW_COLOUR, LOCAL_COLOUR)
    draw_bars(axes[1], f"{thin.result.title}: no zeros", list(zip(names, (each.mean() for each in thin.bytes), colours)))
    for name, colour, times, losses in zip(names, colours, thin.times(), thin.losses):
        axes[2].plot(times, smooth(losses), color=colour, label=name.replace("\n", " "), linewidth=2)
    axes[2].set_title(f"{thin.result.title}, links of {HOME_RATE // 10**6} Mbit/s", fontsize=10)
    axes[2].set_xlabel("seconds (computed from the bytes)")
    axes[2].set_ylabel("training loss")
    axes[2].grid(alpha=0.3)
    axes[2].legend(fontsize=9, frameon=False)
    figure.suptitle(headline(sparse), fontsize=13, fontweight="bold")
    figure.tight_layout()
    figure.savefig(path)
