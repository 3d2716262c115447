"""Options made from settings: every field of some dataclasses, each "not given" by default.

So the dataclasses stay the only place of defaults, and a command can tell what was asked for from
what was left to the profile.
"""

import dataclasses
from collections.abc import Collection, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

from cyclopts import Parameter, Token

from lumos.cli.common import as_options, placed
from lumos.graph import ReadOptions
from lumos.training.config import TRAIN_OPTIONS, descriptions


def options_of(
    name: str, *groups: type[Any], only: Collection[str] | None = None, **defaults: str
) -> type[Any]:
    """Return a dataclass of the settings of `groups`, of the same type or None, None by default.

    A setting that several groups have is one option, with the help of each.

    Args:
        only: names of the settings to take; all by default.
        defaults: what the help says of defaults that depend on other options.
    """
    hints: dict[str, Any] = {}
    texts: dict[str, list[str]] = {}
    shown: dict[str, list[str]] = {}
    for group in groups:
        words, types = descriptions(group), get_type_hints(group)
        for field in dataclasses.fields(group):
            if only is not None and field.name not in only:
                continue
            if hints.setdefault(field.name, types[field.name]) != types[field.name]:
                raise TypeError(f"{field.name}: two groups have it, with different types")
            texts.setdefault(field.name, []).append(words.get(field.name, ""))
            if field.name in defaults:
                shown[field.name] = [defaults[field.name]]
            elif field.default is not None and not isinstance(field.default, bool):
                value = field.default
                text = f"{value:g}" if isinstance(value, float) else str(value)
                shown.setdefault(field.name, []).append(text)
    options = []
    for option, hint in hints.items():
        default = " or ".join(dict.fromkeys(shown.get(option, ())))
        about = _parameter(option, hint, " Or: ".join(texts[option]), default)
        options.append((option, _annotated(_or_none(hint), about), None))
    made = dataclasses.make_dataclass(name, options, frozen=True, kw_only=True)
    made.__module__ = __name__
    return made


def _parameter(option: str, hint: Any, text: str, default: str) -> Parameter:
    whole = int in (hint, *get_args(hint))
    return placed(
        option,
        help=as_options(text),
        show_default=default or False,
        converter=whole_or_word if whole else None,
    )


def given(options: Any) -> dict[str, Any]:
    """Return the settings that were given, by name."""
    return {name: value for name, value in vars(options).items() if value is not None}


def whole_or_word(kind: Any, tokens: Sequence[Token]) -> int | str:
    """Return a whole number, or one of the words that the option allows; never a rounded number."""
    value = tokens[0].value
    words = [w for part in get_args(kind) for w in get_args(part)]
    if value in words:
        return value
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a whole number") from None


def _annotated(kind: Any, about: Parameter) -> Any:
    return Annotated[kind, about]


def _or_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType) and type(None) in get_args(hint):
        return hint
    return hint | None


if TYPE_CHECKING:
    Reading = Any
else:
    Reading = options_of("Reading", ReadOptions, only=TRAIN_OPTIONS)
"""Options of how a graph is read."""
AS_IT_IS = Reading()
"""No option given."""
