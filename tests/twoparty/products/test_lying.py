"""Coordinators that lie: they spoil a sum, and never read a product.

Every device is a shard of its own and goes its own way; one that refuses falls silent, and the
others go on as they would on machines of their own.
"""

from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.secagg.federation import drawn_graph
from tests.twoparty.products.pairs import Dying, PairedRun, Problem

from lumos.device import COORDINATOR
from lumos.errors import AlreadyOpened, Equivocation, ObjectionIgnored, ProtocolError
from lumos.exchange import Batch, Inbox, Outbox, Program
from lumos.secagg import AggregateSettings, SecureAggregator, SecureCoordinator
from lumos.secagg.openings import CALLED_OFF, OPEN, Attempted, Attempts, OpenedSums, Opening, decide
from lumos.secagg.topics import LOST, MASKED, OBJECTION, SUM, VERDICT
from lumos.twoparty.products import Multiplier, PairSession

TOTAL = 12
THRESHOLD = 7
SETTINGS = AggregateSettings(neighbours=TOTAL - 1, threshold=THRESHOLD, minimum=5)
LARGE = Problem(words=40, width=24, noisy=False)
"""Sums of 7,680 bytes."""
U, V = LARGE.pairs()[0]
LIMIT = stats.chi2.ppf(1 - 1e-7, 255)


def federation(problem: Problem, coordinator: type[Any], **options: Any) -> PairedRun:
    deaths = options.pop("deaths", {})
    return PairedRun(
        problem,
        shards=TOTAL,
        settings=SETTINGS,
        toy=True,
        transport=partial(Dying, tolerant=True, deaths=deaths),
        coordinator=coordinator,
        **options,
    )


def messages(paired: PairedRun, topic: str) -> list[list[Batch]]:
    """The batches of every round of a topic."""
    return [batches for name, batches in paired.made.swaps if name == topic]


def byte_statistic(body: bytes) -> float:
    """χ² of the bytes against the uniform distribution: 255 degrees of freedom."""
    counts = np.bincount(np.frombuffer(body, np.uint8), minlength=256)
    expected = len(body) / 256
    return float(((counts - expected) ** 2).sum() / expected)


class Deaf(SecureCoordinator):
    """Loses v's vector, opens the sum whatever is objected, and remembers it."""

    opened: list[bytes]

    def attempt(self, width: int, noise: Any = None) -> Program[Attempted]:
        collected = yield from without_vector_of(V, self._collect(width))
        yield OBJECTION.nothing()
        yield VERDICT.from_coordinator(np.arange(TOTAL), OPEN)
        return Attempted((yield from self._open(collected)), called_off=False)

    def _send_sum(self, total: Any, answering: Any) -> Program[Any]:
        type(self).opened.append(total.tobytes())
        return (yield from super()._send_sum(total, answering))


def without_vector_of(device: int, program: Program[Any]) -> Program[Any]:
    """The coordinator's program, from which the masked vector of a device is kept."""
    outbox = next(program)
    try:
        while True:
            inbox = yield outbox
            if outbox.topic is MASKED:
                inbox = Inbox(inbox.batch.take(inbox.sender != device), inbox.quiet)
            outbox = program.send(inbox)
    except StopIteration as stop:
        return stop.value


@pytest.mark.parametrize("numbers", [0, 127])
def test_a_sum_with_one_share_of_a_pair_is_uniform(numbers: int) -> None:
    """The coordinator loses v and ignores u's objection; enough others open the sum for it."""
    problem = Problem(words=40, width=24, noisy=False)
    problem.vectors[:, [U, V]] = numbers
    coordinator: Any = type("Deaf", (Deaf,), {"opened": []})
    paired = federation(problem, coordinator)
    paired.run()
    assert isinstance(paired.made.refused[U], ObjectionIgnored)
    assert set(paired.made.refused) == {U, V}  # v received no sum
    [words] = coordinator.opened
    assert byte_statistic(words) < LIMIT
    honest = PairedRun(problem, settings=SETTINGS, toy=True)
    _, [right] = honest.run()
    clear = honest.aggregators[0].fixed.encode_sum(right).tobytes()
    assert byte_statistic(clear) > LIMIT  # the test has power


class LosesTwo(SecureCoordinator):
    """Loses the vectors of two devices, and notes whether anybody objects."""

    two: tuple[int, int]
    objected: list[bool]

    def attempt(self, width: int, noise: Any = None) -> Program[Attempted]:
        one, other = self.two
        kept = without_vector_of(one, without_vector_of(other, self._collect(width)))
        collected = yield from kept
        type(self).objected.append((yield from decide(collected.asked)))
        return Attempted(None, called_off=True)


@pytest.mark.parametrize("matched", [True, False])
def test_losing_two_devices_tells_a_liar_whether_they_are_partners(matched: bool) -> None:
    """Known and documented (docs/protocols.md): one bit of an attempt, at most four in a step."""
    two = (U, V) if matched else (U, LARGE.pairs()[1][0])
    liar: Any = type("Liar", (LosesTwo,), {"two": two, "objected": []})
    with suppress(ProtocolError):
        federation(LARGE, liar).run()
    assert liar.objected[0] != matched


class TwoStories(SecureCoordinator):
    """Tells u and half of the devices that v is lost, and v and the other half that u is."""

    def attempt(self, width: int, noise: Any = None) -> Program[Attempted]:
        collected = yield from self._collect(width)
        yield OBJECTION.nothing()
        yield VERDICT.from_coordinator(np.arange(TOTAL), OPEN)
        return Attempted((yield from self._open(collected)), called_off=False)

    def _name(self, topic: Any, receivers: Any, named: Any) -> Outbox:
        outbox = super()._name(topic, receivers, named)
        if topic is not LOST:
            return outbox
        others = np.setdiff1d(np.arange(TOTAL), [U, V])
        to = np.concatenate([others, [U, V]])
        lost = np.concatenate([np.where(np.arange(len(others)) % 2, U, V), [V, U]])
        batch = outbox.batch
        sender = np.append(batch.sender, np.full(len(to), COORDINATOR))
        receiver, body = np.append(batch.receiver, to), np.append(batch.body, lost)
        return Outbox(LOST, Batch(sender, receiver, body))


def test_telling_each_end_that_the_other_is_lost_opens_nothing() -> None:
    """Whoever says that it is alive gives the lie away."""
    paired = federation(LARGE, TwoStories)
    with pytest.raises(ProtocolError):
        paired.run()
    given = [batch for batches in messages(paired, "aggregate/reveal") for batch in batches]
    assert sum(batch.messages for batch in given) == 0
    assert {type(error) for error in paired.made.refused.values()} >= {Equivocation}


class OpensTwice(SecureCoordinator):
    """Tells `going` of the devices to open the first attempt, and the others that it is off.

    It then opens the first attempt with those, and makes a second one with the others.
    """

    going = 0

    def attempt(self, width: int, noise: Any = None) -> Program[Attempted]:
        self.number = getattr(self, "number", 0) + 1
        collected = yield from self._collect(width)
        yield OBJECTION.nothing()
        if self.number == 1:
            words = np.where(np.arange(TOTAL) < self.going, OPEN, CALLED_OFF)
            yield VERDICT.from_coordinator(np.arange(TOTAL), words.astype(np.uint8))
            yield from self._open(collected)
            return Attempted(None, called_off=True)
        yield VERDICT.from_coordinator(np.arange(TOTAL), OPEN)
        return Attempted((yield from self._open(collected)), called_off=False)


@pytest.mark.parametrize("going", range(TOTAL + 1))
def test_no_split_of_the_devices_opens_two_attempts(going: int) -> None:
    problem = Problem()
    paired = federation(problem, type("Split", (OpensTwice,), {"going": going}))
    with suppress(ProtocolError):  # the coordinator is stuck, or gives up
        paired.run()
    graph = drawn_graph(TOTAL, TOTAL - 1)
    opened = []
    for batches in messages(paired, "aggregate/reveal"):
        holders = np.concatenate([batch.sender for batch in batches])
        answering = np.isin(np.arange(TOTAL), holders)
        opened.append(graph.count(answering) >= THRESHOLD)
    assert len(opened) >= 1
    for one, two in pairwise(opened):
        assert not (one & two).any()
    if going == TOTAL:
        assert opened[0].all()


class Withholds(SecureCoordinator):
    """Opens every attempt and tells nobody; loses v's vector from the second on."""

    opened: list[np.ndarray]

    def attempt(self, width: int, noise: Any = None) -> Program[Attempted]:
        program = super().attempt(width)
        outbox = next(program)
        try:
            while True:
                withheld = outbox.topic is SUM
                inbox = yield SUM.nothing() if withheld else outbox
                outbox = program.send(inbox)
        except StopIteration as stop:
            type(self).opened.append(stop.value.total)
            return Attempted(None, called_off=True)


class Forgetful(Attempts):
    """The broken twin of the holders' rule: it joins every attempt."""

    def begin(self, step: int, number: int, opened: OpenedSums, sums: int) -> None:
        pass


class ForgetfulOpenings(OpenedSums):
    """The same, where shares are given out."""

    def open(self, opening: Opening) -> None:
        pass


class Insisting(SecureAggregator):
    """A device that tries again where it received no sum, as if the attempt were called off."""

    def attempt(self, *arguments: Any) -> Program[Attempted]:
        ended = yield from super().attempt(*arguments)
        return ended if ended.total is not None else Attempted(None, called_off=True)


@pytest.mark.parametrize("broken", [False, True])
def test_a_holder_that_opened_an_attempt_refuses_the_next(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two attempts, one of them without a pair: the difference is the pair's product."""
    if broken:
        monkeypatch.setattr("lumos.secagg.device.Attempts", Forgetful)
        monkeypatch.setattr("lumos.secagg.device.OpenedSums", ForgetfulOpenings)
    problem = Problem()
    u, v = problem.pairs()[0]
    coordinator: Any = type("Withholding", (Withholds,), {"opened": []})
    # v stops after the first attempt was opened: 4 rounds of the draw, the keys, 3 rounds of the
    # sessions, 13 of the attempt.
    paired = federation(problem, coordinator, aggregator=Insisting, deaths={v: 21})
    paired.run()
    opened = [total for total in coordinator.opened if total is not None]
    if not broken:
        assert len(opened) == 1
        refusals = {type(error) for error in paired.made.refused.values()}
        assert refusals == {AlreadyOpened}
        return
    everyone, others = np.arange(TOTAL), np.setdiff1d(np.arange(TOTAL), [v])
    bits = SETTINGS.fraction_bits
    pair = problem.truth(0, bits, [(u, v)], everyone[:0])
    noise = problem.truth(0, bits, [], everyone) - problem.truth(0, bits, [], others)
    assert np.allclose(opened[0] - opened[1] - noise, pair)


def test_an_attempt_is_made_once_and_in_order() -> None:
    attempts, opened = Attempts(), OpenedSums()
    attempts.begin(0, 0, opened, 7)
    attempts.begin(0, 1, opened, 8)
    for again in ((0, 1), (0, 0)):
        with pytest.raises(AlreadyOpened, match="in order"):
            attempts.begin(*again, opened, 9)
    opened.open(Opening(step=0, number=8, told=b""))
    with pytest.raises(AlreadyOpened, match="another attempt"):
        attempts.begin(0, 2, opened, 9)
    restarted = Attempts()
    restarted.begin(0, 1, opened, 8)  # replays the attempt that it opened
    with pytest.raises(AlreadyOpened, match="another attempt"):
        restarted.begin(0, 2, opened, 9)
    replaying = Attempts()
    replaying.begin(0, 0, opened, 7)  # replays the attempt that was called off, and cannot open it
    with pytest.raises(AlreadyOpened, match="for something else"):
        opened.open(Opening(step=0, number=7, told=b""))
    attempts.begin(1, 0, opened, 9)


def test_silence_is_an_objection() -> None:
    for asked in (np.zeros(3, np.bool_), np.ones(3, np.bool_)):
        program = decide(asked)
        next(program)
        told = program.send(OBJECTION.silence)
        assert set(told.batch.body.tolist()) == {CALLED_OFF}


def test_a_verdict_comes_from_the_coordinator_alone() -> None:
    class Mute(SecureCoordinator):
        def attempt(self, width: int, noise: Any = None) -> Program[Attempted]:
            yield from self._collect(width)
            yield OBJECTION.nothing()
            yield VERDICT.nothing()
            return Attempted(None, called_off=True)

    with pytest.raises(ProtocolError, match="verdict is missing"):
        PairedRun(Problem(), settings=SETTINGS, toy=True, coordinator=Mute).run()


def test_numbers_out_of_range_show_tokens_in_the_opened_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known and documented (docs/protocols.md): a lying partner multiplies by any numbers.

    It adds 2^9 to its numbers: the entries of the opened sum that are off by it are those of the
    tokens that its partner has. Noise of scale 10 does not hide them.
    """
    problem = Problem(words=40, width=2)
    liar, victim = problem.pairs()[0]
    honest = Multiplier.multiply

    class Liar(PairSession):
        def correction(self, numbers: Any, step: int, attempt: int) -> bytes:
            mine = self._multiplier if self._me == liar else None

            def multiply(multiplier: Multiplier, ring: Any, label: bytes) -> Any:
                more = np.uint64(2**9 << self._fixed.fraction_bits) if multiplier is mine else 0
                return honest(multiplier, ring + np.asarray(more, ring.dtype), label)

            with monkeypatch.context() as patched:
                patched.setattr(Multiplier, "multiply", multiply)
                return super().correction(numbers, step, attempt)

    monkeypatch.setattr("lumos.twoparty.product_sums.PairSession", Liar)
    _, [total] = PairedRun(problem, settings=SETTINGS, toy=True).run()
    entries = np.asarray(total).reshape(problem.words, problem.width)
    read = (entries > 2**8).all(axis=1)
    assert np.array_equal(read, problem.chosen[victim].astype(bool))
