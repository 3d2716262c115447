"""The strict profile: its settings, programs and checks, and the name of the randomness of a run.

**Randomness.** Two releases, or two noisy sums, drawn with the same randomness reveal more than
their ε together. So strict runs that differ in any setting have different randomness: a run with
one seed repeats itself exactly, and shares no random bit with another run. Settings that do not
change the run itself (a control run, the checkpoint interval, the comparison of workloads) do not
change its randomness.

With a privacy account, a run also depends on the draws of its devices' labels. So the name includes
their ids and the draws that are used: a label that changed, and changed back, is drawn anew, and a
run with the new draw is another run, with noise and charges of its own. The path of the account
does not matter, but its state at the start of the run does (`name_with_account`). The control run
uses no account.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from lumos.device.randomness import PublicRandomness
from lumos.errors import BudgetExceeded, UsageError
from lumos.exchange.messages import Door
from lumos.graph.facts import GraphFacts, GraphPart, facts_of
from lumos.ldp.account import CALIBRATION, PrivacyAccount
from lumos.registry import part_name
from lumos.secagg.parameters import AggregateSettings
from lumos.strict.accounting import (
    limits_of,
    predicted_label_amounts,
    propagated_label_amounts,
    sum_amounts,
)
from lumos.strict.classify.stages import ENCODER, ClassifySchedule
from lumos.strict.features import feature_form
from lumos.strict.guarantees import planned_epsilons
from lumos.strict.link.stages import LinkSchedule
from lumos.strict.settings import (
    CALIBRATION_QUERIES,
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
from lumos.training.profile import STRICT, PlannedRun, ProfileTexts
from lumos.training.split import Role
from lumos.typing import Arrays, Flags, Ints

if TYPE_CHECKING:
    from lumos.device.shard import Shard
    from lumos.exchange.endpoint import Endpoint
    from lumos.strict.link.prediction import LinkResult
    from lumos.training.config import Config
    from lumos.training.trainer import (
        AskedPairs,
        CoordinatorProgram,
        LinkPredictions,
        TrainedLinks,
        Trainer,
    )


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
    "account": None,
    "lifetime_epsilon": 4.0,
    "lifetime_propagated_epsilon": 64.0,
    "min_holders": 5,
}
"""Values that the hashed name has whatever the settings are: it keeps the settings of the first
stored results, so that these can be reproduced to the last digit."""
_CLASSIFY_NAME: dict[str, Any] = {
    "relay": "auto",
    "codebook": 8,
    "random_marks": "auto",
    "answer": 8,
    "projection": 1024,
}
_LINK_NAME: dict[str, Any] = {"word_buckets": 0, "score_degrees": False}
"""The same for one task: settings that existed when its first results were stored."""

_FROZEN_NAMES: dict[str, str] = {
    "account": "book",  # frozen
    "randomness": "coins",  # frozen
    "label_epsilon": "epsilon",  # frozen
    "feature_epsilon": "update_epsilon",  # frozen
    "delta": "update_delta",  # frozen
    "propagated_labels": "opinions",  # frozen
    "propagated_epsilon": "opinion_epsilon",  # frozen
    "lifetime_propagated_epsilon": "lifetime_opinion_epsilon",  # frozen
    "random_marks": "colours",  # frozen
    "score_queries": "answers",  # frozen
    "query_bits": "answer_bits",  # frozen
    "query_epsilon": "answer_epsilon",  # frozen
}
_FROZEN_VALUES: dict[Any, str] = {"seeded": "simulated"}  # frozen
"""Names and values of settings as they were when results were first stored."""

_ADDED_LATER = frozenset(
    {
        "lifetime_feature_epsilon",
        "scaling",
        "group",
        "model",
        "projection",
        "device",
        "optimizer",
        "participation",
        "proofs",
    }
)
"""Settings added after the first stored results, which do not change a run or enter the name
otherwise."""


def classify_schedule(problem: Problem, config: "Config") -> ClassifySchedule:
    """Return everything public about a run of `classify`."""
    return ClassifySchedule(
        config=config,
        devices=problem.facts.devices,
        training=problem.training,
        validation=problem.validation,
        classes=problem.classes,
        class_names=problem.facts.classes,
        **feature_form(problem.facts, settings_of(config)),
    )


def randomness_name(problem: Problem, config: "Config", *, control: bool, drawn: str = "") -> str:
    """Return the name of the randomness of a run, or of its control run.

    Args:
        drawn: with an account, the draws of labels that the run uses.
    """
    settings = {**config.flat(), "backbone": part_name(config.model.backbone), **_WITHOUT_EFFECT}
    settings = {name: settings[name] for name in settings.keys() - _ADDED_LATER}
    if config.train.task == "link":
        settings = {name: settings[name] for name in settings.keys() - CLASSIFY_ONLY} | _LINK_NAME
    else:
        own = {name: settings[name] for name in settings.keys() - LINK_ONLY}
        schedule = classify_schedule(problem, config)
        settings = own | _CLASSIFY_NAME | {"propagated_labels": schedule.num_propagated}
    simulation = problem.facts.simulation  # real devices draw their own randomness, of any name
    hashed = {
        _FROZEN_NAMES.get(name, name): _FROZEN_VALUES.get(value, value)
        for name, value in settings.items()
    }
    if config.train.task != "link":
        hashed["label_epsilon"] = None  # frozen: once the ε of a second draw, for sums
    parts = ["" if simulation is None else simulation.fingerprint, repr(sorted(hashed.items()))]
    scaling = feature_form(problem.facts, settings_of(config))["scaling"]
    if scaling != "none":
        parts.append(f"features scaled by {scaling}")
    if config.train.task != "link" and classify_schedule(problem, config).all_take_part:
        parts.append("all devices take part")
    if problem.split:
        parts.append(f"split {problem.split}")
    if config.updates not in (UPDATES, replace(UPDATES, proofs=True)):
        parts.append(repr(config.updates))
    unused = 0
    if simulation is not None and problem.facts.labelled:
        unused = problem.classes - 1 - simulation.highest_label
    if unused:
        parts.append(f"{unused} classes that no device has")
    if settings_of(config).account is not None and not control:
        parts += [repr(problem.in_memory("account").ids_as_text()), drawn]
    digest = blake2b(" ".join(parts).encode(), digest_size=16).hexdigest()
    return ("/control" if control else "") + "/" + digest


def name_with_account(name: str, state: str) -> str:
    """Return the name of the randomness of a run with an account.

    Every write adds a random mark to the account, so two accounts with the same last mark have the
    same content, whatever their paths. Two runs of one name then use the same draws: they are one
    run, and the same noise hides the same numbers. With another mark the draws, and so the numbers,
    may differ, and so does the randomness.

    Args:
        name: as `randomness_name` returns it.
        state: the last mark of the account when the run began; empty if there was no account.
    """
    if not state:
        return name
    return "/" + blake2b(f"{name} {state}".encode(), digest_size=16).hexdigest()


class StrictProfile:
    """The profile with guarantees: `lumos.training.profile.Profile`."""

    name = STRICT
    doors = frozenset(Door) - {Door.OPEN}
    settings = StrictSettings
    own_included = True

    def defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults: no balancer, because devices handle all of their own edges."""
        task = given.get("task", TrainSettings.task)
        return {
            "balancer": "none",
            "epochs": default_epochs(task, given),
            "activate_last": task != "link",
            **({"propagated_labels": LINK_PROPAGATED} if task == "link" else {}),
        }

    def updates(self, config: "Config") -> AggregateSettings:
        """Return the settings of sums: with proofs, if they are asked for."""
        return replace(UPDATES, proofs=settings_of(config).proofs)

    def ignores(self, name: str, config: "Config") -> str:
        """Return the settings under which a setting has no effect; empty if it has one."""
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
            # A network on trees needs the neighbours' vectors, and no device releases one.
            return f"`profile='{self.name}'` and `task='link'`, which have no tree network"
        if name in OF_TREES and not strict.tree_network:
            return (
                f"`profile='{self.name}'` and `tree_network=False`, only with `tree_network=True`"
            )
        return config.model.ignored(name) or strict.ignored(name)

    def improvements(self, config: "Config") -> list[str]:
        """Return nothing: this profile does not follow the paper."""
        return []

    def texts(self, config: "Config") -> ProfileTexts:
        """Return the texts of reports about a run."""
        return texts(config)

    def check(self, facts: GraphFacts, config: "Config") -> None:
        """Refuse settings that would break a guarantee."""
        strict = settings_of(config)
        if strict.account is not None and strict.protect != "noise":
            raise UsageError(
                f"`protect='{strict.protect}'` has exact sums, which no `account` can count; leave "
                "the account out, or use `protect='noise'`"
            )
        schedule = self._schedule(facts, config)  # enough epochs …
        schedule.check()  # … and noise that sums carry in full
        if isinstance(schedule, ClassifySchedule):
            encoder = schedule[ENCODER]
            encoder.limit(encoder.width(facts.feature_count))
        if config.trees.balancer != "none":
            raise UsageError(
                f"`profile='{self.name}'` has no `balancer`: devices handle their own edges, and "
                "comparisons would reveal degrees; leave it out"
            )
        if config.model.layers != 2:
            raise UsageError(
                f"`profile='{self.name}'` needs `layers=2`: the normalisation of deeper trees "
                "would reveal the number of neighbours"
            )

    def planned(self, problem: Problem, config: "Config", delta: float) -> PlannedRun:
        """Return the most that a run of real devices would tell of any device; ε at `delta`."""
        schedule: ClassifySchedule | LinkSchedule
        if config.train.task == "classify":
            schedule = classify_schedule(problem, config)
        else:
            schedule = self._link_schedule(problem.facts, config)
        noises = [stage.noise(step) for stage, step in schedule.sums]
        least = min(0.0 if noise is None else noise.sigma for noise in noises)
        return PlannedRun(planned_epsilons(schedule, delta), least)

    def randomness(self, problem: Problem, config: "Config", *, control: bool) -> str:
        """Return the name of the randomness: runs that differ in anything have different names."""
        if control or settings_of(config).account is None:
            return randomness_name(problem, config, control=control)
        drawn = self._drawn(problem, config)
        name = randomness_name(problem, config, control=False, drawn=drawn)

        def run_in(state: str) -> str:
            return f"{problem.seed}{name_with_account(name, state)}"

        return name_with_account(name, self._account(problem, config).began(run_in))

    def _drawn(self, problem: Problem, config: "Config") -> str:
        """Return a text that identifies the draws of labels that an account has for a run."""
        if config.train.task != "classify" or not problem.facts.labelled:
            return ""
        labels = np.asarray(problem.in_memory("account").labels)
        schedule = classify_schedule(problem, config)
        account = self._account(problem, config)
        return account.earlier_labels(schedule.label_form, labels, schedule.class_names)

    def programs(
        self,
        problem: Problem,
        config: "Config",
        shards: "Sequence[Shard]",
        endpoints: "Sequence[Endpoint]",
        coordinator: "Endpoint",
        *,
        randomness: str,
        control: bool = False,
        account: PrivacyAccount | None = None,
        follows: bool = False,
        **other: Any,
    ) -> "tuple[list[Trainer[Any]], CoordinatorProgram]":
        """Return the trainers of all shards, and the coordinator's program."""
        from lumos.strict.classify.trainer import StrictClassifier
        from lumos.strict.link.trainer import StrictLinker
        from lumos.strict.sums import StrictCoordinator
        from lumos.training.sums import FollowedSums

        if settings_of(config).account is not None:
            account = self._account(problem, config, randomness)
        followed = None
        if follows:
            plan = shards[0].public.plan
            followed = FollowedSums(problem.facts.devices, coordinator, config, plan)
        schedule: ClassifySchedule | LinkSchedule
        trainer: Any
        if config.train.task == "classify":
            schedule, trainer = classify_schedule(problem, config), StrictClassifier
        else:
            schedule, trainer = self._link_schedule(problem.facts, config), StrictLinker
        places = zip(shards, endpoints, problem.parts, strict=True)
        given = {"account": account, "control": control, "sums": followed}
        # Labels are drawn by the trainers. All charges of the run are written together with them,
        # or none, and before the first message leaves.
        with nullcontext() if account is None else account.transaction():
            trainers = [trainer(*place, schedule, **given) for place in places]
            if account is not None and not control:
                _charge(account, problem, schedule)
        return trainers, StrictCoordinator(
            schedule,
            PublicRandomness(problem.seed),
            coordinator,
            problem.facts.feature_count,
            randomness,
        )

    def _schedule(self, facts: GraphFacts, config: "Config") -> Schedule:
        """Return the schedule as far as it is known before the split."""
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

    def _account(self, problem: Problem, config: "Config", randomness: str = "") -> PrivacyAccount:
        """Return the account of a simulation that has one; `randomness` names the run."""
        strict = settings_of(config)
        if strict.account is None:
            raise ValueError("this run has no `account`")
        # A run with fresh randomness is a new run, whatever its settings.
        fresh = os.urandom(8).hex() if config.train.randomness == "system" else ""
        return PrivacyAccount(
            strict.account,
            problem.in_memory("account").ids_as_text(),
            limits=limits_of(strict),
            run=f"{problem.seed}{randomness}{fresh}",
        )

    def check_weights(self, config: "Config", features: int, classes: int, state: Arrays) -> None:
        """Nothing here: a trainer compares them when it takes them."""

    def predict_pairs(self, model: "TrainedLinks", asked: "AskedPairs") -> "LinkPredictions":
        """Score pairs as their first ends do, by their degree and the buckets that they learn."""
        from lumos.strict.link.prediction import predict_pairs

        return predict_pairs(model, asked, partial(self.link_result, model))

    def link_result(self, model: "TrainedLinks") -> "LinkResult":
        """Return the local results of the devices of a finished run."""
        from lumos.strict.link.prediction import LinkResult

        graph = model.graph()
        schedule = self._link_schedule(facts_of(graph), model.config)
        return LinkResult.of(
            schedule, model.seed, graph, model.weights, model.kept, split=model.split
        )

    def answers_of(self, config: "Config", seed: int, kept: Arrays) -> "LinkResult":
        """Restore the state for answers of a device; `lumos.training.trainer.RestoresAnswers`."""
        from lumos.strict.link.prediction import LinkResult

        return LinkResult.restored(kept, settings_of(config), seed)

    def for_new_devices(self, config: "Config") -> "Config":
        """Return the settings without an account: devices of the run repeat their releases."""
        return replace(config, profile_settings=replace(settings_of(config), account=None))


def _charge(account: PrivacyAccount, problem: Problem, schedule: Schedule) -> None:
    """Charge the hosted devices for everything that is new in a run; labels charge themselves.

    Raises:
        BudgetExceeded: a device would exceed a limit.
    """

    most = account.limits.lifetime_feature_epsilon
    if not schedule.noisy and math.isfinite(most):
        raise BudgetExceeded(
            f"`protect='{schedule.strict.protect}'` has exact sums, above every limit for life "
            f"`lifetime_feature_epsilon` = {most:g} ({account.path}); use `protect='noise'`"
        )

    def hosted(chosen: Callable[[GraphPart], Flags]) -> Ints:
        return np.sort(np.concatenate([part.devices[chosen(part)] for part in problem.parts]))

    def role_is(role: Role) -> Callable[[GraphPart], Flags]:
        return lambda part: part.roles == role

    senders = hosted(lambda part: np.diff(part.offsets) > 0)
    account.charge(propagated_label_amounts(schedule.strict, schedule.num_propagated), senders)
    if isinstance(schedule, ClassifySchedule):
        for role in Role:
            account.charge(sum_amounts(schedule.charged_mu(role)), hosted(role_is(role)))
            predicted = schedule.disclosed(role).predicted_labels
            if predicted:
                account.charge(predicted_label_amounts(predicted), hosted(role_is(role)))
    else:
        amounts = {**sum_amounts(schedule.run_mu()), CALIBRATION: float(CALIBRATION_QUERIES)}
        account.charge(amounts, hosted(lambda part: np.ones(len(part.devices), np.bool_)))


PROFILE = StrictProfile()
