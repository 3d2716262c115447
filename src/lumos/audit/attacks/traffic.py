"""Traffic: what it tells whoever delivers the messages, and whether the ledger counts all of it.

**Broker.** It delivers messages without reading one, and sees senders, receivers, sizes, counts and
rounds. It knows the program, and so which round belongs to which topic. Two devices that ever
exchange a message on a topic between neighbours are neighbours: nothing hides that (privacy.md).
About content it must learn nothing from traffic: the same federation is run with features and
labels dealt out anew among devices of the same role, and its traffic compared. Links draw partners
at random and size their scores by opened sums, so two runs differ; there sizes are compared within
each round only: all messages of a topic have one size.

**Ledger.** The tape counts where messages are delivered, the ledger where endpoints let them
through; neither sees the other. On topics of ideal backends real traffic is what the ledger calls
clear traffic. A run has two transports with a ledger each: that on which trees are balanced, and
its own.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from lumos.audit.attacker_models import area, ridge_scores
from lumos.audit.attacks import attack
from lumos.audit.harness import Recorded, Scene
from lumos.audit.table import Area, AuditRow, Estimate, Exactly, Proportion, finding
from lumos.exchange.messages import Door
from lumos.exchange.observer import LedgerReport
from lumos.exchange.tape import Tape, TopicTraffic
from lumos.graph import Graph
from lumos.training.problem import features_of
from lumos.typing import Doubles, Flags, Ints

BROKER = "a broker, bodies sealed"
AMONG_NEIGHBOURS = (
    "train/carry",
    "train/leaf",
    "strict/symbol",
    "strict/opinion",
    "strict/prediction",
    "strict/colour",
)
"""Topics on which devices talk to their neighbours and to nobody else."""


@attack("broker", "what traffic tells whoever delivers it")
def attack_broker(scene: Scene) -> Iterator[AuditRow]:
    """Yield what the traffic of each task tells."""
    for task in scene.tasks:
        recorded = scene.recorded(task)
        guessed = talkers(recorded)
        edges = recorded.graph.edge_list()
        true = np.sort(edges[:, 0] * recorded.graph.devices + edges[:, 1])
        hits = int(np.isin(true, guessed).sum())
        yield _row(
            task, "edges whose ends exchange a message", "recall", Proportion(hits, len(true))
        )
        yield _row(
            task,
            "pairs that exchange a message among neighbours, and are linked",
            "precision",
            Proportion(hits, len(guessed)),
        )
        ends = np.stack([guessed // recorded.graph.devices, guessed % recorded.graph.devices])
        degree = np.bincount(ends.ravel(), minlength=recorded.graph.devices)
        right = int((degree == recorded.graph.degrees).sum())
        yield _row(
            task,
            "degree of a device",
            "accuracy",
            Proportion(right, recorded.graph.devices),
            chance=(
                float(np.bincount(recorded.graph.degrees).max() / recorded.graph.devices),
                "the most frequent degree",
            ),
        )
        if any(one.topic.name == "train/leaf" for one in recorded.tape.traffic):
            yield _row(task, "which end of an edge carries it", "accuracy", edge_owners(recorded))
        yield from _content(task, scene, recorded)


def talkers(recorded: Recorded) -> Ints:
    """Return [pairs] u · devices + v, u < v, of all who exchange a message among neighbours."""
    places, devices = recorded.graph.devices + 1, recorded.graph.devices
    found = [np.empty(0, np.int64)]
    for one in _of_run(recorded.tape):
        if one.topic.name in AMONG_NEIGHBOURS:
            sender, receiver = one.pairs // places, one.pairs % places
            found.append(np.minimum(sender, receiver) * devices + np.maximum(sender, receiver))
    every = np.sort(np.concatenate(found))
    return every[np.diff(every, prepend=-1) > 0]


def edge_owners(recorded: Recorded) -> Proportion:
    """Return the share of slots in which a leaf is sent just where the device owns the edge."""
    graph, places = recorded.graph, recorded.graph.devices + 1
    owner = np.repeat(np.arange(graph.devices), graph.degrees)
    (leaf,) = (one for one in _of_run(recorded.tape) if one.topic.name == "train/leaf")
    sends = np.isin(owner * places + graph.neighbours, leaf.pairs)
    return Proportion(int((sends == recorded.run.trees.keep).sum()), len(sends))


def uneven_topics(tape: Tape) -> list[str]:
    """Return the topics, without ideal backends, whose messages of one round differ in size."""
    return sorted({one.topic.name for one in _of_run(tape) if one.uneven and not one.clear})


def dealt_anew(graph: Graph, roles: Ints, seed: int = 0) -> Graph:
    """Return the same devices and edges, with records dealt out anew within each role."""
    rng, order = np.random.default_rng(seed), np.arange(graph.devices)
    for role in np.unique(roles):
        here = np.flatnonzero(roles == role)
        order[here] = rng.permutation(here)
    labels = None if graph.labels is None else np.asarray(graph.labels)[order]
    return replace(graph, features=features_of(graph)[order], labels=labels)


def changed_messages(one: Tape, other: Tape) -> int:
    """Return the differences in counts, bytes, pairs, sizes and rounds, summed over topics.

    Masked sums draw their partners at random: only their sizes are compared.
    """
    nothing = TopicTraffic.none
    first, second = ({t.topic.name: t for t in _of_run(tape)} for tape in (one, other))
    changed = 0
    for name in first.keys() | second.keys():
        some = first.get(name) or second[name]
        empty = nothing(some.topic, some.exchange, len(some.sent) - 1, clear=some.clear)
        a, b = first.get(name, empty), second.get(name, empty)
        changed += len(a.sizes ^ b.sizes)
        if some.topic.door is Door.AGGREGATE:
            continue
        changed += len(np.setxor1d(a.pairs, b.pairs)) + len(set(a.rounds) ^ set(b.rounds))
        changed += sum(
            int(np.abs(mine - theirs).sum())
            for mine, theirs in (
                (a.sent, b.sent),
                (a.received, b.received),
                (a.bytes_sent, b.bytes_sent),
                (a.bytes_received, b.bytes_received),
            )
        )
    return changed


def _content(task: str, scene: Scene, recorded: Recorded) -> Iterator[AuditRow]:
    """Yield what traffic tells about features and labels."""
    open_ = Door.OPEN in recorded.config.profile.doors
    uneven = uneven_topics(recorded.tape)
    yield _row(
        task,
        "topics whose messages of one round differ in size",
        "topics",
        Exactly(float(len(uneven)), len({one.topic.name for one in _of_run(recorded.tape)})),
        bound=None if open_ else (0.0, "sizes follow from public numbers (docs/privacy.md)"),
        note=", ".join(uneven),
    )
    if not open_ and task == "classify":
        scene.say("another run with records dealt out anew")
        other = scene.record(
            dealt_anew(scene.graph, recorded.roles, scene.seed),
            task,
            keep=lambda topic, batch: None,
            # The account is the devices': an audit must not spend from it for other labels.
            **({"account": None} if "account" in scene.settings else {}),
        )
        yield _row(
            task,
            "counts, bytes, pairs and rounds that change when all records are dealt out anew",
            "messages",
            Exactly(float(changed_messages(recorded.tape, other.tape)), recorded.graph.devices),
            bound=(0.0, "traffic tells edges and roles, nothing else (docs/privacy.md)"),
        )
    labels = recorded.graph.labels
    if labels is not None:
        yield from _label_row(task, recorded, np.asarray(labels))


def _label_row(task: str, recorded: Recorded, labels: Ints) -> Iterator[AuditRow]:
    """Yield the most frequent label against all others, from all counts, beside the degree."""
    here = np.flatnonzero(labels >= 0)
    wanted = (labels == np.bincount(labels[here]).argmax())[here]
    known = np.random.default_rng(0).random(len(here)) < 0.5
    degree = np.log1p(recorded.graph.degrees[here].astype(np.float64))[:, None]
    seen = np.concatenate([degree, traffic_columns(recorded.tape)[here]], axis=1)
    found, alone = (_area(columns, wanted, known) for columns in (_bent(seen), _bent(degree)))
    yield _row(
        task,
        "whether a device has the most frequent label, from counts and bytes on all topics",
        "AUC",
        found,
        chance=(alone.auc, "its degree alone"),
        note="a linear reader, fitted on one half of all devices",
    )


def traffic_columns(tape: Tape) -> Doubles:
    """Return [devices, …] logarithms of messages and bytes by topic, sent and received."""
    columns = [
        np.log1p(counts[:-1].astype(np.float64))
        for one in _of_run(tape)
        if not one.clear
        for counts in (one.sent, one.received, one.bytes_sent, one.bytes_received)
    ]
    return np.stack(columns, axis=1)


def _bent(columns: Doubles) -> Doubles:
    return np.concatenate([columns, columns**2], axis=1)


def _area(columns: Doubles, wanted: Flags, known: Flags) -> Area:
    scores = ridge_scores(columns, wanted[:, None].astype(np.float64), known)[:, 0]
    return area(scores, wanted[~known])


def _of_run(tape: Tape) -> list[TopicTraffic]:
    """Return the traffic of the run itself, without trees."""
    return [one for one in tape.traffic if one.exchange == tape.last]


def _row(task: str, about: str, measure: str, estimate: Estimate, **more: Any) -> AuditRow:
    return finding(BROKER, f"{task}: {about}", measure, estimate, **more)


@attack("ledger", "bytes on the transport against bytes in the ledger")
def attack_ledger_conformance(scene: Scene) -> Iterator[AuditRow]:
    """Compare every device's bytes, of every recorded task and on both transports."""
    for task in scene.tasks:
        recorded = scene.recorded(task)
        for what, wrong in uncounted_bytes(recorded).items():
            yield finding(
                "the operator",
                f"{task}, {what}: bytes that some device sent or received, and the ledger "
                "did not count",
                "bytes",
                Exactly(float(wrong), recorded.graph.devices),
                bound=(0.0, "every message is checked and counted (docs/privacy.md)"),
            )


def uncounted_bytes(recorded: Recorded) -> dict[str, int]:
    """Return uncounted bytes of the run itself, and of its trees if they needed messages.

    A recorded run has no other variant: its trees' transport is the one before the last.
    """
    tape, run = recorded.tape, recorded.run
    wrong = {"training": difference(tape, tape.last, run.ledger)}
    if any(one.exchange == tape.last - 1 for one in tape.traffic) or run.trees.ledger.bytes:
        wrong["trees"] = difference(tape, tape.last - 1, run.trees.ledger)
    return wrong


def difference(tape: Tape, exchange: int, ledger: LedgerReport) -> int:
    """Return Σ over devices, directions and topics of |delivered - counted| bytes.

    Per device the ledger of a run with ideal backends has the cost of the secure protocol; there
    the bytes of real topics are compared topic by topic only.
    """
    devices = len(ledger.bytes_sent)
    sent, received = np.zeros((2, devices), np.int64)
    rest = {name: line.bytes for name, line in ledger.topics.items() if not line.ideal}
    clear = {name: line["bytes"] for name, line in ledger.clear_traffic.items()}
    for one in tape.traffic:
        if one.exchange == exchange:
            name, of = one.topic.name, clear if one.clear else rest
            of[name] = of.get(name, 0) - int(one.bytes_received.sum())
            if not one.clear:
                sent += one.bytes_sent[:devices]
                received += one.bytes_received[:devices]
    wrong = sum(abs(bytes_) for bytes_ in (*rest.values(), *clear.values()))
    if not any(line.ideal for line in ledger.topics.values()):
        wrong += int(np.abs(sent - ledger.bytes_sent).sum())
        wrong += int(np.abs(received - ledger.bytes_received).sum())
    return wrong
