"""A coordinator that lies to devices, and devices that send what breaks the rules."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.deploy.test_absence import LOST, SUM_PHASE, SilentDevice, same, weights

import lumos
from lumos.deploy.protocol.frames import Data, RoundKey, RunState
from lumos.deploy.virtual import Federation, MemoryStore, Packet
from lumos.device.shard import COORDINATOR
from lumos.graph.parts import PartsFolder
from lumos.secagg.openings import OpenedSums
from lumos.secagg.topics import Stage
from lumos.training.config import Config
from lumos.training.sums import RunSums


class Tampering(Federation):
    """Changes envelopes on their way."""

    change: Callable[[int, int, Data], Data] | None = None

    def _send(self, packet: Packet) -> None:
        sender, receiver, _ = packet
        if self.change is not None:
            frames = self.decoded(packet)
            changed = [
                self.change(sender, receiver, frame) if isinstance(frame, Data) else frame
                for frame in frames
            ]
            packet = (sender, receiver, self.encoded(sender, receiver, changed))
        super()._send(packet)


class UnrecordedStore(MemoryStore):
    """A broken twin: what a device received in a round does not survive a restart."""

    def rounds(self) -> dict[RoundKey, dict[int, Data]]:
        return {}

    def add_round(self, key: RoundKey, envelopes: dict[int, Data], *, durable: bool = True) -> None:
        pass


class ForgetfulStore(UnrecordedStore):
    """And neither does what it gave out shares for."""

    def opened(self) -> OpenedSums:
        return OpenedSums((), self.openings.append)


@pytest.mark.parametrize("store", [MemoryStore, UnrecordedStore, ForgetfulStore])
def test_a_restarted_device_opens_no_sum_a_second_time(
    twelve: PartsFolder, short: Config, store: type[MemoryStore]
) -> None:
    """The coordinator says after the restart that another device is lost: a holder that believed it
    would give out a share of the other secret of that device."""
    federation = Tampering(twelve, short)
    federation.stores[LOST] = store()
    federation.start(LOST)
    revealed: list[bytes] = []

    def watch(now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if sender != LOST or not isinstance(frame, Data) or frame.key.phase != SUM_PHASE:
                continue
            if frame.topic.endswith("reveal"):
                revealed.append(frame.body)

    federation.watch = watch
    federation.run(until=lambda: bool(revealed))
    federation.kill(LOST)
    neighbours = mask_neighbours(federation)

    def another_is_lost(sender: int, receiver: int, data: Data) -> Data:
        if sender != COORDINATOR or receiver != LOST or data.key.phase != SUM_PHASE:
            return data
        if data.topic.endswith("aggregate/lost"):
            ids = [] if not data.count else np.frombuffer(data.body, np.int64).tolist()
            body = np.array([neighbours[0], *ids], np.int64).tobytes()
            return msgspec.structs.replace(data, count=len(ids) + 1, body=body)
        if data.topic.endswith("confirmed") and data.count:
            return confirmed_by_others(federation, data)
        return data

    federation.change = another_is_lost
    federation.start(LOST)
    federation.run(
        until=lambda: federation.device(LOST).ended is not None or len(set(revealed)) > 1
    )
    assert len(set(revealed)) == 1 + (store is ForgetfulStore)  # two have shares of both secrets
    ended = str(federation.device(LOST).ended)
    if store is UnrecordedStore:
        assert "given out before" in ended
    elif store is MemoryStore:
        assert ended == ""  # it goes on with what it received the first time


def mask_neighbours(federation: Federation) -> list[int]:
    """Of the device, by slot."""
    trainer: Any = federation.coordinator.job.trainer
    found: list[int] = trainer.sums._sums._graph.of(np.array([LOST]))[0].tolist()
    return found


def confirmed_by_others(federation: Federation, data: Data) -> Data:
    """The words of all neighbours but the first: the coordinator has them all, and can add them."""
    sent = federation.coordinator_store.kept
    rounds = {key: envelopes for key, envelopes in sent.items() if key.phase == SUM_PHASE}
    alive = next(
        envelopes
        for envelopes in rounds.values()
        if next(iter(envelopes.values())).topic.endswith("alive")
    )
    neighbours = mask_neighbours(federation)
    k = len(neighbours)
    words = np.zeros(3, np.uint32)
    bits = np.zeros(k, np.bool_)
    for slot, neighbour in list(enumerate(neighbours))[1:]:
        theirs = np.frombuffer(alive[neighbour].body, "<u4").reshape(k, 3)[k - 1 - slot]
        words ^= theirs
        bits[slot] = True
    body = words.astype("<u4").tobytes() + np.packbits(bits, bitorder="little").tobytes()
    return msgspec.structs.replace(data, body=body, lengths=[len(body)])


@pytest.mark.parametrize("broken", [False, True])
def test_devices_that_received_different_sums_open_nothing_more(
    twelve: PartsFolder, short: Config, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    if broken:
        monkeypatch.setattr(RunSums, "_learn", lambda self, total: None)
    federation = Tampering(twelve, short)

    def another_sum(sender: int, receiver: int, data: Data) -> Data:
        tell = receiver == LOST and data.key.phase == SUM_PHASE
        if not tell or not data.topic.endswith("aggregate/sum"):
            return data
        return msgspec.structs.replace(data, body=bytes([data.body[0] ^ 1]) + data.body[1:])

    federation.change = another_sum
    federation.run(
        until=lambda: (
            all(federation.device(device).ended for device in range(12))
            or federation.coordinator.phase > SUM_PHASE + 2
        )
    )
    opened_next = any(federation.device(device).phase > SUM_PHASE + 1 for device in range(12))
    assert opened_next == broken
    if not broken:
        assert "words that confirm" in str(federation.device(LOST).ended)


@pytest.mark.parametrize("broken", [False, True])
def test_a_device_that_received_another_last_sum_finds_out(
    twelve: PartsFolder, short: Config, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """No sum follows to which it is bound: mask neighbours compare the sums that they received."""
    counted = Tampering(twelve, short)
    sums: list[RoundKey] = []
    counted.change = lambda sender, receiver, data: _note_sum(sums, receiver, data)
    counted.run()
    assert sums[-1].phase == counted.coordinator.job.last
    if broken:
        monkeypatch.setattr(RunSums, "compare_told", lambda self: iter(()))
    federation = Tampering(twelve, short)

    def another_sum(sender: int, receiver: int, data: Data) -> Data:
        if receiver != LOST or data.key != sums[-1]:
            return data
        return msgspec.structs.replace(data, body=bytes([data.body[0] ^ 1]) + data.body[1:])

    federation.change = another_sum
    federation.run(until=lambda: federation.coordinator.finished)
    federation.run()
    line = "the last sums: the coordinator sent mask neighbours different sums"
    assert federation.device(LOST).ended == ("" if broken else line)
    # Nobody else was lied to.
    assert all(federation.device(device).ended == "" for device in range(12) if device != LOST)
    assert federation.coordinator.ended == ""
    assert federation.coordinator.left_out == ({} if broken else {LOST: "the last sums"})


def _note_sum(sums: list[RoundKey], receiver: int, data: Data) -> Data:
    if receiver == LOST and data.topic == "aggregate/sum" and data.key not in sums:
        sums.append(data.key)
    return data


LONG = pytest.mark.long
WRONG = {
    "another topic": lambda data: msgspec.structs.replace(data, topic="aggregate/masked"),
    "no topic": lambda data: msgspec.structs.replace(data, topic="nonsense"),
    "too short": lambda data: msgspec.structs.replace(
        data, body=data.body[:-8], lengths=[len(data.body) - 8]
    ),
    "lengths": lambda data: msgspec.structs.replace(data, lengths=[1]),
    "negative": lambda data: msgspec.structs.replace(data, lengths=[-1]),
    "twice": lambda data: msgspec.structs.replace(
        data, count=2, body=2 * data.body, lengths=2 * (data.lengths or [])
    ),
    "no element": lambda data: msgspec.structs.replace(data, body=data.body[:-2] + b"\xff\xff"),
}


@pytest.mark.parametrize(
    "wrong",
    [
        wrong if wrong in ("no topic", "lengths", "no element") else pytest.param(wrong, marks=LONG)
        for wrong in WRONG
    ],
)
def test_a_message_that_breaks_the_rules_stops_nobody_else(
    twelve: PartsFolder,
    short: Config,
    monkeypatch: pytest.MonkeyPatch,
    wrong: str,
) -> None:
    """Its sender counts as silent; the run is that of a simulation in which it is."""
    federation = Tampering(twelve, short)

    def tamper(sender: int, receiver: int, data: Data) -> Data:
        here = sender == LOST and data.key.phase == SUM_PHASE and data.topic.endswith("wrapped")
        return WRONG[wrong](data) if here else data

    federation.change = tamper
    federation.run()
    assert federation.coordinator.ended == ""
    assert any(line.startswith(f"device {LOST}: ") for line in federation.lines)
    SilentDevice(monkeypatch, SUM_PHASE - 2, Stage.WRAPPED)
    assert same(weights(federation), lumos.train("demo:12", short).model.weights)


NONSENSE = {
    "wrong length": lambda data: msgspec.structs.replace(
        data, body=2 * data.body, lengths=[2 * len(data.body)] * data.count
    ),
    "came twice": lambda data: msgspec.structs.replace(
        data, count=2, body=2 * data.body, lengths=[len(data.body)] * 2
    ),
    "out of range": lambda data: msgspec.structs.replace(data, body=b"\xff" * len(data.body)),
    "unknown random mark": lambda data: msgspec.structs.replace(
        data, body=b"\xff" * len(data.body)
    ),
}


@pytest.mark.parametrize("wrong", NONSENSE)
def test_a_neighbour_that_sends_nonsense_is_ignored(
    twelve: PartsFolder, few_words_parts: PartsFolder, short: Config, wrong: str
) -> None:
    parts, config = twelve, short
    if wrong == "unknown random mark":
        parts = few_words_parts
        config = Config.asked(task="link", aggregate="secure", random_marks=4)
    federation = Tampering(parts, config)

    def tamper(sender: int, receiver: int, data: Data) -> Data:
        released = data.topic.endswith(("symbol", "opinion", "colour"))
        return NONSENSE[wrong](data) if sender == LOST and released and data.count else data

    federation.change = tamper
    federation.run()
    assert federation.coordinator.ended == ""
    assert federation.coordinator.left_out == {}
    logged = [line for line in federation.lines if line.startswith(f"device {LOST}: ")]
    assert logged
    assert all(wrong in line for line in logged)


LINKS = Config.asked(task="link", aggregate="secure", random_marks=4)
TREES = Config.asked(
    profile="paper", balancer="greedy", compare="secure", aggregate="secure", epochs=1
)
SESSIONS = {
    "score": LINKS,
    "compare": TREES,
}
"""Messages of two devices, and runs with them."""


@pytest.mark.parametrize("topic", SESSIONS)
def test_a_lie_in_a_session_stays_between_its_two_ends(
    twelve: PartsFolder, few_words_parts: PartsFolder, topic: str
) -> None:
    """The run ends with everybody, and no line of a log names the liar: that would name an edge."""
    config = SESSIONS[topic]
    federation = Tampering(twelve if config is TREES else few_words_parts, config)
    told: set[int] = set()

    def tamper(sender: int, receiver: int, data: Data) -> Data:
        if sender != LOST or data.topic != topic or not data.count:
            return data
        told.add(receiver)
        return msgspec.structs.replace(data, body=bytes(byte ^ 1 for byte in data.body))

    federation.change = tamper
    federation.run()
    assert told
    assert federation.coordinator.ended == ""
    assert federation.coordinator.left_out == {}
    assert all(federation.device(device).ended == "" for device in range(12))
    assert not [line for line in federation.lines if line.startswith(f"device {LOST}: ")]


def test_no_device_speaks_for_the_coordinator(twelve: PartsFolder, short: Config) -> None:
    """Device 3 says that device 5 is left out."""
    federation = Federation(twelve, short)
    federation.run(until=lambda: federation.coordinator.phase == SUM_PHASE)
    federation.device(5).receive(3, [RunState(SUM_PHASE, 0, [5], "ended")], federation.now)
    federation.run()
    assert federation.device(5).ended == ""
    assert "device 3 speaks in place of the coordinator; dropped" in federation.lines
