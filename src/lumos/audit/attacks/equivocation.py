"""Sums with proofs: the coordinator sends devices different things.

The devices are those of `lumos.audit.attacks.framing`, in one process. The same is done to devices
that do not compare what they received. No run is recorded.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from lumos.audit.attacks import attack
from lumos.audit.attacks.framing import (
    BOUND,
    CLAIM,
    DEVICES,
    LIARS,
    SETTINGS,
    VICTIM,
    run_sum,
    shards,
)
from lumos.audit.harness import Scene
from lumos.audit.table import AuditRow, Exactly, finding
from lumos.device.shard import Shard
from lumos.errors import LumosError
from lumos.exchange.endpoint import EVERY_DOOR, Endpoint, Program
from lumos.exchange.messages import Inbox
from lumos.exchange.transports import TRANSPORTS
from lumos.exchange.transports.out_of_step import OutOfStep
from lumos.secagg import SecureCoordinator, mask_graph, signing
from lumos.secagg.bounded import BLAME, OPEN, BoundedAggregator, BoundedCoordinator
from lumos.secagg.openings import relay
from lumos.secagg.topics import (
    ALIVE,
    DECISION,
    DRAW_COMMITMENT,
    DRAW_CONTRIBUTION,
    DRAW_DIGEST,
    DRAW_LIST,
    REVEAL,
)
from lumos.typing import Flags, Ints

EVERYONE = np.arange(DEVICES)


class Splits(BoundedCoordinator):
    """It sends *blame* to some devices, and *open* to the others, in one attempt."""

    order: ClassVar[Ints | None] = None
    """Devices in the order in which they are blamed; None: the victim and its neighbours first."""
    blamed: ClassVar[int] = 1

    def ordered(self) -> Ints:
        """Return all devices, in the order in which they are blamed."""
        if self.order is not None:
            return self.order
        first = np.append(VICTIM, self._graph.of(np.array([VICTIM]))[0])
        return np.append(first, np.setdiff1d(EVERYONE, first))

    def sum(self, width: int, noise: Any = None, bound: Any = None) -> Program[Any]:
        """Run an attempt up to the decision."""
        silent = np.zeros(DEVICES, np.bool_)
        attempt = yield from self._gather(self._form(width, BOUND), silent)
        if (yield from self._judge(attempt, silent)) != OPEN:
            raise AssertionError("nobody lied")
        words = np.full(DEVICES, OPEN, np.uint8)
        words[self.ordered()[: self.blamed]] = BLAME
        yield DECISION.from_coordinator(EVERYONE, words)
        yield ALIVE.nothing()


class NeedsNobody(BoundedAggregator):
    """A broken variant: a device that gives out its seeds without a word of its neighbours."""

    def _confirmed(self, attempt: Any) -> Program[Flags]:
        yield from super()._confirmed(attempt)
        return np.ones(1, np.bool_)


def unmasked(
    blamed: int, device: type[BoundedAggregator] = BoundedAggregator, order: Ints | None = None
) -> list[int]:
    """Return the honest devices of which both secrets are known, if the first ones are blamed.

    These are the self secret, of which t shares are given out, and the seeds of all pairs, each
    given out by one of its two devices. The second device and those after it in the order lie:
    they give out all that they have.
    """
    kind: Any = type("Splitting", (Splits,), {"blamed": blamed, "order": order})
    transport = OutOfStep(shards())
    party: Any = run_sum(device, kind, transport).party
    order, graph = party.ordered(), party._graph
    liars = np.isin(EVERYONE, order[1 : 1 + LIARS])
    opening = np.isin(EVERYONE, list(transport.take_from(REVEAL)))
    blaming = transport.take_from(ALIVE)
    speaking = np.isin(EVERYONE, list(blaming))
    if not np.array_equal(np.flatnonzero(speaking), np.sort(order[:blamed])):
        raise AssertionError("devices do not follow the decision")
    # The coordinator passes on all confirmations.
    sent = [blaming[one].batch.body for one in sorted(blaming)]
    words = np.concatenate(sent)[:, : -signing.SIGNATURE]
    silence: Inbox = ALIVE.silence
    for one in blaming:
        transport.parties[one].resume(silence)
    transport.deliver(relay(graph, speaking, words))
    answers = {one: transport.parties[one].take() for one in blaming}
    shown = liars | np.isin(EVERYONE, [one for one in answers if answers[one].batch.messages])
    neighbours = graph.of(EVERYONE)
    shares = (opening | liars)[neighbours].sum(axis=1)
    seeds = shown | shown[neighbours].all(axis=1)
    both: list[int] = np.flatnonzero(
        (shares >= party.parameters.threshold) & seeds & ~liars
    ).tolist()
    return both


SPLITS = (1, 3, 4, 5, 7, 13)
"""Numbers of devices that are blamed, the victim first, then two liars and honest neighbours."""


class TwoDraws(SecureCoordinator):
    """It sends two groups different lists: contributions of its own in place of the other group's.

    Each list has the receivers' own contributions in it, and its commitments and digest fit.
    """

    every: ClassVar[int] = 2
    """One group: the multiples of this number."""

    def setup(self) -> Program[None]:
        """Hold the draw."""
        everyone = np.arange(self._total)
        made = np.random.default_rng(0).integers(0, 256, (self._total, 16), np.uint8)
        false = mask_graph.commitments(made, everyone, self._total, 0)
        groups = (everyone % self.every == 0).astype(np.int64)
        bound = (yield DRAW_COMMITMENT.nothing()).body
        digests = []
        for group in (0, 1):
            listed = np.where((groups == group)[:, None], bound, false)
            digests.append(np.frombuffer(mask_graph.list_digest(listed), np.uint8))
        yield DRAW_DIGEST.from_coordinator(everyone, np.array(digests)[groups])
        shown = (yield DRAW_CONTRIBUTION.nothing()).body
        lists = [np.where((groups == group)[:, None], shown, made).ravel() for group in (0, 1)]
        body = np.array(lists)[groups]
        lengths = np.full(self._total, body.shape[1])
        yield DRAW_LIST.send(np.full(self._total, -1), everyone, body, lengths=lengths)
        self._place(bytes(32))


class TakesAnySeed(BoundedAggregator):
    """A broken variant: a device that does not compare the tags of seeds."""

    def _usable(self, inbox: Inbox, same: Flags) -> Inbox:
        return super()._usable(inbox, np.ones_like(same))


GROUPS = (2, 4, 10, 20)
"""`TwoDraws.every`: a half, a quarter, a tenth and one of the devices receive the other list."""


def parted(every: int, device: type[BoundedAggregator] = BoundedAggregator) -> int:
    """Return how many devices go on to the sums, under another seed than most that do.

    All devices are mask neighbours. In sparse graphs of different seeds few pairs would be joined
    in both, and devices without the comparison would stop for want of neighbours.
    """
    settings = replace(SETTINGS, neighbours=DEVICES - 1)
    coordinator: Any = type("Parting", (TwoDraws,), {"every": every})

    def devices(shard: Shard, endpoint: Endpoint) -> Program[bytes]:
        aggregator = device(shard, endpoint, settings)
        try:
            yield from aggregator.setup()
        except LumosError:
            return b""
        return aggregator._run

    def coordinating(endpoint: Endpoint) -> Program[None]:
        yield from coordinator(DEVICES, endpoint, settings).setup()

    tags, _ = TRANSPORTS["loopback"](shards(), EVERY_DOOR, ideal=()).run(devices, coordinating)
    counts = Counter(tag for tag in tags if tag)
    return counts.total() - max(counts.values(), default=0)


@attack("equivocation", "devices that are sent different things", "strict")
def attack_equivocation(scene: Scene) -> Iterator[AuditRow]:
    """Yield the rows of a coordinator that sends different decisions, and different draws."""
    scene.say("different decisions")
    yield finding(
        f"the coordinator and {LIARS} of {DEVICES} devices, neighbours of an honest one",
        f"self secret and seeds of a device, by open to some and blame to 1 to {SPLITS[-1]}",
        "devices",
        Exactly(float(sum(len(unmasked(blamed)) for blamed in SPLITS)), len(SPLITS) * DEVICES),
        bound=(0.0, CLAIM),
        undefended=float(sum(len(unmasked(blamed, NeedsNobody)) for blamed in SPLITS)),
        knows_mechanism=True,
    )
    scene.say("different draws of the mask graph")
    yield finding(
        "the coordinator",
        "go on under different mask graphs, by two lists of contributions to two groups",
        "devices",
        Exactly(float(sum(map(parted, GROUPS))), len(GROUPS) * DEVICES),
        bound=(0.0, "docs/protocols.md, the draw of the mask graph"),
        undefended=float(sum(parted(every, TakesAnySeed) for every in GROUPS)),
        knows_mechanism=True,
    )
