"""The phases of a training run at one participant: a device with its own part, or the coordinator.

Trees, setup, each epoch, and the last sums are phases of their own. `state_dict` has what a
participant needs to begin with one, and no key, mask, scalar or nonce.

A device that is restarted within a phase sends the same messages again, byte by byte. Everything it
draws there comes from its secret, the phase and the attempt, and the same messages
reach it again: those that it received before are on its disk (`rounds`).
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from lumos import __version__
from lumos.crypto import entropy
from lumos.crypto.groups import Group, choose_group
from lumos.deploy.protocol.mailbox import MIN_UNREAD
from lumos.device.randomness import (
    DeviceKeys,
    PrivateRandomness,
    PublicRandomness,
    simulated_secrets,
    system_secrets,
)
from lumos.device.shard import Shard
from lumos.errors import InputError, UsageError
from lumos.exchange.counts import Booking, most_pair_bits
from lumos.exchange.endpoint import (
    EVERY_DOOR,
    Endpoint,
    Program,
    changed,
    played,
    run_alone,
    unchanged,
)
from lumos.exchange.ledger import Ledger
from lumos.exchange.messages import TOPICS, Batch, Door, Inbox, Outbox
from lumos.graph.facts import GraphPart
from lumos.graph.parts.manifest import Manifest
from lumos.ldp.account import PrivacyAccount, Seal
from lumos.secagg import signing
from lumos.secagg.openings import OpenedSums
from lumos.secagg.parameters import mask_parameters
from lumos.secagg.signing import SIMULATED, Signatures
from lumos.storage import part_of
from lumos.training.config import Config
from lumos.training.problem import Problem
from lumos.training.trainer import (
    AnswersPairs,
    EpochRecord,
    PairAnswer,
    RestartableTrainer,
    RestoresAnswers,
)
from lumos.trees.balancers import BALANCERS
from lumos.trees.balancers.mcmc import PROPOSE
from lumos.twoparty.comparer import Comparer, RefusingComparer, SecureComparer, recorded
from lumos.twoparty.workers import InProcess
from lumos.typing import Arrays, Flags, Words

_NOW, _EARLIER = "ledger/", "earlier/"
_TOTALS = ("sent", "received", "bytes_sent", "bytes_received")


class ParticipantLedgers:
    """The ledgers of one participant, by name."""

    def __init__(self) -> None:
        self._earlier: list[Arrays] = []
        """Counts of the time before a device was left out of a phase that began again."""
        self._ledgers: dict[str, Ledger] = {}

    def begin(self, **ledgers: Ledger) -> None:
        """Count in these empty ledgers from now on."""
        self._ledgers = ledgers

    def give_up(self) -> None:
        """Keep the counts so far; other ledgers begin."""
        self._earlier.append(self._counted())

    def state_dict(self) -> Arrays:
        """Return all counts, for a snapshot."""
        now = self._counted()
        for number, counted in enumerate(self._earlier):
            now |= {f"{_EARLIER}{number}/{name}": counts for name, counts in counted.items()}
        return now

    def load_state_dict(self, arrays: Arrays) -> None:
        """Go on counting from `arrays`, in empty ledgers."""
        numbers = {int(name.split("/")[1]) for name in arrays if name.startswith(_EARLIER)}
        self._earlier = [part_of(arrays, f"{_EARLIER}{number}/") for number in sorted(numbers)]
        for which, ledger in self._ledgers.items():
            ledger.load_state_dict(part_of(arrays, f"{_NOW}{which}/"), "device")

    def flows(self) -> dict[str, dict[str, int]]:
        """Return messages and bytes by topic, of all phases and of attempts that were given up."""
        totals: dict[str, dict[str, int]] = {}
        for counted in (*self._earlier, self._counted()):
            for name, counts in counted.items():
                _, _, kind, rest = (*name.split("/", 3), "")[:4]
                topic, _, flow = rest.rpartition("|")
                if kind == "flows" and topic and flow in Booking._fields:
                    of_topic = totals.setdefault(topic, {})
                    of_topic[flow] = of_topic.get(flow, 0) + int(counts.sum())
        return totals

    def totals(self) -> dict[str, Any]:
        """Return messages and bytes in all, and by topic, as plain numbers.

        A topic that leaves a device without protection says what it exposes.
        """
        flows = self.flows()
        total = {
            flow: sum(of_topic.get(flow, 0) for of_topic in flows.values()) for flow in _TOTALS
        }
        topics = {
            name: {**counts, "learns": TOPICS[name].learns}
            if TOPICS[name].door is Door.OPEN
            else counts
            for name, counts in flows.items()
        }
        return {**total, "topics": topics}

    def bits_given_up(self, which: str) -> float:
        """Return the most bits that a pair may have revealed in attempts that were given up."""
        answers = (part_of(counted, f"{_NOW}{which}/answers/") for counted in self._earlier)
        return sum(map(most_pair_bits, answers))

    def _counted(self) -> Arrays:
        """Return the counts since a device was last left out of a phase that began again."""
        return {
            f"{_NOW}{which}/{name}": counts
            for which, ledger in self._ledgers.items()
            for name, counts in ledger.state_dict("device").items()
        }


_PREFIX = "heard/"  # frozen: the name in snapshots


class ReceivedReleases:
    """The messages of all rounds in which devices release something to each other, in order."""

    def __init__(self) -> None:
        self._rounds: list[tuple[str, Batch]] = []
        """Topic and messages of each."""

    def add(self, topic: str, batch: Batch) -> None:
        """Keep the messages of a round."""
        self._rounds.append((topic, batch))

    def state_dict(self) -> Arrays:
        """Return all messages, for a snapshot."""
        arrays: Arrays = {}
        for number, (topic, batch) in enumerate(self._rounds):
            lengths = np.empty(0, np.int64) if batch.lengths is None else batch.lengths
            arrays |= {
                f"{_PREFIX}{number}/{topic}/sender": batch.sender,
                f"{_PREFIX}{number}/{topic}/body": batch.body,
                f"{_PREFIX}{number}/{topic}/lengths": lengths,
            }
        return arrays

    @staticmethod
    def of(arrays: Arrays, me: int, absent: Collection[int]) -> "ReceivedReleases":
        """Return the messages in a snapshot, without those of devices that are left out since.

        Raises:
            ValueError: a topic does not exist.
            KeyError: an array is missing.
        """
        found: dict[int, tuple[str, dict[str, Any]]] = {}
        for name, array in arrays.items():
            if name.startswith(_PREFIX):
                _, number, *words, field = name.split("/")
                found.setdefault(int(number), ("/".join(words), {}))[1][field] = array
        received = ReceivedReleases()
        for _, (topic, fields) in sorted(found.items()):
            if topic not in TOPICS:
                raise ValueError("a topic that does not exist")
            sender = fields["sender"]
            lengths = fields["lengths"] if TOPICS[topic].shape is None else None
            receiver = np.full(len(sender), me, np.int64)
            batch = Batch(sender, receiver, fields["body"], None, lengths)
            received.add(topic, batch.take(np.flatnonzero(~np.isin(sender, sorted(absent)))))
        return received

    def replay(self, program: Program[None]) -> None:
        """Run a program to its end, in which nothing is sent and these messages are received.

        Raises:
            ValueError: the program has other rounds.
        """
        rounds = iter(self._rounds)

        def answer(outbox: Outbox) -> Inbox:
            topic, batch = next(rounds, ("", outbox.topic.no_messages))
            if topic != outbox.topic.name:
                raise ValueError("messages that the device received")
            return Inbox(batch, quiet=False)

        run_alone(program, answer)


def problem_of(manifest: Manifest, config: Config, part: GraphPart) -> Problem:
    """Return the problem with the devices of one part."""
    task = config.train.task
    drawn, link = manifest.split(task), task == "link"
    return Problem(
        facts=manifest.facts(task),
        parts=(part,),
        keep=(),
        classes=0 if link else manifest.graph.class_count,
        training=0 if link else drawn.train,
        validation=0 if link else drawn.validation,
        seed=manifest.seed,
        split=drawn.name,
    )


def empty_part(manifest: Manifest) -> GraphPart:
    """Return a part without devices."""
    none = np.empty(0, np.int64)
    return GraphPart(
        devices=none,
        total=manifest.graph.devices,
        offsets=np.zeros(1, np.int64),
        neighbours=none,
        features=np.empty((0, manifest.graph.feature_count), np.float32),
        labels=none,
        roles=none,
        held_back=np.empty((0, 2), np.int64),
    )


TREES, SETUP, FIRST_EPOCH = range(3)
"""Numbers of phases."""
MIN_NUMBERS = 64
"""Numbers for each feature that the widest sum is assumed to have, at least: two tokens times 32
random marks in links."""
ANSWERS_WITH = "result/"
"""In a snapshot after the last phase: what a device answers with."""

OnEpoch = Callable[[EpochRecord], None]


class TrainingJob:
    """The phases of one participant.

    Args:
        manifest: what is public of the graph.
        config: settings.
        part: the device's own; None for the coordinator.
        keys: of the device; None for the coordinator.
        opened: sums that the device gave out shares for before a restart.
        on_epoch: called after every epoch.
        stays: whether the device answers after the training, also after a restart.
        account: privacy account of the device over all runs; None for none.
        plan: digest of the signed plan.
        signatures: of messages of sums; None: simulated ones.
        nonces: what the coordinator draws from; None for a device, or fresh randomness.
    """

    def __init__(
        self,
        manifest: Manifest,
        config: Config,
        part: GraphPart | None,
        keys: DeviceKeys | None,
        opened: OpenedSums | None = None,
        on_epoch: OnEpoch | None = None,
        *,
        stays: bool = False,
        account: PrivacyAccount | None = None,
        plan: bytes = b"",
        signatures: Signatures | None = None,
        nonces: DeviceKeys | None = None,
    ) -> None:
        self._manifest, self._config, self._keys = manifest, config, keys
        self._signatures, self._draws = signatures or SIMULATED, keys or nonces
        self.account, self._plan = account, plan
        self._opened, self._on_epoch = opened or OpenedSums(), on_epoch
        self._stays = stays
        self._seeded = config.train.randomness == "seeded"
        self._follows = part is None
        self._whole_part = part if part is not None else empty_part(manifest)
        self.total = manifest.graph.devices
        self.last = FIRST_EPOCH + config.train.epochs
        """Number of the last phase."""
        self._absent: frozenset[int] = frozenset()
        self.ledgers = ParticipantLedgers()
        self.assigned: Flags = np.zeros(self._whole_part.slots, np.bool_)
        """[slots] edges that are assigned to the device, once the trees are built."""
        self.steps = 0
        """Steps of the trees that have begun, at the coordinator."""
        self._received = ReceivedReleases()
        self._trainer: RestartableTrainer | None = None
        self.result: Any = None
        self._place()

    def _place(self) -> None:
        """Make shards and endpoints, without neighbours that are left out."""
        config = self._config
        self._part = self._whole_part.without(np.array(sorted(self._absent), np.int64))
        self._problem = problem_of(self._manifest, config, self._part)
        self._randomness = config.profile.randomness(self._problem, config, control=False)
        self._tree_shard, self.shard = self._shard(""), self._shard(self._randomness)
        shards = (None, None) if self._follows else (self._tree_shard, self.shard)
        self.tree_endpoint = Endpoint(shards[0], EVERY_DOOR)
        self.endpoint = Endpoint(shards[1], config.profile.doors)
        self.ledgers.begin(trees=self.tree_endpoint.ledger, run=self.endpoint.ledger)

    def leave_out(self, absent: Collection[int], snapshot: Arrays | None) -> None:
        """Go on from a snapshot without these devices, in a phase that begins again.

        What was sent and revealed before stays counted.
        """
        if frozenset(absent) != self._absent:
            self.ledgers.give_up()
            self._absent = frozenset(absent)
            self._place()
        self.begin_again(snapshot)

    def endpoint_of(self, phase: int) -> Endpoint:
        """Return the endpoint of a phase's messages."""
        return self.tree_endpoint if phase == TREES else self.endpoint

    def name(self, phase: int) -> str:
        """Return the name of a phase for people."""
        if phase <= SETUP:
            return ("trees", "setup")[phase]
        epochs = self.last - FIRST_EPOCH
        number = phase - FIRST_EPOCH + 1
        return "the last sums" if phase == self.last else f"epoch {number} of {epochs}"

    def steps_in(self, phase: int) -> int:
        """Return the number of steps of a phase; 0 where it has none."""
        trees = self._config.trees
        return trees.iterations if phase == TREES and BALANCERS[trees.balancer].iterative else 0

    @property
    def unread(self) -> int:
        """Bytes of one sender that may wait to be read: more than two of the widest messages."""
        numbers = max(MIN_NUMBERS, self._problem.classes)
        return MIN_UNREAD + 4 * 8 * numbers * self._manifest.graph.feature_count

    @property
    def public(self) -> PublicRandomness:
        """Public randomness of the run."""
        return PublicRandomness(self._problem.seed, self._plan)

    @property
    def left(self) -> int:
        """The phase number that a device sends once it knows of the end: behind every phase."""
        return self.last + 2

    @property
    def absent(self) -> frozenset[int]:
        """Devices without which the phase began."""
        return self._absent

    def has_sessions(self, phase: int) -> bool:
        """Return whether a phase has sessions of two devices: it begins again if one is lost."""
        if phase <= SETUP:
            return phase == TREES
        return self.trainer.has_sessions(phase - FIRST_EPOCH)

    def is_prompt(self, phase: int) -> bool:
        """Return whether devices handle messages of the coordinator in a phase as they come.

        Trees have thousands of rounds. A device still answers at ticks, and sends its first flag
        in a round or stage a whole tick after it began.
        """
        return phase == TREES

    def program(self, phase: int, attempt: int = 0) -> Program[None]:
        """Return the participant's program in a phase.

        Args:
            attempt: another one has other masks, and other sessions.
        """
        # Another version may draw in another order: it never meets what this one has drawn.
        name = f"{__version__} {phase} {attempt}".encode()
        expanded = None if self._draws is None else self._draws.expanded("programs", name)
        drawing = (entropy.EXPANDED, expanded), (signing.PRESENT, self._signatures)
        return played(self._program(phase, attempt), unchanged, lambda: entropy.Meanwhile(*drawing))

    def _program(self, phase: int, attempt: int) -> Program[None]:
        if phase == TREES:
            return self._balance()
        if phase == SETUP:
            self._trainer = self._make_trainer()
            self._trainer.remember_openings(self._opened)
            self._trainer.begin_attempt(attempt)
            return self._own(self._trainer.enrol())
        self.trainer.begin_attempt(attempt)
        if phase == self.last:
            return self._own(self._finish())
        epoch = phase - FIRST_EPOCH
        return self._own(self.trainer.epochs(epoch, epoch + 1, self._on_epoch))

    @property
    def trainer(self) -> RestartableTrainer:
        """The trainer, once it is there."""
        if self._trainer is None:
            raise ValueError("there is no trainer before the setup")
        return self._trainer

    @property
    def minimum(self) -> int:
        """The least number of devices that have to be left."""
        return mask_parameters(self._config.updates, self.total).minimum

    def refused(self) -> list[int]:
        """Return the senders whose messages of sums were dropped since the last call."""
        return [] if self._trainer is None else self._trainer.refused()

    def excluded(self) -> dict[int, str]:
        """Return the devices that lied in sums, and how, at the coordinator."""
        return {} if self._trainer is None else self._trainer.excluded()

    def evidence_files(self) -> dict[int, bytes]:
        """Return files of evidence against devices that lied in sums, at the coordinator."""
        return {} if self._trainer is None else self._trainer.evidence_files()

    def state_dict(self, phase: int) -> Arrays:
        """Return the state from which the participant begins `phase` after a restart."""
        arrays: Arrays = {
            "phase": np.array(phase),
            "keep": self.assigned,
            "absent": np.array(sorted(self._absent), np.int64),
        }
        if phase > SETUP:
            state = self.trainer.state_dict("device")
            arrays |= {f"run/{name}": array for name, array in state.items()}
        arrays |= self._received.state_dict()
        if phase > self.last and self._stays and isinstance(self.result, AnswersPairs):
            kept = self.result.state_dict("device")
            arrays |= {ANSWERS_WITH + name: array for name, array in kept.items()}
        return arrays | self.ledgers.state_dict()

    def load_state_dict(self, arrays: Arrays) -> int:
        """Go on from a snapshot; return the phase to begin with.

        Raises:
            InputError: it is not of this run.
        """
        try:
            phase = int(arrays["phase"])
            self._absent = frozenset(arrays["absent"].tolist())
            self._place()
            self.begin_again(arrays)
            self.ledgers.load_state_dict(arrays)
        except (KeyError, ValueError, IndexError) as error:
            raise InputError(f"the snapshot is damaged or of another run ({error})") from None
        return phase

    def begin_again(self, arrays: Arrays | None) -> None:
        """Go back to a snapshot, or to the start; the ledgers keep their counts."""
        self._received, self._trainer = ReceivedReleases(), None
        if arrays is None:
            return
        phase = int(arrays["phase"])
        self.assigned = arrays["keep"]
        self._received = ReceivedReleases.of(arrays, self._me, self._absent)
        if phase > SETUP:
            if self.account is not None:  # before anything is drawn or charged
                self.account.check_seal(Seal.of(part_of(arrays, "run/trainer/")))
            self._trainer = self._make_trainer()
            self._trainer.load_state_dict(part_of(arrays, "run/"), "device")
            self._trainer.remember_openings(self._opened)
            program = self._trainer.replay_received(min(phase, self.last) - FIRST_EPOCH)
            if self._follows:
                run_alone(program, lambda outbox: outbox.topic.silence)
            else:
                self._received.replay(program)
        self._restore_result(arrays)

    def restore_answers(self, arrays: Arrays) -> None:
        """Answer, after a run, with the result in the snapshot of its end.

        Raises:
            InputError: it is not of this run.
        """
        self._absent = frozenset(arrays["absent"].tolist())
        self._place()
        self._restore_result(arrays)

    def _restore_result(self, arrays: Arrays) -> None:
        kept, profile = part_of(arrays, ANSWERS_WITH), self._config.profile
        if kept and isinstance(profile, RestoresAnswers):
            self.result = profile.answers_of(self._config, self._problem.seed, kept)

    def question(
        self, peer: int, *, asks: bool, willing: bool = True
    ) -> tuple[Endpoint, Program[PairAnswer]]:
        """Return the device's program in a question about a pair of which it is an end.

        Args:
            peer: the other end.
            asks: whether this end asks.
            willing: as in `AnswersPairs.question`.

        Raises:
            UsageError: the run did not train on links.
        """
        result, group, shard = self.check_questions(), self._group(), self._lone_shard()
        endpoint = Endpoint(shard, frozenset({Door.COMPARE, Door.CONTROL}))
        return endpoint, result.question(shard, endpoint, group, peer, asks=asks, willing=willing)

    def check_questions(self) -> AnswersPairs:
        """Return the result that answers; raise `UsageError` where there is none."""
        if not isinstance(self.result, AnswersPairs):
            raise UsageError("pairs are asked about where `task='link'` was trained")
        return self.result

    def _lone_shard(self) -> Shard:
        """Return the device without neighbours: a peer counts as a non-neighbour in any case.

        Every question has randomness of its own: whoever asks again with another vector would see
        the difference of two levels through the same randomized response.
        """
        if self._seeded:
            secrets = self._secrets(f"{self._randomness}/answers")
        else:
            secrets = system_secrets(self._part.devices)
        return Shard(
            self._part.devices,
            self.total,
            np.zeros(2, np.int64),
            np.empty(0, np.int64),
            PrivateRandomness(secrets),
            self.public,
        )

    @property
    def _me(self) -> int:
        return -1 if self._follows else int(self._part.devices[0])

    def _shard(self, variant: str) -> Shard:
        """Return the shard of the device, or an empty one, with the randomness of a variant."""
        part = self._part
        return Shard(
            part.devices,
            part.total,
            part.offsets,
            part.neighbours,
            PrivateRandomness(self._secrets(variant)),
            self.public,
            self._keys,
            self._absent,
        )

    def _secrets(self, variant: str) -> Words:
        """Return the secrets [hosted, 8] of private randomness."""
        if self._seeded:
            return simulated_secrets(self._problem.seed, self._part.devices, variant)
        if self._keys is None:
            return np.empty((0, 8), np.uint32)
        secret = self._keys.key("private coins", variant.encode())
        return np.frombuffer(secret, "<u4").astype(np.uint32).reshape(1, 8)

    def _make_trainer(self) -> RestartableTrainer:
        """Return the trainer, before it is set up."""
        config = self._config
        (trainer,), _ = config.profile.programs(
            replace(self._problem, keep=(self.assigned[self._here()],)),
            config,
            [self.shard],
            [self.endpoint],
            self.endpoint,
            randomness=self._randomness,
            account=self.account,
            follows=self._follows,
        )
        if not isinstance(trainer, RestartableTrainer):
            raise UsageError(
                f"real devices do not train with `profile='{config.train.profile}'`: its trainer "
                "does not survive a restart"
            )
        return trainer

    @property
    def carried(self) -> list[int]:
        """Neighbours whose edge is assigned to the device; none of them was lost before it was."""
        found: list[int] = self._whole_part.neighbours[self.assigned].tolist()
        return found

    def _here(self) -> Flags:
        """Return the mask [slots] of neighbours that are present."""
        here: Flags = ~np.isin(self._whole_part.neighbours, sorted(self._absent))
        return here

    def _balance(self) -> Program[None]:
        """Assign every edge to one of its ends."""
        settings = self._config.trees
        balancer = BALANCERS[settings.balancer]
        if self._follows:
            present = self._tree_shard.present
            program = balancer.coordinator_program(present, self.public, settings)
            self.steps = 0
            yield from changed(program, self._count_step)
            return
        shard, comparer = self._tree_shard, self._comparer()
        kept = yield from balancer.device_program(
            shard, recorded(shard, comparer), settings, lambda _step, _largest: None
        )
        self.assigned = np.zeros(self._whole_part.slots, np.bool_)
        self.assigned[self._here()] = kept

    def _count_step(self, outbox: Outbox) -> Outbox:
        self.steps += outbox.topic is PROPOSE
        return outbox

    def _comparer(self) -> Comparer:
        settings = self._config.trees
        if not BALANCERS[settings.balancer].compares:
            return RefusingComparer()
        return SecureComparer(
            self._tree_shard,
            self.tree_endpoint,
            InProcess(),
            None,
            self._budget_left(),
            self._group(),
        )

    def _group(self) -> Group:
        return choose_group(self._config.trees.group, simulated=self._seeded)

    def _budget_left(self) -> float | None:
        """Return the bits that answers of a pair may still reveal, after attempts given up."""
        budget = self._config.trees.comparison_budget
        if budget is None:
            return None
        return budget - self.ledgers.bits_given_up("trees")

    def _finish(self) -> Program[None]:
        self.result = yield from self.trainer.finish()
        yield from self.trainer.compare_told()

    def _own(self, program: Program[None]) -> Program[None]:
        """Return the program of this participant: the coordinator skips rounds between devices.

        Messages that a device receives in them are kept for a restart.
        """
        return played(program, self._play)

    def _play(self, outbox: Outbox) -> Program[Inbox]:
        topic = outbox.topic
        if self._follows and not topic.coordinator:
            return topic.silence
        inbox = yield outbox
        if self.trainer.is_replayed(topic):
            self._received.add(topic.name, inbox.batch)
        return inbox
