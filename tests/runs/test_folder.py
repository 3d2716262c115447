"""What a run folder and an exported file tell: to others on the machine, and to who reads them."""

import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.running import QUICK
from tests.strict.linking import town

import lumos
from lumos import Graph, InputError, UsageError
from lumos.cli.main import run as command
from lumos.runs.folder import LEDGER_ARRAYS
from lumos.runs.run import Run
from lumos.storage import locked, private_folder, write_arrays
from lumos.training.guarantees import guarantees_something
from lumos.training.metrics import auc

STRICT: dict[str, Any] = {"encoder_epochs": 2, "epochs": 64, "seed": 0}
KINDS: dict[str, dict[str, Any]] = {
    "classify": {**STRICT, "control": True},
    "link": {"task": "link", "protect": "none"},
    "paper": {**QUICK, "control": True, "floor": True},
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A graph in which both tasks learn something, with degrees that differ much."""
    base = town(200, within=0.3)
    rng = np.random.default_rng(1)
    hubs = np.stack([np.repeat(np.arange(20), 40), rng.integers(20, 200, 800)], axis=1)
    edges = np.concatenate([base.edge_list(), hubs])
    return Graph.from_edges(edges, features=base.features, labels=np.arange(200) % 4)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> dict[str, Path]:
    """By kind, a run folder, made under the umask that lets everybody read."""
    before = os.umask(0o022)
    try:
        out = tmp_path_factory.mktemp("folders")
        for kind, settings in KINDS.items():
            run = lumos.train(graph, out=out / kind, **settings)
            if kind == "link":
                run.ask_links(ids=[(0, 1), (2, 3)])
    finally:
        os.umask(before)
    return {kind: out / kind for kind in KINDS}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Only the owner may read (finding 11).


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_owner_may_read(kind: str, folders: dict[str, Path], graph: Graph) -> None:
    folder = folders[kind]
    assert mode(folder) == 0o700
    inside = list(folder.rglob("*"))
    assert {mode(path) for path in inside if path.is_dir()} <= {0o700}
    assert {mode(path) for path in inside if path.is_file()} == {0o600}
    names = {path.name for path in inside}
    assert {"run.json", "metrics.jsonl", "devices.npz", "result.json"} <= names
    assert ("answers.npz.lock" in names) == (kind == "link")


def test_a_report_in_the_folder_too(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["classify"], tmp_path / "run"))
    assert command(["report", str(folder)]) == 0
    assert mode(folder / "report.html") == 0o600


def test_a_folder_of_somebody_keeps_its_mode(tmp_path: Path) -> None:
    mine, empty = tmp_path / "mine", tmp_path / "empty"
    for folder in (mine, empty):
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
    (mine / "file").write_text("")
    private_folder(mine)
    private_folder(empty)
    assert (mode(mine), mode(empty)) == (0o755, 0o700)


def test_a_lock_is_private_and_so_is_what_an_interruption_left(tmp_path: Path) -> None:
    (tmp_path / "account.npz.new").write_text("left")
    (tmp_path / "account.npz.new").chmod(0o644)
    with locked(tmp_path / "account.npz"):
        write_arrays(tmp_path / "account.npz", {"x": np.ones(2)}, private=True)
    assert {mode(path) for path in tmp_path.iterdir()} == {0o600}


# Nothing of single devices (findings 7 and 11).


def arrays_in(folder: Path) -> dict[str, np.ndarray]:
    """Every array of every npz in a folder."""
    found: dict[str, np.ndarray] = {}
    for path in sorted(folder.rglob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            found |= {f"{path.name}/{name}": file[name] for name in file.files}
    return found


def per_device(folder: Path, devices: int) -> dict[str, np.ndarray]:
    """[devices, columns] by name; of a JSON text inside an npz, its lists of that length."""
    arrays = arrays_in(folder)
    found = {name: array for name, array in arrays.items() if array.shape[:1] == (devices,)}
    texts = [
        str(array) for array in arrays.values() if array.shape == () and array.dtype.kind == "U"
    ]
    texts += [path.read_text() for path in folder.rglob("*.json*")]

    def search(content: Any) -> None:
        if isinstance(content, list) and len(content) >= devices:
            found[f"list {len(found)}"] = np.array(content)
        parts = content.values() if isinstance(content, dict) else content
        for part in parts if isinstance(parts, list) or isinstance(content, dict) else ():
            search(part)

    for text in texts:
        for line in [text] if text.lstrip().startswith("{\n") else text.splitlines():
            try:
                search(json.loads(line))
            except ValueError:
                continue
    return {name: np.asarray(array).reshape(devices, -1) for name, array in found.items()}


def advantages(found: dict[str, np.ndarray], secret: np.ndarray) -> dict[str, float]:
    """By array, the best AUC (above 1/2) of a column, or of one of its values, for a secret bit."""
    best = {}
    for name, rows in found.items():
        tries = []
        for column in rows.T:
            values = np.unique(column)
            tries += [column] if column.dtype.kind in "biuf" else []
            tries += [column == value for value in values] if len(values) <= 32 else []
        scores = [auc(t[secret].astype(float), t[~secret].astype(float)) for t in tries]
        best[name] = max((abs(score - 0.5) for score in scores), default=0.0)
    return best


def bound(one: int, other: int) -> float:
    """Above which no AUC lies by chance (Hanley and McNeil, 4.5 standard errors)."""
    return 4.5 * float(np.sqrt((one + other + 1) / (12 * one * other)))


def test_a_strict_folder_has_only_what_devices_sent(folders: dict[str, Path]) -> None:
    sent = {
        "classify": {"devices.npz/ids", "devices.npz/logits", "devices.npz/released",
                     "devices.npz/propagated_labels", "devices.npz/predicted_labels",
                     "split.npz/roles"},  # roles are public
        "link": {"devices.npz/ids", "devices.npz/sent", "answers.npz/answers/asked",
                 "answers.npz/answers/answered", "answers.npz/answers/calibrated"},
    }  # fmt: skip
    for kind, names in sent.items():
        assert per_device(folders[kind], 200).keys() == names
        assert not list(folders[kind].rglob("checkpoint.npz"))  # it counts messages by device
    paper = per_device(folders["paper"], 200)
    assert {"trees.npz/degree", "ledger.npz/ledger/messages_sent"} <= paper.keys()


@pytest.mark.parametrize("kind", ["classify", "link"])
def test_degrees_cannot_be_read_from_a_strict_folder(
    kind: str, folders: dict[str, Path], graph: Graph
) -> None:
    """Every array over devices, messages and predictions too: no better than chance. Twins are.

    Measured over three seeds: 0.10 at most, where chance reaches 0.185.
    """
    many = graph.degrees > np.median(graph.degrees)
    limit = bound(int(many.sum()), int((~many).sum()))
    found = per_device(folders[kind], 200)
    found.pop("devices.npz/ids")  # hubs have the lowest numbers in this graph
    assert found
    assert max(advantages(found, many).values()) < limit
    run = lumos.train(graph, **KINDS[kind])  # what folders kept before
    for leak in (run.trees.workload, run.ledger.messages_sent):
        assert advantages({"leak": leak[:, None]}, many)["leak"] > 0.35 > limit


def test_features_cannot_be_read_beyond_what_was_sent(
    folders: dict[str, Path], graph: Graph
) -> None:
    """Arrays that are no messages: at chance. Embeddings, which folders kept before, are not.

    Messages are not at chance, and no guarantee says so: groups that share words know one another,
    and what neighbours make of that is in their propagated labels.
    """
    held = [column > 0 for column in np.asarray(graph.features).T]
    held = [secret for secret in held if 20 < secret.sum() < 180]
    found = per_device(folders["link"], 200)
    kept = {name: rows for name, rows in found.items() if name.startswith("answers.npz/")}
    assert found.keys() - kept.keys() == {"devices.npz/ids", "devices.npz/sent"}
    embeddings = np.asarray(lumos.train(graph, **KINDS["link"]).embeddings)
    shown = []
    for secret in held:
        limit = bound(int(secret.sum()), int((~secret).sum()))
        assert max(advantages(kept, secret).values()) < limit
        shown.append(advantages({"leak": embeddings}, secret)["leak"] / limit)
    assert max(shown) > 1.2


def test_what_a_loaded_run_has(folders: dict[str, Path], graph: Graph) -> None:
    run = lumos.load_run(folders["classify"])
    assert run.ledger.messages > 0
    assert run.trees.max_workload == graph.degrees.max()
    assert all(getattr(run.ledger, name).size == 0 for name in LEDGER_ARRAYS)
    with pytest.raises(UsageError, match="keeps totals only"):
        run.ledger.revealed_by(0)
    assert np.array_equal(run.embeddings, np.asarray(run.model.logits))
    paper = lumos.load_run(folders["paper"])
    assert paper.ledger.messages_sent.shape == paper.trees.degree.shape == (200,)


def test_questions_to_a_loaded_run(folders: dict[str, Path], graph: Graph, tmp_path: Path) -> None:
    """Vectors that are computed anew are those of training, bit by bit."""
    folder = Path(shutil.copytree(folders["link"], tmp_path / "run"))
    (folder / "answers.npz").unlink()
    fresh = lumos.train(graph, **KINDS["link"])
    pairs = [(one, one + 7) for one in range(150)]
    loaded = lumos.load_run(folder, graph)
    assert np.array_equal(loaded.predict_links(ids=pairs), fresh.predict_links(ids=pairs))
    with pytest.raises(UsageError, match="graph in memory; pass that graph"):
        lumos.load_run(folder).predict_links(ids=pairs)
    with pytest.raises(InputError, match="another graph"):
        lumos.load_run(folder, lumos.load("demo:200"))
    content = json.loads((folder / "run.json").read_text())
    del content["fingerprint"]
    (folder / "run.json").write_text(json.dumps(content))
    assert lumos.load_run(folder, graph).about.fingerprint == ""


def test_system_randomness_leave_no_checkpoint(tmp_path: Path) -> None:
    def stop(event: lumos.EpochEvent) -> None:
        if event.epoch == 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lumos.train("demo:60", randomness="system", out=tmp_path, on_epoch=stop, **STRICT)
    assert not (tmp_path / "checkpoint.npz").exists()


def test_a_folder_of_the_format_before_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["classify"], tmp_path / "run"))
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "format": 4}))
    with pytest.raises(InputError, match=r"run\.json: is of another version of Lumos"):
        lumos.load_run(folder)


# Exports (findings 7 and 11).

REAL: dict[str, Any] = {**STRICT, "randomness": "system", "aggregate": "secure"}


def weights_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files if name != "about"}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


def with_label(graph: Graph, device: int, label: int) -> Graph:
    labels = np.array(graph.labels)
    labels[device] = label
    return replace(graph, labels=labels)


def candidates_that_match(graph: Graph, device: int, exported: Path, **settings: Any) -> list[int]:
    """The attack: train again with each label, and compare bit by bit."""
    weights = weights_of(exported)
    found = []
    for label in range(graph.class_count):
        run = lumos.train(with_label(graph, device, label), **settings)
        if same(weights, run.model.weights):
            found.append(label)
    return found


def test_weights_of_a_simulation_are_an_oracle(tmp_path: Path) -> None:
    """Only the true label matches; so such weights are not exported by accident."""
    graph, path = lumos.load("demo:60"), tmp_path / "weights.npz"
    run = lumos.train(graph, **STRICT)
    device = int(np.flatnonzero(run.model.kept["released"] >= 0)[0])
    reason = "each candidate label of one device sees which one matches bit by bit"
    with pytest.raises(UsageError, match=reason) as caught:
        run.export(path)
    assert "\n" not in str(caught.value)
    assert not path.exists()
    run.export(path, simulated=True)
    truth = int(np.asarray(graph.labels)[device])
    assert candidates_that_match(graph, device, path, **STRICT) == [truth]


def test_with_randomness_of_the_system_two_trainings_differ(tmp_path: Path) -> None:
    graph = lumos.load("demo:60")
    settings = {**STRICT, "randomness": "system"}
    run = lumos.train(graph, **settings)
    with pytest.raises(UsageError, match="its sums were computed in the clear"):
        run.export(tmp_path / "weights.npz")
    run.export(tmp_path / "weights.npz", simulated=True)
    assert candidates_that_match(graph, 0, tmp_path / "weights.npz", **settings) == []


def strings_in(content: Any) -> list[str]:
    if isinstance(content, dict):
        return [text for pair in content.items() for part in pair for text in strings_in(part)]
    if isinstance(content, list):
        return [text for part in content for text in strings_in(part)]
    return [content] if isinstance(content, str) else []


@pytest.mark.parametrize("task", ["classify", "link"])
def test_an_export_names_no_place_and_no_device(task: str, tmp_path: Path) -> None:
    graph = town(50)
    graph = replace(graph, labels=np.arange(50) % 2, classes=("cat", "dog"))
    np.savez(
        tmp_path / "town.npz", edges=graph.edge_list(), features=np.asarray(graph.features),
        target=np.array(graph.labels),
    )  # fmt: skip
    settings = {**(REAL if task == "classify" else {"task": "link"}), "randomness": "system"}
    settings["aggregate"] = "secure" if task == "classify" else "ideal"
    run = lumos.train(tmp_path / "town.npz", account=tmp_path / "account", **settings)
    path = tmp_path / "weights.npz"
    run.export(path, simulated=task == "link")
    for written in ("utf-8", "utf-32-le"):  # as names of arrays, and as text in them
        assert str(tmp_path).encode(written) not in path.read_bytes()
    with np.load(path, allow_pickle=False) as file:
        about = json.loads(str(file["about"]))
        assert not [name for name in file.files if file[name].shape[:1] == (50,)]
    for text in strings_in(about):
        assert os.sep not in text
    assert "account" not in about["settings"]
    assert "source" not in about
    assert (about["task"], about["randomness"]) == (task, "system")
    assert about["aggregate"] == settings["aggregate"]
    assert about["simulated"] == (task == "link")
    assert about["guarantees"] == run.guarantees
    assert about["lumos"] == lumos.__version__
    assert "replacement" in about["relation"]
    assert "in or out" in about["relation"]


def test_the_paper_guarantees_nothing_in_its_export(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    run: Run = lumos.load_run(folders["paper"])
    run.export(tmp_path / "weights.npz", simulated=True)
    with np.load(tmp_path / "weights.npz") as file:
        about = json.loads(str(file["about"]))
    assert not guarantees_something(about["guarantees"])
    assert about["relation"] == "none: nothing is guaranteed"


def test_the_command_line_refuses_too(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "weights.npz"
    arguments = ["predict", str(folders["classify"]), "--export", str(path)]
    assert command(arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "train with --randomness system and --aggregate secure, or give --simulated" in said
    assert command([*arguments, "--simulated"]) == 0
    assert path.exists()
    assert command([*arguments[:2], "--simulated"]) == 2


@pytest.mark.parametrize(
    "name", ["run/model.npz", "run/devices.npz", "account/account.npz", "link.npz"]
)
def test_an_export_replaces_no_file_of_the_run(tmp_path: Path, name: str) -> None:
    account = tmp_path / "account"
    run = lumos.train("demo:60", out=tmp_path / "run", account=account, **STRICT)
    (tmp_path / "link.npz").symlink_to(account / "account.npz")
    before = (tmp_path / name).read_bytes()
    with pytest.raises(UsageError, match="is a file of the run itself"):
        run.export(tmp_path / name, simulated=True)
    assert (tmp_path / name).read_bytes() == before
    run.export(tmp_path / "weights.npz", simulated=True)
    run.export(tmp_path / "weights.npz", simulated=True)
