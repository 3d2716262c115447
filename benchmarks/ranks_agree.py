"""One process against several ranks, on a real graph: is it the same run, bit by bit?

    python benchmarks/ranks_agree.py [--graph facebook] [--ranks 1,2,4] [--cases classify,link,…]

Every run is `lumos train … --out …` in a process of its own, or in ranks of torchrun. Compared are
all arrays of the run folders: weights, releases and predictions, trees, and the ledger, totals and
device by device where the profile keeps them. Strict runs must be equal; those of the paper's
profile have the same trees and ledger, and losses that differ by what single precision adds up in
another order.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PAPER = ("--profile", "paper", "--compare", "ideal", "--epochs", "3", "--no-floor")
CASES: dict[str, tuple[str, ...]] = {
    "classify": (),
    "link": ("--task", "link"),
    "greedy": (*PAPER, "--balancer", "greedy"),
    "optimal": (*PAPER, "--balancer", "optimal"),
    "mcmc": (*PAPER, "--balancer", "mcmc", "--iterations", "1000"),
}
FILES = ("model.npz", "devices.npz", "trees.npz", "ledger.npz")
MAY_DIFFER = {"clear_traffic", "seconds"}


def trained(graph: str, out: Path, *words: str, ranks: str = "") -> float:
    """Train into a folder, in one process or by torchrun; seconds on the clock."""
    start = time.perf_counter()
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
    launcher = [sys.executable, *(torchrun if ranks else [])]
    command = [*launcher, "-m", "lumos", "train", graph, "--out", str(out), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def differences(one: Path, other: Path, files: tuple[str, ...] = FILES) -> list[str]:
    """Names of arrays that are not equal bit by bit."""
    found = []
    for name in files:
        with np.load(one / name) as left, np.load(other / name) as right:
            if set(left.files) != set(right.files):
                found.append(f"{name}: other arrays")
                continue
            for array in left.files:
                if array in ("about", "ledger"):
                    texts = (json.loads(str(side[array])) for side in (left, right))
                    mine, theirs = ({**text} for text in texts)
                    for key in mine.keys() - MAY_DIFFER:
                        if mine[key] != theirs.get(key):
                            found.append(f"{name}: {array}.{key}")
                elif left[array].tobytes() != right[array].tobytes():
                    found.append(f"{name}: {array}")
    return found


def losses(folder: Path) -> list[float | None]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--cases", default=",".join(CASES))
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases.split(","):
            alone = Path(folder, f"{case}-alone")
            seconds = trained(options.graph, alone, *CASES[case])
            print(f"{case:>9}, one process: {seconds:.1f} s", flush=True)
            for ranks in options.ranks.split(","):
                out = Path(folder, f"{case}-{ranks}")
                seconds = trained(options.graph, out, *CASES[case], ranks=ranks)
                exact = CASES[case][:2] != PAPER[:2]
                found = differences(alone, out, FILES if exact else FILES[2:])
                apart = (
                    max(
                        abs(mine - theirs)
                        for mine, theirs in zip(losses(alone), losses(out), strict=True)
                        if mine is not None and theirs is not None
                    )
                    if not exact
                    else 0.0
                )
                what = "weights, releases, trees, ledger" if exact else "trees, ledger"
                verdict = f"different: {', '.join(found)}" if found else f"{what} identical"
                more = "" if exact else f"; losses differ by at most {apart:.1e}"
                print(f"{case:>9}, {ranks} ranks: {seconds:.1f} s, {verdict}{more}", flush=True)
                failed |= bool(found) or apart > 1e-5
    sys.exit(failed)


if __name__ == "__main__":
    main()
