"""Attacks on what real devices disclose around the protocol: `lumos audit --deployment`.

Participants are those of a real run, in virtual time (`lumos.deploy.virtual`). An attack is made a
second time without the defence that it is aimed at, on a broken variant: where it gains nothing
there either, it has no power. `docs/attacks.md` has what each attacker knows.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

import numpy as np

import lumos
from lumos.audit.attacks import Attack, attack
from lumos.audit.attacks.neighbours import most_right, shares_of
from lumos.audit.harness import AttackScene, Say, gathered
from lumos.audit.table import Area, AuditReport, AuditRow, Exactly, Mean, Proportion, finding
from lumos.deploy.plan import handed_out, manifest_digest, new_plan, refuse_plan
from lumos.deploy.protocol.coordinator import CoordinatorParticipant
from lumos.deploy.protocol.device import DeviceParticipant
from lumos.deploy.protocol.frames import (
    BETWEEN_DEVICES,
    Alive,
    Data,
    MaskedFlags,
    RoundKey,
)
from lumos.deploy.protocol.job import SETUP, TREES, TrainingJob
from lumos.deploy.protocol.mailbox import FORGOTTEN, MAX_AHEAD, Mailbox
from lumos.deploy.protocol.rounds import DeviceRounds, FlagMasks
from lumos.deploy.virtual import (
    ATTACKED,
    ROUNDS,
    RUN,
    TIMING_ATTACKS,
    Federation,
    TimingAttack,
    area_under_curve,
)
from lumos.device.randomness import DeviceKeys
from lumos.device.shard import COORDINATOR
from lumos.display import ProgressOption
from lumos.errors import BudgetExceeded, UsageError, one_of
from lumos.exchange.messages import Inbox, Outbox
from lumos.graph import Graph
from lumos.graph.arrays import neighbour_lists
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.manifest import equal_bounds
from lumos.graph.sources import as_graph
from lumos.ldp.account import PROPAGATED, QUESTIONS, AccountLimits, PrivacyAccount
from lumos.secagg.topics import MASKED
from lumos.training.config import Config
from lumos.training.metrics import auc
from lumos.training.profile import PAPER, PROFILES, STRICT
from lumos.training.split import Role
from lumos.training.write_parts import write_parts
from lumos.typing import Doubles, Flags, Ints

DEFAULT_GRAPH, DEFAULT_RUNS = "demo:20", 2
"""The federation that is attacked unless another one is named, and runs of each timing attack."""
MAX_DEVICES = 200
"""Largest number of devices: a run of 60 takes seconds, and there are about 60 runs."""
CLAIM = "docs/deployment.md, what each participant learns"


@dataclass(eq=False)
class DeploymentScene(AttackScene):
    """A graph whose devices are attacked.

    Args:
        graph: the graph.
        folder: an empty folder, for parts and accounts.
        runs: runs of each timing attack.
        seed: of all choices of attackers.
        say: called with what is being done.
    """

    graph: Graph
    folder: Path
    runs: int = DEFAULT_RUNS
    seed: int = 0
    say: Say = field(default=lambda _: None)

    @cached_property
    def parts(self) -> PartsFolder:
        """One part for each device."""
        return split_into_devices(self.graph, self.folder / "parts")

    @cached_property
    def other_parts(self) -> PartsFolder:
        """The same after devices have exchanged everything that is private."""
        return split_into_devices(exchanged(self.graph, 1 + self.seed), self.folder / "other")

    @cached_property
    def edges(self) -> Flags:
        """[devices, devices]"""
        return edges_of(self.graph)


def split_into_devices(graph: Graph, folder: Path) -> PartsFolder:
    """Write one part for each device."""
    return write_parts(graph, folder, equal_bounds(graph.devices, graph.devices))


def edges_of(graph: Graph) -> Flags:
    """Return [devices, devices] the edges."""
    edges = np.zeros((graph.devices, graph.devices), np.bool_)
    edges[np.repeat(np.arange(graph.devices), graph.degrees), graph.neighbours] = True
    return edges


def exchanged(graph: Graph, seed: int) -> Graph:
    """Return the same graph with all private data at other devices; all sizes are the same."""
    order = np.random.default_rng(seed).permutation(graph.devices)  # device → where it moves
    back = np.argsort(order)
    lists = neighbour_lists(order[graph.edge_list()], graph.devices)
    return replace(
        graph,
        offsets=lists.offsets,
        neighbours=lists.neighbours,
        labels=None if graph.labels is None else graph.labels[back],
        features=None if graph.features is None else graph.features[back],
    )


# Public files.

RECORDS = 6
"""Devices, and edges, of which an attacker tries another value."""


@attack("files", "records from public files")
def attack_files(scene: DeploymentScene) -> Iterator[AuditRow]:
    """Yield how many records an attacker confirms who knows everything else."""
    graph, folder = scene.graph, scene.folder / "files"
    rng = np.random.default_rng(scene.seed)
    some = rng.permutation(graph.devices)[:RECORDS]
    changes: dict[str, list[Graph]] = {
        "labels": [_with_label(graph, int(device)) for device in some],
        "features": [_with_features(graph, int(device)) for device in some],
        "edges": [
            _without_edge(graph, int(edge)) for edge in rng.permutation(graph.edges)[:RECORDS]
        ],
    }
    for what, others in changes.items():
        found = {
            randomness: sum(
                _public_files(graph, folder, randomness) != _public_files(other, folder, randomness)
                for other in others
            )
            for randomness in ("system", "seeded")
        }
        yield finding(
            "anybody with the files",
            f"{len(others)} {what}: tries other values, and compares public files",
            "confirmed",
            Exactly(found["system"]),
            bound=(0.0, CLAIM),
            undefended=float(found["seeded"]),
            knows_mechanism=True,
            note="Without the defence: the manifest of a simulation, which has facts of all data.",
        )


def _public_files(graph: Graph, folder: Path, randomness: str) -> list[str]:
    """Return what of the public files is not random."""
    with TemporaryDirectory(dir=_made(folder)) as made:
        manifest = split_into_devices(graph, Path(made) / "parts").manifest
    settings = {"randomness": randomness, "signs": "nonnegative", "scaling": "none"}
    return [manifest_digest(handed_out(manifest, settings))]


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _with_label(graph: Graph, device: int) -> Graph:
    labels = np.array(graph.labels)
    labels[device] = (labels[device] + 1) % graph.class_count
    return replace(graph, labels=labels)


def _with_features(graph: Graph, device: int) -> Graph:
    changed: Any = graph.features.copy()  # type: ignore[union-attr]
    changed[[device]] = changed[[device]] * 0.5
    return replace(graph, features=changed)


def _without_edge(graph: Graph, edge: int) -> Graph:
    lists = neighbour_lists(np.delete(graph.edge_list(), edge, axis=0), graph.devices)
    return replace(graph, offsets=lists.offsets, neighbours=lists.neighbours)


# Timing: a coordinator looks for edges in who sends what when.

RELABELINGS = 100
"""Random exchanges of the devices that give the standard error of an area at chance."""


@dataclass
class EdgesFound:
    """Edges that a timing attack found in several runs."""

    areas: list[float] = field(default_factory=list)
    """By run: area under the curve."""
    errors: list[float] = field(default_factory=list)
    """By run: standard error of the area of an attacker without information."""
    named: int = 0
    """Pairs of which the attacker was certain, in all runs."""
    true: int = 0
    """Edges among them."""

    def add(self, scores: Doubles, named: Flags, edges: Flags) -> None:
        """Add a run; arguments as in `waiting_scores`, and the edges."""
        rng = np.random.default_rng(len(self.areas))
        orders = [rng.permutation(len(edges)) for _ in range(RELABELINGS)]
        at_chance = [area_under_curve(scores, edges[order][:, order]) for order in orders]
        self.areas.append(area_under_curve(scores, edges))
        self.errors.append(float(np.std(at_chance)))
        pairs = np.triu(named | named.T)
        self.named += int(pairs.sum())
        self.true += int((pairs & edges).sum())

    @property
    def mean(self) -> Mean:
        """The mean area, with the standard error that it has at chance."""
        error = math.sqrt(sum(error**2 for error in self.errors)) / len(self.errors)
        return Mean(float(np.mean(self.areas)), error, len(self.areas))


def attacked_run(
    parts: PartsFolder, name: str, seed: int, device_type: type[DeviceParticipant]
) -> TimingAttack:
    """Make one of `TIMING_ATTACKS` on a run of its own."""
    config = Config.asked(aggregate="secure", **ATTACKED)
    attacked = TIMING_ATTACKS[name](Federation(parts, config, device_type=device_type), seed)
    attacked.run()
    return attacked


class WaitingRounds(DeviceRounds[Any]):
    """A broken variant: a device goes on as soon as it has all that its neighbours sent."""

    def _between(self, outbox: Outbox, key: RoundKey) -> Inbox | None:
        arrived = self._arrived(self._receivers, key)
        if self._receivers - set(arrived) - self.out:
            return None
        return Inbox(self._read(outbox, self._over(key, arrived), key), quiet=False)


class WaitingDevice(DeviceParticipant):
    """A broken variant: it shows whom it waits for."""

    rounds_type = WaitingRounds


@attack("timing", "edges from the times of what devices send")
def attack_timing(scene: DeploymentScene) -> Iterator[AuditRow]:
    """Yield what a coordinator finds that watches, holds up, lies or kills."""
    kinds = (DeviceParticipant, WaitingDevice)
    for name in TIMING_ATTACKS:
        scene.say(name)
        found, different = (EdgesFound(), EdgesFound()), list[int]()
        for one, kind in zip(found, kinds, strict=True):
            runs = [
                attacked_run(scene.parts, name, scene.seed + run, kind) for run in range(scene.runs)
            ]
            for attacked in runs:
                one.add(attacked.scores(), attacked.named, scene.edges)
            other = attacked_run(scene.other_parts, name, scene.seed, kind)
            different.append(_different(runs[0].view, other.view))
        defended, broken = found
        yield finding(
            "coordinator",
            f"edges, from times: {name}",
            "AUC",
            defended.mean,
            chance=(0.5, "a coin"),
            bound=(0.5, CLAIM),
            undefended=broken.mean.value,
            note=f"{defended.named} pairs named with certainty, {defended.true} of them edges; "
            f"without the defence {broken.named}, {broken.true}.",
        )
        yield finding(
            "coordinator",
            f"packets that differ if devices exchange their data: {name}",
            "packets",
            Exactly(different[0]),
            bound=(0.0, CLAIM),
            undefended=float(different[1]),
            knows_mechanism=True,
        )


def _different(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the number of entries in which two lists differ."""
    changed = sum(bool(a != b) for a, b in zip(one, other, strict=False))
    return abs(len(one) - len(other)) + changed


# Barriers: a coordinator looks for degrees in who has something to say.


class UnmaskedFlags(FlagMasks):
    """A broken variant: flags without masks."""

    _keys: ClassVar[dict[int, bytes]] = {}


class UnmaskedDevice(DeviceParticipant):
    """A broken variant: its flags show whether it speaks."""

    masks_type = UnmaskedFlags


def rounds_spoken(federation: Federation, until: Callable[[], bool] | None = None) -> Doubles:
    """Return [devices] rounds in which each seems to speak to another one: its flag is not 0."""
    found = np.zeros(federation.total)

    def look(_now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if receiver == COORDINATOR and isinstance(frame, MaskedFlags):
                words = np.frombuffer(frame.shares, np.uint64).reshape(-1, 2)
                found[sender] += (words[:, 1] != 0).mean()

    federation.on_arrival = look
    federation.run(until)
    return found


@attack("barriers", "degrees from who speaks in rounds between devices")
def attack_barriers(scene: DeploymentScene) -> Iterator[AuditRow]:
    """Yield what a coordinator learns while edges are assigned, and in a whole run of links.

    In training all devices with neighbours speak in the same rounds; in calibration those speak
    that have a held-back edge, and have more neighbours than others.
    """
    trees = Config.asked(
        profile=PAPER, balancer="optimal", compare="secure", aggregate="secure", epochs=1
    )
    links = Config.asked(task="link", random_marks=4, aggregate="secure")
    narrow = split_into_devices(merged_features(scene.graph, 32), scene.folder / "narrow")
    degrees = np.asarray(scene.graph.degrees)
    high = degrees > np.median(degrees)

    def area(parts: PartsFolder, config: Config, device_type: type[DeviceParticipant]) -> float:
        federation = Federation(parts, config, device_type=device_type)
        until = partial(_is_after, federation, TREES) if config is trees else None
        spoken = rounds_spoken(federation, until)
        return auc(spoken[high], spoken[~high])

    for what, parts, config in (
        ("edges are assigned (optimal)", scene.parts, trees),
        ("links are trained and calibrated", narrow, links),
    ):
        yield finding(
            "coordinator",
            f"degree above the median, from rounds in which a device speaks while {what}",
            "AUC",
            Area(area(parts, config, DeviceParticipant), int(high.sum()), int((~high).sum())),
            chance=(0.5, "a coin"),
            bound=(0.5, CLAIM),
            undefended=area(parts, config, UnmaskedDevice),
        )


def merged_features(graph: Graph, columns: int) -> Graph:
    """Return the graph with few features: sums of links are as wide as there are features."""
    features: Any = graph.features
    dense = np.asarray(features.todense() if hasattr(features, "todense") else features)
    groups = np.array_split(np.arange(dense.shape[1]), min(columns, dense.shape[1]))
    merged = np.stack([dense[:, group].max(axis=1) for group in groups], axis=1)
    return replace(graph, features=merged)


def _is_after(federation: Federation, phase: int) -> bool:
    return federation.coordinator.phase > phase


# Restarts: a neighbour compares what a device sends in several runs.

STARTS, ABORTED = 5, (1, 3)
"""Runs, and those among them that are aborted."""
DRAWS = 120
"""Labels that are guessed: few would not show anything."""
REAL: dict[str, Any] = {"aggregate": "secure", "randomness": "system"}
RANDOMIZED_LABELS, PROPAGATED_LABELS = "strict/symbol", "strict/opinion"


@dataclass
class AccountedFederation(Federation):
    """Every device has an account on a real disk; every run has secrets of its own.

    Args:
        others: those of `Federation`.
        accounts: folder of the accounts; None for none.
        run_number: another one for every run.
        limits: of all owners.
    """

    accounts: Path | None = field(kw_only=True)
    run_number: int = field(kw_only=True, default=0)
    limits: AccountLimits = field(kw_only=True, default_factory=AccountLimits)

    def start(self, participant: int) -> None:
        """Start a participant, with what is on its disk."""
        if participant != COORDINATOR:
            self.secrets[participant] = bytes([participant, self.run_number]) * 16
        super().start(participant)
        if participant != COORDINATOR and self.accounts is not None:
            self.participants[participant].job.account = self.account_of(participant)

    def account_of(self, device: int) -> PrivacyAccount:
        """Return the account of a device."""
        return PrivacyAccount(
            Path(self.accounts or "") / f"{device}",
            numbers=np.array([device]),
            limits=self.limits,
            run=self.secrets[device].hex(),
        )


class RestartedLabels(NamedTuple):
    """Randomized labels of devices that are started again and again."""

    seen: Ints
    """[starts, draws] at the moment from which they may be sent."""
    labels: Ints
    """[draws]"""
    table: Doubles
    """[classes, values] probability of a randomized label, by label."""
    epsilon: float

    @property
    def prior(self) -> Doubles:
        """[classes] the share of each label, which the attacker knows."""
        return shares_of(self.labels, len(self.table))

    @property
    def right(self) -> int:
        """Number of labels that are guessed by all that was seen, taken for independent draws."""
        likelihood = np.log(self.table)[:, self.seen].sum(axis=1)
        prior = np.log(np.maximum(self.prior, 1e-9))
        guess = (likelihood + prior[:, None]).argmax(axis=0)
        return int(np.sum(guess == self.labels))


def restarted_labels(
    parts: PartsFolder, folder: Path | None, *, draws: int = DRAWS, starts: int = STARTS
) -> RestartedLabels:
    """Start devices again and again, each time with another secret.

    A device is taken several times, each time with an account of its own, until there are `draws`.

    Args:
        folder: of the accounts; None for none.
    """
    config = Config.asked(**REAL, encoder_epochs=2, epochs=9)
    whole = [parts.part([device], "classify") for device in range(parts.manifest.graph.devices)]
    some = [part for part in whole if part.roles[0] in (Role.TRAIN, Role.VALIDATION)]
    chosen = [some[number % len(some)] for number in range(draws)]
    seen = np.empty((starts, draws), np.int64)
    for number, part in enumerate(chosen):
        for start in range(starts):
            secret = start.to_bytes(16, "little") + number.to_bytes(16, "little")
            account = None
            if folder is not None:
                own = folder / str(number)
                account = PrivacyAccount(own, numbers=part.devices, run=secret.hex())
            job = TrainingJob(parts.manifest, config, part, DeviceKeys(secret), account=account)
            job.program(SETUP)
            trainer: Any = job.trainer
            seen[start, number] = trainer.labels.values[0]
    schedule, labels = trainer.schedule, np.array([part.labels[0] for part in chosen])
    epsilon = float(schedule.strict.label_epsilon)
    return RestartedLabels(seen, labels, schedule.label_form.table(epsilon), epsilon)


class RepeatedRuns(NamedTuple):
    """Releases of devices in five runs, two of them aborted."""

    labels: list[set[bytes]]
    """By device: randomized labels that its neighbours received."""
    released: Doubles
    """[devices] ε of propagated labels that left."""
    charged: Doubles
    """[devices] ε of propagated labels in its account."""


def repeated_runs(parts: PartsFolder, accounts: Path | None) -> RepeatedRuns:
    """Run a federation five times, and abort two of the runs."""
    total = parts.manifest.graph.devices
    settings = {**ATTACKED, **REAL}
    found: list[set[bytes]] = [set() for _ in range(total)]
    sent: set[tuple[int, int, RoundKey]] = set()
    number = 0

    def watch(_now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if COORDINATOR not in (sender, receiver) and isinstance(frame, Data) and frame.count:
                if frame.topic == RANDOMIZED_LABELS:
                    found[sender].add(frame.body)
                elif frame.topic == PROPAGATED_LABELS:
                    sent.add((number, sender, frame.key))

    config = Config.asked(**settings)
    for number in range(STARTS):
        federation = AccountedFederation(parts, config, accounts=accounts, run_number=number)
        federation.watch = watch
        # The first is aborted before its first sum, the second after propagated labels have left.
        last = {ABORTED[0]: SETUP, ABORTED[1]: ROUNDS[1]}.get(number)
        federation.run(None if last is None else partial(_is_after, federation, last))
    epsilon = float(config.flat()["propagated_epsilon"])
    many = np.bincount([sender for _, sender, _ in sent], minlength=total)
    released = epsilon * many.astype(np.float64)
    charged = np.zeros(total)
    if accounts is not None:
        charged = np.array([federation.account_of(d).spent(PROPAGATED)[0] for d in range(total)])
    return RepeatedRuns(found, released, charged)


@attack("restarts", "labels from runs that are started again")
def attack_restarts(scene: DeploymentScene) -> Iterator[AuditRow]:
    """Yield what neighbours learn from several runs, and what accounts lack of it."""
    known = restarted_labels(scene.parts, scene.folder / "draws")
    drawn_again = restarted_labels(scene.parts, None)
    yield finding(
        "one neighbour",
        f"label, from randomized labels of {STARTS} runs",
        "accuracy",
        Proportion(known.right, DRAWS),
        chance=(float(known.prior.max()), "the most frequent label"),
        bound=(
            most_right(known.epsilon, len(known.table), known.prior),
            f"a label has ε = {known.epsilon:g} for life",
        ),
        undefended=drawn_again.right / DRAWS,
        knows_mechanism=True,
        note="Without the defence: no account.",
    )
    scene.say(f"{STARTS} runs, {len(ABORTED)} of them aborted")
    runs = repeated_runs(scene.parts, scene.folder / "accounts")
    without = repeated_runs(scene.parts, None)
    yield finding(
        "one neighbour",
        f"randomized labels of one device in {STARTS} runs, {len(ABORTED)} of them aborted",
        "different",
        Exactly(max(map(len, runs.labels))),
        bound=(1.0, "a label is randomized once"),
        undefended=float(max(map(len, without.labels))),
        knows_mechanism=True,
    )
    yield finding(
        "all neighbours",
        f"propagated labels of {STARTS} runs, {len(ABORTED)} of them aborted: ε that left, and "
        "that the account lacks",
        "ε",
        Exactly(float(np.maximum(runs.released - runs.charged, 0).max())),
        bound=(0.0, "a run is charged before its first message leaves"),
        undefended=float((without.released - without.charged).max()),
        knows_mechanism=True,
    )


# Plans: an operator gives one device a plan that tells more than the others', or all of them.

WEAK: dict[str, Any] = {"label_epsilon": 20.0, "feature_epsilon": 500.0}
"""Settings of a victim: its label nearly in the clear, little noise."""
TOO_MUCH: tuple[dict[str, Any], ...] = (
    {"label_epsilon": 20.0},
    {"propagated_epsilon": 65.0},
    {"feature_epsilon": 500.0},
    {"protect": "none"},
    {"randomness": "seeded"},
    {"profile": PAPER},
)
"""Settings of plans that no owner allows by default."""


def told_by_victim(parts: PartsFolder, tag: bytes) -> int:
    """Return how many of its messages a device discloses that was given another plan.

    Messages with its randomized label, and with its vectors under masks, count.

    Args:
        tag: digest of its plan, as packets, keys and draws have it.
    """
    roles = [
        parts.part([device], "classify").roles[0] for device in range(parts.manifest.graph.devices)
    ]
    victim, told = roles.index(Role.TRAIN), set[tuple[int, RoundKey]]()

    def note(_now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            sent = sender == victim and isinstance(frame, Data) and frame.count
            if sent and frame.topic in (RANDOMIZED_LABELS, MASKED.name):
                told.add((receiver, frame.key))

    settings = {**ATTACKED, **REAL}
    weak = Config.asked(**{**settings, **WEAK})
    given = {victim: (tag, weak)}
    federation = Federation(parts, Config.asked(**settings), given=given, on_arrival=note)
    with suppress(TimeoutError):
        federation.run(lambda: federation.coordinator.ended is not None, 6 * Federation.deadline)
    return len(told)


@attack("plans", "labels by a plan that tells too much")
def attack_plans(scene: DeploymentScene) -> Iterator[AuditRow]:
    """Yield what a device discloses that is given another plan, and which plans it accepts."""
    other = bytes(byte ^ 1 for byte in RUN)
    yield finding(
        "operator",
        "messages with label or vectors of a device that got a weaker plan than all others",
        "messages",
        Exactly(told_by_victim(scene.parts, other)),
        bound=(0.0, "participants with different plans have no session in common"),
        undefended=float(told_by_victim(scene.parts, RUN)),
        knows_mechanism=True,
        note="Without the defence: the tag of a run does not depend on its plan.",
    )
    unlimited = AccountLimits(
        run_epsilon=dict.fromkeys(QUESTIONS, math.inf),
        min_devices=1,
        min_noise=0.0,
        profiles=PROFILES.names(),
    )
    yield finding(
        "operator",
        f"{len(TOO_MUCH)} signed plans that tell too much about everybody",
        "accepted",
        Exactly(_accepted(scene.parts, AccountLimits())),
        bound=(0.0, "an owner's limits, by default"),
        undefended=float(_accepted(scene.parts, unlimited)),
        knows_mechanism=True,
        note="Without the defence: an owner without limits.",
    )


def _accepted(parts: PartsFolder, limits: AccountLimits) -> int:
    """Return how many plans a device accepts that tell too much."""
    accepted = 0
    for settings in TOO_MUCH:
        plan = new_plan(parts.manifest, {**REAL, **settings})
        with suppress(BudgetExceeded):
            refuse_plan(plan, parts.manifest, limits)
            accepted += 1
    return accepted


# Floods: a device keeps the others from going on, or fills their memory.

FLOOD = 12 << 20
"""Bytes that one device sends in each phase."""
FLOOD_BODY = 1 << 20
STALL_MARGIN = 1.0
"""Seconds between two looks at the time."""


class UnboundedMailbox(Mailbox):
    """A broken variant: it keeps whatever arrives."""

    def _has_room(self, sender: int, data: Data) -> bool:
        self._peer(sender).unread.setdefault(data.key.phase, 0)
        return True


class UnboundedDevice(DeviceParticipant):
    """A broken variant: others fill its memory."""

    mailbox_type = UnboundedMailbox


class PatientCoordinator(CoordinatorParticipant):
    """A broken variant: whoever gives signs of life is waited for."""

    def _lost_at(self, device: int, silent: float, idle: float) -> tuple[float, str]:
        return self._last_received[device] + self._deadline, "did not answer"


def flooded_bytes(parts: PartsFolder, device_type: type[DeviceParticipant]) -> tuple[int, int]:
    """Return the bytes of one device that another one keeps, and the bound."""
    config = Config.asked(aggregate="secure", **ATTACKED)
    federation = Federation(parts, config, device_type=device_type)
    federation.run(lambda: federation.now > 1.0)
    victim, flooder = federation.device(0), 1
    phases = [*range(victim.phase, victim.phase + 6), FORGOTTEN, FORGOTTEN + 1, FORGOTTEN + 2]
    for phase in phases:
        for number in range(FLOOD // FLOOD_BODY):
            key = RoundKey(phase, 0, BETWEEN_DEVICES, 1000 + number)
            hidden = Data(key, "x" * FLOOD_BODY, 0, b"")  # a long name
            plain = Data(key, "", 1, bytes(FLOOD_BODY))
            victim.receive(flooder, [hidden if number % 2 else plain], federation.now)
    return victim.unread(flooder), (MAX_AHEAD + 2) * victim.job.unread


def stalled_seconds(
    parts: PartsFolder, frame: Alive, coordinator_type: type[CoordinatorParticipant], most: float
) -> float:
    """Return for how long a device that sends one frame every second stalls the others."""
    config = Config.asked(aggregate="secure", **ATTACKED)
    federation = Federation(parts, config, coordinator_type=coordinator_type)
    federation.run(until=lambda: federation.coordinator.phase == ROUNDS[0])
    federation.kill(0)
    began = sent = federation.now

    def is_over() -> bool:
        nonlocal sent
        if federation.now >= sent:
            sent = federation.now + 1
            federation.forward(0, COORDINATOR, [frame])
        return 0 in federation.coordinator.out

    with suppress(TimeoutError):
        federation.run(is_over, began + most)
    return federation.now - began


@attack("floods", "memory of others, and their time")
def attack_floods(scene: DeploymentScene) -> Iterator[AuditRow]:
    """Yield how much memory and time one device takes from the others."""
    held, bound = flooded_bytes(scene.parts, DeviceParticipant)
    yield finding(
        "one device",
        "memory of another one that it fills with messages that nobody reads",
        "bytes",
        Exactly(held),
        bound=(bound, "about 4 MB for each sender and phase, more with many features"),
        undefended=float(flooded_bytes(scene.parts, UnboundedDevice)[0]),
        knows_mechanism=True,
    )
    deadline = Federation.deadline
    for about, frame in (
        ("signs of life without progress", Alive(ROUNDS[0], 0)),
        ("a phase that has not begun", Alive(10**6, 0)),
    ):
        times = [
            stalled_seconds(scene.parts, frame, kind, 4 * deadline)
            for kind in (CoordinatorParticipant, PatientCoordinator)
        ]
        yield finding(
            "one device",
            f"time for which it stalls all others by {about}",
            "seconds",
            Exactly(round(times[0], 1)),
            bound=(2 * deadline + STALL_MARGIN, "twice the deadline"),
            undefended=round(times[1], 1),
            knows_mechanism=True,
        )


# The audit.

ATTACKS: dict[str, Attack] = {
    one.name: one
    for one in (
        attack_files,
        attack_timing,
        attack_barriers,
        attack_restarts,
        attack_plans,
        attack_floods,
    )
}
"""Every attack by name, in the order in which an audit makes them."""


def audit_deployment(
    graph: Any = DEFAULT_GRAPH,
    *,
    attacks: Collection[str] = (),
    runs: int = DEFAULT_RUNS,
    seed: int = 0,
    data_dir: Path | None = None,
    progress: ProgressOption = None,
) -> AuditReport:
    """Attack what real devices disclose around the protocol.

    Args:
        graph: as `lumos.train` takes it; with labels and features, of at most `MAX_DEVICES`.
        attacks: names of `ATTACKS`; all by default.
        runs: runs of each timing attack.
        seed: of all choices of attackers.
        data_dir: folder of named graphs.
        progress: True shows it; or a callback `(done, total, note)`.

    Raises:
        UsageError: there is no such attack, or the graph cannot be attacked.
    """
    whole = as_graph(graph, data_dir)
    if not 10 <= whole.devices <= MAX_DEVICES:
        raise UsageError(
            f"`deployment` attacks 10 to {MAX_DEVICES} devices, got {whole.devices:,}; "
            f"use a small graph, as {DEFAULT_GRAPH}"
        )
    if whole.labels is None or whole.features is None:
        raise UsageError("`deployment` attacks a graph with labels and features; use demo:20")
    if runs < 1:
        raise UsageError(f"`runs` must be 1 or more, got {runs}")
    for name in attacks:
        one_of("attack", name, tuple(ATTACKS))
    chosen = [one for name, one in ATTACKS.items() if not attacks or name in attacks]
    with TemporaryDirectory() as folder:
        scene = DeploymentScene(whole, Path(folder), runs, seed)
        rows, seconds = gathered(scene, chosen, progress)
    return AuditReport(
        graph=whole.name or "graph",
        devices=whole.devices,
        profile=STRICT,
        settings={"deployment": True, "runs": runs},
        seed=seed,
        rows=rows,
        seconds=seconds,
        lumos=lumos.__version__,
    )
