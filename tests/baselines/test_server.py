"""What a server computes: KProp, Drop and the layers against dense algebra and PyG."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from torch import Tensor

from lumos.baselines.network import (
    Arcs,
    Drop,
    Gat,
    Gcn,
    Layer,
    Network,
    Sage,
    Smoothed,
    attend,
    non_neighbours_to,
    project,
    transition,
)
from lumos.baselines.systems import BaselineSettings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

torch.set_num_threads(1)

DEVICES = 30


def some_pairs(seed: int = 0, devices: int = DEVICES, isolated: int = 3) -> np.ndarray:
    ends = np.random.default_rng(seed).integers(0, devices - isolated, (70, 2))
    pairs = np.unique(np.sort(ends, axis=1), axis=0)
    return pairs[pairs[:, 0] < pairs[:, 1]]


PAIRS = some_pairs()
ARCS = Arcs.of(PAIRS, DEVICES)
BOTH = torch.from_numpy(np.concatenate([PAIRS, PAIRS[:, ::-1]]).T.copy())


def dense_adjacency() -> np.ndarray:
    adjacency = np.zeros((DEVICES, DEVICES))
    adjacency[PAIRS[:, 0], PAIRS[:, 1]] = adjacency[PAIRS[:, 1], PAIRS[:, 0]] = 1
    return adjacency


def dense_step() -> np.ndarray:
    """D^-½ A D^-½, with 0 for devices without neighbours."""
    adjacency = dense_adjacency()
    degree = adjacency.sum(axis=1)
    root = np.divide(1, np.sqrt(degree), out=np.zeros(DEVICES), where=degree > 0)
    return root[:, None] * adjacency * root


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("sparse", [False, True])
def test_kprop_is_a_power_of_the_normalised_adjacency(steps: int, sparse: bool) -> None:
    rows = (np.random.default_rng(1).random((DEVICES, 300)) < 0.1).astype(np.float32)
    matrix = csr_array(rows) if sparse else rows
    smoothed = Smoothed(matrix=matrix, plus=0.5, arcs=ARCS, steps=steps)
    table = torch.randn(300, 4, generator=torch.manual_seed(0), requires_grad=True)
    found = project(smoothed, table)
    dense = np.linalg.matrix_power(dense_step(), steps) @ (rows + 0.5)
    assert_allclose(found.detach().numpy(), dense @ table.detach().numpy(), atol=1e-4)
    weights = torch.randn(DEVICES, 4)
    found.backward(weights)
    assert table.grad is not None
    assert_allclose(table.grad.numpy(), dense.T @ weights.numpy(), atol=1e-4)


def test_neighbour_sums_have_the_gradient_of_dense_algebra() -> None:
    rows = torch.randn(DEVICES, 4, generator=torch.manual_seed(0), requires_grad=True)
    weights = torch.randn(DEVICES, 4)
    (gradient,) = torch.autograd.grad((weights * ARCS.sum(rows)).sum(), rows)
    dense = torch.from_numpy(dense_adjacency()).float()
    assert_allclose(gradient.numpy(), (dense.T @ weights).numpy(), atol=1e-5)


def compare(layer: Layer, theirs: torch.nn.Module, names: dict[str, Tensor]) -> None:
    """Forward, and gradients of features and all weights, to 1e-5."""
    torch.manual_seed(5)
    x = torch.randn(DEVICES, 7)
    mine_x, their_x = x.clone().requires_grad_(), x.clone().requires_grad_()
    mine, other = layer(mine_x, ARCS), theirs(their_x, BOTH)
    assert_allclose(mine.detach().numpy(), other.detach().numpy(), atol=1e-5)
    weights = torch.randn_like(mine)
    mine.backward(weights)
    other.backward(weights)
    pairs = [(mine_x, their_x)] + [(getattr(layer, name), their) for name, their in names.items()]
    for ours, their in pairs:
        assert ours.grad is not None
        assert their.grad is not None
        expected = their.grad.reshape(ours.shape) if ours.ndim == 1 else their.grad.squeeze(0)
        expected = expected.T if expected.shape != ours.shape else expected
        assert_allclose(ours.grad.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def copy(layer: Layer, names: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, their in names.items():
            ours = getattr(layer, name)
            ours.normal_(0.0, 0.3, generator=torch.manual_seed(len(name)))
            their.copy_(ours if their.squeeze(0).shape == ours.shape else ours.T)


def test_gcn_is_pygs() -> None:
    layer, theirs = Gcn(7, 5), GCNConv(7, 5)
    names = {"weight": theirs.lin.weight, "bias": theirs.bias}
    copy(layer, names)
    compare(layer, theirs, names)


def test_sage_is_pygs() -> None:
    layer, theirs = Sage(7, 5), SAGEConv(7, 5)
    names = {
        "weight": theirs.lin_l.weight,
        "bias": theirs.lin_l.bias,
        "root": theirs.lin_r.weight,
    }
    copy(layer, names)
    compare(layer, theirs, names)


@pytest.mark.parametrize("heads", [1, 3])
def test_gat_is_pygs(heads: int) -> None:
    layer, theirs = Gat(7, 5, heads), GATConv(7, 5, heads=heads)
    names = {
        "weight": theirs.lin.weight,
        "mine": theirs.att_dst,
        "theirs": theirs.att_src,
        "bias": theirs.bias,
    }
    copy(layer, names)
    compare(layer, theirs, names)


@pytest.mark.parametrize("chunk", [1, 7, 40])
def test_chunks_change_nothing(chunk: int) -> None:
    torch.manual_seed(1)
    inputs = [torch.randn(DEVICES, 2, 3), *(4 * torch.randn(2, DEVICES, 2)).unbind()]
    weights = torch.randn(DEVICES, 2, 3)
    found = []
    for size in (chunk, 10_000):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        out = attend(ARCS, leaves[0], leaves[1], leaves[2], size)
        found.append([out, *torch.autograd.grad((weights * out).sum(), leaves)])
    for one, other in zip(*found, strict=True):
        assert_allclose(one.detach().numpy(), other.detach().numpy(), atol=1e-5)


def test_attention_survives_scores_that_are_far_apart() -> None:
    torch.manual_seed(1)
    values = torch.randn(DEVICES, 1, 3, requires_grad=True)
    mine, theirs = (300 * torch.randn(DEVICES, 1, requires_grad=True) for _ in range(2))
    out = attend(ARCS, values, mine, theirs)
    gradients = torch.autograd.grad(out.sum(), [values, mine, theirs])
    for found in (out, *gradients):
        assert torch.isfinite(found).all()


def test_sampled_arcs_are_right_on_average() -> None:
    """Every sample of 2 of the edges, each with weight |E|/2: their mean is the whole sum."""
    pairs = np.array([[0, 1], [0, 2], [1, 2], [2, 3]])
    rows = torch.randn(4, 3, generator=torch.manual_seed(0))
    degrees = torch.tensor([2.0, 2.0, 3.0, 1.0])
    samples = [[a, b] for a in range(4) for b in range(a + 1, 4)]
    for name in ("sum", "mean", "smooth", "smooth_with_self"):
        whole = getattr(Arcs.of(pairs, 4), name)(rows)
        found = [
            getattr(Arcs.of(pairs[some], 4, degrees=degrees, weight=2.0), name)(rows)
            for some in samples
        ]
        assert_allclose(torch.stack(found).mean(dim=0).numpy(), whole.numpy(), atol=1e-5)


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_the_centralized_network_is_a_plain_pyg_model(backbone: str) -> None:
    """Two layers, ReLU, a head: forward, and one gradient of the first weight, on sparse words."""
    torch.manual_seed(3)
    words = csr_array((np.random.default_rng(0).random((DEVICES, 12)) < 0.3).astype(np.float32))
    settings = BaselineSettings(system="centralized", backbone=backbone, hidden=5, dropout=0)  # type: ignore[arg-type]
    network = Network(settings, 12, 3)
    layers: list[Any] = list(network.layers)
    first, second = layers
    theirs: list[Any]
    if backbone == "gcn":
        theirs = [GCNConv(12, 5), GCNConv(5, 5)]
    else:
        theirs = [GATConv(12, 5, heads=4), GATConv(20, 5, heads=1)]
    for mine, other in zip((first, second), theirs, strict=True):
        with torch.no_grad():
            other.lin.weight.copy_(mine.weight.T)
            other.bias.copy_(mine.bias)
            if backbone == "gat":
                other.att_dst.copy_(mine.mine[None])
                other.att_src.copy_(mine.theirs[None])
    assert network.head is not None
    out = network(words, ARCS)
    dense = torch.from_numpy(words.toarray())
    hidden = torch.relu(theirs[0](dense, BOTH))
    expected = network.head(torch.relu(theirs[1](hidden, BOTH)))
    assert_allclose(out.detach().numpy(), expected.detach().numpy(), atol=1e-5)
    labels = torch.arange(DEVICES) % 3
    (ours,) = torch.autograd.grad(torch.nn.functional.cross_entropy(out, labels), first.weight)
    loss = torch.nn.functional.cross_entropy(expected, labels)
    (plain,) = torch.autograd.grad(loss, theirs[0].lin.weight)
    assert_allclose(ours.numpy(), plain.T.numpy(), atol=1e-5)


def test_drop_is_dense_algebra() -> None:
    classes, steps = 3, 2
    generator = np.random.default_rng(8)
    said = generator.integers(0, classes, DEVICES)
    said[generator.random(DEVICES) < 0.3] = -1
    train = (said >= 0) & (generator.random(DEVICES) < 0.7)
    table = transition(classes, 1.0)
    drop = Drop(torch.from_numpy(said), torch.from_numpy(train), table, ARCS, steps)
    logits = torch.randn(DEVICES, classes, generator=torch.manual_seed(2), requires_grad=True)

    power = torch.from_numpy(np.linalg.matrix_power(dense_step(), steps)).float()
    spoken = torch.zeros(DEVICES, classes)
    for device, label in enumerate(said):
        if label >= 0:
            spoken[device, label] = 1
    seen = power @ spoken
    targets = torch.softmax(seen, dim=1).argmax(dim=1)
    spread = torch.softmax(power @ (torch.softmax(logits, dim=1) @ table), dim=1)
    here = [d for d in range(DEVICES) if train[d] and seen[d].sum() > 0]
    assert len(here) < train.sum()  # devices without neighbours have no target
    expected = torch.stack([-spread[d, targets[d]].log() for d in here]).mean()
    loss = drop.loss(logits)
    assert_allclose(loss.item(), expected.item(), rtol=1e-5)
    (one,), (other,) = (torch.autograd.grad(each, logits) for each in (loss, expected))
    assert_allclose(one.numpy(), other.numpy(), atol=1e-6)


def test_drop_without_steps_is_forward_correction() -> None:
    said = torch.arange(DEVICES) % 4
    everyone = torch.ones(DEVICES, dtype=torch.bool)
    logits = torch.randn(DEVICES, 4, generator=torch.manual_seed(2))
    corrected = torch.softmax(logits, dim=1) @ transition(4, 1.0)
    expected = -corrected[torch.arange(DEVICES), said].log().mean()
    drop = Drop(said, everyone, transition(4, 1.0), ARCS, 0)
    assert_allclose(drop.loss(logits).item(), expected.item(), rtol=1e-5)
    clean = Drop(said, everyone, transition(4, math.inf), ARCS, 0)
    plain = torch.nn.functional.cross_entropy(logits, said)
    assert_allclose(clean.loss(logits).item(), plain.item(), rtol=1e-5)


def test_non_neighbours_are_uniform_and_never_edges() -> None:
    pairs = np.array([[0, 1], [0, 2], [1, 3], [2, 4]])
    keys = pairs[:, 0] * 5 + pairs[:, 1]
    drawn = non_neighbours_to(keys, 5, 60_000, np.random.default_rng(0))
    assert len(drawn) == 60_000
    seen, counts = np.unique(drawn[:, 0] * 5 + drawn[:, 1], return_counts=True)
    free = [u * 5 + v for u in range(5) for v in range(u + 1, 5) if u * 5 + v not in keys]
    assert_array_equal(seen, free)
    assert (np.abs(counts - 10_000) < 5 * math.sqrt(60_000 * (1 / 6) * (5 / 6))).all()
