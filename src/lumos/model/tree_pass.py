"""Passes of the network over trees, forward and backward, piece by piece.

In the order of the file: memory that epochs use again, one layer on one piece (`LayerStep`), and
the pass over all pieces (`TreePass`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lumos.model.dropout import Activation, Drops
from lumos.model.tree_tensors import Piece, Trees

# Memory that epochs use again.
#
# An epoch writes the same arrays as the one before. Handed out from one place, they lie where they
# lay: no page of the operating system is asked for twice, and what a step leaves behind is still in
# the processor's cache when the next step writes there.

_FIRST, _LARGEST = 1 << 12, 1 << 20
"""Floats of the first chunk and of a large one, 4 MB; a larger array gets a chunk of its own."""
_VIEWS = 1 << 14
"""Arrays that are remembered: making one anew takes longer than writing a short one."""
_LINE = 16
"""Floats of a cache line: every array begins at one."""


class Arena:
    """Uninitialised arrays one after the other, all given back at once by `reset`."""

    def __init__(self) -> None:
        self._chunks: list[Tensor] = []
        self._chunk = self._used = 0
        self._views: dict[tuple[int, ...], Tensor] = {}

    def empty(self, *shape: int) -> Tensor:
        """An array of float32 that holds anything."""
        size = prod(shape)
        while self._chunk < len(self._chunks):
            chunk = self._chunks[self._chunk]
            if self._used + size <= len(chunk):
                place = self._chunk, self._used, *shape
                found = self._views.get(place)
                if found is None:
                    if len(self._views) == _VIEWS:
                        self._views.clear()
                    found = chunk[self._used : self._used + size].view(shape)
                    self._views[place] = found
                self._used += -(-size // _LINE) * _LINE
                return found
            self._chunk, self._used = self._chunk + 1, 0
        held = sum(map(len, self._chunks))
        self._chunks.append(torch.empty(max(size, _FIRST, min(held, _LARGEST))))
        return self.empty(*shape)

    def reset(self) -> None:
        """Give all arrays back."""
        self._chunk = self._used = 0


class Memory:
    """The arenas of one network: for what is kept until the backward pass, and for a step.

    A forward pass takes an arena and its backward pass returns it. One whose backward pass never
    comes is collected with the graph that holds it.
    """

    def __init__(self) -> None:
        self._free: list[Arena] = []
        self.step = Arena()
        """Reset by whoever begins a step of a layer."""
        self.between = Arena(), Arena()
        """Memory for what one step hands to the next; they take turns."""

    def take(self) -> Arena:
        """An arena that nobody uses."""
        arena = self._free.pop() if self._free else Arena()
        arena.reset()
        return arena

    def give(self, arena: Arena) -> None:
        """Return an arena whose arrays nobody needs any more."""
        self._free.append(arena)

    def __deepcopy__(self, _: dict[int, object]) -> "Memory":
        """A copy of a network has memory of its own."""
        return Memory()

    def __reduce__(self) -> tuple[type["Memory"], tuple[()]]:
        return Memory, ()


# One layer on one piece of the trees: what it gets, what it keeps, what it returns.
#
# Rows stand by kind of node. In a tree, `own` has one row per device as long as a device's own
# leaves are all equal (up to and including the first layer's output: the parents they receive from
# are still zero), and one row per branch afterwards. `parent` and `root` are missing while they are
# zero, and where nothing that follows needs them: a parent reaches a leaf in one layer, a root in
# two. `lone` are the leaves of devices that keep nobody: their trees are one leaf. Rows of `root`
# of such devices mean nothing. A star has `centre` [devices] and `leaf` [branches].

Kinds: TypeAlias = "dict[str, Tensor]"
"""[rows, width] of each kind of node."""


@dataclass(eq=False)
class LayerStep:
    """One layer on one piece.

    Args:
        trees: the piece.
        remaining: layers that follow, which decide what is needed.
        activation: what follows the layer.
        rows: the input.
        weights: what the layer computes with.
        keep: memory for what the backward pass needs.
        work: memory for what it does not need.
        places: where rows of a kind are to be written, if not in memory of `keep`.
    """

    trees: Trees
    remaining: int
    activation: Activation
    rows: Kinds
    weights: "LayerWeights"
    keep: Arena
    work: Arena
    places: Kinds = field(default_factory=dict)
    saved: dict[str, Any] = field(default_factory=dict)
    """Arrays that the layer keeps for its backward pass, by names of its own."""
    out: Kinds = field(default_factory=dict)
    """The output of the layer."""

    @property
    def shared(self) -> bool:
        """True if rows of `own` come one for each device, not for each branch."""
        return self.activation.layer <= 1

    def product(self, kind: str, memory: Arena) -> Tensor:
        """[rows, width] the input of a kind times the table."""
        rows, table = self.rows[kind], self.weights.table
        if table is None:
            return rows
        return torch.mm(rows, table, out=memory.empty(len(rows), table.shape[1]))

    def affine(self, kind: str, into: Tensor) -> Tensor:
        """The product of a kind, and the bias."""
        rows, table, bias = self.rows[kind], self.weights.table, self.weights.bias
        if table is None:
            return torch.add(rows, bias, out=into)
        return torch.addmm(bias, rows, table, out=into)

    def accumulate(self, kind: str, into: Tensor, factor: float) -> Tensor:
        """Add the product of a kind, times a factor."""
        rows, table = self.rows[kind], self.weights.table
        if table is None:
            return into.add_(rows, alpha=factor)
        return into.addmm_(rows, table, alpha=factor)

    def rows_for(self, kind: str, rows: int) -> Tensor:
        """[rows, width] uninitialised, for the output of a kind."""
        place = self.places.get(kind)
        return self.keep.empty(rows, len(self.weights.bias)) if place is None else place

    def finish(self, rows: Kinds) -> Kinds:
        """Activate the output, in place, and keep it."""
        for kind, some in rows.items():
            self.activation.clip_(some, kind)
        self.out = rows
        return rows

    def before_activation(self, gradients: Kinds) -> Kinds:
        """Gradients with respect to what was activated; they may be written to."""
        return {
            kind: self.activation.back(gradients[kind], out, self.work.empty(*out.shape))
            for kind, out in self.out.items()
        }


class LayerWeights(NamedTuple):
    """The weights of a layer, or their gradients."""

    table: Tensor | None
    """[in, width] what rows are multiplied with; None if they come multiplied. Its gradient is
    [width, in]: so rows of features are read as they lie, a quarter faster."""
    bias: Tensor
    """[width] times the factor of the activation."""
    scores: Tensor
    """[width, 2 · heads] of a layer with attention; empty otherwise."""


class TreeLayer(Protocol):
    """A layer that knows the shape of a tree, with its derivative written out."""

    def table(self, activation: Activation) -> Tensor:
        """[in, width] what rows are multiplied with."""
        ...

    def scores(self) -> Tensor | None:
        """[width, 2 · heads] what gives the scores of a product, for a layer with attention."""
        ...

    def forward_step(self, step: LayerStep) -> Kinds:
        """Activated rows."""
        ...

    def backward_step(
        self, step: LayerStep, back: Kinds, found: LayerWeights
    ) -> dict[str, tuple[Tensor, float]]:
        """Return the gradient of each kind's product, to be multiplied by the number beside it.

        Args:
            back: what `step.before_activation` returned; it may be written to.
            found: gradients of bias and scores, to which it adds.
        """
        ...


# The network on whole trees, forward and backward, piece by piece.
#
# Trees do not touch each other, so a piece of some thousand branches goes through all layers while
# it is in the processor's cache, and back again in the backward pass. Between the two only what the
# layers need is kept, in memory that the next epoch uses again (`Memory`).


@dataclass(frozen=True, eq=False)
class TreePass:
    """One pass of the network over the trees.

    Args:
        layers: the layers.
        activation: of a layer, by its number, with what falls.
        trees: all trees.
        drops: what falls in training.
        multiplied: whether the rows given are products with the first layer's table already.
        memory: that of the network.
    """

    layers: Sequence[TreeLayer]
    activation: Callable[[int, Drops | None], Activation]
    trees: Trees
    drops: Drops | None
    multiplied: bool
    memory: Memory = field(repr=False)

    def run(
        self,
        own: Tensor,
        neighbour: Tensor,
        tables: list[Tensor],
        biases: list[Tensor],
        scores: list[Tensor | None],
    ) -> tuple[Tensor, Tensor]:
        """Own leaves, those of lone devices last, and neighbour leaves after the last layer.

        Args:
            own: [devices, …] rows; neighbour: [branches, …].
            tables: of each layer, the first unused if the rows are products.
            biases: of each layer, times the factor of its activation.
            scores: of each layer, see `TreeLayer.scores`.
        """
        given = [torch.empty(0) if one is None else one for one in scores]
        weights = *tables, *biases, *given
        leaves: tuple[Tensor, Tensor] = _Pass.apply(self, own, neighbour, *weights)  # type: ignore[no-untyped-call]
        return leaves

    @property
    def repeats_own(self) -> bool:
        """True if a device's own leaves are still equal, and one row, after the last layer."""
        return len(self.layers) == 1 and self.trees.virtual_nodes

    @property
    def names(self) -> tuple[str, str]:
        """Names of own and neighbour rows."""
        return ("own", "neighbour") if self.trees.virtual_nodes else ("centre", "leaf")

    def by_layer(self, weights: Sequence[Tensor]) -> list[LayerWeights]:
        """The weights of `run` layer by layer."""
        count = len(self.layers)
        groups = (weights[start : start + count] for start in range(0, 3 * count, count))
        found = [LayerWeights(*some) for some in zip(*groups, strict=True)]
        return [found[0]._replace(table=None), *found[1:]] if self.multiplied else found

    def rows_of(self, piece: Piece, own: Tensor, neighbour: Tensor) -> Kinds:
        """The input of a piece, by kind."""
        given = own[piece.devices], neighbour[piece.branches]
        rows = dict(zip(self.names, given, strict=True))
        if self.trees.virtual_nodes:
            rows["lone"] = rows["own"].index_select(0, piece.trees.lone)
        return rows

    def pieces(self) -> list[tuple[Piece, Drops | None]]:
        """The pieces of the trees, each with what falls there."""
        pieces = self.trees.pieces
        none: list[Drops | None] = [None] * len(pieces)
        drops = none if self.drops is None else self.drops.by_piece(pieces)
        return list(zip(pieces, drops, strict=True))

    def leaf_places(self, piece: Piece, own: Tensor, neighbour: Tensor) -> Kinds:
        """Return the places of the leaves of a piece among all leaves, by kind."""
        if not self.trees.virtual_nodes:
            return {"centre": own[piece.devices], "leaf": neighbour[piece.branches]}
        first = self.trees.branches
        lone = slice(first + piece.lone.start, first + piece.lone.stop)
        return {
            "own": own[piece.branches],
            "neighbour": neighbour[piece.branches],
            "lone": own[lone],
        }


class _Run(NamedTuple):
    """The steps of a piece, kept for the backward pass."""

    piece: Piece
    steps: list[LayerStep]


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: TreePass, own: Tensor, neighbour: Tensor, *weights: Tensor) -> Any:
        learning = any(ctx.needs_input_grad)
        by_layer = plan.by_layer(weights)
        width, keep = len(by_layer[-1].bias), plan.memory.take()
        leaves = (
            torch.empty(len(plan.trees.own_device), width),
            torch.empty(plan.trees.branches, width),
        )
        runs = []
        for piece, drops in plan.pieces():
            rows = plan.rows_of(piece, own, neighbour)
            runs.append(_forward(plan, piece, drops, rows, by_layer, keep, leaves))
            if not learning:
                runs.clear()
                keep.reset()
        if learning:
            ctx.plan, ctx.runs, ctx.keep = plan, runs, keep
            ctx.shapes = own.shape, neighbour.shape
            ctx.save_for_backward(*weights)
        else:
            plan.memory.give(keep)
        return leaves

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, own: Tensor, neighbour: Tensor) -> tuple[Any, ...]:
        plan: TreePass = ctx.plan
        if ctx.runs is None:
            raise RuntimeError("this backward pass was made before, and what it needs is gone")
        found = [
            LayerWeights(
                None if table is None else torch.zeros(table.shape[::-1]),
                torch.zeros_like(bias),
                torch.zeros_like(scores),
            )
            for table, bias, scores in plan.by_layer(ctx.saved_tensors)
        ]
        inputs = [
            torch.empty(shape) if needed else None
            for shape, needed in zip(ctx.shapes, ctx.needs_input_grad[1:3], strict=True)
        ]
        for run in reversed(ctx.runs):
            _backward(plan, run, plan.leaf_places(run.piece, own, neighbour), found, inputs)
        plan.memory.give(ctx.keep)
        ctx.runs = ctx.keep = None
        tables, biases, scores = zip(*found, strict=True)
        turned = (None if table is None else table.T for table in tables)
        return None, *inputs, *turned, *biases, *scores


def _forward(
    plan: TreePass,
    piece: Piece,
    drops: Drops | None,
    rows: Kinds,
    weights: list[LayerWeights],
    keep: Arena,
    leaves: tuple[Tensor, Tensor],
) -> _Run:
    """One piece through all layers; its leaves are written where they stand among all."""
    steps: list[LayerStep] = []
    places = plan.leaf_places(piece, *leaves)
    repeated = places.pop("own") if plan.repeats_own else None
    for number, layer in enumerate(plan.layers):
        remaining = len(plan.layers) - 1 - number
        step = LayerStep(
            piece.trees,
            remaining,
            plan.activation(number, drops),
            rows,
            weights[number],
            keep,
            plan.memory.step,
            {} if remaining else places,
        )
        step.work.reset()
        steps.append(step)
        rows = layer.forward_step(step)
    if repeated is not None:
        torch.index_select(rows["own"], 0, piece.trees.owner, out=repeated)
    return _Run(piece, steps)


def _backward(
    plan: TreePass,
    run: _Run,
    gradients: Kinds,
    found: list[LayerWeights],
    inputs: list[Tensor | None],
) -> None:
    """Add one piece to the gradients of the weights, write those of its inputs."""
    if plan.repeats_own:
        gradients["own"] = run.piece.trees.summed(gradients["own"])
    for number in reversed(range(len(plan.layers))):
        step, total = run.steps[number], found[number]
        step.work.reset()
        products = plan.layers[number].backward_step(step, step.before_activation(gradients), total)
        if total.table is not None:
            for kind, (rows, factor) in products.items():
                total.table.addmm_(rows.T, step.rows[kind], alpha=factor)
        if number:
            gradients = _inputs(step, products, plan.memory.between[number % 2])
        elif any(into is not None for into in inputs):
            _write(plan, run.piece, _inputs(step, products, plan.memory.between[0]), inputs)


def _inputs(step: LayerStep, products: dict[str, tuple[Tensor, float]], memory: Arena) -> Kinds:
    """Gradients of the input of a layer, from those of its products."""
    table = step.weights.table
    if table is None:
        return {kind: rows * factor for kind, (rows, factor) in products.items()}
    memory.reset()
    return {
        kind: torch.mm(rows, table.T * factor, out=memory.empty(len(rows), len(table)))
        for kind, (rows, factor) in products.items()
    }


def _write(plan: TreePass, piece: Piece, rows: Kinds, inputs: list[Tensor | None]) -> None:
    """Gradients of what the pass was given, where a piece stands in it."""
    places = piece.devices, piece.branches
    if "lone" in rows:
        rows["own"].index_add_(0, piece.trees.lone, rows["lone"])
    for name, place, into in zip(plan.names, places, inputs, strict=True):
        if into is not None:
            into[place] = rows[name]
