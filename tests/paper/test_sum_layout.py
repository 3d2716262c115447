"""Gradients and statistics as words of 32 bits, against the 64-bit sums."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from tests.own_parts import MyConv
from tests.runs.running import heard, run
from tests.secagg.federation import Federation

from lumos import Graph
from lumos.errors import InputError
from lumos.paper.messages import CLEAR_FEATURES
from lumos.paper.profile import NARROW_UPDATES
from lumos.paper.updates import LEAST_EXPONENT, NEAR, SumLayout
from lumos.secagg import FixedPoint
from lumos.training.config import UPDATES, Config

CONFIG = Config.of(profile="paper", aggregate="secure")
WIDE = replace(CONFIG, updates=UPDATES)


def summed(config: Config, vectors: np.ndarray) -> np.ndarray:
    """The sum of vectors as masked sums compute it: each encoded, added up modulo 2^w."""
    fixed = FixedPoint.of(config.updates, len(vectors))
    words = fixed.encode(vectors).sum(axis=0, dtype=fixed.dtype)
    return fixed.decode(fixed.unpack(fixed.pack(words)))


@st.composite
def updates(draw: st.DrawFn) -> tuple[list[int], np.ndarray, np.ndarray, np.ndarray]:
    """Sizes of tensors, e of their ranges, gradients within them, and statistics."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    devices = draw(st.integers(2, 300))
    exponents = np.array(draw(st.lists(st.integers(0, 18), min_size=4, max_size=4))[: len(sizes)])
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scales = 2.0 ** np.repeat(exponents, sizes)
    gradients = random.uniform(-1, 1, (devices, sum(sizes))) * scales
    statistics = random.uniform(-(2.0**18), 2.0**18, (devices, 4))
    return sizes, exponents, gradients, statistics


@given(updates(), st.integers(14, 28))
def test_sums_of_32_bits_are_those_of_64_within_rounding(given_updates: Any, bits: int) -> None:
    """Each device adds at most half a step of 2^(e - f), and half a step of 2^-24."""
    sizes, exponents, gradients, statistics = given_updates
    narrow = replace(CONFIG, updates=replace(CONFIG.updates, fraction_bits=bits))
    layout, plain = (SumLayout(c, len(gradients), sizes) for c in (narrow, WIDE))
    layout.exponents = exponents
    fixed = FixedPoint.of(narrow.updates, len(gradients))
    assert fixed.wire == 4
    steps = 2.0 ** (np.repeat(exponents, sizes) - fixed.fraction_bits) + 2.0**-24
    short, counts = layout.read(summed(narrow, layout.vectors(gradients, statistics)))
    long, exact = plain.read(summed(WIDE, plain.vectors(gradients, statistics)))
    assert (np.abs(short - long) <= len(gradients) * steps / 2).all()
    assert_array_equal(counts, exact)
    assert layout.clipped_epochs == 0


@pytest.mark.parametrize("devices", [3, 127, 22_470, 131_071])
def test_nothing_wraps_if_everybody_exceeds_the_range(devices: int) -> None:
    """All devices hand in numbers far beyond it, all of one sign: the sum is n times its end."""
    layout = SumLayout(CONFIG, devices, [2, 1])
    one = layout.vectors(np.array([[-1e9, 5e8, 1e-3]]), np.array([[2.0, 1, 0, 0]]))
    fixed = FixedPoint.of(CONFIG.updates, devices)
    assert fixed.wire == 4
    words = fixed.encode(one).astype(np.uint64) * devices
    total = fixed.decode(fixed.unpack(fixed.pack(words.astype(fixed.dtype)))[0])
    gradient, statistics = layout.read(total)
    first = max(LEAST_EXPONENT, fixed.fraction_bits - 24)
    end = 2.0**first * devices
    assert gradient[:2].tolist() == [-end, end / 2]  # the direction is kept
    assert statistics.tolist() == [2.0 * devices, devices, 0, 0]
    assert layout.clipped_devices == devices
    assert layout.exponents.tolist() == [first + 2, first]
    assert "exceeded the range of 32-bit sums" in layout.warnings()[0]


def test_a_range_is_halved_until_somebody_is_near() -> None:
    layout = SumLayout(CONFIG, 22_470, [1, 1])
    layout.exponents += 10
    fixed = FixedPoint.of(CONFIG.updates, 22_470)
    for _ in range(30):
        vectors = layout.vectors(np.array([[10.0, 0.01]]), np.zeros((1, 4)))
        layout.read(fixed.decode(fixed.encode(vectors)[0]))
    near, least = 2.0**layout.exponents
    assert near * NEAR <= 10 < near * NEAR * 2
    assert least == 2.0**LEAST_EXPONENT
    again = SumLayout(CONFIG, 22_470, [1, 1])
    again.load_state_dict(layout.state_dict())
    assert_array_equal(again.exponents, layout.exponents)
    assert layout.warnings() == []


def test_masked_sums_of_32_bits_are_the_ideal_ones_bit_by_bit() -> None:
    random, layout = np.random.default_rng(0), SumLayout(CONFIG, 9, [40, 3])
    vectors = layout.vectors(random.normal(size=(9, 43)), random.normal(size=(9, 4)))
    found = [Federation(CONFIG.updates, kind).run([vectors])[1] for kind in ("secure", "ideal")]
    assert_array_equal(*(sums[0] for sums in found))
    assert_array_equal(found[0][0], summed(CONFIG, vectors))


def test_a_statistic_beyond_the_range_is_refused_without_its_value() -> None:
    layout = SumLayout(CONFIG, 9, [1])
    with pytest.raises(InputError) as refused:
        layout.vectors(np.zeros((1, 1)), np.array([[0, 0, 300_000.5, 0]]))
    assert "300" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "devices", "wire"),
    [
        ({}, 20, 4),
        ({"backbone": "gat", "task": "link"}, 22_470, 4),
        ({}, 131_071, 4),
        ({}, 131_072, 5),
        ({"literal": True}, 22_470, 8),
        ({"literal": True, "epsilon": float("inf")}, 22_470, 4),
        ({"backbone": "sage"}, 20, 6),
        ({"backbone": MyConv}, 20, 6),
        ({"profile": "strict"}, 22_470, 8),
    ],
)
def test_public_numbers_choose_the_words(settings: Any, devices: int, wire: int) -> None:
    config = Config.of(**{"profile": "paper", **settings})
    assert FixedPoint.of(config.updates, devices).wire == wire


def test_a_simulation_in_the_clear_does_not_depend_on_the_words(sixty: Graph) -> None:
    """It books the bytes of 32 bits, and is not rounded to them."""
    settings: dict[str, Any] = {"aggregate": "ideal", "dropout": 0.1}
    narrow = run(sixty, **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lumos.paper.profile.NARROW_UPDATES", UPDATES)
        wide = run(sixty, **settings)
    for name, weights in narrow.model.weights.items():
        assert_array_equal(weights, wide.model.weights[name])
    sizes = [one.ledger.topics["aggregate/masked/ideal"].bytes for one in (narrow, wide)]
    assert sizes[0] < 0.65 * sizes[1]


def test_ranges_of_a_copy_are_its_own() -> None:
    layout = SumLayout(CONFIG, 900, [1])
    copy = deepcopy(layout)
    copy.read(np.ones(copy.width))
    assert layout.exponents.tolist() == [LEAST_EXPONENT] != copy.exponents.tolist()


def with_features(graph: Graph, features: np.ndarray) -> Graph:
    return Graph.from_edges(
        graph.edge_list(), features=csr_array(features), labels=graph.labels, name="world"
    )


@pytest.mark.parametrize("epsilon", [2.0, float("inf")])
@pytest.mark.parametrize("task", ["classify", "link"])
def test_no_message_is_longer_for_the_features_that_a_device_has(
    sixty: Graph, task: str, epsilon: float
) -> None:
    """Two worlds that differ in features only, from none to all: lengths are equal throughout.

    Except for features that are sent as they are, without zeros, where nothing protects them.
    """
    random = np.random.default_rng(0)
    share = random.permutation(np.linspace(0, 1, 60))[:, None]
    few, many = (
        with_features(sixty, (random.random((60, 600)) < chance).astype(np.float32))
        for chance in (0.02, share)
    )
    wires = [
        heard(graph, task=task, epsilon=epsilon, aggregate="secure", epochs=2)[1]
        for graph in (few, many)
    ]
    lengths = [
        [(topic, [(m.sender, m.receiver, len(m.body)) for m in sent]) for topic, sent in w.rounds]
        for w in wires
    ]
    assert [topic for topic, _ in lengths[0]] == [topic for topic, _ in lengths[1]]
    for (topic, one), (_, other) in zip(*lengths, strict=True):
        assert (one == other) == (topic != CLEAR_FEATURES.name), topic


def test_least_fraction_bits_give_the_most_precise_32_bits() -> None:
    for devices in (2, 20, 127, 128, 22_470, 131_071, 131_072, 10_000_000):
        fixed = FixedPoint.of(NARROW_UPDATES, devices)
        assert 14 <= fixed.fraction_bits <= 28
        half = 1 << (8 * fixed.wire - 1)
        assert devices << fixed.fraction_bits < half
        assert fixed.fraction_bits == 28 or devices << (fixed.fraction_bits + 1) >= half
