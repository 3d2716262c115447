"""Plan and rows: every number of the paper has a row, none is missing silently, sums are right."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reproduce.evaluation import (
    LITERAL_NOTE,
    LPGNN_CONTROL,
    NO_INFORMATION,
    PROFILES,
    SYSTEM_NAMES,
    PaperEvaluation,
    Row,
)
from reproduce.figures import FIGURES, LABEL_NOTE, STRICT_ABLATION, runs_of
from reproduce.plots import draw
from reproduce.runs import LITERAL, Run
from reproduce.settings import EPSILONS, Dataset, Settings, dataset_of

from lumos.training.config import Config
from lumos.training.profile import PAPER, STRICT
from reproduce import reported

REPORTED: dict[str, list[tuple[Any, ...]]] = {
    "classification": [
        ("gcn", -16.29, -14.73),
        ("gat", -16.30, -15.76),
        ("gcn", 6.44, 12.26),
        ("gat", 5.10, 7.62),
        ("gcn", 74.29, 52.85),
        ("gat", 42.13, 32.62),
    ],
    "link-prediction": [
        ("gcn", -7.13, -3.60),
        ("gat", -9.12, -4.59),
        ("gcn", 22.94, 19.72),
        ("gat", 22.03, 19.60),
    ],
    "epsilon": [
        ("gcn", 5.13, 9.24),
        ("gcn", 9.23, 14.85),
        ("gcn", 10.26, 16.82),
        ("gcn", 8.88, 9.59),
        ("gcn", 15.04, 16.37),
        ("gcn", 17.14, 18.93),
    ],
    "ablation": [
        ("gcn", 13.73, 16.36),
        ("gat", 13.10, 15.70),
        ("gcn", 8.26, 8.99),
        ("gat", 8.36, 7.69),
        ("gcn", 0.01, 0.01),
        ("gat", 0.01, 0.01),
    ],
    "workload": [("", 39, 16), ("", 150, 100)],
    "cost": [
        ("", 34.19, 43.02),
        ("", 27.34, 36.80),
        ("", 13.32, 36.38),
        ("", 10.34, 10.90),
    ],
}
"""What the paper reports, in the order of its text: backbone, Facebook, LastFM."""

Evaluations = Callable[..., PaperEvaluation]


def all_rows(evaluation: PaperEvaluation) -> list[Row]:
    return [row for figure in FIGURES.values() for row in figure(evaluation)]


@pytest.mark.parametrize("dataset", reported.DATASETS)
def test_every_number_of_the_paper_has_a_row(make_evaluation: Evaluations, dataset: str) -> None:
    features = 4714 if dataset == "facebook" else 0  # LastFM as it is here, without its features
    rows = all_rows(make_evaluation(lambda _: None, dataset, features=features))
    for figure, numbers in REPORTED.items():
        shown = {(row.backbone, row.paper) for row in rows if row.figure == figure}
        for backbone, *values in numbers:
            assert (backbone, values[reported.DATASETS.index(dataset)]) in shown


def test_nothing_is_claimed_that_the_paper_does_not_say() -> None:
    reported_pairs = {(figure, *pair) for figure, rows in REPORTED.items() for _, *pair in rows}
    assert {(one.figure, *one.values) for one in reported.CLAIMS} == reported_pairs


def test_other_graphs_have_rows_without_the_papers_numbers(make_evaluation: Evaluations) -> None:
    rows = all_rows(make_evaluation(lambda _: None, "demo"))
    assert rows
    assert all(row.paper is None and not row.why for row in rows)


@pytest.mark.parametrize("features", [0, 4714])
def test_a_row_without_a_figure_says_why(make_evaluation: Evaluations, features: int) -> None:
    for row in all_rows(make_evaluation(lambda _: None, "lastfm", features=features)):
        assert row.ours is None
        assert row.notes
        if not features and row.figure in ("classification", "link-prediction", "epsilon"):
            assert "lastfm_asia_features.json is not here" in row.notes[0]


def test_a_graph_without_features_needs_structure_cells_only(
    make_dataset: Callable[..., Dataset],
) -> None:
    runs = runs_of(list(FIGURES), make_dataset("lastfm", features=0), Settings(), PROFILES)
    assert {run.kind for run in runs} == {"trees", "cost"}
    assert {run["iterations"] for run in runs if run["balancer"] == "mcmc"} == {300}


def test_cells_are_shared_and_asked_for_once(
    make_dataset: Callable[..., Dataset],
) -> None:
    dataset, settings = make_dataset(), Settings()
    by_figure = {figure: set(runs_of([figure], dataset, settings, PROFILES)) for figure in FIGURES}
    together = runs_of(list(FIGURES), dataset, settings, PROFILES)
    assert len(together) == len(set(together))
    assert set(together) == set.union(*by_figure.values())
    assert len(together) < sum(map(len, by_figure.values()))
    shared = by_figure["classification"] & by_figure["epsilon"] & by_figure["ablation"]
    assert [(run["profile"], run["backbone"], run["epsilon"], run.seed) for run in shared] == [
        ("paper", "gcn", 2, 0)
    ]
    # Whoever asks for cost asks for no further training run of the strict profile.
    assert {c for c in by_figure["cost"] if c.kind == "train"} <= (
        by_figure["classification"] | by_figure["link-prediction"]
    )


def test_seeds_and_epochs_of_the_full_form(make_dataset: Callable[..., Dataset]) -> None:
    runs = runs_of(list(FIGURES), make_dataset(), Settings(), PROFILES)
    runs = [run for run in runs if run.kind == "train" and run["profile"] == "paper"]
    assert {run["epochs"] for run in runs} == {300}
    plain = [c for c in runs if c["epsilon"] == 2 and c["balancer"] == "mcmc"]
    plain = [c for c in plain if c["virtual_nodes"] is None and c["recovery"] is None]
    for task in ("classify", "link"):
        for backbone in ("gcn", "gat"):
            seeds = [c.seed for c in plain if (c["task"], c["backbone"]) == (task, backbone)]
            assert seeds == [0, 1, 2]
    assert {c.seed for c in runs if c not in plain} == {0}
    assert not any(c["system"] == "lpgnn" and c["task"] == "link" for c in runs)


SCORES = {
    ("paper", 0): (0.80, 0.78),
    ("paper", 1): (0.82, 0.79),
    ("strict", 0): (0.70, 0.60),
    ("strict", 1): (0.72, 0.61),
    ("centralized", 0): (0.90, None),
    ("centralized", 1): (0.91, None),
    ("lpgnn", 0): (0.75, None),
    ("lpgnn", 1): (0.78, None),
    ("naive", 0): (0.40, None),
    ("naive", 1): (0.50, None),
    ("own", 0): (0.60, None),
    ("own", 1): (0.60, None),
}


def made_up(run: Run) -> dict[str, Any] | None:
    """Two seeds of every system; the third broke."""
    if run.seed == 2:
        return None
    score, control = SCORES[run["system"] or run["profile"], run.seed]
    name = "test_accuracy" if run["task"] == "classify" else "test_auc"
    return {name: score, **({} if control is None else {f"control_{name}": control})}


def only(rows: list[Row], **wanted: Any) -> Row:
    matching = [row for row in rows if all(getattr(row, k) == v for k, v in wanted.items())]
    assert len(matching) == 1
    return matching[0]


def test_differences_by_hand(make_evaluation: Evaluations) -> None:
    rows = FIGURES["classification"](make_evaluation(made_up))
    score = only(rows, system=SYSTEM_NAMES[PAPER], backbone="gcn", measure="accuracy, %")
    assert score.ours == pytest.approx(81.0)
    assert score.spread == pytest.approx(np.sqrt(2))
    assert score.seeds == 2
    assert score.control == pytest.approx(78.5)
    assert "it broke" in score.notes
    of = {"system": SYSTEM_NAMES[PAPER], "backbone": "gcn"}
    lost = only(rows, measure=reported.AGAINST_CENTRALIZED, **of)
    assert lost.ours == pytest.approx((-10 - 9) / 2)
    assert lost.control == pytest.approx((-12 - 12) / 2)
    assert lost.paper == -16.29
    assert lost.why  # it is more than two points off
    gain = only(rows, measure=reported.AGAINST_LPGNN, **of)
    assert gain.ours == pytest.approx((5 + 4) / 2)
    assert gain.paper == 6.44
    assert not gain.why  # within two points
    naive = only(rows, measure=reported.AGAINST_NAIVE, **of)
    assert naive.ours == pytest.approx((100 + 64) / 2)  # 0.80/0.40 - 1, 0.82/0.50 - 1
    assert only(rows, system=SYSTEM_NAMES["own"]).ours == pytest.approx(60)
    drowned = only(rows, system=SYSTEM_NAMES["naive"], backbone="gcn", measure="accuracy, %")
    assert "100 epochs, where others have up to 300" in drowned.notes


def test_a_control_of_fewer_seeds_says_so(make_evaluation: Evaluations) -> None:
    def answer(run: Run) -> dict[str, Any] | None:
        matching = made_up(run)
        if matching is not None and run.seed:
            matching.pop("control_test_accuracy", None)
        return matching

    rows = FIGURES["classification"](make_evaluation(answer))
    score = only(rows, system=SYSTEM_NAMES[PAPER], backbone="gcn", measure="accuracy, %")
    assert score.seeds == 2
    assert score.control == pytest.approx(78)
    assert "the control is of 1 of the 2 seeds" in score.notes
    assert score.over_control == pytest.approx(2.0)  # of that seed: 80 against 78
    assert only(rows, system=SYSTEM_NAMES["own"]).over_control is None
    lost = only(
        rows, system=SYSTEM_NAMES[PAPER], backbone="gcn", measure=reported.AGAINST_CENTRALIZED
    )
    assert lost.over_control is None  # a difference is no score


def test_auc_differences_are_in_points_too(make_evaluation: Evaluations) -> None:
    rows = FIGURES["link-prediction"](make_evaluation(made_up))
    score = only(rows, system=SYSTEM_NAMES[STRICT], measure="ROC-AUC")
    assert score.ours == pytest.approx(0.71)
    assert (score.backbone, score.epsilon) == ("", None)
    assert any("16 score queries of 2 bits" in note for note in score.notes)
    lost = only(
        rows, system=SYSTEM_NAMES[STRICT], backbone="gat", measure=reported.AGAINST_CENTRALIZED
    )
    assert lost.ours == pytest.approx(-19.5)
    assert not any(row.system == SYSTEM_NAMES["lpgnn"] for row in rows)


def test_a_seed_that_one_side_lacks_is_left_out(make_evaluation: Evaluations) -> None:
    def answer(run: Run) -> dict[str, Any] | None:
        broken = run["system"] == "centralized" and run.seed == 0
        return None if broken else made_up(run)

    rows = FIGURES["classification"](make_evaluation(answer))
    of = {"system": SYSTEM_NAMES[PAPER], "backbone": "gcn"}
    lost = only(rows, measure=reported.AGAINST_CENTRALIZED, **of)
    assert lost.ours == pytest.approx(82 - 91)
    assert (lost.seeds, lost.spread) == (1, None)
    assert lost.notes == ("of the 1 of 2 seeds that both have",)


def test_a_run_without_a_score_says_so(make_evaluation: Evaluations) -> None:
    def answer(run: Run) -> dict[str, Any] | None:
        return {"test_accuracy": None} if run["profile"] == "strict" else made_up(run)

    rows = FIGURES["classification"](make_evaluation(answer))
    row = only(rows, system=SYSTEM_NAMES[STRICT], backbone="gcn", measure="accuracy, %")
    assert (row.ours, row.notes) == (None, ("a run ended without a score",))


def test_lpgnn_stands_beside_its_control(make_evaluation: Evaluations) -> None:
    def answer(run: Run) -> dict[str, Any] | None:
        silent = run["system"] == "lpgnn" and run["epsilon"] == NO_INFORMATION
        return {"test_accuracy": 0.7} if silent else made_up(run)

    rows = FIGURES["classification"](make_evaluation(answer))
    row = only(rows, system=SYSTEM_NAMES["lpgnn"], backbone="gcn", measure="accuracy, %")
    assert row.ours == pytest.approx(76.5)
    assert row.control == pytest.approx(70.0)
    assert LPGNN_CONTROL in row.notes


@pytest.mark.parametrize("broken", [2.0, NO_INFORMATION])
def test_lpgnn_without_its_control_or_the_seed_of_it(
    make_evaluation: Evaluations, broken: float
) -> None:
    def answer(run: Run) -> dict[str, Any] | None:
        if run["system"] != "lpgnn":
            return made_up(run)
        given = run["epsilon"] or run["label_epsilon"]
        return None if (given, run.seed) == (broken, 0) else {"test_accuracy": 0.7}

    rows = FIGURES["classification"](make_evaluation(answer))
    row = only(rows, system=SYSTEM_NAMES["lpgnn"], backbone="gcn", measure="accuracy, %")
    assert row.ours == pytest.approx(70.0)
    assert (row.control, row.over_control) == (None, None)
    assert LPGNN_CONTROL not in row.notes
    assert ("it broke" if broken == 2 else "control: it broke") in row.notes


@pytest.mark.parametrize("name", ["facebook", "lastfm"])
def test_a_file_called_like_a_graph_of_the_paper_is_another_graph(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / f"{name}.csv"
    file.write_text("0,1\n1,2\n")
    assert dataset_of(str(file), None).paper_name == ""


def test_nothing_is_relative_to_nothing(make_evaluation: Evaluations) -> None:
    def answer(run: Run) -> dict[str, Any] | None:
        return {"test_accuracy": 0.0} if run["system"] == "naive" else made_up(run)

    rows = FIGURES["classification"](make_evaluation(answer))
    for row in (row for row in rows if row.measure == reported.AGAINST_NAIVE):
        assert row.ours is None
        assert "nothing is relative to a score of 0" in row.notes


def test_gains_over_epsilon(make_evaluation: Evaluations) -> None:
    by = {0.5: 0.50, 1: 0.60, 2: 0.75, 4: 0.80}

    def answer(run: Run) -> dict[str, Any]:
        name = "test_accuracy" if run["task"] == "classify" else "test_auc"
        beside = {f"control_{name}": 0.5} if run["control"] else {}
        return {name: by[run["epsilon"] or run["label_epsilon"] or 2], **beside}

    rows = FIGURES["epsilon"](make_evaluation(answer))
    for epsilon, gain in ((1, 20.0), (2, 50.0), (4, 60.0)):
        for task, controlled in (("classify", True), ("link", False)):
            row = only(
                rows,
                measure=reported.RELATIVE_TO_HALF,
                epsilon=float(epsilon),
                task=task,
                system=SYSTEM_NAMES[PAPER],
            )
            assert row.ours == pytest.approx(gain)
            assert row.control == (pytest.approx(0.0) if controlled else None)


def test_pure_labels_and_true_labels_stand_side_by_side(make_evaluation: Evaluations) -> None:
    def answer(run: Run) -> dict[str, Any]:
        name = "test_accuracy" if run["task"] == "classify" else "test_auc"
        score = 0.5 + (run["epsilon"] or run["label_epsilon"] or 2) / 10
        return {name: score, f"control_{name}": score - 0.25}

    evaluation = make_evaluation(answer)
    rows = FIGURES["epsilon"](evaluation)
    for task in ("classify", "link"):
        strict = [row for row in rows if row.task == task and "strict" in row.system]
        assert {row.system for row in strict} == {SYSTEM_NAMES[STRICT]}
    for epsilon in EPSILONS:
        of: dict[str, Any] = {"task": "classify", "epsilon": epsilon, "measure": "accuracy, %"}
        pure = only(rows, system=SYSTEM_NAMES[STRICT], **of)
        assert pure.ours == pytest.approx(50 + 10 * epsilon)
        assert pure.over_control == pytest.approx(25)
        assert LABEL_NOTE in pure.notes
    plot = draw("epsilon", evaluation, rows)["epsilon-facebook-classify"]
    assert f"{SYSTEM_NAMES[STRICT]}: 55 % at 0.5, 90 % at 4." in plot.svg
    links = draw("epsilon", evaluation, rows)["epsilon-facebook-link"]
    level = only(rows, system=SYSTEM_NAMES[STRICT], task="link", measure="ROC-AUC")
    assert level.ours == pytest.approx(0.7)
    assert (level.epsilon, level.backbone) == (None, "")
    assert f"{SYSTEM_NAMES[STRICT]} 0.700" in links.svg
    assert "Level line" in links.caption
    only_paper = dataclasses.replace(evaluation, profiles=(PAPER,))
    assert not any("strict" in row.system for row in FIGURES["epsilon"](only_paper))


def test_every_profile_accepts_its_runs(make_dataset: Callable[..., Dataset]) -> None:
    """ε is the label's in the strict profile, and the features' in the paper's."""
    runs = runs_of([*FIGURES], make_dataset(), Settings(), PROFILES)
    train = [run for run in runs if run.kind == "train"]
    assert {run["profile"] for run in train} == {PAPER, STRICT}
    for run in train:
        flat = Config.asked(**dict(run.settings)).flat()
        name = "label_epsilon" if run["profile"] == STRICT else "epsilon"
        assert run[name] is None or flat[name] == run[name]
    strict = [run for run in train if run["profile"] == STRICT and run["backbone"] == "gcn"]
    assert {run["label_epsilon"] for run in strict} == set(EPSILONS)
    assert len({run.describe() for run in runs}) == len(runs)


def test_strict_links_are_one_cell_for_each_seed(make_dataset: Callable[..., Dataset]) -> None:
    """Neither ε nor a backbone is a setting of theirs; every figure shares them."""
    settings = Settings()
    runs = runs_of([*FIGURES], make_dataset(), settings, PROFILES)
    links = [run for run in runs if (run["profile"], run["task"]) == (STRICT, "link")]
    assert [run.seed for run in links] == list(range(settings.seeds))
    for run in links:
        assert dict(run.settings).keys() == {"profile", "task", "control"}
        assert Config.asked(**dict(run.settings)).train.control


def test_ablations_by_hand(make_evaluation: Evaluations) -> None:
    def answer(run: Run) -> dict[str, Any]:
        name = "test_accuracy" if run["task"] == "classify" else "test_auc"
        star, untrimmed = run["virtual_nodes"] is False, run["balancer"] == "none"
        return {name: 0.70 if star else 0.88 if untrimmed else 0.80}

    rows = FIGURES["ablation"](make_evaluation(answer))
    of = {"task": "link", "backbone": "gat", "system": SYSTEM_NAMES[PAPER]}
    assert only(rows, measure=reported.OVER_STARS, **of).ours == pytest.approx(10.0)
    same = only(rows, measure=reported.OVER_UNTRIMMED, **of)
    assert same.ours == pytest.approx(100 * (0.80 / 0.88 - 1))
    assert same.why
    assert same.paper_shown == "below 0.01 either way"
    strict = [row for row in rows if row.system == SYSTEM_NAMES[STRICT]]
    assert strict
    assert all(row.notes == (STRICT_ABLATION,) for row in strict)


def test_savings_by_hand(make_evaluation: Evaluations) -> None:
    each = {
        "none": {"tree_messages": 30.0, "messages": 100.0, "seconds": 2.0},
        "greedy": {"tree_messages": 20.0, "messages": 90.0, "seconds": 1.8},
        "mcmc": {"tree_messages": 18.0, "messages": 88.0, "seconds": 1.7},
        "optimal": {"tree_messages": 15.0, "messages": 85.0, "seconds": 1.5},
    }
    more = {"rounds": 10.0}
    by = {
        name: {**figures, **more, "seconds_without_sum": figures["seconds"] / 2}
        for name, figures in each.items()
    }
    traffic = {"messages_sent_mean": 7.0, "rounds": 8.0}
    for way in ("sent", "received"):
        traffic |= {f"bytes_{way}_largest": 1.25e6 - 100 * 100, f"messages_{way}_largest": 100.0}

    def answer(run: Run) -> dict[str, Any]:
        if run.kind == "cost":
            return {"by": by, "stand_in_features": False}
        return {"per_epoch": traffic}

    rows = FIGURES["cost"](make_evaluation(answer))
    of = {"task": "classify", "system": "Lumos paper, mcmc 1,000 steps"}
    saved = only(rows, measure=reported.MESSAGES_SAVED, **of)
    assert saved.ours == pytest.approx(40.0)
    assert saved.paper == 34.19
    time = only(rows, measure=reported.TIME_SAVED, **of)
    assert time.ours == pytest.approx(15.0)
    assert time.paper == 13.32
    assert saved.why
    assert not time.why
    at_once = only(rows, measure="epoch time saved, latency left out, %", **of)
    assert at_once.ours == pytest.approx(100 * (1 - (1.7 - 0.5) / (2.0 - 0.5)))
    assert only(rows, measure="messages saved, masked sum included, %", **of).ours == pytest.approx(
        12.0
    )
    strict = [row for row in rows if row.system == SYSTEM_NAMES[STRICT] and row.task == "classify"]
    # 8 rounds of 50 ms, 1.25 MB up at 1.25 MB/s and down at 6.25 MB/s
    assert [row.ours for row in strict] == pytest.approx([7.0, 8 * 0.05 + 1.0 + 0.2])


def test_every_disagreement_has_an_explanation() -> None:
    """Whatever our figure is, a row that disagrees says why."""
    keys = {"workload": ("paper", "optimal"), "cost": ("classify", "link")}
    for one in reported.CLAIMS:
        if one.measure == reported.UNTRIMMED_LARGEST:
            who: tuple[str, ...] = ("none",)
        elif one.figure == "ablation":
            who = ("paper",)
        else:
            who = keys.get(one.figure, PROFILES)
        for key in who:
            assert reported.WHY[one.measure, key]


@pytest.mark.parametrize(
    ("measure", "ours", "expected"),
    [
        (reported.LARGEST, 37.0, False),
        (reported.LARGEST, 59.0, True),
        (reported.UNTRIMMED_LARGEST, 709.0, False),
        (reported.UNTRIMMED_LARGEST, 150.0, True),
    ],
)
def test_when_a_figure_disagrees(measure: str, ours: float, expected: bool) -> None:
    number = reported.claim("workload", measure)
    assert number is not None
    assert reported.disagrees(number, "facebook", ours) is expected
    assert not reported.disagrees(number, "demo", ours)


@pytest.mark.parametrize("figure", ["epsilon", "ablation"])
def test_the_letter_of_the_paper_has_rows(make_evaluation: Evaluations, figure: str) -> None:
    def answer(run: Run) -> dict[str, Any]:
        score = 0.5 if run["recovery"] == "literal" else 0.9
        return {"test_accuracy": score, "test_auc": score}

    evaluation = make_evaluation(answer)
    matching = [
        row for row in FIGURES[figure](evaluation) if row.system.startswith(SYSTEM_NAMES[LITERAL])
    ]
    assert {row.task for row in matching} == {"classify", "link"}
    assert {row.backbone for row in matching} == {"gcn"}
    assert any(row.paper is not None and row.ours == 0 for row in matching)
    scores = [row for row in matching if row.measure in ("accuracy, %", "ROC-AUC")]
    assert {row.ours for row in scores} == {50.0, 0.5}
    assert all(LITERAL_NOTE in row.notes for row in scores)
