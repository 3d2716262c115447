"""The paper's training by real participants in virtual time, beside the simulation."""

from typing import Any

import numpy as np
import pytest
from tests.deploy.test_absence import IN_A_SUM, LOST, STAGES, Killer, back_in_time, same, weights
from tests.deploy.test_sessions import trees

import lumos
from lumos.deploy.protocol.frames import Data, batch_of
from lumos.deploy.virtual import Federation
from lumos.device.shard import COORDINATOR
from lumos.exchange import recording
from lumos.exchange.messages import TOPICS
from lumos.graph.parts import PartsFolder
from lumos.paper.messages import FEATURES
from lumos.secagg.topics import Stage
from lumos.training.config import Config
from lumos.training.sums import RunSums
from lumos.typing import Arrays

EPOCHS = 4
EPOCH_PHASE = 4
"""A phase in the middle of the run."""


def paper(**settings: Any) -> Config:
    """Return settings by which the last weights count, and not those of an early epoch."""
    common: dict[str, Any] = {"epochs": EPOCHS, "iterations": 10, "floor": False}
    if not settings.get("literal"):
        common["select"] = "last"
    if settings.get("balancer", "mcmc") != "mcmc":
        del common["iterations"]
    return Config.asked(
        profile="paper", compare="secure", aggregate="secure", **{**common, **settings}
    )


def near(one: Arrays, other: Arrays) -> bool:
    """Return whether weights agree: torch adds up in another order in another process."""
    return one.keys() == other.keys() and all(
        np.allclose(one[name], other[name], rtol=0, atol=1e-5) for name in one
    )


KINDS: dict[str, dict[str, Any]] = {
    "gcn": {},
    "gat, links": {"backbone": "gat", "task": "link", "balancer": "greedy"},
    "literal": {"literal": True, "balancer": "optimal"},
    "sage, stars": {"backbone": "sage", "virtual_nodes": False, "balancer": "none"},
    "attention, in the clear": {"pool": "attention", "epsilon": float("inf"), "balancer": "greedy"},
    "patience": {"select": "validation", "patience": 1, "balancer": "greedy"},
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if number < 3 else pytest.mark.long)
        for number, kind in enumerate(KINDS)
    ],
)
def test_a_run_is_the_simulation(twelve: PartsFolder, kind: str) -> None:
    """Trees, releases, ledgers, losses and weights are equal, with a shard for each device."""
    config = paper(**KINDS[kind])
    federation, released = Federation(twelve, config), {}

    def watch(_now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if isinstance(frame, Data) and frame.topic == FEATURES.name and frame.count:
                released[sender, receiver] = batch_of(frame, FEATURES, sender, receiver).body

    federation.watch = watch
    federation.run()
    with recording() as tape:
        run = lumos.train("demo:12", config, transport="recording", shards=12)
    assert federation.coordinator.ended == ""
    assert not federation.lines
    assert np.array_equal(trees(federation), run.trees.keep)
    for passed in tape.messages(FEATURES.name):
        for row, pair in enumerate(zip(passed.sender, passed.receiver, strict=True)):
            sent = released.pop((int(pair[0]), int(pair[1])))[0]
            assert np.array_equal(sent, passed.body[row][: len(sent)])
    assert not released
    for participant in (COORDINATOR, *range(12)):
        assert same(weights(federation, participant), weights(federation))
    assert same(weights(federation), run.model.weights)
    assert federation.losses == [event.loss for event in run.histories["run"]]
    if config.train.task == "classify":
        logits = [federation.device(device).job.result.logits[0] for device in range(12)]
        assert run.model.logits is not None
        assert np.allclose(logits, run.model.logits, rtol=0, atol=1e-4)
    flows = [federation.participants[one].job.ledgers.flows() for one in (COORDINATOR, *range(12))]
    for ledger in (run.ledger, run.trees.ledger):
        for topic, line in ledger.topics.items():
            sent = sum(flow.get(topic, {}).get("sent", 0) for flow in flows)
            size = sum(flow.get(topic, {}).get("bytes_sent", 0) for flow in flows)
            assert (sent, size) == (line.messages, line.bytes), topic


@pytest.fixture(scope="module")
def quick() -> Config:
    return paper(balancer="greedy")


@pytest.fixture(scope="module")
def linking() -> Config:
    return paper(balancer="greedy", task="link")


@pytest.fixture(scope="module")
def undisturbed(twelve: PartsFolder, quick: Config, linking: Config) -> dict[str, Arrays]:
    found: dict[str, Arrays] = {}
    for config in (quick, linking):
        federation = Federation(twelve, config)
        federation.run()
        found[config.train.task] = weights(federation)
    return found


KILLS = [
    *((topic, None, LOST) for topic in ("train/carry", "train/features", "aggregate/keys")),
    *((topic, EPOCH_PHASE, LOST) for topic in ("train/leaf", "train/leaf-gradient", *IN_A_SUM)),
    *((topic, 2 + EPOCHS, LOST) for topic in ("train/leaf", "told")),
    *((topic, EPOCH_PHASE, COORDINATOR) for topic in ("left-out", "lost", "sum")),
]
QUICK = [
    ("train/features", None, LOST),
    ("train/leaf-gradient", EPOCH_PHASE, LOST),
    ("sum", EPOCH_PHASE, COORDINATOR),
    ("train/leaf", 2 + EPOCHS, LOST),
]


@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize(
    ("topic", "phase", "participant"),
    [pytest.param(*kill, marks=() if kill in QUICK else pytest.mark.long) for kill in KILLS],
)
def test_a_participant_that_is_back_in_time_changes_nothing(
    twelve: PartsFolder,
    quick: Config,
    undisturbed: dict[str, Arrays],
    topic: str,
    phase: int | None,
    participant: int,
    after: bool,
) -> None:
    """The run's own weights are the same, bit by bit."""
    federation = Federation(twelve, quick)
    back_in_time(federation, Killer(federation, participant, topic, phase, after=after))
    assert federation.coordinator.left_out == {}
    for one in (COORDINATOR, *range(12)):
        assert same(weights(federation, one), undisturbed["classify"])


@pytest.mark.parametrize(
    "topic",
    [
        "embedding",
        *(pytest.param(topic, marks=pytest.mark.long) for topic in ("ask", "embedding-gradient")),
    ],
)
def test_links_with_a_device_that_is_back_in_time(
    twelve: PartsFolder, linking: Config, undisturbed: dict[str, Arrays], topic: str
) -> None:
    federation = Federation(twelve, linking)
    back_in_time(federation, Killer(federation, LOST, f"train/{topic}", EPOCH_PHASE, after=True))
    assert federation.coordinator.left_out == {}
    assert same(weights(federation), undisturbed["link"])
    assert same(weights(federation, LOST), undisturbed["link"])


class SilentDevice:
    """The oracle: a simulation in which one device says nothing from some point on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, epoch: int, topic: str) -> None:
        self.sums, self.gone = 0, False
        summed = RunSums.sum
        sent = {name: TOPICS[name].send for name in TOPICS if name.startswith("train/")}
        oracle = self

        def silent_sum(this: RunSums, update: Any, noise: Any, step: int) -> Any:
            stages = np.full(12, Stage.NEVER, np.int8)
            if oracle.gone or oracle.sums == epoch:
                stages[LOST] = Stage.WRAPPED if oracle.gone else STAGES[topic]
                oracle.gone = True
            oracle.sums += 1
            return summed(this, update, noise, step, stages)

        def send(this: Any, sender: Any, receiver: Any, body: Any, **more: Any) -> Any:
            if this.name == topic and oracle.sums == epoch:
                oracle.gone = True
            outbox = original(this, sender, receiver, body, **more)
            if oracle.gone and this.name in sent:
                outbox.batch = outbox.batch.take(np.flatnonzero(outbox.batch.sender != LOST))
            return outbox

        original = type(FEATURES).send
        monkeypatch.setattr(RunSums, "sum", silent_sum)
        monkeypatch.setattr(type(FEATURES), "send", send)


@pytest.mark.parametrize(
    ("task", "topic"),
    [
        *(("classify", topic) for topic in ("train/leaf", "train/leaf-gradient")),
        ("link", "train/ask"),
        *(
            pytest.param("classify", stage, marks=pytest.mark.long)
            for stage in ("masked", "reveal")
        ),
        *(
            pytest.param("link", f"train/{name}", marks=pytest.mark.long)
            for name in ("embedding", "embedding-gradient")
        ),
    ],
)
def test_a_device_that_is_lost_has_no_leaf_no_gradient_and_no_branch(
    twelve: PartsFolder,
    quick: Config,
    linking: Config,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    topic: str,
) -> None:
    """The weights are those of a simulation in which it falls silent there."""
    config = quick if task == "classify" else linking
    federation = Federation(twelve, config)
    killer = Killer(federation, LOST, topic, EPOCH_PHASE)
    federation.run(until=lambda: killer.killed)
    federation.run()
    assert federation.coordinator.ended == ""
    assert set(federation.coordinator.left_out) == {LOST}
    first = weights(federation)
    for device in set(range(12)) - {LOST}:
        assert same(weights(federation, device), first)
        trainer: Any = federation.device(device).job.trainer
        assert LOST not in trainer.forest.neighbour
    SilentDevice(monkeypatch, EPOCH_PHASE - 2, topic)
    assert near(first, lumos.train("demo:12", config).model.weights)


@pytest.mark.parametrize(
    "topic", [pytest.param("train/carry", marks=pytest.mark.long), "train/features"]
)
def test_a_device_that_is_lost_before_the_first_epoch(
    twelve: PartsFolder, quick: Config, topic: str
) -> None:
    """Its neighbours go on without its branch, and so does one that is restarted later."""
    federation = Federation(twelve, quick)
    killer = Killer(federation, LOST, topic)
    federation.run(until=lambda: killer.killed)
    federation.run(until=lambda: federation.coordinator.phase == EPOCH_PHASE)
    neighbour = int(federation.device(LOST - 1).job.shard.neighbours[0])
    federation.kill(neighbour)
    federation.start(neighbour)
    federation.run()
    assert federation.coordinator.ended == ""
    assert set(federation.coordinator.left_out) == {LOST}
    for device in set(range(12)) - {LOST}:
        assert same(weights(federation, device), weights(federation))
        trainer: Any = federation.device(device).job.trainer
        assert LOST not in trainer.forest.neighbour


@pytest.mark.parametrize(
    "wrong", [pytest.param("length", marks=pytest.mark.long), "infinite", "sender"]
)
def test_a_message_that_no_honest_device_sends_counts_as_none(
    twelve: PartsFolder, quick: Config, wrong: str
) -> None:
    """The receiver drops it and goes on; a line names the sender."""
    federation = Federation(twelve, quick)
    forged: list[int] = []

    def watch(_now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for place, frame in enumerate(frames):
            concerned = isinstance(frame, Data) and frame.topic == "train/leaf"
            if sender != LOST or not concerned or frame.key.phase != EPOCH_PHASE:
                continue
            size = 60 if wrong == "length" else 64
            count = 2 if wrong == "sender" else 1
            body = np.full(count * size // 4, np.inf if wrong == "infinite" else 0, "<f4")
            frames[place] = Data(frame.key, frame.topic, count, body.tobytes(), [size] * count)
            forged.append(receiver)

    federation.watch = watch
    federation.run()
    assert federation.coordinator.ended == ""
    assert federation.coordinator.left_out == {}
    assert forged
    assert len([line for line in federation.lines if f"device {LOST}" in line]) >= len(set(forged))


def test_snapshots_hold_weights_and_optimizer_once(twelve: PartsFolder, quick: Config) -> None:
    federation = Federation(twelve, quick)
    federation.run(until=lambda: federation.device(LOST).phase == EPOCH_PHASE)
    snapshot = federation.stores[LOST].snapshot
    assert snapshot is not None
    total = sum(array.size for array in weights(federation).values())
    wide = [name for name, array in snapshot.items() if array.size >= total]
    assert sorted(name.rpartition("/")[2] for name in wide) == ["mean", "square", "weights"]
