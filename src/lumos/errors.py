"""Every error that Lumos raises on purpose, as one tree.

LumosError                  anything Lumos raises on purpose
├── UsageError              the caller asked for something that does not exist (exit status 2)
├── InputError              a file or an object handed to us is wrong (exit status 2)
├── MissingData             a graph is known, but its files are not here (exit status 2)
├── NotHosted               a private value of a device was asked of a shard that does not host it
├── DoorClosed              a topic tried to leave through a door that the profile keeps shut
├── ProtocolError           a message broke the rules; the session is closed, nothing is revealed
│   ├── WrongLength         a message is longer or shorter than the public settings allow
│   │                       masked sums:
│   ├── WrongSender         a message came from a participant that has no part in it, or twice
│   ├── Forged              a public key, a word or an opened secret is not the sender's
│   ├── Equivocation        the coordinator sent two devices different things
│   ├── DrawVoid            the mask graph could not be drawn: contributions were missing
│   ├── BothSecrets         somebody asked a holder for both secrets of one device
│   ├── AlreadyOpened       somebody asked a holder for a second attempt of a step that it opened
│   │                       sessions of two devices (comparisons, scores):
│   ├── BadPoint            a received point or key is not in its group (`lumos.crypto.groups`)
│   ├── BadValue            a value, an outcome or padding lies outside its range
│   ├── CheckFailed         the two ends have not seen the same messages
│   ├── OutOfOrder          a message, or a call, is not the one that is due
│   └── SessionClosed       the session has ended: by an error, by close(), or by a fork
├── RankLost                another rank of the run is gone, or does not answer
├── RankFailed              another rank of the run failed, and reports why itself
├── BrokerFailed            the NATS server did not start, or is gone
├── RunFailed               a run of real devices has failed, or goes on without this one
├── BudgetExceeded          a run would reveal more than the budget that was set
└── GuaranteeExceeded       an attack inferred more than a guarantee allows

LumosWarning                a run means less than its scores seem to say

No message ever carries a private value: no number, share, key, mask or point. Messages name
settings as Python has them, in backticks: `feature_epsilon`, `protect='none'`. The command line
prints them as its options (`lumos.cli.main`).
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin


class LumosError(Exception):
    """Anything Lumos raises on purpose."""

    exit_status = 1


class UsageError(LumosError):
    """The caller asked for something that does not exist."""

    exit_status = 2


class InputError(LumosError):
    """A file or an object handed to us is wrong."""

    exit_status = 2


class MissingData(LumosError):
    """A graph is known, but its files are not here."""

    exit_status = 2


class NotHosted(LumosError):
    """A private value of a device was asked of a shard that does not host it."""


class DoorClosed(LumosError):
    """A topic tried to leave through a door that the profile keeps shut."""


class ProtocolError(LumosError):
    """A message broke the rules; the session is closed and nothing is revealed."""


class WrongLength(ProtocolError):
    """A message is longer or shorter than the public settings allow."""


class RankLost(LumosError):
    """Another rank of the run is gone, or does not answer."""


class RankFailed(LumosError):
    """Another rank of the run failed, and reports why itself."""


class BrokerFailed(LumosError):
    """The NATS server did not start, or is gone."""


class RunFailed(LumosError):
    """A run of real devices has failed, or goes on without this one."""


class BudgetExceeded(LumosError):
    """A run would reveal more than the budget that was set."""


class GuaranteeExceeded(LumosError):
    """An attack inferred more than a guarantee allows."""


class WrongSender(ProtocolError):
    """A message came from a participant that has no part in it, or came twice."""


class Forged(ProtocolError):
    """A public key, a word or an opened secret is not the sender's."""


class Equivocation(ProtocolError):
    """The coordinator sent two devices different things."""


class DrawVoid(ProtocolError):
    """The mask graph could not be drawn: contributions were missing in every draw."""


class BothSecrets(ProtocolError):
    """Somebody asked a holder for both secrets of one device."""


class AlreadyOpened(ProtocolError):
    """Somebody asked a holder for a second attempt of a step that it helped to open."""


class BadValue(ProtocolError):
    """A value, an outcome or padding lies outside its range."""


class CheckFailed(ProtocolError):
    """The two ends of a session have not seen the same messages."""


class OutOfOrder(ProtocolError):
    """A message, or a call, is not the one that is due."""


class SessionClosed(ProtocolError):
    """The session has ended: by an error, by ``close()``, or by a fork."""


class LumosWarning(UserWarning):
    """A finished run means less than its scores seem to say; see `Run.warnings`."""


_TYPES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    Path: "a path",
    type(None): "None",
}


def typed(parameter: str, value: Any, hint: Any) -> Any:
    """Return the value of a setting in its type: 2 as 2.0, the text of a path as the path.

    Numbers of NumPy become those of Python. Words of a `Literal` are left to `one_of`, and so is
    every type but those of `_TYPES`.

    Raises:
        UsageError: the value has another type.
    """
    kinds = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()
    if type(value) is int and float in kinds and int not in kinds:
        return float(value)
    if isinstance(value, str) and Path in kinds:
        return Path(value)
    simple = [kind for kind in _TYPES if kind in kinds]
    if (
        len(simple) < len(kinds)
        or type(value) in kinds
        or (isinstance(value, Path) and Path in kinds)
    ):
        return value
    words = " or ".join(_TYPES[kind] for kind in simple)
    raise UsageError(f"`{parameter}` must be {words}, got {value!r:.60}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question with the known names that are spelt most like a wrong one; may be empty."""
    found = get_close_matches(name, sorted({*known}), n=3)
    return f"did you mean {' or '.join(f'`{one}`' for one in found)}?" if found else ""


def one_of(parameter: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise `UsageError` where a setting is none of the allowed words."""
    if value not in allowed:
        raise UsageError(f"`{parameter}` must be one of {', '.join(allowed)}, got {value!r}")
