"""The page of a run says what the run's files say, and nothing else."""

import dataclasses
import json
import math
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.reading import Node, number, read, tables

import lumos
from lumos.cli.main import run as lumos_command
from lumos.exchange.topic import Door
from lumos.report.record import Record
from lumos.report.rerun import rerun
from lumos.report.run import page_of
from lumos.report.sections.trees import moderate
from lumos.report.summary import ARMS, deviation, verdict
from lumos.storage import write_arrays

PREFIX = {"run": "", "own": "own_", "ids": "ids_", "control": "control_"}


def result_of(run: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((run / "result.json").read_text("utf-8"))
    return result


def page(run: Path) -> Node:
    return read(page_of(run).html())


def table(run: Path, caption: str) -> tuple[list[str], list[list[str]]]:
    (found,) = [content for name, content in tables(page(run)).items() if caption in name]
    return found


def changed(run: Path, to: Path, **values: Any) -> Path:
    """A copy of a run's folder with other values in result.json."""
    shutil.copytree(run, to)
    (to / "result.json").write_text(json.dumps(result_of(run) | values))
    return to


def test_scores(run: Path) -> None:
    result = result_of(run)
    what = "auc" if result["task"] == "link" else "accuracy"
    columns, rows = table(run, "measured by the observer")
    assert columns == ["", "validation", "test"]
    arms = [arm for arm in ARMS if f"{PREFIX[arm]}test_{what}" in result]
    assert [row[0] for row in rows] == [ARMS[arm] for arm in arms]
    found = page(run)
    drawn = [text.text() for text in found.all("svg")[0].all("text")]
    facts = [item.text() for item in found.all("dd") if item.attributes["class"] == "value"]
    for row, fact, arm in zip(rows, facts, arms, strict=True):
        test = result[f"{PREFIX[arm]}test_{what}"]
        assert number(row[1]) == pytest.approx(result[f"{PREFIX[arm]}val_{what}"], abs=5.1e-5)
        assert number(row[2]) == pytest.approx(test, abs=5.1e-5)
        assert fact == row[2]
        assert any(words.startswith(row[2].removesuffix("%").strip()) for words in drawn)


def test_the_ledger(run: Path) -> None:
    result = result_of(run)
    topics = {**result["tree_ledger"]["topics"], **result["ledger"]["topics"]}
    columns, rows = table(run, "The ledger")
    assert columns == ["topic", "door", "messages", "bytes", "who learns what"]
    assert {row[0] for row in rows} == set(topics)
    for name, door, messages, size, learns in rows:
        line = topics[name]
        assert (door, learns) == (line["door"], " ".join(line["learns"].split()))
        assert (number(messages), number(size)) == (line["messages"], line["bytes"])
    _, doors = table(run, "The doors")
    assert [row[0] for row in doors] == ["open", "release", "compare", "control", "aggregate"]
    assert {row[0] for row in doors} == set(Door)
    for door, _, protects, messages, size in doors:
        lines = [line for line in topics.values() if line["door"] == door]
        assert number(messages) == sum(line["messages"] for line in lines)
        assert number(size) == sum(line["bytes"] for line in lines)
        assert ("shut" in protects) == (door == "open" and result["profile"] == "strict")


def test_promises_or_exposure(run: Path) -> None:
    result = result_of(run)
    said = page(run).words("svg")
    for sentence in result["exposed"].replace("`", " ").split(". "):
        assert " ".join(sentence.split()).replace(" ", "") in said.replace(" ", "")
    if not result["promises"]:
        assert "What was exposed" in said
        assert not any("promised" in caption for caption in tables(page(run)))
        return
    columns, rows = table(run, "What is promised")
    told = {
        about: dict(zip(columns, row, strict=True)) for row in rows for about in row[0].split(", ")
    }
    for promise in result["promises"]:
        cells = told.pop(promise["about"])
        for who in columns[1:]:
            assert cells[who] == " ".join(promise[who].split())
    assert told == {}


def test_settings(run: Path) -> None:
    about = json.loads((run / "run.json").read_text("utf-8"))
    columns, given = table(run, "Settings that were given")
    assert columns == ["setting", "value", "meaning"]
    rows = [(*row, True) for row in given]
    rows += [(*row, False) for row in table(run, "Settings left at their defaults")[1]]
    defaults = lumos.Config.of(**{n: about["settings"][n] for n in ("profile", "task")}).flat()
    usual = lumos.Config().flat()
    for name, value, meaning, is_given in rows:
        name = name.replace("-", "_")
        stored = about["settings"][name]
        if isinstance(stored, bool):
            assert value == ("yes" if stored else "no")
        elif isinstance(stored, int | float):
            assert float(value) == stored
        else:
            assert value == ("not given" if stored is None else str(stored))
        default = (usual if name in ("profile", "task") else defaults)[name]
        assert is_given == (str(stored) != str(default)), name
        assert meaning
    listed = {row[0].replace("-", "_") for row in rows}
    strict = {field.name for field in dataclasses.fields(lumos.Config().strict)}
    assert (strict <= listed) == (about["settings"]["profile"] == "strict")
    depends = dict(table(run, "What the figures depend on")[1])
    assert depends["seed"] == "3"
    assert depends["Lumos"] == lumos.__version__
    assert depends["fingerprint of the graph"] == about["fingerprint"]
    assert {name: depends[name] for name in about["versions"]} == about["versions"]
    assert {"python", "torch", "numpy"} <= about["versions"].keys()


def test_cost(run: Path) -> None:
    each = result_of(run)["per_epoch"]
    for name, mean, largest in table(run, "in one epoch")[1]:
        key = name.replace(" ", "_")
        assert number(mean) == pytest.approx(each[f"{key}_mean"], abs=0.051)
        assert number(largest) == pytest.approx(each[f"{key}_largest"], abs=0.051)


def numbers_in(content: Any) -> set[int]:
    if isinstance(content, dict):
        return set().union(*map(numbers_in, content.values()), set())
    if isinstance(content, list):
        return set().union(*map(numbers_in, content), set())
    if isinstance(content, int | float) and math.isfinite(content):
        return {round(content), math.floor(content)}
    return {int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", str(content))}


def test_every_large_number_is_the_runs(run: Path) -> None:
    """Numbers of four digits and more stand in the run's files, or are sums over a door."""
    result = result_of(run)
    known = numbers_in(result) | numbers_in(json.loads((run / "run.json").read_text("utf-8")))
    topics = [
        line for ledger in ("tree_ledger", "ledger") for line in result[ledger]["topics"].values()
    ]
    for door in Door:
        for what in ("messages", "bytes"):
            known.add(sum(line[what] for line in topics if line["door"] == door))
    known |= {22_000}  # e¹⁰, in words on ε
    words = page(run).words("code", "style", "svg")
    large = re.findall(r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+|\d{4,})(?![\w.])", words)
    found = {int(text.replace(",", "")) for text in large}
    assert found
    assert found <= known


def test_curves_end_where_the_run_ended(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (svg,) = [s for s in page(run).all("svg") if s.all("title")[0].text() == "Training loss"]
    said = svg.all("desc")[0].text()
    told = [line for line in lines if line["loss"] is not None]
    (first, *_, last) = told
    words = f"this run: {first['loss']:.4g} at {first['epoch']}, "
    words += f"{last['loss']:.4g} at {last['epoch']}."
    assert words in said
    for arm in ("own", "control"):
        assert (ARMS[arm] in said) == (run / arm / "metrics.jsonl").exists()


def test_the_command_makes_the_run_again(run: Path, tmp_path: Path) -> None:
    (code,) = page(run).all("pre")
    words = shlex.split(code.text())
    assert words[:3] == ["lumos", "train", "demo:60"]
    assert words[-2:] == ["--out", "DIR"]
    again = tmp_path / "again"
    assert lumos_command([*words[1:-1], str(again)]) == 0
    one, other = (json.loads((f / "run.json").read_text()) for f in (run, again))
    assert one["settings"] == other["settings"]
    assert one["seed"] == other["seed"] == 3
    result, repeated = result_of(run), result_of(again)
    timed = {"seconds", "seconds_per_epoch", "peak_rss_mb"}
    assert {k: v for k, v in result.items() if k not in timed} == {
        k: v for k, v in repeated.items() if k not in timed
    }


def test_a_name_stays_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a folder is called the same, for example that of an earlier run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo:60").mkdir()
    lumos.train("demo:60", out="run", profile="paper", compare="ideal", epochs=1, floor=False)
    command = rerun(Record.open(tmp_path / "run"))
    assert command is not None
    assert shlex.split(command)[2] == "demo:60"


def test_a_graph_in_memory_has_no_command(tmp_path: Path) -> None:
    graph = lumos.load("demo:60")
    settings = {"profile": "paper", "compare": "ideal", "epochs": 1, "floor": False}
    lumos.train(graph, out=tmp_path / "run", **settings)
    found = page(tmp_path / "run")
    assert found.all("pre") == []
    assert "with a graph in memory" in found.text()


def test_a_hostile_name(runs: dict[str, Path], tmp_path: Path) -> None:
    name = '<script>alert("x")</script>'
    other = changed(runs["paper"], tmp_path / "run", graph=name, notes=[name], caution=name)
    found = page(other)
    assert found.all("script") == []
    assert found.all("h1")[0].text() == f"Lumos on {name}"
    assert found.all("title")[0].text() == f"Lumos on {name}"
    assert f"Note on the graph: {name}." in found.text()


def test_who_the_tree_belongs_to_is_not_told(run: Path) -> None:
    """The drawing knows a workload only; it is one that a device has, and their number is right."""
    found = page(run)
    (svg,) = [s for s in found.all("svg") if "sample device" in s.all("title")[0].text()]
    branches = int(re.findall(r"\d+", svg.all("desc")[0].text())[0])
    with np.load(run / "trees.npz") as file:
        workload = file["workload"]
    assert (workload == branches).sum() > 0
    said = [c.text() for c in found.all("figcaption") if "which device it is" in c.text()]
    assert f"{(workload == branches).sum():,} of 60 devices have one of {branches:,}" in said[0]
    assert not any(re.search(r"\d", text.text()) for text in svg.all("text"))


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ([0, 0], (0, 2)),
        ([1, 2, 3, 3, 0], (2, 1)),  # the median is 2.5; of two as near, the smaller
        ([3, 3, 3, 9], (3, 3)),
        ([40, 50, 60], (40, 1)),
        ([1, 4, 6, 90, 91, 92], (4, 1)),  # the median is 48, but 5 is what can be drawn
    ],
)
def test_a_moderate_tree(workload: list[int], expected: tuple[int, int]) -> None:
    assert moderate(np.array(workload)) == expected


def scored(runs: dict[str, Path], to: Path, **values: Any) -> Record:
    kind = "link" if "test_auc" in values else "paper"
    return Record.open(changed(runs[kind], to, **values))


@pytest.mark.parametrize(
    ("run_score", "own", "control", "words"),
    [
        (0.90, 0.86, 0.86, "seem to have helped"),
        (
            0.901,
            0.86,
            0.90,
            "does not show that the releases helped. What both have above own features",
        ),
        (0.861, 0.86, 0.86, "does not show that the releases helped."),
        (0.80, 0.86, 0.86, "done harm"),
    ],
)
def test_verdicts(
    runs: dict[str, Path], tmp_path: Path, run_score: float, own: float, control: float, words: str
) -> None:
    many = {"train": 10_000, "validation": 5000, "test": 5000}
    record = scored(
        runs, tmp_path / "run", split=many, test_accuracy=run_score, own_test_accuracy=own,
        control_test_accuracy=control,
    )  # fmt: skip
    assert words in verdict(record)
    if words.endswith("helped."):
        assert verdict(record).endswith(words)
    few = dataclasses.replace(record, result=Record.open(runs["paper"]).result)
    assert "does not show" in verdict(few)  # 15 test devices show nothing


def test_level_is_said_as_level(runs: dict[str, Path], tmp_path: Path) -> None:
    same = {"test_accuracy": 0.8, "own_test_accuracy": 0.80001, "control_test_accuracy": 0.75}
    found = page(changed(runs["paper"], tmp_path / "run", **same)).text()
    assert "This run is level with own features only and 5.00 points above the control." in found


def test_the_deviation_of_a_share(runs: dict[str, Path], tmp_path: Path) -> None:
    record = scored(runs, tmp_path / "run", split={"train": 1, "validation": 1, "test": 400})
    draws = np.random.default_rng(1).binomial(400, 0.8, 100_000) / 400
    assert deviation(record, 0.8) == pytest.approx(draws.std(), rel=0.02)


def test_the_deviation_of_a_ranking(runs: dict[str, Path], tmp_path: Path) -> None:
    """Hanley and McNeil's formula is exact for exponential scores."""
    count, ratio = 60, 3.0
    record = scored(
        runs, tmp_path / "run", test_auc=0.75, split={"train": 1, "validation": 1, "test": count}
    )
    coins = np.random.default_rng(1)
    found = []
    for _ in range(3000):
        good, bad = coins.exponential(ratio, count), coins.exponential(1.0, count)
        found.append((good[:, None] > bad[None, :]).mean())
    assert np.mean(found) == pytest.approx(ratio / (1 + ratio), abs=0.005)
    assert deviation(record, ratio / (1 + ratio)) == pytest.approx(np.std(found), rel=0.06)


def test_an_older_folder_has_no_counts(runs: dict[str, Path], tmp_path: Path) -> None:
    """Runs made before the split, the degrees and the versions were written down."""
    run = tmp_path / "run"
    shutil.copytree(runs["paper"], run)
    result, about = result_of(run), json.loads((run / "run.json").read_text())
    del result["split"], about["versions"]
    (run / "result.json").write_text(json.dumps(result))
    (run / "run.json").write_text(json.dumps(about))
    with np.load(run / "trees.npz") as file:
        arrays = {name: file[name] for name in file.files if name != "degree"}
    write_arrays(run / "trees.npz", arrays)
    found = page(run)
    assert "±" not in found.text()
    assert "nan" not in found.text().split()
    assert "helped" not in found.text()
