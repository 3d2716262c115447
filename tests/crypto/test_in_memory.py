"""What holds a secret is neither pickled nor copied nor printed, and neither is a subclass."""

import copy
import pickle
from collections.abc import Callable

import pytest

from lumos.crypto.entropy import InMemoryOnly


class Plain(InMemoryOnly):
    def __init__(self) -> None:
        self.key = b"private-key-4711"


class Slotted(InMemoryOnly):
    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key = b"private-key-4711"


@pytest.mark.parametrize("kind", [Plain, Slotted])
@pytest.mark.parametrize("write", [pickle.dumps, copy.copy, copy.deepcopy])
def test_neither_pickled_nor_copied(
    kind: Callable[[], InMemoryOnly], write: Callable[[object], object]
) -> None:
    for thing in (kind(), [kind()], {"inside": kind()}):
        if write is copy.copy and not isinstance(thing, InMemoryOnly):
            continue  # a shallow copy of a container does not copy what is inside
        with pytest.raises(TypeError, match="never written down or copied"):
            write(thing)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_in_no_protocol_of_pickle(protocol: int) -> None:
    with pytest.raises(TypeError, match="never written down or copied"):
        pickle.dumps(Plain(), protocol)


@pytest.mark.parametrize("kind", [Plain, Slotted])
def test_prints_no_field(kind: Callable[[], InMemoryOnly]) -> None:
    assert repr(kind()) == f"<{type(kind()).__name__}>"
    assert "4711" not in f"{kind()} {[kind()]}"
