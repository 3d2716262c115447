"""S: opens the session, answers R's digits with tables of products, then with one of levels."""

import numpy as np
import numpy.typing as npt

from lumos.crypto import entropy
from lumos.crypto.ed25519 import ED25519
from lumos.crypto.group import Group
from lumos.score.level_spec import LevelSpec, messages
from lumos.score.score_state import (
    ANSWERS,
    PRODUCT_TABLES,
    VERSION,
    Score,
    Shifted,
    level_table,
    product_tables,
)
from lumos.session.lookup_parties import LookupSender
from lumos.session.party import Rules
from lumos.session.transcript_check import decode_answer, words_for
from lumos.typing import Bytes, Ints

_RULES = Rules(VERSION, messages, Score)


class ScoreSender(LookupSender[LevelSpec, npt.ArrayLike | Shifted, Score]):
    """The end with the tables. Its items are (spec, vector) or (spec, `Shifted`)."""

    def __init__(self, me: int, peer: int, *, group: Group = ED25519) -> None:
        super().__init__(me, peer, _RULES, group)
        self._points = b""

    def close(self) -> None:
        """Forget every secret; the session answers nothing any more."""
        super().close()
        self._points = b""

    def _compose_tasks(self, position: int) -> bytes:
        if position == PRODUCT_TABLES:
            plain = [table for score in self._tasks for table in _share(score)]
            asked = [query for score in self._tasks for query in score.coordinates]
        else:
            plain = [level_table(own.spec, own.share, own.shift) for own in self._tasks]
            asked = [score.level_query for score in self._tasks]
        return b"".join(self._live().tables(asked, self._points, plain))

    def _take_tasks(self, position: int, message: bytes, check: int) -> None:
        if position != ANSWERS:
            self._points = message
            return
        for score, byte in zip(self._tasks, message, strict=True):
            told = decode_answer(byte, check, words_for(score.spec.levels))
            score.learn(told)
            score.level = (told - score.shift) % score.spec.levels


def _share(score: Score) -> Bytes:
    """Tables of the products under fresh masks r; S's share is -Σ r."""
    spec = score.spec
    masks = _masks(spec)
    score.share = -int(masks.sum()) % (1 << spec.ring_bits)
    return product_tables(spec, score.vector, masks)


def _masks(spec: LevelSpec) -> Ints:
    """[width] fresh uniform elements of the ring; 2^ring_bits divides 2^16."""
    drawn = np.frombuffer(entropy.draw(2 * spec.width), "<u2").astype(np.int64)
    masks: Ints = drawn & ((1 << spec.ring_bits) - 1)
    return masks
