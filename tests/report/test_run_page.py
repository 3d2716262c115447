"""The page of a run says what the run's files say, and nothing else."""

import dataclasses
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.report.page_reading import number, read
from tests.report.run_files import changed, page, result_of, table

import lumos
from lumos.exchange.messages import Door
from lumos.report.run_page import page_of
from lumos.report.run_scores import VARIANTS, stages_of, variant_name
from lumos.report.run_scores import notes as scores_notes
from lumos.secagg import FixedPoint
from lumos.training.guarantees import guarantees_something, shown_cells
from lumos.training.profile import PROFILES

pytestmark = pytest.mark.usefixtures("drawn_once")

NAMES = {"macro-F1": "test_macro_f1"} | {f"hits@{k}": f"test_hits_at_{k}" for k in (10, 50, 100)}
PREFIX = {"run": "", "own": "own_", "control": "control_"}


def test_scores(run: Path) -> None:
    result = result_of(run)
    what = "auc" if result["task"] == "link" else "accuracy"
    columns, rows = table(run, "measured by the observer")
    assert columns[:3] == ["", "validation", "test"]
    variants = [variant for variant in VARIANTS if f"{PREFIX[variant]}test_{what}" in result]
    assert [row[0] for row in rows] == [
        variant_name(lumos.load_run(run), variant) for variant in variants
    ]
    shown = page(run)
    drawn = [text.text() for text in shown.all("svg")[0].all("text")]
    facts = [item.text() for item in shown.all("dd") if item.attributes["class"] == "value"]
    for row, fact, variant in zip(rows, facts, variants, strict=True):
        test = result[f"{PREFIX[variant]}test_{what}"]
        assert number(row[1]) == pytest.approx(result[f"{PREFIX[variant]}val_{what}"], abs=5.1e-5)
        assert number(row[2]) == pytest.approx(test, abs=5.1e-5)
        for name, cell in zip(columns[3:], row[3:], strict=True):
            stored = result[PREFIX[variant] + NAMES.get(name, f"test_{name.replace(' ', '_')}")]
            assert number(cell) == pytest.approx(stored, abs=5.1e-4)
        assert fact == row[2]
        assert any(words.startswith(row[2].removesuffix("%").strip()) for words in drawn)


def test_the_ledger(run: Path) -> None:
    result = result_of(run)
    topics = {**result["tree_ledger"]["topics"], **result["ledger"]["topics"]}
    columns, rows = table(run, "The ledger")
    assert columns == ["topic", "door", "messages", "bytes", "bytes each", "who learns what"]
    assert {row[0] for row in rows} == set(topics)
    for name, door, messages, size, each, learns in rows:
        line = topics[name]
        assert (door, learns) == (line["door"], " ".join(line["learns"].split()))
        assert (number(messages), number(size)) == (line["messages"], line["bytes"])
        assert abs(number(each) * line["messages"] - line["bytes"]) <= line["messages"] / 2
    _, doors = table(run, "The doors")
    assert [row[0] for row in doors] == ["open", "release", "compare", "control", "aggregate"]
    assert {row[0] for row in doors} == set(Door)
    for door, _, protects, messages, size in doors:
        lines = [line for line in topics.values() if line["door"] == door]
        assert number(messages) == sum(line["messages"] for line in lines)
        assert number(size) == sum(line["bytes"] for line in lines)
        assert ("shut" in protects) == (door == "open" and result["profile"] == "strict")


def test_guarantees_or_exposure(run: Path) -> None:
    result = result_of(run)
    text = page(run).words("svg")
    for sentence in result["exposed"].replace("`", " ").split(". "):
        assert " ".join(sentence.split()).replace(" ", "") in text.replace(" ", "")
    exposed = not guarantees_something(result["guarantees"])
    assert ("What was exposed" in text) == exposed
    columns, rows = table(run, "What is exposed" if exposed else "What is guaranteed")
    alike: dict[tuple[str, ...], list[str]] = {}  # what is guaranteed alike is one row
    for guarantee in result["guarantees"]:
        shown = shown_cells(guarantee)
        cells = tuple(" ".join(shown[who].split()) for who in columns[1:])
        alike.setdefault(cells, []).append(guarantee["about"])
    assert rows == [[", ".join(names), *cells] for cells, names in alike.items()]


def test_settings(run: Path) -> None:
    about = json.loads((run / "run.json").read_text("utf-8"))
    columns, given = table(run, "Settings that were given")
    assert columns == ["setting", "value", "meaning"]
    rows: list[tuple[Any, ...]] = [(*row, True) for row in given]
    rows += [(*row, False) for row in table(run, "Settings left at their defaults")[1]]
    defaults = lumos.Config.of(**{n: about["settings"][n] for n in ("profile", "task")}).flat()
    usual = lumos.Config.of().flat()
    for name, value, meaning, is_given in rows:
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
    listed = {row[0] for row in rows}
    config = lumos.load_run(run).config
    unused = config.profile.texts(config).unused_settings
    assert not unused & listed  # those of the other task, for instance
    for name in PROFILES:
        own = {field.name for field in dataclasses.fields(PROFILES[name].settings)} - unused
        assert (own <= listed) == (about["settings"]["profile"] == name)
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
    """Numbers of four digits and more stand in the run's files, or are sums over a door, means of
    a topic, or widths of sums, which have a test of their own."""
    result = result_of(run)
    known = numbers_in(result) | numbers_in(json.loads((run / "run.json").read_text("utf-8")))
    topics = [
        line for ledger in ("tree_ledger", "ledger") for line in result[ledger]["topics"].values()
    ]
    for door in Door:
        for what in ("messages", "bytes"):
            known.add(sum(line[what] for line in topics if line["door"] == door))
    known |= {22_000}  # e¹⁰, in words on ε
    known |= {round(line["bytes"] / line["messages"]) for line in topics if line["messages"]}
    stages = stages_of(lumos.load_run(run))
    sums = [(stage.last - stage.first + 1, stage.numbers) for stage in stages]
    known |= {width for _, width in sums} | {sum(many * width for many, width in sums)}
    words = page(run).words("code", "style", "svg")
    large = re.findall(r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+|\d{4,})(?![\w.])", words)
    shown = {int(text.replace(",", "")) for text in large}
    assert shown
    assert shown <= known


def test_curves_end_where_the_run_ended(run: Path) -> None:
    """Of every stage: its loss is drawn, in every variant that has one, or said to be hidden."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shown, loaded = page(run), lumos.load_run(run)
    stages = stages_of(loaded)
    for stage in stages:
        title = "Training loss" if len(stages) == 1 else f"Training loss: {stage.name}"
        drawn = [svg for svg in shown.all("svg") if svg.all("title")[0].text() == title]
        known = [line for line in lines[stage.first - 1 : stage.last] if line["loss"] is not None]
        hidden = f"The loss of the stage {stage.name} is not drawn" in shown.text()
        assert len(drawn) + hidden == bool(known), stage.name
        if not drawn:
            continue
        description = drawn[0].all("desc")[0].text()
        (first, *_, last) = known
        words = f"this run: {first['loss']:.4g} at {first['epoch']}, "
        words += f"{last['loss']:.4g} at {last['epoch']}."
        assert words in description
        for variant in ("own", "control"):
            name = variant_name(loaded, variant)
            assert (name in description) == (run / variant / "metrics.jsonl").exists()


def test_the_widths_of_all_sums_are_those_that_were_sent(run: Path) -> None:
    """The ledger counted what the page computes, with the bytes of a number in a message."""
    loaded = lumos.load_run(run)
    fixed = FixedPoint.of(loaded.config.updates, 60)
    stages = stages_of(loaded)
    numbers = sum((stage.last - stage.first + 1) * stage.numbers for stage in stages)
    sent = loaded.ledger.topics["aggregate/sum/ideal"].bytes
    assert sent == fixed.wire * 60 * numbers
    assert f"{numbers:,}" in page(run).text()


def test_a_hostile_name(runs: dict[str, Path], tmp_path: Path) -> None:
    name = '<script>alert("x")</script>'
    one = changed(runs["paper"], tmp_path / "one", graph=name, warnings=[name])
    other = changed(one, tmp_path / "other", "run.json", graph=name, notes=[name])
    shown = page(other)
    assert shown.all("script") == []
    assert shown.all("h1")[0].text() == f"Lumos on {name}"
    assert shown.all("title")[0].text() == f"Lumos on {name}"
    assert f"Note on the graph: {name}." in shown.text()


@pytest.mark.parametrize("name", ["", "  "])
def test_a_graph_from_python_without_a_name(runs: dict[str, Path], name: str) -> None:
    run = lumos.load_run(runs["paper"])
    unnamed = dataclasses.replace(run, about=msgspec.structs.replace(run.about, graph=name))
    shown = read(page_of(unnamed).html())
    assert shown.all("h1")[0].text() == shown.all("title")[0].text() == "Lumos on a graph in memory"


def test_every_warning_has_a_line(runs: dict[str, Path]) -> None:
    run: Any = lumos.load_run(runs["paper"])
    split = msgspec.structs.replace(run.about.split, origin="the masks of the data")
    run = dataclasses.replace(run, about=msgspec.structs.replace(run.about, split=split))
    run = SimpleNamespace(
        **{name: getattr(run, name) for name in ("config", "about", "trees", "history")},
        warnings=["few labels", "noise."],
        model=SimpleNamespace(choice="", best_epoch=1),
    )
    first, *others = scores_notes(run)
    assert first.startswith("Split: the masks of the data. Which device does what is public.")
    assert others[:2] == ["Warning: few labels.", "Warning: noise."]


def test_a_missing_control_says_how_to_have_one(run: Path) -> None:
    loaded = lumos.load_run(run)
    says = "--control , or control=True in Python, trains one" in page(run).text()
    assert says == (loaded.control is None)


def test_the_tree_names_no_device(run: Path) -> None:
    """The drawing knows a workload only; it is one that a device has, and their number is right."""
    shown = page(run)
    drawn = [s for s in shown.all("svg") if "sample device" in s.all("title")[0].text()]
    if run.name.startswith("strict"):
        assert not drawn  # nobody builds a tree for links; otherwise a workload is a degree
        assert ("The folder of the run keeps no other" in shown.text()) == (
            run.name != "strict-link"
        )
        return
    (svg,) = drawn
    branches = int(re.findall(r"\d+", svg.all("desc")[0].text())[0])
    with np.load(run / "trees.npz") as file:
        workload = file["workload"]
    assert (workload == branches).sum() > 0
    captions = [c.text() for c in shown.all("figcaption") if "which device it is" in c.text()]
    assert f"{(workload == branches).sum():,} of 60 devices have one of {branches:,}" in captions[0]
    assert not any(re.search(r"\d", text.text()) for text in svg.all("text"))


def test_the_page_of_strict_links(runs: dict[str, Path]) -> None:
    """What devices compare, what histograms measured of it, and what was spent."""
    folder = runs["strict link"]
    result, shown = result_of(folder), page(folder).text()
    assert "sums (8, 1e-05) · 16 score queries of 2 bits" in shown
    assert "ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}3" not in shown
    assert "the asker's own degree alone" in shown
    config = lumos.load_run(folder).config
    assert f"control: {config.profile.texts(config).control}" in shown
    measured = result["estimates"]
    drawn = [text.text() for svg in page(folder).all("svg") for text in svg.all("text")]
    auc, error = measured["levels_auc_both"], measured["levels_auc_both_error"]
    assert f"{auc:.3f} ± {error:.3f} (guessing 0.500)" in drawn
    ledger = result["ledger"]
    assert f"{ledger['scores']:,} pairs learnt the bucket of their score in training" in shown
    assert f"{ledger['comparison_bits']:,.0f} bits, counted at both ends" in shown
    assert "Workload and trees" not in shown
    _, stages = table(folder, "The stages of training")
    assert [row[1].replace("\N{NO-BREAK SPACE}", " ") for row in stages] == [
        "1", "2 to 5", "6", "7", "after",
    ]  # fmt: skip
