"""New devices to a strict run: they send nothing, and predict as devices of the run would."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import gammaln, softmax
from tests.narrow import present
from tests.runs.running import listening
from tests.strict.strictly import ALL_TAKE_PART, small, strict

from lumos import Graph, InputError
from lumos.device.randomness import PublicRandomness
from lumos.runs.predict import NewDevice, predict_new_devices
from lumos.runs.run import Run
from lumos.storage import read_arrays
from lumos.strict.classify.evidence import CONCENTRATION, Selection
from lumos.training.split import Role, split_vertices

pytestmark = pytest.mark.usefixtures("short")

DEVICES = 60
RANDOMIZED_LABEL, PROPAGATED_LABEL = "strict/symbol", "strict/opinion"
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "without propagated labels": {"propagated_labels": 0, "epochs": 7},
    "three propagated labels": {"propagated_labels": 3},
    "exact": {"protect": "none"},
    "trees": {"tree_network": True, "epochs": 13},
    "digits": {"mechanism": "digits", "classes": 14},
    "words": {"graph": "demo:60"},
    "all devices": ALL_TAKE_PART,
}


def run_of(name: str, choice: int | None = None) -> tuple[Run, Graph]:
    """A run; where a choice is given, validation devices chose so."""
    settings = dict(SETTINGS[name])
    graph: Any = settings.pop("graph", None) or small(DEVICES, settings.pop("classes", 4))
    count = Selection.of

    def forced(*args: Any) -> Selection:
        counted = count(*args)
        return counted if choice is None else counted._replace(choice=choice)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Selection, "of", forced)
        run = strict(graph, **settings)
    return run, present(run.graph)


def neighbours_of(graph: Graph, device: int) -> np.ndarray:
    own: np.ndarray = graph.neighbours[graph.offsets[device] : graph.offsets[device + 1]]
    return own


def row_of(graph: Graph, device: int) -> np.ndarray:
    rows: Any = graph.features
    row = rows[[device]]
    return np.asarray(row.toarray() if hasattr(row, "toarray") else row, np.float32).ravel()


def copy_of(graph: Graph, device: int) -> NewDevice:
    """A new device with the features and neighbours of a device."""
    names = tuple(str(other) for other in neighbours_of(graph, device))
    return NewDevice(id=f"copy {device}", features=row_of(graph, device), neighbours=names)


@pytest.mark.parametrize("choice", [None, 0, 1])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_copy_predicts_what_the_device_predicts(name: str, choice: int | None) -> None:
    """Whatever the role of the device, whatever was chosen: a copy receives what it received."""
    run, graph = run_of(name, 2 if name == "trees" and choice else choice)
    found, _ = predict_new_devices(run, [copy_of(graph, d) for d in range(DEVICES)], graph=graph)
    assert_allclose(found, run.predict_proba(), rtol=1e-6, atol=1e-9)


def by_hand(run: Run, graph: Graph, row: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[k] probabilities of a device with these features and neighbours, from public numbers and
    what those neighbours sent in the run."""
    weights, kept, classes = run.model.weights, run.model.kept, graph.class_count
    row = row.astype(np.float64)
    row = row / max(np.linalg.norm(row), 1e-300) * weights["feature_weights"]
    row = row / max(np.linalg.norm(row), 1e-300)
    own = row @ weights["encoder"][:-1] + 0.05 * weights["encoder"][-1]
    logits = own
    if int(weights["choice"]) == 1:
        randomized_labels = kept["released"][others]
        kinds = [
            randomized_labels[randomized_labels >= 0],
            *kept["propagated_labels"][others, :, 0].T,
        ]
        evidence_weights = weights["evidence_weights"]
        logits = evidence_weights[0] * (own - own.mean()) + evidence_weights[1 + len(kinds) :]
        for kind, values in enumerate(kinds):
            counts = np.bincount(values, minlength=classes)[:classes]  # the last: no class
            total = weights[f"matrix/{kind}"].reshape(classes, classes)
            prior = CONCENTRATION * total / total.sum(axis=1, keepdims=True)
            evidence = (gammaln(counts + prior) - gammaln(prior)).sum(axis=1)
            logits = logits + evidence_weights[1 + kind] * (evidence - evidence.mean())
    found: np.ndarray = softmax(logits / float(weights["temperature"]))
    return found


@pytest.mark.parametrize("choice", [0, 1])
@pytest.mark.parametrize(
    "name", ["default", "without propagated labels", "three propagated labels", "words"]
)
def test_a_new_device_predicts_what_the_formula_says(name: str, choice: int) -> None:
    run, graph = run_of(name, choice)
    rng = np.random.default_rng(3)
    chosen = [rng.choice(DEVICES, size, replace=False) for size in (0, 1, 2, 5, 20)]
    rows = [row_of(graph, device) for device in (4, 8, 15, 16, 23)]
    given = [
        NewDevice(id=f"new {n}", features=row, neighbours=tuple(map(str, others)))
        for n, (row, others) in enumerate(zip(rows, chosen, strict=True))
    ]
    found, _ = predict_new_devices(run, given, graph=graph)
    for probabilities, row, others in zip(found, rows, chosen, strict=True):
        assert_allclose(probabilities, by_hand(run, graph, row, others), rtol=2e-4, atol=1e-6)
    assert not np.allclose(found[0], found[1])


@pytest.mark.parametrize("name", ["default", "without propagated labels", "digits"])
def test_new_devices_send_nothing_and_get_what_was_sent_in_the_run(name: str) -> None:
    run, graph = run_of(name)
    propagated_labels = SETTINGS[name].get("propagated_labels", 2)
    trains = split_vertices(present(graph.labels), PublicRandomness(0)) == Role.TRAIN
    new = [copy_of(graph, device) for device in range(5)]
    new.append(NewDevice(id="alone", features=row_of(graph, 9), neighbours=()))
    with listening() as wire:
        _, ledger = predict_new_devices(run, new, graph=graph)
    assert wire.topics() == {RANDOMIZED_LABEL} | (
        {PROPAGATED_LABEL} if propagated_labels else set()
    )
    assert_array_equal(ledger.messages_sent[DEVICES:], 0)
    assert_array_equal(ledger.bytes_sent[DEVICES:], 0)
    assert_array_equal(ledger.device_epsilon[DEVICES:], 0)
    assert ledger.messages_received[DEVICES + 5] == 0
    released, sent = run.model.kept["released"], run.model.kept["propagated_labels"]
    assert sent.shape[:2] == (DEVICES, propagated_labels)
    expected = {
        (int(sender), DEVICES + place)
        for place in range(5)
        for sender in neighbours_of(graph, place)
    }
    (randomized_labels,) = wire.of(RANDOMIZED_LABEL)
    assert {(m.sender, m.receiver) for m in randomized_labels} == {
        p for p in expected if trains[p[0]]
    }
    assert all(m.body == bytes([released[m.sender]]) for m in randomized_labels)
    for number, messages in enumerate(wire.of(PROPAGATED_LABEL)):
        assert {(m.sender, m.receiver) for m in messages} == expected
        assert all(m.body == sent[m.sender, number].tobytes() for m in messages)


def test_asking_again_tells_nothing_new() -> None:
    """Other new devices with other neighbours get the same randomized label and the same propagated
    labels."""
    run, graph = run_of("default")
    bodies: dict[tuple[str, int, int], set[bytes]] = {}
    for devices in ([0, 1, 2], [5], [7, 8]):
        with listening() as wire:
            predict_new_devices(run, [copy_of(graph, device) for device in devices], graph=graph)
        for topic in (RANDOMIZED_LABEL, PROPAGATED_LABEL):
            for number, messages in enumerate(wire.of(topic)):
                for message in messages:
                    key = topic, number, message.sender
                    bodies.setdefault(key, set()).add(message.body)
    assert all(len(different) == 1 for different in bodies.values())


def test_an_isolated_new_device_is_like_an_isolated_device() -> None:
    run, graph = run_of("default", 1)
    alone = DEVICES - 1
    assert len(neighbours_of(graph, alone)) == 0
    found, _ = predict_new_devices(run, [copy_of(graph, alone)], graph=graph)
    assert_allclose(found[0], run.predict_proba()[alone], rtol=1e-6)
    assert_allclose(
        found[0], by_hand(run, graph, row_of(graph, alone), np.empty(0, int)), rtol=1e-4
    )


@pytest.mark.parametrize("randomness", ["seeded", "system"])
def test_forty_predictions_of_one_new_device_tell_what_one_tells(randomness: str) -> None:
    """Finding 5: every call made its neighbours, or the new device, release anew."""
    graph = small(DEVICES)
    run = strict(graph, randomness=randomness)
    new = [copy_of(graph, 3)]
    bodies: dict[tuple[str, int, int], set[bytes]] = {}
    found = []
    for _ in range(40):
        with listening() as wire:
            found.append(predict_new_devices(run, new, graph=graph)[0])
        assert all(m.sender < DEVICES for topic in wire.topics() for m in wire.all_of(topic))
        for topic in (RANDOMIZED_LABEL, PROPAGATED_LABEL):
            for number, messages in enumerate(wire.of(topic)):
                for message in messages:
                    bodies.setdefault((topic, number, message.sender), set()).add(message.body)
    assert {sender for _, _, sender in bodies} == set(neighbours_of(graph, 3).tolist())
    assert all(len(different) == 1 for different in bodies.values())
    assert all(np.array_equal(found[0], again) for again in found)


def test_a_new_device_has_nothing_to_put_into_an_account(tmp_path: Path) -> None:
    """It gets its entry when it trains under its id."""
    graph, path = small(DEVICES), tmp_path / "account.npz"
    run = strict(graph, account=tmp_path)
    before = path.read_bytes()
    predict_new_devices(run, [copy_of(graph, 3)], graph=graph)
    assert path.read_bytes() == before
    grown = Graph.from_edges(
        graph.edge_list(),
        devices=DEVICES + 1,
        features=np.concatenate([np.asarray(graph.features), row_of(graph, 3)[None]]),
        labels=np.append(present(graph.labels), 0),
        classes=graph.classes,
    )
    strict(grown, account=tmp_path, seed=1)
    assert len(read_arrays(path)["ids"]) == DEVICES + 1


@pytest.mark.parametrize("names", [["3"], ["new", "new"], ["new", "59"]])
def test_an_id_that_is_taken_is_refused(names: list[str]) -> None:
    graph = small(DEVICES)
    run = strict(graph)
    new = [NewDevice(id=name, features=row_of(graph, 1), neighbours=("1",)) for name in names]
    with listening() as wire, pytest.raises(InputError) as refused:
        predict_new_devices(run, new, graph=graph)
    assert f"new device {names[-1]!r}: there is a device or another new device" in str(
        refused.value
    )
    assert "\n" not in str(refused.value)
    assert wire.topics() == set()
