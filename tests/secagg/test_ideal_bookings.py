"""With everybody present the ideal sum books what the oracle of masked sums says."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from tests.secagg.federation import Federation, shards_of, some_graph
from tests.secagg.outcomes import flows_of, round_outcome

from lumos.device import COORDINATOR, Shard
from lumos.exchange import EVERY_DOOR, Endpoint, Inbox, Program
from lumos.secagg import AggregateSettings, IdealAggregator, Stage
from lumos.secagg.ideal import IDEAL_TOPICS, sum_bookings
from lumos.secagg.parameters import mask_parameters

CASES = [
    (2, AggregateSettings(neighbours=1, minimum=2)),
    (3, AggregateSettings()),
    (5, AggregateSettings()),
    (9, AggregateSettings(neighbours=8)),
    (12, AggregateSettings(neighbours=4, threshold=1)),
    (300, AggregateSettings()),
]


@pytest.mark.parametrize(("total", "settings"), CASES)
@pytest.mark.parametrize("vector_bytes", [0, 24])
def test_the_bookings_are_the_messages_of_the_oracle(
    total: int, settings: AggregateSettings, vector_bytes: int
) -> None:
    parameters = mask_parameters(settings, total)
    graph = some_graph(total, parameters.neighbours)
    outcome = round_outcome(graph, parameters, np.full(total, Stage.NEVER, np.int8))
    assert outcome.opened
    bookings = sum_bookings(parameters, vector_bytes)
    flows = flows_of(graph, parameters, outcome, vector_bytes)
    assert list(bookings) == [flow.topic for flow in flows]
    for flow in flows:
        sent, received, bytes_sent, bytes_received = bookings[flow.topic]
        assert (received, bytes_received) == (0, 0) if flow.up else (sent, bytes_sent) == (0, 0)
        assert (flow.messages == sent + received).all()
        assert (flow.bytes == bytes_sent + bytes_received).all()


def test_nothing_is_said_of_devices_that_are_there() -> None:
    """A shard says nothing before a sum: only the contributions to the draw have bytes."""
    federation = Federation(AggregateSettings(), "ideal", shards=3)
    federation.run([np.ones((20, 2))] * 2)
    said = [
        len(body) for bodies in federation.bodies("aggregate/ideal").values() for body in bodies
    ]
    assert sorted(said) == [*[0] * 6, 24 * 6, 24 * 7, 24 * 7]


def told(program: Program[Any], answers: list[np.ndarray]) -> Any:
    """Run a program of a shard; what it sends is answered with these bodies, one after another."""
    outbox = next(program)
    try:
        for body in answers:
            assert outbox.batch.body.nbytes < 100
            topic = program.send(outbox.topic.silence).topic
            sender, receiver = np.array([COORDINATOR]), outbox.batch.sender
            answer = topic.send(sender, receiver, body[None], lengths=np.array([len(body)]))
            outbox = program.send(Inbox(answer.batch, quiet=False))
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the program goes on")


def test_one_device_among_many_makes_nothing_of_the_size_of_the_federation() -> None:
    total = 200_000
    [alone] = shards_of(1, 1)
    shard = Shard(
        np.array([5]), total, alone.offsets, alone.neighbours, alone.randomness, alone.public
    )
    aggregator = IdealAggregator(shard, Endpoint(shard, EVERY_DOOR, IDEAL_TOPICS))
    words = aggregator.fixed.encode(np.ones((1, 3)))[0]
    tracemalloc.start()
    try:
        told(aggregator.setup(), [np.zeros(32, np.uint8)])
        result = told(
            aggregator.sum(np.ones((1, 3))), [np.empty(0, np.uint8), words.view(np.uint8)]
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.array_equal(result, np.ones(3))
    assert peak < total  # less than a byte for each device
