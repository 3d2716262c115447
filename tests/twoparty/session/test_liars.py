"""One device lies in a message of a session: its peers lose that answer, and nobody anything else.

Every device is a shard of its own. The liar, device 2 of a path of five, is S towards 3 and R
towards 1. Whatever it sends in whichever round, all devices come to the end, all pairs without the
liar get the right answers, and what honest devices send has the same lengths as in an honest run.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.session_doubles import Toy

from lumos.crypto.groups import SECP256K1
from lumos.device import Shard, cut
from lumos.exchange import EVERY_DOOR, Batch, Endpoint, Outbox, Program
from lumos.exchange.endpoint import changed, idle_program
from lumos.exchange.transports.loopback import Loopback
from lumos.graph import Graph
from lumos.twoparty import comparison
from lumos.twoparty.comparer import SecureComparer
from lumos.twoparty.comparison import Kind, Receiver, Sender, Spec, outcome
from lumos.twoparty.lookup import Lookup, Query, SenderKeys, _pads
from lumos.twoparty.score import (
    UNANSWERED,
    LevelSpec,
    ScoreReceiver,
    ScoreSender,
    SecureScorer,
)
from lumos.twoparty.workers import ComparedPairs, InProcess

DEVICES, LIAR = 5, 2
VALUES = np.array([3, 9, 9, 1, 4])
VECTORS = np.random.default_rng(0).integers(-4, 4, (DEVICES, 6)).astype(np.int8)
SPEC = LevelSpec(width=6, bits=4, ring_bits=8, thresholds=(-6, 0, 6))
BATCHES = 2
"""Each pair compares twice: the second time in a session that may be closed."""

Answers = dict[tuple[int, int], list[int]]
"""By device and peer."""


def compare(kind: str, bits: int) -> Callable[[Shard, Endpoint], Program[Answers]]:
    def program(shard: Shard, endpoint: Endpoint) -> Program[Answers]:
        comparer = SecureComparer(shard, endpoint, InProcess(), group=SECP256K1)
        pairs = ComparedPairs.of_slots(shard, np.arange(len(shard.neighbours)))
        answers: Answers = {(int(shard.devices[0]), int(peer)): [] for peer in pairs.peers}
        for batch in range(BATCHES):
            values = (VALUES[shard.devices] + batch)[pairs.rows]
            learned = yield from getattr(comparer, kind)(pairs, values, bits)
            for place, key in enumerate(answers):
                answers[key].append(int(learned[place]))
        return answers

    return program


def score(shard: Shard, endpoint: Endpoint) -> Program[Answers]:
    scorer = SecureScorer(shard, endpoint, InProcess(), group=SECP256K1)
    pairs = ComparedPairs.of_slots(shard, np.arange(len(shard.neighbours)))
    answers: Answers = {(int(shard.devices[0]), int(peer)): [] for peer in pairs.peers}
    for _ in range(BATCHES):
        learned = yield from scorer.levels(pairs, VECTORS[shard.devices], SPEC)
        for place, key in enumerate(answers):
            answers[key].append(int(learned[place]))
    return answers


PROTOCOLS: dict[str, tuple[Callable[[Shard, Endpoint], Program[Answers]], set[int]]] = {
    "less, 4 bits": (compare("less", 4), {0, 1}),
    "three-way, 8 bits": (compare("three_way", 8), {-1, 0, 1}),
    "three-way, 16 bits": (compare("three_way", 16), {-1, 0, 1}),
    "score": (score, {UNANSWERED, 0, 1, 2, 3}),
}
"""Programs, and what an honest device may end with."""


def path() -> list[Shard]:
    edges = np.stack([np.arange(DEVICES - 1), np.arange(1, DEVICES)], axis=1)
    return cut(Graph.from_edges(edges, devices=DEVICES), DEVICES, seed=0)


class Wire:
    """Runs a protocol; the liar's messages of one round are changed."""

    def __init__(
        self, name: str, round_: int = -1, lie: Callable[[Batch], Batch] | None = None
    ) -> None:
        program, _ = PROTOCOLS[name]
        self.sent: dict[int, list[list[int]]] = {}
        self.rounds = 0

        def device(shard: Shard, endpoint: Endpoint) -> Program[Answers]:
            own, number = int(shard.devices[0]), 0
            lengths = self.sent.setdefault(own, [])

            def change(outbox: Outbox) -> Outbox:
                nonlocal number
                number += 1
                if own == LIAR and number - 1 == round_ and lie is not None:
                    return Outbox(outbox.topic, lie(outbox.batch))
                batch = outbox.batch
                lengths.append([] if batch.lengths is None else batch.lengths.tolist())
                return outbox

            return changed(program(shard, endpoint), change)

        results, _ = Loopback(path(), EVERY_DOOR).run(device, lambda _: idle_program())
        self.answers: Answers = {key: got for part in results for key, got in part.items()}
        self.rounds = len(self.sent[0])


def _body(batch: Batch, body: Any, lengths: Any = None) -> Batch:
    lengths = batch.lengths if lengths is None else lengths
    return Batch(batch.sender, batch.receiver, body, None, lengths)


def nothing(batch: Batch) -> Batch:
    return batch.take(np.arange(0))


def twice(batch: Batch) -> Batch:
    return batch.take(np.repeat(np.arange(batch.messages), 2))


def flipped(batch: Batch) -> Batch:
    return _body(batch, batch.body ^ np.uint8(1))


def zeros(batch: Batch) -> Batch:
    return _body(batch, np.zeros_like(batch.body))


def noise(batch: Batch) -> Batch:
    randomness = np.random.default_rng(1)
    return _body(batch, randomness.integers(0, 256, batch.body.shape, np.uint8))


def shorter(batch: Batch) -> Batch:
    assert batch.lengths is not None
    body = batch.body.copy()
    body[:, -1] = 0
    return _body(batch, body, np.maximum(batch.lengths - 1, 0))


def longer(batch: Batch) -> Batch:
    assert batch.lengths is not None
    return _body(batch, np.pad(batch.body, ((0, 0), (0, 1))), batch.lengths + 1)


def to_others(batch: Batch) -> Batch:
    """To devices that do not compare with it."""
    receiver = np.where(batch.receiver < LIAR, 0, 4)
    return Batch(batch.sender, receiver, batch.body, None, batch.lengths)


LIES = [nothing, twice, flipped, zeros, noise, shorter, longer, to_others]


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_in_any_message_costs_the_liars_pairs_only(
    name: str, lie: Callable[[Batch], Batch]
) -> None:
    honest = Wire(name)
    possible = PROTOCOLS[name][1]
    for number in range(honest.rounds):
        lied = Wire(name, number, lie)
        assert lied.answers.keys() == honest.answers.keys()
        for (device, peer), got in lied.answers.items():
            if LIAR not in (device, peer):
                assert got == honest.answers[device, peer]
            if device != LIAR:
                assert set(got) <= possible
        for device in set(range(DEVICES)) - {LIAR}:
            assert lied.sent[device] == honest.sent[device]


def test_a_refused_message_ends_the_answers_of_its_pair() -> None:
    """A liar that is caught in the first batch gets no second chance in the same session."""
    honest = Wire("three-way, 8 bits")
    lied = Wire("three-way, 8 bits", 1, zeros)  # points that R sends, or tables
    assert lied.answers[1, LIAR] == [0, 0] or lied.answers[3, LIAR] == [0, 0]
    assert honest.answers[1, 0] == lied.answers[1, 0]


def test_scores_of_a_caught_liar_are_unanswered_and_the_next_session_is_new() -> None:
    lied = Wire("score", 2, shorter)
    caught = [lied.answers[device, LIAR] for device in (1, 3)]
    assert any(levels[0] == UNANSWERED and levels[1] != UNANSWERED for levels in caught)


# A liar chooses its tables: what it learns is one outcome of those that are declared.


def conversation(sender: Any, receiver: Any) -> None:
    """Both ends to the end of a batch in a new session."""
    message, speaker, listener = sender.step(), receiver, sender
    while message is not None:
        message, speaker, listener = speaker.step(message), listener, speaker


@pytest.mark.parametrize("kind", list(Kind))
def test_any_table_of_a_comparison_shows_one_of_the_declared_outcomes(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S fills its table at random, with words that mean nothing too: R never stops, whatever y."""
    spec, randomness = Spec(4, kind), np.random.default_rng(0)
    table = randomness.integers(0, 2, (spec.outputs, 16), np.uint8)
    monkeypatch.setattr("lumos.twoparty.comparison.relation", lambda *_: table)
    learned = []
    for y in range(16):
        sender, receiver = Sender(3, 8, group=Toy()), Receiver(8, 3, group=Toy())
        sender.begin([(spec, 0)])
        receiver.begin([(spec, y)])
        conversation(sender, receiver)
        assert sender.results == receiver.results
        learned += sender.results
    assert len(set(learned)) <= spec.ways
    codes = table[0] + 2 * table[-1] * (spec.outputs - 1)
    assert spec.outputs == 1 or 3 in codes  # the fourth word was read
    assert learned == [outcome(spec, min(int(code), 2)) for code in codes]


def test_any_tree_of_a_long_comparison_shows_one_of_the_declared_outcomes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Random leaves and random triples at S: R goes on to the end in every case."""
    spec, randomness = Spec(16, Kind.THREE_WAY), np.random.default_rng(0)

    def random_table(lookup: Any) -> np.ndarray:
        return randomness.integers(0, 2, (lookup.outputs, lookup.entries), np.uint8)

    monkeypatch.setattr(comparison, "relation", lambda _, lookup: random_table(lookup))
    monkeypatch.setattr(comparison, "product", lambda lookup, *_: random_table(lookup))
    learned = set()
    for y in range(0, 2**16, 997):
        sender, receiver = Sender(3, 8, group=Toy()), Receiver(8, 3, group=Toy())
        sender.begin([(spec, 0)])
        receiver.begin([(spec, y)])
        conversation(sender, receiver)
        learned |= {*sender.results, *receiver.results}
    assert learned == {-1, 0, 1}


@pytest.mark.parametrize("levels", [2, 3, 5, 8])
def test_any_tables_of_a_score_show_one_of_the_declared_levels(
    levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = LevelSpec(width=3, ring_bits=8, thresholds=tuple(range(levels - 1)))
    randomness = np.random.default_rng(levels)
    shape = (spec.level_lookup.outputs, 256)
    monkeypatch.setattr(
        "lumos.twoparty.score.level_table", lambda *_: randomness.integers(0, 2, shape, np.uint8)
    )
    learned = set()
    for _ in range(60):
        sender, receiver = ScoreSender(3, 8, group=Toy()), ScoreReceiver(8, 3, group=Toy())
        sender.begin([(spec, [1, 2, 3])])
        receiver.begin([(spec, randomness.integers(-4, 4, 3))])
        conversation(sender, receiver)
        assert sender.results == receiver.results
        learned |= {*sender.results}
    assert learned == set(range(levels))


def test_a_digit_out_of_range_opens_no_entry() -> None:
    """R's point may hide any multiple of A: beyond the last entry it knows none of the pads."""
    group, sid = Toy(), bytes(32)
    keys = SenderKeys(group)
    keys.bind(sid)
    asked = Query(Lookup((4,), 256), b"code", 0)  # pads of 32 bytes
    for digit in range(-20, 40):
        b, point = group.pair()
        for _ in range(digit):
            point = group.add(point, keys.A)
        if digit < 0:
            point = group.subtract(point, keys.A, -digit)[-1]
        own = group.multiply(b, keys.A)
        known = _pads(sid, keys.A, asked, 0, point, [(value, own) for value in range(16)])
        opened = set(keys.pads(asked, 0, point)) & set(known)
        assert len(opened) == (0 <= digit < 16)


def test_another_share_of_r_moves_all_thresholds_together() -> None:
    """R may look up the level of any sum: one level, of a product that it has shifted."""
    spec = LevelSpec(width=2, ring_bits=8, thresholds=(-10, 0, 10))
    for shift in range(-20, 21, 5):

        class Shifting(ScoreReceiver):
            def _ask_level(self, score: Any, shift: int = shift) -> bytes:
                score.share = (score.share + shift) % 256
                return super()._ask_level(score)

        sender, receiver = ScoreSender(3, 8, group=Toy()), Shifting(8, 3, group=Toy())
        sender.begin([(spec, [3, -2])])
        receiver.begin([(spec, [2, 1])])
        conversation(sender, receiver)
        right = int(np.searchsorted(spec.thresholds, 3 * 2 - 2 + shift, side="right"))
        assert sender.results == receiver.results == [right]
