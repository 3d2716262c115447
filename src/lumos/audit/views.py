"""The part of a recording that an adversary gets. Attacks read a tape through these functions only.

- *one neighbour* u of v: what passed between u and v, in both directions (`told`, `slots_of`);
- *pooled neighbours* of v: the same of all of them;
- *a stranger*: what passed between it and v, after it was a candidate or asked a question;
- *everybody*: sums that were opened (`opened_sums`), weights that follow from them;
- *the coordinator*: what was sent to it, but for bodies of masked vectors, which nobody can read;
- *a broker* moves the messages: senders, receivers, sizes and rounds of all (`Tape.traffic`), and
  bodies unless the carrier seals them.
"""

from typing import Any

import numpy as np

from lumos.aggregate.fixed_point import FixedPoint
from lumos.audit.scene import OPENED, SECURE_SUM, Recorded
from lumos.device.shard import COORDINATOR
from lumos.exchange.batch import Batch
from lumos.exchange.tape import Tape
from lumos.graph import Graph
from lumos.typing import Bytes, Doubles, Flags, Ints


def slots_of(graph: Graph, receiver: Ints, sender: Ints) -> Ints:
    """Slots of the graph (receiver, its neighbour that sent); -1 where they are no neighbours."""
    owner = np.repeat(np.arange(graph.devices), graph.degrees)
    keys = owner * graph.devices + graph.neighbours
    wanted = receiver * graph.devices + sender
    place = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    found = keys[place] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)
    return np.where(found, place, -1)


def said(recorded: Recorded, topic: str, number: int = 0, missing: int = -1) -> Ints:
    """[devices] what each device told all its neighbours, for topics of one byte."""
    batch = recorded.tape.messages(topic)[number]
    told = np.full(recorded.graph.devices, missing)
    told[batch.sender] = batch.body.reshape(batch.messages)
    return told


def told(tape: Tape, topic: str, devices: int, number: int = 0) -> tuple[Bytes, Flags]:
    """[devices, bytes] what each device told all its neighbours, and [devices] who did."""
    batch = tape.messages(topic)[number]
    width = batch.body.shape[1] if batch.lengths is None else int(batch.lengths.max())
    bodies = np.zeros((devices, width), np.uint8)
    bodies[batch.sender] = batch.body[:, :width]
    senders = np.zeros(devices, np.bool_)
    senders[batch.sender] = True
    return bodies, senders


def opened_sums(recorded: Recorded) -> list[Doubles]:
    """All sums of the run in order, as everybody received them."""
    fixed = FixedPoint.of(recorded.config.updates, recorded.graph.devices)
    return opened_on(recorded.tape, fixed)


def opened_on(tape: Tape, fixed: FixedPoint) -> list[Doubles]:
    """All sums of the last carrier in order, as everybody received them."""
    return [
        fixed.decode(_words(0, batch, fixed, packed=topic == SECURE_SUM))
        for topic in OPENED
        for batch in tape.messages(topic)
        if batch.sender[0] == COORDINATOR
    ]


def exact_on(tape: Tape, fixed: FixedPoint) -> list[Doubles]:
    """The same before noise. Nobody sees them in a real run: for attackers that know all vectors,
    and so can compute them."""
    batches = [b for b in tape.messages("aggregate/clear-sum/ideal") if b.sender[0] != COORDINATOR]
    return [
        fixed.decode(sum(_words(row, batch, fixed) for row in range(batch.messages)))
        for batch in batches
    ]


def _words(row: int, batch: Batch, fixed: FixedPoint, *, packed: bool = False) -> Any:
    width = batch.body.shape[1] if batch.lengths is None else int(batch.lengths[row])
    body = np.ascontiguousarray(batch.body[row, :width])
    return fixed.unpack(body) if packed else body.view(fixed.dtype)
