"""Time per epoch against the number of devices: does it grow faster than linearly?

    python benchmarks/bench_training.py [--largest] [--plot docs/figures/epoch-time.svg] [--json]

Trains a GCN on generated demo graphs of 2,000, 20,000 and 200,000 devices (--largest: 1,000,000
too), in the profile `paper` (greedy trees, ideal comparisons) and in the profile `strict`. Each
size runs in a process of its own, whose peak memory is reported. `growth` is the ratio of time to
the size before, divided by the ratio of devices: at most 1 means no faster than linearly.

On a busy machine only the best epoch means anything, so the best epoch counts. The ratio is made
of processor time, not of time on the clock: an epoch of a few milliseconds finds a moment when
nobody else wants the core, an epoch of seconds never does, so the clock would flatter the small
graph. With one thread (the default) both are the same on a quiet machine. The least of --repeats
processes counts, and their sizes take turns.

Epochs of the strict profile are of several kinds: stages of `lumos.strict.classify_schedule`. The
best of each kind counts, weighted by how many of them a run with default settings has. The first
epoch of a run has no beginning to measure from, and does not count.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import lumos
from lumos.memory import peak_rss_mb
from lumos.runs.events import EpochEvent
from lumos.strict.classify_schedule import ClassifySchedule
from lumos.training.config import Config

SIZES = (2_000, 20_000, 200_000)
LARGEST = 1_000_000
PROFILES = ("paper", "strict")
COLOURS = {"paper": "#b0654a", "strict": "#22577a"}


def settings_of(profile: str, epochs: int) -> dict[str, Any]:
    """Settings of a short run: `epochs` of every kind that can be cut short."""
    if profile == "paper":
        cut = {"epochs": epochs, "balancer": "greedy", "compare": "ideal", "backbone": "gcn"}
    else:
        single = 5  # counts, scale, a matrix of symbols and two of opinions
        cut = {"epochs": single + 2 * epochs, "encoder_epochs": epochs}
    return {"profile": profile, "floor": False, **cut}


def kinds(settings: dict[str, Any], devices: int) -> list[str]:
    """The kind of every epoch."""
    config = Config.of(**settings)
    if config.train.profile == "paper":
        return ["epoch"] * config.train.epochs
    plan = ClassifySchedule(config=config, devices=devices, training=devices // 2)
    return [plan.stage(epoch) for epoch in range(config.train.epochs)]


def alone(profile: str, devices: int, epochs: int) -> dict[str, Any]:
    """One run. It is alone in its process, so that the peak is its own."""
    graph = lumos.load(f"demo:{devices}")
    settings = settings_of(profile, epochs)
    marks: list[tuple[float, float]] = []

    def mark(event: EpochEvent) -> None:
        marks.append((time.perf_counter(), time.process_time()))

    start = time.perf_counter()
    lumos.train(graph, on_epoch=mark, **settings)
    seconds = time.perf_counter() - start
    names = kinds(settings, devices)
    spent: dict[str, list[tuple[float, float]]] = {}
    for number in range(1, len(marks)):
        # The first of a kind prepares the others; where it is the only one, that is part of it.
        if names[number] == names[number - 1] or names.count(names[number]) == 1:
            before, after = marks[number - 1], marks[number]
            both = after[0] - before[0], after[1] - before[1]
            spent.setdefault(names[number], []).append(both)
    return {
        "profile": profile,
        "devices": devices,
        "edges": graph.edges,
        "clock": {kind: min(pair[0] for pair in pairs) for kind, pairs in spent.items()},
        "processor": {kind: min(pair[1] for pair in pairs) for kind, pairs in spent.items()},
        "run_seconds": seconds,
        "peak_rss_mb": peak_rss_mb(),
    }


def in_process(profile: str, devices: int, epochs: int, threads: int) -> dict[str, Any]:
    """`alone` in a process of its own."""
    flags = ["--alone", profile, str(devices), "--epochs", str(epochs), "--threads", str(threads)]
    done = subprocess.run([sys.executable, __file__, *flags], check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def row_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One row from several runs of the same: the least of everything."""
    profile, devices = runs[0]["profile"], runs[0]["devices"]
    of_a_run = Counter(kinds({"profile": profile}, devices)[1:])
    row = {key: runs[0][key] for key in ("profile", "devices", "edges")}
    for clock in ("clock", "processor"):
        best = {kind: min(run[clock][kind] for run in runs) for kind in of_a_run}
        total = sum(count * best[kind] for kind, count in of_a_run.items())
        row[clock], row[f"{clock}_by_kind"] = total / of_a_run.total(), best
    row["peak_rss_mb"] = min(run["peak_rss_mb"] for run in runs)
    row["run_seconds"] = min(run["run_seconds"] for run in runs)
    return row


def measure(
    sizes: tuple[int, ...], epochs: int, threads: int, repeats: int
) -> list[dict[str, Any]]:
    """All rows, with `growth` against the row before."""
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for _ in range(repeats):
        for profile in PROFILES:
            for devices in sizes:
                run = in_process(profile, devices, epochs, threads)
                runs.setdefault((profile, devices), []).append(run)
    rows = [row_of(some) for some in runs.values()]
    for before, row in pairwise(rows):
        row["growth"] = None
        if before["profile"] == row["profile"]:
            longer = row["processor"] / before["processor"]
            row["growth"] = longer / (row["devices"] / before["devices"])
    rows[0]["growth"] = None
    return rows


def show(rows: list[dict[str, Any]], threads: int) -> None:
    table = Table(title=f"one epoch, gcn, {threads} thread(s); best epoch")
    table.add_column("profile")
    columns = ("devices", "edges", "processor s", "clock s", "growth", "per device", "peak memory")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row["profile"],
            f"{row['devices']:,}",
            f"{row['edges']:,}",
            f"{row['processor']:.4f}",
            f"{row['clock']:.4f}",
            "" if row["growth"] is None else f"{row['growth']:.2f}",
            f"{1e6 * row['processor'] / row['devices']:.1f} µs",
            f"{row['peak_rss_mb']:,.0f} MB",
        )
    console = Console(width=110)
    console.print(table)
    console.print("growth: ratio of processor time to the size before / ratio of devices")
    console.print("(at most 1: no faster than linearly)")


def plot(path: Path, rows: list[dict[str, Any]], threads: int) -> None:
    """Time against devices, both logarithmic, and the line that linear growth would follow."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    mpl.rcParams["svg.hashsalt"] = "lumos"  # the same rows give the same file
    figure, axes = pyplot.subplots(figsize=(7.2, 4.4), layout="constrained")
    for profile in PROFILES:
        above = profile == "paper"  # its points are labelled above, those of the other below
        mine = [row for row in rows if row["profile"] == profile]
        devices = [row["devices"] for row in mine]
        seconds = [row["processor"] for row in mine]
        linear = [seconds[0] * count / devices[0] for count in devices]
        axes.plot(devices, linear, "--", color=COLOURS[profile], linewidth=1, alpha=0.7)
        axes.plot(devices, seconds, "o-", color=COLOURS[profile], linewidth=1.8, label=profile)
        for count, spent in zip(devices, seconds, strict=True):
            axes.annotate(
                f"{spent:.2g} s",
                (count, spent),
                xytext=(-7, 6) if above else (7, -12),
                horizontalalignment="right" if above else "left",
                textcoords="offset points",
                color=COLOURS[profile],
                fontsize=9,
            )
    axes.plot([], [], "--", color="#555555", linewidth=1, label="slope 1: linear growth")
    axes.set_xscale("log")
    axes.set_yscale("log")
    sizes = sorted({row["devices"] for row in rows})
    axes.set_xlim(sizes[0] / 2.2, sizes[-1] * 2.2)
    lowest, highest = axes.get_ylim()
    axes.set_ylim(lowest / 1.5, highest * 1.5)
    axes.set_xticks(sizes)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("devices of the generated graph (about 5 edges each)")
    axes.set_ylabel(f"processor seconds of one epoch, {threads} thread" + "s" * (threads > 1))
    axes.set_title("Time of one epoch, GCN, 600 features", loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.legend(loc="upper left", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6, help="of every kind (default 6)")
    parser.add_argument("--repeats", type=int, default=2, help="processes for each size")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--largest", action="store_true", help=f"also {LARGEST:,} devices")
    parser.add_argument("--plot", type=Path, help="write the picture there (.svg, .png, .pdf)")
    parser.add_argument("--rows", type=Path, help="show and plot rows that --json wrote before")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--alone", nargs=2, metavar=("PROFILE", "DEVICES"), help="one run, as JSON")
    options = parser.parse_args()
    if options.epochs < 2:
        parser.error("--epochs must be 2 or more: the first of each kind does not count")
    torch.set_num_threads(options.threads)
    if options.alone:
        profile, devices = options.alone
        print(json.dumps(alone(profile, int(devices), options.epochs)))
        return
    threads = options.threads
    if options.rows:
        found = json.loads(options.rows.read_text())
        rows, threads = found["rows"], found["threads"]
    else:
        sizes = (*SIZES, LARGEST) if options.largest else SIZES
        rows = measure(sizes, options.epochs, threads, options.repeats)
    if options.plot:
        plot(options.plot, rows, threads)
    if options.json:
        print(json.dumps({"threads": threads, "rows": rows}))
    else:
        show(rows, threads)


if __name__ == "__main__":
    main()
