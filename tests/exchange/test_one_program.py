"""One program, any number of shards: nothing is shared but messages, and the trees are the same."""

import ast
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.exchange.balancing import SEED, balanced, idle_program
from tests.exchange.transports import Isolated, reachable

import lumos
from lumos.device import Shard, cut
from lumos.exchange import Endpoint, LedgerReport, Program, Topic
from lumos.exchange.transports.loopback import Loopback
from lumos.graph import Graph, demo_graph
from lumos.trees.balancers.greedy import greedy
from lumos.twoparty.comparer import IDEAL_TOPICS, IdealComparer

Differences = Callable[[LedgerReport, LedgerReport], list[str]]
SOURCES = Path(lumos.__file__).parent


@pytest.mark.parametrize(
    ("balancer", "shards"),
    [
        *product(["greedy", "mcmc", "optimal"], [1, 2, 7]),
        ("greedy", 60),
        pytest.param("mcmc", 60, marks=pytest.mark.long),
        pytest.param("optimal", 60, marks=pytest.mark.long),
    ],
)
def test_the_same_trees_and_ledger_from_isolated_shards(
    sixty: Graph, balancer: str, shards: int, ledger_differences: Differences
) -> None:
    kept, ledger = balanced(sixty, 1, balancer, "ideal", Loopback)
    again, same_ledger = balanced(sixty, shards, balancer, "ideal", Loopback)
    assert again == kept
    assert ledger_differences(ledger, same_ledger) == []
    isolated, its_ledger = balanced(sixty, shards, balancer, "ideal", Isolated)
    assert isolated == kept
    assert ledger_differences(ledger, its_ledger) == []


@pytest.mark.parametrize(("balancer", "shards"), [("greedy", 3), ("greedy", 8), ("mcmc", 8)])
def test_the_same_with_secret_comparisons(
    balancer: str, shards: int, ledger_differences: Differences
) -> None:
    graph = demo_graph(8, features=False)
    kept, booked = balanced(graph, 1, balancer, "ideal", Loopback)
    isolated, ledger = balanced(graph, shards, balancer, "secure", Isolated)
    assert isolated == kept
    # What ideal books is what secure sends; only the topic has another name.
    assert ledger_differences(booked, ledger) == ["topics"]
    line, ideal_line = ledger.topics["compare"], booked.topics["compare/ideal"]
    assert (line.messages, line.bytes) == (ideal_line.messages, ideal_line.bytes)
    assert (line.ideal, ideal_line.ideal) == (False, True)


def cheater(topic: Topic) -> Callable[[Shard, Endpoint], Program[int]]:
    """Each shard adds its neighbour's number without asking for it."""
    board: dict[int, np.ndarray] = {}

    def program(shard: Shard, _: Endpoint) -> Program[int]:
        me = int(shard.devices[0])
        mine = np.array([me + 10])
        board[me] = mine
        yield topic.nothing()
        return int(mine[0] + board[(me + 1) % shard.total][0])

    return program


def shared_from_the_start(topic: Topic) -> Callable[[Shard, Endpoint], Program[int]]:
    """All shards hold one and the same array, as a view into the graph would be."""
    common = np.arange(10.0)

    def program(shard: Shard, _: Endpoint) -> Program[int]:
        mine = common[3:]
        yield topic.nothing()
        return int(np.nan_to_num(mine, nan=-1).sum())

    return program


class Notebook:
    """A private object that hides its array behind a list, a dict, a slot and a view."""

    __slots__ = ("pages",)
    __module__ = "lumos.test"

    def __init__(self, values: np.ndarray) -> None:
        self.pages = [{"first": (values[::2],)}]


def hidden_deeper(topic: Topic) -> Callable[[Shard, Endpoint], Program[int]]:
    """The array lies in an object of an inner generator, reached over a stolen reference."""
    stolen: list[Notebook] = []

    def inner(shard: Shard) -> Program[None]:
        notebook = Notebook(np.full(4, shard.devices[0] + 10, np.uint8))
        stolen.append(notebook)
        yield topic.nothing()

    def program(shard: Shard, _: Endpoint) -> Program[int]:
        yield from inner(shard)
        return sum(int(other.pages[0]["first"][0].sum()) for other in stolen)

    return program


@pytest.mark.parametrize("cheat", [cheater, shared_from_the_start, hidden_deeper])
def test_a_program_that_reads_other_shards_is_caught(
    cheat: Callable[[Topic], Callable[[Shard, Endpoint], Program[int]]],
    declare: Callable[..., Topic],
) -> None:
    graph = demo_graph(3, features=False)
    topic = declare("test/cheat")
    unnoticed, _ = Loopback(cut(graph, 3, SEED)).run(cheat(topic), idle_program)
    caught, _ = Isolated(cut(graph, 3, SEED)).run(cheat(topic), idle_program)
    assert caught != unnoticed


def test_an_honest_program_passes_where_the_cheater_does_not(
    declare: Callable[..., Topic],
) -> None:
    topic = declare("test/honest", dtype=np.int64)

    def program(shard: Shard, _: Endpoint) -> Program[int]:
        mine = shard.devices + 10
        inbox = yield topic.send(shard.devices, (shard.devices - 1) % shard.total, mine)
        return int(mine[0] + inbox.body[0])

    graph = demo_graph(3, features=False)
    for transport in (Loopback, Isolated):
        assert transport(cut(graph, 3, SEED)).run(program, idle_program)[0] == [21, 23, 22]


def test_the_poison_reaches_all_state_of_a_suspended_program(sixty: Graph) -> None:
    shard = cut(sixty, 2, SEED)[0]
    endpoint = Endpoint(shard, ideal=IDEAL_TOPICS)
    program = greedy(shard, IdealComparer(shard, endpoint))
    outbox = next(program)
    arrays = {id(array) for array in reachable(program, endpoint)}
    state: list[np.ndarray] = [
        shard.devices,
        shard.neighbours,
        shard.offsets,
        shard.owner,
        shard.degree,
    ]
    state += [shard.randomness._secrets, endpoint.ledger.device_rounds]
    assert {id(array) for array in state} <= arrays
    assert outbox.topic.name == "compare/ideal"


def identifiers(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                names.add(value)
    return names


ALGORITHMS = ("trees", "session", "compare", "score")


def test_no_algorithm_reads_the_number_of_shards() -> None:
    """`balance` cuts the graph and is no algorithm; everything else sees one shard, its own."""
    forbidden = {"shards", "pieces", "hosts", "parties", "cut", "Loopback", "Router", "_dense"}
    read = {}
    for folder in ALGORITHMS:
        for path in sorted((SOURCES / folder).rglob("*.py")):
            if path.name in ("balance.py", "worker_processes.py"):
                continue
            found = forbidden & identifiers(ast.parse(path.read_text()))
            if found:
                read[path.name] = found
    assert read == {}


def test_modules_keep_no_arrays_of_their_own() -> None:
    """What a module keeps is shared by all shards of a process: constants only."""
    kept = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith(
            (
                "lumos.trees",
                "lumos.twoparty",
                "lumos.twoparty.comparison",
                "lumos.twoparty.score",
                "lumos.exchange",
            )
        ):
            kept += [
                f"{name}.{key}"
                for key, value in vars(module).items()
                if isinstance(value, np.ndarray) and value.size and value.flags.writeable
            ]
    assert kept == []
