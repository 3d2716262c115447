"""However devices are spread: the same trees, releases and ledger, losses equal to 1e-5."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tests.runs.running import findings, heard, losses, run

from lumos import Graph, LumosError
from lumos.runs.run import Run

SETTINGS = {"epochs": 3, "balancer": "mcmc", "iterations": 40}


@pytest.mark.parametrize(
    ("task", "shards"),
    [
        ("classify", 2),
        ("link", 7),
        ("classify", 60),
        pytest.param("link", 60, marks=pytest.mark.long),
    ],
)
def test_the_same_run_in_any_number_of_shards(
    task: str, shards: int, sixty: Graph, ledger_differences
) -> None:
    one, wire = heard(sixty, task=task, **SETTINGS)
    many, heard_of_many = heard(sixty, task=task, shards=shards, **SETTINGS)
    assert np.array_equal(one.trees.keep, many.trees.keep)
    assert ledger_differences(one.trees.ledger, many.trees.ledger) == []
    for topic in ("train/carry", "train/features", "train/ask"):
        assert wire.of(topic) == heard_of_many.of(topic)
    assert len(wire.all_of("train/features")) == one.trees.workload.sum()
    assert ledger_differences(one.ledger, many.ledger) == []
    assert one.cost.per_epoch == many.cost.per_epoch
    assert_allclose(losses(one), losses(many), rtol=1e-5)
    assert_allclose(one.embeddings, many.embeddings, atol=1e-4)
    assert findings(one) == findings(many)


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": float("inf")},
        {"epsilon": float("inf"), "bins": True},
        {"backbone": "gat", "pool": "attention", "dropout": 0.2},
        {"backbone": "sage", "virtual_nodes": False, "dropout": 0.2},
    ],
    ids=["clear", "bins", "gat", "sage"],
)
def test_whatever_the_settings(settings, sixty: Graph, ledger_differences) -> None:
    one, many = (run(sixty, shards=shards, epochs=2, **settings) for shards in (1, 7))
    assert ledger_differences(one.ledger, many.ledger) == []
    assert_allclose(losses(one), losses(many), rtol=1e-5)


def test_the_same_metrics_after_more_epochs(sixty: Graph) -> None:
    def of(shards: int) -> Run:
        return run(sixty, shards=shards, epochs=15, control=True)

    one, many = of(1), of(2)
    assert_allclose(losses(one), losses(many), rtol=1e-5)
    for first, second in ((one.metrics, many.metrics), (one.control, many.control)):
        assert first is not None
        assert second is not None
        for name, score in first.items():
            if isinstance(score, float):  # probabilities differ as losses do
                assert score == pytest.approx(second[name], abs=1e-5)
            else:
                assert score == second[name]
        for name in ("test_accuracy", "val_accuracy"):
            assert first[name] == second[name]


def test_several_shards_leave_torch_as_it_was(sixty: Graph) -> None:
    """Programs wait for each other: what one switches off must be on again when it waits."""
    run(sixty, shards=2, task="link", epochs=1)
    assert torch.is_grad_enabled()


def test_shards_beyond_the_devices_are_refused(sixty: Graph) -> None:
    with pytest.raises(LumosError, match="`shards` must be between 1 and"):
        run(sixty, shards=61)
