"""Ways past the ledger: six programs that cheat, and what becomes of them.

Each attack succeeded when senders could say of their own messages that they were checked. Every
test runs the cheating program over the loopback, with the doors of the profile `strict`, and beside
it the honest program from which it differs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.exchange.balancing import idle_program
from tests.exchange.transports import Isolated, Recorder

from lumos.device import Shard, cut
from lumos.errors import NotHosted, ProtocolError
from lumos.exchange import (
    TOPICS,
    Batch,
    Door,
    Endpoint,
    Inbox,
    LedgerReport,
    Outbox,
    Program,
    Topic,
)
from lumos.exchange.counts import Booking
from lumos.exchange.transports.loopback import Loopback
from lumos.graph import demo_graph
from lumos.secagg import IdealAggregator, IdealCoordinator
from lumos.secagg import ideal as ideal_sums
from lumos.twoparty import comparer as ideal_comparison
from lumos.twoparty.comparer import IdealComparer

Declare = Callable[..., Topic]
DEVICES = 4
STRICT = frozenset(Door) - {Door.OPEN}
SECRET = b"forty-eight bytes of data that nobody may receive"[:48]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def two_shards() -> list[Shard]:
    """Devices 0 and 2, devices 1 and 3."""
    return cut(demo_graph(DEVICES, features=False), 2, seed=0)


def first_shard_sends(
    outbox: Outbox, transport: type[Any] = Loopback
) -> tuple[list[Inbox], LedgerReport]:
    """What each shard receives when the first one sends an outbox, and the ledger."""

    def program(shard: Shard, _: Endpoint) -> Program[Inbox]:
        return (yield outbox if shard.devices[0] == 0 else outbox.topic.nothing())

    running = transport(two_shards(), STRICT)
    inboxes, _ = running.run(program, idle_program)
    return inboxes, running.ledger()


def held_in(array: np.ndarray) -> bytes:
    """Everything that a receiver can read from an array, or from the memory behind it."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.tobytes()


class TestBytesAsPadding:
    """Bytes behind the end of a message of length 0."""

    @pytest.fixture
    def topic(self, declare: Declare) -> Topic:
        return declare("test/any-length", door=Door.AGGREGATE, shape=None)

    @pytest.mark.parametrize("transport", [Loopback, Isolated])
    @pytest.mark.parametrize("longest", [0, 1, 7])
    def test_padding_does_not_travel(
        self, topic: Topic, transport: type[Any], longest: int
    ) -> None:
        body = np.frombuffer(SECRET * 2, np.uint8).reshape(2, len(SECRET)).copy()
        outbox = topic.send(ints(0, 2), ints(1, 3), body, lengths=ints(0, longest))
        (_, inbox), ledger = first_shard_sends(outbox, transport)
        assert inbox.batch.lengths is not None
        assert inbox.batch.lengths.tolist() == [0, longest]
        assert inbox.body.shape == (2, longest)
        assert held_in(inbox.body) == bytes(longest) + SECRET[:longest]
        assert ledger.bytes == longest == ledger.topics["test/any-length"].bytes

    def test_nor_does_the_length_of_the_messages_of_others(self, topic: Topic) -> None:
        body = np.frombuffer(SECRET * 2, np.uint8).reshape(2, len(SECRET)).copy()
        outbox = topic.send(ints(0, 0), ints(1, 2), body, lengths=ints(5, 48))
        (own, other), _ = first_shard_sends(outbox)
        assert (own.body.shape, other.body.shape) == ((1, 48), (1, 5))

    @pytest.mark.parametrize("padding", [np.zeros(3, np.uint8), np.array([0, 0, 7], np.uint8)])
    @pytest.mark.parametrize("longest", [0, 2])
    def test_what_a_transport_adds_is_refused(
        self, topic: Topic, padding: np.ndarray, longest: int
    ) -> None:
        body = np.zeros((2, longest + 3), np.uint8)
        body[0, longest:] = padding
        batch = Batch(ints(1, 1), ints(0, 2), body, lengths=ints(0, longest))
        endpoint = Endpoint(two_shards()[0], STRICT)
        with pytest.raises(ProtocolError, match="bytes arrived that belong to no message"):
            endpoint.check_incoming(topic, Inbox(batch, quiet=False))
        assert endpoint.ledger.flows() == {}

    def test_nor_is_padding_inside_the_longest_message_accepted(self, topic: Topic) -> None:
        body = np.array([[0, 9], [1, 2]], np.uint8)
        batch = Batch(ints(1, 1), ints(0, 2), body, lengths=ints(1, 2))
        endpoint = Endpoint(two_shards()[0], STRICT)
        with pytest.raises(ProtocolError, match="bytes arrived that belong to no message"):
            endpoint.check_incoming(topic, Inbox(batch, quiet=False))

    def test_packing_leaves_the_sender_its_array(self, topic: Topic) -> None:
        body = np.frombuffer(SECRET * 2, np.uint8).reshape(2, len(SECRET)).copy()
        before = body.copy()
        first_shard_sends(topic.send(ints(0, 2), ints(1, 3), body, lengths=ints(3, 48)))
        assert np.array_equal(body, before)


class TestAnotherSender:
    """A device that speaks as another one."""

    def test_positions_of_senders_are_computed(self, declare: Declare) -> None:
        topic = declare("test/speaker", door=Door.AGGREGATE)
        as_three = topic.send(ints(3), ints(1), np.array([5], np.uint8))
        with pytest.raises(AttributeError):
            as_three.batch.rows = ints(0)  # type: ignore[attr-defined]
        with pytest.raises(NotHosted, match="not hosted"):
            first_shard_sends(as_three)
        _, ledger = first_shard_sends(topic.send(ints(0), ints(1), np.array([5], np.uint8)))
        assert ledger.messages_sent.tolist() == [1, 0, 0, 0]

    def test_also_where_a_batch_brings_positions_along(self, declare: Declare) -> None:
        class WithRows(Batch):
            rows = ints(0)
            regular = True

        topic = declare("test/speaker", door=Door.AGGREGATE)
        batch = WithRows(ints(3), ints(1), np.array([5], np.uint8))
        with pytest.raises(NotHosted, match="not hosted"):
            first_shard_sends(Outbox(topic, batch))

    def test_ids_that_change_later_do_not_change_the_ledger(self, declare: Declare) -> None:
        topic = declare("test/speaker", door=Door.AGGREGATE)
        whole = cut(demo_graph(DEVICES, features=False), 1, seed=0)

        def program(*_: object) -> Program[None]:
            sender, receiver = ints(0), ints(1)
            inbox = yield topic.send(sender, receiver, np.array([5], np.uint8))
            sender[0] = receiver[0] = inbox.sender[0] = inbox.receiver[0] = 3

        transport = Loopback(whole, STRICT)
        transport.run(program, idle_program)
        assert transport.ledger().messages_sent.tolist() == [1, 0, 0, 0]
        assert transport.ledger().messages_received.tolist() == [0, 1, 0, 0]


class TestBytesAsAWord:
    """Forty-eight bytes in the place of one control word."""

    def test_every_body_is_checked(self, declare: Declare) -> None:
        topic = declare("test/word", door=Door.CONTROL, vocabulary=("yes", "no"))
        body = np.frombuffer(SECRET, np.uint8)[None, :].copy()
        outbox = topic.send(ints(0), ints(1), 1)
        outbox.batch.body = body
        with pytest.raises(AttributeError):
            outbox.batch.regular = True  # type: ignore[attr-defined]
        with pytest.raises(ProtocolError, match=r"a message body is uint8\[48\], not uint8\[\]"):
            first_shard_sends(outbox)
        outbox.batch.body = np.frombuffer(SECRET[:1], np.uint8)
        with pytest.raises(ProtocolError, match="a word outside its vocabulary"):
            first_shard_sends(outbox)
        (_, inbox), ledger = first_shard_sends(topic.send(ints(0), ints(1), 1))
        assert inbox.body.tolist() == [1]
        assert ledger.control_bits == 1

    def test_a_batch_that_calls_itself_empty_sends_nothing(self, declare: Declare) -> None:
        topic = declare("test/word", door=Door.CONTROL, vocabulary=("yes", "no"))
        outbox = topic.send(ints(0), ints(1), np.frombuffer(SECRET, np.uint8)[None, :])
        outbox.batch.messages = 0
        with pytest.raises(ProtocolError, match="a message body is"):
            first_shard_sends(outbox)
        outbox.batch.sender = ints()
        (_, inbox), ledger = first_shard_sends(outbox)
        assert (inbox.quiet, inbox.body.size, ledger.messages) == (True, 0, 0)

    def test_an_array_that_answers_for_itself_is_refused(self, declare: Declare) -> None:
        class Liar(np.ndarray):
            @property  # type: ignore[misc]
            def shape(self) -> tuple[int, ...]:
                return (1,)

        topic = declare("test/word", door=Door.CONTROL, vocabulary=("yes", "no"))
        body = np.zeros((1, 48), np.uint8).view(Liar)
        with pytest.raises(ProtocolError, match="not a plain array"):
            first_shard_sends(topic.send(ints(0), ints(1), body))

    def test_a_topic_that_borrows_a_name_is_refused(self, declare: Declare) -> None:
        harmless = declare("test/word", door=Door.CONTROL, vocabulary=("yes", "no"))
        del TOPICS["test/word"]
        wide = declare("test/word", door=Door.AGGREGATE, shape=(48,))
        TOPICS["test/word"] = harmless
        body = np.frombuffer(SECRET, np.uint8)[None, :]
        with pytest.raises(ProtocolError, match="not the declared topic of that name"):
            first_shard_sends(wide.send(ints(0), ints(1), body))


class TestABookedTopic:
    """A topic that a program declares to be booked by formula, and then books at nothing."""

    def test_what_a_program_declares_is_counted(self, declare: Declare) -> None:
        with pytest.raises(TypeError, match="booked"):
            declare("test/booked", door=Door.COMPARE, shape=(48,), booked=True)
        topic = declare("test/booked", door=Door.COMPARE, shape=(48,))
        body = np.frombuffer(SECRET, np.uint8)[None, :]
        _, ledger = first_shard_sends(topic.send(ints(0), ints(1), body))
        assert (ledger.messages, ledger.bytes) == (1, 48)
        assert not ledger.topics["test/booked"].ideal

    def test_a_program_cannot_book(self, declare: Declare) -> None:
        topic = declare("test/booked", door=Door.COMPARE)
        endpoint = Endpoint(two_shards()[0], STRICT, ideal_comparison.IDEAL_TOPICS)
        with pytest.raises(ProtocolError, match=r"'test/booked' .* does not permit"):
            endpoint.ledger.book(topic, ints(0), Booking(1, 0, 1, 0))
        assert endpoint.ledger.flows() == {}

    def test_ideal_backends_need_a_permission(self) -> None:
        shard = two_shards()[0]
        secure = Endpoint(shard, STRICT)
        for make in (
            lambda: IdealComparer(shard, secure),
            lambda: IdealAggregator(shard, secure),
            lambda: IdealCoordinator(DEVICES, Endpoint(None, STRICT)),
        ):
            with pytest.raises(ProtocolError, match=r"does not permit; .* `ideal`, or use"):
                make()
        IdealComparer(shard, Endpoint(shard, STRICT, ideal_comparison.IDEAL_TOPICS))
        IdealAggregator(shard, Endpoint(shard, STRICT, ideal_sums.IDEAL_TOPICS))

    def test_what_passes_under_a_permission_is_visible(self) -> None:
        topic = ideal_comparison.CLEAR
        transport = Loopback(two_shards(), STRICT, ideal_comparison.IDEAL_TOPICS)

        def program(shard: Shard, _: Endpoint) -> Program[None]:
            me = shard.devices
            yield topic.send(me, (me + 1) % DEVICES, me)

        transport.run(program, idle_program)
        ledger = transport.ledger()
        assert (ledger.messages, ledger.topics) == (0, {})  # nothing was booked …
        assert ledger.clear_traffic == {"compare/ideal": {"messages": 4, "bytes": 32}}
        state = transport.endpoints[0].ledger.state_dict()
        transport.endpoints[0].ledger.load_state_dict(state)
        assert transport.ledger().clear_traffic == ledger.clear_traffic


class TestEquivocation:
    """A release that is common to its receivers, in two versions."""

    @pytest.fixture
    def topic(self, declare: Declare) -> Topic:
        return declare("test/symbol", door=Door.RELEASE, dtype=np.float64, common=True)

    @pytest.mark.parametrize(
        ("body", "epsilon"),
        [
            ([1.0, 2.0], [1.0, 1.0]),
            ([0.0, -0.0], [1.0, 1.0]),  # equal numbers, and still one bit
            ([1.0, 1.0], [1.0, 0.5]),
        ],
    )
    def test_receivers_of_one_round_get_the_same(
        self, topic: Topic, body: list[float], epsilon: list[float]
    ) -> None:
        outbox = topic.send(ints(0, 0), ints(1, 3), np.array(body), epsilon=np.array(epsilon))
        with pytest.raises(ProtocolError, match="common to its receivers differs"):
            first_shard_sends(outbox)
        apart = topic.send(ints(0, 2), ints(1, 3), np.array(body), epsilon=np.array(epsilon))
        assert first_shard_sends(apart)[1].messages == 2  # two senders may differ

    def test_the_same_for_all_is_paid_once(self, topic: Topic) -> None:
        outbox = topic.send(
            ints(0, 2, 0, 0), ints(1, 1, 3, 2), np.array([7.0, 8.0, 7.0, 7.0]), epsilon=np.ones(4)
        )
        _, ledger = first_shard_sends(outbox)
        assert ledger.device_epsilon_collusion.tolist() == [1.0, 0.0, 1.0, 0.0]

    @pytest.mark.parametrize("lengths", [(2, 2), (1, 2)])
    def test_messages_of_any_length_are_compared_too(
        self, declare: Declare, lengths: tuple[int, int]
    ) -> None:
        topic = declare("test/code", door=Door.RELEASE, shape=None, common=True)
        body = np.array([[1, 0], [1, 0 if lengths[0] < 2 else 3]], np.uint8)
        outbox = topic.send(
            ints(0, 0), ints(1, 3), body, epsilon=np.ones(2), lengths=ints(*lengths)
        )
        with pytest.raises(ProtocolError, match="common to its receivers differs"):
            first_shard_sends(outbox)


class TestNegativeEpsilon:
    """A release that earns ε."""

    @pytest.fixture
    def topic(self, declare: Declare) -> Topic:
        return declare("test/release", door=Door.RELEASE)

    @pytest.mark.parametrize(
        "epsilon", [[1.0, -5.0], [1.0, np.nan], [-np.inf, 1.0], [1.0], [[1.0], [1.0]]]
    )
    def test_is_refused(self, topic: Topic, epsilon: list[Any]) -> None:
        body = np.zeros(2, np.uint8)
        outbox = topic.send(ints(0, 2), ints(1, 3), body, epsilon=np.array(epsilon))
        with pytest.raises(ProtocolError, match=r"ε must be at least 0|one float64 per message"):
            first_shard_sends(outbox)

    @pytest.mark.parametrize("epsilon", [0.0, 2.5, np.inf])
    def test_zero_and_infinity_are_not(self, topic: Topic, epsilon: float) -> None:
        body = np.zeros(1, np.uint8)
        outbox = topic.send(ints(0), ints(1), body, epsilon=np.array([epsilon]))
        assert first_shard_sends(outbox)[1].epsilon_per_receiver == epsilon

    def test_what_was_spent_stays_spent(self, topic: Topic) -> None:
        epsilon, receiver = np.array([2.0]), ints(1)
        outbox = topic.send(ints(0), receiver, np.zeros(1, np.uint8), epsilon=epsilon)
        endpoint = Endpoint(two_shards()[0], STRICT)
        endpoint.check_outgoing(outbox)
        epsilon[0] = 0.0
        assert endpoint.ledger.epsilon()[0].tolist() == [2.0, 0.0]


def test_no_attack_reaches_a_transport(declare: Declare) -> None:
    """A refused outbox is never sent, not in part either."""
    topic = declare("test/release", door=Door.RELEASE)

    def program() -> Program[None]:
        yield topic.send(ints(0), ints(1), np.zeros(1, np.uint8), epsilon=np.array([-1.0]))

    connection = Recorder(lambda outbox: Inbox(outbox.batch, quiet=False))
    with pytest.raises(ProtocolError):
        Endpoint(two_shards()[0], STRICT).drive(program(), connection)
    assert connection.outboxes == []
