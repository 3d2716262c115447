"""Runs of participants with folders: killed and restarted, and what is in the folders meanwhile."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deploy.crashing_disk import quick_disk  # noqa: F401
from tests.deploy.disk_federation import DiskFederation, parts_of_devices
from tests.deploy.secrets_in_memory import Search, SecretsInMemory, written

import lumos
from lumos.deploy.protocol.frames import Data
from lumos.deploy.state import DeviceFolder, read_snapshot
from lumos.deploy.virtual import RUN
from lumos.device.shard import COORDINATOR
from lumos.exchange.messages import TOPICS, Door
from lumos.graph.parts import PartsFolder
from lumos.training.config import Config
from lumos.typing import Arrays

DEVICES = 12
PARTICIPANTS = (COORDINATOR, *range(DEVICES))


def config(randomness: str) -> Config:
    return Config.asked(
        aggregate="secure", encoder_epochs=2, propagated_labels=1, epochs=8, randomness=randomness
    )


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> PartsFolder:
    return parts_of_devices("demo:12", tmp_path_factory.mktemp("folders") / "parts")


@pytest.fixture(scope="module")
def undisturbed() -> Arrays:
    """The weights of the simulation."""
    return lumos.train("demo:12", config("seeded")).model.weights


def assert_weights(federation: DiskFederation, wanted: Arrays) -> None:
    for participant in PARTICIPANTS:
        found = federation.participants[participant].job.trainer.state_dict("model")
        assert found.keys() == wanted.keys()
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
        assert federation.participants[participant].ended == ""
    assert federation.coordinator.left_out == {}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_participants_that_are_killed_and_restarted_end_with_the_undisturbed_weights(
    parts: PartsFolder, undisturbed: Arrays, tmp_path: Path, seed: int
) -> None:
    randomness = np.random.default_rng(seed)
    killed: list[int] = []

    def watch(_now: float, sender: int, _receiver: int, _frames: list[Any]) -> None:
        if len(killed) < 15 and sender in federation.participants and randomness.random() < 0.01:
            federation.kill(sender)
            killed.append(sender)

    def over() -> bool:
        return len(killed) == 15 and all(
            participant.ended is not None for participant in federation.participants.values()
        )

    federation = DiskFederation(parts, config("seeded"), path=tmp_path, watch=watch)
    while True:
        federation.run(until=lambda: len(federation.participants) < len(PARTICIPANTS) or over())
        gone = set(PARTICIPANTS) - set(federation.participants)
        if not gone:
            break
        back = federation.now + float(randomness.uniform(0, 3))
        federation.run(until=lambda back=back: federation.now >= back)  # type: ignore[misc]
        for participant in set(PARTICIPANTS) - set(federation.participants):
            federation.start(participant)
    assert len(killed) == 15
    assert_weights(federation, undisturbed)


def test_all_are_killed_at_once_between_any_two_phases(
    parts: PartsFolder, undisturbed: Arrays, tmp_path: Path
) -> None:
    federation = DiskFederation(parts, config("seeded"), path=tmp_path)
    for phase in range(1, federation.coordinator.job.last + 1):
        federation.run(until=lambda phase=phase: federation.coordinator.phase == phase)  # type: ignore[misc]
        for participant in PARTICIPANTS:
            federation.kill(participant)
        federation.flying.clear()
        for participant in PARTICIPANTS:
            federation.start(participant)
    federation.run()
    assert_weights(federation, undisturbed)


class Released:
    """What devices released to each other, as it was sent."""

    def __init__(self) -> None:
        self.envelopes: dict[tuple[str, int, int], bytes] = {}

    def __call__(self, _now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if isinstance(frame, Data) and TOPICS[frame.topic].door is Door.RELEASE and frame.body:
                self.envelopes[frame.topic, sender, receiver] = frame.body


FILES = {"secret.key", "snapshot.bin", "openings.log", "rounds.log", "attempts.log", "peers.log"}
PUBLIC = ("run/trainer/", "run/scaling/", "run/columns", "run/sums/", "phase", "absent")
"""Arrays that all devices have alike in a phase; public keys are looked at one by one."""

KEYS_OF_DEVICES = {"draw", "secret", "device key", "chain", "agreement", "seed", "mask key", "mask"}


class Scan:
    """Looks through the folders of a federation."""

    def __init__(
        self,
        parts: PartsFolder,
        path: Path,
        monkeypatch: pytest.MonkeyPatch,
        store: type[DeviceFolder] = DeviceFolder,
    ) -> None:
        self.secrets, self.released = SecretsInMemory(monkeypatch), Released()
        self.federation = DiskFederation(
            parts, config("system"), path=path, store=store, watch=self.released
        )
        self.neighbours = [
            set(parts.part([device], "classify").neighbours.tolist()) for device in range(DEVICES)
        ]
        self.features: dict[bytes, int] = {}
        for device in range(DEVICES):
            row: Any = parts.part([device], "classify").features
            dense = row.toarray()[0]
            columns = np.flatnonzero(dense)
            for form in (
                *(columns.astype(kind) for kind in ("<i2", "<i4", "<i8")),
                *(dense.astype(kind) for kind in ("<f4", "<f8", "?")),
                np.packbits(dense > 0),
            ):
                if form.nbytes >= 12:  # a few bytes are in any file
                    self.features[form.tobytes()] = device

    def secrets_found(self) -> set[str]:
        """Kinds of secrets in the folders; of `secret.key` all but the secret that it is for."""
        patterns, found = self.secrets.patterns(), set()
        search = Search(patterns)
        for device in range(DEVICES):
            own = set(written(self.federation.secrets[device]))
            for path in self.federation.folder_of(device).iterdir():
                allowed = own if path.name == "secret.key" else set()
                found |= search.found(path.read_bytes()) - allowed
        return {patterns[pattern] for pattern in found}

    def coordinator_found(self) -> set[str]:
        """Kinds of secrets in the coordinator's folder; it learns shares that were given out."""
        patterns = self.secrets.patterns()
        search = Search(patterns)
        files = (self.federation.path / "coordinator").iterdir()
        return {patterns[found] for path in files for found in search.found(path.read_bytes())}

    def owners_found(self) -> list[set[int]]:
        """For each device, whose features, or vectors before they are masked, its folder holds."""
        patterns = {**self.features, **self.secrets.vectors}
        search = Search(patterns)
        return [
            {
                patterns[found]
                for path in self.federation.folder_of(device).iterdir()
                for found in search.found(path.read_bytes())
            }
            for device in range(DEVICES)
        ]

    def unexplained(self) -> list[list[str]]:
        """For each device, files and arrays neither its own, public, nor released to it."""
        snapshots = [self._snapshot(device) for device in range(DEVICES)]
        return [
            sorted({path.name for path in self.federation.folder_of(device).iterdir()} - FILES)
            + [
                name
                for name, array in snapshots[device].items()
                if not self._is_explained(device, name, array, snapshots)
            ]
            for device in range(DEVICES)
        ]

    def _is_explained(self, device: int, name: str, array: Any, snapshots: list[Arrays]) -> bool:
        if name == "run/sums/public_keys":
            return {row.tobytes() for row in array[0]} <= self.secrets.public_keys
        if name.startswith(PUBLIC):
            phase = snapshots[device]["phase"]
            return all(
                np.array_equal(other[name], array) for other in snapshots if other["phase"] == phase
            )
        if name.startswith("heard/"):
            _, _, *topic, field = name.split("/")
            if field != "body":
                return field in ("sender", "lengths")
            senders = snapshots[device][name.removesuffix("body") + "sender"].tolist()
            return set(senders) <= self.neighbours[device] and all(
                self.released.envelopes.get(("/".join(topic), sender, device)) == row.tobytes()
                for sender, row in zip(senders, array, strict=True)
            )
        if name == "outgoing":  # what the device itself sent to others
            return True
        if name == "keep":
            return array.shape == (len(self.neighbours[device]),)
        # Counts of its own messages, and ε that it spent on each of its neighbours.
        return name.startswith("ledger/") and array.size <= max(1, len(self.neighbours[device]))

    def _snapshot(self, device: int) -> Arrays:
        found = read_snapshot(self.federation.folder_of(device) / "snapshot.bin", "")
        assert found is not None
        return found


def moments(federation: DiskFederation) -> list[Any]:
    """Between two phases, in the middle of a sum that devices have begun to open, and the end."""
    stores: Any = federation.stores
    return [
        lambda: federation.coordinator.phase == 3,
        lambda: (
            federation.coordinator.phase == 5
            and any(len(store._openings.records) > 1 for store in stores)
        ),
        None,
    ]


def test_folders_hold_no_secret_of_a_session_and_nothing_of_others_but_what_they_released(
    parts: PartsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = Scan(parts, tmp_path, monkeypatch)
    for moment in moments(scan.federation):
        scan.federation.run(until=moment)
        assert scan.secrets_found() == set()
        for device, owners in enumerate(scan.owners_found()):
            assert owners <= {device}
        assert scan.unexplained() == [[]] * DEVICES
        assert not scan.coordinator_found() & KEYS_OF_DEVICES
    kinds = scan.secrets.seen
    assert kinds >= {"draw", "device key", "chain", "seed", "values_up"}
    assert kinds >= {"word_up", "share", "shared", "mask key", "mask"}
    assert set(scan.secrets.vectors.values()) == set(range(DEVICES))
    assert scan.released.envelopes


@pytest.mark.parametrize(
    "what",
    [
        "chain",
        *(pytest.param(what, marks=pytest.mark.long) for what in ("wide chain", "secret")),
        "agreement",
    ],
)
def test_the_scan_finds_a_store_that_writes_a_secret(
    parts: PartsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The broken twin."""

    class Leaky(DeviceFolder):
        def save(self, snapshot: Arrays) -> None:
            if len(scan_of[0].secrets.chains):
                secret = scan_of[0].secrets.chains[-1]
                if what == "secret":
                    secret = self.keys(RUN)._secret
                elif what == "agreement":
                    secret = next(iter(scan_of[0].secrets._agreements()))
                leaked: Any = np.frombuffer(secret, np.uint8)
                if what == "wide chain":
                    leaked = np.frombuffer(secret, np.uint32).astype(np.int64)
                snapshot = {**snapshot, "run/trainer/more": leaked}
            super().save(snapshot)

    scan_of: list[Scan] = []
    scan_of.append(Scan(parts, tmp_path, monkeypatch, Leaky))
    scan_of[0].federation.run(until=lambda: scan_of[0].federation.coordinator.phase == 4)
    found = scan_of[0].secrets_found()
    assert found & {what.removeprefix("wide "), *(("draw",) if what == "secret" else ())}


@pytest.mark.parametrize(
    "what", ["vector", pytest.param("features", marks=pytest.mark.long), "opinion"]
)
def test_the_scan_finds_a_store_that_writes_data_of_another_device(
    parts: PartsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The broken twin."""

    class Leaky(DeviceFolder):
        def save(self, snapshot: Arrays) -> None:
            if self.path.name == "device-3":
                if what == "opinion":
                    snapshot = {
                        name: array ^ 1 if name.endswith("/body") else array
                        for name, array in snapshot.items()
                    }
                else:
                    known = scan_of[0].secrets.vectors if what == "vector" else scan_of[0].features
                    of = next((data for data, device in known.items() if device == 7), b"")
                    snapshot = {**snapshot, "run/more": np.frombuffer(of, np.uint8)}
            super().save(snapshot)

    scan_of: list[Scan] = []
    scan_of.append(Scan(parts, tmp_path, monkeypatch, Leaky))
    (scan,) = scan_of
    scan.federation.run()
    unexplained = scan.unexplained()
    assert unexplained[3] != []
    assert unexplained[2] == []
    assert (7 in scan.owners_found()[3]) == (what != "opinion")
