"""The trainer of one shard: a program that yields messages, epoch by epoch; and the coordinator.

    trainer = PaperTrainer(shard, endpoint, part, keep, config, classes)
    yield from trainer.setup()                        # features, keys; once per run
    yield from trainer.epochs(0, 25, on_epoch)        # any number of times
    embeddings = yield from trainer.finish()          # with the weights that were selected

Everything that crosses a device's border is a message of `lumos.paper.messages` or
`lumos.secagg`. Weights are public: every device computes them from the same sums.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lumos.device.shard import Shard
from lumos.errors import InputError, ProtocolError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.messages import Door, Topic
from lumos.exchange.observer import LedgerReport
from lumos.graph.facts import GraphFacts, GraphPart
from lumos.ldp.account import PrivacyAccount
from lumos.ldp.one_bit import ONE_BIT, RecoveredFeatures
from lumos.model import ModelSettings
from lumos.model.custom import TorchOptimizer
from lumos.model.dropout import Drops
from lumos.model.network import (
    Leaves,
    Pooled,
    TreeNetwork,
    by_device,
    device_gradients,
    pool,
    pool_backward,
)
from lumos.model.tree_tensors import Features, Trees, span
from lumos.paper.messages import (
    CARRY,
    CLEAR_FEATURES,
    EMBEDDING,
    EMBEDDING_GRADIENT,
    FEATURES,
    LEAF,
    LEAF_GRADIENT,
    SHARED_FEATURES,
    exchange_features,
    from_slots,
    on_leaves,
    received_rows,
    received_slots,
    send_rows,
    without_information,
)
from lumos.paper.profile import PaperSettings, settings_of, unchecked
from lumos.paper.tasks import Classify, Link, Step, Task
from lumos.paper.updates import SumLayout
from lumos.secagg import COORDINATORS
from lumos.storage import part_of
from lumos.training.config import Config, TrainSettings
from lumos.training.guarantees import (
    ABOUT,
    AGAINST,
    DEGREE,
    EDGE_ADDED_OR_REMOVED,
    FEATURES_REPLACED,
    LABEL_REPLACED,
    NO_GUARANTEE,
    TOLD_APART,
    WEAK,
)
from lumos.training.metrics import dot_products
from lumos.training.problem import rows_of
from lumos.training.sums import FollowedSums, RunSums, SummingTrainer
from lumos.training.trainer import MAIN, Adam, EpochRecord, Evaluated, OnEpoch, Optimizer, Outcome
from lumos.trees.forest import Forest
from lumos.typing import Arrays, Doubles, Flags, Floats, Ints, StatePart

BUFFER = "buffer/"
"""Beginning of the names of buffers in `Outcome.kept`."""


class FullModel(torch.nn.Module):
    """The trained model.

    Args:
        settings: of the network.
        features: d.
        classes: outputs of the linear head; 0 without a head (link).
    """

    def __init__(self, settings: ModelSettings, features: int, classes: int) -> None:
        super().__init__()
        self.network = TreeNetwork(settings, features)
        self.attention: torch.nn.Parameter | None = None
        if settings.pool == "attention":
            self.attention = torch.nn.Parameter(torch.zeros(settings.output))
        self.head = torch.nn.Linear(settings.output, classes) if classes else None

    def initialise(self, generator: np.random.Generator) -> None:
        """Weights from public randomness; attention starts as the average."""
        self.network.initialise(generator)
        if self.head is not None:
            outputs, inputs = self.head.weight.shape
            reach = float(np.sqrt(6 / (inputs + outputs)))
            values = generator.uniform(-reach, reach, (outputs, inputs)).astype(np.float32)
            with torch.no_grad():
                self.head.weight.copy_(torch.from_numpy(values))
                self.head.bias.zero_()

    def vector(self) -> Doubles:
        """[weights] all parameters."""
        flat = torch.cat([weight.detach().flatten().cpu() for weight in self.parameters()])
        return flat.numpy().astype(np.float64)

    def load(self, vector: Doubles) -> None:
        """Set all parameters from a vector."""
        flat, start = torch.from_numpy(vector.astype(np.float32)), 0
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(flat[start : start + weight.numel()].view(weight.shape))
                start += weight.numel()

    def kept(self) -> Arrays:
        """Buffers of layers that are not ours, such as ε of GIN: constants, but part of them."""
        return {
            f"{BUFFER}{name}": value.detach().cpu().numpy() for name, value in self.named_buffers()
        }

    def take(self, state: Arrays) -> None:
        """Set all parameters and buffers by name; names of buffers begin with `BUFFER`.

        Raises:
            InputError: they are not those of this model.
        """
        constants, mine = part_of(state, BUFFER), part_of(self.kept(), BUFFER)
        weights = {name: array for name, array in state.items() if not name.startswith(BUFFER)}
        shapes = {name: tuple(value.shape) for name, value in self.named_parameters()}
        numbers = all(array.dtype == np.float32 for array in weights.values())
        found = {name: array.shape for name, array in weights.items()}
        if differing := sorted(shapes.items() ^ found.items()):
            name = differing[0][0]
            raise InputError(
                f"the weights do not match the model: {name} is {_shape(found.get(name))} in the "
                f"run, {_shape(shapes.get(name))} in the model"
            )
        if not numbers or {n: (a.shape, a.dtype) for n, a in constants.items()} != {
            n: (a.shape, a.dtype) for n, a in mine.items()
        }:
            raise InputError("the weights do not match the model: they are of other types")
        with torch.no_grad():
            for name, value in self.named_parameters():
                value.copy_(torch.from_numpy(weights[name]))
            for name, constant in self.named_buffers():
                constant.copy_(torch.from_numpy(constants[name]))

    def logits(self, embedding: Tensor) -> Tensor:
        """[devices, classes] output of the head."""
        if self.head is None:
            raise ValueError("a model for links has no head")
        with torch.no_grad():
            out: Tensor = self.head(embedding)
        return out

    @property
    def sizes(self) -> list[int]:
        """Numbers of weights of all tensors."""
        return [parameter.numel() for parameter in self.parameters()]


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else str(list(shape))


@dataclass(eq=False)
class Weights:
    """The weights during training: the optimizer, and the best so far."""

    optimizer: Optimizer
    best: Doubles = field(repr=False)
    layout: SumLayout = field(repr=False)
    steps: int = 1
    """Steps from one sum: as many as each device made for it."""
    best_score: float = -np.inf
    best_epoch: int = 0

    def learn(self, total: Doubles, epoch: int, *, select: bool) -> EpochRecord:
        """Step from the sum over all devices."""
        gradient, (loss, count, score, scored) = self.layout.read(total)
        if count <= 0:
            raise ProtocolError("no device has anything to train on")
        mean = float(score / scored) if scored > 0 else None
        if select and mean is not None and mean > self.best_score:
            self.best, self.best_score, self.best_epoch = self.optimizer.weights, mean, epoch
        for _ in range(self.steps):
            self.optimizer.step(gradient / count)
        if not select or mean is None:
            self.best, self.best_epoch = self.optimizer.weights, epoch
        return EpochRecord(epoch, float(loss / count), mean)


def make_optimizer(train: TrainSettings, model: FullModel) -> Optimizer:
    """Adam, or the torch optimizer of the settings.

    Raises:
        UsageError: its factory fails.
    """
    start = model.vector()
    if train.optimizer is None:
        return Adam(start, train.learning_rate, train.weight_decay)
    shapes = [weight.shape for weight in model.parameters()]
    return TorchOptimizer(train.optimizer, start, shapes)


def check_optimizer(config: Config, facts: GraphFacts) -> None:
    """Refuse an optimizer that cannot step by a gradient, or be saved.

    Raises:
        UsageError: it cannot.
    """
    model = FullModel(config.model, facts.feature_count, facts.class_count)
    optimizer = make_optimizer(config.train, model)
    if isinstance(optimizer, TorchOptimizer):
        optimizer.check()


class PaperResult(NamedTuple):
    """The results of the devices of a shard."""

    embeddings: Floats
    """[hosted, width]"""
    logits: Floats
    """[hosted, classes]; no column without a head."""

    def state_dict(self) -> Arrays:
        """All of it."""
        return self._asdict()

    def load_state_dict(self, rows: Arrays) -> "PaperResult":
        """Return the result for all devices."""
        return PaperResult(**rows)


class PaperTrainer(SummingTrainer):
    """The trainer of one shard.

    A neighbour whose messages do not come is lost: its leaf is missing from the pool, its gradient
    contributes nothing, and from the next epoch on it has no branch.

    Args:
        shard: the hosted devices.
        endpoint: whose ledger ideal sums are booked in.
        part: private data of the devices.
        keep: [slots] whether the device carries the edge.
        config: settings.
        classes: number of classes; 0 for link.
        alone: trees have no neighbours.
        control: release features that carry no information.
        step: number of the release.
        follows: the coordinator's part in sums, where it follows the training without a device;
            None for that of the hosted devices.
        account: privacy account of a real device, which counts the run; None for none.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        part: GraphPart,
        keep: Flags,
        config: Config,
        classes: int,
        *,
        alone: bool = False,
        control: bool = False,
        step: int = 0,
        follows: FollowedSums | None = None,
        account: PrivacyAccount | None = None,
    ) -> None:
        self.shard = shard
        self.config = config
        self._features = rows_of(part.features)
        self._leaves_at = np.zeros_like(keep) if alone else keep
        """[slots] whether the neighbour has a leaf in the device's tree."""
        self._paper = settings_of(config)
        self._control = control
        self._release = step
        self._branches = np.flatnonzero(self._leaves_at)
        """[branches] slots of the neighbours that have a leaf in the tree."""
        self._account = account
        self._follows = follows is not None
        if not self._follows:
            self._grow()
        self.model = FullModel(config.model, self._features.shape[1], classes)
        self.model.initialise(shard.public.generator("weights"))
        train = config.train
        layout = SumLayout(config, shard.total, self.model.sizes)
        self.weights = Weights(
            make_optimizer(train, self.model),
            self.model.vector(),
            layout,
            self._paper.local_steps,
        )
        self.sums = follows or RunSums(shard, endpoint, config)
        self._task: Task
        if self.model.head is not None:
            self._task = Classify(part, self.model.head)
        else:
            self._task = Link(shard, keep, part.held_back)
        self._neighbour: Features
        self._carriers: Ints

    def _grow(self) -> None:
        """Build the trees of the present branches."""
        shard = self.shard
        self.forest = Forest(
            devices=shard.devices,
            owner=shard.owner[self._branches],
            neighbour=shard.neighbours[self._branches],
            virtual_nodes=self._paper.virtual_nodes,
        )
        self._trees = Trees.of(self.forest)
        self._by_vertex = np.lexsort((self.forest.owner, self.forest.neighbour))
        self._by_owner: tuple[Ints, Ints] | None = None

    def _keep_branches(self, kept: Flags) -> None:
        """Drop the other branches, with the features on their leaves."""
        rows = np.flatnonzero(kept)
        self._branches = self._branches[rows]
        features = self._neighbour
        self._neighbour = (
            features.take(rows) if isinstance(features, RecoveredFeatures) else features[rows]
        )
        self._grow()

    def setup(self) -> Program[None]:
        """Exchange features, and keys for masked sums."""
        yield from self.receive_features()
        yield from self.sums.setup()

    def warm_up(self) -> None:
        """Differentiate once, on a tree with one branch: torch imports a lot on the way."""
        one = np.zeros(1, np.int64)
        trees = Trees.of(Forest(devices=one, owner=one, neighbour=one + 1))
        network = self.model.network
        nothing = torch.zeros(1, network.features)
        leaves = network(trees, nothing, nothing)
        back = Leaves(*map(torch.zeros_like, leaves))
        [*device_gradients(network, trees, nothing, nothing, None, back)]

    def enrol(self) -> Program[None]:
        """As `setup`."""
        yield from self.setup()

    def receive_features(self) -> Program[None]:
        """Exchange features only: enough to compute embeddings."""
        if self._follows:
            return
        paper, features = self._paper, self._features
        if self._control:
            features = without_information(features, paper)
        exchanged = yield from exchange_features(
            self.shard, self._leaves_at, features, paper, step=self._release
        )
        recovered = exchanged.features
        if isinstance(recovered, RecoveredFeatures):  # of the paper's own mechanism
            recovered = on_leaves(recovered, paper, paper.recovery)
        self._neighbour, self._carriers = recovered, exchanged.carriers
        if len(exchanged.branches) < len(self._branches):
            self._branches = exchanged.branches
            self._grow()

    def epochs(self, first: int, last: int, on_epoch: OnEpoch | None = None) -> Program[None]:
        """Epochs `first` + 1 … `last`; `on_epoch` is called after each.

        Those after `last_epoch` are empty.
        """
        for number in range(first, last):
            if number >= self.last_epoch():
                return
            self.model.load(self.weights.optimizer.weights)
            total = yield from self._epoch(number)
            select = self._paper.select == "validation"
            record = self.weights.learn(total, number + 1, select=select)
            if on_epoch is not None:
                on_epoch(record)

    def noise_added(self) -> str:
        """Return a sentence on the devices in sums, as the coordinator counts; none adds noise."""
        present, total, weights = self.sums.fewest, self.shard.total, self.weights
        chosen = "the last epoch"
        if np.isfinite(weights.best_score):
            link = self.config.train.task == "link"
            score = f"log-likelihood {weights.best_score:.4f}"
            score = score if link else f"accuracy {100 * weights.best_score:.1f} %"
            chosen = f"epoch {weights.best_epoch:,}, the best on validation ({score})"
        return (
            f"Of {total:,} devices at least {present:,} were in each sum, and nobody added noise. "
            f"The weights are those of {chosen}."
        )

    def has_sessions(self, epoch: int) -> bool:
        """Return False: after the trees, no two devices have sessions."""
        return False

    def is_replayed(self, topic: Topic) -> bool:
        """Return whether a message is one of `receive_features`."""
        return topic in (CARRY, FEATURES, SHARED_FEATURES, CLEAR_FEATURES)

    def replay_received(self, epoch: int) -> Program[None]:
        """Receive features again, for the branches that were there."""
        branches = self._branches
        self._branches = np.flatnonzero(self._leaves_at)
        yield from self.receive_features()
        if not self._follows and len(branches) < len(self._branches):
            self._keep_branches(np.isin(self._branches, branches))
            self._task.keep(self._branches)

    def last_epoch(self) -> int:
        """With `patience`, it moves on with every better score."""
        epochs, patience = self.config.train.epochs, self._paper.patience
        return min(epochs, self.weights.best_epoch + patience) if patience else epochs

    def rejoin(self, epoch: int) -> Program[None]:
        """After `load_state_dict`: `setup` has exchanged everything that is needed."""
        yield from ()

    def state_dict(self, part: StatePart = "run") -> Arrays:
        """Everything that the next epochs depend on, or after `finish` the selected weights.

        The part `device` has no key and no neighbour's message.
        """
        weights = self.weights
        if part == "model":
            named = self.model.named_parameters()
            return {name: value.detach().cpu().numpy() for name, value in named}
        state = {
            **weights.optimizer.state_dict("optimizer"),
            "best_score": np.array(weights.best_score),
            "best_epoch": np.array(weights.best_epoch),
            **{f"sum/{name}": array for name, array in weights.layout.state_dict().items()},
        }
        if weights.best is not weights.optimizer.weights:  # else they are there already
            state["best"] = weights.best
        if part == "run":
            return state
        if self._account is not None:
            state |= self._account.seal().arrays()
        return {
            **{f"trainer/{name}": array for name, array in state.items()},
            **{f"sums/{name}": array for name, array in self.sums.state_dict().items()},
            "branches": self._branches,
        }

    def load_state_dict(self, state: Arrays, part: StatePart = "run") -> None:
        """Go on from a state, or take the weights of an earlier run."""
        weights = self.weights
        if part == "model":
            self.model.take(state)
            weights.best = self.model.vector()
            return
        if part == "device":
            self.sums.load_state_dict(part_of(state, "sums/"))
            self._branches = state["branches"]
            state = part_of(state, "trainer/")
        weights.optimizer.load_state_dict(state, "optimizer")
        weights.best = state.get("best", weights.optimizer.weights)
        weights.best_score = float(state["best_score"])
        weights.best_epoch = int(state["best_epoch"])
        weights.layout.load_state_dict(part_of(state, "sum/"))

    def finish(self) -> Program[PaperResult]:
        """Embeddings by the selected weights, without dropout."""
        self.model.load(self.weights.best)
        if self._follows:
            width = self.config.model.output
            return self._result(torch.empty(0, width))
        with torch.no_grad():
            leaves = self._leaves(None)
        # Not inside the block: torch's mode belongs to the process, and others run in between.
        pooled, _ = yield from self._pool(leaves)
        return self._result(pooled.embedding)

    def _result(self, embeddings: Tensor) -> PaperResult:
        none = np.empty((len(embeddings), 0), np.float32)
        logits = none if self.model.head is None else self.model.logits(embeddings).numpy()
        return PaperResult(embeddings.numpy(), logits)

    def outcome(self, result: PaperResult, ledger: LedgerReport) -> Outcome:
        """The outcome, from the joined embeddings of all shards."""
        embeddings = result.embeddings
        logits = None if self.model.head is None else result.logits
        evaluated: Evaluated = partial(dot_products, embeddings) if logits is None else logits
        return Outcome(
            ledger=ledger,
            embeddings=embeddings,
            logits=logits,
            evaluated={MAIN: evaluated},
            best_epoch=self.weights.best_epoch,
            exposed=exposure(self.config, ledger, sees_devices=not self._follows),
            kept=self.model.kept(),
            warnings=[*_warnings(self._paper), *self.weights.layout.warnings()],
            guarantees=exposed_rows(self.config),
        )

    def predict_new_devices(self) -> Program[Floats]:
        """[hosted, classes] logits by the loaded weights, after one more exchange of features."""
        yield from self.receive_features()
        return (yield from self.finish()).logits

    def _leaves(self, drops: Drops | None) -> Leaves:
        leaves: Leaves = self.model.network(self._trees, self._features, self._neighbour, drops)
        return leaves

    def _epoch(self, number: int) -> Program[Doubles]:
        """Forward, backward, and the sum of all devices' gradients and statistics."""
        if self._follows:
            nothing = np.empty((0, self.weights.layout.width))
            followed: Doubles = yield from self.sums.sum(lambda _: nothing, None, number)
            return followed
        drops = self.model.network.drops(self._trees, self.shard.randomness, number)
        leaves = self._leaves(drops)
        pooled, origin = yield from self._pool(leaves)
        step = yield from self._task.step(pooled.embedding, number)
        gradient, attention = pool_backward(pooled, step.back)
        own, foreign = gradient[: len(leaves.own)], gradient[len(leaves.own) :]
        arrived, returned = yield from self._return(origin, foreign, leaves)
        back = Leaves(own, returned)

        def update(each: bool) -> Doubles:
            if self._paper.local_steps > 1:
                return self._stepped(each, self._local(drops, back, pooled, origin, step), step)
            if each:
                return self._each(drops, back, attention, step)
            return self._fused(leaves, back, attention, step)

        total: Doubles = yield from self.sums.sum(update, None, number)
        if not arrived.all():  # from the next epoch on
            self._keep_branches(arrived)
            self._task.keep(self._branches)
        return total

    def _pool(self, leaves: Leaves) -> Program[tuple[Pooled, Ints]]:
        """POOL (section VI-B): leaves travel to the devices they stand for.

        Returns:
            the pooled embeddings, and the slots over which leaves came.
        """
        shard, forest = self.shard, self.forest
        # Sent in the order of inboxes, so that they need no sorting in every epoch.
        order, width = self._by_vertex, leaves.own.shape[1]
        inbox = yield send_rows(
            LEAF,
            shard.ids_of(forest.owner[order]),
            forest.neighbour[order],
            leaves.neighbour.detach()[torch.from_numpy(order)],
            awaits=shard.neighbours,
            check=from_slots(LEAF, shard, self._carriers, width),
        )
        origin = received_slots(LEAF, shard, inbox.batch, self._carriers)
        received = received_rows(LEAF, inbox.batch, width)
        vertex = torch.cat([self._trees.own_device, torch.from_numpy(shard.owner[origin])])
        every = torch.cat([leaves.own.detach(), received])
        attention = self.model.attention
        pooled = pool(self.config.model.pool, every, vertex, len(shard), attention)
        return pooled, origin

    def _order(self, origin: Ints) -> Ints:
        """The order of slots by neighbour, then device; cached, as it is the same in each epoch."""
        last, shard = self._by_owner, self.shard
        if last is None or not np.array_equal(last[0], origin):
            order = np.lexsort((shard.owner[origin], shard.neighbours[origin]))
            self._by_owner = last = (origin, order)
        return last[1]

    def _return(
        self, origin: Ints, gradient: Tensor, leaves: Leaves
    ) -> Program[tuple[Flags, Tensor]]:
        """Send gradients to the owners of the leaves.

        Returns:
            [branches] whose gradient came, and their gradients: 0 where none came.
        """
        shard, branches, width = self.shard, self._branches, leaves.own.shape[1]
        sent = origin[order := self._order(origin)]
        inbox = yield send_rows(
            LEAF_GRADIENT,
            shard.ids_of(shard.owner[sent]),
            shard.neighbours[sent],
            gradient[torch.from_numpy(order)],
            awaits=shard.neighbours,
            check=from_slots(LEAF_GRADIENT, shard, branches, width),
        )
        slots = received_slots(LEAF_GRADIENT, shard, inbox.batch, branches)
        received = received_rows(LEAF_GRADIENT, inbox.batch, width)
        arrived = np.isin(branches, slots)
        if arrived.all():
            return arrived, received
        back = torch.zeros(len(branches), width)
        back[torch.from_numpy(arrived)] = received
        return arrived, back

    def _fused(self, leaves: Leaves, back: Leaves, attention: Tensor | None, step: Step) -> Doubles:
        """[weights + statistics] summed over the hosted devices: one backward pass for all."""
        parameters = list(self.model.network.parameters())
        gradients = torch.autograd.grad(
            [*leaves], parameters, [*back], allow_unused=True, materialize_grads=True
        )
        parts = [] if attention is None else [attention.sum(dim=0)]
        parts += [gradient.flatten().cpu() for gradient in gradients]
        parts.append(step.head(False))
        flat = [part.detach().numpy().astype(np.float64) for part in parts]
        statistics: Doubles = step.statistics.sum(dim=0).numpy()
        return self.weights.layout.fused(np.concatenate(flat), statistics)

    def _each(
        self, drops: Drops | None, back: Leaves, attention: Tensor | None, step: Step
    ) -> Doubles:
        """[hosted, weights + statistics] each device's vector in the masked sum."""
        gradients = device_gradients(
            self.model.network, self._trees, self._features, self._neighbour, drops, back
        )
        parts = [] if attention is None else [attention]
        parts += [torch.stack([*gradients]), step.head(True)]
        flat = [part.detach().numpy().astype(np.float64) for part in parts]
        statistics: Doubles = step.statistics.numpy()
        return self.weights.layout.vectors(np.concatenate(flat, axis=1), statistics)

    def _local(
        self, drops: Drops | None, back: Leaves, pooled: Pooled, origin: Ints, step: Step
    ) -> Iterator[Tensor]:
        """[weights] of each device in turn: the mean gradient of its local steps.

        A device goes down the gradient of its own loss, and of its neighbours' as far as they sent
        it: Σ_v <gradient of leaf v, leaf v>, constant but for the leaf. So the first gradient is
        that of a single step. Leaves that came, embeddings of links and what falls out stay those
        of the epoch.
        """
        model, trees, kind = self.model, self._trees, self.config.model.pool
        start, rate = self.weights.optimizer.weights, self.config.train.learning_rate
        steps, parameters = self._paper.local_steps, list(self.model.network.parameters())
        received = pooled.leaves[len(back.own) :]
        ends = np.searchsorted(self.shard.owner[origin], np.arange(trees.devices + 1))
        for device, (piece, fallen) in enumerate(by_device(trees, drops)):
            features = span(self._features, piece.devices), span(self._neighbour, piece.branches)
            others = received[ends[device] : ends[device + 1]]
            total, weights = torch.zeros(len(start), dtype=torch.float64), start
            for _ in range(steps):
                model.load(weights)
                leaves = model.network(piece.trees, *features, fallen)
                every = torch.cat([leaves.own.detach(), others])
                here = pool(
                    kind, every, torch.zeros(len(every), dtype=torch.int64), 1, model.attention
                )
                slope, head = step.again(device, here.embedding)
                own, attention = pool_backward(here, slope)
                gradients = torch.autograd.grad(
                    [*leaves],
                    parameters,
                    [own[: len(leaves.own)], back.neighbour[piece.branches]],
                    allow_unused=True,
                    materialize_grads=True,
                )
                parts = [] if attention is None else [attention.flatten()]
                parts += [gradient.flatten().cpu() for gradient in gradients]
                gradient = torch.cat([*parts, head]).detach().to(torch.float64)
                total += gradient
                weights = weights - rate * gradient.numpy()
            yield total / steps
        model.load(start)

    def _stepped(self, each: bool, gradients: Iterator[Tensor], step: Step) -> Doubles:
        """The vectors of all devices, or their sum, from the gradient of each."""
        layout, statistics = self.weights.layout, step.statistics
        if each:
            return layout.vectors(torch.stack([*gradients]).numpy(), statistics.numpy())
        total = sum(gradients, torch.zeros(sum(self.model.sizes), dtype=torch.float64))
        return layout.fused(total.numpy(), statistics.sum(dim=0).numpy())


class PaperCoordinator:
    """The coordinator's program: one sum per epoch.

    Args:
        width: numbers of a vector.
    """

    def __init__(self, config: Config, total: int, endpoint: Endpoint, width: int) -> None:
        self._sums = COORDINATORS[config.train.aggregate](total, endpoint, config.updates)
        self._width = width

    def setup(self) -> Program[None]:
        """Draw the mask graph."""
        yield from self._sums.setup()

    def epochs(self, first: int, last: int) -> Program[None]:
        """One sum per epoch."""
        for _ in range(first, last):
            yield from self._sums.sum(self._width)

    def finish(self) -> Program[None]:
        """Nothing to do."""
        yield from ()


def _warnings(paper: PaperSettings) -> list[str]:
    """Return a warning about an ε that nothing checked."""
    if not unchecked(paper):
        return []
    return [
        f"ε = {paper.epsilon:g} of released features is unchecked: encoder {paper.encoder!r} "
        "declares it, and no enumeration or proof of Lumos confirms it"
    ]


def exposed_rows(config: Config) -> list[dict[str, Any]]:
    """Return the rows of a table of guarantees: none is made, and each names the topics."""
    link, paper = config.train.task == "link", settings_of(config)
    everybody = "neighbours, and non-neighbours in pairs" if link else "neighbours"
    features = [LEAF] if paper.noisy else [CLEAR_FEATURES, LEAF]
    exposed = {
        FEATURES_REPLACED: (everybody, [*features, *[EMBEDDING] * link]),
        **({} if link else {LABEL_REPLACED: ("neighbours", [LEAF_GRADIENT])}),
        EDGE_ADDED_OR_REMOVED: (everybody, [LEAF_GRADIENT, *[EMBEDDING_GRADIENT] * link]),
        DEGREE: ("neighbours", [LEAF_GRADIENT]),
    }
    return [
        {
            ABOUT: about,
            "in every epoch": f"{NO_GUARANTEE}: exposed to {who} by "
            + ", ".join(topic.name for topic in topics),
            AGAINST: who,
            TOLD_APART: None,
            WEAK: False,
        }
        for about, (who, topics) in exposed.items()
    ]


def exposure(config: Config, ledger: LedgerReport, *, sees_devices: bool = True) -> str:
    """Return what the run gave away, in words, with the ledger's figures.

    Args:
        sees_devices: whether the ledger has what devices sent each other; the coordinator's of
            real devices has not.
    """
    opened = [line for line in ledger.topics.values() if line.door == Door.OPEN]
    if not opened and sees_devices:
        return "Nothing left a device through the door `open`."
    messages = f"{sum(line.messages for line in opened):,} messages" if sees_devices else "messages"
    sentences = [
        f"This run used the door `open`: {messages} between devices without any protection.",
        "Every epoch, a device that carries an edge sent its neighbour an embedding computed from "
        "its own raw features, and got back a gradient that depends on the neighbour's "
        + ("label" if config.train.task == "classify" else "links")
        + "; the size of that gradient tells how many leaves the neighbour has.",
    ]
    if config.train.task == "link":
        sentences.append(
            "Embeddings computed from raw features also went to non-neighbours who drew the "
            "device as "
            "a negative sample, and each asker's gradient told the asked, non-neighbours too, the "
            "direction of the asker's own embedding."
        )
    paper = settings_of(config)
    each = ledger.epsilon_per_receiver if sees_devices else paper.epsilon
    collusion = f"up to {ledger.epsilon_collusion:g}" if sees_devices else "more"
    if paper.encoder != ONE_BIT:
        sentences.append(
            f"Features were released by encoder {paper.encoder!r}, the same message to all "
            f"receivers: ε = {ledger.epsilon_collusion if sees_devices else paper.epsilon:g}"
            f"{unchecked(paper)}. But since embeddings of raw features are open, this ε protects "
            "little here."
        )
    elif paper.noisy:
        sentences.append(
            f"Released features cost ε = {each:g} towards each receiver and {collusion} "
            "if a device's receivers collude; the form of a "
            "release tells its receiver about how many receivers there are, and so the sender's "
            "degree. But since embeddings of raw features are open, this ε protects little here: "
            "`lumos audit` finds a neighbour's words from embeddings, with or without it."
        )
    else:
        sentences.append("Features went to neighbours as they are (ε = inf).")
    sentences.append(
        "Losses and updates were only added up"
        + (
            " by masked sums: nobody saw a single device's."
            if config.train.aggregate == "secure"
            else ", here in the clear by the simulation (`aggregate='ideal'`)."
        )
    )
    return " ".join(sentences)
