"""One program on any transport: ranks give what one process gives."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ranks.battery import CASES, EXACT, GRAPH, SEED, out_of
from tests.ranks.forked import run_ranks

import lumos
from lumos.errors import UsageError
from lumos.graph import load
from lumos.graph.parts.manifest import equal_bounds
from lumos.runs.run import Run
from lumos.training.write_parts import write_parts

OF_GRAPH = ("control", "link", "exact", "optimal", "mcmc", "paper link")
OF_DEVICES = ("secure", "secure trees")
OF_PARTS = ("classify", "link", "greedy")
TREES = ("keep", "workload", "degree")


def ledgers_differ(one: Any, other: Any) -> list[str]:
    """Names of what two ledgers have different; what passes in the clear depends on shards."""
    names = [field.name for field in dataclasses.fields(one) if field.name != "clear_traffic"]
    return [name for name in names if not same(getattr(one, name), getattr(other, name))]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            vars(line) == vars(other[name]) if hasattr(line, "learns") else line == other[name]
            for name, line in one.items()
        )
    return bool(one == other)


def check(case: str, alone: Run, together: Run) -> None:
    """The run of one process and that of several are the same."""
    for name in TREES:
        assert np.array_equal(getattr(alone.trees, name), getattr(together.trees, name)) or (
            not len(getattr(together.trees, name))
        )
    assert alone.trees.history == together.trees.history
    assert alone.ids == together.ids
    assert ledgers_differ(alone.trees.ledger, together.trees.ledger) == []
    assert ledgers_differ(alone.ledger, together.ledger) == []
    if case in EXACT:
        assert alone.scores == together.scores
        assert alone.guarantees == together.guarantees
        for one, other in (
            (alone.model.weights, together.model.weights),
            (alone.model.kept, together.model.kept),
        ):
            assert one.keys() == other.keys()
            assert [name for name in one if not np.array_equal(one[name], other[name])] == []
        assert [event.loss for event in alone.history] == [event.loss for event in together.history]
    for event, other_event in zip(alone.history, together.history, strict=True):
        if event.loss is not None:
            assert event.loss == pytest.approx(other_event.loss, abs=1e-5)


def test_ranks_give_the_run_of_one_process(tmp_path: Path, subtests: Any) -> None:
    """Of a graph, and of parts on disk: each rank reads its own, and one process all of them."""
    graph, parts = load(GRAPH), tmp_path / "parts"
    write_parts(graph, parts, np.array([0, 7, 8, 20, 45, 60]), seed=SEED)
    of_parts = [(case, str(parts)) for case in OF_PARTS]
    asked = {
        2: [*((case, GRAPH) for case in OF_GRAPH), *of_parts],
        3: [(case, GRAPH) for case in OF_DEVICES],
    }
    for ranks, cases in asked.items():
        words = [f"{case}={of}" for case, of in cases]
        ended = run_ranks(["-m", "tests.ranks.battery", str(tmp_path), *words], ranks)
        assert ended == ([0] * ranks, [])

    @cache
    def alone(case: str) -> Run:
        out = tmp_path / "alone" / case
        lumos.train(GRAPH, seed=SEED, out=out, **CASES[case])
        return lumos.load_run(out)

    for case, of in [*asked[2], *asked[3]]:
        with subtests.test(case=case, of=of):
            check(case, alone(case), lumos.load_run(out_of(tmp_path, case, of)))
    for case in ("classify", "link"):
        with subtests.test(case=case, of="parts, in one process"):
            out = tmp_path / "of parts" / case
            lumos.train(parts, seed=SEED, out=out, **CASES[case])
            check(case, alone(case), lumos.load_run(out))
    pairs = [(0, 1), (5, 7)]
    found = lumos.load_run(out_of(tmp_path, "link", str(parts))).predict_links(ids=pairs)
    assert np.array_equal(found, alone("link").predict_links(ids=pairs))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"seed": 4}, "its split was drawn with `seed=3`, not 4"),
        ({"split": "random"}, "its parts have a split already; leave out `split`"),
        ({"shards": 6}, "has 5 parts, too few for 6 ranks"),
        ({"account": "account"}, "`account` needs all devices in one process"),
    ],
)
def test_what_parts_cannot_be_trained_with(
    settings: dict[str, Any], line: str, tmp_path: Path
) -> None:
    write_parts(load(GRAPH), tmp_path / "parts", equal_bounds(60, 5), seed=SEED)
    with pytest.raises(UsageError, match=line):
        lumos.train(tmp_path / "parts", **{"seed": SEED, **settings})


MEASURED = """
import sys, tracemalloc
from pathlib import Path
from lumos.ranks.world import joined
from lumos.runs.train import Hosting, train_rank
with joined(60) as world:
    tracemalloc.start()
    settings = {"encoder_epochs": 1, "epochs": 7, "propagated_labels": 1}
    train_rank(sys.argv[1], hosting=Hosting(world=world), **settings)
    if world.rank == 1:
        Path(sys.argv[2]).write_text(str(tracemalloc.get_traced_memory()[1]))
"""


def test_a_rank_holds_its_parts_and_a_byte_for_each_device(tmp_path: Path) -> None:
    """The same 500 devices, in federations of 2,000 and 8,000."""
    peaks = []
    for devices in (2_000, 8_000):
        folder, note = tmp_path / str(devices), tmp_path / f"{devices}.txt"
        write_parts(load(f"demo:{devices}"), folder, np.array([0, devices - 500, devices]))
        assert run_ranks(["-c", MEASURED, str(folder), str(note)], 2) == ([0, 0], [])
        peaks.append(int(note.read_text()))
    # Rows of other sizes: the mean degree grows a little with the number of devices.
    assert peaks[1] - peaks[0] < 6_000 + 0.25 * peaks[0]
