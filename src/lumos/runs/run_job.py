"""One run in one process, from the trees on: its arms, and what the observer gathers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lumos.errors import InputError
from lumos.exchange.observer import Observer
from lumos.graph.ids import IdTexts
from lumos.graph.neighbour_lists import spans
from lumos.memory import cpu_seconds, peak_rss_mb
from lumos.ranks.world import note_phase
from lumos.runs.events import EpochEvent, OnEpoch
from lumos.runs.federation import in_order
from lumos.runs.folder import RunFolder, keeps_device_values
from lumos.runs.loop import TrainedArm, fit
from lumos.runs.prepared import Prepared
from lumos.runs.schema import RankCost
from lumos.runs.tree_summary import TreeSummary
from lumos.training.config import Config
from lumos.training.outcome import CONTROL, MAIN, OWN
from lumos.training.profile import Problem
from lumos.trees.balance import Balanced, BalancedParts, balance_parts, in_slots
from lumos.typing import Arrays, Flags, Ints, Progress


@dataclass(frozen=True, eq=False)
class RunJob:
    """One run in one process, from the trees on."""

    prepared: Prepared
    config: Config
    observer: Observer
    carrier: str
    folder: RunFolder | None
    """At rank 0."""
    progress: Progress | None
    on_epoch: OnEpoch | None

    def trees(self, given: Balanced | None) -> tuple[TreeSummary | None, tuple[Flags, ...]]:
        """The trees that were given, that an interrupted run has, or new ones; and of each part."""
        problem, folder = self.prepared.problem, self.folder
        if given is not None:
            summary = TreeSummary.of(given)
            self._keep_trees(summary)
            return summary, problem.kept(given.graph, given.keep).keep
        saved = None if folder is None else folder.trees()
        per_device = keeps_device_values(self.config)
        hosted = self.observer.gather("hosted", [{"ids": part.devices} for part in problem.parts])
        known = None
        if saved is not None and per_device:
            known = self._known(saved, [part["ids"] for part in hosted])
        kept = self.observer.scatter("trees", known)
        if kept is not None:
            return saved, tuple(part["keep"] for part in kept)
        note_phase("trees")
        done = balance_parts(
            problem.parts,
            self.config.trees,
            seed=problem.seed,
            coins=self.config.train.coins,
            carrier=self.carrier,
            progress=self.progress,
        )
        summary_or_none = self._summary(done)
        if saved is None and summary_or_none is not None:
            self._keep_trees(summary_or_none)
        return summary_or_none, tuple(done.kept)

    def _known(self, saved: TreeSummary, hosted: Sequence[Ints]) -> list[Arrays]:
        """The trees of an interrupted run, for each shard of the federation.

        Raises:
            InputError: they are of another graph.
        """
        facts = self.prepared.problem.facts
        if len(saved.keep) != 2 * facts.simulated.edges or len(saved.degree) != facts.devices:
            path = "trees.npz" if self.folder is None else self.folder.path / "trees.npz"
            raise InputError(f"{path}: is of another graph; restart without `resume`")
        offsets = np.concatenate([[0], np.cumsum(saved.degree)])
        return [{"keep": saved.keep[spans(offsets[ids], saved.degree[ids])]} for ids in hosted]

    def _keep_trees(self, summary: TreeSummary) -> None:
        if self.folder is not None:
            self.folder.save_trees(summary, per_device=keeps_device_values(self.config))

    def _summary(self, done: BalancedParts) -> TreeSummary | None:
        """The observer's view of new trees; None elsewhere than at rank 0."""
        problem = self.prepared.problem
        parts: list[Arrays] = [
            {"devices": part.devices, "degree": np.diff(part.offsets), "keep": keep}
            for part, keep in zip(problem.parts, done.kept, strict=True)
        ]
        gathered = self.observer.gather("trees", parts)
        if not self.observer.first:
            return None
        settings = self.config.trees
        degree = in_order(
            [{name: part[name] for name in ("devices", "degree")} for part in gathered]
        )
        offsets = np.concatenate([[0], np.cumsum(degree["degree"])])
        hosted = [part["devices"] for part in gathered]
        keep = in_slots(offsets, hosted, [part["keep"] for part in gathered])
        workload = np.diff(np.concatenate([[0], np.cumsum(keep)])[offsets])
        return TreeSummary(
            balancer=settings.balancer,
            compare=settings.compare if done.ledger.comparisons else "none",
            keep=keep,
            workload=workload,
            degree=degree["degree"],
            max_workload=int(workload.max(initial=0)),
            ledger=done.ledger,
            history=done.history,
            seconds=done.seconds,
            graph=problem.graph if self.prepared.edges is None else self.prepared.edges.training,
        )

    def fit_arms(self, problem: Problem, *, resume: bool) -> dict[str, TrainedArm]:
        """Train every arm, the run itself last; empty elsewhere than at rank 0."""
        config = self.config
        arms = [OWN] * (config.train.floor and not config.profile.own_included)
        arms += [CONTROL] * config.train.control + [MAIN]
        epochs = config.train.epochs
        fitted = {}
        for number, arm in enumerate(arms):

            def report(event: EpochEvent, before: int = number) -> None:
                if self.progress is not None:
                    self.progress(before * epochs + event.epoch, len(arms) * epochs, _note(event))
                if self.on_epoch is not None and self.observer.first:
                    self.on_epoch(event)

            trained = fit(
                replace(problem, alone=arm == OWN),
                config,
                arm=arm,
                control=arm == CONTROL,
                carrier=self.carrier,
                folder=None if self.folder is None else self.folder.arm(arm),
                resume=resume,
                on_epoch=report,
            )
            if trained is not None:
                fitted[arm] = trained
        return fitted

    def gathered(self) -> tuple[IdTexts, Arrays | None]:
        """Ids of all devices; [devices] labels and roles, by which the observer scores."""
        note_phase("the result")
        places = zip(self.prepared.problem.parts, self.prepared.own_ids(), strict=True)
        parts: list[Arrays] = [
            {
                "devices": part.devices,
                "ids": np.asarray(ids),
                "labels": part.labels,
                "roles": part.roles,
            }
            for part, ids in places
        ]
        gathered = self.observer.gather("devices", parts)
        if not self.observer.first:
            return IdTexts(()), None
        rows = in_order(gathered)
        return IdTexts(rows.pop("ids")), rows


def costs_of(observer: Observer, before: float) -> list[RankCost]:
    """What each process took, in the order of the ranks; none elsewhere than at rank 0."""
    mine: Arrays = {"cost": np.array([cpu_seconds() - before, peak_rss_mb()])}
    gathered = [part["cost"].tolist() for part in observer.gather("cost", [mine])]
    return [RankCost(round(cpu, 3), round(rss, 1)) for cpu, rss in gathered]


def _note(event: EpochEvent) -> str:
    score = "" if event.score is None else f" · validation {event.score:.4f}"
    loss = "" if event.loss is None else f" · loss {event.loss:.4f}"
    return f"{event.arm} epoch {event.epoch}{loss}{score}"
