"""No random bit twice: runs that differ in anything share none, and an equal run repeats every one.

Two sums with the same noise give their difference exactly, and two randomized labels from the same
random bit give away more than both pay for. So it would be no help that each run alone keeps its
guarantee.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chi2_contingency
from tests.narrow import present
from tests.runs.running import listening
from tests.strict.strictly import (
    epochs,
    federation,
    losses,
    run_with_wire,
    started,
    sums,
    the_same_randomness,
)

from lumos.crypto.groups import GROUPS
from lumos.device import Shard
from lumos.graph import Graph
from lumos.ldp.labels import LabelForm
from lumos.runs.train import train
from lumos.strict.classify.stages import ENCODER
from lumos.strict.profile import randomness_name
from lumos.strict.settings import CLASSIFY_ONLY, LINK_ONLY, settings_of
from lumos.training.config import Config, Task

pytestmark = pytest.mark.usefixtures("short")

SHORT = {"encoder_epochs": 2, "epochs": 8}
CLASSES, DEVICES = 6, 2000


def graph_of(*, touched: str = "", devices: int = DEVICES) -> Graph:
    """A graph; `touched` in one value of one device."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, devices)
    features = rng.random((devices, 20)).astype(np.float32)
    pairs = rng.integers(0, devices, (3 * devices, 2))
    if touched == "feature":
        features[17, 3] = 0.5
    if touched == "label":
        labels[17] = (labels[17] + 1) % CLASSES
    if touched == "edge":
        pairs = pairs[1:]
    return Graph.from_edges(pairs, devices=devices, features=features, labels=labels)


OTHERS: list[dict[str, Any]] = [
    {"feature_epsilon": 8.5},
    {"delta": 2e-5},
    {"label_epsilon": 0.6},
    {"touched": "feature"},
    {"touched": "label"},
    {"touched": "edge"},
    {"propagated_labels": 1},
    {"propagated_epsilon": 3.9},
    {"signs": "signed"},
    {"clip": 0.31},
    {"mechanism": "krr"},
    {"tree_network": True, "epochs": 12},
    {"seed": 1},
]
"""What two runs differ in."""
NAMES = [str(other) for other in OTHERS]


def made(make: Any = started, **settings: Any) -> Any:
    settings = {**SHORT, "label_epsilon": 0.5, **settings}
    devices = settings.pop("devices", DEVICES)
    return make(graph_of(touched=settings.pop("touched", ""), devices=devices), **settings)


def noise_of(aggregate: str, **settings: Any) -> np.ndarray:
    """The noise in the first sum of the encoder, in standard deviations."""
    run = made(aggregate=aggregate, devices=DEVICES if aggregate == "ideal" else 60, **settings)
    trainer = run.trainers[0]
    first = next(e for e in range(9) if trainer.schedule.place(e)[0].name == ENCODER)
    epochs(run, 0, first)
    exact = trainer.encoder.update(each=False)
    with sums() as opened:
        epochs(run, first, first + 1)
    noise: np.ndarray = (opened[0][1] - exact) / trainer.schedule[ENCODER].noise(0).total
    return noise


def offsets_of(**settings: Any) -> np.ndarray:
    """[devices] how far the released randomized label is from the true label, and -1 for the
    silent."""
    true = present(graph_of(touched=settings.get("touched", "")).labels)
    run = made(**settings)
    with listening() as wire:
        run.run(lambda trainer: trainer.release())
    found = np.full(DEVICES, -1)
    for message in wire.all_of("strict/symbol"):
        found[message.sender] = (message.body[0] - true[message.sender]) % CLASSES
    return found


def agreement(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """How many offsets are the same, and the p-value of independence."""
    both = (one >= 0) & (other >= 0)
    table = np.zeros((CLASSES, CLASSES))
    np.add.at(table, (one[both], other[both]), 1)
    return float((one == other)[both].mean()), float(chi2_contingency(table).pvalue)


@pytest.fixture(scope="module")
def noise(short: Any) -> dict[str, np.ndarray]:
    return {aggregate: noise_of(aggregate) for aggregate in ("ideal", "secure")}


@pytest.fixture(scope="module")
def offsets(short: Any) -> np.ndarray:
    return offsets_of()


def drawn(shard: Shard) -> np.ndarray:
    """[hosted, 8] words that only the secrets of the devices give."""
    return shard.randomness.words(np.arange(len(shard)), "a test", 0, 8)


@pytest.mark.parametrize("other", OTHERS, ids=NAMES)
def test_runs_that_differ_share_no_secret(other: dict[str, Any]) -> None:
    one, two = (drawn(made(federation, **settings).shards[0]) for settings in ({}, other))
    assert not (one == two).all(axis=1).any()
    assert (one == two).mean() < 1e-3  # of 16,000 words of 32 bits


@pytest.mark.parametrize(
    "other",
    [{"control": True}, {"checkpoint_every": 7}, {"floor": False}],
    ids=str,
)
@pytest.mark.parametrize("task", ["classify", "link"])
def test_what_does_not_change_a_run_does_not_change_its_randomness(
    other: dict[str, Any], task: str, sixty: Graph, short: Any
) -> None:
    """The same seed gives the same run, with a control beside it and without."""
    settings: dict[str, Any] = {"task": task}
    labelled = {"epochs": 8, "encoder_epochs": 2, "participation": "labelled"}
    settings |= labelled if task == "classify" else {}
    one, two = (train(sixty, **settings, **more) for more in ({}, other))
    assert one.metrics == two.metrics
    assert one.model.weights.keys() == two.model.weights.keys()
    for name, weights in one.model.weights.items():
        assert np.array_equal(weights, two.model.weights[name]), name


@pytest.mark.parametrize(
    ("settings", "digest"),
    [
        ({}, "c3ffd0fa9b7f1d922acc9af19e0d4052"),
        ({"tree_network": True, "signs": "signed"}, "49317de21f4b289d252dbbfc5486011d"),
    ],
)
def test_classify_keeps_the_randomness_that_it_had(
    settings: dict[str, Any], digest: str, sixty: Graph
) -> None:
    """Settings of links came and went; results of classify can still be repeated.

    The digests were computed by the code that still had a codebook.
    """
    config = Config.of(**settings)
    problem = federation(sixty).problem
    assert randomness_name(problem, config, control=False) == f"/{digest}"
    assert randomness_name(problem, config, control=True) == f"/control/{digest}"


LIMITS = frozenset({"lifetime_epsilon"})
"""Settings that refuse a run, and do not change one."""
SOMETHING_ELSE: dict[str, Any] = {
    "label_epsilon": 3.5,
    "mechanism": "krr",
    "lifetime_epsilon": 9.0,
    "participation": "all",
    "tree_network": True,
    "encoder_epochs": 3,
    "clip": 0.4,
    "random_marks": 5,
    "query_bits": 1,
    "score_queries": 20,
    "query_epsilon": 3.0,
}


def test_there_is_another_value_of_every_setting_of_one_task() -> None:
    assert SOMETHING_ELSE.keys() == (CLASSIFY_ONLY | LINK_ONLY) - {"group"}  # of `TreeSettings`
    assert not CLASSIFY_ONLY & LINK_ONLY


@pytest.mark.parametrize("name", SOMETHING_ELSE)
def test_settings_of_one_task_change_its_randomness_and_not_those_of_the_other(
    name: str, sixty: Graph
) -> None:
    """Also where the command line would refuse the setting: the name of the randomness must not
    care."""
    problem = federation(sixty).problem
    of_tasks: dict[Task, frozenset[str]] = {"classify": CLASSIFY_ONLY, "link": LINK_ONLY}
    for task, own in of_tasks.items():
        config = Config.of(task=task)
        strict = replace(settings_of(config), **{name: SOMETHING_ELSE[name]})
        other = replace(config, profile_settings=strict)
        one, two = (randomness_name(problem, each, control=False) for each in (config, other))
        assert (one == two) == (name not in own - LIMITS)


@pytest.mark.parametrize("task", ["classify", "link"])
@pytest.mark.parametrize("group", GROUPS.names())
def test_the_group_of_scores_changes_no_coin(task: Task, group: str, sixty: Graph) -> None:
    problem = federation(sixty).problem
    configs = (Config.of(task=task), Config.of(task=task, group=group))
    assert len({randomness_name(problem, config, control=False) for config in configs}) == 1


@pytest.mark.parametrize("aggregate", ["ideal", "secure"])
@pytest.mark.parametrize(
    "other", [{"feature_epsilon": 8.5}, {"label_epsilon": 0.6}, {"touched": "feature"}], ids=str
)
def test_noise_does_not_cancel_between_runs_that_differ(
    aggregate: str, other: dict[str, Any], noise: dict[str, np.ndarray]
) -> None:
    one, two = noise[aggregate], noise_of(aggregate, **other)
    width = len(one)
    assert not np.isclose(one, two, rtol=1e-3).all()
    assert (one - two).std() == pytest.approx(np.sqrt(2), rel=6 / np.sqrt(2 * width))
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / np.sqrt(width)
    with (
        the_same_randomness()
    ):  # the test has teeth: with randomness of the seed alone, it does cancel
        one, two = noise_of(aggregate), noise_of(aggregate, **other)
    assert (one - two).std() < 1e-3


@pytest.mark.parametrize(
    "other", [{"feature_epsilon": 8.5}, {"label_epsilon": 0.6}, {"touched": "feature"}], ids=str
)
def test_randomized_labels_are_not_shifted_alike_in_runs_that_differ(
    other: dict[str, Any], offsets: np.ndarray
) -> None:
    """How far the released label is from the true one is independent between two runs."""
    same, chance = agreement(offsets, offsets_of(**other))
    epsilon = other.get("label_epsilon", 0.5)
    table = LabelForm(CLASSES, 1, CLASSES).table
    expected = (table(0.5)[0] * table(epsilon)[0]).sum()
    assert same == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(DEVICES))
    assert chance > 1e-4
    with the_same_randomness():
        same, chance = agreement(offsets_of(), offsets_of(**other))
    if (
        "label_epsilon" in other
    ):  # every level of noise has randomness of its own, whatever the secrets
        assert same == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(DEVICES))
        assert chance > 1e-4
    else:  # the test has teeth
        assert same == 1
        assert chance < 1e-100


def test_the_control_shares_nothing_with_the_run() -> None:
    one, two = (drawn(made(federation, control=c).shards[0]) for c in (False, True))
    assert not (one == two).all(axis=1).any()


@pytest.mark.parametrize("shards", [2, 7, 300])
def test_shards_do_not_change_a_secret(shards: int) -> None:
    whole = drawn(made(federation, devices=300).shards[0])
    for shard in made(federation, devices=300, shards=shards).shards:
        assert_array_equal(drawn(shard), whole[shard.devices])


@pytest.mark.parametrize("aggregate", ["ideal", "secure"])
def test_an_exact_repeat_is_the_same_bit_by_bit(
    aggregate: str, sixty: Graph, ledger_differences: Any
) -> None:
    settings = {**SHORT, "aggregate": aggregate}
    opened, wires, results = [], [], []
    for _ in range(2):
        with sums() as found:
            result, wire = run_with_wire(sixty, **settings)
        opened.append(found)
        wires.append(wire)
        results.append(result)
    assert len(opened[0]) == len(opened[1]) == 8 + 2
    for (step, one), (again, two) in zip(*opened, strict=True):
        assert step == again
        assert one.tobytes() == two.tobytes()
    for topic in ("strict/symbol", "strict/opinion"):
        assert wires[0].of(topic) == wires[1].of(topic)
    one, two = results
    assert losses(one).tobytes() == losses(two).tobytes()
    assert present(one.model.logits).tobytes() == present(two.model.logits).tobytes()
    assert all(
        one.model.weights[name].tobytes() == two.model.weights[name].tobytes()
        for name in one.model.weights
    )
    assert one.metrics == two.metrics
    assert one.guarantees == two.guarantees
    assert ledger_differences(one.ledger, two.ledger) == []
