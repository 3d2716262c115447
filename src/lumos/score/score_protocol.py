"""Scores as workers serve them: a vector and a shift for each party, a byte each."""

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from lumos.crypto.group import Group
from lumos.score.level_spec import LevelSpec
from lumos.score.score_receiver import ScoreReceiver
from lumos.score.score_sender import ScoreSender
from lumos.score.score_state import Shifted
from lumos.typing import Ints


class ScoreProtocol:
    """Opens senders and receivers."""

    def open(self, me: int, peer: int, group: Group) -> ScoreSender | ScoreReceiver:
        """The end with the smaller id is the sender."""
        return (ScoreSender if me < peer else ScoreReceiver)(me, peer, group=group)

    def encode(self, spec: LevelSpec, vectors: Ints, shifts: Ints) -> tuple[bytes, bytes]:
        """A spec, and inputs as `items` reads them.

        Args:
            spec: of all parties.
            vectors: [parties, width].
            shifts: [parties].
        """
        public = (spec.width, spec.bits, spec.ring_bits, spec.thresholds)
        rows = np.hstack([vectors, shifts[:, None]]).astype(np.int8)
        return msgspec.msgpack.encode(public), rows.tobytes()

    def items(
        self, spec: bytes, values: bytes, count: int
    ) -> Iterator[tuple[LevelSpec, npt.ArrayLike | Shifted]]:
        """(spec, own vector) of each party, shifted where it shifts."""
        width, bits, ring_bits, thresholds = msgspec.msgpack.decode(
            spec, type=tuple[int, int, int, tuple[int, ...]]
        )
        decoded = LevelSpec(width=width, bits=bits, ring_bits=ring_bits, thresholds=thresholds)
        for row in np.frombuffer(values, np.int8).reshape(count, width + 1):
            vector, shift = row[:-1], int(row[-1])
            yield decoded, Shifted(vector, shift) if shift else vector


PROTOCOL = ScoreProtocol()
