"""The trainer of a shard: it goes through the stages of a run, and saves what they learn.

Nothing leaves a device but releases and summands. Sums are masked (`lumos.secagg`), and by
default carry noise that the devices draw themselves (`lumos.secagg.noise`).
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from lumos.device.shard import Shard
from lumos.errors import InputError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.graph.facts import GraphPart
from lumos.ldp.account import PrivacyAccount, Seal
from lumos.ldp.bounds import Features
from lumos.storage import part_of
from lumos.strict.features import FeatureScaling, ScalingSums
from lumos.strict.guarantees import noise_added, summands
from lumos.strict.stages import Schedule, Stage
from lumos.training.problem import rows_of
from lumos.training.sums import FollowedSums, RunSums, SummingTrainer
from lumos.training.trainer import EpochRecord, OnEpoch
from lumos.typing import Arrays, Doubles, Ints, StatePart

LEFT_OUT = "left_out"


class StrictTrainer(SummingTrainer, ABC):
    """The strict trainer of one shard: the state that stages read and change.

    Args:
        shard: the hosted devices.
        endpoint: its ledger counts ideal sums.
        part: private data of the devices.
        schedule: everything public about the run.
        account: randomized labels and charges of earlier runs; a control run has none.
        control: send messages that depend on no data.
        sums: the coordinator's part in sums; None for that of the hosted devices.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        part: GraphPart,
        schedule: Any,
        *,
        account: PrivacyAccount | None = None,
        control: bool = False,
        sums: FollowedSums | None = None,
    ) -> None:
        self.shard = shard
        self.schedule: Schedule = schedule
        self.control = control
        # The control run is an experiment with randomness of its own: no account counts it.
        self.account = None if control else account
        self.features = rows_of(part.features)
        self.scaling: FeatureScaling | None = None
        """The scaling of features, once it is learnt; None without scaling."""
        self.scaling_sums: ScalingSums | None = None
        """The sums that learn it."""
        self.sums = sums or RunSums(shard, endpoint, schedule.config)
        self.choice = 0
        self.left_out: list[str] = []
        """Names of the stages of sums that were not `possible`, in order."""
        self._prepare(endpoint, part)

    def setup(self) -> Program[None]:
        """Set up everything before the first epoch."""
        yield from self.enrol()

    def enrol(self) -> Program[None]:
        """Agree on keys, and learn the scaling of features: sums only, and no session."""
        schedule = self.schedule
        yield from self.sums.setup()
        if schedule.first_stages:
            bits = schedule.config.updates.fraction_bits
            devices = self._scaling_devices()
            self.scaling_sums = ScalingSums(self.features, *devices, bits, schedule.scaling)
            for place, stage in enumerate(schedule.first_stages):
                yield from self._go_through(stage, 0, schedule.first_randomness(place))
            self.scaling = self.scaling_sums.scaling()
        self._begin()

    def epochs(self, first: int, last: int, on_epoch: OnEpoch | None = None) -> Program[None]:
        """Train epochs `first` + 1 … `last`, with the messages before them."""
        for number in range(first, last):
            stage, step = self.schedule.place(number)
            loss = yield from self._go_through(stage, step, number)
            if on_epoch is not None:
                on_epoch(EpochRecord(number + 1, loss, None))

    def _finish_stages(self) -> Program[None]:
        """Go through the stages after the last epoch."""
        for place, stage in enumerate(self.schedule.last_stages):
            yield from self._go_through(stage, 0, self.last_epoch() + place)

    def _go_through(self, stage: Stage, step: int, randomness: int) -> Program[float | None]:
        """Send messages, add up, and learn; return the mean loss, if there is one."""
        yield from stage.before(self, step)
        total = yield from self._sum(stage, step, randomness)
        opened = not np.isnan(total).any()  # otherwise the total could not be formed
        if opened and stage.possible(total, step):
            return stage.learn(self, total, step)
        self.left_out.append(stage.name)
        stage.leave_out(self, len(total), step)
        return None

    def _sum(self, stage: Stage, step: int, randomness: int) -> Program[Doubles]:
        return (yield from stage.sum(self, step, randomness))

    def rejoin(self, epoch: int) -> Program[None]:
        """Repeat the messages before `epoch`, with the same randomness, after `load_state_dict`.

        Raises:
            InputError: the state belongs to another epoch.
        """
        yield from self.replay_received(epoch)

    def replay_received(self, epoch: int) -> Program[None]:
        """Receive again the messages before `epoch`, after `load_state_dict`.

        Raises:
            InputError: the state belongs to another epoch.
        """
        places = [self.schedule.place(number) for number in range(epoch)]
        replayed = [place for place in places if place[0].replayed]
        if self._received_rounds() != len(replayed):
            raise InputError("checkpoint.npz belongs to another epoch; restart without `resume`")
        for stage, step in replayed:
            yield from stage.before(self, step)

    def has_sessions(self, epoch: int) -> bool:
        """Return whether sessions of two devices are open in epoch `epoch` + 1, or in `finish`."""
        last = self.schedule.last_stages
        return epoch >= self.last_epoch() and any(stage.sessions for stage in last)

    def _scaling_arrays(self) -> Arrays:
        """Return the scaling of features; empty without one."""
        return {} if self.scaling is None else self.scaling.arrays()

    def _scaled_features(self) -> Features:
        """Return [hosted, d] scaled features."""
        return self.features if self.scaling is None else self.scaling.apply(self.features)

    def last_epoch(self) -> int:
        """Return the number of epochs; it is fixed, because noise depends on it."""
        return self.schedule.config.train.epochs

    def _remembered(self) -> Arrays:
        """Return the seal of the account for a checkpoint or a finished run; empty without one."""
        return {} if self.account is None else self.account.seal().arrays()

    def load_state_dict(self, state: Arrays, part: StatePart = "run") -> None:
        """Go on from a state: `device` in a trainer that was not set up.

        Raises:
            InputError: the account is older than the state, or another one; the weights do not
                match this run.
        """
        if part == "model":
            self._load_model(state)
            return
        if part == "device":
            scaling = part_of(state, "scaling/")
            if scaling:
                self.scaling = FeatureScaling.of(scaling, int(self.features.shape[1]))
            self._begin()
            self.sums.load_state_dict(part_of(state, "sums/"))
            state = part_of(state, "trainer/")
        if self.account is not None:
            self.account.check_seal(Seal.of(state))
        stages = self.schedule.stages
        self.left_out = [stages[number].name for number in state[LEFT_OUT]]
        self._restore(state)

    def state_dict(self, part: StatePart = "run") -> Arrays:
        """Return everything that the next epochs depend on, or another part of the state.

        The part `device` holds public state and no key, and no messages of neighbours.
        """
        if part == "model":
            return self._model()
        names = [stage.name for stage in self.schedule.stages]
        left_out = np.array([names.index(name) for name in self.left_out], np.int64)
        state = {**self._state(), LEFT_OUT: left_out, **self._remembered()}
        if part == "run":
            return state
        return {
            **_named("trainer/", state),
            **_named("sums/", self.sums.state_dict()),
            **_named("scaling/", self._scaling_arrays()),
        }

    def noise_added(self) -> str:
        """Return sentences on devices, noise and summands; see `RestartableTrainer`."""
        added = noise_added(self.schedule, self.sums.fewest)
        return f"{added} {summands(self.schedule, int(self.features.shape[1]))}"

    @abstractmethod
    def _prepare(self, endpoint: Endpoint, part: GraphPart) -> None:
        """Set up the state of the task."""

    @abstractmethod
    def _received_rounds(self) -> int:
        """Return the number of replayed stages' sums that were learnt."""

    @abstractmethod
    def _restore(self, state: Arrays) -> None:
        """Go on from the state that `_state` returned."""

    @abstractmethod
    def _state(self) -> Arrays:
        """Return everything that the next epochs depend on, apart from the account."""

    @abstractmethod
    def _model(self) -> Arrays:
        """Return everything public that was learnt, by name."""

    @abstractmethod
    def _load_model(self, state: Arrays) -> None:
        """Load the model of an earlier run, and the messages that its devices sent.

        Raises:
            InputError: they do not match the settings of this run.
        """

    @abstractmethod
    def _scaling_devices(self) -> tuple[Ints, int]:
        """Return positions of the hosted devices that set the scale, and their number in all."""

    @abstractmethod
    def _begin(self) -> None:
        """Build models and optimisers, once features are scaled."""


def _named(prefix: str, arrays: Arrays) -> Arrays:
    return {prefix + name: array for name, array in arrays.items()}
