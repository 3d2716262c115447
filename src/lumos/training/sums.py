"""The masked sums of a run: the part of the hosted devices, and that of a coordinator that follows.

Every sum is bound to those before it, so devices notice a coordinator that sent them different
ones. In a deployment the coordinator follows the training: weights and losses are functions of the
sums that it opens, so it can compute them. It runs the program of a shard without devices
(`FollowedSums`), and learns nothing that it does not know already.
"""

from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.device.shard import Shard
from lumos.errors import ProtocolError, UsageError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.messages import Door, Topic
from lumos.secagg import AGGREGATORS
from lumos.secagg.bounded import BoundedCoordinator
from lumos.secagg.noise import Bound, Noise, Update
from lumos.secagg.openings import OpenedSums
from lumos.training.config import Config
from lumos.typing import Arrays, Doubles


class RunSums:
    """The hosted devices' part in all sums of a run.

    Args:
        shard: the hosted devices.
        endpoint: its ledger counts ideal sums.
        config: settings.
    """

    def __init__(self, shard: Shard, endpoint: Endpoint, config: Config) -> None:
        self._sums = AGGREGATORS[config.train.aggregate](shard, endpoint, config.updates)
        self._known = b""
        """Digest of the sums so far."""
        self._attempt = 0
        self._bind()

    def refused(self) -> list[int]:
        """Return nobody: a device drops no message of a sum."""
        return []

    def excluded(self) -> dict[int, str]:
        """Return nobody: the coordinator excludes devices."""
        return {}

    def evidence_files(self) -> dict[int, bytes]:
        """Return nothing: the coordinator keeps evidence."""
        return {}

    def rounded(self, values: Doubles) -> Doubles:
        """Round numbers of one device's vector as a sum encodes them; sums of them are exact."""
        return self._sums.fixed.rounded(values)

    def setup(self) -> Program[None]:
        """Draw the mask graph, and agree on keys."""
        yield from self._sums.setup()

    def sum(
        self,
        update: Update,
        noise: Noise | None,
        step: int,
        drop_stage: npt.NDArray[np.int8] | None = None,
        bound: Bound | None = None,
    ) -> Program[Doubles]:
        """Return [width] the sum over all devices, with noise.

        Args:
            update: the devices' vectors.
            noise: None for an exact sum.
            step: names the randomness of the noise.
            drop_stage: [hosted] the `Stage` in which each falls silent; None for no device, as
                always in ideal sums.
            bound: of an honest device's summand; None: nothing is proved about summands.

        Raises:
            ProtocolError: too few devices are present.
        """
        total = yield from self._sums.sum_updates(update, noise, step, drop_stage, bound)
        if total is None:
            raise ProtocolError("a sum was not opened: too few devices were present")
        self._learn(total)
        return total

    def _learn(self, total: Doubles) -> None:
        """Bind the next sum to this one: there, before anything is opened, devices notice a
        coordinator that sent them different sums."""
        known = self._known + np.ascontiguousarray(total).tobytes()
        self._known = blake2b(known, digest_size=32, person=b"lumos sums").digest()
        self._bind()

    def compare_told(self) -> Program[None]:
        """Compare all opened sums with those of mask neighbours.

        Raises:
            Equivocation: the coordinator sent devices different sums.
        """
        yield from self._sums.restartable().compare_told(self._known)

    def begin_attempt(self, number: int) -> None:
        """Begin an attempt: its sums have masks of their own."""
        self._attempt = number
        self._bind()

    def _bind(self) -> None:
        self._sums.context = self._known + self._attempt.to_bytes(4, "little")

    def state_dict(self) -> Arrays:
        """Return the state that a device with its secret needs to go on after a restart.

        Raises:
            UsageError: sums are ideal: devices of a simulation do not restart.
        """
        sums = self._sums.restartable()
        return {**sums.state_dict(), "known": np.frombuffer(self._known, np.uint8)}

    def load_state_dict(self, state: Arrays) -> None:
        """Go on from a state instead of `setup`."""
        self._sums.restartable().load_state_dict(state)
        self._known = state["known"].tobytes()
        self._bind()

    def remember_openings(self, opened: OpenedSums) -> None:
        """Record in `opened` the sums for which the device reveals shares, across restarts."""
        self._sums.restartable().opened = opened


class FollowedSums:
    """The coordinator's part in place of `RunSums`: it holds the sums, and follows.

    Args:
        total: number of devices.
        endpoint: the coordinator's.
        config: settings.
        plan: as in `PublicRandomness`.

    Raises:
        UsageError: sums are ideal.
    """

    def __init__(self, total: int, endpoint: Endpoint, config: Config, plan: bytes = b"") -> None:
        if config.train.aggregate != "secure":
            raise UsageError("real devices need `aggregate='secure'`")
        self._sums = BoundedCoordinator(
            total, endpoint, config.updates, drops_refused=True, plan=plan
        )

    def refused(self) -> list[int]:
        """Return senders whose messages were dropped since the last call."""
        refused, self._sums.refused = self._sums.refused, []
        return refused

    def excluded(self) -> dict[int, str]:
        """Return the devices that lied in sums, and how."""
        return {one.device: one.why for one in self._sums.excluded}

    def evidence_files(self) -> dict[int, bytes]:
        """Return files of evidence against devices."""
        return {device: file.packed() for device, file in self._sums.evidence.items()}

    @property
    def fewest(self) -> int:
        """Smallest number of devices in a sum that was opened."""
        return self._sums.fewest

    def rounded(self, values: Doubles) -> Doubles:
        """Round numbers of one device's vector as a sum encodes them."""
        return self._sums.fixed.rounded(values)

    def setup(self) -> Program[None]:
        """Hold the draw of the mask graph."""
        yield from self._sums.setup()

    def sum(
        self, update: Update, noise: Noise | None, step: int, *, bound: Bound | None = None
    ) -> Program[Doubles]:
        """Return [width] the sum over all devices, with their noise.

        Args:
            update, noise, step, bound: as in `RunSums.sum`.

        Raises:
            ProtocolError: too few devices are present.
        """
        total = yield from self._sums.sum(update(True).shape[1], bound=bound)
        if total is None:
            raise ProtocolError("a sum was not opened: too few devices were present")
        return total

    def state_dict(self) -> Arrays:
        """Return the state that the coordinator needs to go on after a restart."""
        return {**self._sums.state_dict(), "known": np.empty(0, np.uint8)}

    def load_state_dict(self, state: Arrays) -> None:
        """Go on from a state instead of `setup`."""
        self._sums.load_state_dict(state)

    def remember_openings(self, opened: OpenedSums) -> None:
        """Do nothing: the coordinator holds no shares."""

    def compare_told(self) -> Program[None]:
        """Do nothing: devices compare without the coordinator."""
        yield from ()

    def begin_attempt(self, number: int) -> None:
        """Do nothing: the coordinator has no masks."""


class SummingTrainer:
    """The part of a trainer that hands over to its sums, as `RestartableTrainer` has it."""

    sums: Any
    """`RunSums`, or `FollowedSums` at the coordinator."""

    def warm_up(self) -> None:
        """Do nothing: to import the trainer is enough."""

    def remember_openings(self, opened: OpenedSums) -> None:
        """Record in `opened` the sums for which the device reveals shares."""
        self.sums.remember_openings(opened)

    def compare_told(self) -> Program[None]:
        """Compare the opened sums with those of other devices, after `finish`."""
        yield from self.sums.compare_told()

    def refused(self) -> list[int]:
        """Return senders whose messages of sums were dropped since the last call."""
        refused: list[int] = self.sums.refused()
        return refused

    def excluded(self) -> dict[int, str]:
        """Return the devices that lied in sums, and how, at the coordinator."""
        excluded: dict[int, str] = self.sums.excluded()
        return excluded

    def evidence_files(self) -> dict[int, bytes]:
        """Return files of evidence against devices, at the coordinator."""
        files: dict[int, bytes] = self.sums.evidence_files()
        return files

    def is_replayed(self, topic: Topic) -> bool:
        """Return whether `replay_received` receives messages of a topic again: releases."""
        return topic.door is Door.RELEASE

    def begin_attempt(self, number: int) -> None:
        """Begin an attempt: its sums have masks of their own, and sessions are opened anew."""
        self.sums.begin_attempt(number)
