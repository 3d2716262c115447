"""Where a run stands: every number against packets, a simulation, or the virtual clock."""

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.deploy.watched import (
    BEGAN,
    SEED,
    SETTINGS,
    WIRE,
    WatchedFederation,
    config_of,
    split,
)

import lumos
from lumos.deploy.attacks import exchanged
from lumos.deploy.status import MAX_SHOWN, RECENT, EpochLosses, RunHistory, RunStatus
from lumos.deploy.virtual import RUN
from lumos.device.shard import COORDINATOR
from lumos.errors import InputError
from lumos.graph.graph import Graph
from lumos.graph.parts import PartsFolder
from lumos.training.trainer import EpochRecord

DEVICES = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> PartsFolder:
    return split(lumos.load(f"demo:{DEVICES}"), tmp_path_factory.mktemp("status") / "parts")


@pytest.fixture(scope="module")
def moments(folder: PartsFolder) -> tuple[WatchedFederation, dict[str, RunStatus]]:
    """An undisturbed run, and where it stood before it, in its setup, in epochs, and at its end."""
    federation = WatchedFederation(folder, config_of())
    coordinator, seen = federation.coordinator, {"before": federation.status()}
    for name, phase in (("setup", 1), ("seventh epoch", 8), ("last sums", coordinator.job.last)):
        seen[name] = federation.run_until(federation.in_phase(phase))
        check(federation, seen[name])
    seen["end"] = federation.run_until(lambda: coordinator.finished)
    check(federation, seen["end"])
    return federation, seen


def check(federation: WatchedFederation, status: RunStatus) -> None:
    """Counts and times are those of the packets."""
    times = sorted(federation.opened_at.values())
    assert status.sums == len(times)
    waits = [after - before for before, after in pairwise(times)]
    recent = list(zip(range(2, len(times) + 1), waits, strict=True))[-RECENT:]
    assert [number for number, _ in status.recent_seconds] == [number for number, _ in recent]
    assert [wait for _, wait in status.recent_seconds] == pytest.approx([w for _, w in recent])
    expected = median(wait for _, wait in recent) if recent else None
    assert status.seconds_per_sum == (expected if expected is None else pytest.approx(expected))
    counted = {(f.topic, f.direction): (f.messages, f.bytes) for f in status.ledger}
    packets = federation.flows()
    on_the_way = {
        key: packets[key]
        for key in packets
        if status.ended is None and key[1] == "received" and packets[key] != counted.get(key)
    }
    assert len(on_the_way) <= 1  # envelopes of the present round
    assert counted | on_the_way == packets
    assert (status.wire_sent, status.wire_received) == WIRE
    assert datetime.fromisoformat(status.updated).timestamp() == pytest.approx(
        BEGAN + federation.now, abs=1e-3
    )
    assert datetime.fromisoformat(status.started).timestamp() == BEGAN


def test_before_anybody_answers(
    moments: tuple[WatchedFederation, dict[str, RunStatus]],
) -> None:
    status = moments[1]["before"]
    assert (status.online, status.devices) == (0, DEVICES)
    assert status.silent == list(range(DEVICES))
    assert status.headline == "Waiting for 12 devices; none has answered yet"
    assert (status.phase, status.phase_number, status.phases_done) == ("trees", 1, 0)
    assert (status.run, status.task) == (RUN.hex()[:8], "classify")
    assert (status.randomness, status.profile) == ("seeded", "strict")
    assert (status.sums, status.seconds_per_sum, status.ledger, status.losses) == (0, None, [], [])
    assert status.ended is None


def test_phases(moments: tuple[WatchedFederation, dict[str, RunStatus]]) -> None:
    seen = moments[1]
    epochs = SETTINGS["epochs"]
    expected = {
        "setup": ("setup", 2),
        "seventh epoch": (f"epoch 7 of {epochs}", 9),
        "last sums": ("the last sums", epochs + 3),
        "end": ("the last sums", epochs + 3),
    }
    for name, (phase, number) in expected.items():
        status = seen[name]
        assert (status.phase, status.phase_number) == (phase, number)
        assert (status.phases, status.epochs) == (epochs + 3, epochs)
        assert status.phases_done == number - (name != "end")
        assert (status.ended is None) == (name != "end")
        assert (status.online, status.silent, status.left_out) == (DEVICES, [], [])
    assert seen["seventh epoch"].headline == f"Epoch 7 of {epochs}: 12 of 12 devices online"
    assert seen["end"].ended == ""
    assert seen["end"].headline == (
        f"The run has finished after {seen['end'].sums} sums; all 12 devices stayed"
    )


def test_losses_are_those_of_the_simulation(
    moments: tuple[WatchedFederation, dict[str, RunStatus]],
) -> None:
    run = lumos.train(
        f"demo:{DEVICES}", seed=SEED, aggregate="secure", randomness="seeded", **SETTINGS
    )
    losses = [(event.epoch, event.loss) for event in run.history if event.loss is not None]
    assert losses
    assert moments[1]["end"].losses == losses
    assert moments[1]["seventh epoch"].losses == [one for one in losses if one[0] < 7]
    assert moments[1]["seventh epoch"].losses


def test_who_does_not_answer_and_who_is_left_out(folder: PartsFolder) -> None:
    federation = WatchedFederation(folder, config_of())
    coordinator = federation.coordinator
    federation.run_until(lambda: coordinator.phase == 4)
    federation.kill(5)
    gone = federation.now
    status = federation.run_until(lambda: federation.now > gone + 10)
    assert (status.online, status.silent, status.left_out) == (DEVICES - 1, [5], [])
    status = federation.run_until(lambda: bool(coordinator.out))
    left = status.left_out[0]
    assert (left.device, left.phase) == (5, f"epoch 3 of {SETTINGS['epochs']}")
    at = datetime.fromisoformat(left.at).timestamp() - BEGAN
    assert federation.deadline - 2 < at - gone <= federation.deadline + 1  # it beat once a second
    assert (status.online, status.silent) == (DEVICES - 1, [])
    assert status.headline.endswith("11 of 12 devices online, 1 left out")
    federation.kill(7)  # below the minimum
    status = federation.run_until(lambda: coordinator.ended is not None)
    assert [one.device for one in status.left_out] == [5, 7]
    assert status.left_out[0] == left
    assert status.ended == coordinator.ended
    assert status.ended
    assert status.headline == f"The run has failed: {status.ended}"
    assert status.phases_done < status.phases


def test_a_coordinator_that_starts_again(folder: PartsFolder, tmp_path: Path) -> None:
    """It still knows losses, times and sums; the next sums are timed again."""
    federation = WatchedFederation(folder, config_of(), tmp_path / "history.json")
    federation.run_until(lambda: federation.coordinator.phase == 3)
    federation.kill(5)
    before = federation.run_until(lambda: federation.coordinator.phase == 8)
    assert before.losses
    assert before.left_out
    federation.kill(COORDINATOR)
    federation.now += 20
    federation.start(COORDINATOR)
    federation.coordinator.advance(federation.now)  # it reads the rounds that it had closed
    after = federation.status()
    assert (after.losses, after.left_out) == (before.losses, before.left_out)
    assert (after.sums, after.started) == (before.sums, before.started)
    assert (after.seconds_per_sum, after.online) == (None, 0)
    end = federation.run_until(lambda: federation.coordinator.finished)
    assert end.sums == len(federation.opened_at)
    assert [number for number, _ in end.recent_seconds] == list(range(after.sums + 2, end.sums + 1))


def test_history_of_another_run_is_not_continued(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    history = RunHistory(RUN, file, wall=lambda: 1.0)
    history.on_epoch(EpochRecord(1, None, None))
    history.on_epoch(EpochRecord(2, float("nan"), None))
    history.on_epoch(EpochRecord(3, 0.5, None))
    assert RunHistory(RUN, file, wall=lambda: 2.0).losses == [(3, 0.5)]
    assert RunHistory(RUN, file, wall=lambda: 2.0).started == 1.0
    other = RunHistory(b"another run's tag"[:16], file, wall=lambda: 2.0)
    assert (other.losses, other.started) == ([], 2.0)


def test_of_a_long_run_some_losses_are_shown_and_the_last_one(tmp_path: Path) -> None:
    history = RunHistory(RUN, tmp_path / "history.json")
    size = (tmp_path / "losses.bin").stat
    for epoch in range(1, 2 * MAX_SHOWN + 1):
        history.on_epoch(EpochRecord(epoch, None if epoch <= 10 else 1 / epoch, None))
        if epoch == MAX_SHOWN:
            assert history.losses == [(one, 1 / one) for one in range(11, MAX_SHOWN + 1)]
    shown = history.losses
    assert MAX_SHOWN / 2 <= len(shown) <= MAX_SHOWN
    assert shown[-1] == (2 * MAX_SHOWN, 0.5 / MAX_SHOWN)
    assert {(after - before) for (before, _), (after, _) in pairwise(shown)} == {2}
    assert history.all_losses.values() == [1 / one for one in range(11, 2 * MAX_SHOWN + 1)]
    assert RunHistory(RUN, tmp_path / "history.json").all_losses.items() == [
        (one, 1 / one) for one in range(11, 2 * MAX_SHOWN + 1)
    ]
    assert size().st_size == len(RUN) + 8 * 2 * MAX_SHOWN


def test_losses_that_were_cut_off_or_are_repeated(tmp_path: Path) -> None:
    file = tmp_path / "losses.bin"
    losses = EpochLosses(RUN, file)
    for epoch in range(1, 6):
        losses.add(epoch, float(epoch))
    content = file.read_bytes()
    for size in range(len(content)):
        file.write_bytes(content[:size])
        again = EpochLosses(RUN, file)
        whole = max(0, size - len(RUN)) // 8
        assert again.values() == [1.0, 2.0, 3.0, 4.0, 5.0][:whole]
        for epoch in range(max(1, whole), 6):
            again.add(epoch, float(epoch))
        assert file.read_bytes() == content
        assert again.last == 5.0


@pytest.mark.parametrize("text", ["", "{", '{"run": 3}', "\udcff"])
def test_damaged_history(text: str, tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match="delete it") as caught:
        RunHistory(RUN, file)
    assert "\n" not in str(caught.value)


ALLOWED = {
    "run", "task", "profile", "randomness", "devices", "online", "silent", "phase", "phase_number",
    "phases", "phases_done", "attempt", "epochs", "stages", "name", "first", "sums",
    "seconds_per_sum", "recent_seconds", "ledger", "topic", "door", "direction", "messages",
    "bytes", "wire_sent", "wire_received", "losses", "about_losses", "left_out", "device", "at",
    "ended", "headline", "started", "updated", "seconds", "step", "steps", "seconds_left",
}  # fmt: skip
"""Names of everything that a status may have."""


def lists(content: Any) -> Iterator[list[Any]]:
    """All lists in a JSON, at any depth."""
    if isinstance(content, list):
        yield content
    for part in content.values() if isinstance(content, dict) else content:
        if isinstance(part, dict | list):
            yield from lists(part)


def names(content: Any) -> set[str]:
    """All names in a JSON, at any depth."""
    found = set(content) if isinstance(content, dict) else set()
    for part in content.values() if isinstance(content, dict) else content:
        if isinstance(part, dict | list):
            found |= names(part)
    return found


def private_in(content: Any, graph: Graph) -> list[str]:
    """What a JSON has of the graph that is private; nothing is looked at but the data."""
    labels, features = graph.labels, graph.features
    assert labels is not None
    assert features is not None
    rows = csr_array(features).toarray().tolist()
    words = [np.flatnonzero(row).tolist() for row in rows]
    near = [
        sorted(graph.neighbours[graph.offsets[v] : graph.offsets[v + 1]].tolist())
        for v in range(graph.devices)
    ]
    found = [f"the name {name!r}" for name in sorted(names(content) - ALLOWED)]
    for one in lists(content):
        if one == labels.tolist() or one == [graph.classes[label] for label in labels]:
            found.append("labels")
        if one and (one in rows or one in words):
            found.append("features")
        plain = all(isinstance(number, int) for number in one)
        if len(one) > 1 and plain and sorted(one) in near:
            found.append("neighbours")
        if len(one) == 2 and plain and one in graph.edge_list().tolist():
            found.append("an edge")
    return found


def as_json(status: RunStatus) -> Any:
    return msgspec.json.decode(msgspec.json.encode(status))


def test_nothing_private(moments: tuple[WatchedFederation, dict[str, RunStatus]]) -> None:
    graph = lumos.load(f"demo:{DEVICES}")
    for status in moments[1].values():
        assert private_in(as_json(status), graph) == []


def test_the_test_would_notice(
    moments: tuple[WatchedFederation, dict[str, RunStatus]],
) -> None:
    graph = lumos.load(f"demo:{DEVICES}")
    assert graph.labels is not None
    assert graph.features is not None
    content = as_json(moments[1]["end"])
    near = graph.neighbours[graph.offsets[0] : graph.offsets[1]].tolist()
    assert len(near) > 1
    row = csr_array(graph.features).toarray()[0].tolist()
    for field, secret, kind in [
        ("silent", near, "neighbours"),
        ("silent", near[::-1], "neighbours"),
        ("recent_seconds", [graph.edge_list()[0].tolist()], "an edge"),
        ("losses", graph.labels.tolist(), "labels"),
        ("stages", [{"name": row, "first": 1}], "features"),
        ("address", "10.0.0.7", "the name 'address'"),
    ]:
        assert kind in private_in({**content, field: secret}, graph)


def test_it_depends_on_private_data_by_losses_alone(
    moments: tuple[WatchedFederation, dict[str, RunStatus]], tmp_path: Path
) -> None:
    """The same run with all edges, features and labels at other devices tells the same."""
    other = exchanged(lumos.load(f"demo:{DEVICES}"), seed=8)
    federation = WatchedFederation(split(other, tmp_path / "parts"), config_of())
    status = federation.run_until(lambda: federation.coordinator.phase == 8)
    one, two = as_json(moments[1]["seventh epoch"]), as_json(status)
    losses = [one.pop("losses"), two.pop("losses")]
    assert losses[0] != losses[1]
    assert one == two
