"""A balancer of somebody else's: registered, then chosen by its name like ours."""

import json
from collections.abc import Iterator

import numpy as np
import pytest

import lumos
from lumos.cli.main import run
from lumos.device import PublicRandomness, Shard
from lumos.errors import ProtocolError, UsageError
from lumos.exchange import Program
from lumos.exchange.endpoint import idle_program
from lumos.graph import load
from lumos.trees.balancers import BALANCERS, Balancer, Compare, DegreeSums, Observe, TreeSettings
from lumos.twoparty.comparer import Comparer
from lumos.twoparty.workers import ComparedPairs
from lumos.typing import Flags, Ints

DEMO = load("demo:60", features=False)


class LargerId:
    """The end with the larger id carries the edge. Ids are public: nothing is compared."""

    compares = False
    iterative = False

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        yield from ()
        keep: Flags = shard.devices[shard.owner] > shard.neighbours
        return keep

    def coordinator_program(
        self, devices: Ints, public: PublicRandomness, settings: TreeSettings
    ) -> Program[None]:
        return idle_program()

    def expected_comparisons(self, degrees: DegreeSums, settings: TreeSettings) -> int:
        return 0


class LowerDegree(LargerId):
    """The end of lower degree carries the edge, by one secret comparison."""

    compares = True

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        pairs = ComparedPairs.of_slots(shard, np.arange(len(shard.neighbours)))
        below = yield from comparer.less(pairs, shard.degree[pairs.rows], 8)
        return below == pairs.first

    def expected_comparisons(self, degrees: DegreeSums, settings: TreeSettings) -> int:
        return degrees.edges


class Undeclared(LowerDegree):
    """Compares, and says that it does not."""

    compares = False


class Forgets(LargerId):
    """Nobody carries the edge between device 3 and its last neighbour."""

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        keep = yield from super().device_program(shard, comparer, settings, observe)
        mine, other = shard.devices[shard.owner], shard.neighbours
        return keep & ~((np.minimum(mine, other) == 3) & (np.maximum(mine, other) == FORGOTTEN))


class Numbers(LargerId):
    """Returns numbers of devices instead of flags."""

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        yield from ()
        return shard.neighbours  # type: ignore[return-value]


FORGOTTEN = int(DEMO.neighbours[DEMO.offsets[3] : DEMO.offsets[4]].max())
ENTRIES: dict[str, Balancer] = {
    "larger-id": LargerId(),
    "lower-degree": LowerDegree(),
    "undeclared": Undeclared(),
    "forgets": Forgets(),
    "numbers": Numbers(),
}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for name, entry in ENTRIES.items():
        BALANCERS.register(name, entry)
    yield
    for name in ENTRIES:
        BALANCERS.remove(name)


@pytest.mark.parametrize("shards", [1, 3])
def test_in_the_library(shards: int) -> None:
    graph = load("demo:60", features=False)
    balanced = lumos.balance(graph, TreeSettings(balancer="larger-id"), shards=shards)
    larger = np.maximum(*graph.edge_list().T)
    assert balanced.workload.tolist() == np.bincount(larger, minlength=60).tolist()
    assert balanced.compare == "none"
    assert balanced.ledger.messages == 0


@pytest.mark.parametrize("compare", ["secure", "ideal"])
def test_with_comparisons(compare: Compare) -> None:
    graph = load("demo:30", features=False)
    settings = TreeSettings(balancer="lower-degree", compare=compare, workers=1)
    balanced = lumos.balance(graph, settings)
    assert balanced.compare == compare
    assert balanced.ledger.comparisons == graph.edges
    first, second = graph.edge_list().T
    transport = np.where(graph.degrees[first] < graph.degrees[second], first, second)
    assert balanced.workload.tolist() == np.bincount(transport, minlength=30).tolist()


def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trees", "demo:60", "--balancer", "larger-id", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["balancer"] == "larger-id"
    assert result["compare"] == "none"


@pytest.mark.parametrize("compare", ["secure", "ideal"])
def test_who_declares_no_comparisons_gets_none(compare: Compare) -> None:
    with pytest.raises(UsageError, match="declares that it compares nothing"):
        lumos.balance(
            load("demo:30", features=False), TreeSettings(balancer="undeclared", compare=compare)
        )


@pytest.mark.parametrize("shards", [1, 5])
def test_an_edge_that_nobody_carries_is_named(shards: int) -> None:
    graph = load("demo:60", features=False)
    words = f"'forgets' leaves 1 edge to neither end, .* devices 3 and {FORGOTTEN};"
    with pytest.raises(ProtocolError, match=words):
        lumos.balance(graph, TreeSettings(balancer="forgets"), shards=shards)
    with pytest.raises(ProtocolError, match=words):
        lumos.train("demo:60", profile="paper", balancer="forgets", epochs=1, shards=shards)
    with pytest.raises(ProtocolError, match=r"'numbers' must return \d+ booleans for this shard"):
        lumos.balance(graph, TreeSettings(balancer="numbers"), shards=shards)


def test_a_wrong_name_lists_all() -> None:
    with pytest.raises(UsageError, match="none, greedy, mcmc, optimal, larger-id, lower-degree"):
        TreeSettings(balancer="best")
