"""Sums with proofs: liars and the coordinator try to get an honest device excluded.

20 devices sum vectors with proofs (`lumos.secagg.bounded`), in one process. A tenth of them lie,
the mask neighbours of an honest device, and so does the coordinator. The same is done without the
rule that it is aimed at. No run is recorded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from msgspec import structs
from msgspec.structs import replace

from lumos.audit.attacks import attack
from lumos.audit.harness import Scene
from lumos.audit.table import AuditRow, Exactly, finding
from lumos.device.shard import Shard, cut
from lumos.errors import LumosError
from lumos.exchange.endpoint import EVERY_DOOR, Endpoint, Program
from lumos.exchange.messages import Outbox
from lumos.exchange.transports import TRANSPORTS, Transport
from lumos.graph import Graph
from lumos.secagg import AggregateSettings, masks
from lumos.secagg.bounded import BoundedAggregator, BoundedCoordinator
from lumos.secagg.evidence import (
    Attempt,
    DifferingPledges,
    Evidence,
    InvalidProof,
    ShownEvidence,
    WrongCommitment,
)
from lumos.secagg.signing import SIGNATURE
from lumos.typing import Bytes

DEVICES, WIDTH, BOUND = 20, 8, 1.01
VICTIM, LIARS = 8, 2
SETTINGS = AggregateSettings(proofs=True, minimum=15)
CLAIM = "docs/protocols.md, sums with proofs"


class Framer(BoundedAggregator):
    """A mask neighbour of the victim; it follows the protocol but for what a subclass changes."""

    def _slot(self) -> int | None:
        """Return the slot of the victim, if this device is one of the first of its neighbours."""
        neighbours = self._graph.of(np.array([VICTIM]))[0, :LIARS]
        if int(self._shard.devices[0]) not in neighbours:
            return None
        return int(np.flatnonzero(self._neighbours[0] == VICTIM)[0])


class PledgesOtherwise(Framer):
    """Its pledges for the pair with the victim differ from the victim's."""

    def _pledges(self, keys: masks.RoundKeys, of: masks.SumId) -> Bytes:
        found, slot = super()._pledges(keys, of).copy(), self._slot()
        if slot is not None:
            found[self._pairs.of[0, slot], 0] ^= 1
        return found


class GivesOtherShare(Framer):
    """It gives out a wrong share of the victim's secret."""

    def _reveal(self, *arguments: Any) -> Outbox:
        outbox, slot = super()._reveal(*arguments), self._slot()
        if slot is not None and outbox.batch.messages:
            joined = arguments[2][0]
            outbox.batch.body[0, 16 * int(joined[:slot].sum())] ^= 1
        return outbox


class ExcludesAtOnce(BoundedCoordinator):
    """A broken variant: one pledge that differs excludes a device."""

    def _differing_at_most(self, form: Any) -> int:
        return 0


class TakesAnyShare(BoundedCoordinator):
    """A broken variant: it does not compare shares with what their givers pledged."""

    def _as_pledged(self, case: Any, attempt: Any) -> bool:
        return True


class FramingCoordinator(BoundedCoordinator):
    """It makes up evidence against an honest device, from what it has."""

    kind: ClassVar[str] = "commitment"
    revealed: ClassVar[bytes] = b""
    victim: ClassVar[int] = VICTIM

    def _wrong_commitments(self, attempt: Any, secrets: Any) -> list[ShownEvidence]:
        record, secret = attempt.record(self.victim), secrets[self.victim]
        if self.kind == "other commitment":
            record = replace(record, commitment=bytes(48))
        elif self.kind == "other secret":
            secret = secret.copy()
            secret[0] ^= 1
        return [WrongCommitment.of(self.victim, record, secret)]

    def _liars_seeds(self, attempt: Any, liars: Any, sent: dict[int, bytes]) -> Any:
        type(self).revealed = b"".join(sent.values())
        return None


KINDS = ("commitment", "other commitment", "other secret")
"""False evidence of `FramingCoordinator`."""


class BelievesEvidence(BoundedAggregator):
    """A broken variant: a device that does not check evidence."""

    def _holds(self, *_arguments: Any) -> bool:
        return True


class ToldOtherwise(PledgesOtherwise):
    """The coordinator sent the victim other sums than everybody else, and two liars help it."""

    def setup(self) -> Program[None]:
        """Run SETUP."""
        yield from super().setup()
        if int(self._shard.devices[0]) == VICTIM:
            self.context = b"other sums"


class KeepsMessages(BoundedCoordinator):
    """It keeps what it needs to make up files of evidence."""

    messages: ClassVar[dict[int, bytes]]
    facts: ClassVar[Attempt]
    attempt: ClassVar[Any]

    def _pledged(self, messages: Any, form: Any, number: int) -> Any:
        found = super()._pledged(messages, form, number)
        type(self).messages, type(self).facts = messages, found[0]
        return found

    def _open_bounded(self, attempt: Any) -> Program[Any]:
        type(self).attempt = attempt
        return (yield from super()._open_bounded(attempt))


class Uncovered(Attempt, frozen=True):
    """A broken variant: signatures that cover neither form nor earlier sums."""

    signed_as: tuple[Attempt, ...]

    def signed(self, signature: bytes, device: int, what: bytes, *parts: bytes) -> bool:
        """Return whether a device signed this in any of the attempts that there were."""
        return any(one.signed(signature, device, what, *parts) for one in self.signed_as)


def false_files() -> list[tuple[Evidence, Attempt, tuple[Attempt, ...]]]:
    """Return evidence against the victim, as which attempt it is shown, and what was signed.

    A valid proof under a smaller bound; pledges that two liars made differ, under a smaller
    threshold; and pledges of devices that received other sums, as if they had received the same.
    """
    run_sum(BoundedAggregator, KeepsMessages)
    attempt, facts = KeepsMessages.attempt, KeepsMessages.facts
    smaller = replace(facts, form=replace(facts.form, bound=facts.form.bound // 2))
    vector, proof = attempt.vector(VICTIM), attempt.proof(VICTIM)
    case = InvalidProof(VICTIM, attempt.record(VICTIM), vector, proof)

    run_sum(PledgesOtherwise, KeepsMessages)
    threshold = (facts.form.mask_neighbours + 2) // 2  # fewer pairs that differ are enough
    looser = replace(facts, form=replace(facts.form, threshold=threshold))
    few = differing(attempt.neighbours[VICTIM].tolist()[: looser.form.frameable + 1])

    run_sum(ToldOtherwise, KeepsMessages)
    many = differing(attempt.neighbours[VICTIM].tolist()[: facts.form.frameable + 1])
    told = replace(facts, context=KeepsMessages.messages[VICTIM][-SIGNATURE - 32 : -SIGNATURE])
    return [
        (case, smaller, (facts,)),
        (few, looser, (facts,)),
        (many, facts, (facts, told)),
        (many, told, (facts, told)),
    ]


def differing(neighbours: list[int]) -> DifferingPledges:
    """Return evidence of the pledges of the victim and of its first neighbours."""
    sent = {
        device: (body[: -SIGNATURE - 32], body[-SIGNATURE:])
        for device, body in KeepsMessages.messages.items()
    }
    others = [(slot, *sent[device]) for slot, device in enumerate(neighbours)]
    return DifferingPledges(VICTIM, *sent[VICTIM], others)


@dataclass(frozen=True)
class Ended:
    """The end of a run of sums."""

    party: BoundedCoordinator
    error: LumosError | None

    @property
    def framed(self) -> int:
        """1 if the honest device is excluded."""
        return sum(one.device == VICTIM for one in self.party.excluded)


def shards() -> list[Shard]:
    """Return a shard for each device, of a graph without edges."""
    return cut(Graph.from_edges(np.empty((0, 2), np.int64), devices=DEVICES), DEVICES, 0)


def run_sum(
    device: type[BoundedAggregator],
    coordinator: type[BoundedCoordinator],
    transport: Transport | None = None,
) -> Ended:
    """Run one sum of devices of one type."""
    transport = transport or TRANSPORTS["loopback"](shards(), EVERY_DOOR, ideal=())
    parties: list[BoundedCoordinator] = []

    def devices(shard: Shard, endpoint: Endpoint) -> Program[None]:
        aggregator = device(shard, endpoint, SETTINGS)
        yield from aggregator.setup()
        yield from aggregator.sum_bounded(np.full((1, WIDTH), 0.25), BOUND)

    def coordinating(endpoint: Endpoint) -> Program[None]:
        party = coordinator(DEVICES, endpoint, SETTINGS, drops_refused=True)
        parties.append(party)
        yield from party.setup()
        yield from party.sum(WIDTH, bound=lambda _: BOUND)

    try:
        transport.run(devices, coordinating)
    except LumosError as error:
        return Ended(parties[0], error)
    return Ended(parties[0], None)


@attack("framing", "an honest device, so that it is excluded", "strict")
def attack_framing(scene: Scene) -> Iterator[AuditRow]:
    """Yield the rows of liars, and of a coordinator, that want an honest device excluded."""
    who = f"{LIARS} of {DEVICES} devices, neighbours of an honest one"
    ways = (
        ("pledges that differ from its own", PledgesOtherwise, ExcludesAtOnce),
        ("wrong shares of its secret", GivesOtherShare, TakesAnyShare),
    )
    for what, device, broken in ways:
        scene.say(f"framing by {what}")
        yield finding(
            who,
            f"an honest device excluded, by {what}",
            "devices",
            Exactly(float(run_sum(device, BoundedCoordinator).framed), 1),
            bound=(0.0, CLAIM),
            undefended=float(run_sum(device, broken).framed),
            knows_mechanism=True,
        )
    scene.say("framing by false evidence")
    yield finding(
        "the coordinator",
        f"false evidence for which devices give out seeds of an honest one, of {len(KINDS)} kinds",
        "kinds",
        Exactly(float(sum(believed(kind, BoundedAggregator) for kind in KINDS)), len(KINDS)),
        bound=(0.0, CLAIM),
        undefended=float(sum(believed(kind, BelievesEvidence) for kind in KINDS)),
        knows_mechanism=True,
    )
    scene.say("framing by files of evidence")
    files = false_files()
    yield finding(
        f"the coordinator, {who}",
        f"false files of evidence that hold, of {len(files)}",
        "files",
        Exactly(float(sum(case.holds(shown) for case, shown, _ in files)), len(files)),
        bound=(0.0, CLAIM),
        undefended=float(
            sum(
                case.holds(Uncovered(**structs.asdict(shown), signed_as=signed))
                for case, shown, signed in files
            )
        ),
        knows_mechanism=True,
    )


def believed(kind: str, device: type[BoundedAggregator]) -> bool:
    """Return whether devices give out seeds for false evidence."""
    coordinator: Any = type("Framing", (FramingCoordinator,), {"kind": kind})
    run_sum(device, coordinator)
    return any(coordinator.revealed)
