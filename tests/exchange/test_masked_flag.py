"""Does anyone object? One bit, and nothing about who or how many."""

import itertools

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.exchange.transports import Isolated

from lumos.device import PublicRandomness, Shard, cut
from lumos.exchange import Endpoint, Inbox, Program
from lumos.exchange.transports.loopback import Loopback
from lumos.graph import Graph
from lumos.secagg import openings

RUNS = 1500
# Two samples of a sound protocol are told apart once in a million trials, per look.
CHANCE = 1e-6


def edgeless(devices: int) -> Graph:
    return Graph.from_edges(np.empty((0, 2), np.int64), devices=devices)


def ask(
    transport: Loopback | Isolated, total: int, raised: set[int], shares: list[np.ndarray]
) -> list[bool]:
    """What everybody hears; `shares` takes what the coordinator sees."""

    def device(shard: Shard, _: Endpoint) -> Program[bool]:
        flags = np.array([device in raised for device in shard.devices.tolist()])
        return openings.anyone(shard, flags)

    def coordinator(_: Endpoint) -> Program[bool]:
        program = openings.count_for_everyone(np.arange(total))
        inbox = yield next(program)
        assert isinstance(inbox, Inbox)
        shares.append(inbox.body.copy())
        outbox = program.send(inbox)
        try:
            program.send((yield outbox))
        except StopIteration as stop:
            return bool(stop.value)
        raise AssertionError("the coordinator should have finished")

    verdicts, seen = transport.run(device, coordinator)
    return [*verdicts, seen]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_everybody_learns_whether_anyone_raised_a_flag(data: st.DataObject) -> None:
    total = data.draw(st.integers(1, 9))
    shards = data.draw(st.integers(1, total))
    raised = data.draw(st.sets(st.integers(0, total - 1)))
    pieces = cut(edgeless(total), shards, seed=data.draw(st.integers(0, 5)))
    assert set(ask(Loopback(pieces), total, raised, [])) == {bool(raised)}


@pytest.mark.parametrize("total", [1, 2, 3])
def test_very_small_federations(total: int) -> None:
    for count in range(total + 1):
        for raised in itertools.combinations(range(total), count):
            for shards in range(1, total + 1):
                for transport in (Loopback, Isolated):
                    pieces = cut(edgeless(total), shards, seed=0)
                    verdicts = ask(transport(pieces), total, set(raised), [])
                    assert verdicts == [bool(raised)] * (shards + 1)


def sample(total: int, raised: set[int]) -> np.ndarray:
    """[RUNS, total] the shares that the coordinator sees."""
    shares: list[np.ndarray] = []
    pieces = cut(edgeless(total), 1, seed=0)
    for _ in range(RUNS):
        ask(Loopback(pieces), total, raised, shares)
    return np.array(shares)


def looks(values: np.ndarray) -> dict[str, np.ndarray]:
    """The ways in which two samples of 64-bit numbers are looked at, each as classes 0 … 15."""
    return {
        "lowest bit": (values & np.uint64(1)).astype(int),
        "lowest four bits": (values & np.uint64(15)).astype(int),
        "highest four bits": (values >> np.uint64(60)).astype(int),
        "number of ones": np.clip(np.bitwise_count(values).astype(int) - 24, 0, 15),
        "small": (values < 1000).astype(int),
    }


def told_apart(one: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """The looks in which the samples differ, with their p-values."""
    found = {}
    for name, left in looks(one).items():
        right = looks(other)[name]
        table = np.stack([np.bincount(left, minlength=16), np.bincount(right, minlength=16)])
        table = table[:, table.sum(axis=0) > 0]
        if table.shape[1] > 1:
            p = float(stats.chi2_contingency(table).pvalue)
            if p < CHANCE:
                found[name] = p
    return found


def uniform(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**64, count, np.uint64)


def summed(shares: np.ndarray) -> np.ndarray:
    return shares.sum(axis=1, dtype=np.uint64)


def test_the_sum_does_not_tell_how_many() -> None:
    one, two = summed(sample(3, {1})), summed(sample(3, {0, 2}))
    assert told_apart(one, two) == {}
    assert told_apart(one, uniform(RUNS)) == {}
    assert (summed(sample(3, set())) == 0).all()


def test_single_shares_tell_nothing() -> None:
    silent, raised = sample(4, set()), sample(4, {2})
    for device in range(4):
        assert told_apart(silent[:, device], raised[:, device]) == {}
        assert told_apart(silent[:, device], uniform(RUNS)) == {}
    # Nor do the shares of any but all devices, added up.
    for size in (2, 3):
        for some in itertools.combinations(range(4), size):
            assert told_apart(summed(silent[:, some]), summed(raised[:, some])) == {}
    assert len(np.unique(silent)) == silent.size, "two runs have no share in common"


@pytest.mark.parametrize(
    "flags",
    [
        lambda count: np.full((RUNS, count), 1, np.uint64),  # the sum is the count
        lambda count: uniform(RUNS * count).reshape(RUNS, count) | np.uint64(1),  # never 0: odd
        lambda count: uniform(RUNS * count).reshape(RUNS, count) >> np.uint64(1),  # too small
    ],
)
def test_the_same_test_catches_flags_that_tell_the_number(flags) -> None:
    one, two = summed(flags(1)), summed(flags(2))
    assert told_apart(one, two) or told_apart(one, uniform(RUNS))


def linked(total: int, seed: int) -> int:
    """Size of the set of devices that masks link to device 0."""
    shard = Shard(
        np.arange(total),
        total,
        np.zeros(total + 1, np.int64),
        np.empty(0, np.int64),
        cut(edgeless(1), 1, seed=0)[0].randomness,
        PublicRandomness(seed),
    )
    program = openings.anyone(shard, np.zeros(total, np.bool_))
    batch = next(program).batch
    program.close()
    partners: dict[int, set[int]] = {device: set() for device in range(total)}
    for sender, receiver in zip(batch.sender.tolist(), batch.receiver.tolist(), strict=True):
        assert sender != receiver
        partners[sender].add(receiver)
        partners[receiver].add(sender)
    reached, waiting = {0}, [0]
    while waiting:
        new = partners[waiting.pop()] - reached
        reached |= new
        waiting += new
    return len(reached)


@pytest.mark.parametrize("total", [2, 3, 4, 6, 12, 30, 64, 210])
def test_masks_link_all_devices(total: int) -> None:
    """Were they linked in two groups, the coordinator would learn in which one a flag is."""
    assert {linked(total, seed) for seed in range(40)} == {total}


@pytest.mark.parametrize(
    "total", [3, 5, 7, 8, 12, 31, 100, pytest.param(200, marks=pytest.mark.long)]
)
def test_no_chosen_coalition_below_the_stated_size_cuts_the_masks(total: int) -> None:
    """The vertex connectivity, whoever colludes: by maximum flow, against Watkins' bound."""
    for seed in range(4):
        shifts = openings.partner_shifts(total, PublicRandomness(seed))
        masks = networkx.circulant_graph(total, shifts)
        [degree] = {d for _, d in masks.degree}
        assert networkx.node_connectivity(masks) >= min(total - 1, 2 * (degree + 1) / 3)
