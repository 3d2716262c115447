"""Sums with proofs: short summands, liars excluded, honest devices never."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.secagg.federation import shards_of

from lumos.audit.attacks.equivocation import NeedsNobody, unmasked
from lumos.audit.attacks.framing import DEVICES, KINDS, FramingCoordinator
from lumos.crypto import shortness
from lumos.errors import AlreadyOpened
from lumos.exchange import EVERY_DOOR, Endpoint, Outbox, Program
from lumos.exchange.messages import Batch
from lumos.exchange.transports.loopback import Loopback
from lumos.secagg import AggregateSettings, signing
from lumos.secagg.bounded import BoundedAggregator, BoundedCoordinator
from lumos.secagg.evidence import with_pair_lifts, with_self_lifts
from lumos.secagg.openings import OpenedSums, Opening
from lumos.secagg.topics import ALIVE, MASKED, PROOF, REVEAL, SEEDS

TOTAL, LIAR, OTHER, WIDTH = 14, 3, 8, 40
SETTINGS = AggregateSettings(proofs=True, minimum=11)
BOUND = 1.01
LARGE = 900.0


def some_vectors(width: int) -> np.ndarray:
    """Summands of norm 1, on the grid."""
    drawn = np.random.default_rng(width).normal(size=(TOTAL, width))
    vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return np.rint(vectors * 2.0**32) / 2.0**32


class Liar(BoundedAggregator):
    """A device that follows the protocol until a test changes what it does."""

    def changed(self, outbox: Outbox) -> Outbox:
        """Return another outbox."""
        return outbox

    def sum_bounded(self, vectors: Any, bound: float) -> Program[Any]:
        program = super().sum_bounded(vectors, bound)
        inbox = None
        while True:
            try:
                outbox = next(program) if inbox is None else program.send(inbox)
            except StopIteration as stop:
                return stop.value
            inbox = yield self.changed(outbox)


def with_body(outbox: Outbox, body: np.ndarray) -> Outbox:
    """The same messages with other bytes."""
    if not outbox.batch.messages:
        return outbox
    batch = outbox.batch
    changed = Batch(batch.sender, batch.receiver, body, batch.epsilon, batch.lengths)
    return Outbox(outbox.topic, changed, outbox.awaits)


class Outcome:
    """What a run of sums gave."""

    def __init__(self, totals: list[list[Any]], coordinator: list[Any], party: Any) -> None:
        self.totals, self.coordinator, self.party = totals, coordinator, party

    @property
    def excluded(self) -> dict[int, str]:
        return {one.device: one.why for one in self.party.excluded}


def run(
    liars: Mapping[int, type[BoundedAggregator]],
    width: int = 40,
    sums: int = 1,
    coordinator: type[BoundedCoordinator] = BoundedCoordinator,
    proofs: bool = True,
) -> Outcome:
    """Run sums with a shard for each device."""
    given, settings = some_vectors(width), dataclasses.replace(SETTINGS, proofs=proofs)
    parties: list[Any] = []

    def devices(shard: Any, endpoint: Endpoint) -> Program[list[Any]]:
        kind = liars.get(int(shard.devices[0]), BoundedAggregator)
        aggregator = kind(shard, endpoint, settings)
        yield from aggregator.setup()
        found = []
        for _ in range(sums):
            found.append(
                (
                    yield from aggregator.sum_updates(
                        lambda _: given[shard.devices], bound=lambda _: BOUND
                    )
                )
            )
        return found

    def coordinating(endpoint: Endpoint) -> Program[list[Any]]:
        party = coordinator(TOTAL, endpoint, settings, drops_refused=True)
        parties.append(party)
        yield from party.setup()
        found = []
        for _ in range(sums):
            found.append((yield from party.sum(width, bound=lambda _: BOUND)))
        return found

    ended = Loopback(shards_of(TOTAL, TOTAL), EVERY_DOOR).run(devices, coordinating)
    return Outcome(*ended, parties[0])


def check_sum(outcome: Outcome, without: tuple[int, ...], width: int = 40) -> None:
    """All devices that are left have the exact sum over the others."""
    kept = np.setdiff1d(np.arange(TOTAL), without)
    expected = some_vectors(width)[kept].sum(axis=0)
    for device, totals in enumerate(outcome.totals):
        if device not in without:
            for total in totals:
                np.testing.assert_allclose(total, expected, atol=1e-8)
    for total in outcome.coordinator:
        np.testing.assert_allclose(total, expected, atol=1e-8)


@pytest.mark.parametrize("width", [1, 40, 300])
def test_honest_devices_get_the_sum(width: int) -> None:
    outcome = run({}, width, sums=2)
    check_sum(outcome, (), width)
    assert not outcome.excluded


class SendsLarge(Liar):
    """It adds large numbers, and has no proof."""

    def _masked(self, vectors: Any, *others: Any) -> Outbox:
        return super()._masked(vectors + LARGE, *others)

    def _prove(self, attempt: Any, challenge: bytes) -> list[bytes]:
        rows = min(attempt.facts.form.width, shortness.ROWS)
        return [bytes(shortness.proof_size(rows) + signing.SIGNATURE)]


class SendsOldProof(SendsLarge):
    """It proves something else, and signs it."""

    def _prove(self, attempt: Any, challenge: bytes) -> list[bytes]:
        width = attempt.facts.form.width
        attempt.masked = BoundedAggregator._masked(
            self,
            np.zeros((1, width)),
            attempt.rows,
            attempt.keys,
            attempt.values,
            attempt.joined,
            attempt.of,
        )
        return BoundedAggregator._prove(self, attempt, challenge)


class SignsLarge(SendsLarge):
    """It proves that another vector is short, and signs that."""

    def _prove(self, attempt: Any, challenge: bytes) -> list[bytes]:
        return BoundedAggregator._prove(self, attempt, challenge)

    def _proved(self, statement: Any, witness: Any) -> bytes:
        other = [total - p for total, p in zip(statement.masked, witness.short, strict=True)]
        zeros = dataclasses.replace(witness, short=[0] * len(other))
        return super()._proved(dataclasses.replace(statement, masked=other), zeros)


class LiesAboutPairMasks(Liar):
    """Its proof is valid for other pair masks than its own."""

    def _masked(self, vectors: Any, *others: Any) -> Outbox:
        return super()._masked(vectors + LARGE, *others)

    def _projected(self, attempt: Any, secrets: Any, drawn: bytes, width: int) -> Any:
        masked, own, pair = super()._projected(attempt, secrets, drawn, width)
        return masked, own, [self._shifted(pair[0], width, drawn)]

    def _shifted(self, numbers: list[int], width: int, drawn: bytes, sign: int = 1) -> list[int]:
        large = np.full((1, width), round(LARGE * 2**self.fixed.fraction_bits), np.int64)
        moved = shortness.projection(drawn, width).apply_halves(large, np.zeros_like(large))[0]
        return [number + sign * more for number, more in zip(numbers, moved, strict=True)]


class LiesAboutSelfMask(LiesAboutPairMasks):
    """Its proof is valid for another self mask than its own."""

    def _projected(self, attempt: Any, secrets: Any, drawn: bytes, width: int) -> Any:
        masked, own, pair = BoundedAggregator._projected(self, attempt, secrets, drawn, width)
        return masked, [self._shifted(own[0], width, drawn)], pair


class Silent(Liar):
    """It sends no proof."""

    def changed(self, outbox: Outbox) -> Outbox:
        return PROOF.nothing() if outbox.topic is PROOF else outbox


class NoVector(Liar):
    """It sends no vector."""

    def changed(self, outbox: Outbox) -> Outbox:
        return MASKED.nothing() if outbox.topic is MASKED else outbox


class WrongShare(Liar):
    """It gives out something wrong, and signs it: the first byte that is not zero."""

    what = "share"

    def _with_signatures(self, outbox: Outbox, attempt: Any, what: str) -> Outbox:
        if what == self.what and outbox.batch.messages:
            body = outbox.batch.body.copy()
            body[:, np.flatnonzero(body[0])[0]] ^= 1
            outbox = with_body(outbox, body)
        return super()._with_signatures(outbox, attempt, what)


class WrongWord(WrongShare, LiesAboutPairMasks):
    """Its pair masks are wrong, and it confirms a neighbour with a wrong word."""

    what = "word"


class WrongSeed(WrongWord):
    """Its pair masks are wrong, and it shows a seed that is not the pledged one."""

    what = "seed"


class WrongCommitment(Liar):
    """It commits itself to another self secret than its shares give."""

    def _masked(self, vectors: Any, *others: Any) -> Outbox:
        outbox = super()._masked(vectors, *others)
        body = outbox.batch.body.copy()
        body[:, vectors.shape[1] * self.fixed.wire] ^= 1
        return with_body(outbox, body)


class Disagrees(Liar):
    """Its pledges differ from those of its first neighbours."""

    pairs = 1

    def _pledges(self, keys: Any, of: Any) -> Any:
        found = super()._pledges(keys, of).copy()
        found[self._pairs.of[0, : self.pairs], 0] ^= 1
        return found


class DisagreesWithMany(Disagrees):
    """Its pledges differ from those of more neighbours than liars can frame."""

    pairs = 5


@pytest.mark.parametrize("width", [40, 300])
@pytest.mark.parametrize(
    ("liar", "why"),
    [
        (SendsLarge, "signature is wrong"),
        (SendsOldProof, "signature is wrong"),
        (SignsLarge, "not proved to be short"),
        (LiesAboutPairMasks, "masks are not those of its seeds"),
        (LiesAboutSelfMask, "commitment is not to its self mask"),
        (WrongCommitment, "shares do not give the secret"),
        (DisagreesWithMany, "pledges differ"),
        (WrongWord, "word that it had not pledged"),
        (WrongSeed, "seed that it had not pledged"),
    ],
)
def test_a_liar_is_excluded_and_the_sum_is_formed_without_it(
    liar: type[Liar], why: str, width: int
) -> None:
    outcome = run({LIAR: liar}, width)
    assert list(outcome.excluded) == [LIAR]
    assert why in outcome.excluded[LIAR]
    check_sum(outcome, (LIAR,), width)


def test_an_excluded_device_is_in_no_further_sum() -> None:
    outcome = run({LIAR: LiesAboutSelfMask}, sums=3)
    assert list(outcome.excluded) == [LIAR]
    check_sum(outcome, (LIAR,))
    assert list(outcome.party.evidence) == [LIAR]


@pytest.mark.parametrize("liar", [Silent, NoVector])
def test_a_silent_device_is_left_out_of_the_sum_only(liar: type[Liar]) -> None:
    outcome = run({LIAR: liar})
    assert not outcome.excluded
    check_sum(outcome, (LIAR,))


def test_a_device_that_gives_out_a_wrong_share_is_named_and_its_vector_counts() -> None:
    outcome = run({LIAR: WrongShare})
    assert list(outcome.excluded) == [LIAR]
    assert "share that it had not pledged" in outcome.excluded[LIAR]
    expected = some_vectors(40).sum(axis=0)
    for device, totals in enumerate(outcome.totals):
        if device != LIAR:
            np.testing.assert_allclose(totals[0], expected, atol=1e-8)


def test_a_pair_that_disagrees_is_left_out_and_nobody_is_excluded() -> None:
    outcome = run({LIAR: Disagrees})
    assert not outcome.excluded
    check_sum(outcome, ())


class ShiftsUp(LiesAboutPairMasks):
    """It moves mass to a colluding device."""


class ShiftsDown(LiesAboutPairMasks):
    """It takes the mass that a colluding device moved."""

    def _masked(self, vectors: Any, *others: Any) -> Outbox:
        return BoundedAggregator._masked(self, vectors - LARGE, *others)

    def _projected(self, attempt: Any, secrets: Any, drawn: bytes, width: int) -> Any:
        masked, own, pair = BoundedAggregator._projected(self, attempt, secrets, drawn, width)
        return masked, own, [self._shifted(pair[0], width, drawn, -1)]


def test_colluding_devices_can_only_shift_between_themselves() -> None:
    outcome = run({LIAR: ShiftsUp, OTHER: ShiftsDown})
    assert not outcome.excluded
    check_sum(outcome, ())  # what one adds the other takes away


class Sacrifices(ShiftsDown):
    """It claims another self mask too, and is caught: the other one's numbers would stay."""

    def _masked(self, vectors: Any, *others: Any) -> Outbox:
        return BoundedAggregator._masked(self, vectors, *others)

    def _projected(self, attempt: Any, secrets: Any, drawn: bytes, width: int) -> Any:
        masked, own, pair = super()._projected(attempt, secrets, drawn, width)
        return masked, [self._shifted(own[0], width, drawn)], pair


@pytest.mark.parametrize("width", [40, 300])
def test_a_liar_that_is_caught_on_purpose_leaves_nothing_for_another(width: int) -> None:
    outcome = run({LIAR: ShiftsUp, OTHER: Sacrifices}, width)
    assert list(outcome.excluded) == [OTHER]
    for totals in (outcome.coordinator, outcome.totals[0]):
        assert np.isnan(totals[0]).all()  # left out by all, not off by what the other one added


def test_a_liar_protected_by_silence_spoils_one_sum_and_is_named() -> None:
    class Withholds(Liar):
        def changed(self, outbox: Outbox) -> Outbox:
            return SEEDS.nothing() if outbox.topic is SEEDS else outbox

    # A mask neighbour of the liar: whoever that is.
    everyone = {device: Withholds for device in range(TOTAL) if device != LIAR}
    outcome = run({**everyone, LIAR: LiesAboutSelfMask})
    assert np.isnan(outcome.coordinator[0]).all()
    assert np.isnan(outcome.totals[OTHER][0]).all()
    assert list(outcome.excluded) == [LIAR]


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_reveals_a_seed_for_false_evidence(kind: str) -> None:
    frames: Any = type("Frames", (FramingCoordinator,), {"kind": kind, "victim": OTHER})
    run({}, coordinator=frames)
    assert frames.revealed
    assert not any(frames.revealed)


@pytest.mark.parametrize("blamed", [1, 2, 4, 7, 10, 13, 19])
def test_told_different_decisions_devices_give_out_one_of_two_secrets(blamed: int) -> None:
    assert not unmasked(blamed, order=np.random.default_rng(blamed).permutation(DEVICES))


def test_without_confirmations_both_secrets_of_a_device_would_be_given_out() -> None:
    assert unmasked(1, NeedsNobody, np.random.default_rng(1).permutation(DEVICES))


def test_a_device_records_what_it_does_before_it_says_so() -> None:
    events: list[tuple[str, int]] = []

    class Watches(Liar):
        def _record(self, attempt: Any, step: int, what: bytes) -> None:
            super()._record(attempt, step, what)
            events.append((what.decode(), attempt.of.number))
            other = Opening(step - 1, attempt.of.number, bytes(32))
            with pytest.raises(AlreadyOpened):
                self.opened.open(other)

        def changed(self, outbox: Outbox) -> Outbox:
            if outbox.topic in (ALIVE, REVEAL) and outbox.batch.messages:
                events.append((outbox.topic.name, self._pairs.number - 1))
            return outbox

    run({LIAR: LiesAboutPairMasks, OTHER: Watches})
    blame = [("blame", 0), ("aggregate/alive", 0), ("aggregate/reveal", 0)]
    assert events == [*blame, ("open", 1), ("aggregate/reveal", 1)]


def test_equal_secrets_have_other_lifts_as_self_secrets_and_as_seeds() -> None:
    secret, challenge = np.arange(8, dtype=np.uint16), bytes(32)
    seed = secret.view(np.uint32)
    [own] = with_self_lifts([[0] * 5], secret[None], challenge, 56)
    pair = with_pair_lifts([0] * 5, seed[None], np.array([True]), challenge, 56)
    assert not set(own) & set(pair)


@pytest.mark.parametrize("liar", [SendsLarge, LiesAboutPairMasks])
def test_a_restarted_device_replays_the_attempts_before_the_one_that_it_opened(
    liar: type[Liar],
) -> None:
    """A liar made a second attempt necessary; a device crashed after it opened that one."""
    records: list[Opening] = []

    class Keeps(Liar):
        before: tuple[Opening, ...] = ()

        def setup(self) -> Program[None]:
            yield from super().setup()
            self.opened = OpenedSums(self.before, records.append)

    check_sum(run({LIAR: liar, OTHER: Keeps}), (LIAR,))
    assert records[-1].number == 1
    Keeps.before, count = tuple(records), len(records)
    check_sum(run({LIAR: liar, OTHER: Keeps}), (LIAR,))
    assert len(records) == count  # nothing new is opened
    # It opens no earlier attempt, and takes part in no later one.
    opened, step = OpenedSums(records), records[-1].step
    with pytest.raises(AlreadyOpened):
        opened.open(Opening(step, 0, bytes(32)))
    assert not opened.has(step, before=1)
    assert opened.has(step, before=2)


def test_without_proofs_a_sum_is_the_plain_one() -> None:
    topics = set()

    class Watches(Liar):
        def sum(self, *arguments: Any, **named: Any) -> Program[Any]:
            topics.add("plain")
            return super().sum(*arguments, **named)

    outcome = run({0: Watches}, proofs=False)
    check_sum(outcome, ())
    assert topics == {"plain"}
