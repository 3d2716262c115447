"""`lumos predict` as people type it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.narrow import present, sparse
from tests.strict.linking import at_home, town

import lumos
from lumos.cli.main import run
from lumos.device.randomness import PublicRandomness
from lumos.runs.run import Run
from lumos.training.split import Role, split_vertices

torch.set_num_threads(1)  # small graphs: a second thread only waits

SETTINGS: dict[str, Any] = {
    "profile": "paper",
    "compare": "ideal",
    "balancer": "greedy",
    "floor": False,
}
QUICK = ["--profile", "paper", "--compare", "ideal", "--balancer", "greedy", "--no-floor"]
QUICK += ["--epochs", "3"]
STRICT: dict[str, Any] = {"profile": "strict", "encoder_epochs": 2, "epochs": 64, "floor": False}

Ran = tuple[Run, Path]
NewDevices = Callable[[Any], Path]


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out = tmp_path_factory.mktemp("noisy") / "run"
    return lumos.train("demo:60", out=out, epochs=3, **SETTINGS), out


@pytest.fixture(scope="module")
def clear(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run without noise that has learnt something."""
    out = tmp_path_factory.mktemp("clear") / "run"
    return lumos.train("demo:60", out=out, epochs=60, epsilon=float("inf"), **SETTINGS), out


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out = tmp_path_factory.mktemp("link") / "run"
    return lumos.train("demo:60", out=out, epochs=3, task="link", **SETTINGS), out


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out = tmp_path_factory.mktemp("strict") / "run"
    return lumos.train("demo:60", out=out, **STRICT), out


@pytest.fixture
def new_devices(tmp_path: Path) -> NewDevices:
    """Writes new devices to a file."""

    def written(content: Any) -> Path:
        path = tmp_path / "newcomers.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return path

    return written


def result_of(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    assert run(["predict", *map(str, arguments), "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1  # one JSON object and nothing else
    result: dict[str, Any] = json.loads(out)
    return result


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line that a mistake gets."""
    assert run(["predict", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("lumos: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def copy_of(graph: lumos.Graph, device: int) -> dict[str, Any]:
    """A new device with the features and neighbours of a device."""
    row = sparse(graph.features)[[device]].tocoo()
    features = dict(zip(map(str, row.col.tolist()), row.data.tolist(), strict=True))
    own = graph.neighbours[graph.offsets[device] : graph.offsets[device + 1]]
    return {"id": f"copy {device}", "features": features, "neighbours": own.tolist()}


@pytest.mark.parametrize("profile", ["noisy", "strict"])
def test_rows_are_what_the_run_believes(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, profile: str
) -> None:
    trained, folder = request.getfixturevalue(profile)
    result = result_of(capsys, folder)
    assert (result["run"], result["task"]) == (str(folder), "classify")
    assert [row["id"] for row in result["rows"]] == [str(device) for device in range(60)]
    logits = trained.model.logits.astype(np.float64)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = [row["probability"] for row in result["rows"]]
    np.testing.assert_allclose(found, chances.max(axis=1), rtol=1e-5)
    np.testing.assert_allclose(trained.predict_proba(), chances, rtol=1e-5)
    best = chances.argmax(axis=1)
    assert [row["label"] for row in result["rows"]] == [trained.graph.classes[c] for c in best]


def test_single_devices(capsys: pytest.CaptureFixture[str], noisy: Ran) -> None:
    _, folder = noisy
    everything = result_of(capsys, folder)["rows"]
    rows = result_of(capsys, folder, "--id", "41", "--id", "3")["rows"]
    assert rows == [everything[41], everything[3]]
    assert "'60' is not the id of any device" in refused(capsys, folder, "--id", "60")
    assert "'me'" in refused(capsys, folder, "--id", "3", "--id", "me")
    assert "--id needs a value" in refused(capsys, folder, "--id")


def test_the_table_for_people(capsys: pytest.CaptureFixture[str], noisy: Ran) -> None:
    _, folder = noisy
    assert run(["predict", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["id", "label", "probability"]
    assert [line.split()[0] for line in lines[1:21]] == [str(device) for device in range(20)]
    assert lines[21] == "… 40 more; --json gives all"


def test_export(capsys: pytest.CaptureFixture[str], noisy: Ran, tmp_path: Path) -> None:
    trained, folder = noisy
    path = tmp_path / "weights.npz"
    result = result_of(capsys, folder, "--export", path, "--simulated")
    assert result["export"] == str(path)
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    about = json.loads(str(arrays.pop("about")))
    assert {name: array.shape for name, array in arrays.items()} == {
        "network.layers.0.weight": (600, 16),
        "network.layers.0.bias": (16,),
        "network.layers.1.weight": (16, 16),
        "network.layers.1.bias": (16,),
        "head.weight": (6, 16),
        "head.bias": (6,),
    }
    assert all(array.dtype == np.dtype("<f4") for array in arrays.values())
    assert about["classes"] == list(present(trained.graph).classes)
    assert about["features"] == 600
    assert about["lumos"] == lumos.__version__
    assert about["settings"]["backbone"] == "gcn"
    # The head is documented well enough to use it.
    logits = trained.embeddings @ arrays["head.weight"].T + arrays["head.bias"]
    np.testing.assert_allclose(logits, present(trained.model.logits), atol=1e-5)


def test_export_of_other_models(
    capsys: pytest.CaptureFixture[str], strict: Ran, link: Ran, tmp_path: Path
) -> None:
    assert (
        result_of(capsys, link[1], "--export", tmp_path / "link.npz", "--simulated")["rows"] == []
    )
    with np.load(tmp_path / "link.npz") as file:
        assert {name.split(".")[0] for name in file.files} == {"network", "about"}
    result_of(capsys, strict[1], "--export", tmp_path / "strict.npz", "--simulated")
    with np.load(tmp_path / "strict.npz") as file:
        parts = {
            "encoder",
            "feature_weights",
            "evidence_weights",
            "choice",
            "temperature",
            "about",
        }
        assert parts | {"matrix/0", "matrix/1", "matrix/2"} <= set(file.files)
        assert file["encoder"].shape == (601, 6)
        assert file["matrix/0"].shape == (6 * 6,)
        assert json.loads(str(file["about"]))["settings"]["profile"] == "strict"


def test_links(capsys: pytest.CaptureFixture[str], link: Ran, tmp_path: Path) -> None:
    trained, folder = link
    result = result_of(capsys, folder, "--id", "4", "--id", "9")
    assert result["task"] == "link"
    (row,) = result["rows"]
    assert (row["id"], row["other"]) == ("4", "9")
    score = float(np.dot(*trained.embeddings[trained.ids.rows([4, 9])]))
    assert row["probability"] == pytest.approx(1 / (1 + np.exp(-score)), rel=1e-5)
    (back,) = result_of(capsys, folder, "--id", "9", "--id", "4")["rows"]
    assert (back["id"], back["other"]) == ("9", "4")
    assert back["probability"] == pytest.approx(row["probability"], rel=1e-6)
    rows = result_of(capsys, folder, "--id", "4", "--id", "9", "--id", "30")["rows"]
    assert [(row["id"], row["other"]) for row in rows] == [("4", "9"), ("4", "30"), ("9", "30")]
    file = listed(tmp_path, "4 9\n4 30\n9 30\n")
    listed_rows = result_of(capsys, folder, "--pairs", file)["rows"]
    assert listed_rows == rows


def test_links_need_two_devices(
    capsys: pytest.CaptureFixture[str], link: Ran, new_devices: NewDevices
) -> None:
    _, folder = link
    assert "name devices with --id, or --pairs FILE" in refused(capsys, folder)
    assert "at least two devices with --id" in refused(capsys, folder, "--id", "4")
    file = new_devices([{"features": {}, "neighbours": [1]}])
    assert "this one predicts links" in refused(capsys, folder, "--new-device", file)


def test_a_new_device_dense_or_sparse(
    capsys: pytest.CaptureFixture[str], noisy: Ran, new_devices: NewDevices
) -> None:
    _, folder = noisy
    dense = np.zeros(600)
    dense[[3, 599]] = 1.0, 0.5
    one = {"id": "me", "features": dense.tolist(), "neighbours": [17, "4", 17]}
    other = {"id": "me", "features": {"3": 1, "599": 0.5}, "neighbours": ["17", 4]}
    first = result_of(capsys, folder, "--new-device", new_devices([one]))
    second = result_of(capsys, folder, "--new-device", new_devices([other]))
    assert first["rows"] == second["rows"]
    (row,) = first["rows"]
    assert row["id"] == "me"
    assert row["label"] in lumos.load("demo:60").classes
    assert 1 / 6 <= row["probability"] <= 1
    assert first["epsilon_spent_by_each_neighbour"] == 2.0
    assert run(["predict", str(folder), "--new-device", str(new_devices([one]))]) == 0
    assert "what each neighbour released to the new devices: ε = 2" in capsys.readouterr().out


def test_a_new_device_without_name_or_neighbours(
    capsys: pytest.CaptureFixture[str], noisy: Ran, new_devices: NewDevices
) -> None:
    file = new_devices([{"features": {"3": 1}, "neighbours": []}])
    result = result_of(capsys, noisy[1], "--new-device", file)
    assert [row["id"] for row in result["rows"]] == ["new device 0"]
    assert result["epsilon_spent_by_each_neighbour"] == 0.0  # nobody released anything


def test_a_copy_is_taken_for_what_it_copies(
    capsys: pytest.CaptureFixture[str], clear: Ran, new_devices: NewDevices
) -> None:
    trained, folder = clear
    graph = present(trained.graph)
    copies = [copy_of(graph, device) for device in range(60)]
    rows = result_of(capsys, folder, "--new-device", new_devices(copies))["rows"]
    known = result_of(capsys, folder)["rows"]
    same = np.mean([a["label"] == b["label"] for a, b in zip(rows, known, strict=True)])
    assert len({row["label"] for row in known}) > 2  # it has learnt something
    assert same >= 0.8
    # Without noise, what a new device gets does not depend on who else joins.
    (alone,) = result_of(capsys, folder, "--new-device", new_devices([copies[7]]))["rows"]
    assert alone["label"] == rows[7]["label"]
    assert alone["probability"] == pytest.approx(rows[7]["probability"], abs=1e-5)


def test_no_noise_is_not_called_free(
    capsys: pytest.CaptureFixture[str], clear: Ran, new_devices: NewDevices
) -> None:
    file = new_devices([{"features": {}, "neighbours": [1]}])
    result = result_of(capsys, clear[1], "--new-device", file)
    assert result["epsilon_spent_by_each_neighbour"] == "inf"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("not json", "cannot be read as JSON"),
        ({}, "a list of new devices is needed"),
        ([], "a list of new devices is needed"),
        ([1], "new device 0: an object with features and neighbours is needed"),
        ([{"features": {}}], "new device 0: an object with features and neighbours is needed"),
        ([{"features": [0] * 599, "neighbours": []}], "599 features, the model has 600"),
        ([{"features": {"600": 1}, "neighbours": []}], "feature 600 is not in 0 … 599"),
        ([{"features": {"-1": 1}, "neighbours": []}], "feature -1 is not in 0 … 599"),
        ([{"features": {"x": 1}, "neighbours": []}], "its features are not numbers"),
        ([{"features": ["x"] * 600, "neighbours": []}], "its features are not numbers"),
        ([{"features": [None] * 600, "neighbours": []}], "nan"),
        ([{"features": {"3": 2}, "neighbours": []}], "outside the public bounds [0, 1]"),
        ([{"id": "me", "features": {}, "neighbours": [60]}], "'me': its neighbour '60' is no"),
        ([{"features": {}, "neighbours": 5}], "new device 0"),
    ],
)
def test_a_wrong_new_device_gets_one_line(
    capsys: pytest.CaptureFixture[str],
    noisy: Ran,
    new_devices: NewDevices,
    content: Any,
    words: str,
) -> None:
    assert words in refused(capsys, noisy[1], "--new-device", new_devices(content))


def test_neighbours_are_a_list(
    capsys: pytest.CaptureFixture[str], noisy: Ran, new_devices: NewDevices
) -> None:
    file = new_devices([{"features": {}, "neighbours": "12"}])
    assert "neighbours" in refused(capsys, noisy[1], "--new-device", file)


def test_new_devices_of_a_strict_run(
    capsys: pytest.CaptureFixture[str], strict: Ran, new_devices: NewDevices
) -> None:
    """A copy of a device that does not train believes what the device believes."""
    trained, folder = strict
    graph = present(trained.graph)
    roles = split_vertices(present(graph.labels), PublicRandomness(0))
    tested = np.flatnonzero(roles == Role.TEST)[:5].tolist()
    file = new_devices([copy_of(graph, device) for device in tested])
    result = result_of(capsys, folder, "--new-device", file)
    assert result["epsilon_spent_by_each_neighbour"] == 3  # of its randomized label, once more
    known = {row["id"]: row for row in result_of(capsys, folder)["rows"]}
    for row, device in zip(result["rows"], tested, strict=True):
        assert row["label"] == known[str(device)]["label"]
        assert row["probability"] == pytest.approx(known[str(device)]["probability"], rel=1e-5)


@pytest.fixture(scope="module")
def strict_links(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A strict run that asks: features and neighbourhood sketches predict its edges."""
    out = tmp_path_factory.mktemp("strict links") / "run"
    graph = town()  # predictions read it again, so it lies in a file
    np.savez(out.parent / "town.npz", edges=graph.edge_list(), features=np.asarray(graph.features))
    return lumos.train(out.parent / "town.npz", task="link", protect="none", out=out), out


@pytest.fixture
def asked(strict_links: Ran, tmp_path: Path) -> Path:
    """A copy of its folder, in which nobody has asked yet."""
    return Path(shutil.copytree(strict_links[1], tmp_path / "asked"))


def listed(folder: Path, text: str) -> Path:
    path = folder / "listed.txt"
    path.write_text(text, "utf-8")
    return path


def test_strict_links_of_a_file(
    capsys: pytest.CaptureFixture[str], strict_links: Ran, asked: Path, tmp_path: Path
) -> None:
    """By comma or by space, with comments and empty lines; in the order of the file."""
    file = listed(tmp_path, "# pairs\n4,9\n\n 9 4 \n7\t8\n  # another\n5 , 6\n")
    result = result_of(capsys, asked, "--pairs", file)
    pairs = [("4", "9"), ("9", "4"), ("7", "8"), ("5", "6")]
    assert [(row["id"], row["other"]) for row in result["rows"]] == pairs
    assert all(row["answered"] for row in result["rows"])
    assert result["answered"] == 4
    assert result["scores"] == "ideal"
    assert result["bytes"] > 0
    other = lumos.load_run(shutil.copytree(strict_links[1], tmp_path / "other"))
    expected = other.predict_links(ids=pairs)
    np.testing.assert_allclose([row["probability"] for row in result["rows"]], expected)
    again = result_of(capsys, asked, "--pairs", file)
    assert again["rows"] == result["rows"]
    assert again["bytes"] == 0, "answers are kept"


def test_strict_links_by_real_cryptography(
    capsys: pytest.CaptureFixture[str], strict_links: Ran, tmp_path: Path
) -> None:
    file = listed(tmp_path, "4 9\n7 8\n30 2\n")
    rows, sizes = [], []
    for scores in ("ideal", "secure"):
        folder = Path(shutil.copytree(strict_links[1], tmp_path / scores))
        workers = ["--workers", "1"] if scores == "secure" else []
        result = result_of(capsys, folder, "--pairs", file, "--scores", scores, *workers)
        assert result["scores"] == scores
        rows.append(result["rows"])
        sizes.append(result["bytes"])
    assert rows[0] == rows[1]
    assert sizes[0] == sizes[1]


def test_strict_links_beyond_the_budget(
    capsys: pytest.CaptureFixture[str], asked: Path, tmp_path: Path
) -> None:
    file = listed(tmp_path, "".join(f"0 {peer}\n" for peer in range(1, 60)))
    result = result_of(capsys, asked, "--pairs", file)
    assert result["answered"] == 7
    alone = {row["probability"] for row in result["rows"] if not row["answered"]}
    assert len(alone) == 1, "what the asker knows is its own degree"
    assert run(["predict", str(asked), "--pairs", str(file)]) == 0
    out = capsys.readouterr().out
    assert "7 of 59 pairs have an answer; ideal scores" in out
    assert "scored by the asker's own degree" in " ".join(out.split())
    assert "39 more; --json gives all" in out
    assert "yes" in out
    assert "no" in out


def test_strict_candidates(capsys: pytest.CaptureFixture[str], asked: Path, tmp_path: Path) -> None:
    """The likeliest of those that answered; the device itself and repeats are left out."""
    file = listed(tmp_path, "\n".join(map(str, [0, 5, 5, *range(1, 30)])))
    result = result_of(capsys, asked, "--id", "0", "--candidates", file, "--top", "9")
    rows = result["rows"]
    assert len(rows) == 9
    assert {row["id"] for row in rows} == {"0"}
    assert len({row["other"] for row in rows} - {"0"}) == 9
    assert [row["answered"] for row in rows] == [True] * 7 + [False] * 2
    chances = [row["probability"] for row in rows[:7]]
    assert chances == sorted(chances, reverse=True)
    best = result_of(capsys, asked, "--id", "0", "--candidates", file, "--top", "1")["rows"]
    assert best == rows[:1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 2\n3 4 5\n", "line 2: expected 2 ids, found 3"),
        ("1\n", "line 1: expected 2 ids, found 1"),
        ("1,\n", "line 1: expected 2 ids, found an empty one"),
        ("# nothing\n\n", "has no ids"),
        ("", "has no ids"),
        ("1 2\n3 3\n", "twice the same device"),
        ("1 2\n3 nobody\n", "'nobody' is not the id of any device of this run"),
    ],
)
def test_files_of_pairs_that_are_wrong(
    capsys: pytest.CaptureFixture[str], asked: Path, tmp_path: Path, text: str, words: str
) -> None:
    assert words in refused(capsys, asked, "--pairs", listed(tmp_path, text))
    assert not (asked / "answers.npz").exists(), "nobody was asked"


def test_questions_that_a_run_cannot_answer(
    capsys: pytest.CaptureFixture[str], asked: Path, strict: Ran, tmp_path: Path
) -> None:
    file = listed(tmp_path, "1 2\n")
    one = tmp_path / "one.txt"
    one.write_text("1\n")
    assert "cannot be read" in refused(capsys, asked, "--pairs", tmp_path / "nowhere.txt")
    assert "cannot be read" in refused(capsys, asked, "--pairs", tmp_path)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\0")
    assert "cannot be read" in refused(capsys, asked, "--pairs", tmp_path / "binary.txt")
    assert "this run classifies" in refused(capsys, strict[1], "--pairs", file)
    assert "this run classifies" in refused(capsys, strict[1], "--id", "1", "--candidates", one)
    assert "needs one --id" in refused(capsys, asked, "--candidates", one)
    assert "needs one --id" in refused(capsys, asked, "--id", "1", "--id", "2", "--candidates", one)
    assert "--top must be 1 or more" in refused(
        capsys, asked, "--id", "2", "--candidates", one, "--top", "0"
    )
    assert "expected 1 id, found 2" in refused(capsys, asked, "--id", "5", "--candidates", file)
    assert "one at a time" in refused(capsys, asked, "--id", "1", "--pairs", file)
    assert "name devices with --id, or --pairs FILE" in refused(capsys, asked)
    (asked / "answers.npz").write_bytes(b"nonsense")
    assert "answers.npz: is damaged" in refused(capsys, asked, "--pairs", file)


def test_a_run_that_fell_back_asks_nobody(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trained = lumos.train("demo:60", task="link", out=tmp_path / "run")
    assert trained.model.choice == "degree"
    result = result_of(capsys, tmp_path / "run", "--id", "4", "--id", "9", "--id", "30")
    assert result["answered"] == 0
    assert "bytes" not in result
    pairs = [(row["id"], row["other"]) for row in result["rows"]]
    assert pairs == [("4", "9"), ("4", "30"), ("9", "30")]
    degree = at_home(trained).degree[[4, 4, 9]]
    odds = (degree + 1) / 60
    np.testing.assert_allclose([row["probability"] for row in result["rows"]], odds / (1 + odds))


def write_graph(folder: Path, labelled: int) -> Path:
    """Sixty named devices as CSV; the last ones have no row among the labels."""
    graph = lumos.load("demo:60")
    words = sparse(graph.features)[:, :20].toarray()
    path = folder / "graph.csv"
    path.write_text("source,target\n" + "".join(f"d{u},d{v}\n" for u, v in graph.edge_list()))
    header = "id," + ",".join(f"w{number}" for number in range(20))
    rows = [f"d{device}," + ",".join(map(str, row)) for device, row in enumerate(words.tolist())]
    (folder / "graph.features.csv").write_text("\n".join([header, *rows]) + "\n")
    labels = np.asarray(graph.labels)[:labelled]
    known = [f"d{device},{graph.classes[label]}" for device, label in enumerate(labels)]
    (folder / "graph.labels.csv").write_text("\n".join(["id,label", *known]) + "\n")
    return path


def test_unlabelled_devices_in_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, out = write_graph(tmp_path, labelled=50), tmp_path / "run"
    assert run(["train", str(path), *QUICK]) == 2
    assert "--missing-labels unknown" in capsys.readouterr().err
    more = ["--missing-labels", "unknown", "--out", str(out)]
    assert run(["train", str(path), *QUICK, *more]) == 0
    capsys.readouterr()
    rows = {row["id"]: row for row in result_of(capsys, out)["rows"]}
    assert set(rows) == {f"d{device}" for device in range(60)}
    assert all(row["label"] in lumos.load("demo:60").classes for row in rows.values())
    assert result_of(capsys, out, "--id", "d59")["rows"] == [rows["d59"]]


def test_unlabelled_devices_in_an_npz(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, out = tmp_path / "graph.npz", tmp_path / "run"
    graph = lumos.load("demo:60")
    labels = np.where(np.arange(60) < 45, present(graph.labels), -1)
    words = sparse(graph.features)[:, :20].toarray()
    np.savez(path, edges=graph.edge_list(), features=words, target=labels)
    assert run(["train", str(path), *QUICK, "--out", str(out)]) == 0
    capsys.readouterr()
    rows = result_of(capsys, out, "--id", "59", "--id", "45")["rows"]
    assert [row["id"] for row in rows] == ["59", "45"]
    assert {row["label"] for row in rows} <= {str(label) for label in range(6)}


def test_new_devices_after_reading_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, new_devices: NewDevices
) -> None:
    """The graph is found again as it was read in training."""
    path, out = write_graph(tmp_path, labelled=50), tmp_path / "run"
    more = ["--missing-labels", "unknown", "--out", str(out)]
    assert run(["train", str(path), *QUICK, *more]) == 0
    capsys.readouterr()
    file = new_devices([{"id": "me", "features": {"3": 1}, "neighbours": ["d3"]}])
    assert len(result_of(capsys, out, "--new-device", file)["rows"]) == 1


def test_new_devices_from_another_folder(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    new_devices: NewDevices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A graph that was named by a relative path is found from anywhere."""
    write_graph(tmp_path, labelled=60)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run(["train", "graph.csv", *QUICK, "--out", "run"]) == 0
    capsys.readouterr()
    monkeypatch.chdir(tmp_path / "elsewhere")
    file = new_devices([{"id": "me", "features": {"3": 1}, "neighbours": ["d3"]}])
    assert len(result_of(capsys, "../run", "--new-device", file)["rows"]) == 1


def test_new_devices_of_another_graph(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, new_devices: NewDevices
) -> None:
    path, out = write_graph(tmp_path, labelled=60), tmp_path / "run"
    assert run(["train", str(path), *QUICK, "--out", str(out)]) == 0
    capsys.readouterr()
    file = new_devices([{"id": "me", "features": {"3": 1}, "neighbours": ["d3"]}])
    assert len(result_of(capsys, out, "--new-device", file)["rows"]) == 1
    path.write_text(path.read_text() + "d0,d1\n")
    assert "the run is of another graph" in refused(capsys, out, "--new-device", file)
    assert len(result_of(capsys, out)["rows"]) == 60  # the run itself is still there
    path.unlink()
    assert str(path) in refused(capsys, out, "--new-device", file)


def test_no_run_or_half_a_run(
    capsys: pytest.CaptureFixture[str], noisy: Ran, tmp_path: Path
) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert "not a run folder" in refused(capsys, folder)
    half = tmp_path / "half"
    shutil.copytree(noisy[1], half)
    (half / "result.json").unlink()
    assert "the run is not finished; continue with lumos train … --resume" in refused(capsys, half)
    shutil.copytree(noisy[1], tmp_path / "broken")
    (tmp_path / "broken" / "model.npz").write_bytes(b"nonsense")
    assert "model.npz: is damaged" in refused(capsys, tmp_path / "broken")
    assert "RUN is missing" in refused(capsys)


def test_wrong_options(capsys: pytest.CaptureFixture[str], noisy: Ran, tmp_path: Path) -> None:
    _, folder = noisy
    assert "--export writes .npz" in refused(capsys, folder, "--export", tmp_path / "x.pt")
    assert "ask one at a time" in refused(capsys, folder, "--id", "1", "--new-device", "x.json")
    assert "x.json" in refused(capsys, folder, "--new-device", tmp_path / "x.json")
    assert "Unknown option" in refused(capsys, folder, "--flavour")


def test_a_place_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], noisy: Ran, tmp_path: Path
) -> None:
    path = tmp_path / "nowhere" / "weights.npz"
    assert str(path) in refused(capsys, noisy[1], "--id", "1", "--export", path, "--simulated")
