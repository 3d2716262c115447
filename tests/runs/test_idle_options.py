"""Options that do not change a run: with each of them every number is the same, bit by bit.

A run is its graph, its seed and the settings that say what is learnt and how. What is trained
beside it, where it is written, who watches, and on how many processes and shards it runs is not
part of it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.runs.running import findings
from tests.runs.test_resume import Pulled, until, without_time

from lumos import Graph, train
from lumos.baselines import BASELINES, baseline
from lumos.cli.main import app
from lumos.cli.main import run as command
from lumos.cli.options import given
from lumos.exchange import recording
from lumos.runs.run import Run
from lumos.runs.train import Hosting, graph_problem
from lumos.training.config import TRAIN_OPTIONS, Config

OF_PAPER = {"profile": "paper", "balancer": "mcmc", "iterations": 12, "dropout": 0.1}
RUNS: dict[str, dict[str, Any]] = {
    "paper classify": {**OF_PAPER, "task": "classify", "epochs": 4, "compare": "ideal"},
    "paper link": {**OF_PAPER, "task": "link", "epochs": 4, "compare": "ideal"},
    "strict classify": {"task": "classify", "encoder_epochs": 2},
    "strict link": {"task": "link"},
}

Differences = Callable[..., list[str]]
Variant = Callable[[Callable[..., Run], Path], Run]


@pytest.fixture(scope="module", params=RUNS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def plain(kind: str, sixty: Graph) -> Run:
    """The run with nothing beside it."""
    return train(sixty, **RUNS[kind], floor=False)


def resumed(of: Callable[..., Run], out: Path) -> Run:
    """Interrupted after its second epoch, and resumed."""
    with pytest.raises(Pulled):
        of(out=out, checkpoint_every=1, on_epoch=until("run", 3))
    return of(out=out, checkpoint_every=1, resume=True)


def nothing(*_: Any) -> None:
    """A callback."""


def watched(of: Callable[..., Run], out: Path) -> Run:
    """With callbacks, on a tape, in a process whose global generators are elsewhere."""
    np.random.seed(17)  # noqa: NPY002
    torch.manual_seed(17)
    with recording():
        return of(progress=nothing, on_epoch=nothing, transport="recording")


IDLE: dict[str, Variant] = {"checkpoints and resume": resumed, "watched": watched}
"""By option: a run with it, made by a function that takes the options of `train`, and a folder."""


def same_arrays(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert values.dtype == other[name].dtype
        assert values.tobytes() == other[name].tobytes(), name


def same(one: Run, other: Run, differences: Differences) -> None:
    """Weights, outputs, trees, ledgers, scores and the whole history, bit by bit."""
    same_arrays(one.model.weights, other.model.weights)
    same_arrays(one.model.kept, other.model.kept)
    for name in ("logits", "embeddings"):
        left, right = getattr(one.model, name), getattr(other.model, name)
        assert (left is None) == (right is None)
        assert left is None or left.tobytes() == right.tobytes(), name
    assert np.array_equal(one.trees.keep, other.trees.keep)
    assert differences(one.trees.ledger, other.trees.ledger) == []
    assert differences(one.ledger, other.ledger) == []
    assert one.ledger.totals() == other.ledger.totals()
    assert without_time(one.history) == without_time(other.history)
    assert one.metrics == other.metrics
    # Warnings that compare variants are of what is trained beside the run.
    assert {**findings(one), "warnings": []} == {**findings(other), "warnings": []}
    assert one.guarantees == other.guarantees


@pytest.mark.parametrize("option", IDLE)
def test_the_run_is_the_same(
    option: str,
    kind: str,
    plain: Run,
    sixty: Graph,
    tmp_path: Path,
    ledger_differences: Differences,
) -> None:
    def of(**options: Any) -> Run:
        return train(sixty, **{**RUNS[kind], "floor": False, **options})

    other = IDLE[option](of, tmp_path / "run")
    same(plain, other, ledger_differences)


def test_variants_do_not_depend_on_each_other(
    kind: str, plain: Run, sixty: Graph, ledger_differences: Differences
) -> None:
    """The run, own features and the control are the same, whichever of them are trained."""
    both, own, control = (
        train(sixty, **RUNS[kind], floor=floor, control=control)
        for floor, control in ((True, True), (True, False), (False, True))
    )
    for run in (both, own, control):
        same(plain, run, ledger_differences)
    assert both.own is not None
    assert both.own == own.own
    assert both.control is not None
    assert both.control == control.control


def test_processes_of_secret_comparisons(sixty: Graph, ledger_differences: Differences) -> None:
    """How many there are, and whether comparisons are secret at all."""
    settings = RUNS["paper classify"] | {"floor": False}
    ideal = train(sixty, **settings)
    one, two = (train(sixty, **settings | {"compare": "secure"}, workers=n) for n in (1, 2))
    same(one, two, ledger_differences)
    same_arrays(ideal.model.weights, one.model.weights)
    assert np.array_equal(ideal.trees.keep, one.trees.keep)
    assert ideal.metrics == one.metrics
    assert ideal.trees.ledger.messages == one.trees.ledger.messages


@pytest.mark.parametrize("shards", [2, 7])
def test_shards(
    shards: int, kind: str, plain: Run, sixty: Graph, ledger_differences: Differences
) -> None:
    """The same randomness, and the strict profile bit by bit: what it sums is rounded before.

    Sums of the paper's profile in the clear are of numbers that are not, added up shard by shard.
    So what depends on them differs by rounding; releases do not (`tests/runs/test_shards.py`).
    """
    other = train(sixty, **RUNS[kind], floor=False, shards=shards)
    if plain.config.train.profile == "strict":
        same(plain, other, ledger_differences)
        return
    assert np.array_equal(plain.trees.keep, other.trees.keep)
    assert ledger_differences(plain.trees.ledger, other.trees.ledger) == []
    assert ledger_differences(plain.ledger, other.ledger) == []
    losses = [[event.loss for event in run.history] for run in (plain, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
    ("system", "task"),
    [
        (system, task)
        for system in BASELINES.names()
        for task in ("classify", "link")
        if task == "classify" or not BASELINES[system].without_links
    ],
)
def test_baselines(system: str, task: str, sixty: Graph) -> None:
    one = baseline(sixty, system=system, task=task, epochs=3)
    np.random.seed(17)  # noqa: NPY002
    torch.manual_seed(17)
    two = baseline(sixty, system=system, task=task, epochs=3, progress=nothing)
    assert one.outputs.tobytes() == two.outputs.tobytes()
    assert one.history == two.history
    assert one.metrics == two.metrics


OTHERWISE = (
    "seconds",
    "seconds_per_epoch",
    "peak_rss_mb",
    "ranks",
    "settings",
    "exposed",
    "warnings",
)
"""What times and memory are, what was asked for, and texts that tell of the control."""


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With a folder and a control, `--json` prints the same run."""
    basis = ["train", "demo:60", "--task", "link", "--json"]
    printed = []
    for more in ([], ["--control", "--out", str(tmp_path / "run")]):
        assert command([*basis, *more]) == 0
        summary = json.loads(capsys.readouterr().out)
        printed.append(
            {
                name: value
                for name, value in summary.items()
                if name not in OTHERWISE and not name.startswith("control")
            }
        )
    assert printed[0] == printed[1]


def same_values(value: Any) -> list[Any]:
    """A value as callers may write it."""
    forms = [value]
    if isinstance(value, int | float):
        forms.append(np.array(value)[()])
    if isinstance(value, float) and value.is_integer():
        forms.append(int(value))
    return forms


def typed(name: str, value: Any) -> list[str]:
    """A setting as people type it: 3.0 is 3."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    return [f"--{option}", f"{value:g}" if isinstance(value, float) else str(value)]


@pytest.mark.parametrize("task", ["classify", "link"])
@pytest.mark.parametrize("profile", ["strict", "paper"])
def test_the_default_of_a_setting_is_the_same_run_as_no_setting(
    profile: str, task: str, sixty: Graph
) -> None:
    """The finding: `--label-epsilon 3`, its default, was another draw than the default."""

    def drawn(**given: Any) -> tuple[Config, str]:
        config = Config.asked(profile=profile, task=task, **given).for_devices(sixty.devices)
        problem = graph_problem(sixty, config, None, 0, Hosting())
        # As it is hashed: 3, 3.0 and a number of NumPy are equal, and written differently.
        name = config.profile.randomness(problem, config, control=False)
        return config, f"{name} {sorted(config.flat().items(), key=str)}"

    usual = drawn()
    tried = 0
    for name, value in usual[0].flat().items():
        if value is None or name in ("profile", "task"):
            continue
        if usual[0].profile.ignores(name, usual[0]):
            continue
        for same in same_values(value):
            assert drawn(**{name: same}) == usual, name
        if name in TRAIN_OPTIONS:
            _, bound, _ = app.parse_args(["train", "demo:60", *typed(name, value)])
            assert drawn(**given(bound.arguments["options"])) == usual, name
        tried += 1
    assert tried > 12
