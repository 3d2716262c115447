"""Evidence against liars: it holds for anybody, in one form only, and for no honest device."""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import product
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from tests.secagg.federation import drawn_graph
from tests.secagg.test_bounded import (
    LIAR,
    OTHER,
    TOTAL,
    DisagreesWithMany,
    Liar,
    LiesAboutPairMasks,
    LiesAboutSelfMask,
    SignsLarge,
    WrongCommitment,
    WrongSeed,
    WrongShare,
    WrongWord,
    run,
)
from tests.secagg.test_bounded_attacks import PARAMETERS, shares_of

from lumos.device import Shard
from lumos.errors import InputError
from lumos.exchange import Program
from lumos.secagg import evidence, masks, signing
from lumos.secagg.bounded import BoundedCoordinator
from lumos.secagg.evidence import AnyEvidence, Attempt, EvidenceFile
from lumos.secagg.topics import REVEAL

LIES = {
    DisagreesWithMany: "pledges",
    SignsLarge: "proof",
    LiesAboutPairMasks: "masks",
    LiesAboutSelfMask: "commitment",
    WrongCommitment: "shares",
    WrongShare: "answer",
    WrongWord: "answer",
    WrongSeed: "answer",
}
"""Every lie of which there is evidence, and its kind."""

LABELS = {kind: str(kind.__struct_config__.tag) for kind in get_args(AnyEvidence)}
replaced = msgspec.structs.replace


def changes(value: Any) -> Iterator[Any]:
    """Everything else that an entry of a file could be: one change in one place."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from (replaced(value, **{name: other}) for other in changes(getattr(value, name)))
    elif isinstance(value, bytes):
        yield from (b"", value[:-1], value + b"\0", bytes(len(value)), value[::-1])
        for place in {0, len(value) // 2, len(value) - 1} if value else ():
            yield value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
    elif isinstance(value, int):
        yield from (value - 1, value + 1, -value - 1, value + (1 << 63), 0)
    elif isinstance(value, str):
        yield from (value + ".", "share" if value == "word" else "word")
    elif isinstance(value, list | tuple):
        if isinstance(value, list):
            yield from (value[:-1], value[1:], value + value[-1:], value[::-1])
        for place, one in enumerate(value):
            for other in changes(one):
                yield type(value)([*value[:place], other, *value[place + 1 :]])
    else:
        raise AssertionError(f"no way to change {value!r}")


@pytest.mark.parametrize("liar", LIES)
def test_a_lie_leaves_evidence_that_holds_in_one_form_only(liar: type[Liar]) -> None:
    outcome = run({LIAR: liar})
    [(device, file)] = outcome.party.evidence.items()
    assert device == LIAR == file.device
    assert LABELS[type(file.case)] == LIES[liar]
    assert file.lie == outcome.excluded[LIAR]
    assert file.proves()
    assert EvidenceFile.read(file.packed()) == file
    # Only the digest of the plan says nothing by itself: certified signatures cover it.
    for other in changes(replaced(file, plan=b"")):
        try:
            read = EvidenceFile.read(other.packed())
        except (OverflowError, InputError):
            continue
        assert read == replaced(file, plan=other.plan) or not read.proves(), other


# Framing an honest device. A lying coordinator has everything that devices sent it, also in runs
# that it made them replay after a restart: other devices are left out, or are told other sums.


class Keeps(BoundedCoordinator):
    """It keeps what everybody sent, by attempt."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.pledged: list[tuple[Attempt, dict[int, bytes]]] = []
        self.sent: list[Any] = []
        self.answers: dict[tuple[int, str], tuple[bytes, bytes]] = {}
        self.secrets: dict[int, Any] = {}

    def _pledged(self, messages: Any, form: Any, number: int) -> Any:
        found = super()._pledged(messages, form, number)
        self.pledged.append((found[0], messages))
        return found

    def _gather(self, form: Any, silent: Any) -> Program[Any]:
        attempt = yield from super()._gather(form, silent)
        self.sent.append(attempt)
        return attempt

    def _answers(self, inbox: Any, attempt: Any, expected: Any, what: Any) -> Any:
        for row in np.flatnonzero(inbox.sender == OTHER).tolist():
            lengths = inbox.batch.lengths
            body = inbox.body[row] if lengths is None else inbox.body[row, : lengths[row]]
            whole = body.tobytes()
            size = len(whole) - signing.SIGNATURE
            self.answers[len(self.sent) - 1, what] = whole[:size], whole[size:]
        return super()._answers(inbox, attempt, expected, what)

    def _self_secrets(self, attempt: Any, shown: Any) -> Any:
        found: Any = super()._self_secrets(attempt, shown)
        given = shares_of(attempt, shown, OTHER)
        self.secrets[len(self.sent) - 1] = found[0].get(OTHER), given
        return found


class ToldOtherwise(Liar):
    """An honest device to which the coordinator sent other sums than to all others."""

    def setup(self) -> Program[None]:
        yield from super().setup()
        self.context = b"other sums"


FRAMEABLE = 2 * PARAMETERS.threshold - PARAMETERS.neighbours - 1
NEIGHBOURS = drawn_graph(TOTAL, PARAMETERS.neighbours).of(np.array([OTHER]))[0].tolist()
assert LIAR not in NEIGHBOURS
assert FRAMEABLE == 3


class Frames(Liar):
    """Its pledges for the pair with the honest device differ from that one's."""

    def _pledges(self, keys: Any, of: Any) -> Any:
        found = super()._pledges(keys, of).copy()
        slot = int(np.flatnonzero(self._neighbours[0] == OTHER)[0])
        found[self._pairs.of[0, slot], 0] ^= 1
        return found


class Unheard(Liar):
    """An honest device that the key of one more neighbour did not reach."""

    def _agree(self, received: Any) -> None:
        received[0, FRAMEABLE] = 0
        super()._agree(received)


class Sent:
    """What all devices sent in one attempt, as far as it is against one of them."""

    def __init__(self, party: Any, number: int) -> None:
        facts, messages = party.pledged[number]
        size = masks.PLEDGE_BYTES * PARAMETERS.neighbours
        known = {device: body[size:-64] for device, body in messages.items()}
        self.facts = replaced(facts, context=known[OTHER])
        self.others = facts
        self.pledges = {device: (body[:size], body[-64:]) for device, body in messages.items()}
        attempt = party.sent[number]
        self.proved = OTHER in attempt.proofs
        if self.proved:
            self.record: evidence.Signed = attempt.record(OTHER)
            self.vector, self.proof = attempt.vector(OTHER), attempt.proof(OTHER)
            self.present = attempt.holders[OTHER]
        self.answers = {
            what: given for (place, what), given in party.answers.items() if place == number
        }
        self.secret, self.shares = party.secrets.get(number, (None, None))


Memory = dict[tuple[int, bytes], tuple[Attempt, bytes, tuple[bytes, ...]]]
"""What each device has signed, by its signature."""


@pytest.fixture(scope="module")
def known() -> tuple[list[Sent], Memory]:
    """What a lying coordinator has against an honest device, of 6 replays of one run."""
    memory: Memory = {}
    original = Attempt.sign

    def private_keys(self: Shard, purpose: str, run: bytes) -> list[bytes]:
        """As real devices, which keep a secret: the same key in every replay."""
        assert purpose == "masked sums"
        return [blake2b(b"%d" % one, key=run).digest()[:32] for one in self.devices.tolist()]

    def sign(self: Attempt, device: int, what: bytes, *parts: bytes) -> bytes:
        signature = original(self, device, what, *parts)
        memory[device, signature] = self, what, parts
        return signature

    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Attempt, "sign", sign)
        patch.setattr(Shard, "private_keys", private_keys)
        replays: list[tuple[dict[int, Any], int]] = [
            ({LIAR: LiesAboutPairMasks}, 40),
            ({NEIGHBOURS[0]: DisagreesWithMany}, 40),  # it holds shares of fewer
            ({OTHER: ToldOtherwise}, 40),
            (dict.fromkeys(NEIGHBOURS[:FRAMEABLE], Frames), 40),
            ({**dict.fromkeys(NEIGHBOURS[:FRAMEABLE], Frames), OTHER: Unheard}, 40),
            ({}, 41),
        ]
        for liars, width in replays:
            party = run(liars, width, coordinator=Keeps).party
            assert OTHER not in party.evidence
            found += [Sent(party, number) for number in range(len(party.sent))]
    assert len({sent.facts.form.seed for sent in found}) == 1  # one run
    assert {what for sent in found for what in sent.answers} == {"share", "word", "seed"}
    return found, memory


def forms(sent: list[Sent]) -> list[Attempt]:
    """The attempts that there were, and the same with other numbers."""
    attempts = list(dict.fromkeys(one for some in sent for one in (some.facts, some.others)))
    first = attempts[0]
    more = {"bound": 1, "width": 39, "bits": 40, "threshold": PARAMETERS.threshold - 1}
    made = [replaced(first.form, **{name: number}) for name, number in more.items()]
    return [*attempts, *(replaced(first, form=form) for form in made)]


def accusations(sent: list[Sent]) -> Iterator[tuple[AnyEvidence, Attempt]]:
    """Every piece of evidence against the honest device that can be put together."""
    full = [one for one in sent if one.proved]
    for attempt in forms(sent):
        count = attempt.form.frameable + 1
        for own, theirs in product(sent, sent):
            slots = [
                slot
                for slot, other in enumerate(NEIGHBOURS)
                if other in theirs.pledges and theirs.pledges[other][0] != sent[0].pledges[other][0]
            ] or [*range(len(NEIGHBOURS))]
            for chosen in (slots, [*range(len(NEIGHBOURS))]):
                others = [
                    (slot, *theirs.pledges[NEIGHBOURS[slot]])
                    for slot in chosen[:count]
                    if NEIGHBOURS[slot] in theirs.pledges
                ]
                yield evidence.DifferingPledges(OTHER, *own.pledges[OTHER], others), attempt
        for one, other in product(full, full):
            record, pledge = one.record, other.pledges[OTHER][0]
            yield evidence.InvalidProof(OTHER, record, one.vector, other.proof), attempt
            yield evidence.InvalidProof(OTHER, record, other.vector, one.proof), attempt
            if other.secret is not None:
                yield evidence.WrongCommitment.of(OTHER, record, other.secret), attempt
                for here in (one.present, other.present):
                    answers = evidence.SharesOf(OTHER, other.shares, here, here, record.published)
                    for count in (PARAMETERS.threshold, attempt.form.threshold):
                        yield evidence.WrongShares.of(answers, record, pledge, count), attempt
            for what, (given, signature) in other.answers.items():
                for named in dict.fromkeys((what, "share", "seed")):
                    yield (
                        evidence.WrongAnswer(OTHER, record, pledge, named, given, signature),
                        attempt,
                    )
                if what == "seed":
                    content = one.vector, one.proof, pledge, given
                    yield evidence.OtherMasks(OTHER, record, *content), attempt


def framed(sent: list[Sent]) -> set[str]:
    """Return the kinds of evidence that hold against an honest device."""
    return {LABELS[type(case)] for case, attempt in accusations(sent) if case.holds(attempt)}


def test_nobody_frames_an_honest_device(known: tuple[list[Sent], Memory]) -> None:
    assert framed(known[0]) == set()


@pytest.mark.parametrize(
    ("left_out", "kinds"),
    [
        ("form", {"pledges", "proof"}),
        ("context", {"pledges"}),
        ("number", {"pledges", "proof"}),
        ("holders", {"answer"}),
        ("what", {"answer"}),
    ],
)
def test_signatures_that_cover_less_would_frame_it(
    known: tuple[list[Sent], Memory],
    monkeypatch: pytest.MonkeyPatch,
    left_out: str,
    kinds: set[str],
) -> None:
    """The broken variants: signatures without one of the things that they cover."""
    sent, memory = known

    def signed(self: Attempt, signature: bytes, device: int, what: bytes, *parts: bytes) -> bool:
        if (device, signature) not in memory:
            return False

        def covered(attempt: Attempt, what: bytes, parts: tuple[bytes, ...]) -> Any:
            content: dict[str, Any] = {"what": what, "number": attempt.number}
            content |= {"form": attempt.form, "context": attempt.context}
            content |= {str(place): part for place, part in enumerate(parts)}
            if left_out == "holders" and what in (b"share", b"word", b"seed"):
                del content["1"]  # see `answer_parts`
            content.pop(left_out, None)
            return content

        return bool(covered(*memory[device, signature]) == covered(self, what, parts))

    monkeypatch.setattr(Attempt, "signed", signed)
    assert framed(sent) >= kinds


def test_zeros_as_a_lie_would_frame_it(
    known: tuple[list[Sent], Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: what a device cannot pledge, for want of a key, counts as different."""
    monkeypatch.setattr(evidence, "differ", lambda own, theirs: bool((own != theirs).any()))
    assert framed(known[0]) == {"pledges"}


def test_an_attempt_with_an_invalid_proof_is_never_opened() -> None:
    """Masked vectors may be shown then: no self secret is opened."""
    gave: list[tuple[int, int]] = []

    class Watches(Liar):
        def changed(self, outbox: Any) -> Any:
            if outbox.topic is REVEAL and outbox.batch.messages:
                gave.append((int(self._shard.devices[0]), self._pairs.number - 1))
            return outbox

    everyone: dict[int, Any] = {device: Watches for device in range(TOTAL) if device != LIAR}
    party = run({**everyone, LIAR: SignsLarge}).party
    assert party.evidence[LIAR].attempt.number == 0
    assert {number for _, number in gave} == {1}
    assert {device for device, _ in gave} == set(everyone)
