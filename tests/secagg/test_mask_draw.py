"""The draw of the mask graph: everybody has a part in it, and nobody chooses."""

import math
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from tests.secagg.federation import Federation, drawn_graph, shards_of

from lumos.audit.attacks.equivocation import TwoDraws
from lumos.device import system_secrets
from lumos.device.shard import COORDINATOR
from lumos.errors import DrawVoid, Equivocation, Forged, ProtocolError, WrongLength, WrongSender
from lumos.exchange import Batch, Outbox, Program
from lumos.exchange.messages import Inbox
from lumos.secagg import (
    AggregateSettings,
    SecureAggregator,
    SecureCoordinator,
    mask_graph,
    mask_parameters,
)
from lumos.secagg.mask_graph import MaskGraph
from lumos.secagg.topics import DRAW_COMMITMENT, DRAW_CONTRIBUTION, DRAW_DIGEST, DRAW_LIST

TOTAL = 10
VECTORS = np.ones((TOTAL, 3))
SPARE_FOUR = AggregateSettings(minimum=TOTAL - 4)


class Watched(SecureAggregator):
    """Remembers its mask graph."""

    orders: list[list[int]]

    def setup(self) -> Program[None]:
        yield from super().setup()
        type(self).orders.append(self._graph.order.tolist())


def watched() -> type[Watched]:
    return type("Watched", (Watched,), {"orders": []})


def secrets_but_one(devices: np.ndarray) -> np.ndarray:
    """Simulated secrets, of which one bit of one device is different."""
    secrets = shards_of(TOTAL, 1)[0].randomness._secrets.copy()
    secrets[3, 5] ^= 1
    return secrets[devices]


def test_the_seed_is_what_the_protocol_says() -> None:
    """Recomputed from the description, with nothing of the module."""
    [shard] = shards_of(TOTAL, 1)
    words = shard.randomness.words(np.arange(TOTAL), "mask graph", 0, 4)
    shown = [row.astype("<u4").tobytes() for row in words]
    numbers = TOTAL.to_bytes(8, "little") + bytes(8)
    bound = [
        blake2b(
            numbers + device.to_bytes(8, "little") + one, digest_size=32, person=b"lumos draw bound"
        ).digest()
        for device, one in enumerate(shown)
    ]
    digest = blake2b(b"".join(bound), digest_size=32, person=b"lumos draw list").digest()
    seed = blake2b(numbers + b"".join(shown), digest_size=32, person=b"lumos draw seed").digest()
    federation = Federation(AggregateSettings(), shards=3)
    federation.run([VECTORS])
    for device in range(TOTAL):
        assert federation.bodies("aggregate/draw-commitment")[device] == [bound[device]]
        assert federation.bodies("aggregate/draw-contribution")[device] == [shown[device]]
        tag = blake2b(seed, digest_size=16, person=b"lumos draw tag").digest()
        assert {body[32:] for body in federation.bodies("aggregate/keys")[device]} == {tag}
    assert mask_graph.list_digest(np.frombuffer(b"".join(bound), np.uint8)) == digest
    assert np.array_equal(
        drawn_graph(TOTAL, 4).of(np.arange(TOTAL)),
        MaskGraph(TOTAL, 4, seed).of(np.arange(TOTAL)),
    )


def test_the_seed_depends_on_every_contribution() -> None:
    contributions = np.random.default_rng(0).integers(0, 256, (TOTAL, 16), np.uint8)
    seeds = {mask_graph.seed_of(contributions, 0), mask_graph.seed_of(contributions, 1)}
    for device in range(TOTAL):
        for byte in range(16):
            changed = contributions.copy()
            changed[device, byte] ^= 1
            seeds.add(mask_graph.seed_of(changed, 0))
    swapped = contributions[::-1]
    seeds.add(mask_graph.seed_of(swapped, 0))
    assert len(seeds) == 2 + 16 * TOTAL + 1


def test_simulated_runs_repeat_their_graph_and_others_do_not() -> None:
    orders = []
    for secrets in (None, None, secrets_but_one, system_secrets, system_secrets):
        aggregator = watched()
        options = {} if secrets is None else {"secrets": secrets}
        Federation(AggregateSettings(), aggregator=aggregator, **options).run([VECTORS])  # type: ignore[arg-type]
        orders.append(tuple(aggregator.orders[0]))
    assert orders[0] == orders[1]
    assert len(set(orders)) == 4


@pytest.mark.parametrize("backend", ["secure", "ideal"])
def test_shards_draw_one_graph_in_both_backends(backend: str) -> None:
    """Held to each other by the graph of the run seed; sums with dropouts depend on it."""
    federation = Federation(AggregateSettings(), backend, shards=4)
    federation.run([VECTORS])
    assert federation.ledger is not None
    lines = {
        name.removesuffix("/ideal"): (line.messages, line.bytes)
        for name, line in federation.ledger.topics.items()
    }
    assert lines["aggregate/draw-commitment"] == (TOTAL, 32 * TOTAL)
    assert lines["aggregate/draw-digest"] == (TOTAL, 32 * TOTAL)
    assert lines["aggregate/draw-contribution"] == (TOTAL, 16 * TOTAL)
    assert lines["aggregate/draw-list"] == (TOTAL, 16 * TOTAL * TOTAL)
    assert lines["aggregate/keys"] == (4 * TOTAL, 48 * 4 * TOTAL)


def withholding(topic: str, times: int) -> Callable[[Outbox], Outbox]:
    """Device 0 sends nothing of a topic the first so many times."""
    left = times

    def tamper(outbox: Outbox) -> Outbox:
        nonlocal left
        if outbox.topic.name != f"aggregate/{topic}" or not left:
            return outbox
        left -= 1
        return Outbox(outbox.topic, outbox.batch.take(outbox.batch.sender != 0))

    return tamper


def other_contribution(times: int) -> Callable[[Outbox], Outbox]:
    """Device 0 shows something else than it bound itself to."""
    left = times

    def tamper(outbox: Outbox) -> Outbox:
        nonlocal left
        if outbox.topic is not DRAW_CONTRIBUTION or not left:
            return outbox
        left -= 1
        body = outbox.batch.body.copy()
        body[0, 0] ^= 1
        return Outbox(outbox.topic, Batch(outbox.batch.sender, outbox.batch.receiver, body))

    return tamper


def held(
    withholding: list[list[int]], total: int = TOTAL, spare: int = 4
) -> tuple[mask_graph.Draw, int]:
    """Hold the draw with simulated devices; in each draw the devices of a list withhold.

    Returns the draw and the number of draws.
    """
    [shard] = shards_of(total, 1)
    program, draw = mask_graph.hold_draw(total, total - spare), 0
    everyone, to = np.arange(total), np.full(total, COORDINATOR)
    next(program)
    try:
        while True:
            mine = mask_graph.contributions_of(shard, draw)
            bound = mask_graph.commitments(mine, everyone, total, draw)
            program.send(Inbox(Batch(everyone, to, bound), quiet=False))  # the digest of all
            program.send(DRAW_DIGEST.silence)
            here = ~np.isin(everyone, withholding[draw] if draw < len(withholding) else [])
            program.send(Inbox(Batch(everyone[here], to[here], mine[here]), quiet=False))
            program.send(DRAW_LIST.silence)
            draw += 1
    except StopIteration as stop:
        return stop.value, draw + 1


@pytest.mark.parametrize(("total", "spare"), [(TOTAL, 0), (TOTAL, 4), (60, 3), (400, 20)])
def test_as_many_devices_as_a_run_may_lose_withhold_one_after_the_other(
    total: int, spare: int
) -> None:
    """There is another draw, with fresh contributions, in which theirs count as zero."""
    [shard] = shards_of(total, 1)
    for times in {0, spare // 2, spare}:
        found, draws = held([[device] for device in range(times)], total, spare)
        assert draws == times + 1
        expected = mask_graph.contributions_of(shard, times).copy()
        expected[:times] = 0
        assert found.seed == mask_graph.seed_of(expected, times)
        assert np.array_equal(np.flatnonzero(found.silent), np.arange(times))
        assert not found.lied.any()


def test_the_settings_allow_one_draw_for_each_loss_and_the_last() -> None:
    """More devices that withhold than a run may lose end it, in a draw that nobody sees."""
    for total in (20, 60, 400):
        parameters = mask_parameters(AggregateSettings(), total)
        spare = total - parameters.minimum
        assert parameters.draws == spare + 1 == math.ceil(0.05 * total) + 1
        one_by_one = [[device] for device in range(total)]
        with pytest.raises(DrawVoid, match=f"{total - spare - 1} of {total} devices take part"):
            held(one_by_one, total, spare)


def test_a_device_voids_one_draw_and_several_at_once_void_one_together() -> None:
    assert held([[2], [2], [2], [2], [2]])[1] == 2
    assert held([[1, 2, 3, 4]])[1] == 2
    with pytest.raises(DrawVoid, match="5 of 10 devices take part, and 6 have to"):
        held([[1, 2, 3, 4, 5]])


def test_devices_take_part_in_no_further_draw_than_are_counted() -> None:
    """A coordinator that voids draws as it likes could otherwise choose among many seeds."""
    shown = []

    class Voids(SecureCoordinator):
        def setup(self) -> Program[None]:
            digest = np.zeros((TOTAL, 32), np.uint8)
            while True:
                yield DRAW_COMMITMENT.nothing()
                yield DRAW_DIGEST.from_coordinator(np.arange(TOTAL), digest)
                shown.append((yield DRAW_CONTRIBUTION.nothing()).batch.messages)
                yield DRAW_LIST.nothing()

    draws = mask_parameters(SPARE_FOUR, TOTAL).draws
    with pytest.raises(DrawVoid, match=f"declared {draws} draws"):
        Federation(SPARE_FOUR, coordinator=Voids).run([VECTORS])
    assert shown == [TOTAL] * draws == [TOTAL] * 5


@pytest.mark.parametrize(
    "hindrance",
    [lambda times: withholding("draw-contribution", times), other_contribution],
    ids=["contribution", "other"],
)
def test_a_barred_device_stops(hindrance: Any) -> None:
    """It does not find its contribution in the list: it may be the coordinator that lies."""
    with pytest.raises(Forged, match="has not what a device contributed"):
        Federation(AggregateSettings(), tamper=hindrance(1)).run([VECTORS])


class Lying(SecureCoordinator):
    """Says what `lie` makes of its words in the draw."""

    lie: Callable[[Outbox], Outbox]

    def setup(self) -> Program[None]:
        program = super().setup()
        outbox = next(program)
        try:
            while True:
                outbox = program.send((yield type(self).lie(outbox)))
        except StopIteration as stop:
            return stop.value


def lying(topic: Any, change: Callable[[np.ndarray], np.ndarray]) -> type[Lying]:
    """Changes the body of what it says in a topic: [devices, bytes]."""

    def lie(outbox: Outbox) -> Outbox:
        if outbox.topic is not topic:
            return outbox
        batch = outbox.batch
        body = change(batch.body.copy())
        lengths = None if batch.lengths is None else np.full(batch.messages, body.shape[1])
        return Outbox(topic, Batch(batch.sender, batch.receiver, body, None, lengths))

    return type("Lying", (Lying,), {"lie": staticmethod(lie)})


def replaced(body: np.ndarray) -> np.ndarray:
    """The contribution of device 4 is another one, for all."""
    body[:, 16 * 4] ^= 1
    return body


def reordered(body: np.ndarray) -> np.ndarray:
    body[:, :32] = np.roll(body[:, :32], 16, axis=1)
    return body


def omitted(body: np.ndarray) -> np.ndarray:
    return body[:, :-16]


def for_one(body: np.ndarray) -> np.ndarray:
    """Device 7 alone hears another list."""
    body[7, 0] ^= 1
    return body


def other_digest(body: np.ndarray) -> np.ndarray:
    return body ^ 1


@pytest.mark.parametrize("shards", [1, 3, TOTAL])
@pytest.mark.parametrize(
    ("topic", "change", "errors"),
    [
        (DRAW_LIST, replaced, (Forged,)),
        (DRAW_LIST, reordered, (Forged,)),
        (DRAW_LIST, omitted, (WrongLength,)),
        (DRAW_LIST, for_one, (Equivocation, Forged)),
        (DRAW_DIGEST, other_digest, (Forged,)),
        (DRAW_DIGEST, for_one, (Equivocation, Forged)),
    ],
)
def test_a_coordinator_that_lies_in_the_draw_is_noticed(
    topic: Any, change: Any, errors: Any, shards: int
) -> None:
    federation = Federation(AggregateSettings(), shards=shards, coordinator=lying(topic, change))
    with pytest.raises(errors):
        federation.run([VECTORS])
    assert federation.bodies("aggregate/wrapped") == {}


@pytest.mark.parametrize("shards", [2, TOTAL])
def test_two_groups_with_two_lists_notice_by_their_keys(shards: int) -> None:
    """With one shard, or where a group shares none, devices compare what they were told."""
    federation = Federation(AggregateSettings(), shards=shards, coordinator=TwoDraws)
    with pytest.raises(Equivocation, match="another seed"):
        federation.run([VECTORS])
    assert federation.bodies("aggregate/wrapped") == {}
    with pytest.raises(Equivocation, match="different lists"):
        Federation(AggregateSettings(), coordinator=TwoDraws).run([VECTORS])


def test_a_copied_commitment_opens_nowhere_else() -> None:
    """A colluder cannot cancel or repeat the contribution of another device."""
    same = np.full((2, 16), 7, np.uint8)
    one, two = mask_graph.commitments(same, np.arange(2), TOTAL, 0)
    assert not np.array_equal(one, two)
    [later] = mask_graph.commitments(same[:1], np.arange(1), TOTAL, 1)
    assert not np.array_equal(one, later)


@pytest.mark.parametrize("topic", [DRAW_DIGEST, DRAW_LIST])
def test_no_device_speaks_for_the_coordinator_in_the_draw(topic: Any) -> None:
    def tamper(outbox: Outbox) -> Outbox:
        if outbox.topic is not topic:
            return outbox
        body = np.zeros((1, 32), np.uint8)
        lengths = np.array([32]) if topic is DRAW_LIST else None
        return Outbox(topic, Batch(np.array([0]), np.array([1]), body, None, lengths))

    with pytest.raises(ProtocolError) as refused:
        Federation(AggregateSettings(), tamper=tamper).run([VECTORS])
    assert isinstance(refused.value, WrongSender)


def test_a_contribution_comes_once() -> None:
    def tamper(outbox: Outbox) -> Outbox:
        if outbox.topic is not DRAW_CONTRIBUTION:
            return outbox
        return Outbox(outbox.topic, outbox.batch.take(np.append(np.arange(TOTAL), 1)))

    with pytest.raises(WrongSender, match="twice"):
        Federation(AggregateSettings(), tamper=tamper).run([VECTORS])


@pytest.mark.parametrize("sender", [DRAW_COMMITMENT, DRAW_CONTRIBUTION])
def test_where_refused_messages_are_dropped_one_that_comes_twice_is_silence(sender: Any) -> None:
    [shard] = shards_of(TOTAL, 1)
    refused: list[int] = []
    program, everyone = mask_graph.hold_draw(TOTAL, TOTAL - 1, b"", refused), np.arange(TOTAL)
    outbox, draw = next(program), -1
    try:
        while True:
            inbox, twice = outbox.topic.silence, everyone
            if outbox.topic is DRAW_COMMITMENT:
                draw += 1
                mine = mask_graph.contributions_of(shard, draw)
            if outbox.topic is sender:
                twice = np.sort(np.append(everyone, 7))
            if outbox.topic in (DRAW_COMMITMENT, DRAW_CONTRIBUTION):
                bound = mask_graph.commitments(mine, everyone, TOTAL, draw)
                body = bound if outbox.topic is DRAW_COMMITMENT else mine
                batch = Batch(twice, np.full(len(twice), COORDINATOR), body[twice])
                inbox = Inbox(batch, quiet=False)
            outbox = program.send(inbox)
    except StopIteration as stop:
        found = stop.value
    assert set(refused) == {7}
    expected = mask_graph.contributions_of(shard, draw).copy()
    expected[7] = 0
    assert draw == (sender is DRAW_CONTRIBUTION)
    assert found.seed == mask_graph.seed_of(expected, draw)
