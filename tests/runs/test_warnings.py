"""Warnings reach people: `print(run)`, notebooks, `warnings.warn`, the command line, the report."""

import warnings
from typing import Any

import pytest
import torch

import lumos
from lumos import LumosWarning, Run
from lumos.cli.main import run as command
from lumos.training.metrics import few_train, no_better_than_majority

transforms = pytest.importorskip("torch_geometric.transforms")


@pytest.fixture(scope="module")
def planetoid() -> Run:
    """20 labels of each class train, as in Planetoid's splits."""
    torch.manual_seed(0)
    split = transforms.RandomNodeSplit("random", num_train_per_class=20, num_val=400, num_test=600)
    return lumos.train(split(lumos.load("demo:2000").to_pyg()))


def test_a_split_with_few_labels_says_why_scores_are_low(planetoid: Run) -> None:
    assert planetoid.metrics["test_accuracy"] < 0.85  # 0.93 with half of the labels
    texts = " ".join(planetoid.warnings)
    assert "120 training devices are too few for 3,607 weights under this noise" in texts
    assert "the split trains on 120 of 2,000 labelled devices" in texts
    assert "`split='random'`" in texts
    followed = lumos.train("demo:2000", split="random")
    assert followed.metrics["test_accuracy"] > planetoid.metrics["test_accuracy"] + 0.05
    shown = " ".join(str(planetoid).split())
    for text in planetoid.warnings:
        assert f"Warning: {text}." in shown
        assert f"<b>Warning:</b> {text.split('`')[0]}" in planetoid._repr_html_()


def test_train_warns_once_for_each_text_at_the_line_of_the_caller() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            run = lumos.train("demo:60", encoder_epochs=2, epochs=47)
    assert run.warnings
    assert [str(one.message) for one in caught] == run.warnings
    assert {one.category for one in caught} == {LumosWarning}
    assert {one.filename for one in caught} == {__file__}


def test_enough_labels_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not lumos.train("demo:2000").warnings


def test_the_command_line_prints_no_warning_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert command(["train", "demo:60"]) == 0
    assert "Advice: " in capsys.readouterr().out


@pytest.mark.parametrize(("score", "warned"), [(0.4, True), (0.5, True), (0.51, False)])
def test_a_constant_answer_is_what_a_score_must_exceed(score: float, warned: bool) -> None:
    counts = [[10, 40], [0, 30], [20, 0]]  # 50, 30 and 20 devices
    found = list(no_better_than_majority(score, counts))
    assert found == warned * [
        f"the accuracy of {100 * score:.1f} % is not above that of naming the most frequent class "
        "of the test set each time, 50.0 %"
    ]


@pytest.mark.parametrize(
    ("training", "labelled", "warned"),
    [(140, 2708, True), (140, 1000, False), (700, 10_000, False), (699, 10_000, True)],
)
def test_few_labels_are_few_as_a_share_and_of_each_class(
    training: int, labelled: int, warned: bool
) -> None:
    assert bool(list(few_train(training, labelled, 7))) == warned


def test_advice_to_train_longer_helps() -> None:
    """Advice is followed: twice the epochs give a smaller loss and no worse model."""
    settings: dict[str, Any] = {"profile": "paper", "compare": "ideal", "balancer": "optimal"}
    run = lumos.train("demo:300", epochs=30, floor=False, **settings)
    (advice,) = [text for text in run.warnings if "trains longer" in text]
    epochs = int(advice.split("`epochs=")[1].split("`")[0])
    longer = lumos.train("demo:300", epochs=epochs, floor=False, **settings)
    losses = [[event.loss or 0 for event in one.history] for one in (run, longer)]
    assert losses[1][-1] < 0.95 * losses[0][-1]
    assert longer.metrics["val_accuracy"] >= run.metrics["val_accuracy"]


def test_strict_runs_give_no_advice_on_epochs() -> None:
    """Sums share one budget, so more of them are noisier: `epochs=122` did not help."""
    assert not any("epochs=" in text for text in lumos.train("demo:300", floor=False).warnings)
