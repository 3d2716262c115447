"""Messages that break the rules are refused, with a typed error that carries nothing secret."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.secagg.federation import Federation, drawn_graph

from lumos.device import COORDINATOR
from lumos.errors import BothSecrets, Equivocation, Forged, ProtocolError, WrongLength, WrongSender
from lumos.exchange import Batch, Outbox, Program
from lumos.secagg import AggregateSettings, SecureCoordinator, Stage
from lumos.secagg.masks import KEY, WORD
from lumos.secagg.shares import PAIR, SELF, ShareVault
from lumos.secagg.topics import CONFIRMED, KEYS, LEFT_OUT, LOST, SUM

TOTAL = 10
Tamper = Callable[[Outbox], Outbox]


def on(topic: str, change: Callable[[Batch], Batch]) -> Tamper:
    """Changes the messages of one topic."""

    def tamper(outbox: Outbox) -> Outbox:
        if outbox.topic.name != f"aggregate/{topic}":
            return outbox
        return Outbox(outbox.topic, change(outbox.batch))

    return tamper


def flipped(byte: int) -> Callable[[Batch], Batch]:
    def change(batch: Batch) -> Batch:
        body = batch.body.copy()
        body[3, byte] ^= 1
        return Batch(batch.sender, batch.receiver, body, None, batch.lengths)

    return change


def shorter(batch: Batch) -> Batch:
    assert batch.lengths is not None
    lengths = batch.lengths.copy()
    lengths[2] -= 8
    return Batch(batch.sender, batch.receiver, batch.body, None, lengths)


def twice(batch: Batch) -> Batch:
    return batch.take(np.append(np.arange(batch.messages), 1))


def without_first(batch: Batch) -> Batch:
    return batch.take(np.arange(1, batch.messages))


def zero_key(batch: Batch) -> Batch:
    """No point of large order, beside the right tag of the seed."""
    body = batch.body.copy()
    body[:, :KEY] = 0
    return Batch(batch.sender, batch.receiver, body)


def misdirected(batch: Batch) -> Batch:
    """The first message goes to a device that is no mask neighbour of its sender."""
    graph = drawn_graph(TOTAL, 4)
    sender = batch.sender[:1]
    non_neighbours = np.setdiff1d(np.arange(TOTAL), np.append(graph.of(sender)[0], sender))
    receiver = batch.receiver.copy()
    receiver[0] = non_neighbours[0]
    return Batch(batch.sender, receiver, batch.body)


@pytest.mark.parametrize(
    ("tamper", "error"),
    [
        (on("keys", zero_key), Forged),
        (on("keys", flipped(-1)), Equivocation),
        (on("keys", without_first), WrongLength),  # one end has a key of the pair
        (on("keys", misdirected), WrongSender),
        (on("wrapped", shorter), WrongLength),
        (on("wrapped", twice), WrongSender),
        (on("masked", shorter), WrongLength),
        (on("masked", flipped(3 * 7)), Forged),  # the commitment, behind three numbers
        (on("masked", twice), WrongSender),
        (on("alive", flipped(0)), Forged),
        (on("alive", flipped(-1)), Forged),
        (on("alive", shorter), WrongLength),
        (on("alive", twice), WrongSender),
        (on("reveal", flipped(-1)), Forged),
        (on("reveal", shorter), WrongLength),
        (on("reveal", twice), WrongSender),
    ],
)
def test_a_device_that_breaks_the_rules_stops_the_round(
    tamper: Tamper, error: type[ProtocolError]
) -> None:
    with pytest.raises(error) as refused:
        Federation(AggregateSettings(), tamper=tamper).run([np.ones((TOTAL, 3))])
    assert not any(literal.isdigit() for literal in str(refused.value))


@pytest.mark.parametrize(
    ("lost", "byte", "error"),
    [
        (False, 3 * 7 + 16, Forged),  # a correction of the self secret
        (True, 6 * 16, Forged),  # the commitment to the pair secret
        (True, 6 * 16 + 16, Forged),  # a correction of it
    ],
)
def test_what_is_published_is_checked_where_it_is_used(
    lost: bool, byte: int, error: type[ProtocolError]
) -> None:
    """Device 3 publishes something wrong, and one of its first holders does not answer."""
    settings = AggregateSettings(neighbours=6, threshold=4, minimum=3)
    silent = np.full(TOTAL, Stage.NEVER, np.int8)
    silent[drawn_graph(TOTAL, 6).of(np.array([3]))[0, 0]] = Stage.REVEAL
    if lost:
        silent[3] = Stage.MASKED
    tamper = on("wrapped" if lost else "masked", flipped(byte))
    with pytest.raises(error):
        Federation(settings, tamper=tamper).run([np.ones((TOTAL, 3))], [silent])


@pytest.mark.parametrize("topic", [LEFT_OUT, LOST, CONFIRMED, SUM])
def test_no_device_speaks_for_the_coordinator(topic: Any) -> None:
    def speak(batch: Batch) -> Batch:
        if topic.shape is None:
            return Batch(
                np.array([0]), np.array([1]), np.zeros((1, 24), np.uint8), None, np.array([24])
            )
        return Batch(np.array([0]), np.array([1]), np.array([1]))

    tamper = on(topic.name.removeprefix("aggregate/"), speak)
    with pytest.raises(WrongSender, match="in place of the coordinator"):
        Federation(AggregateSettings(), tamper=tamper).run([np.ones((TOTAL, 3))])


class Lying(SecureCoordinator):
    """Says what `lie` makes of its words."""

    lie: Tamper

    def sum(self, width: int, noise: Any = None) -> Program[Any]:
        program = super().sum(width)
        outbox = next(program)
        try:
            while True:
                outbox = program.send((yield type(self).lie(outbox)))
        except StopIteration as stop:
            return stop.value


def lying(lie: Tamper) -> type[Lying]:
    return type("Lying", (Lying,), {"lie": staticmethod(lie)})


def told(receivers: np.ndarray, named: np.ndarray) -> Callable[[Batch], Batch]:
    """Adds words of the coordinator to what it says anyway."""

    def change(batch: Batch) -> Batch:
        return Batch(
            np.append(batch.sender, np.full(len(named), COORDINATOR)),
            np.append(batch.receiver, receivers),
            np.append(batch.body, named),
        )

    return change


def neighbours_of(device: int) -> np.ndarray:
    return drawn_graph(TOTAL, 4).of(np.array([device]))[0]


def non_neighbour_to(device: int) -> int:
    return int(np.setdiff1d(np.arange(TOTAL), np.append(neighbours_of(device), device))[0])


ONE = np.array([1])


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        (on("confirmed", flipped(0)), Forged),  # a word is wrong
        (on("confirmed", flipped(WORD)), Forged),  # it leaves out whose word is in it
        (on("confirmed", twice), WrongSender),
        (on("confirmed", shorter), WrongLength),
        (on("lost", told(ONE, np.array([non_neighbour_to(1)]))), WrongSender),
        (on("lost", told(ONE, ONE)), WrongSender),
        (on("lost", told(np.repeat(neighbours_of(1)[:1], 2), np.array([1, 1]))), WrongSender),
        (on("sum", shorter), WrongLength),
    ],
)
def test_a_coordinator_that_lies_gets_no_share(lie: Tamper, error: type[ProtocolError]) -> None:
    federation = Federation(AggregateSettings(), coordinator=lying(lie))
    with pytest.raises(error):
        federation.run([np.ones((TOTAL, 3))])
    if error is not WrongLength:  # the sum comes after all shares
        assert federation.bodies("aggregate/reveal") == {}


def test_a_holder_gives_one_share_of_a_device_and_never_both() -> None:
    values = np.arange(1, 2 * 3 * 2 * 8 + 1, dtype=np.uint16).reshape(2, 3, 2, 8)
    vault = ShareVault(values.copy())
    row, slot = np.array([1]), np.array([2])
    with pytest.raises(WrongSender, match="not in the round"):
        vault.give_out(row, slot, np.array([SELF]))
    vault.admit(np.ones((2, 3), np.bool_))
    with pytest.raises(BothSecrets):  # both at once
        vault.give_out(np.array([1, 1]), np.array([2, 2]), np.array([SELF, PAIR]))
    given = vault.give_out(row, slot, np.array([PAIR]))
    assert np.array_equal(given[0], values[1, 2, PAIR])
    for which in (SELF, PAIR):  # one after the other
        with pytest.raises(BothSecrets):
            vault.give_out(row, slot, np.array([which]))
    assert not vault._values[1, 2].any()  # the other share no longer exists
    vault.forget()
    assert not vault._values.any()
    with pytest.raises(WrongSender, match="not in the round"):
        vault.give_out(np.array([0]), np.array([0]), np.array([SELF]))


def test_every_topic_of_the_sum_is_declared_with_its_door() -> None:
    federation = Federation(AggregateSettings())
    federation.run([np.ones((TOTAL, 3))])
    assert federation.ledger is not None
    doors = {name: line.door for name, line in federation.ledger.topics.items()}
    assert doors[KEYS.name] == "aggregate"
    assert {name for name, door in doors.items() if door == "control"} == {LEFT_OUT.name, LOST.name}
    assert all(line.learns for line in federation.ledger.topics.values())
