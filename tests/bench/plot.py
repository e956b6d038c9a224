# SPDX-License-Identifier: BSD-3-Clause
"""plot.py RAW OUT.svg - time against density for 2, 4 and 8 workers, from the JSON files of bench.sh's part peers"""
import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plot  # noqa: E402

DENSITIES = ("0.01", "0.1", "0.5", "1")
STYLES = {  # label: colour of Okabe and Ito, line, marker
    "Gloo, ring": ("#D55E00", "-", "s"),
    "Open MPI, ring": ("#E69F00", "-", "^"),
    "MPI, non-zero blocks": ("#009E73", "-", "D"),
    "Winnow": ("#0072B2", "-", "o"),
    "bound": ("#000000", ":", None),
}


def load(raw, name):
    return json.loads((raw / f"{name}.json").read_text().splitlines()[-1])


def series(raw, workers):
    """Seconds by density for each system; a ring's do not depend on it."""
    ours = [load(raw, f"winnow-{workers}-random-{density}") for density in DENSITIES]
    blocks = [load(raw, f"blocks-{workers}-random-{density}")["time_us"] for density in DENSITIES]
    return {
        "Gloo, ring": [load(raw, f"gloo-{workers}")["time_us"]] * len(DENSITIES),
        "Open MPI, ring": [load(raw, f"ring-{workers}")["time_us"]] * len(DENSITIES),
        "MPI, non-zero blocks": blocks,
        "Winnow": [result["time_us"]["median"] for result in ours],
        "bound": [result["bound_us"] for result in ours],
    }


def main():
    raw, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    figure, axes = plot.subplots(1, 3, figsize=(9.5, 3.6), sharey=True)
    for axis, workers in zip(axes, (2, 4, 8)):
        for label, times in series(raw, workers).items():
            colour, line, marker = STYLES[label]
            seconds = [time / 1e6 for time in times]
            axis.plot([float(d) for d in DENSITIES], seconds, line, color=colour, marker=marker, markersize=4, label=label)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks([float(d) for d in DENSITIES], DENSITIES)
        axis.minorticks_off()
        axis.set_title(f"{workers} workers", fontsize=10)
        axis.set_xlabel("density d of each worker")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    plot.rcParams["svg.hashsalt"] = "winnow"  # the same file from the same numbers
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
