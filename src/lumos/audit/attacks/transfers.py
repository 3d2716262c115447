"""Transfers between partners: a lying chooser of tokens looks for the other's secret s.

With s it reads every number of its partner (docs/protocols.md, "The columns are checked"). It sends
other choices in some columns and answers the check as an honest one: a bet that s is 0 there. A
session that is not closed has told it these bits. Sessions are real ones, of two parties that share
nothing but messages; no run is recorded.
"""

from collections.abc import Iterator

import numpy as np

from lumos.audit.attacks import attack
from lumos.audit.harness import Scene
from lumos.audit.table import AuditRow, Proportion, finding
from lumos.crypto.groups import ED25519
from lumos.errors import CheckFailed
from lumos.twoparty.products import BASE, Chooser, Multiplier
from lumos.typing import Bytes

WORDS = 256
SESSIONS = 48
"""Sessions of each row."""
GUESSED = (1, 4, BASE)
"""Bits of s that the liar is after."""
CLAIM = "docs/protocols.md, the columns are checked"
_SID = bytes(40)


class LyingChooser(Chooser):
    """Flips row i in column i of the first columns, and answers the check as if s were 0 there.

    Args:
        flipped: number of columns.
    """

    __slots__ = ("_flipped",)

    def __init__(self, flipped: int) -> None:
        super().__init__(np.zeros(WORDS, np.bool_), ED25519)
        self._flipped = flipped

    def _masked(self, one: Bytes, other: Bytes, chosen: Bytes) -> Bytes:
        sent, places = super()._masked(one, other, chosen), np.arange(self._flipped)
        sent[places, places >> 3] ^= (1 << (places & 7)).astype(np.uint8)
        return sent


@attack("transfers", "the numbers of a partner from inconsistent columns", "strict", "link")
def attack_transfers(scene: Scene) -> Iterator[AuditRow]:
    """Yield how often a bet on bits of s passes."""
    scene.say("a partner sends columns that belong to no choice of tokens")
    for bits in GUESSED:
        passed = sum(_passes(bits) for _ in range(SESSIONS))
        yield finding(
            "one partner that lies",
            f"{bits} bit{'s' * (bits > 1)} of the secret of a session, by inconsistent columns",
            "sessions that pass",
            Proportion(passed, SESSIONS),
            bound=(2.0**-bits, CLAIM),
            undefended=1.0,
            knows_mechanism=True,
        )


def _passes(bits: int) -> bool:
    """Return whether the liar's columns are taken in a new session."""
    chooser, multiplier = LyingChooser(bits), Multiplier(WORDS, ED25519)
    points = multiplier.points(_SID, chooser.A)
    try:
        multiplier.extend(chooser.columns(_SID, points))
    except CheckFailed:
        return False
    return True
