"""Audits: recorded runs of a graph, the part of a recording that an adversary gets, `run_audit`.

Attacks read a tape through the functions of this module only. By adversary:

- *one neighbour* u of v: what passed between u and v, in both directions (`sent_values`,
  `sent_messages`, `slots_of`);
- *pooled neighbours* of v: the same of all of them;
- *a non-neighbour*: what passed between it and v, after it was a candidate or asked a question;
- *everybody*: sums that were opened (`opened_sums`), weights that follow from them;
- *the coordinator*: what was sent to it, but for bodies of masked vectors, which nobody can read;
- *a broker* delivers the messages: senders, receivers, sizes and rounds of all (`Tape.traffic`),
  and bodies unless the transport seals them.
"""

import math
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import lumos
from lumos.audit.attacks import ATTACKS, Attack
from lumos.audit.table import AuditReport, AuditRow
from lumos.device.randomness import PublicRandomness
from lumos.device.shard import COORDINATOR
from lumos.display import ProgressOption, displayed
from lumos.errors import UsageError
from lumos.exchange.messages import Batch, Door, Topic
from lumos.exchange.tape import Keep, Tape, recording
from lumos.graph import Graph
from lumos.graph.io import take_reading
from lumos.graph.sources import as_graph
from lumos.runs.run import Run
from lumos.runs.schema import plain
from lumos.runs.train import Hosting, train_rank
from lumos.secagg.parameters import FixedPoint
from lumos.training.config import Config
from lumos.training.given_split import GivenSplit, edge_split, given_again, vertex_split
from lumos.training.guarantees import NO_GUARANTEE
from lumos.training.split import EdgeSplit, Role
from lumos.typing import Bytes, Doubles, Flags, Ints, Progress

SECURE_SUM = "aggregate/sum"
OPENED = (SECURE_SUM, "aggregate/clear-sum/ideal")
"""Topics on which the coordinator sends everybody a sum, of either backend."""

COLUMNS = {Role.TRAIN: "training devices", Role.VALIDATION: "validation devices"}
"""Columns of the table of guarantees of `classify`, by the role of a device."""

Say = Callable[[str], None]

OPEN_EPOCHS = 20
"""Epochs of a recorded run whose profile sends messages without protection. The first epochs of a
long run are the same as those of a short one, and each tells more: figures are lower bounds."""
OPEN_DEVICES = 400
"""Devices whose unprotected messages are recorded: all of them would fill the memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded:
    """A run, and all its messages."""

    run: Run
    tape: Tape = field(repr=False)
    graph: Graph = field(repr=False)
    """The graph as the devices know it: with training edges only, for links."""
    roles: Ints = field(repr=False)
    """[devices] public roles: who trains, who validates. For links everybody is `NOBODY`."""
    split: EdgeSplit | None = field(default=None, repr=False)
    """The split of edges, for links."""

    @property
    def config(self) -> Config:
        """The settings of the run."""
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
        self._recorded: dict[str, Recorded] = {}

    def config(self, task: str, **changes: Any) -> Config:
        """Return all settings for a task, without those that have no effect on it."""
        wanted = {**self.settings, **changes, "task": task}
        made = Config.of(**wanted)
        return Config.of(
            **{
                name: value
                for name, value in wanted.items()
                if name == "task" or not made.profile.ignores(name, made)
            }
        ).for_devices(self.graph.devices)

    def recorded(self, task: str) -> Recorded:
        """Return the run itself, recorded once, without the bodies of masked vectors.

        If a profile sends unprotected messages, only the first epochs are recorded, with
        comparisons in the clear, unless settings say otherwise; and only those messages of some
        devices.
        """
        if task not in self._recorded:
            self.say(f"recording a run ({task})")
            config, changes = self.config(task), dict[str, Any]()
            if Door.OPEN in config.profile.doors:
                short = {"epochs": min(OPEN_EPOCHS, config.train.epochs), "compare": "ideal"}
                changes = {name: short[name] for name in short if name not in self.settings}
            keep = unprotected_of(self.watched())
            self._recorded[task] = self.record(self.graph, task, keep=keep, **changes)
        return self._recorded[task]

    def watched(self) -> Flags:
        """Return [devices] whose unprotected messages are recorded: `OPEN_DEVICES` at most."""
        some = np.random.default_rng(self.seed).permutation(self.graph.devices)[:OPEN_DEVICES]
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
        """Record a further run, with other settings or on another graph.

        Args:
            seed: another run seed.
            keep: which messages the tape keeps; all by default.
            changes: settings that differ.
        """
        seed = self.seed if seed is None else seed
        config = self.config(task, **{"floor": False, "control": False, **changes})
        with recording(keep) as tape:
            run = train_rank(
                graph,
                config,
                seed=seed,
                hosting=Hosting(),
                split=self.split,
                transport="recording",
            )
        if run is None:
            raise TypeError("one process hosts all devices, and has the run")
        public = PublicRandomness(seed)
        if task == "link":
            split = edge_split(graph, self.split, public).split
            roles = np.full(graph.devices, Role.NOBODY, np.int64)
            return Recorded(run=run, tape=tape, graph=split.training, roles=roles, split=split)
        roles = vertex_split(graph, self.split, public).roles
        return Recorded(run=run, tape=tape, graph=graph, roles=roles)


def without_masked_vectors(topic: Topic, batch: Batch) -> Batch | None:
    """Keep everything but what nobody can read: vectors under masks, and what ideal sums add up.

    A sum that all devices receive is kept once.
    """
    if not topic.name.startswith("aggregate/"):
        return batch
    if topic.name not in OPENED:
        return None
    return batch.take(np.flatnonzero(batch.sender == COORDINATOR)[:1])


def unprotected_of(devices: Flags) -> Keep:
    """Keep all but masked vectors, and unprotected messages of these devices only.

    Args:
        devices: [devices] whose messages are kept.
    """

    def keep(topic: Topic, batch: Batch) -> Batch | None:
        if topic.door is not Door.OPEN:
            return without_masked_vectors(topic, batch)
        wanted = (batch.sender < 0) | (batch.receiver < 0)
        ends = ~wanted
        wanted[ends] = devices[batch.receiver[ends]] | devices[batch.sender[ends]]
        return batch.take(np.flatnonzero(wanted))

    return keep


# The part of a recording that an adversary gets.


def slots_of(graph: Graph, receiver: Ints, sender: Ints) -> Ints:
    """Return the slots (receiver, sender) of the graph; -1 where they are no neighbours."""
    owner = np.repeat(np.arange(graph.devices), graph.degrees)
    keys = owner * graph.devices + graph.neighbours
    wanted = receiver * graph.devices + sender
    place = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    found = keys[place] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)
    return np.where(found, place, -1)


def sent_values(recorded: Recorded, topic: str, number: int = 0, missing: int = -1) -> Ints:
    """Return [devices] the byte that each device sent to all its neighbours."""
    batch = recorded.tape.messages(topic)[number]
    sent = np.full(recorded.graph.devices, missing)
    sent[batch.sender] = batch.body.reshape(batch.messages)
    return sent


def sent_messages(tape: Tape, topic: str, devices: int, number: int = 0) -> tuple[Bytes, Flags]:
    """Return [devices, bytes] the message of each device to its neighbours, and who sent one."""
    batch = tape.messages(topic)[number]
    width = batch.body.shape[1] if batch.lengths is None else int(batch.lengths.max())
    bodies = np.zeros((devices, width), np.uint8)
    bodies[batch.sender] = batch.body[:, :width]
    senders = np.zeros(devices, np.bool_)
    senders[batch.sender] = True
    return bodies, senders


def opened_sums(recorded: Recorded) -> list[Doubles]:
    """Return all sums of the run in order, as everybody received them."""
    ideal = recorded.config.train.aggregate == "ideal"
    chosen = FixedPoint.in_the_clear if ideal else FixedPoint.of
    fixed = chosen(recorded.config.updates, recorded.graph.devices)
    return opened_on(recorded.tape, fixed)


def opened_on(tape: Tape, fixed: FixedPoint) -> list[Doubles]:
    """Return all sums of the last transport in order, as everybody received them."""
    return [
        fixed.decode(_words(0, batch, fixed, packed=topic == SECURE_SUM))
        for topic in OPENED
        for batch in tape.messages(topic)
        if batch.sender[0] == COORDINATOR
    ]


def exact_on(tape: Tape, fixed: FixedPoint) -> list[Doubles]:
    """Return the same before noise.

    Nobody sees them in a real run: they are for attackers that know all vectors, and so can compute
    them.
    """
    batches = [b for b in tape.messages("aggregate/clear-sum/ideal") if b.sender[0] != COORDINATOR]
    return [
        fixed.decode(sum(_words(row, batch, fixed) for row in range(batch.messages)))
        for batch in batches
    ]


def _words(row: int, batch: Batch, fixed: FixedPoint, *, packed: bool = False) -> Any:
    width = batch.body.shape[1] if batch.lengths is None else int(batch.lengths[row])
    body = np.ascontiguousarray(batch.body[row, :width])
    return fixed.unpack(body) if packed else body.view(fixed.dtype)


# Figures of the printed table of guarantees: the audit tests what people read.

_NUMBER = r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?|∞|inf)"
_BOTH = re.compile(rf"\({_NUMBER}, {_NUMBER}\)")
_PURE = re.compile(rf"ε = {_NUMBER}")


def cell(run: Run, about: str, column: str) -> str:
    """Return a cell of the table of guarantees, by relation and column.

    Raises:
        UsageError: there is none.
    """
    for row in run.guarantees:
        if row["about"] == about and column in row:
            return str(row[column])
    raise UsageError(f"the table of guarantees has no cell {about!r}, {column!r}")


def printed(run: Run, about: str, column: str, *, life: bool = False) -> tuple[float, float] | None:
    """Return (ε, δ) of a cell, with δ = 0 if it is pure; None if it guarantees nothing.

    Args:
        life: over all runs with an account, where the table has a column for it.
    """
    names = [name for row in run.guarantees for name in row if name.startswith(column)]
    for_life = [name for name in names if life and "life" in name]
    text = cell(run, about, for_life[0] if for_life else column)
    if text.startswith(NO_GUARANTEE):
        return None  # whatever ε it names is that of a part: "no guarantee by the sums; ε = 3 by …"
    both, pure = _BOTH.search(text), _PURE.search(text)
    if both is not None:
        return _value(both[1]), _value(both[2])
    return None if pure is None else (_value(pure[1]), 0.0)


def counted(run: Run, about: str, column: str, what: str) -> int | None:
    """Return the whole number before a word of a cell; None where there is none."""
    found = re.search(rf"(\d+) {what}\b", cell(run, about, column))
    return None if found is None else int(found[1])


def _value(text: str) -> float:
    return math.inf if text == "∞" else float(text)


# Knowledge of attackers beside messages: the truth about one half of all devices.

MAX_EDGES = 40_000
"""Edges of each half, at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownHalf:
    """Known devices, evaluated devices, and pairs within each half."""

    half: Flags = field(repr=False)
    """[devices] those that the attackers know."""
    evaluated: Flags = field(repr=False)
    """[devices] all others, without the attackers themselves."""
    known: tuple[Ints, Flags] = field(repr=False)
    """[pairs, 2] of two known devices, and [pairs] which are edges: one half of them."""
    asked: tuple[Ints, Flags] = field(repr=False)
    """The same of two others."""

    @staticmethod
    def of(graph: Graph, attackers: Ints, seed: int = 0, most: int = MAX_EDGES) -> "KnownHalf":
        """Draw half of the devices, then edges and as many random pairs within each half."""
        rng, many = np.random.default_rng(seed), graph.devices
        half = rng.random(many) < 0.5
        out = np.zeros(many, np.bool_)
        out[attackers] = True
        edges = graph.edge_list()
        sides = []
        for side in (half & ~out, ~half & ~out):
            inside = edges[side[edges].all(axis=1)]
            inside = inside[rng.permutation(len(inside))[:most]]
            far = rng.choice(np.flatnonzero(side), (2 * len(inside) + 10, 2))
            far = far[(far[:, 0] != far[:, 1]) & ~linked(graph, far)][: len(inside)]
            pairs = np.concatenate([inside, far])
            sides.append((pairs, np.arange(len(pairs)) < len(inside)))
        return KnownHalf(half=half & ~out, evaluated=~half & ~out, known=sides[0], asked=sides[1])


def linked(graph: Graph, pairs: Ints) -> Flags:
    """Return [pairs] whether they are edges."""
    found: Flags = slots_of(graph, pairs[:, 0], pairs[:, 1]) >= 0
    return found


TASKS = ("classify", "link")


def run_audit(
    graph: Any,
    *,
    attacks: Collection[str] = (),
    seed: int = 0,
    data_dir: Path | None = None,
    progress: ProgressOption = None,
    **settings: Any,
) -> AuditReport:
    """Attack a graph under some settings, or a finished run under its own.

    A run is recorded anew: a simulated one repeats itself bit by bit, and one whose randomness came
    from the operating system is another run with the same settings.

    Args:
        graph: a `Run`, or a graph as `lumos.train` takes it.
        attacks: names of `ATTACKS`; all that apply by default.
        seed: run seed.
        data_dir: folder of named graphs.
        progress: True shows it; or a callback `(done, total, note)`.
        settings: as `lumos.train` takes them; without `task`, both tasks are audited.

    Raises:
        UsageError: an attack has nothing to attack, or a setting has no effect on any task.
    """
    if isinstance(graph, Run):
        if settings:
            raise UsageError("a run is audited under its own settings; give none")
        settings, seed = _own_settings(graph.config), graph.about.seed
        whole = graph.data.whole_graph(data_dir)
        # The default split is drawn anew for every seed; any other is kept.
        split = given_again(graph.data.split(data_dir), whole) if graph.about.split.name else None
    else:
        split = None
        whole = as_graph(graph, data_dir, **take_reading(settings))
    task = settings.pop("task", None)
    tasks = [task] if task else [t for t in TASKS if t == "link" or _has_labels(whole.labels)]
    scene = Scene(whole, settings, tasks=tasks, seed=seed, split=split)
    configs = [scene.config(task) for task in tasks]
    for name in settings:
        reasons = [config.profile.ignores(name, config) for config in configs]
        if all(reasons):
            raise UsageError(f"`{name}` has no effect with {reasons[0]}; leave it out")
    chosen = _chosen(attacks, scene, configs[0].train.profile)
    rows, seconds = gathered(scene, chosen, progress)
    return AuditReport(
        graph=whole.name or "graph",
        devices=whole.devices,
        profile=configs[0].train.profile,
        settings=plain(settings),
        seed=seed,
        rows=rows,
        seconds=seconds,
        lumos=lumos.__version__,
    )


class AttackScene(Protocol):
    """Anything that attacks are made on."""

    say: Say


def gathered(
    scene: AttackScene, attacks: Sequence[Attack], progress: ProgressOption
) -> tuple[list[AuditRow], dict[str, float]]:
    """Return the rows of all attacks, and the seconds of each."""
    rows: list[AuditRow] = []
    seconds: dict[str, float] = {}
    with displayed(progress, "auditing") as shown:
        for number, one in enumerate(attacks):
            start = time.perf_counter()
            if shown is not None:
                scene.say = partial(_say, shown, number, len(attacks), one.name)
            scene.say(one.title)
            rows += one(scene)
            seconds[one.name] = round(time.perf_counter() - start, 2)
        if shown is not None:
            shown(len(attacks), len(attacks), "done")
    return rows, seconds


def _own_settings(config: Config) -> dict[str, Any]:
    """Return the settings of a run that are not defaults.

    The account is left out: it is the devices', and an audit must not spend from it.
    """
    train = config.train
    default = Config.of(profile=train.profile, task=train.task).flat()
    own = {"profile": train.profile, "task": train.task}
    return own | {
        name: value
        for name, value in config.flat().items()
        if value != default[name]
        and name not in ("account", "checkpoint_every")
        and not name.startswith("lifetime_")  # limits of the account
        and not config.profile.ignores(name, config)
    }


def _has_labels(labels: Any) -> bool:
    return labels is not None and len(np.unique(np.asarray(labels)[np.asarray(labels) >= 0])) > 1


def _chosen(asked: Collection[str], scene: Scene, profile: str) -> list[Attack]:
    """Return the attacks to run, in the order of the registry.

    Raises:
        UsageError: there is no such attack, or it has nothing to attack here.
    """
    for name in asked:
        if not ATTACKS[name].applies(scene, profile):
            raise UsageError(
                f"the attack {name!r} has nothing to attack with `profile='{profile}'` and "
                f"{' and '.join(scene.tasks)}"
            )
    return [
        ATTACKS[name]
        for name in ATTACKS
        if (not asked or name in asked) and ATTACKS[name].applies(scene, profile)
    ]


def _say(progress: Progress, done: int, total: int, name: str, text: str) -> None:
    progress(done, total, f"{name}: {text}")
