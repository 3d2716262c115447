"""Shards: every device once, nothing shared, nothing for those who ask elsewhere."""

import itertools
import re

import numpy as np
import pytest

from lumos.device import PrivateRandomness, Shard, cut
from lumos.errors import LumosError, NotHosted, UsageError
from lumos.graph import Graph, demo_graph
from lumos.twoparty.workers import ComparedPairs

SPLITS = [1, 2, 7, 40]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return demo_graph(40, features=False)


def arrays_of(shard: Shard) -> list[np.ndarray]:
    found = [value for value in vars(shard).values() if isinstance(value, np.ndarray)]
    return [*found, shard.randomness._secrets]


@pytest.mark.parametrize("shards", SPLITS)
def test_every_device_once_with_its_neighbours(graph: Graph, shards: int) -> None:
    pieces = cut(graph, shards, seed=0)
    hosted = np.concatenate([piece.devices for piece in pieces])
    assert sorted(hosted.tolist()) == list(range(graph.devices))
    for piece in pieces:
        assert piece.total == graph.devices
        for row, device in enumerate(piece.devices.tolist()):
            own = graph.neighbours[graph.offsets[device] : graph.offsets[device + 1]]
            assert np.array_equal(piece.neighbours_of(device), own)
            assert piece.degree[row] == len(own)
            assert (piece.owner[piece.offsets[row] : piece.offsets[row + 1]] == row).all()


@pytest.mark.parametrize("shards", SPLITS)
def test_no_memory_is_shared(graph: Graph, shards: int) -> None:
    pieces = cut(graph, shards, seed=0)
    public = [graph.offsets, graph.neighbours, graph.ids]
    for piece in pieces:
        for own, other in itertools.product(arrays_of(piece), public):
            assert not np.shares_memory(own, other)
    for one, other in itertools.combinations(pieces, 2):
        for left, right in itertools.product(arrays_of(one), arrays_of(other)):
            assert not np.shares_memory(left, right)


@pytest.mark.parametrize("shards", [0, -1, 41])
def test_an_impossible_number_of_shards(graph: Graph, shards: int) -> None:
    with pytest.raises(UsageError, match=rf"`shards` must be .*40.*, got {shards}"):
        cut(graph, shards, seed=0)


@pytest.mark.parametrize("shards", SPLITS)
def test_randomness_do_not_depend_on_the_split(graph: Graph, shards: int) -> None:
    whole = cut(graph, 1, seed=3)[0].randomness.uniform(np.arange(40), "noise", 2, 3)
    for piece in cut(graph, shards, seed=3):
        drawn = piece.randomness.uniform(np.arange(len(piece)), "noise", 2, 3)
        assert np.array_equal(drawn, whole[piece.devices])


def test_system_randomness_differ_from_run_to_run(graph: Graph) -> None:
    shards = [cut(graph, 1, seed=3, randomness="system")[0] for _ in range(2)]
    one, other = (shard.randomness.words(np.arange(40), "noise", 2, 8) for shard in shards)
    assert not (one == other).all(axis=1).any()


@pytest.mark.parametrize("shards", SPLITS)
def test_other_devices_are_not_hosted(graph: Graph, shards: int) -> None:
    for piece in cut(graph, shards, seed=0):
        foreign = [-1, -2, graph.devices, 2**40, -(2**40)]
        foreign += np.setdiff1d(np.arange(graph.devices), piece.devices).tolist()
        for device in foreign:
            with pytest.raises(NotHosted):
                piece.local(np.array([device]))
            with pytest.raises(NotHosted):
                piece.local(np.append(piece.devices, device))
            with pytest.raises(NotHosted):
                piece.neighbours_of(device)
            with pytest.raises(NotHosted):
                piece.slots(np.array([device]), piece.devices[:1])
            with pytest.raises(NotHosted):
                ComparedPairs.of_ids(piece, np.array([device]), piece.devices[:1])
        assert np.array_equal(piece.local(piece.devices), np.arange(len(piece)))
        assert len(piece.local(np.empty(0, np.int64))) == 0


@pytest.mark.parametrize("shards", SPLITS)
def test_slots_find_neighbours_and_only_them(graph: Graph, shards: int) -> None:
    for piece in cut(graph, shards, seed=0):
        devices = piece.devices[piece.owner]
        everything = np.arange(len(piece.neighbours))
        assert np.array_equal(piece.slots(devices, piece.neighbours), everything)
        assert np.array_equal(piece.slots_of(np.arange(len(piece))), everything)
        assert len(piece.slots(devices[:0], devices[:0])) == 0
        for row, device in enumerate(piece.devices.tolist()):
            own = set(piece.neighbours_of(device).tolist())
            others = np.arange(graph.devices)
            found = piece.slots_or_none(np.full(graph.devices, row), others)
            assert {int(other) for other in others[found >= 0]} == own
            assert (piece.neighbours[found[found >= 0]] == others[found >= 0]).all()
            # Ids out of range must not alias the slots of the devices before and after.
            nobody = range(-graph.devices, 2 * graph.devices)
            for non_neighbour in sorted(set(nobody) - own):
                for times in (1, 9):  # a handful is looked up one by one
                    with pytest.raises(NotHosted):
                        piece.slots(np.full(times, device), np.full(times, non_neighbour))


@pytest.mark.parametrize("shards", SPLITS)
def test_a_handful_of_slots(graph: Graph, shards: int) -> None:
    for piece in cut(graph, shards, seed=0):
        for count in range(min(len(piece), 12)):
            rows = np.arange(count) + len(piece) - count
            slots = piece.slots_of(rows)
            assert np.array_equal(slots, np.flatnonzero(np.isin(piece.owner, rows)))
            few = slots[: count * 2 : 2]
            found = piece.slots(piece.devices[piece.owner[few]], piece.neighbours[few])
            assert np.array_equal(found, few)


def test_a_shard_without_edges() -> None:
    graph = Graph.from_edges(np.array([[0, 1]]), devices=3)
    alone = cut(graph, 3, seed=0)[2]
    assert alone.neighbours_of(2).size == 0
    assert alone.slots_or_none(np.array([0]), np.array([1])).tolist() == [-1]
    assert alone.slots_of(np.array([0])).size == 0
    with pytest.raises(NotHosted):
        alone.slots(np.array([2]), np.array([0]))


def test_private_values_are_not_shown() -> None:
    # Neighbours with ids that no other number contains.
    edges = np.array([[7, 4001], [7, 4002], [7, 4003], [8, 4004]])
    shard = cut(Graph.from_edges(edges, devices=5000), 2, seed=0)[1]
    texts = [
        repr(shard),
        str(shard),
        repr(shard.randomness),
        repr(ComparedPairs.of_slots(shard, np.arange(2))),
    ]
    attempts = [
        lambda: shard.local(np.array([8])),
        lambda: shard.neighbours_of(8),
        lambda: shard.slots(np.array([7]), np.array([5])),
        lambda: shard.slots(np.array([8]), np.array([7])),
        lambda: shard.local(np.array([6000])),
    ]
    for attempt in attempts:
        with pytest.raises(LumosError) as caught:
            attempt()
        texts.append(str(caught.value))
    secrets = [str(word) for word in shard.randomness._secrets[shard.local(np.array([7]))].ravel()]
    for text in texts:
        assert "400" not in re.sub(" at 0x[0-9a-f]+", "", text)  # an address may have it
        assert not any(secret in text for secret in secrets)
    assert isinstance(shard.randomness, PrivateRandomness)


def test_a_shard_does_not_know_how_many_shards_there_are(graph: Graph) -> None:
    """Of the whole federation a shard knows the number of devices and the run seed."""
    public = {
        "devices",
        "total",
        "offsets",
        "neighbours",
        "randomness",
        "public",
        "degree",
        "owner",
    }
    public |= {"keys", "absent"}  # of a real device: its own keys, and who is left out
    piece, finer = cut(graph, 2, seed=0)[0], cut(graph, 4, seed=0)[0]
    assert {name for name in vars(piece) if not name.startswith("_")} == public
    for shard in (piece, finer):
        scalars = {
            name: value for name, value in vars(shard).items() if isinstance(value, int | float)
        }
        assert scalars == {
            "total": graph.devices,
            "_dense": False,
            "_first": 0,
            "_range": False,
        }
        assert vars(shard.public) == {"seed": 0, "plan": b""}  # no plan in a simulation
