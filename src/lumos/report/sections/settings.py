"""All settings of the run, with their meaning; first those that are not the defaults."""

import dataclasses

from docstring_parser import parse_from_object

from lumos.report.page import Block, Section, Table, Text
from lumos.report.rerun import changed_settings, option_value
from lumos.runs.run import Run


def section(run: Run) -> Section:
    """Two tables: the settings that were changed, and the others."""
    config = run.config
    unused = config.profile.texts(config).unused_settings
    changed = changed_settings(config)
    rows: dict[bool, list[list[str]]] = {True: [], False: []}
    for group in (config.train, config.profile_settings, config.model, config.trees):
        meanings = _meanings(type(group))
        for name in (field.name for field in dataclasses.fields(group)):
            if name not in unused:
                row = [f"`{name}`", _shown(getattr(group, name)), meanings.get(name, "")]
                rows[name in changed].append(row)
    captions = {True: "Settings that were given", False: "Settings left at their defaults"}
    blocks: list[Block] = [
        Table(["setting", "value", "meaning"], rows[given], caption, stacked=True)
        for given, caption in captions.items()
        if rows[given]
    ]
    if improvements := config.improvements():
        blocks.append(Text(f"Beyond the letter of the paper: {'; '.join(improvements)}."))
    return Section("Settings", blocks)


def _meanings(group: type) -> dict[str, str]:
    """By setting, what the docstring below it says; those of a parent class too."""
    meanings: dict[str, str] = {}
    for kind in reversed(group.__mro__):
        for part in parse_from_object(kind).params if dataclasses.is_dataclass(kind) else ():
            meanings[part.arg_name] = " ".join((part.description or "").split())
    return meanings


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not given" if value is None else option_value(value)
