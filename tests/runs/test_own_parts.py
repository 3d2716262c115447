"""Runs with layers, models and optimizers of one's own: shards, checkpoints, folders, commands."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tests.narrow import present
from tests.own_parts import Centred, MyConv, MyModel, gin, pyg
from tests.runs.running import losses, run
from tests.runs.test_resume import Pulled, same, until

import lumos
from lumos import Config, Graph, InputError, UsageError, load_run
from lumos.cli import main as command
from lumos.device.randomness import PublicRandomness
from lumos.paper.trainer import FullModel
from lumos.runs.predict import NewDevice, predict_new_devices

GCNConv, SAGEConv = pyg.GCNConv, pyg.SAGEConv
SGD = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)


@pytest.mark.parametrize(
    "part", [{"backbone": MyConv, "projection": 8}, {"model": MyModel}], ids=["layer", "model"]
)
def test_results_do_not_depend_on_shards(part: dict[str, Any], sixty: Graph) -> None:
    one, many = run(sixty, **part), run(sixty, shards=7, **part)
    assert_allclose(losses(many), losses(one), rtol=1e-5)
    assert_allclose(many.embeddings, one.embeddings, rtol=1e-3, atol=1e-4)


def test_gcn_given_as_a_class_trains_as_the_fast_layer(
    sixty: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = run(sixty, epochs=5, dropout=0.0)
    start = FullModel(fast.config.model, sixty.feature_count, len(fast.classes))
    start.initialise(PublicRandomness(0).generator("weights"))

    def equal_start(model: FullModel, _: Any) -> None:
        weights = [part.T if part.ndim == 2 else part for part in start.network.parameters()]
        weights = [
            weights[1],
            weights[0],
            weights[3],
            weights[2],
            *present(start.head).parameters(),
        ]
        with torch.no_grad():
            for mine, other in zip(model.parameters(), weights, strict=True):
                mine.copy_(other)

    monkeypatch.setattr(FullModel, "initialise", equal_start)
    own = run(sixty, backbone=GCNConv, epochs=5, dropout=0.0)
    assert_allclose(losses(own), losses(fast), rtol=1e-5)
    assert_allclose(own.embeddings, fast.embeddings, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("epoch", [2, 5])
def test_a_killed_run_with_an_optimizer_equals_the_undisturbed_one(
    epoch: int, sixty: Graph, tmp_path: Path, ledger_differences: Any
) -> None:
    settings: dict[str, Any] = {
        "backbone": MyConv,
        "optimizer": functools.partial(torch.optim.NAdam, lr=0.02),
        "epochs": 6,
        "checkpoint_every": 2,
    }
    whole = run(sixty, out=tmp_path / "whole", **settings)
    with pytest.raises(Pulled):
        run(sixty, out=tmp_path / "run", on_epoch=until("run", epoch), **settings)
    resumed = run(sixty, out=tmp_path / "run", resume=True, **settings)
    same(whole, resumed, ledger_differences)


def test_another_optimizer_cannot_go_on(sixty: Graph, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 4, "checkpoint_every": 1, "out": tmp_path}
    with pytest.raises(Pulled):
        run(sixty, on_epoch=until("run", 3), optimizer=SGD, **settings)
    other = functools.partial(torch.optim.SGD, lr=0.2, momentum=0.9)
    with pytest.raises(UsageError, match=r"optimizer.*SGD\(lr=0.1, momentum=0.9\)"):
        run(sixty, resume=True, optimizer=other, **settings)
    hidden: Any = lambda params: torch.optim.SGD(params, lr=0.1)  # noqa: E731
    with pytest.raises(UsageError, match="optimizer"):
        run(sixty, resume=True, optimizer=hidden, **settings)
    with pytest.raises(UsageError, match="`learning_rate` has no effect with `optimizer`"):
        run(sixty, optimizer=SGD, learning_rate=0.1)


def new_device(graph: Graph) -> list[NewDevice]:
    features = np.zeros(graph.feature_count, np.float32)
    features[::7] = 1
    return [NewDevice(id="new", features=features, neighbours=("0", "5"))]


def test_a_run_is_loaded_with_its_part_and_predicts_new_devices(
    sixty: Graph, tmp_path: Path
) -> None:
    """Buffers such as ε of GIN come from the folder, not from the factory that is given again."""
    trained = run(sixty, backbone=gin, out=tmp_path, optimizer=SGD)
    expected, _ = predict_new_devices(trained, new_device(sixty))
    assert "tests.own_parts:gin" in (tmp_path / "run.json").read_text()
    plain = load_run(tmp_path, sixty)
    assert_allclose(plain.predict_proba(), trained.predict_proba())
    assert plain.config.model.network == trained.config.model.network
    with pytest.raises(UsageError, match=r"only the recorded name.*load_run\(path, backbone=…\)"):
        predict_new_devices(plain, new_device(sixty))

    def changed(before: int, after: int) -> Any:
        return gin(before, after, eps=0.75)

    changed.__qualname__ = "gin"
    for part in (gin, changed):
        again = load_run(tmp_path, sixty, backbone=part)
        found, _ = predict_new_devices(again, new_device(sixty))
        assert_allclose(found, expected, rtol=1e-6)


def test_a_part_that_does_not_match_is_refused_in_one_line(sixty: Graph, tmp_path: Path) -> None:
    run(sixty, backbone=SAGEConv, out=tmp_path / "sage")
    run(sixty, out=tmp_path / "gcn")
    wider: Any = lambda i, o: SAGEConv(i, o, project=True)  # noqa: E731
    wider.__qualname__ = "SAGEConv"
    for folder, part, words in (
        ("sage", {"backbone": GCNConv}, r"was trained with .*SAGEConv, not .*GCNConv"),
        ("sage", {"model": MyModel}, r"was trained with no `model` of its own, not .*MyModel"),
        ("sage", {"backbone": wider}, r"lin\.\w+ is missing in the run, \[\d+"),
        ("gcn", {"backbone": GCNConv}, r"was trained with `backbone` gcn, not .*GCNConv"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words) as error:
            load_run(tmp_path / folder, sixty, **part)
        assert "\n" not in str(error.value)


def test_a_refused_part_writes_nothing(sixty: Graph, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mixes devices"):
        run(sixty, backbone=Centred, out=tmp_path / "run")
    with pytest.raises(UsageError, match="LBFGS: cannot step"):
        run(sixty, optimizer=torch.optim.LBFGS, out=tmp_path / "run")
    with pytest.raises(UsageError, match="`layers` has no effect with `model`"):
        run(sixty, model=MyModel, layers=3)
    with pytest.raises(UsageError, match="`model` has no effect with `profile='strict'`"):
        lumos.train(sixty, model=MyModel)
    with pytest.raises(UsageError, match="`backbone` must be a name, a class or a factory"):
        run(sixty, backbone=3)
    assert not (tmp_path / "run").exists()


def test_texts_and_pages_name_the_part(sixty: Graph, tmp_path: Path) -> None:
    result = run(sixty, model=MyModel, out=tmp_path / "run", optimizer=SGD)
    name = "tests.own_parts:MyModel"
    assert result.summary()["backbone"] == name
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["model"] == name
    page = result.report(tmp_path / "page.html").read_text()
    assert name in page
    assert "SGD(lr=0.1, momentum=0.9)" in page
    again = load_run(tmp_path / "run", sixty).report(tmp_path / "again.html").read_text()
    assert name in again


def test_the_command_line_imports_a_layer(capsys: pytest.CaptureFixture[str]) -> None:
    words = "train demo:60 --profile paper --compare ideal --epochs 2 --no-floor --json"
    place = "torch_geometric.nn:SAGEConv"
    assert command.run([*words.split(), "--backbone", place]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["backbone"] == "torch_geometric.nn.conv.sage_conv:SAGEConv"
    assert command.run([*words.split(), "--backbone", "torch_geometric.nn:NoConv"]) == 2
    assert "cannot be imported" in capsys.readouterr().err
    assert Config.asked(profile="paper", backbone=place).model.backbone is SAGEConv
