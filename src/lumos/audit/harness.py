"""What an audit looks at: a graph, settings, and recorded runs of them."""

import math
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import lumos
from lumos.audit.attacks import ATTACKS
from lumos.audit.table import AuditReport, AuditRow
from lumos.device.randomness import PublicRandomness
from lumos.device.shard import COORDINATOR
from lumos.display import ProgressOption, displayed
from lumos.errors import UsageError
from lumos.exchange.messages import Batch, Door, Topic
from lumos.exchange.tape import Keep, Tape, recording
from lumos.graph import Graph
from lumos.graph.sources import as_graph
from lumos.runs.predict import split_of
from lumos.runs.run import Run
from lumos.runs.schema import plain
from lumos.runs.train import train
from lumos.secagg.parameters import FixedPoint
from lumos.training.config import Config
from lumos.training.given_split import GivenSplit, edge_split, given_again, vertex_split
from lumos.training.profile import NO_GUARANTEE
from lumos.training.split import EdgeSplit, Role
from lumos.typing import Bytes, Doubles, Flags, Ints, Progress

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
            run = train(graph, config, seed=seed, split=self.split, transport="recording")
        public = PublicRandomness(seed)
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


# The part of a recording that an adversary gets. Attacks read a tape through these functions only.
#
# - *one neighbour* u of v: what passed between u and v, in both directions (`told`, `slots_of`);
# - *pooled neighbours* of v: the same of all of them;
# - *a non-neighbour*: what passed between it and v, after it was a candidate or asked a question;
# - *everybody*: sums that were opened (`opened_sums`), weights that follow from them;
# - *the coordinator*: what was sent to it, but for bodies of masked vectors, which nobody can read;
# - *a broker* moves the messages: senders, receivers, sizes and rounds of all (`Tape.traffic`), and
#   bodies unless the transport seals them.


def slots_of(graph: Graph, receiver: Ints, sender: Ints) -> Ints:
    """Slots of the graph (receiver, its neighbour that sent); -1 where they are no neighbours."""
    owner = np.repeat(np.arange(graph.devices), graph.degrees)
    keys = owner * graph.devices + graph.neighbours
    wanted = receiver * graph.devices + sender
    place = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    found = keys[place] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)
    return np.where(found, place, -1)


def said(recorded: Recorded, topic: str, number: int = 0, missing: int = -1) -> Ints:
    """[devices] what each device told all its neighbours, for topics of one byte."""
    batch = recorded.tape.messages(topic)[number]
    told = np.full(recorded.graph.devices, missing)
    told[batch.sender] = batch.body.reshape(batch.messages)
    return told


def told(tape: Tape, topic: str, devices: int, number: int = 0) -> tuple[Bytes, Flags]:
    """[devices, bytes] what each device told all its neighbours, and [devices] who did."""
    batch = tape.messages(topic)[number]
    width = batch.body.shape[1] if batch.lengths is None else int(batch.lengths.max())
    bodies = np.zeros((devices, width), np.uint8)
    bodies[batch.sender] = batch.body[:, :width]
    senders = np.zeros(devices, np.bool_)
    senders[batch.sender] = True
    return bodies, senders


def opened_sums(recorded: Recorded) -> list[Doubles]:
    """All sums of the run in order, as everybody received them."""
    fixed = FixedPoint.of(recorded.config.updates, recorded.graph.devices)
    return opened_on(recorded.tape, fixed)


def opened_on(tape: Tape, fixed: FixedPoint) -> list[Doubles]:
    """All sums of the last transport in order, as everybody received them."""
    return [
        fixed.decode(_words(0, batch, fixed, packed=topic == SECURE_SUM))
        for topic in OPENED
        for batch in tape.messages(topic)
        if batch.sender[0] == COORDINATOR
    ]


def exact_on(tape: Tape, fixed: FixedPoint) -> list[Doubles]:
    """The same before noise. Nobody sees them in a real run: for attackers that know all vectors,
    and so can compute them."""
    batches = [b for b in tape.messages("aggregate/clear-sum/ideal") if b.sender[0] != COORDINATOR]
    return [
        fixed.decode(sum(_words(row, batch, fixed) for row in range(batch.messages)))
        for batch in batches
    ]


def _words(row: int, batch: Batch, fixed: FixedPoint, *, packed: bool = False) -> Any:
    width = batch.body.shape[1] if batch.lengths is None else int(batch.lengths[row])
    body = np.ascontiguousarray(batch.body[row, :width])
    return fixed.unpack(body) if packed else body.view(fixed.dtype)


# Figures in the table of guarantees, as a run prints it: what is audited is what people read.

_NUMBER = r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?|∞|inf)"
_BOTH = re.compile(rf"\({_NUMBER}, {_NUMBER}\)")
_PURE = re.compile(rf"ε = {_NUMBER}")


def cell(run: Run, about: str, column: str) -> str:
    """The cell of the first row whose question begins with `about`.

    Raises:
        UsageError: there is none.
    """
    for row in run.guarantees:
        if row["about"].startswith(about) and column in row:
            return row[column]
    raise UsageError(f"the table of guarantees has no cell {about!r}, {column!r}")


def printed(run: Run, about: str, column: str, *, life: bool = False) -> tuple[float, float] | None:
    """(ε, δ) of a cell, δ = 0 where it is pure; None where it guarantees nothing.

    Args:
        life: over all runs with a book, where the table has a column for it.
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
    """The whole number before a word of a cell; None where there is none."""
    found = re.search(rf"(\d+) {what}\b", cell(run, about, column))
    return None if found is None else int(found[1])


def _value(text: str) -> float:
    return math.inf if text == "∞" else float(text)


# What attackers know beside messages: the truth about one half of all devices, to learn from.

MOST = 40_000
"""Edges of each half, at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownHalf:
    """Who is known, who is evaluated, and pairs within each half."""

    half: Flags = field(repr=False)
    """[devices] known to the attackers."""
    evaluated: Flags = field(repr=False)
    """[devices] all others, without the attackers themselves."""
    known: tuple[Ints, Flags] = field(repr=False)
    """[pairs, 2] of two known devices, and which are edges: as many as are not."""
    asked: tuple[Ints, Flags] = field(repr=False)
    """The same of two others."""

    @staticmethod
    def of(graph: Graph, attackers: Ints, seed: int = 0, most: int = MOST) -> "KnownHalf":
        """Half of the devices at random, and edges and as many random pairs within each half."""
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
    """[pairs] whether they are edges."""
    found: Flags = slots_of(graph, pairs[:, 0], pairs[:, 1]) >= 0
    return found


# `lumos.run_audit`: run every attack that applies, and evaluate what it found.

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
        data_dir: where named graphs lie.
        progress: True shows it; or a callback `(done, total, note)`.
        settings: as `lumos.train` takes them; without `task`, both tasks are audited.
    """
    if isinstance(graph, Run):
        if settings:
            raise UsageError("a run is audited under its own settings; give none")
        settings, seed = _own_settings(graph.config), graph.about.seed
        whole = graph.whole_graph(data_dir)
        # The default split is drawn anew for every seed; any other is kept.
        split = given_again(split_of(graph, data_dir), whole) if graph.about.split.name else None
    else:
        split = None
        whole = as_graph(graph, data_dir)
    task = settings.pop("task", None)
    tasks = [task] if task else [t for t in TASKS if t == "link" or _has_labels(whole.labels)]
    scene = Scene(whole, settings, tasks=tasks, seed=seed, split=split)
    configs = [scene.config(task) for task in tasks]
    _refuse_ignored(settings, configs)
    chosen = _chosen(attacks, scene, configs[0].train.profile)
    rows: list[AuditRow] = []
    seconds: dict[str, float] = {}
    with displayed(progress, "auditing") as shown:
        for number, name in enumerate(chosen):
            start = time.perf_counter()
            scene.say = _say(shown, number, len(chosen), name)
            scene.say(ATTACKS[name].title)
            rows += ATTACKS[name].run(scene)
            seconds[name] = round(time.perf_counter() - start, 2)
        if shown is not None:
            shown(len(chosen), len(chosen), "done")
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


def _own_settings(config: Config) -> dict[str, Any]:
    """The settings of a run, as far as they are not the defaults.

    Without its book, which is the devices': an audit must not spend from it.
    """
    train = config.train
    default = Config.of(profile=train.profile, task=train.task).flat()
    kept = {"profile": train.profile, "task": train.task}
    return kept | {
        name: value
        for name, value in config.flat().items()
        if value != default[name]
        and name not in ("book", "checkpoint_every")
        and not name.startswith("lifetime_")  # limits of the book
        and not config.profile.ignores(name, config)
    }


def _has_labels(labels: Any) -> bool:
    return labels is not None and len(np.unique(np.asarray(labels)[np.asarray(labels) >= 0])) > 1


def _refuse_ignored(settings: dict[str, Any], configs: Sequence[Config]) -> None:
    """A setting must have a meaning for one of the tasks at least.

    Raises:
        UsageError: it has none.
    """
    for name in settings:
        reasons = [config.profile.ignores(name, config) for config in configs]
        if all(reasons):
            raise UsageError(f"`{name}` has no effect with {reasons[0]}; leave it out")


def _chosen(asked: Collection[str], scene: Scene, profile: str) -> list[str]:
    """The attacks to run, in the order of the registry.

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
        name
        for name in ATTACKS
        if (not asked or name in asked) and ATTACKS[name].applies(scene, profile)
    ]


def _say(progress: Progress | None, done: int = 0, total: int = 1, name: str = "") -> Say:
    def say(text: str) -> None:
        if progress is not None:
            progress(done, total, f"{name}: {text}" if name else text)

    return say
