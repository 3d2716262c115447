"""Sums are the fixed-point sums bit by bit, whoever falls silent, however devices are spread."""

import pickle
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exchange.transports import Isolated
from tests.secagg.federation import Federation, drawn_graph, fixed_sum, shards_of
from tests.secagg.outcomes import RoundOutcome, flows_of, round_outcome

from lumos.errors import InputError, UsageError
from lumos.exchange import Endpoint, LedgerReport
from lumos.secagg import AggregateSettings, FixedPoint, SecureAggregator, Stage, mask_parameters
from lumos.secagg.topics import CONTRIBUTION, DRAW_ROUNDS, KEYS, PUBLIC_HASH

Differences = Callable[[LedgerReport, LedgerReport], list[str]]
FRACTION = AggregateSettings().fraction_bits


def vectors_of(total: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=20, size=(total, width))


def expected(options: AggregateSettings, drop_stage: np.ndarray) -> RoundOutcome:
    degree = mask_parameters(options, len(drop_stage))
    graph = drawn_graph(len(drop_stage), degree.neighbours)
    return round_outcome(graph, degree, drop_stage)


@st.composite
def federations(draw: st.DrawFn) -> tuple[AggregateSettings, int, list[np.ndarray]]:
    total = draw(st.integers(2, 12))
    k = draw(st.sampled_from([*range(2, total - 1, 2), total - 1]))
    options = AggregateSettings(
        neighbours=k,
        threshold=draw(st.integers(1, k)),
        minimum=draw(st.integers(2, total)),
        fraction_bits=draw(st.sampled_from([0, 10, 32])),
    )
    often = st.sampled_from([Stage.NEVER] * 12 + list(Stage))
    rounds = draw(st.integers(1, 3))
    drop_stage = [
        np.array(draw(st.lists(often, min_size=total, max_size=total)), np.int8)
        for _ in range(rounds)
    ]
    return options, draw(st.integers(1, total)), drop_stage


@settings(deadline=None, max_examples=60)
@given(federations(), st.integers(0, 5))
def test_sums_and_ledgers_with_dropouts_at_every_stage(
    case: tuple[AggregateSettings, int, list[np.ndarray]], width: int
) -> None:
    options, shards, drop_stage = case
    total = len(drop_stage[0])
    rounds = [vectors_of(total, width, number) for number in range(len(drop_stage))]
    secure = Federation(options, shards=shards)
    sums, final = secure.run(rounds, drop_stage)
    outcomes = [expected(options, silent) for silent in drop_stage]
    for number, outcome in enumerate(outcomes):
        assert (final[number] is not None) == outcome.opened
        if outcome.opened:
            truth = fixed_sum(rounds[number][outcome.arrived], options.fraction_bits)
            assert np.array_equal(final[number], truth)
        for shard, got in enumerate(sums):
            listening = outcome.answering[shard::shards].any()
            assert (got[number] is not None) == (outcome.opened and bool(listening))
            if got[number] is not None:
                assert np.array_equal(got[number], truth)
    assert secure.ledger is not None
    assert_messages(secure.ledger, options, outcomes, width)


def assert_messages(
    ledger: LedgerReport, options: AggregateSettings, outcomes: list[RoundOutcome], width: int
) -> None:
    """Each device sent and received what the oracle says, and nothing else after the setup."""
    total = len(outcomes[0].arrived)
    parameters, fixed = mask_parameters(options, total), FixedPoint.of(options, total)
    graph, k = drawn_graph(total, parameters.neighbours), parameters.neighbours
    topics: Counter[str] = Counter()
    of_setup = (2 + k, CONTRIBUTION + PUBLIC_HASH + KEYS.size * k)
    sent, bytes_sent = (np.full(total, count) for count in of_setup)
    rounds = np.full(total, DRAW_ROUNDS + 1)
    for outcome in outcomes:
        for flow in flows_of(graph, parameters, outcome, width * fixed.wire):
            topics[flow.topic.name] += int(flow.messages.sum())
            topics[f"{flow.topic.name} bytes"] += int(flow.bytes.sum())
            rounds += flow.messages > 0
            if flow.up:
                sent += flow.messages
                bytes_sent += flow.bytes
    assert np.array_equal(ledger.messages_sent, sent)
    assert np.array_equal(ledger.bytes_sent, bytes_sent)
    assert np.array_equal(ledger.device_rounds, rounds)
    for name, line in ledger.topics.items():
        if not name.startswith("aggregate/draw-") and name != KEYS.name:
            assert (line.messages, line.bytes) == (topics[name], topics[f"{name} bytes"])


@settings(deadline=None, max_examples=20)
@given(federations(), st.integers(0, 5))
def test_the_ideal_sum_is_the_secure_one_where_nobody_falls_silent(
    case: tuple[AggregateSettings, int, list[np.ndarray]], width: int
) -> None:
    options, shards, drop_stage = case
    total = len(drop_stage[0])
    if mask_parameters(options, total).minimum > total:
        return
    rounds = [vectors_of(total, width, number) for number in range(len(drop_stage))]
    secure, ideal = Federation(options, shards=shards), Federation(options, "ideal", shards=1)
    for (heard, final), shard_count in ((secure.run(rounds), shards), (ideal.run(rounds), 1)):
        assert len(heard) == shard_count
        for number, vectors in enumerate(rounds):
            truth = fixed_sum(vectors, options.fraction_bits)
            assert np.array_equal(final[number], truth)
            assert all(np.array_equal(got[number], truth) for got in heard)
    assert_same_ledger(secure.ledger, ideal.ledger)


def assert_same_ledger(secure: LedgerReport | None, ideal: LedgerReport | None) -> None:
    """Array by array; only the names of the topics, and the label, tell the backends apart."""
    assert secure is not None
    assert ideal is not None
    for name, value in vars(secure).items():
        if name == "topics":
            lines = {key.removesuffix("/ideal"): line for key, line in ideal.topics.items()}
            assert {key: (line.messages, line.bytes) for key, line in value.items()} == {
                key: (line.messages, line.bytes) for key, line in lines.items()
            }
            assert all(line.ideal for line in lines.values())
            assert not any(line.ideal for line in value.values())
        elif name == "clear_traffic":
            assert value == {}
            assert set(ideal.clear_traffic) == {"aggregate/ideal", "aggregate/clear-sum/ideal"}
        else:
            assert np.array_equal(value, getattr(ideal, name)), name


@pytest.mark.parametrize("backend", ["secure", "ideal"])
def test_the_same_sums_and_ledger_however_devices_are_spread(
    backend: str, ledger_differences: Differences
) -> None:
    total = 60
    rounds = [vectors_of(total, 9, number) for number in range(2)]
    drop_stage = [np.full(total, Stage.NEVER, np.int8) for _ in rounds]
    if backend == "secure":
        drop_stage[0][[3, 17]] = Stage.MASKED, Stage.REVEAL
        drop_stage[1][[3, 40, 41]] = Stage.WRAPPED, Stage.ALIVE, Stage.WRAPPED
    reference = Federation(AggregateSettings(), backend)
    _, sums = reference.run(rounds, drop_stage)
    for number, (vectors, silent) in enumerate(zip(rounds, drop_stage, strict=True)):
        assert np.array_equal(sums[number], fixed_sum(vectors[silent > Stage.MASKED], FRACTION))
    for shards in (2, 7, 60):
        again = Federation(AggregateSettings(), backend, shards=shards)
        heard, same = again.run(rounds, drop_stage)
        assert all(np.array_equal(one, two) for one, two in zip(sums, same, strict=True))
        for got in heard:
            for number, one in enumerate(got):
                assert one is None or np.array_equal(one, sums[number])
        assert reference.ledger is not None
        assert again.ledger is not None
        assert ledger_differences(reference.ledger, again.ledger) == []


@pytest.mark.parametrize("backend", ["secure", "ideal"])
def test_shards_share_nothing_but_messages(backend: str, ledger_differences: Differences) -> None:
    rounds = [vectors_of(12, 3, number) for number in range(2)]
    drop_stage = [np.full(12, Stage.NEVER, np.int8) for _ in rounds]
    if backend == "secure":
        drop_stage[0][5] = Stage.MASKED
    plain = Federation(AggregateSettings(), backend)
    _, sums = plain.run(rounds, drop_stage)
    isolated = Federation(AggregateSettings(), backend, shards=5, transport=Isolated)
    _, same = isolated.run(rounds, drop_stage)
    assert all(np.array_equal(one, two) for one, two in zip(sums, same, strict=True))
    assert plain.ledger is not None
    assert isolated.ledger is not None
    assert ledger_differences(plain.ledger, isolated.ledger) == []


def test_a_device_that_was_lost_comes_back_in_the_next_round() -> None:
    rounds = [vectors_of(8, 4, number) for number in range(3)]
    drop_stage = [np.full(8, Stage.NEVER, np.int8) for _ in rounds]
    drop_stage[1][2] = Stage.MASKED
    _, sums = Federation(AggregateSettings()).run(rounds, drop_stage)
    everyone = np.arange(8)
    for vectors, total, there in zip(
        rounds, sums, (everyone, everyone != 2, everyone), strict=True
    ):
        assert np.array_equal(total, fixed_sum(vectors[there], FRACTION))


@pytest.mark.parametrize("silent", [Stage.WRAPPED, Stage.MASKED])
def test_below_the_minimum_nothing_is_opened(silent: Stage) -> None:
    options = AggregateSettings(neighbours=6, threshold=3, minimum=5)
    drop_stage = np.full(8, Stage.NEVER, np.int8)
    drop_stage[:3] = silent
    _, enough = Federation(options).run([vectors_of(8, 3)], [drop_stage])
    assert enough[0] is not None
    drop_stage[3] = silent
    federation = Federation(options)
    heard, final = federation.run([vectors_of(8, 3)], [drop_stage])
    assert (heard, final) == ([[None]], [None])
    assert federation.bodies("aggregate/reveal") == {}  # nobody gave a share of anything


def test_short_words_have_the_same_sums() -> None:
    options = AggregateSettings(limit=8, fraction_bits=16)
    vectors = np.random.default_rng(1).uniform(-8, 8, (30, 7))
    drop_stage = np.full(30, Stage.NEVER, np.int8)
    drop_stage[4] = Stage.MASKED
    federation = Federation(options)
    _, sums = federation.run([vectors], [drop_stage])
    assert np.array_equal(sums[0], fixed_sum(np.delete(vectors, 4, axis=0), 16))
    k, t = mask_parameters(options, 30).neighbours, mask_parameters(options, 30).threshold
    assert len(federation.bodies("aggregate/masked")[0][0]) == 7 * 4 + 16 * (k - t) + 16


def test_the_fused_ideal_sum_is_within_its_stated_tolerance() -> None:
    total = 60
    vectors = vectors_of(total, 50)
    fused = Federation(AggregateSettings(), "ideal", shards=3, fused=True)
    exact = Federation(AggregateSettings(), "ideal", shards=3)
    _, [close] = fused.run([vectors])
    _, [right] = exact.run([vectors])
    assert np.abs(close - right).max() <= total * 2.0 ** -(FRACTION + 1)
    assert vars(fused.ledger)["messages"] == vars(exact.ledger)["messages"]
    assert vars(fused.ledger)["bytes"] == vars(exact.ledger)["bytes"]


def test_wrong_use_is_refused() -> None:
    shard = shards_of(5, 1)[0]
    aggregator = SecureAggregator(shard, Endpoint(shard))
    with pytest.raises(UsageError, match="setup"):
        next(aggregator.sum(np.zeros((5, 2))))
    for backend in ("secure", "ideal"):
        with pytest.raises(UsageError, match=r"\[5, width\]"):
            Federation(AggregateSettings(), backend, crop=4).run([np.zeros((5, 2))])
        with pytest.raises(InputError, match="beyond"):
            Federation(AggregateSettings(), backend).run([np.full((5, 2), 2000.0)])


def test_an_aggregator_prints_no_key_and_is_never_written_down() -> None:
    shard = shards_of(5, 1)[0]
    aggregator = SecureAggregator(shard, Endpoint(shard))
    assert repr(aggregator) == "<SecureAggregator>"
    with pytest.raises(TypeError, match="never written down"):
        pickle.dumps(aggregator)
