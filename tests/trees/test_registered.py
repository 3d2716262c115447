"""A balancer of somebody else's: registered, then chosen by its name like ours."""

import json
from collections.abc import Iterator

import numpy as np
import pytest

import lumos
from lumos.cli.main import run
from lumos.device import PublicRandomness, Shard
from lumos.errors import UsageError
from lumos.exchange import Program
from lumos.exchange.endpoint import idle_program
from lumos.graph import load
from lumos.trees.balancers import BALANCERS, Balancer, Compare, DegreeSums, Observe, TreeSettings
from lumos.twoparty.comparer import Comparer
from lumos.twoparty.workers import ComparedPairs
from lumos.typing import Flags, Ints


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


ENTRIES: dict[str, Balancer] = {
    "larger-id": LargerId(),
    "lower-degree": LowerDegree(),
    "undeclared": Undeclared(),
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


def test_a_wrong_name_lists_all() -> None:
    with pytest.raises(UsageError, match="none, greedy, mcmc, optimal, larger-id, lower-degree"):
        TreeSettings(balancer="best")
