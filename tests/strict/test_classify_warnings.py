"""Warnings: each appears where its number says so, and on a graph that is made to trigger it."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.narrow import present
from tests.strict.classifying import schedule_of
from tests.strict.composition import honest_noise
from tests.strict.test_feature_scaling import communities

import lumos
from lumos.graph import Graph
from lumos.strict.classify.evidence import Selection
from lumos.strict.classify.stages import ENCODER
from lumos.strict.guarantees import DROWNED, FEW, WEAK_LABEL, WIDE, Found
from lumos.strict.guarantees import classify_warnings as warnings
from lumos.training.metrics import below_own, no_better_than_control, still_falling, unconverged

PLENTY: dict[str, Any] = {"devices": 200_000, "training": 100_000, "validation": 50_000}


def measured(error: float, *, choice: int = 1, gain: tuple[float, float] = (9.0, 1.0)) -> Selection:
    return Selection(choice, (0.7, error), (0.7, error), gain)


def found(width: int = 100, error: float = 0.01, **others: Any) -> Found:
    return Found(
        features=20, width=width, selection=others.pop("selection", measured(error)), **others
    )


def test_none_where_there_is_enough_of_everything() -> None:
    plenty = schedule_of(**PLENTY)
    assert warnings(plenty, found(1000)) == []
    assert (
        warnings(plenty, found(1000, selection=Selection.empty())) == []
    )  # before the model selection


def test_noise_that_drowns_the_encoder() -> None:
    """Where its norm is above that of all updates together."""
    for training, protect in ((300, "noise"), (100_000, "noise"), (300, "none")):
        schedule = schedule_of(devices=2 * training, training=training, protect=protect)
        drowned = training == 300 and protect == "noise"
        sentences = warnings(schedule, found(36_060))
        assert [
            f"{training:,} training devices are too few for 36,060 weights" in s for s in sentences
        ] == ([True] if drowned else [])
    schedule = schedule_of()
    noise = honest_noise(schedule, ENCODER, 0) / schedule[ENCODER].sensitivity.norm
    border = (schedule.training / noise) ** 2  # σ · √width = n
    assert not warnings(schedule, found(math.floor(border) - 1))
    (sentence,) = warnings(schedule, found(math.ceil(border) + 1))
    assert "would do" not in sentence


@pytest.mark.parametrize(
    ("settings", "weak"),
    [
        ({"label_epsilon": 3.0}, False),
        ({"label_epsilon": 2.0}, False),
        ({"label_epsilon": 1.0}, True),
        ({"label_epsilon": 1.0, "classes": 2}, False),
        ({"label_epsilon": 3.0, "classes": 100, "mechanism": "krr"}, True),
    ],
)
def test_labels_that_are_mostly_noise(settings: dict[str, Any], weak: bool) -> None:
    schedule = schedule_of(devices=200_000, training=100_000, **settings)
    classes = settings.get("classes", 4)
    level = settings["label_epsilon"]
    odds = math.exp(-level)
    truthful, other = 1 / (1 + (classes - 1) * odds), odds / (1 + (classes - 1) * odds)
    assert (truthful - other < WEAK_LABEL) == weak
    assert any("mostly noise" in sentence for sentence in warnings(schedule, found())) == weak


def test_few_labels() -> None:
    strength = schedule_of().strength
    border = FEW * 4 / strength**2
    for training in (math.floor(border), math.ceil(border)):
        schedule = schedule_of(devices=2000, training=training)
        few = [s for s in warnings(schedule, found(1)) if s.startswith("few labels")]
        assert bool(few) == (training < border)
    (sentence,) = warnings(schedule_of(devices=2000, training=50), found(1))
    assert sentence == "few labels: 50 training devices for 4 classes at `label_epsilon=3`"


def test_few_validation_devices() -> None:
    schedule = schedule_of(devices=200_000, training=100_000, validation=20)
    assert warnings(schedule, found(error=WIDE)) == []
    (sentence,) = warnings(schedule, found(error=2 * WIDE))
    assert sentence.startswith("20 validation devices are few")
    assert sentence.endswith("a standard error of 12 points")
    digits = schedule_of(**PLENTY, classes=30, mechanism="digits")
    (sentence,) = warnings(digits, found(error=2 * WIDE))
    assert sentence.startswith("a label of 30 classes is sent as one of its digits: model select")
    # A model selection of so few has such an error.
    selection = Selection.of(np.array([schedule.validation / 2, 0.0, 0.0]), schedule)
    assert selection.accuracy[1] > WIDE


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (-500.0, "neighbours mislead here"),
        (-150.0, "told from noise"),
        (3.0, "cannot be told from noise"),
        (900.0, None),
    ],
)
def test_neighbours_that_mislead_or_say_nothing(net: float, words: str | None) -> None:
    schedule = schedule_of(**PLENTY)
    selection = measured(0.01, choice=int(net > 100), gain=(net, 100.0))
    sentences = warnings(schedule, found(selection=selection))
    assert len(sentences) == (words is not None)
    if words is not None:
        assert words in sentences[0]
        points = 100 * net / 50_000 / schedule.strength
        assert f"({points:+.1f} ± " in sentences[0]


def test_the_gain_of_a_selection_is_what_it_counted() -> None:
    schedule = schedule_of(protect="none")
    selection = Selection.of(np.array([100.0, 30.0, 50.0]), schedule)
    assert selection.choice == 0
    assert selection.gain == (-20.0, math.sqrt(80))


def test_a_feature_that_hides_the_others() -> None:
    schedule = schedule_of(**PLENTY)
    assert warnings(schedule, found(largest=DROWNED)) == []
    (sentence,) = warnings(schedule, found(largest=0.9))
    assert sentence.startswith("one feature makes up 81 % of a device's features")
    assert "`scaling='standard'`" in sentence
    assert warnings(schedule, Found(1, 10, measured(0.01), largest=1.0)) == []


def test_rows_that_are_alike_and_features_beyond_their_bounds() -> None:
    schedule = schedule_of(**PLENTY)
    assert warnings(schedule, found(alike=0.9)) == []
    (sentence,) = warnings(schedule, found(alike=0.95))
    assert sentence.startswith("features of all devices are nearly alike, because of an offset")
    wide = replace(schedule, bounded=False)
    (sentence,) = warnings(wide, found())
    assert sentence.startswith("features go beyond -1 and 1 and were used as they are")
    scaled = replace(schedule, bounded=False, scaling="standard")
    assert warnings(scaled, found()) == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("one column in the thousands", "one feature makes up"),
        ("offset", "nearly alike"),
        ("years", "nearly alike"),
        ("scales from 0.001 to 1000", "used as they are"),
    ],
)
def test_every_kind_of_scale_is_noticed_where_nothing_was_done(kind: str, words: str) -> None:
    text = said(communities(kind), scaling="none")
    assert words in text
    assert "`scaling='standard'`" in text
    assert not any(part in said(communities(kind)) for part in ("one feature", "alike", "as they"))


def test_scales_that_noise_hid() -> None:
    scaled = replace(schedule_of(**PLENTY), scaling="standard")
    (sentence,) = warnings(scaled, found(scaled=False))
    assert "too few to learn the scales of 20 features" in sentence
    assert "`feature_bounds`" in sentence


# The observer's.


def test_a_loss_that_still_falls() -> None:
    falling = np.exp(-np.arange(50) / 30)
    flat = np.concatenate([np.exp(-np.arange(50) / 3), np.full(50, 1e-9)]) + 1
    noisy = 1 + 0.05 * np.random.default_rng(0).standard_normal(100)
    assert still_falling(falling.tolist()) is not None
    for losses in (flat, noisy, falling[:9], falling[::-1]):
        assert still_falling(losses.tolist()) is None
    assert still_falling([None, float("nan"), *falling.tolist()]) is not None
    (sentence,) = unconverged(falling.tolist(), 60)
    assert "`epochs=120` trains longer" in sentence
    assert not list(unconverged(flat.tolist(), 60))


def test_own_features_or_a_control_that_did_as_well() -> None:
    assert list(below_own(0.80, 0.79, 1000, "accuracy")) == []
    assert list(below_own(0.80, 0.82, 1000, "accuracy")) == []  # chance: one error is 1.8 points
    assert list(below_own(0.80, None, 1000, "accuracy")) == []
    (sentence,) = below_own(0.80, 0.90, 1000, "accuracy")
    assert "by 10.0 points" in sentence
    assert list(no_better_than_control(0.9, 0.8, 1000, "accuracy")) == []
    assert list(no_better_than_control(0.9, None, 1000, "accuracy")) == []
    (sentence,) = no_better_than_control(0.9, 0.89, 1000, "accuracy")
    assert "the control did as well" in sentence


# On graphs that are made to trigger them.


def with_edges(graph: Graph, edges: Any) -> Graph:
    return Graph.from_edges(
        edges, devices=graph.devices, features=graph.features, labels=graph.labels
    )


def said(graph: Graph, **settings: Any) -> str:
    return "\n".join(lumos.train(graph, **settings).model.warnings)


def test_random_edges_say_nothing() -> None:
    graph = communities()
    edges = np.random.default_rng(0).integers(0, graph.devices, (3 * graph.devices, 2))
    assert "what neighbours add cannot be told from noise" in said(with_edges(graph, edges))


def test_few_devices_for_the_noise_and_few_labels() -> None:
    text = said(communities(devices=100), feature_epsilon=1.0)
    assert "training devices are too few for 69 weights" in text
    assert "few labels: 50 training devices for 4 classes" in text
    assert "validation devices are few" in text


def test_scales_that_nothing_was_done_about() -> None:
    graph = communities("one column in the thousands")
    assert "one feature makes up 100 % of" in said(graph, scaling="none")
    assert "one feature makes up" not in said(graph)
    hidden = "features were not brought to one scale: 30 training devices are too few"
    assert hidden in said(communities("one column in the thousands", devices=60))


@pytest.mark.parametrize("kind", ["one column in the thousands", "scales from 0.001 to 1000"])
def test_advice_on_scales_helps(kind: str) -> None:
    """Both remedies of the warning are followed."""
    graph = communities(kind)
    plain = lumos.train(graph, scaling="none")
    (advice,) = [text for text in plain.warnings if "would help" in text]
    assert "public bounds (`feature_bounds`) would help, and `scaling='standard'` if" in advice
    rows: Any = graph.features
    low, high = rows.min(axis=0), rows.max(axis=0)
    bounded = replace(graph, features=((rows - low) / (high - low)).astype(np.float32))
    for followed in (lumos.train(graph, scaling="standard"), lumos.train(bounded)):
        assert present(followed.own)["test_accuracy"] > present(plain.own)["test_accuracy"] + 0.1


def test_advice_on_sparse_features_can_be_followed() -> None:
    """`standard` would fill their zeros, and is refused."""
    graph = communities("one column in the thousands")
    sparse = replace(graph, features=csr_array(np.asarray(graph.features)))
    plain = lumos.train(sparse, scaling="none")
    assert any("and `scaling='size'` if most features" in text for text in plain.warnings)
    followed = lumos.train(sparse, scaling="size")
    assert present(followed.own)["test_accuracy"] > present(plain.own)["test_accuracy"] + 0.1


def test_scaling_is_not_advised_where_it_cannot_help() -> None:
    """Of an offset that must keep its zeros, and where noise would hide the scales."""
    offset = communities("offset")
    sparse = replace(offset, features=csr_array(np.asarray(offset.features)))
    assert "nearly alike" in (text := said(sparse, scaling="none"))
    assert "`feature_bounds`" in text
    assert "`scaling=" not in text
    for devices in (200, 600):
        text = said(communities("years", devices), scaling="none")
        needed = re.search(r"not 0 in (\d+) or more", text)
        followed = said(communities("years", devices), scaling="standard")
        assert ("`feature_bounds`" in followed) == (needed is None) == (devices == 200)
        assert "`feature_bounds`" in text
        if needed is not None:
            assert int(needed[1]) <= devices // 2


def test_too_few_epochs() -> None:
    graph = communities(devices=300)
    text = said(
        graph, profile="paper", epochs=15, balancer="none", low=-1e3, high=1e3, epsilon=float("inf")
    )
    assert "training was not finished" in text
    assert "`epochs=30` trains longer" in text
