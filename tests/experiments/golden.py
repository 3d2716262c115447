"""Golden numbers of every kind of result, on a small graph.

The cells are those that the whole evaluation would run on that graph, with few epochs and one ε.
To write the numbers again, from the root of the repository:

    python -m tests.experiments.golden

New cells and new fields are added. Numbers that changed are written only if the version of their
kind in `lumos.experiments.result_versions` was raised.
"""

import dataclasses
import json
import math
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from lumos.experiments.cache import Key
from lumos.experiments.cell import Cell
from lumos.experiments.dataset import dataset_of
from lumos.experiments.figures import FIGURES, cells_of
from lumos.experiments.figures.names import EVALUATED_PROFILES
from lumos.experiments.result_versions import VERSIONS, result_kind
from lumos.experiments.settings import load_settings
from lumos.experiments.worker import CellJob, compute
from lumos.storage import write_text

FILE = Path(__file__).with_name("golden.json")
GRAPH = "demo:120"
TOLERANCE = 1e-4
"""Relative, of scores and losses. Another instruction set or number of threads moves them by 5e-6
at most; a changed algorithm moves at least one of them much further."""
NOT_COMPARED = ("seconds", "seconds_per_epoch", "peak_rss_mb", "ranks", "settings")
"""Figures of the machine, and the settings that the cell was given."""
COMMAND = "python -m tests.experiments.golden"

Golden = dict[str, Any]
"""By kind: `version`, and by description of a cell `results`."""


@cache
def golden_cells() -> dict[str, list[Cell]]:
    """The cells of the evaluation by kind of result."""
    settings = dataclasses.replace(
        load_settings("full").changed(seeds=1, epochs=3),
        epsilons=(2.0,),
        iterations_elsewhere=50,
        baseline={"naive-gat": {"edge_sample": 2000}},
    )
    by_kind: dict[str, list[Cell]] = {kind: [] for kind in VERSIONS}
    for cell in cells_of([*FIGURES], dataset_of(GRAPH, None), settings, EVALUATED_PROFILES):
        by_kind[result_kind(cell)].append(cell)
    return by_kind


def computed(cells: list[Cell]) -> dict[str, Any]:
    """The numbers of some cells, computed now, by description."""
    results = {}
    for cell in cells:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            job = CellJob(
                cell=cell,
                key=Key("golden", 0),
                data_dir=None,
                path=out / "cell.json",
                partial=out / "partial",
            )
            result = json.loads(json.dumps(compute(job)))
        results[cell.describe()] = {
            name: value
            for name, value in result.items()
            if name not in NOT_COMPARED and _is_number(value)
        }
    return results


def _is_number(value: Any) -> bool:
    """Numbers, and objects and lists of them; a sentence may be put in other words."""
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return False
    return isinstance(value, int | float | dict | list)


def differences(golden: dict[str, Any], fresh: dict[str, Any]) -> list[str]:
    """Where cells of both differ: scores and losses beyond `TOLERANCE`, the rest at all."""
    lines = []
    for cell in (cell for cell in golden if cell in fresh):
        for name, before in golden[cell].items():
            after = fresh[cell].get(name)
            if name.endswith(("_accuracy", "_auc", "_loss")) and after is not None:
                same = math.isclose(before, after, rel_tol=TOLERANCE)
            else:
                same = before == after
            if not same:
                lines.append(f"{cell}: `{name}` was {before}, is {after}")
    return lines


def check(kind: str, golden: Golden, fresh: dict[str, Any]) -> str:
    """What is wrong with the golden numbers of a kind, and what to do; empty where nothing is."""
    version, table = VERSIONS[kind], "VERSIONS in src/lumos/experiments/result_versions.py"
    kept = golden.get(kind, {"version": None, "results": {}})
    if kept["version"] != version:
        return (
            f"golden numbers of {kind!r} are of version {kept['version']}, {table} says {version}; "
            f"write them: {COMMAND}"
        )
    changed = differences(kept["results"], fresh)
    if changed:
        return (
            f"results of {kind!r} changed, and their version ({version}) did not:\n  "
            + "\n  ".join(changed)
            + f"\nIf this is intended, raise {kind!r} in {table}, then write the golden numbers: "
            f"{COMMAND}"
        )
    unknown = sorted(kept["results"].keys() ^ fresh.keys())
    if unknown:
        cells = "\n  ".join(unknown)
        return f"the evaluation has other cells of {kind!r}:\n  {cells}\nwrite them: {COMMAND}"
    return ""


def main() -> int:
    """Write the golden numbers; refuse where numbers changed and the version did not."""
    torch.set_num_threads(1)
    golden: Golden = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    written: Golden = {}
    for kind, cells in golden_cells().items():
        kept = golden.get(kind, {})
        old = kept["results"] if kept.get("version") == VERSIONS[kind] else {}
        fresh = computed(cells)
        if differences(old, fresh):
            print(check(kind, golden, fresh), file=sys.stderr)
            return 1
        results = {cell: {**result, **old.get(cell, {})} for cell, result in fresh.items()}
        written[kind] = {"version": VERSIONS[kind], "results": results}
        print(f"{kind}: version {VERSIONS[kind]}, {len(results)} cells")
    write_text(FILE, json.dumps(written, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
