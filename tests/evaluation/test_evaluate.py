"""`lumos.evaluate` against single runs: the same scores, paired, and a failure stays alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.narrow import present, sparse
from tests.shared_runs import SharedFolders

import lumos
from lumos import Evaluation, Graph, InputError, UsageError
from lumos.evaluation import evaluate as module
from lumos.evaluation.page import page

SYSTEMS = ["strict", "own", "control", "own-unprotected"]
STRICT: dict[str, Any] = {"encoder_epochs": 2}
BASELINE: dict[str, Any] = {"patience": 3}
QUICK = {**STRICT, **BASELINE}


def shifted(graph: Graph) -> Graph:
    """The same in memory, with features outside the bounds of LPGNN."""
    features = sparse(graph.features).toarray() * 2
    return Graph.from_edges(
        graph.edge_list(),
        features=features,
        labels=graph.labels,
        classes=[f"<b>{name}</b>" for name in graph.classes],
        name="<i>:cat:",
    )


@pytest.fixture(scope="module")
def graph() -> Graph:
    return shifted(lumos.load("demo:60"))


EVALUATED: dict[str, Any] = {"systems": [*SYSTEMS, "lpgnn"], "seeds": 2, "seed": 4, **QUICK}


@pytest.fixture(scope="module")
def folder(graph: Graph, shared: SharedFolders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def evaluate(out: Path) -> None:
        notes: list[tuple[float, float | None, str]] = []
        lumos.evaluate(graph, out=out, progress=lambda *note: notes.append(note), **EVALUATED)
        assert [done for done, _, _ in notes] == list(range(7))  # a plan, and six runs
        assert {total for _, total, _ in notes} == {6}
        assert notes[0][2].startswith("6 runs, ")

    return shared.copied("evaluation", evaluate, tmp_path_factory.mktemp("evaluation") / "out")


@pytest.fixture(scope="module")
def found(graph: Graph, folder: Path) -> Evaluation:
    """The evaluation, of runs that are cached."""
    return lumos.evaluate(graph, out=folder, **EVALUATED)


def test_scores_are_those_of_single_runs(found: Evaluation, graph: Graph) -> None:
    runs = {seed: lumos.train(graph, seed=seed, control=True, **STRICT) for seed in (4, 5)}
    wanted = {
        "strict": {seed: run.metrics for seed, run in runs.items()},
        "own": {seed: present(run.own) for seed, run in runs.items()},
        "control": {seed: present(run.control) for seed, run in runs.items()},
        "own-unprotected": {
            seed: lumos.baseline(graph, system="own", seed=seed, **BASELINE).metrics
            for seed in (4, 5)
        },
    }
    for key, by_seed in wanted.items():
        for metric in found.metrics:
            row = found.row(key, metric)
            scores = [by_seed[seed][metric] for seed in (4, 5)]
            assert row.by_seed == pytest.approx(dict(zip((4, 5), scores, strict=True)), abs=1e-5)
            assert row.mean == pytest.approx(np.mean(scores), abs=1e-5)
            assert row.sd == pytest.approx(np.std(scores, ddof=1), abs=1e-5)
            assert row.seeds == 2
    gains = [
        wanted["strict"][seed]["test_accuracy"] - wanted["own"][seed]["test_accuracy"]
        for seed in (4, 5)
    ]
    row = found.row("strict")
    assert row.minus_local == pytest.approx(np.mean(gains))
    assert row.minus_local_sd == pytest.approx(np.std(gains, ddof=1))
    assert row.minus_local_se == pytest.approx(np.std(gains, ddof=1) / np.sqrt(2))
    assert found.row("own").minus_local is None


def test_a_system_that_fails_keeps_its_row(found: Evaluation) -> None:
    row = found.row("lpgnn")
    assert (row.mean, row.sd, row.seeds, row.seconds) == (None, None, 0, None)
    assert "outside the public bounds [0, 1]" in row.reason
    assert found.row("strict").reason == ""
    assert found.summary()["failed"]["lpgnn"].keys() == {"4", "5"}


def test_times_are_of_the_system_alone(found: Evaluation) -> None:
    (strict, control) = (found.row(key).seconds for key in ("strict", "control"))
    whole = [run.results[4]["seconds"] for run in found.runs if run.system.key == "strict"]
    assert 0 < present(control) < whole[0] + 1
    assert present(strict) > 0
    assert found.row("own").seconds is None  # a part of the strict run


def test_a_second_call_runs_nothing(found: Evaluation, graph: Graph, folder: Path) -> None:
    again = lumos.evaluate(graph, systems=SYSTEMS, seeds=2, seed=4, out=folder, **QUICK)
    assert (again.ran, again.known) == (0, 4)
    assert again.row("strict").by_seed == found.row("strict").by_seed
    assert (folder / "report.html").exists()
    assert (folder / "evaluation.json").exists()


def test_an_interrupted_evaluation_goes_on(tmp_path: Path) -> None:
    """Ctrl-C after the first run: that one is known afterwards, and is not run again."""
    asked: dict[str, Any] = {"systems": ["own-unprotected"], "seeds": 3, "jobs": 1, "epochs": 1}

    def interrupt(done: float, total: float | None, note: str) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lumos.evaluate("demo:60", out=tmp_path, progress=interrupt, **asked)
    found = lumos.evaluate("demo:60", out=tmp_path, **asked)
    assert (found.ran, found.known, found.row("own-unprotected").seeds) == (2, 1, 3)


def test_another_split_graph_or_seed_is_another_run(graph: Graph) -> None:
    def data(**changed: Any) -> str:
        given: dict[str, Any] = {
            "graph": graph,
            "systems": [],
            "seeds": range(1),
            "task": "classify",
            "split": None,
            "settings": {},
        }
        return module._Chosen(**{**given, **changed}).data

    masks = [{"train": np.arange(count)} for count in (3, 4)]
    keys = [data(), data(split=masks[0]), data(split=masks[1]), data(graph=lumos.load("demo:60"))]
    assert len(set(keys)) == len(keys)
    assert data(split={"train": np.arange(3)}) == keys[1]


def test_the_call_that_repeats_it() -> None:
    asked = {"systems": None, "seeds": 2, "seed": 0, "task": "link", "split": np.arange(3)}
    call = module._python(lumos.load("demo:60"), asked, {"low": -1.0})
    assert call == "lumos.evaluate(graph, seeds=2, task='link', low=-1.0, split=split)"
    assert module._python("demo", {**asked, "split": None}, {}).startswith("lumos.evaluate('demo',")


def test_text_frame_and_html(found: Evaluation) -> None:
    text = repr(found)
    assert "local model, unprotected" in text
    assert "LPGNN has no result of seed 4, 5: features: some lie outside" in text
    frame = found.frame()
    assert {"system", "metric", "mean", "sd", "seeds", "seconds"} <= set(frame.columns)
    assert len(frame) == len(found.rows) == 5 * 4
    html = found._repr_html_()
    assert "&lt;i&gt;:cat:" in html
    assert "<i>" not in html


def test_progress_is_shown_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    lumos.evaluate("demo:60", systems=["strict"], seeds=1, progress=True, encoder_epochs=2)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err


def test_the_page(found: Evaluation, tmp_path: Path) -> None:
    html = found.report(tmp_path / "page.html").read_text()
    for words in ("Scores", "Protection", "Single classes", "Cost", "LPGNN has no result"):
        assert words in html
    assert "<b>" not in html.split("</style>")[1]
    assert "&lt;i&gt;:cat:" in html
    assert page(found).html() == page(found).html()
    assert found.command == (
        "lumos.evaluate(graph, systems=['strict', 'own', 'control', 'own-unprotected', 'lpgnn'], "
        "seeds=2, seed=4, encoder_epochs=2, patience=3)"
    )


def test_links_leave_out_what_cannot_and_say_so(tmp_path: Path) -> None:
    found = lumos.evaluate("demo:120", systems=["strict", "own", "lpgnn"], task="link", seeds=1)
    assert found.metrics[0] == "test_auc"
    assert list(found.left_out) == ["LPGNN"]
    run = lumos.train("demo:120", task="link")
    assert found.row("strict").by_seed[0] == pytest.approx(run.metrics["test_auc"], abs=1e-5)
    text = repr(found)
    assert "LPGNN is left out: lpgnn cannot predict links" in text
    assert "hits@100 would need as many pairs without an edge" in text
    assert found.row("strict").sd is None
    found.report(tmp_path / "links.html")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"seeds": 0}, UsageError, "`seeds` must be 1 or more"),
        ({"jobs": 0}, UsageError, "`jobs` must be 1 or more"),
        ({"task": "cluster"}, UsageError, "`task` must be one of classify, link"),
        ({"systems": ["x"]}, UsageError, "there is no 'x'"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(
    given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lumos.evaluate("demo:60", **given)


def test_a_graph_without_labels_or_features_is_refused() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (3, 0)]
    with pytest.raises(InputError, match="has no labels"):
        lumos.evaluate(Graph.from_edges(edges, features=np.ones((4, 2))))
    with pytest.raises(InputError, match="features"):
        lumos.evaluate(Graph.from_edges(edges, labels=[0, 1, 0, 1]))


SCRIPT = """
import lumos
print("run once")
found = lumos.evaluate("demo:60", systems=["own-unprotected"], seeds=1, epochs=1)
print(found.row("own-unprotected").seeds)
"""


@pytest.mark.usefixtures("must_end")
def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """Processes do not import the caller's script: it would start them again, for ever."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["run once", "1"]
