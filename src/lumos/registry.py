"""Registries: everything that can be chosen by name, in one form.

    BALANCERS: Registry[Balancer] = Registry(
        "balancer",
        {"greedy": "lumos.trees.balancers.greedy:GREEDY"},
    )
    BALANCERS["greedy"]                    # imports the module when it is first asked for
    BALANCERS.register("mine", MINE)       # an entry of your own, from any package

Installed packages add entries without being imported, by an entry point in the group
`lumos.<kind>`. A wrong name is answered with the right ones.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

from lumos.errors import UsageError, one_of

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Entries of one kind by name.

    Args:
        kind: what an entry is, as the setting is called that names one.
        entries: where each is found, as `module:attribute`.
    """

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self._built_in = dict(entries)
        self._loaded: dict[str, Entry] = {}

    def __repr__(self) -> str:
        return f"Registry(lumos.{self.kind}: {', '.join(self.names())})"

    @cached_property
    def _places(self) -> dict[str, str]:
        """Module and attribute of every entry; another package cannot take our own names."""
        found = {point.name: point.value for point in entry_points(group=f"lumos.{self.kind}")}
        return {**self._built_in, **{n: v for n, v in found.items() if n not in self._built_in}}

    def __getitem__(self, name: str) -> Entry:
        """The entry of this name.

        Raises:
            UsageError: there is none; the message lists those that exist.
        """
        if name not in self._loaded:
            one_of(self.kind, name, self.names())
            module, attribute = self._places[name].split(":")
            self._loaded[name] = cast(Entry, getattr(import_module(module), attribute))
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._places or name in self._loaded

    def is_built_in(self, name: str) -> bool:
        """Return whether an entry is one of ours."""
        return name in self._built_in

    def names(self) -> tuple[str, ...]:
        """Every name, in the order of registration."""
        return tuple(dict.fromkeys([*self._places, *self._loaded]))

    def built_in(self) -> tuple[str, ...]:
        """Names of the entries of this package."""
        return tuple(self._built_in)

    def register(self, name: str, entry: Entry) -> None:
        """Add an entry.

        Raises:
            UsageError: the name is taken.
        """
        if name in self:
            raise UsageError(f"there is a {self.kind} called {name!r} already")
        self._loaded[name] = entry

    def remove(self, name: str) -> None:
        """Take back what `register` added."""
        if name in self._places:
            raise UsageError(f"{self.kind} {name!r} was not added by `register` and stays")
        self._loaded.pop(name, None)


# Parts that are given as Python objects: layers, models, optimizers.


def part_name(part: Any) -> str:
    """Return the name of a part, as files record it: `module:Class`, with arguments of a partial.

    A name is itself, so that a name that was read from a file stays as it is.
    """
    if isinstance(part, str):
        return part
    if isinstance(part, partial):
        given = [repr(value) for value in part.args]
        given += [f"{name}={value!r}" for name, value in sorted(part.keywords.items())]
        return f"{part_name(part.func)}({', '.join(given)})"
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"{named.__module__}:{named.__qualname__}"


def imported_part(setting: str, place: str) -> Any:
    """Import the part at `package.module:Class`.

    Raises:
        UsageError: there is none.
    """
    module, _, attribute = place.partition(":")
    try:
        found = import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"`{setting}` {place!r}: cannot be imported ({error}); give package.module:Class"
        ) from None
    return found
