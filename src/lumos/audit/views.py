"""The part of a recording that an adversary gets. Attacks read a tape through these functions only.

- *one neighbour* u of v: what passed between u and v, in both directions (`over_slots`);
- *pooled neighbours* of v: the same of all of them;
- *a stranger*: what passed between it and v, after it was a candidate or asked a question;
- *everybody*: sums that were opened (`opened_sums`), weights that follow from them;
- *the coordinator*: what was sent to it, but for bodies of masked vectors, which nobody can read;
- *a broker* moves the messages: senders, receivers, sizes and rounds of all (`Tape.traffic`), and
  bodies unless the carrier seals them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.aggregate.fixed_point import FixedPoint
from lumos.audit.scene import OPENED, Recorded
from lumos.device.shard import COORDINATOR
from lumos.exchange.batch import Batch
from lumos.graph import Graph
from lumos.typing import Doubles, Ints


def slots_of(graph: Graph, receiver: Ints, sender: Ints) -> Ints:
    """Slots of the graph (receiver, its neighbour that sent); -1 where they are no neighbours."""
    owner = np.repeat(np.arange(graph.devices), graph.degrees)
    keys = owner * graph.devices + graph.neighbours
    wanted = receiver * graph.devices + sender
    place = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    found = keys[place] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)
    return np.where(found, place, -1)


def over_slots(graph: Graph, batch: Batch, missing: int = -1) -> npt.NDArray[Any]:
    """[slots, …] the body that each device received from each neighbour; `missing` where none."""
    slots = slots_of(graph, batch.receiver, batch.sender)
    seen = np.full((len(graph.neighbours), *batch.body.shape[1:]), missing, np.int64)
    seen[slots[slots >= 0]] = batch.body[slots >= 0]
    return seen


def said(recorded: Recorded, topic: str, number: int = 0, missing: int = -1) -> Ints:
    """[devices] what each device told all its neighbours, for topics of one byte."""
    batch = recorded.tape.messages(topic)[number]
    told = np.full(recorded.graph.devices, missing)
    told[batch.sender] = batch.body.reshape(batch.messages)
    return told


def opened_sums(recorded: Recorded) -> list[Doubles]:
    """All sums of the run in order, as everybody received them."""
    fixed = FixedPoint.of(recorded.config.updates, recorded.graph.devices)
    sums = []
    for batch in (b for topic in OPENED for b in recorded.tape.messages(topic)):
        rows = np.flatnonzero(batch.sender == COORDINATOR)[:1]
        if len(rows):
            width = batch.body.shape[1] if batch.lengths is None else int(batch.lengths[rows[0]])
            words = np.ascontiguousarray(batch.body[rows[0], :width])
            sums.append(fixed.decode(words.view(fixed.dtype)))
    return sums
