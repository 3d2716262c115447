"""R: asks for its coordinates' products, then for the level at the sum of what it read."""

import numpy.typing as npt

from lumos.crypto.ed25519 import ED25519
from lumos.crypto.group import Group
from lumos.score.level_spec import LevelSpec, messages
from lumos.score.score_state import (
    PRODUCT_POINTS,
    PRODUCT_TABLES,
    SHARE_POINTS,
    VERSION,
    Score,
    Shifted,
)
from lumos.session.lookup import unmask
from lumos.session.lookup_parties import LookupReceiver
from lumos.session.party import Rules
from lumos.session.transcript_check import encode_answer, words_for

_RULES = Rules(VERSION, messages, Score)


class ScoreReceiver(LookupReceiver[LevelSpec, npt.ArrayLike | Shifted, Score]):
    """The end that reads the tables. Its items are (spec, vector) or (spec, `Shifted`)."""

    def __init__(self, me: int, peer: int, *, group: Group = ED25519) -> None:
        super().__init__(me, peer, _RULES, group)

    def _compose_tasks(self, position: int) -> bytes:
        if position == PRODUCT_POINTS:
            return b"".join(self._ask_products(score) for score in self._tasks)
        if position == SHARE_POINTS:
            return b"".join(self._ask_level(score) for score in self._tasks)
        check = self._check
        return b"".join(
            encode_answer(score.told(), check, words_for(score.spec.levels))
            for score in self._tasks
        )

    def _ask_products(self, score: Score) -> bytes:
        chosen = [
            self._live().choose(query, digit)
            for query, digit in zip(score.coordinates, _digits(score), strict=True)
        ]
        score.kept = [pads for _, pads in chosen]
        return b"".join(points for points, _ in chosen)

    def _ask_level(self, score: Score) -> bytes:
        points, pads = self._live().choose(score.level_query, score.share)
        score.kept = [pads]
        return points

    def _take_tasks(self, position: int, message: bytes, check: int) -> None:
        read = _read_products if position == PRODUCT_TABLES else _read_level
        offset = 0
        for score in self._tasks:
            offset += read(score, message[offset:])
            score.kept = []


def _digits(score: Score) -> list[int]:
    """[width] the coordinates in two's complement."""
    digits: list[int] = (score.vector & ((1 << score.spec.bits) - 1)).tolist()
    return digits


def _read_products(score: Score, tables: bytes) -> int:
    """R's share is the sum of the entries; returns the bytes read."""
    lookup, share = score.spec.coordinate_lookup, 0
    size = lookup.table_bytes
    for place, (pads, digit) in enumerate(zip(score.kept, _digits(score), strict=True)):
        share += unmask(lookup, tables[place * size : place * size + size], pads, digit)
    score.share = share & ((1 << score.spec.ring_bits) - 1)
    return size * score.spec.width


def _read_level(score: Score, tables: bytes) -> int:
    """The entry of R's share is the level; returns the bytes read."""
    lookup = score.spec.level_lookup
    score.learn(unmask(lookup, tables[: lookup.table_bytes], score.kept[0], score.share))
    return lookup.table_bytes
