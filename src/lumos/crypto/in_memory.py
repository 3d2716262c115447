"""Objects that hold secrets stay in memory."""

from typing import NoReturn


class InMemoryOnly:
    """Cannot be pickled or copied, and prints no field.

    A copy of a session, or one read back after a restart, would answer an index a second time
    under the same pads: the XOR of the two tables reveals what changed.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a session is never written down or copied; open a new one")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"
