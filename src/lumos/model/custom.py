"""Layers, models and optimizers of your own, on the trees of a shard as one graph.

A layer is a PyG layer by name, or what a factory `(in, out) -> torch.nn.Module` makes, called with
`x` [nodes, in] and `edge_index` [2, edges]. A model is one module for all layers; it may also ask
for `batch` [nodes], the tree of each node. Nodes of a tree follow each other: own leaves, neighbour
leaves, parents, root. Virtual nodes have features 0.

Devices must stay apart: what a device computes may depend on its own tree only. Otherwise its
update would carry the data of others, and results would depend on which devices one process hosts.
`probe` runs a small forest, together and tree by tree, and refuses what differs.
"""

import copy
import inspect
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from lumos.device.randomness import PrivateRandomness, simulated_secrets
from lumos.errors import InputError, UsageError
from lumos.model import FAST, ModelSettings
from lumos.model.dropout import Drops, DropSource
from lumos.model.tree_tensors import TreeGraph, Trees
from lumos.registry import part_name
from lumos.storage import part_of
from lumos.typing import Arrays, Doubles

LAYERS = {
    "arma": "ARMAConv",
    "cluster": "ClusterGCNConv",
    "gatv2": "GATv2Conv",
    "general": "GeneralConv",
    "gin": "GINConv",
    "graph": "GraphConv",
    "le": "LEConv",
    "mf": "MFConv",
    "res-gated": "ResGatedGraphConv",
    "sage": "SAGEConv",
    "sg": "SGConv",
    "tag": "TAGConv",
    "transformer": "TransformerConv",
}
"""PyG layers by name: made from the widths of input and output, called with x and edge_index."""


def make_layers(settings: ModelSettings, inputs: list[int]) -> list[torch.nn.Module]:
    """Layers of these input widths, by name or by a factory.

    Raises:
        UsageError: no layer has this name, or the factory makes none.
    """
    outputs = [*inputs[1:], settings.output]
    backbone = settings.backbone
    make = _named(backbone) if isinstance(backbone, str) else backbone
    return [made_by(make, "backbone", *widths) for widths in zip(inputs, outputs, strict=True)]


def make_model(settings: ModelSettings, width: int) -> torch.nn.Module:
    """The whole model, as a copy where a module was given.

    Raises:
        UsageError: the factory makes none.
    """
    given: Any = settings.model
    if isinstance(given, str):
        raise UsageError(only_recorded("model", given))
    if isinstance(given, torch.nn.Module):
        return made_by(lambda *_: given, "model", width, settings.output)
    return made_by(given, "model", width, settings.output)


def made_by(make: Callable[..., Any], setting: str, before: int, after: int) -> torch.nn.Module:
    """Call a factory, and refuse what cannot be trained.

    Raises:
        UsageError: it fails, makes no module, or one whose weights cannot be added up.
    """
    where = f"`{setting}` {part_name(make)}"
    if isinstance(make, torch.nn.Module):
        raise UsageError(
            f"{where}: give the class or a factory (in, out) -> torch.nn.Module, since every layer "
            "has other widths; a whole module is given as `model`"
        )
    try:
        # A copy: a factory that returns one object twice would tie the weights of devices.
        made = copy.deepcopy(make(before, after))
    except Exception as error:
        raise UsageError(
            f"{where}: failed for widths {before}, {after} ({_line(error)})"
        ) from error
    if not isinstance(made, torch.nn.Module):
        raise UsageError(f"{where}: returned {type(made).__name__}, not a torch.nn.Module")
    for name, weight in made.named_parameters():
        if isinstance(weight, torch.nn.parameter.UninitializedParameter):
            raise UsageError(f"{where}: weight {name!r} has no shape yet; give the widths")
        if weight.dtype != torch.float32:
            raise UsageError(f"{where}: weight {name!r} is {weight.dtype}, not torch.float32")
        if not weight.requires_grad:
            raise UsageError(f"{where}: weight {name!r} is frozen; register it as a buffer")
    return made


def only_recorded(setting: str, name: str) -> str:
    """Why a part that was only recorded by its name cannot be used."""
    return (
        f"`{setting}` {name!r} is only the recorded name of a part; give the part itself, as "
        f"lumos.load_run(path, {setting}=…)"
    )


def _named(name: str) -> Callable[[int, int], Any]:
    """The factory of a PyG layer that has a name here."""
    if ":" in name:
        raise UsageError(only_recorded("backbone", name))
    if name not in LAYERS:
        raise UsageError(
            f"backbone {name!r} does not exist; use one of {', '.join([*FAST, *LAYERS])}"
        )
    with warnings.catch_warnings():  # PyG still scripts a few classes with torch.jit
        warnings.simplefilter("ignore", DeprecationWarning)
        import torch_geometric.nn as pyg
    kind = getattr(pyg, LAYERS[name])
    if name != "gin":
        made: Callable[[int, int], Any] = kind
        return made

    def gin(before: int, after: int) -> Any:
        inner = torch.nn.Linear(before, after), torch.nn.ReLU(), torch.nn.Linear(after, after)
        return kind(torch.nn.Sequential(*inner))

    return gin


@contextmanager
def seeded(generator: np.random.Generator) -> Iterator[None]:
    """Torch draws from public randomness inside, so that all devices start with equal weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(generator.integers(1 << 62)))
        yield


def takes_batch(model: torch.nn.Module) -> bool:
    """Return whether a model asks for `batch`."""
    return "batch" in inspect.signature(model.forward).parameters


def checked_device(name: str) -> torch.device:
    """The torch device of this name.

    Raises:
        UsageError: torch has none here.
    """
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"`device={name!r}`: torch has no such device here ({_line(error)})"
        ) from None


# Dropout inside layers, by the devices' own randomness.


class CannotAttribute(Exception):
    """Rows of a tensor belong to no device by their number: trees have to be run one by one."""


class DeviceDropout(TorchFunctionMode):
    """Draws `torch.nn.functional.dropout` from the private randomness of each row's device.

    Rows are nodes, edges, or edges and then nodes (self-loops). A device's elements stand in one
    line for each call, so that the same ones fall in any shard.
    """

    def __init__(self, graph: TreeGraph, source: DropSource) -> None:
        super().__init__()
        self._batch, self._target = graph.batch, graph.edge_index[1]
        self._source = source
        self._calls = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace dropout, and nothing else."""
        if func in (functional.dropout, torch.dropout):
            return self._dropout(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _dropout(
        self,
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
        train: bool | None = None,
    ) -> Tensor:
        if not (training if train is None else train) or p == 0:
            return input
        self._calls += 1
        device = self._device_of(len(input))
        width = max(1, input[0].numel()) if len(input) else 1
        rows = np.bincount(device, minlength=len(self._source.devices))
        falls = np.ones((len(device), width), np.bool_)
        if p < 1:
            by_device = np.argsort(device, kind="stable")
            drawn = self._source.each(rows * width, p, self._calls)
            falls[by_device] = drawn.reshape(-1, width)
        factor = torch.from_numpy(np.where(falls, 0, 1 / (1 - p) if p < 1 else 0))
        keep = factor.to(input.device, input.dtype).view_as(input)
        return input.mul_(keep) if inplace else input * keep

    def _device_of(self, rows: int) -> Any:
        """[rows] position of each row's device."""
        if len(self._source.devices) == 1:
            return np.zeros(rows, np.int64)
        batch = self._batch.cpu()
        target = batch[self._target.cpu()]
        choices = [batch, target, torch.cat([target, batch])]
        fitting = [one for one in choices if len(one) == rows]
        if len(fitting) != 1 and not (len(fitting) == 2 and not len(target)):
            raise CannotAttribute
        return fitting[0].numpy()


# The probe: devices apart, no state, no randomness but dropout.

_WORKLOADS = (2, 0, 1, 3)
_TOLERANCE = 1e-4
"""Relative difference that products of other shapes may make."""


def probe(network: Any, settings: ModelSettings, features: int) -> None:
    """Refuse a network by which devices would not stay apart.

    Args:
        network: `lumos.model.network.TreeNetwork` with its first weights.
        settings: of the network.
        features: d.

    Raises:
        UsageError: it fails on a tree, mixes devices, keeps a state, or draws random numbers.
    """
    setting = "backbone" if settings.model is None else "model"
    where = f"`{setting}` {settings.network}"
    moved = copy.deepcopy(network)  # weights that start at 0 must not hide anything
    with seeded(np.random.default_rng(1)), torch.no_grad():
        for weight in moved.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    for one in (moved, network):
        try:
            reason = _Probe(one, features).reason()
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"{where}: failed on a small forest of four trees ({_line(error)})"
            ) from error
        if reason:
            raise UsageError(f"{where}: {reason}")


class _Probe:
    """A network on a small forest."""

    def __init__(self, network: Any, features: int) -> None:
        self.network = network
        workload = torch.tensor(_WORKLOADS)
        owner = torch.repeat_interleave(torch.arange(len(workload)), workload)
        self.trees = Trees(owner=owner, workload=workload, virtual_nodes=True)
        rng = np.random.default_rng(0)
        rows = rng.random((len(workload) + len(owner), features), np.float32)
        self.inputs = (
            torch.from_numpy(rows[: len(workload)]),
            torch.from_numpy(rows[len(workload) :]),
        )
        self.randomness = PrivateRandomness(simulated_secrets(0, np.arange(len(workload))))

    def reason(self) -> str:
        """Why the network is refused; empty where it is right."""
        before = {name: value.clone() for name, value in self.network.named_buffers()}
        state = torch.get_rng_state()
        for drops in (self.network.drops(self.trees, self.randomness, 0), None):
            together, again = (self._run(self.inputs, drops) for _ in range(2))
            moved = [
                name
                for name, value in self.network.named_buffers()
                if not torch.equal(value, before[name])
            ]
            if moved:
                return (
                    f"its buffer {moved[0]!r} changes in training, which no sum over devices "
                    f"carries{self._hint()}; use a layer without running statistics"
                )
            if not torch.equal(torch.get_rng_state(), state) or not torch.equal(together, again):
                return (
                    "draws random numbers other than by dropout in training, so they are not the "
                    "devices' own; use torch.nn.functional.dropout(x, p, training=self.training)"
                )
            if not torch.isfinite(together).all():
                return "returns numbers that are not finite on a small forest"
            if self._mixes(together, drops):
                return (
                    "mixes devices: the output of one tree depends on another one, so an update "
                    f"would carry the data of others{self._hint()}; use a layer that treats each "
                    "tree alone, such as torch.nn.LayerNorm"
                )
        return ""

    def _run(self, inputs: Any, drops: Drops | None) -> Tensor:
        """[own leaves and neighbour leaves, width] of all trees."""
        with torch.no_grad():
            return torch.cat([*self.network(self.trees, *inputs, drops)])

    def _mixes(self, together: Tensor, drops: Drops | None) -> bool:
        """Return whether leaves differ where a tree is alone, or where others have other data."""
        trees, limit = self.trees, _TOLERANCE * float(together.abs().max())
        of = torch.cat([trees.own_device, trees.owner])
        none: list[Drops | None] = [None] * trees.devices
        fallen = none if drops is None else drops.by_piece(trees.single)
        for device, (piece, mine) in enumerate(zip(trees.single, fallen, strict=True)):
            own, neighbour = self.inputs[0][piece.devices], self.inputs[1][piece.branches]
            others = [rows * 100 for rows in self.inputs]
            others[0][piece.devices], others[1][piece.branches] = own, neighbour
            changed = self._run(others, drops)
            if (changed - together)[of == device].abs().max() > limit / 100:
                return True
            with torch.no_grad():
                alone = torch.cat([*self.network(piece.trees, own, neighbour, mine)])
            if (alone - together[of == device]).abs().max() > limit:
                return True
        return False

    def _hint(self) -> str:
        """Name layers that are known to normalise over devices."""
        kinds = {type(module).__name__ for module in self.network.modules()}
        found = sorted(kind for kind in kinds if kind.endswith(("Norm", "Norm1d")))
        return f" ({', '.join(found)})" if found else ""


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


# Optimizers of torch: every device steps from the same sums, and ends with equal weights.


class TorchOptimizer:
    """A torch optimizer on the weights of a model, in double precision.

    Args:
        make: a factory `(params) -> torch.optim.Optimizer`; params have the model's shapes.
        weights: [weights] to start from.
        shapes: of the parameters, in their order.

    Raises:
        UsageError: the factory fails, or its optimizer cannot step or be saved.
    """

    def __init__(self, make: Callable[..., Any] | str, weights: Doubles, shapes: list[Any]) -> None:
        if isinstance(make, str):
            raise UsageError(only_recorded("optimizer", make))
        self._parameters = [
            torch.nn.Parameter(torch.empty(shape, dtype=torch.float64)) for shape in shapes
        ]
        self._place(weights)
        self._where = where = f"`optimizer` {part_name(make)}"
        try:
            self._optimizer = make(self._parameters)
        except Exception as error:
            raise UsageError(f"{where}: failed ({_line(error)})") from error
        if not isinstance(self._optimizer, torch.optim.Optimizer):
            raise UsageError(
                f"{where}: returned {type(self._optimizer).__name__}, not a torch.optim.Optimizer"
            )
        text = json.dumps(self._groups(), sort_keys=True).encode()
        self._start = np.frombuffer(blake2b(text, digest_size=16).digest(), np.uint8)
        self._steps = 0

    def step(self, gradient: Doubles) -> None:
        """One step down the gradient."""
        for weight, part in self._parts(gradient):
            weight.grad = part.clone()
        self._steps += 1
        self._optimizer.step()
        flat = torch.nn.utils.parameters_to_vector(self._parameters)
        self.weights = flat.detach().numpy().copy()

    def check(self) -> None:
        """Try one step, and a state that is saved and loaded. No step may follow.

        Raises:
            UsageError: one of them fails.
        """
        try:
            self.step(np.full(len(self.weights), 1e-3))
            self.load_state_dict(self.state_dict("tried"), "tried")
        except Exception as error:
            raise UsageError(
                f"{self._where}: cannot step by a gradient alone, or be saved ({_line(error)})"
            ) from error

    def state_dict(self, name: str) -> Arrays:
        """Weights, tensors of the state, all other values as JSON, a digest of the settings."""
        arrays: Arrays = {f"{name}/weights": self.weights}
        plain: dict[str, dict[str, Any]] = {}
        for number, weight in enumerate(self._parameters):
            for key, value in self._optimizer.state.get(weight, {}).items():
                if isinstance(value, Tensor):
                    # Copied: optimizers write into their state.
                    arrays[f"{name}/state/{number}/{key}"] = value.detach().numpy().copy()
                else:
                    plain.setdefault(str(number), {})[key] = value
        arrays[f"{name}/start"] = self._start
        if self._steps:
            text = json.dumps({"groups": self._groups(), "state": plain}).encode()
            arrays[f"{name}/values"] = np.frombuffer(text, np.uint8).copy()
        return arrays

    def load_state_dict(self, state: Arrays, name: str) -> None:
        """Go on from what `state_dict` returned, bit by bit.

        Raises:
            InputError: it is of an optimizer with other settings.
        """
        mine = part_of(state, f"{name}/")
        if not np.array_equal(mine["start"], self._start):
            raise InputError("checkpoint.npz is of another optimizer; restart without `resume`")
        start: dict[str, Any] = {"groups": self._groups(), "state": {}}
        about = json.loads(mine["values"].tobytes()) if "values" in mine else start
        self._place(mine["weights"])
        self._steps = int("values" in mine)
        self._optimizer.state.clear()
        for number, weight in enumerate(self._parameters):
            kept = dict(about["state"].get(str(number), {}))
            for key, array in part_of(mine, f"state/{number}/").items():
                kept[key] = torch.from_numpy(np.array(array))
            if kept:
                self._optimizer.state[weight] = kept
        for group, values in zip(self._optimizer.param_groups, about["groups"], strict=True):
            for key, value in values.items():
                group[key] = tuple(value) if isinstance(group[key], tuple) else value

    def _parts(self, vector: Doubles) -> Iterator[tuple[torch.nn.Parameter, Tensor]]:
        """Each parameter, and its part of a vector."""
        start = 0
        for weight in self._parameters:
            end = start + weight.numel()
            yield weight, torch.from_numpy(vector[start:end]).view(weight.shape)
            start = end

    def _place(self, weights: Doubles) -> None:
        self.weights = weights
        with torch.no_grad():
            for weight, part in self._parts(weights):
                weight.copy_(part)

    def _groups(self) -> list[dict[str, Any]]:
        """The settings of each group of parameters, as JSON has them."""
        groups = [
            {key: value for key, value in group.items() if key != "params"}
            for group in self._optimizer.param_groups
        ]
        plain: list[dict[str, Any]] = json.loads(json.dumps(groups))
        return plain
