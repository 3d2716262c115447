"""Layers, models and optimizers of one's own: equal to the fast layers, devices kept apart."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.own_parts import Centred, MyConv, MyModel, pyg
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from lumos import Forest, UsageError
from lumos.device.randomness import PrivateRandomness, PublicRandomness, simulated_secrets
from lumos.model import ModelSettings
from lumos.model.custom import TorchOptimizer
from lumos.model.network import Leaves, TreeNetwork, check_network, device_gradients
from lumos.model.tree_tensors import Trees
from lumos.training.trainer import Adam

FEATURES = 6


def gat(before: int, after: int, drop: float = 0.4) -> Any:
    return pyg.GATConv(before, after, dropout=drop)


def randomness(ids: np.ndarray) -> PrivateRandomness:
    return PrivateRandomness(simulated_secrets(0, ids))


def inputs(forest: Forest) -> tuple[Tensor, Tensor]:
    rows = torch.from_numpy(np.random.default_rng(3).random((len(forest.devices), FEATURES)))
    own = rows.to(torch.float32)
    return own, own[torch.from_numpy(forest.neighbour)].contiguous()


def gcn_of(fast: TreeNetwork) -> TreeNetwork:
    """The same network by PyG's GCNConv or GATConv, with the same weights."""
    name, wide = fast.settings.backbone, fast.widths[0]

    def factory(before: int, after: int) -> Any:
        if name == "gcn":
            return pyg.GCNConv(before, after)
        heads = fast.settings.heads if after == wide else 1
        return pyg.GATConv(before, after // heads, heads=heads)

    settings = ModelSettings(
        backbone=factory, layers=fast.settings.layers, hidden=wide, output=fast.settings.output
    )
    slow = TreeNetwork(settings, FEATURES)
    with torch.no_grad():
        pair: Any
        for pair in zip(slow.layers, fast.layers, strict=True):
            conv, layer = pair
            conv.lin.weight.copy_(layer.weight.T)
            conv.bias.copy_(layer.bias)
            if name == "gat":
                conv.att_src.copy_(layer.source[None])
                conv.att_dst.copy_(layer.target[None])
    return slow


@pytest.mark.parametrize("virtual_nodes", [True, False])
@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_pyg_layers_given_as_factories_equal_the_fast_ones(
    name: str,
    virtual_nodes: bool,
    random_forest: Callable[..., Forest],
    network_of: Callable[..., TreeNetwork],
) -> None:
    forest = random_forest(4, 12, virtual_nodes=virtual_nodes)
    trees, rows = Trees.of(forest), inputs(forest)
    fast = network_of(FEATURES, backbone=name, layers=3, hidden=4, output=8, dropout=0.0)
    slow = gcn_of(fast)
    one, other = fast(trees, *rows), slow(trees, *rows)
    assert_close(other.own, one.own, rtol=1e-5, atol=1e-5)
    assert_close(other.neighbour, one.neighbour, rtol=1e-5, atol=1e-5)
    back = [torch.randn(part.shape) for part in one]
    torch.autograd.backward([*one], back)
    torch.autograd.backward([*other], back)
    pair: Any
    for pair in zip(slow.layers, fast.layers, strict=True):
        conv, layer = pair
        assert_close(conv.lin.weight.grad, layer.weight.grad.T, rtol=1e-4, atol=1e-4)
        assert_close(conv.bias.grad, layer.bias.grad, rtol=1e-4, atol=1e-4)


OWN: dict[str, dict[str, Any]] = {
    "dropout between layers": {"backbone": pyg.SAGEConv, "dropout": 0.3},
    "dropout of nodes": {"backbone": MyConv, "dropout": 0.2},
    "dropout of edges": {"backbone": gat, "dropout": 0.0},
    "model": {"model": MyModel},
    "model by PyG": {"model": lambda i, o: pyg.GraphSAGE(i, 8, 2, o, dropout=0.5)},
    "projection": {"backbone": MyConv, "projection": 5},
}


@pytest.mark.parametrize("virtual_nodes", [True, False])
@pytest.mark.parametrize("settings", OWN.values(), ids=OWN)
def test_what_falls_and_each_gradient_depend_on_the_device_alone(
    settings: dict[str, Any], virtual_nodes: bool, random_forest: Callable[..., Forest]
) -> None:
    """Training leaves of all trees at once equal those of each tree in a shard of one device, and
    gradients of single devices add up."""
    forest = random_forest(5, 11, virtual_nodes=virtual_nodes)
    trees, (own, neighbour) = Trees.of(forest), inputs(forest)
    network = TreeNetwork(ModelSettings(**settings), FEATURES)
    network.initialise(PublicRandomness(0).generator("weights"))
    drops = network.drops(trees, randomness(np.arange(11)), 7)
    leaves = network(trees, own, neighbour, drops)
    for number, piece in enumerate(trees.single):
        alone = network.drops(piece.trees, randomness(np.array([number])), 7)
        found = network(piece.trees, own[piece.devices], neighbour[piece.branches], alone)
        assert_close(found.own, leaves.own[trees.own_device == number], rtol=1e-5, atol=1e-5)
        assert_close(found.neighbour, leaves.neighbour[piece.branches], rtol=1e-5, atol=1e-5)
    other = network(trees, own, neighbour, network.drops(trees, randomness(np.arange(11)), 8))
    assert not torch.allclose(other.own, leaves.own)  # every epoch has randomness of its own
    calm = network(trees, own, neighbour, None)
    assert not torch.allclose(calm.own, leaves.own)

    back = Leaves(*(torch.randn(rows.shape) for rows in leaves))
    each = list(device_gradients(network, trees, own, neighbour, drops, back))
    weights = list(network.parameters())
    fused = torch.autograd.grad([*leaves], weights, [*back], materialize_grads=True)
    whole = torch.cat([part.flatten() for part in fused])
    scale = float(whole.abs().max())
    assert_close(torch.stack(each).sum(dim=0) / scale, whole / scale, rtol=1e-5, atol=1e-5)


def test_dropout_that_cannot_be_attributed_is_drawn_tree_by_tree() -> None:
    """Six nodes and six edges: rows could be either, so trees run one by one, with equal draws."""
    forest = Forest(devices=np.arange(3), owner=np.array([1]), neighbour=np.array([0]))
    trees, (own, neighbour) = Trees.of(forest), inputs(forest)
    assert len(trees.graph.batch) == trees.graph.edge_index.shape[1] == 6
    network = TreeNetwork(ModelSettings(backbone=MyConv), FEATURES)
    network.initialise(PublicRandomness(0).generator("weights"))
    leaves = network(trees, own, neighbour, network.drops(trees, randomness(np.arange(3)), 0))
    for number, piece in enumerate(trees.single):
        alone = network.drops(piece.trees, randomness(np.array([number])), 0)
        found = network(piece.trees, own[piece.devices], neighbour[piece.branches], alone)
        assert_close(found.own, leaves.own[trees.own_device == number])


def test_dropout_inside_has_its_chance_and_factor(random_forest: Callable[..., Forest]) -> None:
    class Drop(torch.nn.Module):
        def __init__(self, *_: int) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            ones = torch.ones(len(x), 400) * self.weight
            return functional.dropout(ones, 0.3, self.training)

    forest = random_forest(1, 40)
    trees = Trees.of(forest)
    network = TreeNetwork(ModelSettings(model=Drop, output=400), FEATURES)
    leaves = network(trees, *inputs(forest), network.drops(trees, randomness(np.arange(40)), 0))
    kept = leaves.neighbour > 0
    assert float(kept.float().mean()) == pytest.approx(0.7, abs=0.01)
    assert_close(leaves.neighbour[kept], torch.full_like(leaves.neighbour[kept], 1 / 0.7))


class Sized(Centred):
    """Mixes only the number of devices."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.lin(x)
        return out / len(x)


class Norms(torch.nn.Module):
    def __init__(self, before: int, after: int, norm: Any, by_tree: bool = False) -> None:
        super().__init__()
        self.lin, self.norm, self.by_tree = torch.nn.Linear(before, after), norm, by_tree
        if hasattr(norm, "weight") and norm.weight is not None:
            torch.nn.init.zeros_(norm.weight)  # hides what it mixes, at first

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        rows = self.lin(x)
        out: Tensor = self.norm(rows, batch) if self.by_tree else self.norm(rows)
        return out


class Noisy(Centred):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.lin(x)
        return out + torch.randn_like(out)


class AlwaysDrops(Centred):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return functional.dropout(self.lin(x), 0.5)  # in evaluation too


MIXING: dict[str, tuple[dict[str, Any], str]] = {
    "BatchNorm": (
        {"model": lambda i, o: Norms(i, o, torch.nn.BatchNorm1d(o))},
        r"its buffer 'model.norm.running_mean' changes in training.*BatchNorm1d",
    ),
    "BatchNorm without statistics": (
        {"model": lambda i, o: Norms(i, o, torch.nn.BatchNorm1d(o, track_running_stats=False))},
        "mixes devices: .*BatchNorm1d",
    ),
    "GraphNorm": ({"model": lambda i, o: Norms(i, o, pyg.GraphNorm(o))}, "mixes .*GraphNorm"),
    "PairNorm": ({"model": lambda i, o: Norms(i, o, pyg.PairNorm())}, "mixes devices"),
    "home-made": ({"backbone": Centred}, "mixes devices"),
    "home-made, a little": ({"backbone": lambda i, o: Centred(i, o, 1e-3)}, "mixes devices"),
    "size": ({"backbone": Sized}, "mixes devices"),
    "noise": ({"backbone": Noisy}, "draws random numbers other than by dropout"),
    "dropout in evaluation": ({"backbone": AlwaysDrops}, "draws random numbers other than by"),
    "instance": ({"backbone": pyg.SAGEConv(6, 16)}, "give the class or a factory"),
    "no module": ({"backbone": lambda i, o: None}, "returned NoneType, not a torch.nn.Module"),
    "fails": ({"backbone": lambda i: None}, "failed for widths 6, 16"),
    "cached": ({"backbone": lambda i, o: pyg.GCNConv(i, o, cached=True)}, "failed on|mixes"),
    "wrong width": ({"backbone": lambda i, o: pyg.SAGEConv(i, o + 1)}, r"not \[\d+, 16\]"),
    "wrong width of a model": ({"model": pyg.SAGEConv(6, 5)}, "set `output` to its width"),
    "lazy": ({"backbone": lambda i, o: pyg.SAGEConv(-1, o)}, "has no shape yet"),
    "double": ({"backbone": lambda i, o: Centred(i, o).double()}, "is torch.float64, not"),
    "frozen": (
        {"backbone": lambda i, o: pyg.SAGEConv(i, o).requires_grad_(False)},
        "is frozen; register it as a buffer",
    ),
    "recorded": ({"backbone": "my.layers:MyConv"}, "only the recorded name"),
    "device": ({"backbone": pyg.SAGEConv, "device": "abacus"}, "torch has no such device here"),
}


@pytest.mark.parametrize(("settings", "reason"), MIXING.values(), ids=MIXING)
def test_what_would_mix_devices_or_cannot_be_trained_is_refused(
    settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason) as error:
        check_network(ModelSettings(**settings), FEATURES)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        *OWN.values(),
        {"model": lambda i, o: Norms(i, o, pyg.GraphNorm(o), by_tree=True)},
        {"model": lambda i, o: Norms(i, o, torch.nn.LayerNorm(o))},
        {"model": pyg.SAGEConv(6, 16)},
        {"backbone": lambda i, o: pyg.GINConv(torch.nn.Linear(i, o), eps=0.5)},
        {"backbone": functools.partial(pyg.SAGEConv, aggr="max")},
    ],
)
def test_layers_that_treat_each_tree_alone_are_taken(settings: dict[str, Any]) -> None:
    check_network(ModelSettings(**settings), FEATURES)


def test_own_weights_start_from_public_randomness_as_their_constructor_makes_them() -> None:
    def started(seed: int, **settings: Any) -> TreeNetwork:
        network = TreeNetwork(ModelSettings(**settings), FEATURES)
        network.initialise(PublicRandomness(seed).generator("weights"))
        return network

    one, again, other = (started(seed, backbone=MyConv, projection=4) for seed in (0, 0, 1))
    for name, value in one.named_parameters():
        assert torch.equal(value, again.get_parameter(name))
        constant = name.endswith(("norm.weight", "norm.bias"))
        assert constant == torch.equal(value, other.get_parameter(name))
    assert torch.equal(one.get_parameter("layers.0.norm.weight"), torch.ones(16))
    given = pyg.SAGEConv(6, 16)
    trained = started(0, model=given)
    assert torch.equal(trained.get_parameter("model.lin_l.weight"), given.lin_l.weight)
    assert trained.model is not given


def test_features_too_wide_for_dense_arrays_are_refused_with_the_remedy(
    random_forest: Callable[..., Forest], monkeypatch: pytest.MonkeyPatch
) -> None:
    forest = random_forest(1, 12)
    monkeypatch.setattr("lumos.model.network.MAX_DENSE", 100)
    network = TreeNetwork(ModelSettings(backbone=MyConv), FEATURES)
    with pytest.raises(UsageError, match=r"nodes with 6 features each take .* `projection=64`"):
        network(Trees.of(forest), *inputs(forest))


OPTIMIZERS: dict[str, Any] = {
    "SGD": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.05, amsgrad=True),
    "Rprop": torch.optim.Rprop,
    "RAdam": torch.optim.RAdam,
    "groups": lambda params: torch.optim.RMSprop(
        [{"params": params[:1], "lr": 0.1}, {"params": params[1:]}]
    ),
    "Adagrad": torch.optim.Adagrad,
    "ASGD": torch.optim.ASGD,
    "NAdam": torch.optim.NAdam,
}
SHAPES = [torch.Size([3, 2]), torch.Size([2])]


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_optimizer_goes_on_from_its_state_bit_by_bit(make: Any) -> None:
    start = np.random.default_rng(0).normal(size=8)
    slopes = np.random.default_rng(1).normal(size=(9, 8))
    whole = TorchOptimizer(make, start, SHAPES)
    first = TorchOptimizer(make, start, SHAPES)
    for slope in slopes[:4]:
        whole.step(slope)
        first.step(slope)
    state = first.state_dict("o")
    first.step(slopes[0])  # what was saved is not moved by it
    second = TorchOptimizer(make, start, SHAPES)
    second.load_state_dict(state, "o")
    for slope in slopes[4:]:
        whole.step(slope)
        second.step(slope)
        assert np.array_equal(whole.weights, second.weights)
    whole.check()


def test_torchs_adam_is_ours_and_an_optimizer_must_step() -> None:
    start = np.random.default_rng(0).normal(size=8)
    ours = Adam(start, 0.01, 0.1)
    theirs = TorchOptimizer(
        functools.partial(torch.optim.Adam, lr=0.01, weight_decay=0.1), start, SHAPES
    )
    for slope in np.random.default_rng(1).normal(size=(20, 8)):
        ours.step(slope)
        theirs.step(slope)
    np.testing.assert_allclose(theirs.weights, ours.weights, rtol=1e-12)
    with pytest.raises(UsageError, match="LBFGS: cannot step by a gradient alone"):
        TorchOptimizer(torch.optim.LBFGS, start, SHAPES).check()
    with pytest.raises(UsageError, match=r"returned int, not a torch\.optim"):
        TorchOptimizer(lambda params: 3, start, SHAPES)
    with pytest.raises(UsageError, match="only the recorded name"):
        TorchOptimizer("torch.optim.sgd:SGD", start, SHAPES)
