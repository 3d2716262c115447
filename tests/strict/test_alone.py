"""Never worse than alone; and a control that knows nothing."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2_contingency
from tests.narrow import present
from tests.runs.running import Wire, listening
from tests.strict.strictly import epochs, run_with_wire, started, strict, the_same_randomness

from lumos.device.randomness import PublicRandomness
from lumos.graph import Graph
from lumos.runs.run import Run
from lumos.secagg.noise import Noise
from lumos.training.split import Role, split_vertices
from lumos.training.trainer import OWN

RANDOMIZED_LABEL = "strict/symbol"
FULL: dict[str, Any] = {"encoder_epochs": 16, "epochs": 61, "label_epsilon": 4.0}


def graph_of(kind: str, seed: int, devices: int = 400, classes: int = 4) -> Graph:
    """Features that tell the class in part; edges that tell nothing, or of whom to expect."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, devices)
    features = (rng.random((devices, 24)) < 0.15).astype(np.float32)
    own = labels[:, None] * 6 + rng.integers(0, 6, (devices, 2))
    features[np.arange(devices)[:, None], own] = 1
    pairs = rng.integers(0, devices, (30 * devices, 2))
    apart = (labels[pairs[:, 1]] - labels[pairs[:, 0]]) % classes
    wanted = {"random": apart >= 0, "homophilous": apart == 0, "next": apart == 1}[kind]
    return Graph.from_edges(pairs[wanted][: 4 * devices], features=features, labels=labels)


def gain_of(result: Run) -> float:
    return result.metrics["test_accuracy"] - present(result.own)["test_accuracy"]


@pytest.mark.parametrize(
    "settings",
    [
        {"protect": "none"},
        {},
        {"propagated_labels": 0},
        {"propagated_labels": 3, "propagated_epsilon": 8.0},
    ],
    ids=str,
)
def test_neighbours_that_mislead_do_no_harm(settings: dict[str, Any]) -> None:
    """Five graphs with 100 test devices each: not a point below, in the mean up to noise."""
    full = {**FULL, "epochs": 59 + settings.get("propagated_labels", 2)}
    gains = [
        gain_of(strict(graph_of("random", seed), seed=seed, **{**full, **settings}))
        for seed in range(5)
    ]
    assert min(gains) > -0.10
    assert np.mean(gains) > -0.03


@pytest.mark.parametrize("settings", [{"protect": "none"}, {"feature_epsilon": 50.0}], ids=str)
@pytest.mark.parametrize("kind", ["homophilous", "next"])
def test_neighbours_that_know_help_whatever_they_say(kind: str, settings: dict[str, Any]) -> None:
    """Also where they are of another class: homophily is not assumed."""
    gains = [
        gain_of(strict(graph_of(kind, seed), seed=seed, **FULL, **settings)) for seed in range(3)
    ]
    assert np.mean(gains) > 0.05


def test_the_own_answer_is_kept_to_the_last_digit_where_it_was_chosen() -> None:
    for seed in range(4):
        result = strict(graph_of("random", seed), seed=seed, **FULL)
        if result.model.weights["choice"] == 0:
            assert result.model.choice == "own"
            temperature = float(result.model.weights["temperature"])
            assert temperature != 1 or result.metrics == result.own
            accuracy = "test_accuracy"
            assert result.metrics[accuracy] == present(result.own)[accuracy]
            return
    pytest.fail("on a random graph the own answer was never chosen")


# The control.


def rounds_of(wire: Wire) -> list[list[bytes]]:
    """By variant, the randomized labels in the order of the pairs."""
    return [[message.body for message in messages] for messages in wire.of(RANDOMIZED_LABEL)]


def other_inputs(graph: Graph) -> Graph:
    rng = np.random.default_rng(1)
    return Graph.from_edges(
        graph.edge_list(),
        devices=graph.devices,
        features=rng.random((graph.devices, graph.feature_count)).astype(np.float32),
        labels=rng.permutation(present(graph.labels)),
        classes=graph.classes,
    )


def test_control_randomized_labels_know_nothing_of_features_and_labels(
    sixty: Graph, short: dict[str, int]
) -> None:
    with the_same_randomness():  # only features and labels differ
        _, wire = run_with_wire(sixty, control=True, **short)
        _, moved = run_with_wire(other_inputs(sixty), control=True, **short)
    (control, main), (other_control, other_main) = rounds_of(wire), rounds_of(moved)
    # Who has a label takes part in the split; so the senders are the same, and what they say.
    assert control == other_control
    assert main != other_main
    assert control != main


@pytest.mark.parametrize("mechanism", ["krr", "digits"])
@pytest.mark.parametrize("control", [True, False])
def test_control_randomized_labels_are_independent_of_labels_in_distribution(
    mechanism: str, control: bool
) -> None:
    graph = graph_of("random", 0, devices=4000)
    labels = present(graph.labels)
    made = started(graph, control=control, label_epsilon=6.0, mechanism=mechanism)
    alphabet = made.trainers[0].labels.form.alphabet
    with listening() as wire:
        made.run(lambda trainer: trainer.release())
    released = {message.sender: message.body[0] for message in wire.all_of(RANDOMIZED_LABEL)}
    table = np.zeros((4, alphabet))
    for device, randomized_label in released.items():
        table[labels[device], randomized_label] += 1
    assert (chi2_contingency(table).pvalue > 1e-4) == control
    shares = table / table.sum()
    expected = shares.sum(axis=0) * shares.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = np.nansum(shares * np.log2(shares / expected))  # mutual information
    # Without any, 2 n ln 2 times the bits has a mean of the degrees of freedom.
    chance = 3 * (alphabet - 1) / (2 * len(released) * np.log(2))
    assert (bits < 4 * chance) == control


def variant_of(graph: Graph, seed: int, *, control: bool) -> tuple[float, float]:
    """Accuracy of an variant on test devices: of its local classifier, and as a whole."""
    labels = present(graph.labels)
    roles = split_vertices(labels, PublicRandomness(seed))
    made = started(graph, roles, seed=seed, control=control, **FULL)
    epochs(made, 0, FULL["epochs"])
    outcome, test = made.finish(), roles == Role.TEST
    own, whole = (
        float((logits[test].argmax(axis=1) == labels[test]).mean())
        for logits in (outcome.evaluated[OWN], outcome.logits)
    )
    return own, whole


def test_the_control_is_level_with_own_features_where_the_run_is_not() -> None:
    """Its messages carry nothing, however homophilous the graph: it chooses own features, or what
    it adds is luck. Propagated labels of meaningless randomized labels would find communities."""
    gains = {}
    for control in (True, False):
        variants = [
            variant_of(graph_of("homophilous", seed), seed, control=control) for seed in range(4)
        ]
        gains[control] = [whole - own for own, whole in variants]
    assert min(gains[False]) > 0.15
    assert max(np.abs(gains[True])) < 0.05
    assert abs(np.mean(gains[True])) < 0.02


def test_control_propagated_labels_depend_on_no_data(sixty: Graph, short: dict[str, int]) -> None:
    with the_same_randomness():
        _, wire = run_with_wire(sixty, control=True, **short)
        _, moved = run_with_wire(other_inputs(sixty), control=True, **short)
    rounds, rounds_there = wire.of("strict/opinion"), moved.of("strict/opinion")
    assert len(rounds) == 4  # two of the control, two of the run
    assert rounds[:2] == rounds_there[:2]
    assert rounds[2:] != rounds_there[2:]


def test_the_control_variant_does_not_unmask_the_release(short: dict[str, int]) -> None:
    """Who hears both variants must not see through them: they may not share randomness.

    A randomized label of the control that is drawn with the randomness of the run would shift like
    it.
    """
    graph = graph_of("random", 0, devices=2000)
    _, wire = run_with_wire(graph, control=True, label_epsilon=1.0, **short)
    control, main = (
        {message.sender: message.body[0] for message in messages}
        for messages in wire.of(RANDOMIZED_LABEL)
    )
    labels = present(graph.labels)
    table = np.zeros((4, 4))
    for device, randomized_label in main.items():
        table[(randomized_label - labels[device]) % 4, control[device]] += 1
    assert chi2_contingency(table).pvalue > 1e-4


def test_the_control_variant_does_not_share_noise(
    sixty: Graph, short: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The difference of two sums with the same noise is exact: it guarantees nothing."""
    drawn: list[tuple[int, bytes]] = []
    original = Noise.shares

    def watched(self: Noise, randomness: Any, hosted: int, width: int, step: int) -> np.ndarray:
        shares = original(self, randomness, hosted, width, step)
        drawn.append((step, shares.tobytes()))
        return shares

    monkeypatch.setattr(Noise, "shares", watched)
    strict(sixty, aggregate="secure", control=True, **short)
    assert len(drawn) == 2 * (8 + 2)
    assert len({shares for _, shares in drawn}) == len(drawn)
