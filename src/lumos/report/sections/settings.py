"""All settings of the run, with their meaning; first those that are not the defaults."""

import dataclasses
from typing import Any

from docstring_parser import parse_from_object

from lumos.encode.one_bit import EncoderSettings
from lumos.model.settings import ModelSettings
from lumos.report.page import Block, Section, Table, Text
from lumos.report.record import Record
from lumos.report.rerun import changed, written
from lumos.strict.settings import StrictSettings
from lumos.training.settings import TrainSettings
from lumos.trees.settings import TreeSettings

_OF_TREES = {"balancer", "iterations", "compare", "comparison_budget", "workers"}
_OF_PAPER = {"bins", "low", "high", "pool", "recovery", "select", "activate_last"}
_NOT_STRICT = _OF_TREES | _OF_PAPER
"""Settings that mean nothing in the strict profile."""


def section(record: Record) -> Section:
    """Two tables: the settings that were changed, and the others."""
    groups: list[type[Any]] = [TrainSettings, EncoderSettings, ModelSettings, TreeSettings]
    if record.strict:
        groups.append(StrictSettings)
    hidden = _NOT_STRICT if record.strict else set()
    flat, different = record.config.flat(), changed(record)
    tables: dict[bool, list[list[str]]] = {True: [], False: []}
    for group in groups:
        words = {part.arg_name: part.description for part in parse_from_object(group).params}
        for name in (field.name for field in dataclasses.fields(group)):
            if name not in hidden:
                meaning = " ".join((words.get(name) or "").split())
                row = [name.replace("_", "-"), _shown(flat[name]), meaning]
                tables[name in different].append(row)
    captions = {True: "Settings that were given", False: "Settings left at their defaults"}
    blocks: list[Block] = [
        Table(["setting", "value", "meaning"], rows, captions[given], stacked=True)
        for given, rows in tables.items()
        if rows
    ]
    if record.result.improvements:
        beyond = "; ".join(record.result.improvements)
        blocks.append(Text(f"Beyond the letter of the paper: {beyond}."))
    return Section("Settings", blocks)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not given" if value is None else written(value)
