"""One program on any transport: ranks give what one process gives."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ranks.battery import CASES, EXACT, GRAPH, SEED
from tests.ranks.forked import run_ranks

import lumos
from lumos.errors import UsageError
from lumos.graph import load
from lumos.graph.parts.manifest import Partition
from lumos.graph.parts.part_source import GraphInMemory
from lumos.runs.run import Run
from lumos.training.write_parts import write_parts

QUICK = ("control", "link", "optimal", "mcmc", "paper link")
MORE = ("classify", "exact", "greedy")
OF_DEVICES = ("secure", "secure trees")
TREES = ("keep", "workload", "degree")


def over_ranks(ranks: int, folder: Path, graph: str, cases: Sequence[str]) -> dict[str, Path]:
    """Run folders by case, made by several processes."""
    end, _ = run_ranks(["-m", "tests.ranks.battery", str(folder), graph, *cases], ranks)
    assert end.status == 0, end.line
    return {case: folder / case.replace(" ", "-") for case in cases}


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


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """The run of one process, by case; trained once."""
    folder = tmp_path_factory.mktemp("alone")

    @cache
    def trained(case: str) -> Run:
        out = folder / case.replace(" ", "-")
        lumos.train(GRAPH, seed=SEED, out=out, **CASES[case])
        return lumos.load_run(out)

    return trained


@pytest.mark.parametrize(
    ("ranks", "cases"),
    [(2, QUICK), pytest.param(2, MORE, marks=pytest.mark.long), (3, OF_DEVICES)],
    ids=["2", "2 more", "3"],
)
def test_ranks_give_the_run_of_one_process(
    ranks: int, cases: Sequence[str], alone: Callable[[str], Run], tmp_path: Path, subtests: Any
) -> None:
    for case, folder in over_ranks(ranks, tmp_path, GRAPH, cases).items():
        with subtests.test(case=case):
            check(case, alone(case), lumos.load_run(folder))


def test_parts_on_disk_give_the_run_of_the_graph(
    alone: Callable[[str], Run], tmp_path: Path, subtests: Any
) -> None:
    """Each rank reads its own parts; with one process, all of them."""
    graph = load(GRAPH)
    numbers = np.random.default_rng(0).permutation(60) % 5
    partition = Partition(5, None, numbers.astype(np.uint8))
    write_parts(GraphInMemory(graph), tmp_path / "parts", partition, seed=SEED)
    cases = ("classify", "link", "greedy")
    for case, folder in over_ranks(2, tmp_path, str(tmp_path / "parts"), cases).items():
        with subtests.test(case=case, ranks=2):
            check(case, alone(case), lumos.load_run(folder))
    for case in cases[:2]:
        with subtests.test(case=case, ranks=None):
            out = tmp_path / f"{case} alone"
            lumos.train(tmp_path / "parts", seed=SEED, out=out, **CASES[case])
            check(case, alone(case), lumos.load_run(out))
    asked = lumos.load_run(tmp_path / "link").predict_links([(0, 1), (5, 7)])
    assert np.array_equal(asked, alone("link").predict_links([(0, 1), (5, 7)]))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"seed": 4}, "its split was drawn with `seed=3`, not 4"),
        ({"split": "random"}, "its parts have a split already; leave out `split`"),
        ({"shards": 6}, "has 5 parts, too few for 6 ranks"),
        ({"book": "book.npz"}, "`book` needs all devices in one process"),
    ],
)
def test_what_parts_cannot_be_trained_with(
    settings: dict[str, Any], line: str, tmp_path: Path
) -> None:
    write_parts(GraphInMemory(load(GRAPH)), tmp_path / "parts", Partition.equal(60, 5), seed=SEED)
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
        numbers = np.zeros(devices, np.uint8)
        numbers[np.random.default_rng(0).choice(devices, 500, replace=False)] = 1
        write_parts(GraphInMemory(load(f"demo:{devices}")), folder, Partition(2, None, numbers))
        end, _ = run_ranks(["-c", MEASURED, str(folder), str(note)], 2)
        assert end.status == 0
        peaks.append(int(note.read_text()))
    # Rows of other sizes: the mean degree grows a little with the number of devices.
    assert peaks[1] - peaks[0] < 6_000 + 0.25 * peaks[0]
