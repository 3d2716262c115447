"""The paper's training by real participants in virtual time, beside the simulation."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.deploy.test_absence import IN_A_SUM, LOST, STAGES, Killer, back_in_time, same, weights
from tests.deploy.test_sessions import trees
from torch.nn.functional import cross_entropy, logsigmoid

import lumos
from lumos.deploy.protocol.frames import Data, batch_of
from lumos.deploy.virtual import Federation, Packet
from lumos.device.shard import COORDINATOR
from lumos.errors import ProtocolError
from lumos.exchange import recording
from lumos.exchange.messages import TOPICS
from lumos.graph.parts import PartsFolder
from lumos.model.tree_tensors import Trees
from lumos.paper.messages import FEATURES
from lumos.secagg.topics import Stage
from lumos.training.config import Config
from lumos.training.split import Role
from lumos.training.sums import RunSums
from lumos.trees.forest import Forest
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


KINDS: dict[str, dict[str, Any]] = {
    "gcn": {"local_steps": 3},
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
    for device in range(12):  # a device has its own tree and features, and nobody else's
        trainer: Any = federation.device(device).job.trainer
        assert trainer.forest.devices.tolist() == [device]
        assert trainer._features.shape[0] == len(trainer.shard) == 1
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
    return paper(balancer="greedy", local_steps=2)


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
    ("topic", "participant"),
    [
        ("train/embedding", LOST),
        ("sum", COORDINATOR),
        *(
            pytest.param(topic, participant, marks=pytest.mark.long)
            for topic, participant in (
                ("train/ask", LOST),
                ("train/embedding-gradient", LOST),
                ("train/leaf", LOST),
                ("masked", LOST),
                ("left-out", COORDINATOR),
                ("lost", COORDINATOR),
            )
        ),
    ],
)
def test_links_with_a_participant_that_is_back_in_time(
    twelve: PartsFolder,
    linking: Config,
    undisturbed: dict[str, Arrays],
    topic: str,
    participant: int,
) -> None:
    federation = Federation(twelve, linking)
    back_in_time(federation, Killer(federation, participant, topic, EPOCH_PHASE, after=True))
    assert federation.coordinator.left_out == {}
    for one in (COORDINATOR, *range(12)):
        assert same(weights(federation, one), undisturbed["link"])


EPOCH_TOPICS = {
    "classify": ("train/leaf", "train/leaf-gradient", "aggregate/masked"),
    "link": ("train/ask", "train/embedding", "train/embedding-gradient"),
}


@pytest.mark.parametrize(
    ("task", "topic"),
    [
        pytest.param(task, topic, marks=pytest.mark.long if place else ())
        for task, topics in EPOCH_TOPICS.items()
        for place, topic in enumerate(topics)
    ],
)
def test_a_server_that_is_started_again_changes_nothing(
    twelve: PartsFolder,
    quick: Config,
    linking: Config,
    undisturbed: dict[str, Arrays],
    task: str,
    topic: str,
) -> None:
    """From the first message of a topic on, and for 5 s, it loses every packet."""
    federation = Federation(twelve, quick if task == "classify" else linking)
    down: list[float] = []

    def watch(now: float, _sender: int, _receiver: int, frames: list[Any]) -> None:
        concerned = (
            isinstance(frame, Data) and (frame.topic, frame.key.phase) == (topic, EPOCH_PHASE)
            for frame in frames
        )
        if not down and any(concerned):
            down.append(now)
            federation.flying.clear()

    def route(now: float, _packet: Packet) -> list[float]:
        return [] if down and now < down[0] + 5 else [federation.latency]

    federation.watch, federation.route = watch, route
    federation.run()
    assert down
    assert federation.now > down[0] + 5
    assert federation.coordinator.left_out == {}
    for one in (COORDINATOR, *range(12)):
        assert same(weights(federation, one), undisturbed[task])


@pytest.mark.parametrize(
    ("task", "seed"),
    [
        ("classify", 0),
        ("link", 1),
        *(pytest.param(task, 2, marks=pytest.mark.long) for task in EPOCH_TOPICS),
    ],
)
def test_a_bad_network_and_kills_change_nothing(
    twelve: PartsFolder,
    quick: Config,
    linking: Config,
    undisturbed: dict[str, Arrays],
    task: str,
    seed: int,
) -> None:
    """A tenth of the packets is lost, others are doubled and late; one kill in each epoch."""
    randomness = np.random.default_rng(seed)

    def route(_now: float, _packet: Packet) -> list[float]:
        copies = int(randomness.choice([0, 1, 2], p=[0.1, 0.8, 0.1]))
        return [float(randomness.exponential(0.05)) for _ in range(copies)]

    federation = Federation(twelve, quick if task == "classify" else linking, route=route)
    for phase in range(2, 2 + EPOCHS):
        federation.run(until=lambda phase=phase: federation.coordinator.phase == phase)  # type: ignore[misc]
        moment = federation.now + float(randomness.uniform(0, 1.5))
        federation.run(until=lambda moment=moment: federation.now >= moment)  # type: ignore[misc]
        victim = int(randomness.integers(COORDINATOR, 12))
        federation.kill(victim)
        back = federation.now + float(randomness.uniform(0.5, 5))
        federation.run(until=lambda back=back: federation.now >= back)  # type: ignore[misc]
        federation.start(victim)
    federation.run()
    assert federation.coordinator.left_out == {}
    for one in (COORDINATOR, *range(12)):
        assert same(weights(federation, one), undisturbed[task])


class SilentDevice:
    """A simulation, with a shard for each device, in which one says nothing from some point on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, epoch: int, topic: str) -> None:
        self.sums, self.gone = 0, False
        summed = RunSums.sum
        sent = {name: TOPICS[name].send for name in TOPICS if name.startswith("train/")}
        oracle = self

        def silent_sum(this: Any, update: Any, noise: Any, step: int) -> Any:
            if this._sums._shard.devices[0] != LOST:
                return (yield from summed(this, update, noise, step))
            stage = Stage.WRAPPED if oracle.gone else Stage.NEVER
            if not oracle.gone and oracle.sums == epoch:
                stage, oracle.gone = STAGES[topic], True
            oracle.sums += 1
            try:
                return (yield from summed(this, update, noise, step, np.array([stage], np.int8)))
            except ProtocolError:  # it gets no sum, and what it computes from now on is not sent
                return np.ones(update(True).shape[1])

        def send(this: Any, sender: Any, receiver: Any, body: Any, **more: Any) -> Any:
            if this.name == topic and oracle.sums == epoch and LOST in sender:
                oracle.gone = True
            outbox = original(this, sender, receiver, body, **more)
            if oracle.gone and this.name in sent:
                outbox.batch = outbox.batch.take(np.flatnonzero(outbox.batch.sender != LOST))
            return outbox

        original = type(FEATURES).send
        monkeypatch.setattr(RunSums, "sum", silent_sum)
        monkeypatch.setattr(type(FEATURES), "send", send)
        # The lost device has other weights.
        monkeypatch.setattr("lumos.runs.loop.Federation.digest_differs", lambda _: False)


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
    assert same(first, lumos.train("demo:12", config, shards=12).model.weights)


def descent(parameters: Any) -> torch.optim.Optimizer:
    """Return an optimizer that, unlike Adam, makes nothing of the last bit of a gradient."""
    return torch.optim.SGD(parameters, lr=0.5)


class WrittenDown:
    """The rules for absence, written down as one loss of all devices that torch differentiates.

    Nothing is sent. Of a device that falls silent, what it sent before is constant, and its own
    loss does not count. From the next epoch on it is in no tree, no pool and no pair.

    Args:
        fresh: a federation whose devices have their trees, and the features of neighbours in the
            clear.
        lost_in: the epoch in which `LOST` falls silent.
        topic: of the first message that it does not send.
    """

    def __init__(self, fresh: Federation, lost_in: int, topic: str) -> None:
        self._trainers: list[Any] = [fresh.device(device).job.trainer for device in range(12)]
        self._lost_in, self._topic = lost_in, topic
        rows = [np.asarray(trainer._features.todense()) for trainer in self._trainers]
        self._x = torch.from_numpy(np.concatenate(rows).astype(np.float32))
        self._parts = [fresh.folder.part([device], "classify") for device in range(12)]
        self.model = self._trainers[0].model
        self.model.initialise(fresh.coordinator.job.public.generator("weights"))

    def weights(self) -> Arrays:
        """Return the weights after all epochs."""
        for epoch in range(EPOCHS):
            loss, count = self._loss(epoch)
            gradients = torch.autograd.grad(loss / count, [*self.model.parameters()])
            with torch.no_grad():
                for value, gradient in zip(self.model.parameters(), gradients, strict=True):
                    value -= 0.5 * gradient
        return {name: value.detach().numpy() for name, value in self.model.named_parameters()}

    def _branches(self, device: int, epoch: int) -> Any:
        """Return the slots of the neighbours in a tree."""
        trainer = self._trainers[device]
        slots = np.flatnonzero(trainer._leaves_at)
        return slots[(trainer.shard.neighbours[slots] != LOST) | (epoch <= self._lost_in)]

    def _loss(self, epoch: int) -> tuple[torch.Tensor, int]:
        falls, gone = epoch == self._lost_in, epoch > self._lost_in
        without = {LOST} if gone or (falls and self._topic == "train/leaf") else set()
        leaves: dict[int, list[torch.Tensor]] = {device: [] for device in range(12)}
        for device in set(range(12)) - without:
            names = self._trainers[device].shard.neighbours[self._branches(device, epoch)]
            one = np.zeros(len(names), np.int64)
            tree = Trees.of(Forest(devices=np.array([device]), owner=one, neighbour=names))
            own, others = self.model.network(tree, self._x[device : device + 1], self._x[names])
            if falls and device == LOST:
                own, others = own.detach(), others.detach()
            leaves[device].append(own)
            for row, name in enumerate(names.tolist()):
                leaves[name].append(others[row : row + 1])
        pooled = {of: torch.cat(some).mean(dim=0) for of, some in leaves.items() if some}
        if falls and LOST in pooled:
            pooled[LOST] = pooled[LOST].detach()
        speaking = set(range(12)) - ({LOST} if falls or gone else set())
        if self.model.head is None:
            return self._pairs(epoch, pooled, speaking)
        training = [one for one in speaking if self._parts[one].roles[0] == Role.TRAIN]
        labels = torch.tensor([int(self._parts[one].labels[0]) for one in training])
        logits = self.model.head(torch.stack([pooled[one] for one in training]))
        return cross_entropy(logits, labels, reduction="sum"), len(training)

    def _pairs(
        self, epoch: int, pooled: dict[int, torch.Tensor], speaking: set[int]
    ) -> tuple[torch.Tensor, int]:
        answering = set(speaking)
        if epoch == self._lost_in and self._topic == "train/embedding-gradient":
            answering.add(LOST)
        loss, count = torch.zeros(()), 0
        for asker in speaking:
            task = self._trainers[asker]._task
            task.keep(self._branches(asker, epoch))
            _, peers, signs, training = task._pairs(epoch)
            for peer, sign in zip(peers[training].tolist(), signs[training].tolist(), strict=True):
                if peer in answering:
                    loss = loss - logsigmoid(sign * (pooled[asker] @ pooled[peer]))
                    count += 1
        return loss, count


@pytest.mark.parametrize(
    ("task", "topic"),
    [
        *(("classify", topic) for topic in ("leaf", "leaf-gradient")),
        *(("link", topic) for topic in ("embedding", "embedding-gradient")),
        pytest.param("link", "ask", marks=pytest.mark.long),
        *(pytest.param(task, None, marks=pytest.mark.long) for task in EPOCH_TOPICS),
    ],
)
def test_the_rules_for_absence_are_those_that_are_written_down(
    twelve: PartsFolder, task: str, topic: str | None
) -> None:
    """Without a lost device too: then the oracle is the paper's loss."""
    config = paper(
        task=task, balancer="greedy", epsilon=float("inf"), dropout=0.0, optimizer=descent
    )
    federation, fresh = Federation(twelve, config), Federation(twelve, config)
    fresh.run(until=lambda: all(fresh.device(device).phase == 2 for device in range(12)))
    if topic is not None:
        killer = Killer(federation, LOST, f"train/{topic}", EPOCH_PHASE)
        federation.run(until=lambda: killer.killed)
    federation.run()
    assert set(federation.coordinator.left_out) == ({LOST} if topic else set())
    lost_in = EPOCH_PHASE - 2 if topic else EPOCHS
    expected = WrittenDown(fresh, lost_in, f"train/{topic}").weights()
    found = weights(federation)
    assert max(float(np.abs(found[name] - expected[name]).max()) for name in expected) < 1e-6


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
