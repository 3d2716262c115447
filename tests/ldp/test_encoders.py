"""Mechanisms of one's own for features: ε by enumeration, releases, refusals, runs."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from tests.runs.running import heard, run

from lumos import Graph, UsageError
from lumos.device.randomness import PrivateRandomness, simulated_secrets
from lumos.errors import ProtocolError
from lumos.ldp import ENCODERS, EncoderSettings, FiniteEncoder, SharedEncoder
from lumos.ldp.wire import Messages


class Ternary(FiniteEncoder):
    """Randomized response on three levels, all elements."""

    levels = outputs = 3
    lies = 1.0
    """Declared share of lies; less of them than ε allows breaks it."""

    def elements(self, width: int, epsilon: float) -> int:
        return width

    def table(self, epsilon: float) -> np.ndarray:
        other = math.ceil(self.lies * self.seeds / (math.exp(epsilon) + 2))
        seed = np.arange(self.seeds)
        step = np.minimum(seed // other, 2)  # 0 and 1: one of the others; 2: the truth
        return (np.arange(3)[:, None] + 1 + step) % 3


class Sampled(Ternary):
    """The same on three elements drawn at random."""

    def elements(self, width: int, epsilon: float) -> int:
        return 3


class Broken(Ternary):
    lies = 0.5


class Certain(Ternary):
    def table(self, epsilon: float) -> np.ndarray:
        return np.tile(np.arange(3)[:, None], self.seeds)


class Laplace(SharedEncoder):
    """A continuous mechanism, which nobody can enumerate."""

    def size(self, width: int, epsilon: float) -> int:
        return 4 * width

    def words(self, width: int, epsilon: float) -> int:
        return width

    def release(self, features: np.ndarray, words: np.ndarray, epsilon: float) -> np.ndarray:
        uniform = (words + 0.5) / 2**32 - 0.5
        noise = -np.sign(uniform) * np.log1p(-2 * np.abs(uniform)) * features.shape[1] / epsilon
        return (features + noise).astype("<f4").view(np.uint8)

    def recover(self, messages: np.ndarray, width: int, epsilon: float) -> np.ndarray:
        return np.ascontiguousarray(messages).view("<f4") - 0.5


ENTRIES: dict[str, Any] = {
    "ternary": Ternary(),
    "sampled": Sampled(),
    "broken": Broken(),
    "certain": Certain(),
    "laplace": Laplace(),
}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for name, entry in ENTRIES.items():
        ENCODERS.register(name, entry)
    yield
    for name in ENTRIES:
        ENCODERS.remove(name)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_enumeration_finds_the_epsilon_of_the_closed_form(epsilon: float) -> None:
    """Of randomized response: ln(p/q), at most ε, and close to it."""
    found = Ternary().check(epsilon)
    other = math.ceil(2**16 / (math.exp(epsilon) + 2))
    assert found == pytest.approx(math.log((2**16 - 2 * other) / other))
    assert epsilon - 2e-3 < found <= epsilon
    with pytest.raises(UsageError, match=r"Broken: declares ε = .*finds \d"):
        Broken().check(epsilon)
    with pytest.raises(UsageError, match="finds inf"):
        Certain().check(epsilon)


def exchanged(name: str, features: Any, epsilon: float, devices: int) -> Any:
    settings = EncoderSettings(epsilon=epsilon, encoder=name, low=-1.0, high=3.0)
    randomness = PrivateRandomness(simulated_secrets(0, np.arange(devices)))
    encoder = ENCODERS[name]
    messages, spent = encoder.encode(
        features, np.full(devices, 2, np.int64), settings, randomness, 0
    )
    assert (spent == epsilon).all()
    pairs = messages.data.reshape(devices, 2, -1)
    assert np.array_equal(pairs[:, 0], pairs[:, 1])  # the same to both receivers
    found = encoder.decode(messages, features.shape[1], settings)
    return (found.toarray() if isinstance(found, csr_array) else found)[::2]


@pytest.mark.parametrize("name", ["ternary", "laplace"])
def test_estimates_are_unbiased_in_the_units_of_the_features(name: str) -> None:
    row = np.array([-1.0, 1.0, 3.0, 3.0], np.float32)
    many = 20_000
    found = exchanged(name, np.tile(row, (many, 1)), 8.0, many)
    error = found.std(axis=0) / math.sqrt(many)
    assert_allclose(found.mean(axis=0), row - 1.0, atol=5 * error.max())
    sparse = csr_array(np.tile(np.array([0.0, 1.0, 0.0, 3.0], np.float32), (5, 1)))
    assert exchanged(name, sparse, 8.0, 5).shape == (5, 4)


def test_sampled_elements_are_distinct_and_the_release_is_that_of_the_table() -> None:
    """Frequencies of outputs over many devices are those that were enumerated."""
    many, encoder, epsilon = 30_000, Sampled(), 3.0
    words = np.random.default_rng(0).integers(0, 1 << 32, (many, 6), np.uint32)
    released = encoder.release(np.full((many, 5), 0.5), words, epsilon)
    place = released[:, :12].copy().view("<u4")
    assert (np.diff(place.astype(int), axis=1) > 0).all()
    assert_allclose(np.bincount(place.ravel(), minlength=5) / many, 0.6, atol=0.02)
    shares = np.bincount(released[:, 12:].ravel(), minlength=3) / (3 * many)
    assert_allclose(shares, encoder.counts(1.0)[1] / encoder.seeds, atol=0.01)
    broken = released[:1].copy()
    broken[0, 12] = 3
    with pytest.raises(ProtocolError, match="an element or output that is none"):
        encoder.recover(broken, 5, epsilon)
    settings = EncoderSettings(encoder="sampled")
    short = Messages(offsets=np.array([0, 3]), data=np.zeros(3, np.uint8))
    with pytest.raises(ProtocolError, match="is not 15 bytes"):
        encoder.decode(short, 5, settings)


@pytest.mark.parametrize("shards", [1, 3])
def test_runs_release_once_to_all_and_mark_what_is_unchecked(shards: int, sixty: Graph) -> None:
    checked, wire = heard(sixty, encoder="sampled", epsilon=4.0, shards=shards)
    line = checked.ledger.topics["train/shared-features"]
    assert line.messages > 0
    assert "train/features" not in wire.topics()
    assert checked.ledger.epsilon_per_receiver == checked.ledger.epsilon_collusion == 4.0
    assert "unchecked" not in checked.model.exposed
    assert not any("unchecked" in text for text in checked.model.warnings)
    free = run(sixty, encoder="laplace", epsilon=4.0, shards=shards)
    assert "(unchecked: declared by encoder 'laplace')" in free.model.exposed
    assert any("is unchecked" in text for text in free.model.warnings)
    (_, words), = free.config.profile.texts(free.config).guarantee([], 6)  # fmt: skip
    assert "ε = 4 (unchecked: declared by encoder 'laplace')" in words


def test_what_breaks_its_declaration_is_refused_before_a_run(sixty: Graph, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Broken: declares"):
        run(sixty, encoder="broken", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="needs a finite `epsilon`"):
        run(sixty, encoder="ternary", epsilon=math.inf)
    with pytest.raises(UsageError, match="`encoder` must be one of one-bit, ternary"):
        run(sixty, encoder="other")
    with pytest.raises(UsageError, match="`recovery` has no effect with `encoder='ternary'`"):
        run(sixty, encoder="ternary", recovery="literal")
