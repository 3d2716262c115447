"""A device that sends messages of a setup or of the end of a run twice stops nobody but itself."""

import msgspec
import pytest
from tests.deploy.test_liars import DEVICES, LIAR, SETTINGS, parts
from tests.deploy.test_lies import Tampering

from lumos.deploy.protocol.frames import Data
from lumos.graph.parts import PartsFolder

__all__ = ["parts"]


@pytest.mark.parametrize("topics", [["draw-contribution"], ["keys", "told"]])
def test_messages_that_come_twice_end_nobody_elses_run(
    parts: PartsFolder, topics: list[str]
) -> None:
    federation = Tampering(parts, SETTINGS)

    def twice(sender: int, receiver: int, data: Data) -> Data:
        if sender != LIAR or data.topic.removeprefix("aggregate/") not in topics or data.count != 1:
            return data
        return msgspec.structs.replace(data, count=2, body=data.body * 2)

    federation.change = twice
    federation.run()
    assert federation.coordinator.ended == ""
    assert set(federation.coordinator.left_out) <= {LIAR}
    for device in range(DEVICES):
        if device != LIAR:
            assert federation.device(device).ended == "", device
