"""Everything that can go wrong, as one tree.

LumosError                  anything Lumos raises on purpose
├── UsageError              the caller asked for something that does not exist (exit status 2)
├── InputError              a file or an object handed to us is wrong (exit status 2)
├── MissingData             a graph is known, but its files are not here (exit status 2)
├── NotHosted               a private value of a device was asked of a shard that does not host it
├── DoorClosed              a topic tried to leave through a door that the profile keeps shut
├── ProtocolError           a message broke the rules; the session is closed, nothing is revealed
│   └── WrongLength         a message is longer or shorter than the public settings say
├── RankLost                another rank of the run is gone, or does not answer
├── RankFailed              another rank of the run failed, and says why itself
├── BrokerFailed            the NATS server did not start, or is gone
├── RunFailed               a run of real devices has failed, or goes on without this one
├── BudgetExceeded          a run would reveal more than the budget that was set
└── PromiseExceeded         an attack inferred more than a promise allows

No message ever carries a private value. Messages name settings as Python has them, in backticks:
`update_epsilon`, `protect='none'`. The command line prints them as its options (`lumos.cli.main`).
"""


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
    """A message is longer or shorter than the public settings say."""


class RankLost(LumosError):
    """Another rank of the run is gone, or does not answer."""


class RankFailed(LumosError):
    """Another rank of the run failed, and says why itself."""


class BrokerFailed(LumosError):
    """The NATS server did not start, or is gone."""


class RunFailed(LumosError):
    """A run of real devices has failed, or goes on without this one."""


class BudgetExceeded(LumosError):
    """A run would reveal more than the budget that was set."""


class PromiseExceeded(LumosError):
    """An attack inferred more than a promise allows."""


def one_of(parameter: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise `UsageError` where a setting is none of the allowed words."""
    if value not in allowed:
        raise UsageError(f"`{parameter}` must be one of {', '.join(allowed)}, got {value!r}")
