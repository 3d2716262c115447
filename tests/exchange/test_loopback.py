"""Loopback: rounds in step, or a clear end."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.exchange.balancing import idle_program

from lumos.device import COORDINATOR, Shard, cut
from lumos.errors import ProtocolError
from lumos.exchange import Endpoint, Program, Topic
from lumos.exchange.transports.loopback import Loopback
from lumos.graph import demo_graph

Declare = Callable[..., Topic]
DEVICES = 6


@pytest.fixture(params=[1, 2, 6])
def pieces(request: pytest.FixtureRequest) -> list[Shard]:
    return cut(demo_graph(DEVICES, features=False), request.param, seed=0)


def test_everybody_hears_everybody_and_the_coordinator(
    pieces: list[Shard], declare: Declare
) -> None:
    up = declare("test/up", dtype=np.int64, coordinator="both")
    around = declare("test/around", dtype=np.int64)

    def device(shard: Shard, _: Endpoint) -> Program[list[int]]:
        me = shard.devices
        yield up.send(me, np.full(len(me), COORDINATOR), me * 10)
        inbox = yield around.send(me, (me + 1) % DEVICES, me * 100)
        assert not inbox.quiet
        inbox_of_sum = yield up.nothing()
        assert (yield around.nothing()).quiet
        return [*inbox.body.tolist(), *inbox_of_sum.body.tolist()]

    def coordinator(_: Endpoint) -> Program[int]:
        inbox = yield up.nothing()
        assert inbox.sender.tolist() == list(range(DEVICES))
        total = int(inbox.body.sum())
        everyone = np.arange(DEVICES)
        yield up.send(np.full(DEVICES, COORDINATOR), everyone, np.full(DEVICES, total))
        return total

    transport = Loopback(pieces)
    results, total = transport.run(device, coordinator)
    assert total == 150
    for shard, result in zip(pieces, results, strict=True):
        before = ((shard.devices - 1) % DEVICES * 100).tolist()
        assert result == before + [150] * len(shard)
    assert transport.ledger().rounds == 4


@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("how", ["another topic", "finishes early", "one round more"])
def test_parties_out_of_step(declare: Declare, odd: int, how: str) -> None:
    pieces = cut(demo_graph(DEVICES, features=False), 2, seed=0)
    topic, other = declare("test/one"), declare("test/other")

    def device(shard: Shard, _: Endpoint) -> Program[None]:
        yield topic.nothing()
        if shard.devices[0] == odd:
            if how == "another topic":
                yield other.nothing()
            if how == "finishes early":
                return
        yield topic.nothing()
        if shard.devices[0] == odd and how == "one round more":
            yield topic.nothing()

    with pytest.raises(ProtocolError, match=r"out of step|same round"):
        Loopback(pieces).run(device, idle_program)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_coordinator_out_of_step(pieces: list[Shard], declare: Declare, rounds: int) -> None:
    topic = declare("test/together", coordinator="both")

    def repeat(times: int) -> Program[None]:
        for _ in range(times):
            yield topic.nothing()

    with pytest.raises(ProtocolError, match=r"out of step|same round"):
        Loopback(pieces).run(lambda *_: repeat(2), lambda _: repeat(rounds))
    Loopback(pieces).run(lambda *_: repeat(2), lambda _: repeat(2))


def test_the_coordinator_cannot_speak_where_it_has_no_part(
    pieces: list[Shard], declare: Declare
) -> None:
    topic = declare("test/devices-only")

    def device(*_: object) -> Program[bool]:
        return (yield topic.nothing()).quiet

    def intruder(_: Endpoint) -> Program[None]:
        yield topic.send(np.array([COORDINATOR]), np.array([0]), np.array([1], np.uint8))

    with pytest.raises(ProtocolError, match="same round"):
        Loopback(pieces).run(device, intruder)


@pytest.mark.parametrize("receiver", [-2, DEVICES, DEVICES + 1, 2**40])
def test_the_coordinator_writes_to_nobody(
    pieces: list[Shard], declare: Declare, receiver: int
) -> None:
    topic = declare("test/nobody", coordinator="both")

    def device(*_: object) -> Program[None]:
        yield topic.nothing()

    def coordinator(_: Endpoint) -> Program[None]:
        yield topic.send(np.array([COORDINATOR]), np.array([receiver]), np.array([1], np.uint8))

    with pytest.raises(ProtocolError, match="'test/nobody': receiver out of range"):
        Loopback(pieces).run(device, coordinator)
