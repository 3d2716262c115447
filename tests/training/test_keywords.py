"""One typed call: keywords of `lumos.train` are those of the dataclasses; others are refused."""

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import nbformat
import networkx as nx
import numpy as np
import pytest
import torch
from mypy import api

import lumos
from lumos import Config, InputError, UsageError
from lumos.graph.io import ReadKeywords, ReadOptions
from lumos.graph.io.networkx import from_networkx
from lumos.training.config import COMMON, RunSettings, TrainKeywords, settings_help
from lumos.training.profile import PROFILES

Data: Any = pytest.importorskip("torch_geometric").data.Data
ROOT = Path(__file__).parents[2]
QUICK: dict[str, Any] = {"encoder_epochs": 2, "epochs": 47, "floor": False}
GROUPS = [*COMMON.values(), *(PROFILES[name].settings for name in PROFILES.built_in())]


def kinds(hint: Any) -> set[Any]:
    """The types that a hint allows; the words of a literal are one."""
    return set(get_args(hint)) if type(None) in get_args(hint) or Path in get_args(hint) else {hint}


def test_names_and_types_are_those_of_the_dataclasses() -> None:
    wanted = {name: hint for group in GROUPS for name, hint in get_type_hints(group).items()}
    typed = get_type_hints(RunSettings)
    assert typed.keys() == {field.name for group in GROUPS for field in dataclasses.fields(group)}
    for name, hint in typed.items():
        text = {str} if Path in kinds(wanted[name]) else set()
        assert kinds(hint) == kinds(wanted[name]) | text, name


def test_names_of_reading_are_those_of_its_dataclass_and_of_networkx() -> None:
    wanted, typed = get_type_hints(ReadOptions), get_type_hints(ReadKeywords)
    networkx = {"features", "labels"}
    assert typed.keys() == wanted.keys() | networkx
    assert networkx <= inspect.signature(from_networkx).parameters.keys()
    assert not get_type_hints(RunSettings).keys() & typed.keys()
    own = inspect.signature(lumos.train).parameters.keys()
    assert not get_type_hints(TrainKeywords).keys() & own
    for name, hint in wanted.items():
        assert {hint, *get_args(hint)} & {typed[name], *get_args(typed[name])}, name


def test_help_lists_every_setting_with_its_default() -> None:
    listed = lumos.train.__doc__ or ""
    assert listed.endswith(settings_help())
    for group in (*GROUPS, ReadOptions):
        for field in dataclasses.fields(group):
            assert f"        {field.name} (default " in listed
    assert "        label_epsilon (default 3.0): ε of a device's label." in listed
    assert "        epochs (default 300 for paper; 61 for strict (7 for link)): " in listed
    assert max(map(len, listed.splitlines())) <= 100


def test_a_config_without_arguments_has_all_defaults() -> None:
    assert lumos.Config() == Config.of()
    with pytest.raises(UsageError, match="`profile_settings` are not those of `profile='paper'`"):
        Config(train=dataclasses.replace(Config().train, profile="paper"))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"seed": "a"}, "^`seed` must be a whole number, got 'a'$"),
        ({"seed": 1.5}, "^`seed` must be a whole number, got 1.5$"),
        ({"seed": True}, "^`seed` must be a whole number, got True$"),
        ({"shards": 2.0}, "^`shards` must be a whole number, got 2.0$"),
        ({"epochs": True}, "^`epochs` must be a whole number, got True$"),
        ({"epochs": 10.0}, "^`epochs` must be a whole number, got 10.0$"),
        ({"epochs": "9"}, "^`epochs` must be a whole number, got '9'$"),
        ({"learning_rate": "fast"}, "^`learning_rate` must be a number, got 'fast'$"),
        ({"label_epsilon": None}, "^`label_epsilon` must be a number, got None$"),
        ({"control": 1}, "^`control` must be True or False, got 1$"),
        ({"profile": 3}, "^`profile` must be text, got 3$"),
        ({"account": 3}, "^`account` must be a path or None, got 3$"),
        ({"task": 3}, "^`task` must be one of classify, link, got 3$"),
        ({"epoch": 3}, r"^there is no setting 'epoch'; did you mean `epochs`\?$"),
        ({"learning_rat": 1}, r"^there is no setting 'learning_rat'; did you mean `learning_rate`"),
        ({"lable_column": 1}, r"did you mean `label_column`\?$"),
        ({"xyz": 3}, r"^there is no setting 'xyz'; `help\(lumos.train\)` lists all$"),
        ({"weights": "dropp"}, "weights must be one of refuse, drop"),
        ({"labels": "z"}, "`labels` names attributes of a NetworkX graph only; use `label_column`"),
        ({"features": "z"}, "`features` names attributes of a NetworkX graph only; leave it out"),
    ],
    ids=str,
)
def test_wrong_names_and_types_are_refused_in_one_line(wrong: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match) as refused:
        lumos.train("demo:60", **wrong)
    assert len(str(refused.value)) < 120


def test_numbers_of_numpy_are_numbers() -> None:
    run = lumos.train("demo:60", seed=np.int64(3), label_epsilon=np.float32(2), **QUICK)  # type: ignore[arg-type]
    assert run.about.seed == 3
    assert type(run.config.flat()["label_epsilon"]) is float
    for call in (lumos.balance, lumos.baseline):
        with pytest.raises(UsageError, match="`seed` must be a whole number"):
            call("demo:60", seed="a")  # type: ignore[arg-type]


def arcs(**more: Any) -> Any:
    """A PyG graph with labels 0 and 1, and what else is given."""
    demo = lumos.load("demo:60").to_pyg()
    data = Data(x=demo.x.to_dense(), y=(demo.y > 2).long(), edge_index=demo.edge_index)
    for name, value in more.items():
        data[name] = value
    return data


def one_way() -> Any:
    data = arcs()
    data.edge_index = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    return data


def club() -> Any:
    data = arcs()
    graph = nx.Graph(data.edge_index.T.tolist())
    for node in range(60):
        graph.add_node(node, words=data.x[node].tolist(), team=f"team {int(data.y[node])}")
    return graph


@pytest.mark.parametrize(
    ("graph", "option"),
    [
        (lambda: arcs(edge_attr=torch.ones(408, 1)), {"weights": "drop"}),
        (one_way, {"directed": "symmetrise"}),
        (lambda: arcs(train_mask=torch.ones(60, dtype=torch.bool)), {"masks": "ignore"}),
        (lambda: arcs(y=torch.eye(2)[arcs().y]), {"multilabel": "first"}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_train_takes_the_option_that_its_error_recommends(
    graph: Any, option: dict[str, Any]
) -> None:
    (name, value), *_ = option.items()
    for call in (lumos.train, lumos.baseline):
        with pytest.raises(InputError, match=f"`{name}='{value}'`"):
            call(graph())
    run = lumos.train(graph(), **option, **QUICK)
    assert run.about.source == option
    assert run.data.whole_graph().devices == 60
    assert lumos.baseline(graph(), epochs=2, **option).graph.devices == 60
    with pytest.raises(UsageError, match=f"`{name}` has no effect with a lumos.Graph"):
        lumos.train(run.data.whole_graph(), **option)


def test_attributes_of_a_networkx_graph_are_named_in_the_call() -> None:
    run = lumos.train(club(), features="words", labels="team", **QUICK)
    assert run.class_names == ["team 0", "team 1"]
    assert lumos.balance(club(), features="words", labels="team", seed=3).graph.class_count == 2


def test_a_config_goes_with_options_of_reading(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("source,target,weight\na,b,3\nb,c,1\n")
    with pytest.raises(UsageError, match="give a Config or single settings, not both"):
        lumos.train(tmp_path / "g.csv", Config(), weights="drop", epochs=3)
    with pytest.raises(InputError, match="no features"):
        lumos.train(tmp_path / "g.csv", Config(), weights="drop")


def test_mypy_accepts_the_notebook_and_rejects_a_misspelt_setting(tmp_path: Path) -> None:
    """In one run of mypy, strict, with the settings of the repository for missing stubs."""
    notebook = nbformat.read(ROOT / "examples" / "first_steps.ipynb", as_version=4)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    (tmp_path / "first_hour.py").write_text("\n".join(code) + "\n")
    (tmp_path / "misspelt.py").write_text(
        "import lumos\n\n"
        'lumos.train("demo", label_epsilon=2.0, epochs=3, weights="drop", task="link")\n'
        'lumos.train("demo", label_epsilom=2.0)\n'
        'lumos.train("demo", epochs="3")\n'
        'lumos.train("demo", task="clasify")\n'
        'lumos.train("demo", weights="dropp")\n'
        "lumos.Config.of(epoch=3)\n"
    )
    said, problems, _ = api.run(
        [
            *("--config-file", str(ROOT / "pyproject.toml"), "--strict"),
            *("--cache-dir", str(ROOT / ".mypy_cache"), "--output", "json"),
            *(str(tmp_path / name) for name in ("first_hour.py", "misspelt.py")),
        ]
    )
    assert not problems
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    errors = {(Path(one["file"]).name, one["line"]) for one in found if one["severity"] == "error"}
    assert errors == {("misspelt.py", line) for line in (4, 5, 6, 7, 8)}, said
