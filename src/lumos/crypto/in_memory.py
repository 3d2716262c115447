"""A base class for objects that hold secrets: they stay in memory."""

from typing import NoReturn


class InMemoryOnly:
    """Cannot be pickled or copied, and its repr shows no field.

    A second copy of a session, for example one restored after a restart, would use the same pads
    or masks again: the XOR of two tables under one pad, or the difference of two updates under one
    mask, reveals what changed.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("secrets are never written down or copied; open a new session")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"
