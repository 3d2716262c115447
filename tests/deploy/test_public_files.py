"""Public files of real devices: nothing in them follows from a device's data."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import lumos.deploy.local_federation as federation_layout
from lumos import Graph, load
from lumos.crypto import entropy
from lumos.deploy.local_federation import lay_out
from lumos.deploy.pki import LOOPBACK, FederationAuthority, make_federation
from lumos.deploy.plan import ParticipantFolder, handed_out, read_plan, write_plan
from lumos.errors import InputError, UsageError
from lumos.graph.facts import fingerprint
from lumos.graph.parts.manifest import read_manifest
from lumos.training.given_split import GivenSplit

DEVICES = 12
PRIVATE = {"key.pem", "seal.key"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of one authority for all federations of this module."""
    path = tmp_path_factory.mktemp("keys") / "pki"
    make_federation(path, DEVICES, LOOPBACK)
    return path


@pytest.fixture
def prepare(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Any":
    """Return a function that lays out a graph in folders, with the same random ids."""
    monkeypatch.setattr(
        federation_layout, "make_federation", lambda pki, *_: shutil.copytree(keys, pki)
    )
    monkeypatch.setattr(entropy, "draw", lambda count: bytes(count))
    made: list[Path] = []

    def prepared(graph: Graph, **settings: Any) -> federation_layout.FederationLayout:
        made.append(tmp_path / f"federation-{len(made)}")
        task = settings.get("task", "classify")
        split: GivenSplit = None if task == "link" else public_roles()
        layout = lay_out(graph, made[-1], split=split, task=task)
        layout.hand_out_plan(settings, issued=1.0)
        return layout

    return prepared


def public_roles() -> dict[str, list[int]]:
    return {"train": [0, 1, 2, 3, 4, 5], "val": [6, 7, 8], "test": [9, 10, 11]}


def public_files(layout: federation_layout.FederationLayout) -> dict[str, bytes]:
    """Return everything that participants are handed, but for keys and parts."""
    folders = [layout.coordinator, *layout.device_folders()]
    return {
        str(file.relative_to(layout.path)): file.read_bytes()
        for folder in folders
        for file in folder.iterdir()
        if file.name not in PRIVATE and file.suffix != ".safetensors"
    }


def with_label(graph: Graph, device: int, label: int) -> Graph:
    labels = np.array(graph.labels)
    labels[device] = label
    return replace(graph, labels=labels)


def with_feature(graph: Graph, device: int) -> Graph:
    features: Any = graph.features
    changed = features.tolil()
    columns = changed[[device]].nonzero()[1]
    changed[device, columns[0]] = 0.5
    return replace(graph, features=changed.tocsr().astype(np.float32))


def without_edge(graph: Graph) -> Graph:
    return Graph.from_edges(
        graph.edge_list()[1:],
        devices=graph.devices,
        features=graph.features,
        labels=graph.labels,
        classes=graph.classes,
        name=graph.name,
    )


@pytest.mark.parametrize("task", ["classify", "link"])
def test_no_public_file_follows_from_data(prepare: Any, task: str) -> None:
    graph = load(f"demo:{DEVICES}")
    labels = np.asarray(graph.labels)
    other = int(labels[0] + 1) % 6
    assert (labels == labels[0]).any()
    expected = public_files(prepare(graph, task=task))
    assert {"manifest.json", "run.json", "directory.json"} <= {Path(name).name for name in expected}
    changed = [with_label(graph, 0, other), with_feature(graph, 0), without_edge(graph)]
    for one in changed:
        assert fingerprint(one) != fingerprint(graph)
        assert public_files(prepare(one, task=task)) == expected
    content = b"".join(expected.values())
    assert fingerprint(graph).encode() not in content


def test_a_label_cannot_be_guessed_from_the_manifest(prepare: Any) -> None:
    """The attacker knows everything but one label, and tries all of them."""
    graph = load(f"demo:{DEVICES}")
    observed = (prepare(graph).device(1) / "manifest.json").read_bytes()
    fitting = [
        label
        for label in range(6)
        if (prepare(with_label(graph, 0, label)).device(1) / "manifest.json").read_bytes()
        == observed
    ]
    assert fitting == [*range(6)]


def test_only_seeded_randomness_has_facts_of_a_simulation(prepare: Any) -> None:
    graph = load(f"demo:{DEVICES}")
    simulated = prepare(graph, randomness="seeded")
    facts = ParticipantFolder.open(simulated.device(0), coordinator=False).manifest.graph
    assert facts.simulation is not None
    assert facts.simulation.fingerprint == fingerprint(graph)
    real = prepare(graph)
    assert (
        ParticipantFolder.open(real.device(0), coordinator=False).manifest.graph.simulation is None
    )
    for name in ("manifest.json", "run.json"):
        shutil.copyfile(simulated.device(0) / name, real.device(0) / name)
    ParticipantFolder.open(real.device(0), coordinator=False)
    plan = read_plan(real.device(0))
    system = msgspec.structs.replace(plan, settings={**plan.settings, "randomness": "system"})
    write_plan(real.device(0), system, FederationAuthority.open(real.path / "pki"))
    with pytest.raises(InputError, match="belongs to seeded randomness"):
        ParticipantFolder.open(real.device(0), coordinator=False)


@pytest.mark.parametrize(
    ("low", "high", "setting"), [(-1.0, 1.0, "`signs='signed'`"), (0.0, 2.0, "`scaling='size'`")]
)
def test_the_operator_says_what_features_are_like(
    prepare: Any, low: float, high: float, setting: str
) -> None:
    graph = load(f"demo:{DEVICES}")
    features: Any = graph.features
    features = features.copy()
    features.data[:2] = low, high
    with pytest.raises(UsageError, match=setting):
        prepare(replace(graph, features=features))
    layout = prepare(replace(graph, features=features), signs="signed", scaling="size")
    facts = read_manifest(layout.coordinator).graph
    assert (facts.signed, facts.bounded) == (True, False)
    whole = read_manifest(layout.operator)
    assert handed_out(whole, {"profile": "paper"}).graph.simulation is None
