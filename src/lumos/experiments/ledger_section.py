"""The section of the page that shows what left the devices."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from lumos.exchange.topic import TOPICS
from lumos.experiments.dataset import Dataset
from lumos.experiments.figures.evaluation import PaperEvaluation
from lumos.experiments.figures.names import BACKBONES, MEASURES
from lumos.experiments.plan import RunPlan
from lumos.experiments.profile_modules import profile_modules
from lumos.report import Block, Section, Table, Text
from lumos.report.sections import DOORS
from lumos.trees.balancers import BALANCERS

Ledger = dict[str, Any]
"""By topic: door, messages, bytes."""
Ledgers = Mapping[tuple[str, str], tuple[str, Ledger]]
"""By profile and task: the backbone of the run, empty where it has none, and its ledger."""

_DOOR_ORDER = [str(door) for door in DOORS]
"""The least protected first."""


def ledger_section(plan: RunPlan) -> Section:
    """The ledgers of one training run for each graph, profile and task, with their doors."""
    _define_topics(plan.request.profiles)
    blocks: list[Block] = []
    for dataset in plan.request.datasets:
        evaluation = plan.evaluation(dataset)
        ledgers = {
            (profile, task): run_ledger
            for profile in plan.request.profiles
            for task in MEASURES
            if (run_ledger := _ledger(evaluation, profile, task))
        }
        blocks += _tables(dataset.name, ledgers) if ledgers else [_missing(plan, dataset)]
    about = (
        "Every message that leaves a device passes one of five doors, and the ledger counts it "
        "there: messages, and bytes of their bodies, in one whole run (at ε = 2, where there is an "
        "ε of releases). Topics that end in "
        "`ideal` were computed in the clear and booked as the real protocol sends them."
    )
    return Section("What left the devices", [Text(about), *blocks])


def _define_topics(profiles: Iterable[str]) -> None:
    """Import the modules whose topics a ledger can have."""
    modules = profile_modules(profiles, "topics")
    for module in ("lumos.trees.balance", "lumos.aggregate.topics", *modules):
        import_module(module)
    for balancer in BALANCERS:
        BALANCERS[balancer]


def _ledger(evaluation: PaperEvaluation, profile: str, task: str) -> tuple[str, Ledger] | None:
    """The backbone and the ledger of the first finished run that has one."""
    for backbone in BACKBONES:
        cell = evaluation.cells.train(profile, task, backbone, 2.0, 0)
        result = evaluation.lookup(cell).result
        if result and "ledger" in result and not evaluation.settings.cut(cell):
            return (cell["backbone"] or "").upper(), result["ledger"]
    return None


def _missing(plan: RunPlan, dataset: Dataset) -> Text:
    """Why a graph has no ledgers."""
    cut = plan.request.settings.cut
    trained = any(
        cell.kind == "train" and cell.graph == dataset.spec and not cut(cell)
        for cell in plan.results
    )
    why = (
        "the runs behind these figures were kept without their ledger; --kept none makes anew"
        if trained
        else "no finished training run at ε = 2 is behind these figures"
    )
    return Text(f"{dataset.name}: {why}.")


def _tables(name: str, ledgers: Ledgers) -> list[Block]:
    """A table of doors, and one of topics for each profile."""
    runs = {
        f"{profile}, {task}" + f" ({backbone})" * bool(backbone): ledger
        for (profile, task), (backbone, ledger) in ledgers.items()
    }
    by_door = [
        [door.value, passes, protects, *(_total(ledger, door) for ledger in runs.values())]
        for door, (passes, protects) in DOORS.items()
    ]
    columns = ["door", "what passes", "what protects it", *runs]
    blocks: list[Block] = [Table(columns, by_door, f"{name}: the doors", stacked=True)]
    for profile in dict.fromkeys(profile for profile, _ in ledgers):
        by_task = {task: ledger for (p, task), (_, ledger) in ledgers.items() if p == profile}
        blocks.append(_topic_table(f"{name}: the ledger of the {profile} profile", by_task))
    return blocks


def _topic_table(title: str, by_task: Mapping[str, Ledger]) -> Table:
    doors = {topic: line[0] for ledger in by_task.values() for topic, line in ledger.items()}
    ordered = sorted((_DOOR_ORDER.index(door), topic) for topic, door in doors.items())
    lines = [
        [
            topic,
            doors[topic],
            *(ledger[topic][1] if topic in ledger else 0 for ledger in by_task.values()),
            TOPICS[topic].learns if topic in TOPICS else "",
        ]
        for _, topic in ordered
    ]
    headings = ["topic", "door", *(f"messages, {task}" for task in by_task), "who learns what"]
    return Table(headings, lines, title, stacked=True)


def _total(ledger: Ledger, door: str) -> str:
    lines = [(messages, size) for through, messages, size in ledger.values() if through == door]
    if not lines:
        return "nothing"
    messages, size = (sum(column) for column in zip(*lines, strict=True))
    return f"{messages:,} messages, {size / 1e6:,.1f} MB"
