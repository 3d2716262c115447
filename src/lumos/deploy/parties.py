"""The parties of a federation and their names: devices by number, and the coordinator.

As in the exchange, a party is a number: a device's own, or `COORDINATOR`. It has a short name in
subjects, `17` or `c`; a user name for the broker, which its certificate holds,
`lumos://device/17` or `lumos://coordinator`; and a folder, `device-17` or `coordinator`.
"""

import re

from lumos.device.shard import COORDINATOR
from lumos.errors import UsageError

_SHORT = "c"
_COORDINATOR_USER = "lumos://coordinator"
_DEVICE_USER = re.compile(r"lumos://device/(0|[1-9][0-9]{0,17})")


def party_name(party: int) -> str:
    """Return a party's name in subjects: `c`, or the number of the device.

    Raises:
        UsageError: there is no such party.
    """
    if party == COORDINATOR:
        return _SHORT
    if not 0 <= party < 10**18:
        raise UsageError(f"a device has a number from 0 on, got {party}")
    return str(party)


def subject(receiver: int, sender: int) -> str:
    """Return the subject of what one party sends to another: `to.<receiver>.<sender>`."""
    return f"to.{party_name(receiver)}.{party_name(sender)}"


def publish_subjects(party: int) -> str:
    """Return the only subjects on which a party may publish: from itself, to anybody."""
    return f"to.*.{party_name(party)}"


def own_subjects(party: int) -> str:
    """Return the only subjects to which a party may subscribe: from anybody, to itself."""
    return f"to.{party_name(party)}.*"


def user_name(party: int) -> str:
    """Return the name under which the broker knows a party: a URI, in its certificate."""
    return _COORDINATOR_USER if party == COORDINATOR else f"lumos://device/{party_name(party)}"


def party_of(user: str) -> int | None:
    """Return the party with this user name, None where it is nobody's."""
    if user == _COORDINATOR_USER:
        return COORDINATOR
    match = _DEVICE_USER.fullmatch(user)
    return None if match is None else int(match[1])


def described(party: int) -> str:
    """Return a party's name for people: `the coordinator`, or `device 17`."""
    return "the coordinator" if party == COORDINATOR else f"device {party}"


def folder_name(party: int) -> str:
    """Return the name of a party's folder, and the common name of its certificate."""
    return "coordinator" if party == COORDINATOR else f"device-{party_name(party)}"
