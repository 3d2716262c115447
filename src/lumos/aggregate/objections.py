"""Does any device object to opening a sum? The coordinator learns that, and not which.

Each device in the sum sends zero, or a random number if it objects, hidden under masks that it
shares with its mask neighbours in the sum; they cancel modulo 2^64. The masks come from the ratchet
of the pair's keys and are opened to nobody: if a device falls silent here, they do not cancel, and
that is an objection too. An objection passes for none with probability 2^-64. Who objects would
tell who was matched with a lost device, that is, an edge.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from lumos.aggregate.errors import Equivocation, ObjectionIgnored, WrongSender
from lumos.aggregate.topics import OBJECTION, VERDICT
from lumos.crypto import entropy
from lumos.device.shard import COORDINATOR, Shard
from lumos.exchange.endpoint import Program
from lumos.typing import Flags

Objections = Callable[[Flags], Program[Flags]]
"""From [hosted] who may open the sum to [hosted] who objects; it may exchange messages."""

OPEN, CALLED_OFF = 0, 1


def object_to(
    shard: Shard, speaking: Flags, objecting: Flags, hidden: npt.NDArray[np.uint64]
) -> Program[bool]:
    """Whether the attempt is called off.

    Args:
        speaking: [hosted] who is in the sum.
        objecting: [hosted] who objects.
        hidden: [hosted] the masks of each, added up.
    """
    rows = np.flatnonzero(speaking)
    drawn = np.frombuffer(entropy.draw(8 * len(rows)), "<u8")
    flags = hidden[rows] + np.where(objecting[rows], drawn, np.uint64(0))
    yield OBJECTION.send(shard.devices[rows], np.full(len(rows), COORDINATOR), flags)
    inbox = yield VERDICT.nothing()
    if (inbox.sender != COORDINATOR).any():
        raise WrongSender("a device spoke in place of the coordinator")
    if not np.array_equal(inbox.receiver, shard.devices):
        raise WrongSender("the coordinator's verdict is missing, or came twice")
    if inbox.body.min() != inbox.body.max():
        raise Equivocation("the coordinator told devices different verdicts")
    called_off = int(inbox.body[0]) == CALLED_OFF
    if objecting[rows].any() and not called_off:
        raise ObjectionIgnored("the coordinator opens a sum to which a device objected")
    return called_off


def decide(asked: Flags) -> Program[bool]:
    """The coordinator's part: whether the attempt is called off. `asked`: [total]."""
    inbox = yield OBJECTION.nothing()
    senders = np.flatnonzero(asked)
    if not np.isin(inbox.sender, senders).all() or len(np.unique(inbox.sender)) < len(inbox.sender):
        raise WrongSender("an objection came from a device that is not in the sum, or came twice")
    silent = len(inbox.sender) < len(senders)
    raised = not len(senders) or silent or bool(inbox.body.sum(dtype=np.uint64) != 0)
    everyone = np.arange(len(asked))
    yield VERDICT.from_coordinator(everyone, CALLED_OFF if raised else OPEN)
    return raised
