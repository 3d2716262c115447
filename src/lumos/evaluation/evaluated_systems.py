"""The systems that `lumos.evaluate` compares: which run each is, and what tables call it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lumos.baselines.settings import BaselineSettings
from lumos.baselines.systems import BASELINES
from lumos.errors import UsageError
from lumos.training.config import Config
from lumos.training.profile import PAPER, PROFILES, STRICT
from lumos.training.trainer import CONTROL, MAIN, OWN

OWN_UNPROTECTED = "own-unprotected"
"""The baseline `own`: the same features as `own`, and weights trained without noise."""
COMPARED = (STRICT, PAPER, OWN, CONTROL, OWN_UNPROTECTED, "centralized", "lpgnn")
"""What is compared where nothing else is asked for."""
SYSTEM_NAMES = {
    PAPER: "Lumos paper",
    STRICT: "Lumos strict",
    "lpgnn": "LPGNN",
    "naive": "naive FedGNN",
}
_NAMES = {
    **SYSTEM_NAMES,
    OWN: f"own features in {STRICT}",
    f"{OWN} link": f"own degree in {STRICT}",  # all that a device knows of a stranger's links
    CONTROL: f"control of {STRICT}",
    OWN_UNPROTECTED: "own features, unprotected",
}
_BASELINES = {OWN_UNPROTECTED: OWN}
_CHOSEN_HERE = ("profile", "system", "control", "floor", "book", "coins", "checkpoint_every")
"""Settings that `evaluate` chooses itself."""


@dataclass(frozen=True)
class EvaluatedSystem:
    """One line of the table."""

    key: str
    """As `systems` has it."""
    task: str = "classify"

    @property
    def name(self) -> str:
        """What tables call it."""
        return _NAMES.get(f"{self.key} {self.task}", _NAMES.get(self.key, self.key))

    @property
    def arm(self) -> str:
        """The arm of its run that is scored."""
        return self.key if self.key in (OWN, CONTROL) else MAIN

    @property
    def kind(self) -> Literal["train", "baseline"]:
        """Whether it is a run of Lumos."""
        return "train" if self.profile else "baseline"

    @property
    def profile(self) -> str:
        """The profile of its run; empty for a baseline. Own features and control are of strict."""
        if self.arm != MAIN:
            return STRICT
        return self.key if self.key in PROFILES else ""

    @property
    def baseline(self) -> str:
        """Its name in `BASELINES`, where it is one."""
        return _BASELINES.get(self.key, self.key)

    def without(self) -> str:
        """Why the system cannot do the task; empty where it can."""
        if self.kind == "train" or self.task != "link":
            return ""
        return BASELINES[self.baseline].without_links

    def run_settings(self, given: Mapping[str, Any], *, control: bool) -> dict[str, Any]:
        """Return the settings of the run behind the line; several lines may share it.

        Args:
            given: settings that the user gave; those that the system does not have are left out.
            control: whether the control of the strict profile is compared too.
        """
        settings = {**self._chosen(), **self.applying(given)}
        if self.profile == STRICT and control:
            settings["control"] = True
        return settings

    def check(self, given: Mapping[str, Any]) -> None:
        """Refuse wrong settings.

        Raises:
            UsageError: one is refused.
        """
        settings = self.run_settings(given, control=False)
        if self.profile:
            Config.asked(**settings)
        else:
            BaselineSettings(**settings)

    def applying(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the given settings that the system has."""
        return {name: value for name, value in given.items() if self._has(name)}

    def _chosen(self) -> dict[str, Any]:
        """Settings that make the system what it is."""
        if not self.profile:
            return {"system": self.baseline, "task": self.task}
        chosen: dict[str, Any] = {"profile": self.profile, "task": self.task}
        if self.profile != STRICT:
            chosen["floor"] = False  # own features stand in a line of their own
        if not Config.of(**chosen).profile.ignores("compare", Config.of(**chosen)):
            chosen["compare"] = "ideal"  # the same trees and counts as by secret comparisons
        return chosen

    def _has(self, name: str) -> bool:
        chosen = self._chosen()
        if not self.profile:
            return getattr(BaselineSettings(**chosen), name, None) is not None
        config = Config.of(**chosen)
        return name in config.flat() and not config.profile.ignores(name, config)


def chosen_systems(
    keys: Sequence[str] | None, task: str, given: Mapping[str, Any]
) -> tuple[list[EvaluatedSystem], dict[str, str]]:
    """The systems to compare, and by name why others are left out.

    Raises:
        UsageError: there is no such system, none is left, or a setting is refused by all.
    """
    known = (*COMPARED, *(name for name in (*PROFILES, *BASELINES) if name not in COMPARED))
    wanted = list(dict.fromkeys(COMPARED if keys is None else keys))
    for key in wanted:
        if key not in known:
            raise UsageError(f"`systems`: there is no {key!r}; there are {', '.join(known)}")
    systems = [EvaluatedSystem(key, task) for key in wanted]
    left_out = {one.name: one.without() for one in systems if one.without()}
    systems = [one for one in systems if one.name not in left_out]
    if not systems:
        reasons = "; ".join(left_out.values())
        raise UsageError(f"`systems`: {reasons or 'at least one is needed'}")
    for name in given:
        if name in _CHOSEN_HERE:
            raise UsageError(f"`{name}` is chosen by evaluate itself; leave it out")
        if not any(one.applying({name: given[name]}) for one in systems):
            raise UsageError(f"`{name}` is a setting of none of these systems; leave it out")
    for one in systems:
        one.check(given)  # before anything is run
    return systems, left_out
