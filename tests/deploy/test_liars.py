"""Devices that lie in sums, in virtual time: named and excluded, and the run goes on."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.secagg import test_bounded as lies

from lumos.deploy.protocol.frames import Data
from lumos.deploy.virtual import Federation
from lumos.device.shard import COORDINATOR
from lumos.exchange import Program
from lumos.graph import load
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.manifest import equal_bounds
from lumos.secagg import AGGREGATORS
from lumos.secagg.bounded import BoundedAggregator
from lumos.secagg.evidence import EvidenceFile
from lumos.secagg.topics import DRAW_CONTRIBUTION
from lumos.training.config import Config
from lumos.training.write_parts import write_parts

LIAR, DEVICES = 3, 20


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> PartsFolder:
    """`demo:20` with 32 words: vectors are narrow, and proofs short."""
    whole = load(f"demo:{DEVICES}")
    words = np.asarray(whole.features.todense())  # type: ignore[union-attr]
    graph = replace(whole, features=np.maximum.reduce(np.split(words[:, :576], 18, axis=1)))
    return write_parts(graph, tmp_path_factory.mktemp("liars"), equal_bounds(20, 20), seed=0)


SETTINGS = Config.asked(
    aggregate="secure", proofs=True, encoder_epochs=1, propagated_labels=1, epochs=6
)


class AtFirst:
    """Makes one device lie in its first sum, or in all; it follows the protocol elsewhere."""

    def __init__(self, kind: type[BoundedAggregator]) -> None:
        self.kind = kind

    def __call__(self, shard: Any, endpoint: Any, settings: Any) -> BoundedAggregator:
        liar = len(shard) == 1 and int(shard.devices[0]) == LIAR
        return (self.kind if liar else BoundedAggregator)(shard, endpoint, settings)


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def use(kind: type[BoundedAggregator]) -> None:
        monkeypatch.setitem(AGGREGATORS, "secure", AtFirst(kind))

    return use  # type: ignore[return-value]


def weights(federation: Federation, participant: int) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = federation.participants[participant].job.trainer.state_dict(
        "model"
    )
    return found


@pytest.fixture(scope="module")
def without(parts: PartsFolder) -> dict[str, np.ndarray]:
    """Weights of a run in which the device sends no vector, and is left out by nobody's lie."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(AGGREGATORS, "secure", AtFirst(lies.NoVector))
        federation = Federation(parts, SETTINGS)
        federation.run()
    return weights(federation, COORDINATOR)


class OtherContribution(BoundedAggregator):
    """It contributes to the draw of the mask graph what it has not committed itself to."""

    def setup(self) -> Program[None]:
        program = super().setup()
        outbox = next(program)
        while True:
            if outbox.topic is DRAW_CONTRIBUTION:
                outbox = lies.with_body(outbox, outbox.batch.body ^ 1)
            inbox = yield outbox
            try:
                outbox = program.send(inbox)
            except StopIteration:
                return


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (OtherContribution, "had not committed"),
        (lies.SendsLarge, "signature is wrong"),
        (lies.SignsLarge, "not proved to be short"),
        (lies.DisagreesWithMany, "pledges differ"),
        (lies.LiesAboutPairMasks, "not those of its seeds"),
        (lies.LiesAboutSelfMask, "not to its self mask"),
        (lies.WrongCommitment, "shares do not give"),
    ],
)
def test_a_liar_is_named_and_the_others_end_with_the_weights_without_it(
    parts: PartsFolder,
    lying: Any,
    without: dict[str, np.ndarray],
    kind: type[BoundedAggregator],
    why: str,
) -> None:
    lying(kind)
    federation = Federation(parts, SETTINGS)
    federation.run()
    coordinator = federation.coordinator
    assert coordinator.ended == ""
    assert set(coordinator.left_out) == {LIAR}
    assert why in coordinator.left_out[LIAR]
    assert any(f"device {LIAR} lied in a sum" in line for line in federation.lines)
    kept = federation.coordinator_store.evidence
    assert set(kept) == (set() if kind in (OtherContribution, lies.SendsLarge) else {LIAR})
    assert all(EvidenceFile.read(content).proves() for content in kept.values())
    for device in (COORDINATOR, *range(DEVICES)):
        if device != LIAR:
            for name, array in weights(federation, device).items():
                np.testing.assert_array_equal(array, without[name])


@pytest.mark.parametrize("killed", [COORDINATOR, 5])
def test_blame_survives_a_restart(
    parts: PartsFolder, lying: Any, without: dict[str, np.ndarray], killed: int
) -> None:
    lying(lies.LiesAboutSelfMask)
    seen: list[str] = []

    def watch(_now: float, _sender: int, _receiver: int, frames: list[Any]) -> None:
        seen.extend(frame.topic for frame in frames if isinstance(frame, Data))

    federation = Federation(parts, SETTINGS, watch=watch)
    federation.run(lambda: "aggregate/evidence" in seen)
    federation.kill(killed)
    federation.start(killed)
    federation.run()
    assert federation.coordinator.ended == ""
    assert set(federation.coordinator.left_out) == {LIAR}
    assert set(federation.coordinator_store.evidence) == {LIAR}
    for name, array in weights(federation, COORDINATOR).items():
        np.testing.assert_array_equal(array, without[name])
