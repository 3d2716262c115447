"""What the coordinator sees: uniform words, and, in broken twins, the vectors themselves."""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.secagg.federation import Federation, drawn_graph

from lumos.exchange import Inbox, Program
from lumos.secagg import (
    AggregateSettings,
    FixedPoint,
    SecureAggregator,
    SecureCoordinator,
    Stage,
    masks,
)
from lumos.secagg.masks import PairKeys, RoundKeys
from lumos.secagg.shares import SELF
from lumos.secagg.topics import MASKED

TOTAL, WIDTH = 12, 6
FIXED = FixedPoint.of(AggregateSettings(), TOTAL)


class Curious(SecureCoordinator):
    """Follows the protocol and remembers everything; `late` names a device whose vector is late."""

    late: int | None = None
    memory: dict[str, list[Any]]

    def sum(self, width: int, noise: Any = None) -> Program[Any]:
        program = super().sum(width)
        outbox = next(program)
        try:
            while True:
                inbox = yield outbox
                if outbox.topic is MASKED:
                    vectors = self.fixed.unpack(inbox.body[:, : width * self.fixed.wire])
                    self.memory["vectors"].append(dict(zip(inbox.sender, vectors, strict=True)))
                    inbox = Inbox(inbox.batch.take(inbox.sender != self.late), inbox.quiet)
                outbox = program.send(inbox)
        except StopIteration as stop:
            return stop.value

    def _reconstructed(self, devices: Any, which: int, *rest: Any) -> Any:
        secrets = super()._reconstructed(devices, which, *rest)
        keys = masks.keys_of(secrets, devices, which, rest[-1])
        name = "self" if which == SELF else "pair"
        self.memory[name].append(dict(zip(devices.tolist(), keys, strict=True)))
        return secrets

    def _subtract_pair_masks(self, collected: Any, lost: Any, *rest: Any) -> None:
        super()._subtract_pair_masks(collected, lost, *rest)
        size = masks.SEED * self.parameters.neighbours
        opened = {}
        for device, key in self.memory["pair"][-1].items():
            row = np.searchsorted(np.flatnonzero(collected.joined), device)
            wrapped = np.ascontiguousarray(collected.wrapped[row, :size]).view("<u4")
            seeds = masks.wrap(wrapped.reshape(1, -1, 4).astype(np.uint32), key[None])[0]
            others = self._graph.of(np.array([device]))[0]
            low, high = np.minimum(others, device), np.maximum(others, device)
            opened[device] = masks.pair_keys_of(seeds, low, high, collected.of)
        self.memory["masks"].append(opened)


def curious(late: int | None = None) -> type[Curious]:
    memory: dict[str, list[Any]] = {"vectors": [], "self": [], "pair": [], "masks": []}
    return type("Curious", (Curious,), {"late": late, "memory": memory})


def without_pair_masks(vector: np.ndarray, device: int, keys: np.ndarray) -> np.ndarray:
    """A masked vector with all its pair masks taken off."""
    graph = drawn_graph(TOTAL, len(keys))
    added = device < graph.of(np.array([device]))[0]
    left = vector[None].copy()
    masks.add_masks(left, keys, np.where(added, masks.NOBODY, 0), np.where(added, 0, masks.NOBODY))
    return left[0]


def without_self_mask(vector: np.ndarray, key: np.ndarray) -> np.ndarray:
    left = vector[None].copy()
    masks.add_masks(left, key[None], np.array([masks.NOBODY]), np.array([0]))
    return left[0]


def same(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Where numbers are equal in the bytes that travel."""
    equal: np.ndarray = FIXED.unpack(FIXED.pack(left)) == FIXED.unpack(FIXED.pack(right))
    return equal


class FrozenKeys(PairKeys):
    """The broken twin: pair masks that repeat in every round, as long-lived keys give them."""

    def ratchet(self, context: bytes = b"") -> RoundKeys:
        before = self._chain.copy()
        keys = super().ratchet(context)
        self._chain[:] = before
        return keys


def freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys repeat, and so does the number that is hashed into what is made of them."""
    hashed = masks._hash

    def frozen(secrets: Any, one: Any, other: Any, of: Any, *rest: Any) -> Any:
        return hashed(secrets, one, other, of._replace(number=0), *rest)

    monkeypatch.setattr("lumos.secagg.masks.PairKeys", FrozenKeys)
    monkeypatch.setattr("lumos.secagg.masks._hash", frozen)


class NoSelfMask(SecureAggregator):
    """The broken twin: only pair masks hide a vector."""

    def _add_masks(
        self, words: Any, rows: Any, keys: Any, joined: Any, secrets: Any, of: Any
    ) -> None:
        super()._add_masks(words, rows, keys, joined, secrets, of)
        nobody = np.full(len(rows), masks.NOBODY)
        own = masks.keys_of(secrets, self._shard.devices[rows], SELF, of)
        masks.add_masks(words, own, nobody, np.arange(len(rows)))


def vectors_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=20, size=(TOTAL, WIDTH))


def byte_statistic(bodies: bytes) -> float:
    """χ² of the bytes against the uniform distribution: 255 degrees of freedom."""
    counts = np.bincount(np.frombuffer(bodies, np.uint8), minlength=256)
    expected = len(bodies) / 256
    return float(((counts - expected) ** 2).sum() / expected)


@pytest.mark.parametrize("value", [0.0, 1.0, -1000.0])
def test_a_masked_vector_is_uniform_whatever_it_hides(value: float) -> None:
    limit = stats.chi2.ppf(1 - 1e-7, 255)
    vectors = np.full((TOTAL, 2000), value)
    assert byte_statistic(FIXED.pack(FIXED.encode(vectors)).tobytes()) > limit  # the test has power
    federation = Federation(AggregateSettings())
    federation.run([vectors])
    for bodies in federation.bodies("aggregate/masked").values():
        assert byte_statistic(bodies[0][: vectors.shape[1] * FIXED.wire]) < limit


def test_two_runs_with_one_seed_send_different_vectors_with_equal_sums() -> None:
    one, two = Federation(AggregateSettings()), Federation(AggregateSettings())
    vectors = vectors_of(0)
    _, [first] = one.run([vectors])
    _, [second] = two.run([vectors])
    assert np.array_equal(first, second)
    for topic in ("keys", "wrapped", "masked", "alive", "reveal"):
        left, right = (run.bodies(f"aggregate/{topic}") for run in (one, two))
        assert left.keys() == right.keys()
        assert all(left[device] != right[device] for device in left)


def test_the_same_vector_looks_different_in_every_round() -> None:
    federation = Federation(AggregateSettings())
    federation.run([vectors_of(0)] * 3)
    for bodies in federation.bodies("aggregate/masked").values():
        assert len(set(bodies)) == 3


@pytest.mark.parametrize("broken", [False, True])
def test_a_late_vector_is_never_opened(broken: bool) -> None:
    """The device is called lost, its pair masks are opened, and then its vector turns up.

    The broken twin leaves the self mask out: the late vector lies open.
    """
    aggregator = NoSelfMask if broken else SecureAggregator
    coordinator = curious(late=4)
    vectors = vectors_of(1)
    Federation(AggregateSettings(), aggregator=aggregator, coordinator=coordinator).run([vectors])
    late = coordinator.memory["vectors"][0][4]
    left = without_pair_masks(late, 4, coordinator.memory["masks"][0][4])
    found = same(left, FIXED.encode(vectors[4]))
    assert found.all() if broken else not found.any()


@pytest.mark.parametrize("broken", [False, True])
def test_differences_of_rounds_tell_nothing(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Self masks are opened in every round; pair masks that repeat would cancel."""
    if broken:
        freeze(monkeypatch)
    coordinator = curious()
    rounds = [vectors_of(2), vectors_of(3)]
    Federation(AggregateSettings(), coordinator=coordinator).run(rounds)
    memory = coordinator.memory
    bare = [
        without_self_mask(memory["vectors"][number][7], memory["self"][number][7])
        for number in range(2)
    ]
    encoded = [FIXED.encode(vectors[7]) for vectors in rounds]
    found = same(bare[1] - bare[0], encoded[1] - encoded[0])
    assert found.all() if broken else not found.any()


@pytest.mark.parametrize("broken", [False, True])
def test_being_lost_later_does_not_open_earlier_rounds(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round 1 opened the self mask, round 2 the pair masks: with lasting keys that is a vector."""
    if broken:
        freeze(monkeypatch)
    coordinator = curious()
    rounds = [vectors_of(4), vectors_of(5)]
    drop_stage = [np.full(TOTAL, Stage.NEVER, np.int8) for _ in rounds]
    drop_stage[1][9] = Stage.MASKED
    Federation(AggregateSettings(), coordinator=coordinator).run(rounds, drop_stage)
    memory = coordinator.memory
    bare = without_self_mask(memory["vectors"][0][9], memory["self"][0][9])
    found = same(without_pair_masks(bare, 9, memory["masks"][1][9]), FIXED.encode(rounds[0][9]))
    assert found.all() if broken else not found.any()


def test_a_seized_device_cannot_compute_earlier_masks() -> None:
    """The ratchet keeps nothing: what is in memory after a round gives other keys."""
    keys = PairKeys(np.arange(2), np.array([[1], [0]]))
    public = keys.public_keys([bytes([n]) * 32 for n in (1, 2)])
    keys.agree(public[::-1, None])
    before = keys._chain.copy()
    first = keys.ratchet()
    assert not np.array_equal(before, keys._chain)
    assert not np.array_equal(first.seed, keys.ratchet().seed)


def test_missed_sums_are_turned_past_and_their_keys_are_gone() -> None:
    present, absent = (PairKeys(np.arange(2), np.array([[1], [0]])) for _ in range(2))
    public = present.public_keys([bytes([n]) * 32 for n in (1, 2)])
    present.agree(public[::-1, None])
    absent._chain = present._chain.copy()
    for _ in range(3):
        before = present.ratchet()
    absent.skip(2)
    after = absent.ratchet()
    assert (present.number, absent.number) == (3, 3)
    for name in RoundKeys._fields:
        assert np.array_equal(getattr(before, name), getattr(after, name))
    assert np.array_equal(present._chain, absent._chain)
