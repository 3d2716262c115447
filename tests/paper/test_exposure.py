"""Profiles: which doors are open, and what a run says it exposed."""

from typing import Any

import pytest
from tests.runs.running import heard, listening, run

from lumos import Graph
from lumos.errors import DoorClosed
from lumos.exchange import Door
from lumos.paper.profile import PaperProfile, settings_of
from lumos.training.config import Config
from lumos.training.profile import PROFILES


@pytest.fixture
def shut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's programs behind the doors of the strict profile."""
    doors = PROFILES["strict"].doors
    monkeypatch.setattr(PaperProfile, "doors", doors)


@pytest.mark.usefixtures("shut")
@pytest.mark.parametrize("task", ["classify", "link"])
def test_strict_keeps_the_door_open_shut_and_says_why(task: str, sixty: Graph) -> None:
    with pytest.raises(DoorClosed) as refused:
        run(sixty, task=task)
    sentences = str(refused.value)
    assert "'train/leaf' leaves through the door 'open'" in sentences
    assert "a function of the neighbour's raw features" in sentences


@pytest.mark.usefixtures("shut")
def test_behind_strict_doors_features_without_noise_are_refused(sixty: Graph) -> None:
    with pytest.raises(DoorClosed, match=r"train/features-in-the-clear.* without noise"):
        run(sixty, epsilon=float("inf"))


@pytest.mark.usefixtures("shut")
def test_nothing_open_passes_behind_strict_doors_before_it_is_refused(sixty: Graph) -> None:
    with listening() as wire, pytest.raises(DoorClosed):
        run(sixty)
    assert "train/leaf" not in wire.topics()
    assert "train/features" in wire.topics()


@pytest.mark.parametrize("task", ["classify", "link"])
def test_the_paper_profile_says_what_it_exposed(task: str, sixty: Graph) -> None:
    result, wire = heard(sixty, task=task)
    opened = [line for line in result.ledger.topics.values() if line.door == Door.OPEN]
    passed = sum(
        len(wire.all_of(f"train/{name}"))
        for name in ("leaf", "leaf-gradient", "embedding", "embedding-gradient")
    )
    assert passed == sum(line.messages for line in opened) > 0
    sentences = result.model.exposed
    assert f"door `open`: {passed:,} messages" in sentences
    assert ("non-neighbours" in sentences) == (task == "link")
    assert ("label" in sentences) == (task == "classify")
    assert "ε = 2 towards each receiver" in sentences
    assert f"up to {result.ledger.epsilon_collusion:g} if a device's receivers collude" in sentences
    assert "\n" not in sentences
    assert result.summary()["exposed"] == sentences


def test_profiles_differ_in_the_door_open_alone() -> None:
    paper, strict = PROFILES["paper"], PROFILES["strict"]
    assert paper.doors - strict.doors == {Door.OPEN}
    assert Config.of(profile="paper").trees.balancer == "mcmc"
    assert Config.of(profile="strict").trees.balancer == "none"
    assert Config.of(profile="strict", balancer="greedy").trees.balancer == "greedy"


def test_defaults_of_the_paper_profile_are_the_papers() -> None:
    config = Config.of(profile="paper")
    train = config.train
    assert (train.epochs, train.learning_rate, train.weight_decay) == (300, 0.01, 0.0)
    paper = settings_of(config)
    assert (train.profile, paper.virtual_nodes, paper.epsilon) == ("paper", True, 2.0)
    assert config.model.activate_last
    assert Config.of(**config.flat()) == config


def paper(**settings: Any) -> Config:
    return Config.of(profile="paper", **settings)


def test_what_departs_from_the_paper_is_named() -> None:
    literal = paper(recovery="literal", select="last")
    assert literal.improvements() == []
    link = paper(task="link", recovery="literal", select="last")
    assert link.improvements() == ["embeddings are not cut off at 0 (`activate_last`)"]
    paper_link = paper(task="link", recovery="literal", select="last", activate_last=True)
    assert paper_link.improvements() == []
    every = paper(weight_decay=0.01)
    assert len(every.improvements()) == 3
    assert "weight decay 0.01" in every.improvements()
