"""Models of a server and their goals: edges as an operator, attention, features, layers, goals.

**Edges.** An edge that the server knows or believes in is two arcs. Sums over neighbours are
products with a symmetric 0/1 matrix, so the gradient of such a sum is the same sum of the
gradients.

**Features.** They are brought to one scale, exactly. Columns of different scales would cost a
server accuracy for no reason, and a comparison with it would flatter Lumos. Features between -1 and
1 stay as they are, as in the strict profile.

**Layers.** Two layers of PyG's GCN, GAT or SAGE, or a perceptron without a graph. They compute what
`torch_geometric.nn.GCNConv`, `GATConv` and `SAGEConv` compute, from weights of the same names and
shapes (a test compares them), but on `Arcs`, so that neither sparse words nor tens of millions of
noisy edges are ever made dense.

**Goals.** Labels under randomized response, LPGNN's Drop, and a goal for each task.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_array, issparse
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, dropout, logsigmoid, nll_loss, one_hot

from lumos.baselines.systems import Backbone, BaselineSettings, ServerProblem
from lumos.device.randomness import PublicRandomness
from lumos.errors import InputError
from lumos.ldp.bounds import Features, Sparse, of_one_scale, raw_rows
from lumos.ldp.mechanisms import COIN, make_mechanism
from lumos.model import tree_tensors
from lumos.model.tree_tensors import csr
from lumos.training.metrics import link_auc
from lumos.training.split import EdgeSplit, Role
from lumos.typing import Floats, Ints


@dataclass(frozen=True, eq=False, kw_only=True)
class Arcs:
    """A symmetric graph without self-loops, in CSR form."""

    offsets: Tensor = field(repr=False)
    """[devices + 1] int32: the arcs into device u are offsets[u] … offsets[u + 1] - 1."""
    sources: Tensor = field(repr=False)
    """[arcs] int32: the device that each arc comes from."""
    degrees: Tensor = field(repr=False)
    """[devices] float32: sum of the weights of each device's edges, before any sampling."""
    weight: float = 1.0
    """Weight of each arc: more than 1 where arcs stand for others that were not sampled."""
    _matrix: Tensor = field(repr=False)

    @staticmethod
    def of(
        pairs: Ints,
        devices: int,
        *,
        degrees: Tensor | None = None,
        weight: float = 1.0,
        weights: Floats | None = None,
    ) -> "Arcs":
        """Return the graph with the edges `pairs` [edges, 2], each once.

        Args:
            weights: [edges] a weight above 0 of each edge, which attention does not use.
        """
        low, high = (pairs[:, end].astype(np.int32) for end in (0, 1))
        values = np.ones(len(pairs), np.float32) if weights is None else weights
        half = csr_array((values, (low, high)), shape=(devices, devices))
        whole = csr_array(half + half.T)
        whole.sort_indices()
        offsets = torch.from_numpy(whole.indptr.astype(np.int32))
        sources = torch.from_numpy(whole.indices.astype(np.int32))
        if degrees is None:
            degrees = torch.from_numpy(whole.sum(axis=1))
        matrix = csr(offsets, sources, torch.from_numpy(whole.data), devices)
        return Arcs(
            offsets=offsets, sources=sources, degrees=degrees, weight=weight, _matrix=matrix
        )

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.offsets) - 1

    def __len__(self) -> int:
        return len(self.sources)

    def sum(self, rows: Tensor) -> Tensor:
        """Return [devices, width] the sum of the neighbours' rows, times the arcs' weight."""
        total: Tensor = _NeighbourSum.apply(self._matrix, rows)  # type: ignore[no-untyped-call]
        return total if self.weight == 1.0 else self.weight * total

    def mean(self, rows: Tensor) -> Tensor:
        """Return [devices, width] D⁻¹ A: the mean over neighbours, 0 where there is none."""
        return self.sum(rows) / self.degrees.clamp(min=1)[:, None]

    def smooth(self, rows: Tensor) -> Tensor:
        """Return [devices, width] D^-½ A D^-½, without self-loops; 0 without neighbours."""
        smooth: Tensor = _NeighbourSum.apply(self._smoother, rows)  # type: ignore[no-untyped-call]
        return smooth

    @cached_property
    def _smoother(self) -> Tensor:
        root = self.degrees.clamp(min=1).rsqrt()
        values = self.weight * root[self.sources] * root.repeat_interleave(self.offsets.diff())
        values *= self._matrix.values()
        return csr(self.offsets, self.sources, values, self.devices)

    def smooth_with_self(self, rows: Tensor) -> Tensor:
        """Return [devices, width] (D + I)^-½ (A + I) (D + I)^-½, as in GCN."""
        root = (self.degrees + 1).rsqrt()[:, None]
        scaled = root * rows
        return root * (self.sum(scaled) + scaled)


class _NeighbourSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, rows: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ gradient.contiguous()


# Graph attention over tens of millions of arcs: softmax over the arcs into a device, in chunks.
#
#     α_ij = softmax_j LeakyReLU(a_i + b_j)          over the arcs j → i and the self-loop
#     out_i = Σ_j α_ij h_j
#
# Nothing of the size of all arcs is kept: both passes compute α afresh, one head and one span of
# devices at a time, and all sums are products with CSR matrices. With G_i the gradient of out_i,
# c_i = G_i·out_i and s_ij the slope of LeakyReLU,
#
#     ∂a_i = Σ_j α_ij s_ij (G_i·h_j - c_i) = G_i·(Σ_j α_ij s_ij h_j) - c_i Σ_j α_ij s_ij
#     ∂b_j = Σ_i α_ij s_ij (G_i·h_j - c_i) = h_j·(Σ_i α_ij s_ij G_i) - Σ_i α_ij s_ij c_i
#     ∂h_j = Σ_i α_ij G_i
#
# and since every arc has its reverse, the sums over i run over the arcs of j as well.

SLOPE = 0.2
"""Slope of LeakyReLU below 0."""
CHUNK = 1 << 20
"""Arcs that are worked on at a time."""


def attend(arcs: Arcs, values: Tensor, mine: Tensor, theirs: Tensor, chunk: int = CHUNK) -> Tensor:
    """Return [devices, heads, width] attention-weighted sums, with self-loops.

    Args:
        values: [devices, heads, width] h.
        mine: [devices, heads] a, of the device that an arc leads to.
        theirs: [devices, heads] b, of the device that it comes from.
        chunk: arcs at a time.
    """
    by_head = zip(
        *(part.transpose(0, 1).contiguous() for part in (values, mine, theirs)), strict=True
    )
    heads = [_Head.apply(arcs, chunk, *head) for head in by_head]  # type: ignore[no-untyped-call]
    return torch.stack(heads, dim=1)


class _Span(NamedTuple):
    """The arcs into a span of devices."""

    devices: slice
    counts: Tensor
    """[devices of the span] arcs into each."""
    offsets: Tensor
    """[devices of the span + 1]"""
    sources: Tensor
    """[arcs of the span]"""

    def each(self, numbers: Tensor) -> Tensor:
        """Return [arcs] the number of the device that each arc leads to."""
        return numbers[self.devices].repeat_interleave(self.counts, output_size=len(self.sources))

    def matrix(self, values: Tensor, devices: int) -> Tensor:
        """Return [devices of the span, devices] with these values at the arcs."""
        return csr(self.offsets, self.sources, values, devices)


def _spans(arcs: Arcs, chunk: int) -> Iterator[_Span]:
    """Yield spans of devices with about `chunk` arcs each."""
    offsets, start = arcs.offsets, 0
    while start < arcs.devices:
        limit = int(torch.searchsorted(offsets, int(offsets[start]) + chunk, right=True)) - 1
        end = min(max(limit, start + 1), arcs.devices)
        here = offsets[start : end + 1]
        first, last = int(here[0]), int(here[-1])
        yield _Span(slice(start, end), here.diff(), here - first, arcs.sources[first:last])
        start = end


def _leaky(sums: Tensor) -> Tensor:
    return torch.maximum(sums, SLOPE * sums)


def _slope(sums: Tensor) -> Tensor:
    return torch.where(sums > 0, 1.0, SLOPE)


def _with(rows: Tensor, column: Tensor) -> Tensor:
    return torch.cat([rows, column[:, None]], dim=1)


class _Head(torch.autograd.Function):
    """One head: h [devices, width], a and b [devices]."""

    @staticmethod
    def forward(
        ctx: Any, arcs: Arcs, chunk: int, values: Tensor, mine: Tensor, theirs: Tensor
    ) -> Tensor:
        counted = _with(values, torch.ones_like(mine))
        top = torch.empty_like(mine)
        sums = torch.empty_like(counted)
        for span in _spans(arcs, chunk):
            here, incoming = span.devices, theirs.index_select(0, span.sources)
            most = torch.segment_reduce(
                incoming, "max", lengths=span.counts.long(), initial=-torch.inf
            )
            top[here] = _leaky(mine[here] + torch.maximum(most, theirs[here]))  # it rises with b
            share = arcs.weight * torch.exp(_leaky(span.each(mine) + incoming) - span.each(top))
            sums[here] = span.matrix(share, arcs.devices) @ counted
        sums += torch.exp(_leaky(mine + theirs) - top)[:, None] * counted
        total = sums[:, -1]
        out = sums[:, :-1] / total[:, None]
        ctx.arcs, ctx.chunk = arcs, chunk
        ctx.save_for_backward(values, mine, theirs, top + total.log(), out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor, Tensor, Tensor]:
        values, mine, theirs, level, out = ctx.saved_tensors
        arcs: Arcs = ctx.arcs
        common = (gradient * out).sum(dim=1)
        counted, known = _with(values, torch.ones_like(mine)), _with(gradient, common)
        sums = mine + theirs
        share = torch.exp(_leaky(sums) - level)
        to_values = share[:, None] * gradient
        steep = (share * _slope(sums))[:, None]
        arriving, leaving = steep * counted, steep * known
        for span in _spans(arcs, ctx.chunk):
            here, sources = span.devices, span.sources
            sums = span.each(mine) + theirs.index_select(
                0, sources
            )  # arcs into these devices: Σ over j
            share = arcs.weight * torch.exp(_leaky(sums) - span.each(level))
            arriving[here] += span.matrix(share * _slope(sums), arcs.devices) @ counted
            sums = span.each(theirs) + mine.index_select(0, sources)  # their reverses: Σ over i
            share = arcs.weight * torch.exp(_leaky(sums) - level.index_select(0, sources))
            to_values[here] += span.matrix(share, arcs.devices) @ gradient
            leaving[here] += span.matrix(share * _slope(sums), arcs.devices) @ known
        to_mine = (gradient * arriving[:, :-1]).sum(dim=1) - common * arriving[:, -1]
        to_theirs = (values * leaving[:, :-1]).sum(dim=1) - leaving[:, -1]
        return None, None, to_values, to_mine, to_theirs


def server_rows(features: Features, *, unit: bool) -> Features:
    """Return [devices, d] features without noise, of one scale; rows of norm 1 with `unit`."""
    return raw_rows(_standardised(features), unit=unit)


def _standardised(features: Features) -> Features:
    if of_one_scale(features):
        return features
    if issparse(features):  # zeros stay zero
        rows: Any = csr_array(features)
        squares = np.asarray(rows.astype(np.float64).power(2).mean(axis=0)).ravel()
        sizes = np.sqrt(np.where(squares > 0, squares, 1.0))
        data = (rows.data / sizes[rows.indices]).astype(np.float32)
        return csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
    exact = np.asarray(features, np.float64)
    spread = exact.std(axis=0)
    moved = (exact - exact.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.asarray(moved, np.float32)


HEADS = 4
"""Heads of the first layer of gat; the second has one."""

Rows: TypeAlias = "Tensor | Floats | Sparse | Smoothed"


@dataclass(frozen=True, eq=False, kw_only=True)
class Smoothed:
    """KProp without its dense result: (D^-½ A D^-½)^K (matrix + plus), no self-loops.

    A layer multiplies it with a narrow table W, and P^K (X W) = (P^K X) W.
    """

    matrix: "Floats | Sparse" = field(repr=False)
    """[devices, d]"""
    plus: float
    """Number that is added to every entry: the midpoint of the bounds."""
    arcs: Arcs = field(repr=False)
    steps: int
    """K"""

    @property
    def shape(self) -> tuple[int, int]:
        """(devices, d), as the other forms of rows have it."""
        devices, width = self.matrix.shape
        return devices, width

    def project(self, table: Tensor) -> Tensor:
        """Return [devices, width] its product with table [d, width]."""
        rows = project(self.matrix, table) + self.plus * table.sum(dim=0)
        for _ in range(self.steps):
            rows = self.arcs.smooth(rows)
        return rows


class Layer(nn.Module):
    """[devices, inputs] to [devices, outputs] over the edges that the server believes in."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = _glorot(inputs, outputs)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, rows: Rows, arcs: Arcs) -> Tensor:
        """Return the layer's output, before any activation."""
        raise NotImplementedError


class Gcn(Layer):
    """(D + I)^-½ (A + I) (D + I)^-½ X W + b (Kipf and Welling 2017)."""

    def forward(self, rows: Rows, arcs: Arcs) -> Tensor:
        """Compute the formula from the right."""
        return arcs.smooth_with_self(project(rows, self.weight)) + self.bias


class Sage(Layer):
    """mean over neighbours · W + b + X · R (Hamilton et al. 2017)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.root = _glorot(inputs, outputs)

    def forward(self, rows: Rows, arcs: Arcs) -> Tensor:
        """Compute the formula."""
        both = project(rows, torch.cat([self.weight, self.root], dim=1))
        theirs, own = both.chunk(2, dim=1)
        return arcs.mean(theirs) + self.bias + own


class Gat(Layer):
    """Attention over neighbours and oneself (Veličković et al. 2018); heads side by side."""

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__(inputs, heads * outputs)
        self.heads = heads
        self.mine, self.theirs = _glorot(heads, outputs), _glorot(heads, outputs)

    def forward(self, rows: Rows, arcs: Arcs) -> Tensor:
        """Attend to all neighbours; see `attend`."""
        values = project(rows, self.weight).view(arcs.devices, self.heads, -1)
        mine, theirs = ((values * part).sum(dim=2) for part in (self.mine, self.theirs))
        return attend(arcs, values, mine, theirs).flatten(1) + self.bias


class Alone(Layer):
    """X W + b: no neighbour."""

    def forward(self, rows: Rows, arcs: Arcs) -> Tensor:
        """Compute the formula, whatever the arcs."""
        return project(rows, self.weight) + self.bias


class Network(nn.Module):
    """Two layers with ReLU and dropout, and a linear head where there are classes.

    A system without a backbone has a perceptron.

    Args:
        classes: 0 for link: the embeddings are then not cut off at 0.
    """

    def __init__(self, settings: BaselineSettings, inputs: int, classes: int) -> None:
        super().__init__()
        width, self._dropout = settings.hidden, settings.dropout
        self.layers = nn.ModuleList(_layers(settings.backbone, inputs, width))
        self.head = nn.Linear(width, classes) if classes else None

    def forward(self, rows: Rows, arcs: Arcs) -> Tensor:
        """Return [devices, classes] logits, or [devices, hidden] embeddings."""
        return self.rest(self.first(rows, arcs), arcs)

    def first(self, rows: Rows, arcs: Arcs) -> Tensor:
        """Return the first layer before activation and dropout, as in training so in use."""
        hidden: Tensor = self.layers[0](rows, arcs)
        return hidden

    def rest(self, first: Tensor, arcs: Arcs) -> Tensor:
        """Return the output that follows from the first layer."""
        embedding = self.embed(first, arcs)
        if self.head is None:
            return embedding
        logits: Tensor = self.head(self._drop(torch.relu(embedding)))
        return logits

    def embed(self, first: Tensor, arcs: Arcs) -> Tensor:
        """Return [devices, hidden] the second layer before any activation."""
        embedding: Tensor = self.layers[1](self._drop(torch.relu(first)), arcs)
        return embedding

    def _drop(self, rows: Tensor) -> Tensor:
        return dropout(rows, self._dropout, self.training)


def _layers(backbone: Backbone | None, inputs: int, width: int) -> list[Layer]:
    if backbone is None:
        return [Alone(inputs, width), Alone(width, width)]
    if backbone == "gat":
        return [Gat(inputs, width, HEADS), Gat(HEADS * width, width, 1)]
    kind = Gcn if backbone == "gcn" else Sage
    return [kind(inputs, width), kind(width, width)]


def project(rows: Rows, table: Tensor) -> Tensor:
    """Return [devices, width] rows times table; differentiable with respect to the table.

    Rows that a server received are constants, dense or sparse; hidden rows are tensors.
    """
    if isinstance(rows, Smoothed):
        return rows.project(table)
    if isinstance(rows, np.ndarray):
        product: Tensor = _ConstantProduct.apply(torch.from_numpy(rows), table)  # type: ignore[no-untyped-call]
        return product
    return tree_tensors.project(rows, table)


class _ConstantProduct(torch.autograd.Function):
    """X W for a constant X; its gradient as (Gᵀ X)ᵀ, which reads X row by row."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, table: Tensor) -> Tensor:
        ctx.rows = rows
        return rows @ table

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, (gradient.T @ ctx.rows).T


def _glorot(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns)))


# Goals: what a server optimises, and the score by which it chooses between epochs.


def noisy_labels(
    labels: Ints, classes: int, epsilon: float, generator: np.random.Generator
) -> Ints:
    """Return [devices] the labels that devices release; -1 stays where there is none.

    The truth with probability e^ε/(e^ε + C - 1), each other class with 1/(e^ε + C - 1).
    """
    if math.isinf(epsilon):
        return labels
    mechanism = make_mechanism(classes, epsilon, "krr")
    known = np.flatnonzero(labels >= 0)
    randomness = generator.integers(0, COIN, (len(known), mechanism.randomness), dtype=np.uint32)
    released = labels.copy()
    released[known] = mechanism.read(mechanism.release(labels[known], randomness)).argmax(axis=1)
    return released


def transition(classes: int, epsilon: float) -> Tensor:
    """Return [classes, classes] T: the probability that a device of class c releases s."""
    if math.isinf(epsilon):
        return torch.eye(classes)
    mechanism = make_mechanism(classes, epsilon, "krr")
    table = torch.full((classes, classes), mechanism.other / COIN)
    return table.fill_diagonal_(mechanism.truth / COIN)


class Drop:
    """Labels that were denoised by the graph, and a loss that sends predictions the same way.

    Targets: one-hot noisy labels (none for devices that sent no label), K_y steps of KProp,
    softmax, largest entry. Predictions: p·T (what a device of that belief would release), the same
    steps and softmax. The loss is the cross-entropy between the two, over training devices; one
    whose neighbourhood holds no label has no target and is left out. With K_y = 0 this is forward
    correction alone.

    Args:
        labels: [devices] noisy labels of those who sent one, -1 elsewhere.
        train: [devices] whether the device trains.
        table: T.
        steps: K_y.
    """

    def __init__(
        self, labels: Tensor, train: Tensor, table: Tensor, arcs: Arcs, steps: int
    ) -> None:
        self._table, self._arcs, self._steps = table, arcs, steps
        known = labels >= 0
        sent = one_hot(labels.clamp(min=0), len(table)).float() * known[:, None]
        seen = self._spread(sent)
        self.target = torch.where(known, labels, 0) if steps == 0 else seen.argmax(dim=1)
        self._train = torch.nonzero(train & (seen.sum(dim=1) > 0)).flatten()
        if not len(self._train):
            raise InputError(
                f"edges: no training device has a label within {steps} steps; "
                "`label_steps=0` learns from each device's own"
            )

    def _spread(self, rows: Tensor) -> Tensor:
        for _ in range(self._steps):
            rows = self._arcs.smooth(rows)
        return rows

    def log_released(self, logits: Tensor) -> Tensor:
        """Return [devices, classes] the log-probability of each label that a device may release.

        log(softmax(logits)·T)
        """
        return (torch.softmax(logits, dim=1) @ self._table).clamp(min=1e-12).log()

    def loss(self, logits: Tensor) -> Tensor:
        """Return the cross-entropy between propagated predictions and targets."""
        logs = self.log_released(logits)
        if self._steps:
            logs = torch.log_softmax(self._spread(logs.exp()), dim=1)
        return nll_loss(logs[self._train], self.target[self._train])


PAIRS = 1 << 18
"""Edges of an epoch, at most; of more, this number is drawn afresh in every epoch."""


class Goal(Protocol):
    """A loss, and a validation score of which more is better."""

    def loss(self, out: Tensor, epoch: int) -> Tensor:
        """Return the loss of the training devices or edges."""
        ...

    def score(self, out: Tensor) -> float:
        """Return the score of the validation devices or edges, as far as the server knows them."""
        ...


class ClassifyGoal:
    """Cross-entropy with the labels that the server holds, true or noisy; accuracy on the same."""

    def __init__(self, labels: Ints, roles: Ints) -> None:
        self._labels = torch.from_numpy(labels.copy())
        self._train = torch.from_numpy(np.flatnonzero(roles == Role.TRAIN))
        self._validation = torch.from_numpy(np.flatnonzero(roles == Role.VALIDATION))

    def loss(self, out: Tensor, epoch: int) -> Tensor:
        """Return the mean over training devices."""
        return cross_entropy(out[self._train], self._labels[self._train])

    def score(self, out: Tensor) -> float:
        """Return the share of validation devices whose most likely class is their given label."""
        right = out[self._validation].argmax(dim=1) == self._labels[self._validation]
        return float(right.float().mean())


class Denoise:
    """LPGNN's goal: Drop on the training devices; likelihood of the noisy validation labels."""

    def __init__(self, drop: Drop, labels: Ints, roles: Ints) -> None:
        self._drop = drop
        self._validation = torch.from_numpy(np.flatnonzero(roles == Role.VALIDATION))
        self._labels = torch.from_numpy(labels)[self._validation]

    def loss(self, out: Tensor, epoch: int) -> Tensor:
        """Return the loss of `Drop`."""
        return self._drop.loss(out)

    def score(self, out: Tensor) -> float:
        """Return the mean log-likelihood of the labels that validation devices released."""
        return -float(nll_loss(self._drop.log_released(out[self._validation]), self._labels))


class LinkGoal:
    """-log σ(h_u·h_v) over training edges, -log σ(-h_u·h_v) over as many fresh pairs that are none.

    Args:
        pairs: [edges, 2] the edges that the server trains on, u < v, ascending.
        split: with the validation edges.
    """

    def __init__(
        self, pairs: Ints, devices: int, split: EdgeSplit, public: PublicRandomness
    ) -> None:
        self._pairs, self._devices, self._split, self._public = pairs, devices, split, public
        self._keys = pairs[:, 0] * devices + pairs[:, 1]

    def loss(self, out: Tensor, epoch: int) -> Tensor:
        """Return the mean over edges and non-neighbours."""
        generator = self._public.generator("baseline/pairs", epoch)
        pairs = self._pairs
        if len(pairs) > PAIRS:
            pairs = pairs[generator.integers(0, len(pairs), PAIRS)]
        non_neighbours = non_neighbours_to(self._keys, self._devices, len(pairs), generator)
        gain = logsigmoid(_products(out, pairs)), logsigmoid(-_products(out, non_neighbours))
        return -torch.cat(gain).mean()

    def score(self, out: Tensor) -> float:
        """Return the ROC-AUC on the validation edges."""
        split = self._split
        return link_auc(out.numpy(), split.validation, split.validation_non_neighbours)


def goal_of(problem: ServerProblem, labels: Ints | None, edges: Ints) -> Goal:
    """Return the goal of a server that holds these labels and trains on these edges."""
    if problem.split is not None:
        return LinkGoal(edges, problem.graph.devices, problem.split, problem.public)
    return ClassifyGoal(np.asarray(labels), problem.roles)


def non_neighbours_to(keys: Ints, devices: int, count: int, generator: np.random.Generator) -> Ints:
    """Draw [count, 2] pairs that are not among the edges, uniformly, with replacement.

    Args:
        keys: ascending u · devices + v of the edges u < v, of which there are not all.
    """
    drawn = np.empty((0, 2), np.int64)
    while len(drawn) < count:
        ends = np.sort(generator.integers(0, devices, (count + 16, 2)), axis=1)
        key = ends[:, 0] * devices + ends[:, 1]
        place = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        free = (keys[place] != key) & (ends[:, 0] < ends[:, 1])
        drawn = np.concatenate([drawn, ends[free]])
    return drawn[:count]


def _products(rows: Tensor, pairs: Ints) -> Tensor:
    one, other = (rows[torch.from_numpy(pairs[:, end].copy())] for end in (0, 1))
    return (one * other).sum(dim=1)
