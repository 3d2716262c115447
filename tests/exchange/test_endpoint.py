"""The endpoint: what it lets out, what it lets in, and what it says when it does not."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.exchange.transports import Recorder

from lumos.device import COORDINATOR, Shard, cut
from lumos.errors import DoorClosed, LumosError, NotHosted, ProtocolError
from lumos.exchange import PUBLIC_ID, Batch, Door, Endpoint, Inbox, Outbox, Program, Topic
from lumos.graph import demo_graph

Declare = Callable[..., Topic]
SECRET = 171  # a body that must not appear in any message


@pytest.fixture
def shard() -> Shard:
    """Hosts devices 0, 2, 4, … of 20."""
    return cut(demo_graph(20, features=False), 2, seed=0)[0]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def body(*values: int) -> np.ndarray:
    return np.array(values, np.uint8)


def refused(shard: Shard | None, outbox: Outbox, error: type[LumosError], match: str) -> None:
    """Refused on the way out, nothing counted, and no private value told."""
    endpoint = Endpoint(shard)
    with pytest.raises(error, match=match) as caught:
        endpoint.check_outgoing(outbox)
    assert str(SECRET) not in str(caught.value)
    assert endpoint.ledger.flows() == {}


@pytest.mark.parametrize("sender", [1, 19, -1, -2, 20, 2**40])
def test_a_foreign_sender(shard: Shard, declare: Declare, sender: int) -> None:
    topic = declare("test/sender", coordinator="both")
    refused(
        shard,
        topic.send(ints(0, sender), ints(3, 3), body(SECRET, SECRET)),
        NotHosted,
        "not hosted",
    )


def test_the_coordinator_sends_for_itself_only(declare: Declare) -> None:
    topic = declare("test/coordinator", coordinator="both")
    refused(None, topic.send(ints(3), ints(5), body(SECRET)), NotHosted, "hosts no device")
    Endpoint(None).check_outgoing(topic.send(ints(COORDINATOR), ints(5), body(SECRET)))


@pytest.mark.parametrize("receiver", [-2, -(2**62), 20, 2**62])
@pytest.mark.parametrize("coordinator", [True, False])
def test_a_receiver_out_of_range(
    shard: Shard, declare: Declare, receiver: int, coordinator: bool
) -> None:
    topic = declare("test/receiver", coordinator=coordinator)
    outbox = topic.send(ints(0, 2), ints(3, receiver), body(SECRET, SECRET))
    refused(shard, outbox, ProtocolError, "'test/receiver': receiver out of range")


def test_the_coordinator_takes_part_where_declared(shard: Shard, declare: Declare) -> None:
    to_coordinator = (ints(0), ints(COORDINATOR), body(SECRET))
    Endpoint(shard).check_outgoing(declare("test/with", coordinator="both").send(*to_coordinator))
    refused(shard, declare("test/without").send(*to_coordinator), ProtocolError, "out of range")


def test_to_and_from_the_coordinator(shard: Shard, declare: Declare) -> None:
    topic = declare("test/up", coordinator="both")
    up = Endpoint(shard).check_outgoing(topic.to_coordinator(shard, ints(1, 3), body(5, 6))).batch
    assert (up.sender.tolist(), up.receiver.tolist()) == ([2, 6], [COORDINATOR] * 2)
    outbox = topic.from_coordinator(ints(2, 6), body(SECRET, SECRET))
    down = Endpoint(None).check_outgoing(outbox).batch
    assert (down.sender.tolist(), down.receiver.tolist()) == ([COORDINATOR] * 2, [2, 6])
    refused(shard, outbox, NotHosted, "not hosted")
    with pytest.raises(ProtocolError, match="the coordinator takes no part"):
        declare("test/level").to_coordinator(shard, ints(1, 3), body(5, 6))


@pytest.mark.parametrize(
    "wrong",
    [
        np.array([SECRET, SECRET]),  # int64
        np.array([SECRET, SECRET], np.float32),
        np.full((2, 1), SECRET, np.uint8),
        np.full(3, SECRET, np.uint8),
        np.full(1, SECRET, np.uint8),
    ],
)
def test_a_body_of_another_type_or_shape(shard: Shard, declare: Declare, wrong: np.ndarray) -> None:
    outbox = declare("test/body").send(ints(0, 2), ints(3, 4), wrong)
    refused(shard, outbox, ProtocolError, r"'test/body': a message body is .*, not uint8\[\]")


@pytest.mark.parametrize("word", [2, 3, SECRET, 255])
def test_a_word_outside_the_vocabulary(shard: Shard, declare: Declare, word: int) -> None:
    topic = declare("test/yes-no", door=Door.CONTROL, vocabulary=("yes", "no"))
    Endpoint(shard).check_outgoing(topic.send(ints(0, 2), ints(3, 4), body(0, 1)))
    outbox = topic.send(ints(0, 2), ints(3, 4), body(0, word))
    refused(shard, outbox, ProtocolError, "a word outside its vocabulary")


@pytest.mark.parametrize("number", [-1, 20, 2**50])
def test_a_public_id_is_an_id(shard: Shard, declare: Declare, number: int) -> None:
    topic = declare(
        "test/id", door=Door.CONTROL, dtype=np.int64, vocabulary=PUBLIC_ID, coordinator="both"
    )
    Endpoint(shard).check_outgoing(topic.send(ints(0, 2), ints(3, 4), ints(0, 19)))
    outbox = topic.send(ints(0, 2), ints(3, 4), ints(3, number))
    refused(shard, outbox, ProtocolError, "public id out of range")


@pytest.mark.parametrize("door", list(Door))
def test_a_closed_door_names_topic_and_reason(shard: Shard, declare: Declare, door: Door) -> None:
    words = ("yes",) if door is Door.CONTROL else ()
    topic = declare("test/door", door=door, vocabulary=words, learns="everybody learns all")
    epsilon = np.ones(1) if door is Door.RELEASE else None
    outbox = topic.send(ints(0), ints(3), body(0), epsilon=epsilon)
    Endpoint(shard).check_outgoing(outbox)
    shut = Endpoint(shard, doors=set(Door) - {door})
    with pytest.raises(DoorClosed, match=rf"'test/door'.*'{door.value}'.*everybody learns all"):
        shut.check_outgoing(outbox)
    assert shut.ledger.flows() == {}
    shut.check_outgoing(topic.nothing())  # silence passes every door


def test_a_release_states_its_epsilon(shard: Shard, declare: Declare) -> None:
    release = declare("test/release", door=Door.RELEASE)
    refused(shard, release.send(ints(0), ints(3), body(SECRET)), ProtocolError, "states its ε")
    other = declare("test/no-release").send(ints(0), ints(3), body(SECRET), epsilon=np.ones(1))
    refused(shard, other, ProtocolError, "states its ε")


@pytest.mark.parametrize("lengths", [None, ints(1), ints(1, -1), ints(1, 4), ints(1, 2, 3)])
def test_lengths_are_those_of_the_messages(
    shard: Shard, declare: Declare, lengths: np.ndarray | None
) -> None:
    topic = declare("test/ragged", shape=None)
    wide = np.full((2, 3), SECRET, np.uint8)
    Endpoint(shard).check_outgoing(topic.send(ints(0, 2), ints(3, 4), wide, lengths=ints(0, 3)))
    outbox = topic.send(ints(0, 2), ints(3, 4), wide, lengths=lengths)
    refused(shard, outbox, ProtocolError, "lengths")
    fixed = declare("test/fixed").send(ints(0), ints(3), body(SECRET), lengths=ints(1))
    refused(shard, fixed, ProtocolError, "lengths")


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (Batch(ints(3), ints(1), body(0)), NotHosted),  # for a device of another shard
        (Batch(ints(3), ints(COORDINATOR), body(0)), NotHosted),
        (Batch(ints(20), ints(0), body(0)), ProtocolError),  # from nobody
        (Batch(ints(COORDINATOR), ints(0), body(0)), ProtocolError),  # no part in this topic
        (Batch(ints(3), ints(0), body(2)), ProtocolError),  # no word
        (Batch(ints(3), ints(0), ints(0)), ProtocolError),  # another type
        (Batch(ints(3), ints(0), body(0, 0)), ProtocolError),  # another shape
    ],
)
def test_what_comes_over_a_real_transport_is_checked_again(
    shard: Shard, declare: Declare, batch: Batch, error: type[LumosError]
) -> None:
    topic = declare("test/arrive", door=Door.CONTROL, vocabulary=("yes", "no"))
    endpoint = Endpoint(shard)
    with pytest.raises(error):
        endpoint.check_incoming(topic, Inbox(batch, quiet=False))
    assert endpoint.ledger.flows() == {}


def test_drive_runs_a_program_over_a_blocking_transport(shard: Shard, declare: Declare) -> None:
    topic = declare("test/drive")
    own = topic.send(ints(0), ints(2), body(5))

    def program() -> Program[int]:
        first = yield own
        second = yield topic.nothing()
        return int(first.body[0]) + len(second.body)

    def answer(outbox: Outbox) -> Inbox:
        return Inbox(outbox.batch, quiet=not outbox.batch.messages)

    transport, endpoint = Recorder(answer), Endpoint(shard)
    assert endpoint.drive(program(), transport) == 5
    assert [outbox.batch.messages for outbox in transport.outboxes] == [1, 0]
    assert endpoint.ledger.round == 2
    assert endpoint.ledger.flows()["test/drive"]["received"].tolist()[:2] == [0, 1]


def test_drive_hands_nothing_that_is_refused_to_the_transport(
    shard: Shard, declare: Declare
) -> None:
    topic = declare("test/foreign")

    def program() -> Program[None]:
        yield topic.send(ints(1), ints(2), body(5))

    transport = Recorder(lambda outbox: Inbox(outbox.batch, quiet=False))
    with pytest.raises(NotHosted):
        Endpoint(shard).drive(program(), transport)
    assert transport.outboxes == []
