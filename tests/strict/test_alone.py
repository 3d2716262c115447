"""Never worse than alone; and a control that knows nothing."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2_contingency
from tests.narrow import present
from tests.runs.running import Wire, listening
from tests.strict.strictly import run_with_wire, started, strict, the_same_coins

from lumos.aggregate.noise import Noise
from lumos.device.coins import PublicCoins
from lumos.encode.mechanisms import make_mechanism
from lumos.graph import Graph
from lumos.training.split import Role, split_vertices

SYMBOL = "strict/symbol"
LONGER = {"encoder_epochs": 20, "epochs": 95, "epsilon": 4.0}


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


@pytest.mark.parametrize("settings", [{"protect": "none"}, {}, {"protect": "none", "relay": 2}])
def test_neighbours_that_mislead_do_no_harm(settings: dict[str, Any]) -> None:
    """Five graphs with 100 test devices each: not a point below, in the mean up to noise."""
    gains = []
    for seed in range(5):
        result = strict(graph_of("random", seed), seed=seed, **LONGER, **settings)
        gains.append(result.metrics["test_accuracy"] - present(result.own)["test_accuracy"])
    assert min(gains) > -0.10
    assert np.mean(gains) > -0.03


@pytest.mark.parametrize("kind", ["homophilous", "next"])
def test_neighbours_that_know_help_whatever_they_say(kind: str) -> None:
    """Also where they are of another class: homophily is not assumed."""
    gains = []
    for seed in range(3):
        result = strict(graph_of(kind, seed), seed=seed, protect="none", **LONGER)
        gains.append(result.metrics["test_accuracy"] - present(result.own)["test_accuracy"])
    assert np.mean(gains) > 0.05


def test_the_own_answer_is_kept_to_the_last_digit_where_it_was_chosen() -> None:
    for seed in range(4):
        result = strict(graph_of("random", seed), seed=seed, **LONGER)
        if result.model.weights["choice"] == 0:
            assert result.metrics == result.own
            return
    pytest.fail("on a random graph the own answer was never chosen")


# The control.


def rounds_of(wire: Wire) -> list[list[bytes]]:
    """By arm, the symbols in the order of the pairs."""
    return [[message.body for message in messages] for messages in wire.of(SYMBOL)]


def other_inputs(graph: Graph) -> Graph:
    rng = np.random.default_rng(1)
    return Graph.from_edges(
        graph.edge_list(),
        devices=graph.devices,
        features=rng.random((graph.devices, graph.feature_count)).astype(np.float32),
        labels=rng.permutation(present(graph.labels)),
        classes=graph.classes,
    )


def test_control_symbols_know_nothing_of_features_and_labels(
    sixty: Graph, short: dict[str, int]
) -> None:
    with the_same_coins():  # only features and labels differ
        _, wire = run_with_wire(sixty, control=True, **short)
        _, moved = run_with_wire(other_inputs(sixty), control=True, **short)
    (control, main), (other_control, other_main) = rounds_of(wire), rounds_of(moved)
    assert control == other_control
    assert main != other_main
    assert control != main


def test_control_symbols_are_independent_of_labels_in_distribution() -> None:
    graph = graph_of("random", 0, devices=4000)
    labels = present(graph.labels)
    for control, epsilon in ((True, 6.0), (False, 6.0)):
        made = started(graph, np.full(4000, Role.TRAIN), control=control, epsilon=epsilon)
        with listening() as wire:
            made.run(lambda trainer: trainer.release())
        released = {message.sender: message.body[0] for message in wire.all_of(SYMBOL)}
        table = np.zeros((4, 4))
        for device, symbol in released.items():
            table[labels[device], symbol] += 1
        assert (chi2_contingency(table).pvalue > 1e-4) == control


def test_the_control_arm_does_not_unmask_the_release(short: dict[str, int]) -> None:
    """Who hears both arms must not see through them: they may not share coins.

    With unary encoding from the same coins, a bit that is 1 in one arm and 0 in the other is the
    bit of the true symbol, with certainty.
    """
    graph = graph_of("random", 0)
    _, wire = run_with_wire(graph, control=True, mechanism="oue", epsilon=2.0, **short)
    mechanism = make_mechanism(4, 2.0, "oue")
    control, main = (
        {m.sender: mechanism.read(np.frombuffer(m.body, np.uint8)[None])[0] for m in messages}
        for messages in wire.of(SYMBOL)
    )
    certain = [
        (device, int(np.flatnonzero(main[device] > control[device])[0]))
        for device in main
        if (main[device] > control[device]).sum() == 1
    ]
    labels = present(graph.labels)
    trains = split_vertices(labels, PublicCoins(0)) == Role.TRAIN
    hits = [labels[device] == symbol for device, symbol in certain if trains[device]]
    assert len(hits) > 20
    assert np.mean(hits) < 0.9


def test_the_control_arm_does_not_share_noise(
    sixty: Graph, short: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The difference of two sums with the same noise is exact: it promises nothing."""
    drawn: list[tuple[int, bytes]] = []
    original = Noise.shares

    def watched(self: Noise, coins: Any, hosted: int, width: int, step: int) -> np.ndarray:
        shares = original(self, coins, hosted, width, step)
        drawn.append((step, shares.tobytes()))
        return shares

    monkeypatch.setattr(Noise, "shares", watched)
    strict(sixty, aggregate="secure", control=True, **short)
    # Until the release both arms add the same vectors; from then on they do not.
    after = [shares for step, shares in drawn if step >= 2 or step < 0]
    assert len(after) == 2 * (6 + 2)
    assert len(set(after)) == len(after)
