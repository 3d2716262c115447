"""The trainer of one shard: a program that yields messages, epoch by epoch.

    trainer = PaperTrainer(shard, endpoint, private, config, classes)
    yield from trainer.setup()                        # features, keys; once per run
    yield from trainer.epochs(0, 25, on_epoch)        # any number of times
    embeddings = yield from trainer.finish()          # with the weights that were selected

Everything that crosses a device's border is a message of `lumos.paper.topics` or
`lumos.aggregate`. Weights are public: every device computes them from the same sums.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lumos.aggregate import AGGREGATORS
from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.ledger_report import LedgerReport
from lumos.model.by_device import device_gradients
from lumos.model.dropout import Drops
from lumos.model.feature_products import Features
from lumos.model.network import Leaves
from lumos.model.pool import Pooled, pool, pool_backward
from lumos.model.tree_tensors import Trees
from lumos.paper.exposure import exposure
from lumos.paper.feature_exchange import exchange_features, on_leaves, without_information
from lumos.paper.network_and_head import FullModel
from lumos.paper.row_messages import rows_of, send_rows
from lumos.paper.settings import settings_of
from lumos.paper.tasks import STATISTICS, Classify, Link, Step, Task
from lumos.paper.topics import LEAF, LEAF_GRADIENT
from lumos.training.adam import Adam
from lumos.training.config import Config
from lumos.training.metrics import dot_products
from lumos.training.outcome import MAIN, Judged, Outcome
from lumos.training.private_data import PrivateData
from lumos.training.trainer import EpochRecord, OnEpoch
from lumos.trees.forest import Forest
from lumos.typing import Arrays, Doubles, Floats, Ints


@dataclass(eq=False)
class Weights:
    """The weights during training: the optimiser, and the best so far."""

    adam: Adam
    best: Doubles = field(repr=False)
    best_score: float = -np.inf
    best_epoch: int = 0

    def learn(self, total: Doubles, epoch: int, *, select: bool) -> EpochRecord:
        """Step from the sum over all devices: gradients, then statistics."""
        gradient, (loss, count, score, scored) = np.split(total, [-len(STATISTICS)])
        if count <= 0:
            raise ProtocolError("no device has anything to train on")
        mean = float(score / scored) if scored > 0 else None
        if select and mean is not None and mean > self.best_score:
            self.best, self.best_score, self.best_epoch = self.adam.weights, mean, epoch
        self.adam.step(gradient / count)
        if not select or mean is None:
            self.best, self.best_epoch = self.adam.weights, epoch
        return EpochRecord(epoch, float(loss / count), mean)


class LeafOrigin(NamedTuple):
    """The origin of the leaves of an inbox."""

    vertex: Ints
    """[leaves] id of the device that the leaf stands for."""
    carrier: Ints
    """[leaves] id of the device whose tree it is in."""


class PaperResult(NamedTuple):
    """The results of the devices of a shard."""

    embeddings: Floats
    """[hosted, width]"""

    def rows(self) -> Arrays:
        """All of it."""
        return self._asdict()

    def with_rows(self, rows: Arrays) -> "PaperResult":
        """Of all devices."""
        return PaperResult(**rows)


class PaperTrainer:
    """The trainer of one shard.

    Args:
        shard: the hosted devices.
        endpoint: whose ledger ideal sums are booked in.
        private: private data of the devices.
        config: settings.
        classes: number of classes; 0 for link.
        control: release features that carry no information.
        step: number of the release.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        private: PrivateData,
        config: Config,
        classes: int,
        *,
        control: bool = False,
        step: int = 0,
    ) -> None:
        self.shard = shard
        self.config = config
        self._private = private
        self._paper = settings_of(config)
        self._control = control
        self._release = step
        self.forest = Forest.grow(
            shard.devices,
            shard.offsets,
            shard.neighbours,
            private.leaves,
            virtual_nodes=self._paper.virtual_nodes,
        )
        self._trees = Trees.of(self.forest)
        self._by_vertex = np.lexsort((self.forest.owner, self.forest.neighbour))
        self._order: tuple[LeafOrigin, Ints] | None = None
        self.model = FullModel(config.model, private.features.shape[1], classes)
        self.model.initialise(shard.public.generator("weights"))
        start = self.model.vector()
        train = config.train
        self.weights = Weights(Adam(start, train.learning_rate, train.weight_decay), start)
        self._updates = AGGREGATORS[train.aggregate](shard, endpoint, config.updates)
        self._task: Task
        if self.model.head is not None:
            self._task = Classify(private, self.model.head)
        else:
            self._task = Link(shard, private)
        self._neighbour: Features

    def setup(self) -> Program[None]:
        """Exchange features, and keys for masked sums."""
        yield from self.receive_features()
        yield from self._updates.setup()

    def receive_features(self) -> Program[None]:
        """Exchange features only: enough to compute embeddings."""
        paper, private = self._paper, self._private
        features = private.features
        if self._control:
            features = without_information(features, paper)
        recovered = yield from exchange_features(
            self.shard, private.leaves, features, paper, step=self._release
        )
        self._neighbour = on_leaves(recovered, paper, paper.recovery)

    def epochs(self, first: int, last: int, on_epoch: OnEpoch | None = None) -> Program[None]:
        """Epochs `first` + 1 … `last`; `on_epoch` is called after each."""
        for number in range(first, last):
            self.model.load(self.weights.adam.weights)
            total = yield from self._epoch(number)
            if total is None:
                raise ProtocolError(
                    "the sum of an epoch was not opened: too few devices were present"
                )
            select = self._paper.select == "validation"
            record = self.weights.learn(total, number + 1, select=select)
            if on_epoch is not None:
                on_epoch(record)

    def last_epoch(self) -> int:
        """With `patience`, it moves on with every better score."""
        epochs, patience = self.config.train.epochs, self._paper.patience
        return min(epochs, self.weights.best_epoch + patience) if patience else epochs

    def rejoin(self, epoch: int) -> Program[None]:
        """After `restore`: `setup` has exchanged everything that is needed."""
        yield from ()

    def state(self) -> Arrays:
        """Everything that the next epochs depend on."""
        weights, adam = self.weights, self.weights.adam
        return {
            "weights": adam.weights,
            "mean": adam.mean,
            "square": adam.square,
            "steps": np.array(adam.steps),
            "best": weights.best,
            "best_score": np.array(weights.best_score),
            "best_epoch": np.array(weights.best_epoch),
        }

    def restore(self, state: Arrays) -> None:
        """Go on from a state."""
        weights, adam = self.weights, self.weights.adam
        adam.weights, adam.mean, adam.square = state["weights"], state["mean"], state["square"]
        adam.steps = int(state["steps"])
        weights.best, weights.best_score = state["best"], float(state["best_score"])
        weights.best_epoch = int(state["best_epoch"])

    def arrays(self) -> Arrays:
        """The selected weights by name; call after `finish`."""
        return {name: value.detach().numpy() for name, value in self.model.named_parameters()}

    def finish(self) -> Program[PaperResult]:
        """Embeddings by the selected weights, without dropout."""
        self.model.load(self.weights.best)
        with torch.no_grad():
            leaves = self._leaves(None)
        # Not inside the block: torch's mode belongs to the process, and others run in between.
        pooled, _ = yield from self._pool(leaves)
        return PaperResult(pooled.embedding.numpy())

    def outcome(self, result: PaperResult, ledger: LedgerReport) -> Outcome:
        """The outcome, from the joined embeddings of all shards."""
        embeddings = result.embeddings
        logits = self._logits(embeddings) if self.model.head is not None else None
        judged: Judged = partial(dot_products, embeddings) if logits is None else logits
        return Outcome(
            embeddings=embeddings,
            logits=logits,
            judged={MAIN: judged},
            best_epoch=self.weights.best_epoch,
            exposed=exposure(self.config, ledger),
            promises=[],
        )

    def load(self, weights: Arrays, kept: Arrays) -> None:
        """Take the weights of an earlier run."""
        self.model.take(weights)
        self.weights.best = self.model.vector()

    def welcome(self) -> Program[Floats]:
        """[hosted, classes] logits by the loaded weights, after one more exchange of features."""
        yield from self.receive_features()
        result = yield from self.finish()
        return self._logits(result.embeddings)

    def _logits(self, embeddings: Floats) -> Floats:
        return self.model.logits(torch.from_numpy(embeddings)).numpy()

    def _leaves(self, drops: Drops | None) -> Leaves:
        leaves: Leaves = self.model.network(
            self._trees, self._private.features, self._neighbour, drops
        )
        return leaves

    def _epoch(self, number: int) -> Program[Doubles | None]:
        """Forward, backward, and the sum of all devices' gradients and statistics."""
        drops = self.model.network.drops(self._trees, self.shard.coins, number)
        leaves = self._leaves(drops)
        pooled, origin = yield from self._pool(leaves)
        step = yield from self._task.step(pooled.embedding, number)
        gradient, attention = pool_backward(pooled, step.back)
        own, foreign = gradient[: len(leaves.own)], gradient[len(leaves.own) :]
        back = Leaves(own, (yield from self._return(origin, foreign, leaves)))

        def update(each: bool) -> Doubles:
            if each:
                return self._each(drops, back, attention, step)
            return self._fused(leaves, back, attention, step)

        return (yield from self._updates.sum_updates(update))

    def _pool(self, leaves: Leaves) -> Program[tuple[Pooled, LeafOrigin]]:
        """POOL (section VI-B): leaves travel to the devices they stand for."""
        shard, forest = self.shard, self.forest
        # Sent in the order of inboxes, so that they need no sorting in every epoch.
        order = self._by_vertex
        inbox = yield send_rows(
            LEAF,
            shard.ids_of(forest.owner[order]),
            forest.neighbour[order],
            leaves.neighbour.detach()[torch.from_numpy(order)],
        )
        width = leaves.own.shape[1]
        received = rows_of(LEAF, inbox, width)
        vertex = torch.cat([self._trees.own_device, torch.from_numpy(shard.local(inbox.receiver))])
        every = torch.cat([leaves.own.detach(), received])
        attention = self.model.attention
        pooled = pool(self.config.model.pool, every, vertex, len(shard), attention)
        return pooled, LeafOrigin(inbox.receiver, inbox.sender)

    def _by_carrier(self, origin: LeafOrigin) -> Ints:
        """The order by carrier, then vertex; cached, since it is the same in every epoch."""
        last = self._order
        if last is None or not all(map(np.array_equal, last[0], origin)):
            self._order = last = (origin, np.lexsort((origin.vertex, origin.carrier)))
        return last[1]

    def _return(self, origin: LeafOrigin, gradient: Tensor, leaves: Leaves) -> Program[Tensor]:
        """Send gradients to the carriers of the leaves; return those of the branches in order."""
        forest = self.forest
        order = self._by_carrier(origin)
        inbox = yield send_rows(
            LEAF_GRADIENT,
            origin.vertex[order],
            origin.carrier[order],
            gradient[torch.from_numpy(order)],
        )
        if not np.array_equal(self.shard.local(inbox.receiver), forest.owner) or not np.array_equal(
            inbox.sender, forest.neighbour
        ):
            raise ProtocolError("leaf gradients: a message is missing, or was not expected")
        return rows_of(LEAF_GRADIENT, inbox, leaves.own.shape[1])

    def _fused(self, leaves: Leaves, back: Leaves, attention: Tensor | None, step: Step) -> Doubles:
        """[weights + statistics] summed over the hosted devices: one backward pass for all."""
        parameters = list(self.model.network.parameters())
        gradients = torch.autograd.grad(
            [*leaves], parameters, [*back], allow_unused=True, materialize_grads=True
        )
        parts = [] if attention is None else [attention.sum(dim=0)]
        parts += [gradient.flatten() for gradient in gradients]
        parts.append(step.head(False))
        flat = [part.detach().numpy().astype(np.float64) for part in parts]
        return np.concatenate([*flat, step.statistics.sum(dim=0).numpy()])

    def _each(
        self, drops: Drops | None, back: Leaves, attention: Tensor | None, step: Step
    ) -> Doubles:
        """[hosted, weights + statistics] each device's vector in the masked sum."""
        gradients = device_gradients(
            self.model.network, self._trees, self._private.features, self._neighbour, drops, back
        )
        parts = [] if attention is None else [attention]
        parts += [torch.stack([*gradients]), step.head(True)]
        flat = [part.detach().numpy().astype(np.float64) for part in parts]
        return np.concatenate([*flat, step.statistics.numpy()], axis=1)
