"""Sums with proofs: short summands, liars excluded, honest devices never."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.secagg.federation import drawn_graph, shards_of

from lumos.crypto import shortness
from lumos.exchange import EVERY_DOOR, Endpoint, Outbox, Program
from lumos.exchange.messages import Batch
from lumos.exchange.transports.loopback import Loopback
from lumos.secagg import AggregateSettings, evidence, masks, signing
from lumos.secagg.bounded import BLAME, OPEN, BoundedAggregator, BoundedCoordinator
from lumos.secagg.evidence import Evidence
from lumos.secagg.parameters import mask_parameters
from lumos.secagg.topics import ALIVE, DECISION, MASKED, PROOF, REVEAL, SEEDS

TOTAL, LIAR, OTHER = 14, 3, 8
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
    liars: dict[int, type[BoundedAggregator]],
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

    transport = Loopback(shards_of(TOTAL, TOTAL), EVERY_DOOR)
    totals, opened = transport.run(devices, coordinating)
    return Outcome(totals, opened, parties[0])


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

    def _prove(self, attempt: Any, *others: Any) -> list[bytes]:
        size = shortness.proof_size(min(others[1], shortness.ROWS)) + signing.SIGNATURE
        return [bytes(size)]


class SendsOldProof(SendsLarge):
    """It proves something else, and signs it."""

    def _prove(self, attempt: Any, challenge: bytes, width: int, bound: float) -> list[bytes]:
        attempt.masked = BoundedAggregator._masked(
            self,
            np.zeros((1, width)),
            None,
            attempt.rows,
            attempt.keys,
            attempt.values,
            attempt.joined,
            attempt.of,
        )
        return BoundedAggregator._prove(self, attempt, challenge, width, bound)


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
    """It gives out one wrong share."""

    def changed(self, outbox: Outbox) -> Outbox:
        if outbox.topic is not REVEAL or not outbox.batch.messages:
            return outbox
        body = outbox.batch.body.copy()
        body[:, 0] ^= 1
        return with_body(outbox, body)


class WrongWord(Liar):
    """It confirms a neighbour with a wrong word."""

    def changed(self, outbox: Outbox) -> Outbox:
        if outbox.topic is not ALIVE or not outbox.batch.messages:
            return outbox
        body = outbox.batch.body.copy()
        body[:, np.flatnonzero(body[0])[0]] ^= 1
        return with_body(outbox, body)


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

    def changed(self, outbox: Outbox) -> Outbox:
        return outbox

    def _pledge(self, step: int) -> Program[Any]:
        original = masks.pledges

        def other(*arguments: Any) -> Any:
            found = original(*arguments).copy()
            found[self._pairs.of[0, : self.pairs], 0] ^= 1
            return found

        masks.pledges = other  # type: ignore[assignment]
        try:
            program = super()._pledge(step)
            outbox = next(program)
        finally:
            masks.pledges = original
        while True:
            inbox = yield outbox
            try:
                outbox = program.send(inbox)
            except StopIteration as stop:
                return stop.value


class DisagreesWithMany(Disagrees):
    """Its pledges differ from those of more neighbours than liars can frame."""

    pairs = 5


@pytest.mark.parametrize("width", [40, 300])
@pytest.mark.parametrize(
    ("liar", "why"),
    [
        (SendsLarge, "signature is wrong"),
        (SendsOldProof, "signature is wrong"),
        (LiesAboutPairMasks, "masks are not those of its seeds"),
        (LiesAboutSelfMask, "commitment is not to its self mask"),
        (WrongCommitment, "shares do not give the secret"),
        (DisagreesWithMany, "pledges differ"),
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
    assert len(outcome.party.cases) == 1


@pytest.mark.parametrize("liar", [Silent, NoVector])
def test_a_silent_device_is_left_out_of_the_sum_only(liar: type[Liar]) -> None:
    outcome = run({LIAR: liar})
    assert not outcome.excluded
    check_sum(outcome, (LIAR,))


@pytest.mark.parametrize(
    ("liar", "why"), [(WrongShare, "share that it had not pledged"), (WrongWord, "wrong word")]
)
def test_a_device_that_spoils_the_opening_is_named_and_its_vector_counts(
    liar: type[Liar], why: str
) -> None:
    outcome = run({LIAR: liar})
    assert list(outcome.excluded) == [LIAR]
    assert why in outcome.excluded[LIAR]
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


class Frames(BoundedCoordinator):
    """It makes up evidence against an honest device, from what it has."""

    victim = OTHER
    kind = "commitment"
    revealed: bytes = b""

    def _wrong_commitments(self, attempt: Any, secrets: Any) -> list[Evidence]:
        record, signature = self._signed(attempt, self.victim)
        secret = secrets[self.victim]
        if self.kind == "commitment":
            return [Evidence.of_commitment(record, self.victim, secret, signature)]
        if self.kind == "other commitment":
            changed = record._replace(commitment=bytes(48))
            return [Evidence.of_commitment(changed, self.victim, secret, signature)]
        changed_secret = secret.copy()
        changed_secret[0] ^= 1
        return [Evidence.of_commitment(record, self.victim, changed_secret, signature)]

    def _liars_seeds(self, attempt: Any, liars: Any, sent: dict[int, bytes]) -> Any:
        type(self).revealed = b"".join(sent.values())
        return None


@pytest.mark.parametrize("kind", ["commitment", "other commitment", "other secret"])
def test_nobody_reveals_a_seed_for_false_evidence(kind: str) -> None:
    Frames.kind = kind
    run({}, coordinator=Frames)
    assert Frames.revealed
    assert not any(Frames.revealed)


def test_true_evidence_holds_for_anybody_and_no_field_can_change() -> None:
    for liar in (LiesAboutSelfMask, WrongCommitment):
        outcome = run({LIAR: liar})
        [case] = outcome.party.cases
        party = outcome.party
        of = masks.SumId(party._run, party._number - 1)
        arguments = (
            party._graph,
            party.parameters.threshold,
            of,
            case.signed.challenge,
            party.fixed,
            40,
        )
        assert case.holds(*arguments)
        [decoded] = evidence.decode(evidence.encode([case]))
        assert decoded == case
        for name in case.__struct_fields__:
            value = getattr(case, name)
            if isinstance(value, bytes) and value and name != "answering":  # enough of them do
                changed = bytes([value[0] ^ 1]) + value[1:]
                broken = changed_case(case, **{name: changed})
                assert not broken.holds(*arguments), (liar, name)
        assert not changed_case(case, device=OTHER).holds(*arguments)


def changed_case(case: Evidence, **changes: Any) -> Evidence:
    """The evidence with other fields."""
    fields = {name: getattr(case, name) for name in case.__struct_fields__}
    return Evidence(**{**fields, **changes})


class Revealed(Exception):
    """What devices gave out when they were told different decisions."""

    def __init__(self, senders: list[int]) -> None:
        super().__init__()
        self.senders = set(senders)


class Splits(BoundedCoordinator):
    """It tells some devices to open, and others to show their seeds."""

    blamed: tuple[int, ...] = ()

    def sum(self, width: int, noise: Any = None, bound: Any = None) -> Program[Any]:
        silent = np.zeros(TOTAL, np.bool_)
        attempt = yield from self._gather(width, silent)
        assert (yield from self._judge(attempt, BOUND, silent)) == OPEN
        words = np.full(TOTAL, OPEN, np.uint8)
        words[list(self.blamed)] = BLAME
        yield DECISION.from_coordinator(np.arange(TOTAL), words)
        inbox = yield ALIVE.nothing()
        alive = np.zeros(TOTAL, np.bool_)
        alive[inbox.sender] = True
        blamed = np.isin(np.arange(TOTAL), self.blamed)
        sent = inbox.body.reshape(len(inbox.sender), -1, masks.WORD).copy()
        to = self._graph.of(inbox.sender)
        sent[blamed[inbox.sender][:, None] != blamed[to]] = 0  # words of the same decision only
        yield self._relay(alive, sent.reshape(len(sent), -1))
        raise Revealed((yield REVEAL.nothing()).sender.tolist())


@pytest.mark.parametrize("blamed", [1, 2, 4, 7, 10, 13])
def test_told_different_decisions_devices_give_out_one_of_two_secrets(blamed: int) -> None:
    order = np.random.default_rng(blamed).permutation(TOTAL)
    Splits.blamed = tuple(order[:blamed].tolist())
    with pytest.raises(Revealed) as raised:
        run({}, coordinator=Splits)
    graph = drawn_graph(TOTAL, mask_parameters(SETTINGS, TOTAL).neighbours)
    threshold = mask_parameters(SETTINGS, TOTAL).threshold
    opening = raised.value.senders - set(Splits.blamed)
    for device in raised.value.senders & set(Splits.blamed):  # its seeds are known
        holders = set(graph.of(np.array([device]))[0].tolist())
        assert len(holders & opening) < threshold


def test_without_proofs_a_sum_is_the_plain_one() -> None:
    topics = set()

    class Watches(Liar):
        def sum(self, *arguments: Any, **named: Any) -> Program[Any]:
            topics.add("plain")
            return super().sum(*arguments, **named)

    outcome = run({0: Watches}, proofs=False)
    check_sum(outcome, ())
    assert topics == {"plain"}
