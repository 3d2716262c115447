"""Products in rounds: shares of every pair, refusals, permissions, and what is booked."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.secagg.federation import Federation, shards_of
from tests.session_doubles import Toy
from tests.twoparty.products.conversation import LONG
from tests.twoparty.products.pairs import PairedRun, Problem, Watched

from lumos.device import Shard
from lumos.errors import (
    AlreadyOpened,
    InputError,
    ProtocolError,
    Replay,
    UsageError,
)
from lumos.exchange import EVERY_DOOR, Batch, Endpoint, Outbox, Program
from lumos.exchange.endpoint import idle_program
from lumos.exchange.transports.loopback import Loopback
from lumos.secagg import AggregateSettings, IdealAggregator, SecureAggregator, SecureCoordinator
from lumos.secagg.ideal import IDEAL_TOPICS as IDEAL_SUMS
from lumos.twoparty.product_sums import (
    IDEAL_TOPICS,
    IdealProducts,
    PairShares,
    SecureProducts,
    paired_sums,
)

SETTINGS = AggregateSettings()


def run(
    program: Callable[[Shard, Endpoint], Program[Any]],
    total: int,
    shards: int = 1,
    ideal: Any = (),
) -> list[Any]:
    transport = Loopback(shards_of(total, shards), EVERY_DOOR, ideal)
    results, _ = transport.run(program, lambda _: idle_program())
    return results


@pytest.mark.parametrize("shards", [1, 3, 12])
def test_shares_of_each_pair_add_up_and_the_others_hold_zero(shards: int) -> None:
    problem = Problem()

    def program(shard: Shard, endpoint: Endpoint) -> Program[PairShares]:
        products = SecureProducts(shard, endpoint, LONG, group=Toy())
        here = shard.devices
        yield from products.setup(problem.partner[here], csr_array(problem.chosen[here]))
        return (yield from products.multiply(problem.vectors[0][here], 0, 0))

    words = np.zeros((12, 27), np.uint64)
    for number, shares in enumerate(run(program, 12, shards)):
        words[number::shards] = shares.words
        assert np.array_equal(shares.held, problem.partner[number::shards] >= 0)
    problem.noisy = False
    for u, v in problem.pairs():
        both = words[u] + words[v]
        right = problem.truth(0, LONG.fraction_bits, [(u, v)], np.arange(0))
        assert np.array_equal(LONG.decode(both), right)
        assert words[u].all()
    assert not words[problem.partner < 0].any()


def test_the_ideal_products_add_up_to_the_same() -> None:
    problem = Problem(noisy=False)

    def program(shard: Shard, endpoint: Endpoint) -> Program[np.ndarray]:
        products = IdealProducts(shard, endpoint, LONG)
        here = shard.devices
        yield from products.setup(problem.partner[here], csr_array(problem.chosen[here]))
        return (yield from products.multiply(problem.vectors[0][here], 0, 0))

    truth = problem.truth(0, LONG.fraction_bits, problem.pairs(), np.arange(0))
    for shards in (1, 5, 12):
        assert np.array_equal(np.sum(run(program, 12, shards, IDEAL_TOPICS), axis=0), truth)


def test_plaintext_needs_permission() -> None:
    [shard] = shards_of(4, 1)
    with pytest.raises(ProtocolError, match="products/ideal"):
        IdealProducts(shard, Endpoint(shard), LONG)


def changed(topic: str, change: Callable[[Batch], Batch]) -> Watched:
    def tamper(outbox: Outbox) -> Outbox:
        if outbox.topic.name != f"products/{topic}":
            return outbox
        return Outbox(outbox.topic, change(outbox.batch))

    return Watched(tamper)


def flipped(batch: Batch) -> Batch:
    body = batch.body.copy()
    body[3, 5] ^= 1
    return Batch(batch.sender, batch.receiver, body, None, batch.lengths)


def misdirected(batch: Batch) -> Batch:
    receiver = batch.receiver.copy()
    receiver[[0, 1]] = receiver[[1, 0]]
    return Batch(batch.sender, receiver, batch.body, None, batch.lengths)


def twice(batch: Batch) -> Batch:
    return batch.take(np.append(np.arange(batch.messages), 0))


def shortened(batch: Batch) -> Batch:
    assert batch.lengths is not None
    body, lengths = batch.body.copy(), batch.lengths.copy()
    body[3, -1], lengths[3] = 0, lengths[3] - 1
    return Batch(batch.sender, batch.receiver, body, None, lengths)


TOPICS = ["opening", "points", "columns", "correction", "ready", "present"]


CHANGES: list[tuple[str, Callable[[Batch], Batch], list[int]]] = [
    *((topic, flipped, [3]) for topic in TOPICS),
    *((topic, misdirected, [0, 1]) for topic in TOPICS),
    *((topic, twice, [0]) for topic in TOPICS),
    *((topic, shortened, [3]) for topic in ("columns", "correction")),
]
"""Topic, change, and the messages that it changes; the endpoint fixes the other lengths."""


@pytest.mark.parametrize(("topic", "change", "senders"), CHANGES)
def test_a_message_that_was_changed_costs_its_pair_and_nothing_else(
    topic: str, change: Callable[[Batch], Batch], senders: list[int]
) -> None:
    """No error, no word to the coordinator: the sum is that of all other pairs."""
    problem = Problem()
    seen: list[int] = []

    def once(batch: Batch) -> Batch:
        if seen:
            return batch
        seen.extend(batch.sender[senders].tolist())
        return change(batch)

    watched = changed(topic, once)
    _, [total] = PairedRun(problem, toy=True, wrap=watched).run()
    left = [pair for pair in problem.pairs() if not set(pair) & set(seen)]
    assert len(left) < len(problem.pairs())
    truth = problem.truth(0, SETTINGS.fraction_bits, left, np.arange(problem.total))
    assert np.array_equal(total, truth)


@pytest.mark.parametrize("topic", TOPICS)
def test_what_a_third_device_sends_is_ignored(topic: str) -> None:
    problem = Problem()

    def joined(batch: Batch) -> Batch:
        more = batch.take(np.append(np.arange(batch.messages), 0))
        sender = more.sender.copy()
        sender[-1] = next(d for d in range(problem.total) if problem.partner[d] < 0)
        return Batch(sender, more.receiver, more.body, None, more.lengths)

    _, [total] = PairedRun(problem, toy=True, wrap=changed(topic, joined)).run()
    truth = problem.truth(0, SETTINGS.fraction_bits, problem.pairs(), np.arange(problem.total))
    assert np.array_equal(total, truth)


def test_every_topic_is_declared_with_its_door() -> None:
    paired = PairedRun(Problem(), toy=True)
    paired.run()
    assert paired.ledger is not None
    doors = {name: line.door for name, line in paired.ledger.topics.items()}
    assert {doors[f"products/{topic}"] for topic in TOPICS} == {"aggregate"}
    assert doors["aggregate/objection"] == "aggregate"
    assert doors["aggregate/verdict"] == "control"


def test_ordinary_sums_and_sums_over_pairs_take_turns() -> None:
    problem = Problem(steps=2)

    class Both(SecureAggregator):
        """Makes an ordinary sum after every attempt."""

        def attempt(self, *arguments: Any) -> Program[Any]:
            ended = yield from super().attempt(*arguments)
            counted = yield from self.sum(np.ones((len(self._shard), 2)))
            assert counted is not None
            assert counted.tolist() == [12, 12]
            return ended

    class BothAtCoordinator(SecureCoordinator):
        def attempt(self, width: int, noise: Any = None) -> Program[Any]:
            ended = yield from super().attempt(width)
            yield from self.sum(2)
            return ended

    paired = PairedRun(problem, toy=True, aggregator=Both, coordinator=BothAtCoordinator)
    _, final = paired.run()
    truth = problem.truth(1, SETTINGS.fraction_bits, problem.pairs(), np.arange(12))
    assert np.array_equal(final[1], truth)


def test_words_of_the_ring_enter_an_ordinary_sum() -> None:
    vectors = np.random.default_rng(0).normal(size=(10, 4))
    shares = np.random.default_rng(1).integers(0, 2**64, (10, 4), np.uint64)
    shares[9] -= shares.sum(axis=0, dtype=np.uint64)  # they add up to zero

    class Sharing(Federation):
        def _sum(self, aggregator: Any, devices: Any, number: int) -> Any:
            return aggregator.sum(self.inputs[number][0][devices], shares=shares[devices])

    _, [total] = Sharing(AggregateSettings(), shards=3).run([vectors])
    _, [plain] = Federation(AggregateSettings()).run([vectors])
    assert np.array_equal(total, plain)


def test_a_step_is_summed_once() -> None:
    paired = PairedRun(Problem(steps=2), toy=True)
    original = paired._sums

    def same_step(shard: Shard, endpoint: Endpoint, aggregator: Any) -> Any:
        sums = original(shard, endpoint, aggregator)
        plain = sums.sum
        sums.sum = lambda vectors, noise, step: plain(vectors, noise, 0)
        return sums

    paired._sums = same_step  # type: ignore[method-assign]
    with pytest.raises((Replay, AlreadyOpened)):
        paired.run()


def test_wrong_use_is_refused() -> None:
    [shard] = shards_of(4, 1)
    partner, chosen = np.array([1, 0, -1, -1]), csr_array(np.eye(4, 3, dtype=np.int8))
    for kind in (SecureProducts, IdealProducts):
        products = kind(shard, Endpoint(shard, ideal=IDEAL_TOPICS), LONG)
        with pytest.raises(UsageError, match="setup"):
            list(products.multiply(np.zeros((4, 2), np.int8), 0, 0))
        for wrong in (partner[:3], np.array([1, 0, 4, -1]), np.array([1, 0, 2, -1])):
            with pytest.raises(UsageError, match="partner"):
                list(products.setup(wrong, chosen))
        with pytest.raises(UsageError, match="chosen"):
            list(products.setup(partner, chosen[:3]))
        with pytest.raises(InputError, match="ones"):
            list(products.setup(partner, csr_array(2 * chosen)))
        for vectors in (np.zeros((3, 2), np.int8), np.zeros((4, 2))):
            with pytest.raises(UsageError, match="int8"):
                list(products.multiply(vectors, 0, 0))  # type: ignore[arg-type]
        with pytest.raises(InputError, match="127"):
            list(products.multiply(np.full((4, 2), -128, np.int8), 0, 0))


@pytest.mark.parametrize("backend", ["secure", "ideal"])
def test_noise_leaves_room_for_a_product(backend: str) -> None:
    problem = Problem()
    problem.noise[0, 3, 2] = 1023.5
    with pytest.raises(InputError, match="1023"):
        PairedRun(problem, backend, toy=backend == "secure").run()
    settings = AggregateSettings(clip=True)
    _, [total] = PairedRun(problem, backend, settings=settings, toy=backend == "secure").run()
    problem.noise[0, 3, 2] = 1023
    truth = problem.truth(0, settings.fraction_bits, problem.pairs(), np.arange(12))
    assert np.array_equal(total, truth)


def test_the_backend_follows_the_masked_sums() -> None:
    [shard] = shards_of(5, 1)
    endpoint = Endpoint(shard, ideal=IDEAL_TOPICS | IDEAL_SUMS)
    for kind in (SecureAggregator, IdealAggregator):
        aggregator = kind(shard, endpoint)
        assert paired_sums(shard, endpoint, aggregator).label == aggregator.label  # type: ignore[attr-defined]
