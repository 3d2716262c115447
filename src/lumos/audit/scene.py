"""What an audit looks at: a graph, settings, and recorded runs of them."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lumos.device.coins import PublicCoins
from lumos.device.shard import COORDINATOR
from lumos.exchange.batch import Batch
from lumos.exchange.tape import Keep, Tape, recording
from lumos.exchange.topic import Door, Topic
from lumos.graph import Graph
from lumos.runs.run import Run
from lumos.runs.train import train
from lumos.training.config import Config
from lumos.training.given_split import GivenSplit, edge_split, vertex_split
from lumos.training.split import EdgeSplit, Role
from lumos.typing import Flags, Ints

SECURE_SUM = "aggregate/sum"
OPENED = (SECURE_SUM, "aggregate/clear-sum/ideal")
"""Topics on which the coordinator tells everybody a sum, of either backend."""

Say = Callable[[str], None]

OPEN_EPOCHS = 20
"""Epochs of a recorded run whose profile sends messages without protection. The first epochs of a
long run are the same as those of a short one, and each tells more: figures are lower bounds."""
OPEN_KEPT = 400
"""Devices whose unprotected messages are kept: all of them would fill the memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded:
    """A run, and everything that passed in it."""

    run: Run
    tape: Tape = field(repr=False)
    graph: Graph = field(repr=False)
    """As the devices know it: of training edges only, for links."""
    roles: Ints = field(repr=False)
    """[devices] who trains, who validates: public. For links everybody is `NOBODY`."""
    split: EdgeSplit | None = field(default=None, repr=False)
    """Of links."""

    @property
    def config(self) -> Config:
        """All settings of the run."""
        return self.run.config


class Scene:
    """One graph under one profile, recorded as attacks ask for it.

    Args:
        graph: the graph; attackers get no part of it but what the protocol tells them, and what
            an attack says that they are assumed to know.
        settings: as `lumos.train` takes them, without `task`.
        tasks: `classify`, `link` or both.
        seed: run seed.
        split: as `lumos.train` takes it.
        say: called with what is being done.
    """

    def __init__(
        self,
        graph: Graph,
        settings: dict[str, Any],
        *,
        tasks: Collection[str],
        seed: int = 0,
        split: GivenSplit = None,
        say: Say | None = None,
    ) -> None:
        self.graph = graph
        self.split = split
        self.settings = dict(settings)
        self.tasks = tuple(tasks)
        self.seed = seed
        self.say: Say = say or (lambda text: None)
        self._kept: dict[str, Recorded] = {}

    def config(self, task: str, **changes: Any) -> Config:
        """All settings for a task; those that have no meaning for it are left out."""
        wanted = {**self.settings, **changes, "task": task}
        made = Config.of(**wanted)
        return Config.of(
            **{
                name: value
                for name, value in wanted.items()
                if name == "task" or not made.profile.ignores(name, made)
            }
        )

    def recorded(self, task: str) -> Recorded:
        """The run itself, recorded once; bodies of masked vectors are not kept.

        Of a profile that opens the door `open`, the first epochs are recorded, with comparisons in
        the clear, unless settings say otherwise; and unprotected messages of some devices.
        """
        if task not in self._kept:
            self.say(f"recording a run ({task})")
            config, changes = self.config(task), dict[str, Any]()
            if Door.OPEN in config.profile.doors:
                short = {"epochs": min(OPEN_EPOCHS, config.train.epochs), "compare": "ideal"}
                changes = {name: short[name] for name in short if name not in self.settings}
            keep = open_ones_of(self.watched())
            self._kept[task] = self.record(self.graph, task, keep=keep, **changes)
        return self._kept[task]

    def watched(self) -> Flags:
        """[devices] whose unprotected messages are kept, sent and received: `OPEN_KEPT` at most."""
        some = np.random.default_rng(self.seed).permutation(self.graph.devices)[:OPEN_KEPT]
        watched = np.zeros(self.graph.devices, np.bool_)
        watched[some] = True
        return watched

    def record(
        self,
        graph: Graph,
        task: str,
        *,
        seed: int | None = None,
        keep: Keep | None = None,
        **changes: Any,
    ) -> Recorded:
        """A further run, with other settings or on another graph.

        Args:
            seed: another run seed.
            keep: which messages the tape keeps; all by default.
            changes: settings that differ.
        """
        seed = self.seed if seed is None else seed
        config = self.config(task, **{"floor": False, "control": False, **changes})
        with recording(keep) as tape:
            run = train(graph, config, seed=seed, split=self.split, carrier="recording")
        public = PublicCoins(seed)
        if task == "link":
            split = edge_split(graph, self.split, public).split
            roles = np.full(graph.devices, Role.NOBODY, np.int64)
            return Recorded(run=run, tape=tape, graph=split.training, roles=roles, split=split)
        roles = vertex_split(graph, self.split, public).roles
        return Recorded(run=run, tape=tape, graph=graph, roles=roles)


def without_masked_vectors(topic: Topic, batch: Batch) -> Batch | None:
    """Everything but what nobody can read: vectors under masks, and what ideal sums add up.

    Of a sum that all devices receive, one copy.
    """
    if not topic.name.startswith(("aggregate/", "products/")):
        return batch
    if topic.name not in OPENED:
        return None
    return batch.take(np.flatnonzero(batch.sender == COORDINATOR)[:1])


def open_ones_of(devices: Flags) -> Keep:
    """All but masked vectors, and of the door `open` only what these devices receive or send.

    Args:
        devices: [devices] whose messages are kept.
    """
    some = received_by(devices)

    def keep(topic: Topic, batch: Batch) -> Batch | None:
        unprotected = topic.door is Door.OPEN
        return some(topic, batch) if unprotected else without_masked_vectors(topic, batch)

    return keep


def received_by(devices: Flags) -> Keep:
    """Only what these devices receive, or send, and what the coordinator says.

    Args:
        devices: [devices] whose messages are kept.
    """

    def keep(topic: Topic, batch: Batch) -> Batch | None:
        if topic.name.startswith(("aggregate/", "products/")):
            return without_masked_vectors(topic, batch)
        wanted = (batch.sender < 0) | (batch.receiver < 0)
        ends = ~wanted
        wanted[ends] = devices[batch.receiver[ends]] | devices[batch.sender[ends]]
        return batch.take(np.flatnonzero(wanted))

    return keep
