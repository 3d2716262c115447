"""Sums over pairs: numpy's, bit by bit, in both backends, with the same ledger."""

import numpy as np
import pytest
from tests.exchange.transports import Isolated
from tests.twoparty.products.pairs import PairedRun, Problem

from lumos.exchange import LedgerReport
from lumos.secagg import AggregateSettings

SHORT = AggregateSettings(limit=64, fraction_bits=14)
LONG = AggregateSettings()


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
        elif name == "clear_traffic":
            assert value == {}
            assert set(ideal.clear_traffic) == {
                "aggregate/ideal",
                "aggregate/clear-sum/ideal",
                "products/ideal",
            }
        else:
            assert np.array_equal(value, getattr(ideal, name)), name


@pytest.mark.parametrize(
    ("settings", "noisy"),
    [
        pytest.param(SHORT, False, id="32 bits"),
        pytest.param(LONG, True, id="64 bits, noisy"),
        pytest.param(SHORT, True, id="32 bits, noisy", marks=pytest.mark.long),
        pytest.param(LONG, False, id="64 bits", marks=pytest.mark.long),
    ],
)
def test_totals_and_ledgers_are_the_same_in_both_backends(
    settings: AggregateSettings, noisy: bool
) -> None:
    problem = Problem(total=60, words=17, width=4, steps=3, unmatched=8, noisy=noisy)
    secure = PairedRun(problem, shards=1, settings=settings, toy=not (noisy and settings is LONG))
    heard, final = secure.run()
    everyone = np.arange(60)
    for step in range(problem.steps):
        truth = problem.truth(step, settings.fraction_bits, problem.pairs(), everyone)
        assert np.array_equal(final[step], truth)
        assert np.array_equal(heard[0][step], truth)
    for shards in (1, 60):
        ideal = PairedRun(problem, "ideal", shards, settings)
        same, also = ideal.run()
        assert np.array_equal(also, final)
        assert all(np.array_equal(one, final) for one in same)
        assert_same_ledger(secure.ledger, ideal.ledger)
    again = PairedRun(problem, "secure", 3, settings, toy=True)
    again.run()
    assert_same_ledger(again.ledger, ideal.ledger)


@pytest.mark.parametrize("backend", ["secure", "ideal"])
def test_shards_share_nothing_but_messages(backend: str) -> None:
    problem = Problem(steps=2)
    _, plain = PairedRun(problem, backend).run()
    _, isolated = PairedRun(problem, backend, shards=5, transport=Isolated).run()
    assert np.array_equal(plain, isolated)
