"""Attacks on sums with proofs, by somebody who did not write them."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.secagg import test_bounded
from tests.secagg.federation import drawn_graph
from tests.secagg.test_bounded import (
    BOUND,
    LIAR,
    OTHER,
    SETTINGS,
    TOTAL,
    Liar,
    LiesAboutPairMasks,
    LiesAboutSelfMask,
    NoVector,
    check_sum,
    run,
    some_vectors,
    with_body,
)

from lumos.crypto.shortness import ROWS, TAU, proved_factor
from lumos.exchange import Batch, Outbox, Program
from lumos.secagg import masks
from lumos.secagg.bounded import AGAIN, LATE, TOO_FEW, BoundedCoordinator
from lumos.secagg.evidence import ShownEvidence, WrongShares
from lumos.secagg.parameters import mask_parameters
from lumos.secagg.topics import ALIVE, DECISION, KEYS, MASKED, PLEDGE, PROOF, REVEAL, SEEDS

PARAMETERS = mask_parameters(SETTINGS, TOTAL)


# Framing an honest device.


class ShareOutsideTheField(Liar):
    """It gives out shares that are no elements of the field."""

    def changed(self, outbox: Outbox) -> Outbox:
        if outbox.topic is not REVEAL or not outbox.batch.messages:
            return outbox
        return with_body(outbox, np.full_like(outbox.batch.body, 0xFF))


def test_a_share_outside_the_field_is_its_givers_lie() -> None:
    outcome = run({LIAR: ShareOutsideTheField})
    assert list(outcome.excluded) == [LIAR]
    assert not outcome.party.evidence
    expected = some_vectors(40).sum(axis=0)
    np.testing.assert_allclose(outcome.totals[OTHER][0], expected, atol=1e-8)


def shares_of(attempt: Any, shown: dict[int, bytes], device: int) -> np.ndarray:
    """[k, 16] the shares of a device that all its holders gave out."""
    k = PARAMETERS.neighbours
    given = np.zeros((k, 16), np.uint8)
    for slot in np.flatnonzero(attempt.holders[device]).tolist():
        holder = attempt.neighbours[device, slot]
        place = int(attempt.holders[holder, : k - 1 - slot].sum())
        given[slot] = np.frombuffer(shown[holder], np.uint8).reshape(-1, 16)[place]
    return given


class FramesByUnansweredShares(BoundedCoordinator):
    """Evidence against an honest device, with a share that nobody gave out."""

    revealed = b""

    def _wrong_commitments(self, attempt: Any, secrets: Any) -> list[ShownEvidence]:
        k, t = self.parameters.neighbours, self.parameters.threshold
        given, answering = self.answers
        kept = answering & (np.cumsum(answering) <= t)
        forged = given.copy()
        forged[~kept] = 0xFF
        record, packed = attempt.record(OTHER), np.packbits(kept).tobytes()
        assert k > t
        return [WrongShares(OTHER, record, attempt.pledge[OTHER], forged.tobytes(), packed)]

    def _self_secrets(self, attempt: Any, shown: Any) -> Any:
        self.answers = shares_of(attempt, shown, OTHER), attempt.holders[OTHER]
        return super()._self_secrets(attempt, shown)

    def _liars_seeds(self, attempt: Any, liars: Any, sent: dict[int, bytes]) -> Any:
        type(self).revealed = b"".join(sent.values())
        return None


def test_shares_that_nobody_gave_out_are_no_evidence() -> None:
    run({}, coordinator=FramesByUnansweredShares)
    assert FramesByUnansweredShares.revealed
    assert not any(FramesByUnansweredShares.revealed)


GRAPH = drawn_graph(TOTAL, PARAMETERS.neighbours)


@pytest.mark.parametrize("slot", range(PARAMETERS.neighbours))
def test_liars_with_shares_outside_the_field_have_nobody_else_excluded(slot: int) -> None:
    """Both ends of a pair pledge and use such a share. Were it counted beyond the first t, which
    are what evidence shows, honest devices would refuse that evidence, and be excluded for it."""
    friend = int(GRAPH.of(np.array([LIAR]))[0, slot])

    class OutsideTogether(Liar):
        def _values(self, keys: Any) -> Any:
            low, high = sorted([LIAR, friend])
            [pair] = np.flatnonzero((self._pairs.low == low) & (self._pairs.high == high))
            (keys.values_up if low == LIAR else keys.values_down)[pair] = 0xFFFF
            return super()._values(keys)

    outcome = run({LIAR: OutsideTogether, friend: OutsideTogether}, sums=2)
    assert set(outcome.excluded) <= {LIAR}
    assert all(file.proves() for file in outcome.party.evidence.values())
    check_sum(outcome, tuple(outcome.excluded))


# Stopping a run, and endless attempts.

NEIGHBOUR = int(GRAPH.of(np.array([LIAR]))[0, 0])


class FewHolders(Liar):
    """It claims to have as few keys as are allowed: so few hold shares of its self secret."""

    def _agree(self, received: Any) -> None:
        received[0, PARAMETERS.threshold :] = 0
        super()._agree(received)


class OpensNothing(Liar):
    """It gives out no share."""

    def changed(self, outbox: Outbox) -> Outbox:
        return REVEAL.nothing() if outbox.topic is REVEAL else outbox


def test_a_liar_that_withholds_shares_costs_one_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = dataclasses.replace(SETTINGS, neighbours=8, threshold=PARAMETERS.threshold)
    monkeypatch.setattr(test_bounded, "SETTINGS", wide)
    friend = int(drawn_graph(TOTAL, 8).of(np.array([LIAR]))[0, 0])
    outcome = run({LIAR: FewHolders, friend: OpensNothing}, sums=3)
    assert np.isnan(outcome.coordinator[0]).all()
    assert not outcome.excluded
    expected = np.delete(some_vectors(40), [LIAR, friend], axis=0).sum(axis=0)
    for total in outcome.coordinator[1:]:
        np.testing.assert_allclose(total, expected, atol=1e-8)


class Attempts(BoundedCoordinator):
    """It counts attempts."""

    def _gather(self, form: Any, silent: Any) -> Program[Any]:
        self.attempts = getattr(self, "attempts", 0) + 1
        return (yield from super()._gather(form, silent))


@pytest.mark.parametrize("topic", [MASKED, PROOF])
def test_silence_within_sums_costs_few_attempts(topic: Any) -> None:
    class FallsSilent(Liar):
        def changed(self, outbox: Outbox) -> Outbox:
            return topic.nothing() if outbox.topic is topic else outbox

    outcome = run({LIAR: FallsSilent}, sums=LATE + 3, coordinator=Attempts)
    assert outcome.party.attempts == LATE + 3 + LATE
    assert not outcome.excluded
    check_sum(outcome, (LIAR,))


def test_who_lost_its_holders_to_liars_is_not_asked_and_not_called_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = dataclasses.replace(SETTINGS, neighbours=8, threshold=6)
    monkeypatch.setattr(test_bounded, "SETTINGS", wide)
    neighbours = drawn_graph(TOTAL, 8).of(np.arange(TOTAL))
    # Three liars take a holder each from the first victim, and two of them from the second, which
    # has one too few only without the first.
    first, second = int(neighbours[OTHER, 3]), OTHER
    shared = np.intersect1d(neighbours[first], neighbours[second])[:2].tolist()
    third = int(np.setdiff1d(neighbours[first], [*shared, second])[0])

    class DisagreesWithVictims(Liar):
        def _pledges(self, keys: Any, of: Any) -> Any:
            found, me = super()._pledges(keys, of).copy(), int(self._shard.devices[0])
            victims = [first] if me == third else [first, second]
            slots = np.isin(self._neighbours[0], victims)
            found[self._pairs.of[0, slots], 0] ^= 1
            return found

    liars = dict.fromkeys([*shared, third], DisagreesWithVictims)
    outcome = run(liars, sums=2, coordinator=Attempts)
    assert not outcome.excluded
    assert not outcome.party._late.any()
    assert outcome.party.attempts == 2
    check_sum(outcome, (first, second))


def test_a_neighbour_of_a_liar_that_is_silent_is_no_liar() -> None:
    class Late(Liar):
        def changed(self, outbox: Outbox) -> Outbox:
            return outbox.topic.nothing() if outbox.topic in (REVEAL, SEEDS) else outbox

    outcome = run({LIAR: LiesAboutSelfMask, NEIGHBOUR: Late})
    assert list(outcome.excluded) == [LIAR]
    assert np.isnan(outcome.coordinator[0]).all()


def test_who_withholds_the_seed_of_a_liar_spoils_one_sum_by_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another liar is caught in each sum. The one that protects them is in no second one."""
    wide = dataclasses.replace(SETTINGS, neighbours=12, threshold=8)
    monkeypatch.setattr(test_bounded, "SETTINGS", wide)

    class Withholds(Liar):
        def changed(self, outbox: Outbox) -> Outbox:
            return SEEDS.nothing() if outbox.topic is SEEDS else outbox

    class InSecond(LiesAboutSelfMask):
        sums = 0

        def sum_bounded(self, vectors: Any, bound: float) -> Program[Any]:
            self.sums += 1
            return (yield from super().sum_bounded(vectors, bound))

        def _projected(self, *given: Any) -> Any:
            lies = self.sums == 2
            return super()._projected(*given) if lies else Liar._projected(self, *given)

    liars: dict[int, Any] = {LIAR: LiesAboutSelfMask, OTHER: InSecond, NEIGHBOUR: Withholds}
    outcome = run(liars, sums=2)
    assert sorted(outcome.excluded) == sorted([LIAR, OTHER])
    assert np.isnan(outcome.coordinator[0]).all()
    without = np.delete(some_vectors(40), [LIAR, OTHER, NEIGHBOUR], axis=0).sum(axis=0)
    np.testing.assert_allclose(outcome.coordinator[1], without, atol=1e-8)


def test_no_sum_is_formed_over_fewer_devices_than_the_minimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = dataclasses.replace(SETTINGS, neighbours=12, threshold=8)
    monkeypatch.setattr(test_bounded, "SETTINGS", wide)
    silent = dict.fromkeys(range(TOTAL - PARAMETERS.minimum), NoVector)
    outcome = run({**silent, LIAR: LiesAboutSelfMask}, sums=2)
    assert list(outcome.excluded) == [LIAR]
    assert outcome.party.evidence[LIAR].proves()
    spoiled, ended = outcome.coordinator
    assert np.isnan(spoiled).all()
    assert ended is None
    assert np.isnan(outcome.totals[OTHER][0]).all()


@pytest.mark.parametrize(("liars", "longer"), [(200, 2.9), (2247, 19)])
def test_those_who_stay_could_be_chosen_so_that_their_sum_looks_short(
    liars: int, longer: float
) -> None:
    """Half of the liars leave: each time the one without which R·x_S is shortest. Then |x_S| may be
    so many times |S|·B."""
    drawn = np.random.default_rng(0).normal(size=(liars, ROWS)) / 2**0.5  # R·x of orthonormal x
    staying, total = np.arange(liars), drawn.sum(axis=0)
    for _ in range(liars // 2):
        rows = drawn[staying]
        gone = int(np.argmin((rows**2).sum(axis=1) - 2 * rows @ total))
        total = total - rows[gone]
        staying = np.delete(staying, gone)
    square = (total**2).sum() / len(staying) / (ROWS / 2)
    assert (TAU / square) ** 0.5 > longer > proved_factor(ROWS + 1)


@pytest.mark.parametrize("width", [40, 300])
def test_liars_that_saw_the_matrix_do_not_choose_who_stays(width: int) -> None:
    """Where R projects, the sum of those who stay would look short for some choice."""
    opposite = np.roll(GRAPH.order, TOTAL // 2)[GRAPH.order == LIAR]  # shares no mask neighbour
    liars = dict.fromkeys([LIAR, int(opposite[0])], LiesAboutSelfMask)
    outcome = run(liars, width, sums=2)
    assert set(outcome.excluded) == {*liars}
    assert all(file.proves() for file in outcome.party.evidence.values())
    first, second = outcome.coordinator
    expected = np.delete(some_vectors(width), [*liars], axis=0).sum(axis=0)
    np.testing.assert_allclose(second, expected, atol=1e-8)
    if width == 40:
        np.testing.assert_allclose(first, expected, atol=1e-8)
    else:
        assert np.isnan(first).all()
        assert np.isnan(outcome.totals[OTHER][0]).all()


# Attempts at one sum, and other sums, under one number.


class Agreeing(Exception):
    """[total, k] the pairs that share keys."""

    def __init__(self, pairs: Any) -> None:
        super().__init__()
        self.pairs = pairs


class Desynchronizes(BoundedCoordinator):
    """It tells some devices that a sum is over, and others to make it again."""

    def sum(self, width: int, noise: Any = None, bound: Any = None) -> Program[Any]:
        silent = np.zeros(TOTAL, np.bool_)
        form = self._form(width, BOUND)
        yield from self._judge((yield from self._gather(form, silent)), silent)
        words = np.where(np.arange(TOTAL) < OTHER, TOO_FEW, AGAIN).astype(np.uint8)
        yield DECISION.from_coordinator(np.arange(TOTAL), words)
        inbox = yield PLEDGE.nothing()
        size = masks.PLEDGE_BYTES * self.parameters.neighbours
        rows = zip(inbox.sender.tolist(), inbox.body, strict=True)
        raise Agreeing(self._compared({device: row[:size].tobytes() for device, row in rows})[0])


def test_devices_at_different_sums_share_no_keys() -> None:
    with pytest.raises(Agreeing) as raised:
        run({}, sums=2, coordinator=Desynchronizes)
    ahead = np.arange(TOTAL) < OTHER
    same = ahead[:, None] == ahead[GRAPH.of(np.arange(TOTAL))]
    assert np.array_equal(raised.value.pairs, same)


# Pairs without a key.


def test_a_pair_without_a_key_is_nobodys_lie() -> None:
    outcome = run({LIAR: FewHolders})
    assert not outcome.excluded
    check_sum(outcome, ())


# Malformed messages.


@pytest.mark.parametrize("topic", [PLEDGE, MASKED, PROOF, ALIVE, REVEAL])
@pytest.mark.parametrize("how", ["ones", "zeros", "short"])
def test_no_malformed_message_stops_the_others(topic: Any, how: str) -> None:
    # Confirmations pass only where somebody's pair masks are wrong.
    kind: Any = LiesAboutPairMasks if topic is ALIVE else Liar

    class Malformed(kind):  # type: ignore[misc]
        def changed(self, outbox: Outbox) -> Outbox:
            if outbox.topic is not topic or not outbox.batch.messages:
                return outbox
            body = outbox.batch.body
            if how != "short":
                return with_body(outbox, np.full_like(body, 0xFF if how == "ones" else 0))
            rows, lengths = np.arange(len(body)), np.full(len(body), body.shape[1] - 1)
            return topic.to_coordinator(self._shard, rows, body[:, :-1], lengths=lengths)

    outcome = run({LIAR: Malformed})
    assert set(outcome.excluded) <= {LIAR}
    for total in (*outcome.coordinator, *outcome.totals[OTHER]):
        assert np.linalg.norm(total) < TOTAL


def other_keys(outbox: Outbox, wrong: str) -> Outbox:
    """The keys of a liar: wrong ones, twice, or also for devices with which it shares no mask."""
    sent = outbox.batch
    if wrong in ("key", "seed"):
        body = sent.body.copy()
        body[:, slice(masks.KEY) if wrong == "key" else slice(masks.KEY, None)] = 0
        return with_body(outbox, body)
    if wrong == "twice":
        batch = sent.take(np.repeat(np.arange(sent.messages), 2))
    else:
        to = np.delete(np.arange(TOTAL), LIAR)
        batch = Batch(np.full(len(to), LIAR), to, np.repeat(sent.body[:1], len(to), axis=0))
    return Outbox(outbox.topic, batch, outbox.awaits)


@pytest.mark.parametrize("wrong", ["key", "seed", "twice", "everybody"])
def test_a_wrong_public_key_costs_its_sender_alone(wrong: str) -> None:
    class WrongKey(Liar):
        def setup(self) -> Program[None]:
            program = super().setup()
            outbox = next(program)
            while True:
                if outbox.topic is KEYS:
                    outbox = other_keys(outbox, wrong)
                inbox = yield outbox
                try:
                    outbox = program.send(inbox)
                except StopIteration:
                    return

    outcome = run({LIAR: WrongKey})
    assert not outcome.excluded
    check_sum(outcome, () if wrong == "everybody" else (LIAR,))
