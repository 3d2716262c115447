"""A federation in virtual time whose coordinator's status is watched."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.graph.parts.same_parts import written

from lumos.deploy.protocol.frames import Data, RoundKey
from lumos.deploy.status import RunHistory, RunStatus, WireBytes, status_of
from lumos.deploy.virtual import RUN, Federation
from lumos.device.shard import COORDINATOR
from lumos.graph.graph import Graph
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.manifest import equal_bounds
from lumos.training.config import Config

BEGAN = 1_790_000_000.0
"""The time of day at virtual time 0."""
SETTINGS: dict[str, Any] = {"encoder_epochs": 2, "epochs": 12, "tree_network": False}
SEED = 3
WIRE = WireBytes(5, 7)


def config_of(**settings: Any) -> Config:
    return Config.asked(aggregate="secure", randomness="seeded", **{**SETTINGS, **settings})


def split(graph: Graph, path: Path) -> PartsFolder:
    """One part for each device."""
    return written(graph, path, equal_bounds(graph.devices, graph.devices), seed=SEED)


class WatchedFederation(Federation):
    """A federation, the content of its packets, and the history that its coordinator keeps."""

    def __init__(self, folder: PartsFolder, config: Config, file: Path | None = None) -> None:
        self.file = file
        self.opened_at: dict[RoundKey, float] = {}
        """By sum, when the coordinator first sent it."""
        self.envelopes: dict[tuple[int, int, RoundKey], Data] = {}
        """From and to the coordinator, each once."""
        super().__init__(folder, config, watch=self._look)

    def start(self, participant: int) -> None:
        super().start(participant)
        if participant == COORDINATOR:
            self.history = RunHistory(RUN, self.file, wall=lambda: BEGAN + self.now)
            self.coordinator.job._on_epoch = self.history.on_epoch

    def run_until(self, condition: Callable[[], bool]) -> RunStatus:
        """Go on until the condition holds; where the run stands then."""

        def stop() -> bool:
            self.history.watch(self.coordinator, self.now)
            return condition()

        self.run(stop)
        return self.status()

    def in_phase(self, phase: int) -> Callable[[], bool]:
        """The condition that the coordinator has come to a phase."""
        return lambda: self.coordinator.phase == phase

    def status(self) -> RunStatus:
        return status_of(self.coordinator, self.config, self.history, self.now, wire=WIRE)

    def flows(self) -> dict[tuple[str, str], tuple[int, int]]:
        """By topic and direction: messages and bytes of bodies, as packets had them."""
        counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for (sender, _, _), data in self.envelopes.items():
            if data.count:
                count = counts[data.topic, "sent" if sender == COORDINATOR else "received"]
                count[0] += data.count
                count[1] += len(data.body)
        return {key: (messages, size) for key, (messages, size) in counts.items()}

    def _look(self, now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if isinstance(frame, Data) and COORDINATOR in (sender, receiver):
                self.envelopes.setdefault((sender, receiver, frame.key), frame)
                if frame.topic == "aggregate/sum":
                    self.opened_at.setdefault(frame.key, now)
