"""A device that is restarted receives something else than the first time: it hides one vector, and
shows one contribution, all the same. The broken twin does not record what it received."""

from typing import Any

import msgspec
import numpy as np
import pytest
from tests.deploy.test_lies import LOST, SUM_PHASE, Tampering, UnrecordedStore, mask_neighbours

from lumos.deploy.protocol.frames import Data, RunState
from lumos.deploy.virtual import Federation
from lumos.device.shard import COORDINATOR
from lumos.graph.labels import Role
from lumos.graph.parts import PartsFolder
from lumos.secagg import masks
from lumos.training.config import Config


def federation_of(twelve: PartsFolder, config: Config, *, broken: bool) -> Tampering:
    federation = Tampering(twelve, config)
    if broken:
        for device in range(12):
            federation.stores[device] = UnrecordedStore()
            federation.start(device)
    return federation


def bodies_of(
    federation: Federation, topic: str, phase: int | None, device: int = LOST
) -> list[bytes]:
    """What a device sends in a topic of a phase, from now on, each once."""
    found: list[bytes] = []

    def watch(now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if sender != device or not isinstance(frame, Data):
                continue
            if phase not in (None, frame.key.phase):
                continue
            if frame.topic.endswith(topic) and frame.body not in found:
                found.append(frame.body)

    federation.watch = watch
    return found


def restarted(federation: Tampering, sent: list[bytes], change: Any) -> None:
    """Kill the device once it has sent something, start it and lie to it."""
    federation.run(until=lambda: bool(sent))
    federation.kill(LOST)
    federation.change = change
    federation.start(LOST)
    over = federation.now + 20
    federation.run(until=lambda: len(sent) > 1 or federation.now > over)


@pytest.mark.parametrize("broken", [False, True])
def test_one_vector_is_hidden_under_the_masks_of_a_sum(
    twelve: PartsFolder, short: Config, broken: bool
) -> None:
    """The coordinator says after the restart that one more neighbour is left out. Two such vectors
    differ by the mask of that pair; with one for each pair, nothing hides the vector."""
    federation = federation_of(twelve, short, broken=broken)
    sent = bodies_of(federation, "aggregate/masked", SUM_PHASE)
    federation.run(until=lambda: bool(sent))
    last = mask_neighbours(federation)[-1]

    def one_more(sender: int, receiver: int, data: Data) -> Data:
        if (sender, receiver) != (COORDINATOR, LOST) or data.key.phase != SUM_PHASE:
            return data
        if not data.topic.endswith("left-out"):
            return data
        ids = [last, *np.frombuffer(data.body, np.int64).tolist()]
        return msgspec.structs.replace(data, count=len(ids), body=np.array(ids, np.int64).tobytes())

    restarted(federation, sent, one_more)
    assert len(sent) == 1 + broken
    if broken:
        assert learnt_mask(federation, sent, last)


def learnt_mask(federation: Federation, sent: list[bytes], neighbour: int) -> bool:
    """Whether the difference of two vectors is the mask that the device shares with another."""
    job: Any = federation.device(neighbour).job
    sums: Any = job.trainer.sums._sums
    # The neighbour's keys of this sum, from the state before it.
    number, store = sums._pairs.number - 1, federation.stores[neighbour]
    assert store.snapshot is not None
    state = {
        name.removeprefix("run/sums/"): array
        for name, array in store.snapshot.items()
        if name.startswith("run/sums/")
    }
    context = sums.context
    sums.load_state_dict(state)
    assert sums._pairs.number == number
    keys = sums._pairs.ratchet(context)
    slot = int(np.flatnonzero(sums._neighbours[0] == LOST)[0])
    pair = sums._pairs.of[0, slot]
    of = masks.SumId(sums._run, number)
    low, high = (np.array([end(LOST, neighbour)]) for end in (min, max))
    key = masks.pair_keys_of(keys.seed[[pair]], low, high, of)
    wire = sums.fixed.wire
    # Corrections and the commitment are behind the vector.
    width = (len(sent[0]) - masks.COMMITMENT) // wire
    mask = np.zeros((1, width), sums.fixed.dtype)
    masks.add_masks(mask, key, np.array([0]), np.array([masks.NOBODY]))
    one, other = (sums.fixed.unpack(np.frombuffer(body[: 8 * wire], np.uint8)) for body in sent)
    difference = (one - other).ravel()
    packed = sums.fixed.pack(mask)
    expected = sums.fixed.unpack(packed[0, : 8 * wire]).ravel()
    return any(
        np.array_equal(sums.fixed.pack(difference[None]), sums.fixed.pack(sign[None]))
        for sign in (expected, -expected)
    )


@pytest.mark.parametrize("broken", [False, True])
def test_a_neighbour_that_is_lost_meanwhile_changes_no_vector(
    twelve: PartsFolder, short: Config, broken: bool
) -> None:
    """Nobody lies. The vector depends on messages of neighbours; one of them, and then the device,
    are killed, and only the device is back: the difference of two vectors would be in the clear."""
    federation = federation_of(twelve, short, broken=broken)
    training = [
        device
        for device in range(12)
        if federation.folder.part([device], "classify").roles[0] == Role.TRAIN
    ]
    device, neighbour = next(
        (one, other)
        for one in training
        for other in federation.device(one).job.shard.neighbours.tolist()
        if other in training
    )
    received = bodies_of(federation, "symbol", None, neighbour)
    federation.run(until=lambda: bool(received))
    phase = federation.device(device).phase
    sent = bodies_of(federation, "aggregate/masked", phase, device)
    federation.run(until=lambda: bool(sent))
    federation.kill(device)
    federation.kill(neighbour)
    federation.run(until=lambda: federation.now >= 25)  # in time for the deadline
    federation.start(device)
    federation.run()
    assert set(federation.coordinator.out) == {neighbour}
    assert len(sent) == 1 + broken
    assert (federation.device(device).ended == "") or broken


@pytest.mark.parametrize("broken", [False, True])
def test_a_contribution_that_was_shown_is_in_no_other_seed(
    twelve: PartsFolder, short: Config, broken: bool
) -> None:
    """Whoever knows the contribution could choose the seed: another digest is not taken."""
    federation = federation_of(twelve, short, broken=broken)
    sent = bodies_of(federation, "draw-contribution", 1)

    def another(sender: int, receiver: int, data: Data) -> Data:
        if (sender, receiver) == (COORDINATOR, LOST) and data.topic.endswith("draw-digest"):
            return msgspec.structs.replace(data, body=bytes(32))
        return data

    restarted(federation, sent, another)
    device = federation.device(LOST)
    assert ("not what devices bound" in str(device.ended)) == broken


def test_who_is_left_out_is_said_by_the_coordinator_alone(
    twelve: PartsFolder, short: Config
) -> None:
    federation = Federation(twelve, short)
    federation.run(until=lambda: federation.coordinator.phase == SUM_PHASE)
    federation.device(LOST).receive(2, [RunState(SUM_PHASE, 0, [1], None)], federation.now)
    assert not federation.device(LOST).out
