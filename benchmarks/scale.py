"""Time and memory of strict runs against the number of devices, and on ranks: docs/scale.md.

    python benchmarks/scale.py OUT [--sizes 1000,10000,…] [--ranks 2] [--parts 20]

Every size is `lumos split demo:N` and `lumos train` on its parts, each a process of its own, on one
thread; then the same over ranks. OUT gets `scale.json` and `scale.svg`, a log-log plot. Clock and
processor seconds, and the peak memory of every process, are those that the run itself reports.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)


def measured(devices: int, ranks: int | None, parts: int, folder: Path) -> dict[str, Any]:
    """One run on the parts in `folder`, which are written first where they are not there."""
    lumos = [sys.executable, "-m", "lumos"]
    here = folder / str(devices)
    if not here.exists():
        words = ["split", f"demo:{devices}", str(here), "--parts", str(parts), "--task", "classify"]
        subprocess.run([*lumos, *words], check=True, capture_output=True)
    delta = min(1e-5, 0.5 / devices)
    words = ["train", str(here), "--delta", f"{delta:g}", "--json"]
    if ranks is not None:
        torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        lumos[1:1] = ["-m", *torchrun]
    start = time.perf_counter()
    done = subprocess.run(
        [*lumos, *words],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    clock = time.perf_counter() - start
    result = json.loads(done.stdout)
    return {
        "devices": devices,
        "edges": result["edges"],
        "ranks": ranks or 0,
        "clock": round(clock, 2),
        "run_seconds": result["seconds"],
        "seconds_per_epoch": result["seconds_per_epoch"],
        "cpu": [each["cpu_seconds"] for each in result["ranks"]],
        "peak_mb": [each["peak_rss_mb"] for each in result["ranks"]],
        "test_accuracy": result["test_accuracy"],
        "own_test_accuracy": result["own_test_accuracy"],
        "load_average": os.getloadavg()[0],
    }


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Log-log: processor seconds and peak memory of the largest process."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "lumos"
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6))
    for ranks in sorted({row["ranks"] for row in rows}):
        some = [row for row in rows if row["ranks"] == ranks]
        name = "one process" if ranks == 0 else f"{ranks} ranks, each"
        sizes = [row["devices"] for row in some]
        style = {"marker": "o", "linestyle": "-" if ranks == 0 else "--", "label": name}
        left.plot(sizes, [max(row["cpu"]) for row in some], **style)
        right.plot(sizes, [max(row["peak_mb"]) / 1024 for row in some], **style)
    left.set_ylabel("processor seconds")
    right.set_ylabel("peak memory, GiB")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("devices")
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def exponents(rows: list[dict[str, Any]]) -> None:
    """How time and memory grew from size to size: 1 is linear."""
    alone = [row for row in rows if row["ranks"] == 0]
    for before, after in itertools.pairwise(alone):
        ratio = math.log(after["devices"] / before["devices"])
        time_ = math.log(max(after["cpu"]) / max(before["cpu"])) / ratio
        memory = math.log(max(after["peak_mb"]) / max(before["peak_mb"])) / ratio
        sizes = f"{before['devices']:,} to {after['devices']:,}"
        print(f"{sizes}: processor seconds as n^{time_:.2f}, memory as n^{memory:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--most-on-ranks", type=int, default=1_000_000)
    parser.add_argument("--parts", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where parts lie, or are written")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        for devices in map(int, options.sizes.split(",")):
            wanted = [None, *map(int, options.ranks.split(","))]
            for ranks in wanted if devices <= options.most_on_ranks else [None]:
                row = measured(devices, ranks, options.parts, folder)
                rows.append(row)
                print(json.dumps(row), flush=True)
    (options.out / "scale.json").write_text(json.dumps(rows, indent=1) + "\n")
    plot(rows, options.out / "scale.svg")
    exponents(rows)


if __name__ == "__main__":
    main()
