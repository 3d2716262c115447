"""The strict profile: its settings, programs and checks, and the name of the randomness of a run.

**Randomness.** Two releases, or two sums with noise, drawn with the same randomness reveal more
than their ε together. So strict runs that differ in any setting have different randomness: a run
with one seed repeats itself exactly, and shares no random bit with another. Settings that do not
change the run itself (a control beside it, the checkpoint interval, the comparison of workloads) do
not change its randomness.

With a book a run also depends on what the book has of its devices: draws of their labels, and
partners. So their ids are in the name, and which draws are used: a label that has changed, and
changed back, is drawn anew, and the run that uses the new draw is another one, with noise and
charges of its own. Where the book lies does not matter; the state in which the run finds it does
(`name_with_book`). The control uses no book, so its name has none.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from lumos.errors import UsageError
from lumos.exchange.messages import Door
from lumos.graph.facts import GraphFacts, facts_of
from lumos.strict.classify.stages import ENCODER, ClassifySchedule
from lumos.strict.features import feature_form
from lumos.strict.link.stages import LinkSchedule
from lumos.strict.settings import (
    CLASSIFY_ONLY,
    LINK_ONLY,
    LINK_PROPAGATED,
    NOT_USED,
    OF_BALANCING,
    OF_TREES,
    StrictSettings,
    default_epochs,
    has_no_meaning,
    settings_of,
)
from lumos.strict.stages import Schedule
from lumos.strict.texts import texts
from lumos.training.config import UPDATES, TrainSettings
from lumos.training.problem import Problem
from lumos.training.profile import STRICT, Placement, ProfileTexts, Programs
from lumos.training.split import Role
from lumos.typing import Arrays

if TYPE_CHECKING:
    from lumos.strict.book import ReleaseBook
    from lumos.strict.classify.trainer import ClassifyResult
    from lumos.strict.link.prediction import LinkResult
    from lumos.training.config import Config
    from lumos.training.trainer import AskedPairs, PairAnswers, TrainedLinks


_WITHOUT_EFFECT: dict[str, Any] = {
    "control": True,
    "floor": True,
    "checkpoint_every": 25,
    "iterations": 1000,
    "compare": "secure",
    "comparison_budget": None,
    "workers": None,
    "select": "validation",
    "recovery": "shrunk",
    "virtual_nodes": True,
    "low": 0.0,
    "high": 1.0,
    "bins": False,
    "book": None,
    "lifetime_epsilon": 4.0,
    "lifetime_propagated_epsilon": 64.0,
    "min_holders": 5,
}
"""In the name with these values, whatever the settings say: the name is hashed, and the settings
in it when results were first kept stay in it, so that they can be repeated to the last digit."""
_CLASSIFY_NAME: dict[str, Any] = {
    "relay": "auto",
    "codebook": 8,
    "random_marks": "auto",
    "answer": 8,
    "projection": 1024,
}
_LINK_NAME: dict[str, Any] = {"word_buckets": 0, "score_degrees": False}
"""The same by task: settings that there were when results of the task were kept."""

_FROZEN_NAMES: dict[str, str] = {
    "randomness": "coins",  # frozen
    "propagated_labels": "opinions",  # frozen
    "propagated_epsilon": "opinion_epsilon",  # frozen
    "lifetime_propagated_epsilon": "lifetime_opinion_epsilon",  # frozen
    "random_marks": "colours",  # frozen
    "score_queries": "answers",  # frozen
    "query_bits": "answer_bits",  # frozen
    "query_epsilon": "answer_epsilon",  # frozen
    "tokens": "words",  # frozen
}
_FROZEN_VALUES: dict[Any, str] = {"seeded": "simulated"}  # frozen
"""The names of settings, and a value, as they were when results were first kept."""

_ADDED_LATER = frozenset({"lifetime_update_epsilon", "scaling", "group"})
"""Settings that there were not when results were first kept, and that do not change a run, or are
named by what they do."""


def randomness_name(problem: Problem, config: "Config", *, control: bool, drawn: str = "") -> str:
    """A name for the randomness of a run, or of its control.

    Args:
        drawn: with a book, which draws of labels the run uses.
    """
    settings = {**config.flat(), **_WITHOUT_EFFECT}
    settings = {name: settings[name] for name in settings.keys() - _ADDED_LATER}
    if config.train.task == "link":
        settings = {name: settings[name] for name in settings.keys() - CLASSIFY_ONLY} | _LINK_NAME
    else:
        own = {name: settings[name] for name in settings.keys() - LINK_ONLY}
        settings = own | _CLASSIFY_NAME
    simulation = problem.facts.simulation  # real devices draw their own randomness, of any name
    hashed = {
        _FROZEN_NAMES.get(name, name): _FROZEN_VALUES.get(value, value)
        for name, value in settings.items()
    }
    parts = ["" if simulation is None else simulation.fingerprint, repr(sorted(hashed.items()))]
    scaling = feature_form(problem.facts, settings_of(config))["scaling"]
    if scaling != "none":
        parts.append(f"features scaled by {scaling}")
    if problem.split:
        parts.append(f"split {problem.split}")
    if config.updates != UPDATES:
        parts.append(repr(config.updates))
    unused = 0
    if simulation is not None and problem.facts.labelled:
        unused = problem.classes - 1 - simulation.highest_label
    if unused:
        parts.append(f"{unused} classes that no device has")
    if settings_of(config).book is not None and not control:
        parts += [repr(problem.in_memory("book").ids_as_text()), drawn]
    digest = blake2b(" ".join(parts).encode(), digest_size=16).hexdigest()
    return ("/control" if control else "") + "/" + digest


def name_with_book(name: str, state: str) -> str:
    """The name of the randomness of a run with a book.

    A book draws a random mark whenever it is written, so two books in one state have the same
    content, wherever they lie. Then two runs of the same name use the same draws and partners: they
    are one run, and the same noise hides the same numbers. In different states the draws, and so
    the numbers, may differ, and the randomness do.

    Args:
        name: as `randomness_name` gives it.
        state: the last mark of the book when the run began; empty if there was no book.
    """
    if not state:
        return name
    return "/" + blake2b(f"{name} {state}".encode(), digest_size=16).hexdigest()


class StrictProfile:
    """`lumos.training.profile.Profile`, with guarantees."""

    name = STRICT
    doors = frozenset(Door) - {Door.OPEN}
    settings = StrictSettings
    own_included = True

    def defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Nobody needs to know who carries an edge, so nothing is compared."""
        task = given.get("task", TrainSettings.task)
        return {
            "balancer": "none",
            "epochs": default_epochs(task, given),
            "activate_last": task != "link",
            **({"propagated_labels": LINK_PROPAGATED} if task == "link" else {}),
        }

    def ignores(self, name: str, config: "Config") -> str:
        """With which settings a setting has no meaning."""
        if name in NOT_USED:
            return f"`profile='{self.name}'`, only with `profile='paper'`"
        if name in OF_BALANCING:
            return (
                f"`profile='{self.name}'`, where nothing is balanced, only with `profile='paper'`"
            )
        task, strict = config.train.task, settings_of(config)
        if has_no_meaning(name, task):
            other = "classify" if task == "link" else "link"
            return f"`profile='{self.name}'` and `task='{task}'`, only with `task='{other}'`"
        if name in OF_TREES and task == "link":
            # A network on trees needs neighbours' vectors at home, and nobody releases one.
            return f"`profile='{self.name}'` and `task='link'`, which have no tree network"
        if name in OF_TREES and not strict.tree_network:
            return (
                f"`profile='{self.name}'` and `tree_network=False`, only with `tree_network=True`"
            )
        return config.model.ignored(name) or strict.ignored(name)

    def improvements(self, config: "Config") -> list[str]:
        """None: it does not follow the paper at all."""
        return []

    def texts(self, config: "Config") -> ProfileTexts:
        """What reports say about a run."""
        return texts(config)

    def check(self, facts: GraphFacts, config: "Config") -> None:
        """Refuse settings that would break a guarantee, or that noise cannot carry."""
        strict = settings_of(config)
        if not strict.epsilon < float("inf"):
            raise UsageError(f"`profile='{self.name}'` needs a finite `epsilon`")
        if strict.book is not None and strict.protect != "noise":
            raise UsageError(
                f"`protect='{strict.protect}'` has exact sums, and what they tell cannot be "
                "counted in a `book`; leave the book out, or use `protect='noise'`"
            )
        schedule = self._schedule(facts, config)  # enough epochs …
        schedule.check()  # … and noise that sums carry in full
        if isinstance(schedule, ClassifySchedule):
            encoder = schedule[ENCODER]
            encoder.limit(encoder.width(facts.feature_count))
        if config.trees.balancer != "none":
            raise UsageError(
                f"`profile='{self.name}'` needs no `balancer`: nobody carries an edge there, and "
                "comparisons would tell of degrees; leave it out"
            )
        if config.model.layers != 2:
            raise UsageError(
                f"`profile='{self.name}'` needs `layers=2`: deeper trees carry the number of "
                "neighbours in their normalisation, and so would show it"
            )

    def randomness(self, problem: Problem, config: "Config", *, control: bool) -> str:
        """Every run that differs in anything has randomness of its own."""
        if control or settings_of(config).book is None:
            return randomness_name(problem, config, control=control)
        drawn = self._drawn(problem, config)
        name = randomness_name(problem, config, control=False, drawn=drawn)

        def run_in(state: str) -> str:
            return f"{problem.seed}{name_with_book(name, state)}"

        return name_with_book(name, self._book(problem, config).state(run_in))

    def _drawn(self, problem: Problem, config: "Config") -> str:
        """Which draws of labels a book has for a run that classifies, as text."""
        if config.train.task != "classify" or not problem.facts.labelled:
            return ""
        labels = np.asarray(problem.in_memory("book").labels)
        schedule = self._classify_schedule(problem, config)
        book = self._book(problem, config)
        return book.drawn(schedule.randomized_form, labels, schedule.class_names)

    def programs(self, placement: Placement) -> "Programs[ClassifyResult] | Programs[LinkResult]":
        """The trainers of all shards, and the coordinator's program."""
        from lumos.strict.classify.trainer import StrictClassifier
        from lumos.strict.link.trainer import StrictLinker
        from lumos.strict.sums import FollowedSums, StrictCoordinator

        problem, config = placement.problem, placement.config
        book = None
        if settings_of(config).book is not None:
            book = self._book(problem, config, placement.randomness)
        followed = None
        if placement.follows:
            followed = FollowedSums(problem.facts.devices, placement.coordinator, config)
        schedule: ClassifySchedule | LinkSchedule
        trainer: Any
        if config.train.task == "classify":
            schedule, trainer = self._classify_schedule(problem, config), StrictClassifier
            groups = {
                role: np.sort(
                    np.concatenate([part.devices[part.roles == role] for part in problem.parts])
                )
                for role in (Role.TRAIN, Role.VALIDATION)
            }
        else:
            schedule, trainer = self._link_schedule(problem.facts, config), StrictLinker
            groups = {Role.NOBODY: np.arange(problem.facts.devices)}
        if book is not None and not placement.control:
            _check_propagated_labels(book, problem, schedule.strict)
            for role, devices in groups.items():
                book.check_charge(schedule.sum_charge(role), devices)
            if config.train.task == "link":
                book.check_calibration(schedule.strict.score_queries)
        places = zip(placement.shards, placement.endpoints, placement.private, strict=True)
        return Programs[Any](
            trainers=[
                trainer(*place, schedule, book=book, control=placement.control, sums=followed)
                for place in places
            ],
            coordinator=StrictCoordinator(
                schedule,
                placement.public,
                placement.coordinator,
                problem.facts.feature_count,
                placement.randomness,
            ),
        )

    def _schedule(self, facts: GraphFacts, config: "Config") -> Schedule:
        """The schedule, as far as it is known before the split."""
        if config.train.task == "link":
            return self._link_schedule(facts, config)
        return ClassifySchedule(
            config=config,
            devices=facts.devices,
            classes=max(2, facts.class_count),
            **feature_form(facts, settings_of(config)),
        )

    def _link_schedule(self, facts: GraphFacts, config: "Config") -> LinkSchedule:
        form = feature_form(facts, settings_of(config))
        return LinkSchedule(config=config, devices=facts.devices, **form)

    def _classify_schedule(self, problem: Problem, config: "Config") -> ClassifySchedule:
        return ClassifySchedule(
            config=config,
            devices=problem.facts.devices,
            training=problem.training,
            validation=problem.validation,
            classes=problem.classes,
            class_names=problem.facts.classes,
            **feature_form(problem.facts, settings_of(config)),
        )

    def _book(self, problem: Problem, config: "Config", randomness: str = "") -> "ReleaseBook":
        """The book of releases of a run that has one; `randomness` names the run."""
        from lumos.strict.book import ReleaseBook

        strict = settings_of(config)
        if strict.book is None:
            raise ValueError("a run without a `book` was asked for it")
        # Whoever has fresh randomness is another run, whatever its settings.
        fresh = os.urandom(8).hex() if config.train.randomness == "system" else ""
        return ReleaseBook(
            strict.book,
            problem.in_memory("book").ids_as_text(),
            strict.lifetime_epsilon,
            f"{problem.seed}{randomness}{fresh}",
        )

    def predict_pairs(self, model: "TrainedLinks", asked: "AskedPairs") -> "PairAnswers":
        """As the first end scores the pair, by what it knows and what the second end answers."""
        from lumos.strict.link.prediction import predict_pairs

        return predict_pairs(model, asked, partial(self.link_result, model))

    def link_result(self, model: "TrainedLinks") -> "LinkResult":
        """What the devices of a finished run hold at home."""
        from lumos.strict.link.prediction import LinkResult

        graph = model.graph()
        schedule = self._link_schedule(facts_of(graph), model.config)
        return LinkResult.of(
            schedule, model.seed, graph, model.weights, model.kept, split=model.split
        )

    def answers_of(self, config: "Config", seed: int, kept: Arrays) -> "LinkResult":
        """What a device answers with after a restart; `lumos.training.trainer.RestoresAnswers`."""
        from lumos.strict.link.prediction import LinkResult

        return LinkResult.restored(kept, settings_of(config), seed)

    def for_new_devices(self, config: "Config") -> "Config":
        """Without the book: devices of the run repeat what they released in it."""
        return replace(config, profile_settings=replace(settings_of(config), book=None))


def _check_propagated_labels(book: "ReleaseBook", problem: Problem, strict: StrictSettings) -> None:
    """Raise what charging for propagated labels would raise."""
    from lumos.strict.accounting import propagated_label_charge

    if strict.propagated_labels:
        senders = [part.devices[np.diff(part.offsets) > 0] for part in problem.parts]
        book.check_charge(propagated_label_charge(strict), np.sort(np.concatenate(senders)))


PROFILE = StrictProfile()
