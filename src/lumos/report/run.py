"""The page of one run: everything it shows is in the run's folder."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from docstring_parser import parse_from_object

from lumos.encode.one_bit import EncoderSettings
from lumos.exchange.topic import Door
from lumos.model.settings import ModelSettings
from lumos.report.charts import cdf, dots, lines
from lumos.report.page import Block, Code, Figure, Page, Section, Table, Text
from lumos.report.record import Epoch, Record
from lumos.report.rerun import changed, rerun, written
from lumos.report.story import ARMS, deviation, messages, shown, subtitle, summary, title
from lumos.report.tree import tree
from lumos.strict.settings import StrictSettings
from lumos.training.settings import TrainSettings
from lumos.trees.settings import TreeSettings

_DOORS = {
    Door.OPEN: ("anything else", "none"),
    Door.RELEASE: ("output of a randomized mechanism", "differential privacy: ε is counted"),
    Door.COMPARE: (
        "messages of a secret comparison of two numbers",
        "cryptography: both sides learn the declared answer, counted in bits",
    ),
    Door.CONTROL: ("a word of a short public list, or a public id", "its bits are counted"),
    Door.AGGREGATE: ("a masked number or vector", "only the sum over devices becomes visible"),
}
"""By door: what passes, and what protects it; in the order of the page."""
_TYPICAL = 5
"""Most branches of the device whose tree is drawn, where there is one."""
_NOT_STRICT = {"bins", "low", "high", "pool", "recovery", "select", "activate_last"}
_NOT_STRICT |= {"balancer", "iterations", "compare", "comparison_budget", "workers"}


def page_of(path: Path) -> Page:
    """The page of the run in a folder.

    Raises:
        InputError: it is no run folder, the run is not finished, or a file is damaged.
    """
    record = Record.open(path)
    return Page(
        title=title(record),
        subtitle=subtitle(record),
        summary=summary(record),
        sections=[
            Section("Scores", tuple(_scores(record))),
            Section("Training", tuple(_training(record))),
            Section("What left the devices", tuple(_ledger(record))),
            _protection(record),
            Section("Workload", tuple(_workload(record))),
            Section("A tree", tuple(_tree(record))),
            Section("Cost", tuple(_cost(record))),
            Section("Settings and seed", tuple(_settings(record))),
            Section("Run it again", tuple(_again(record))),
        ],
    )


def _scores(record: Record) -> Iterator[Block]:
    arms = list(record.scores)
    scale, unit, digits = (1, "", 4) if record.link else (100, "%", 2)
    what = "ROC-AUC" if record.link else "accuracy"
    names = [ARMS[arm] for arm in arms]
    values = [scale * record.scores[arm]["test"] for arm in arms]
    spread = [scale * deviation(record, record.scores[arm]["test"]) for arm in arms]
    known = not np.isnan(spread).any()
    drawn = dots(
        [what], names, [values], [spread] if known else None, unit=unit,
        title=f"Test {what}", digits=digits,
    )  # fmt: skip
    about = "The axis does not begin at 0."
    if known:
        about = (
            "± is one standard deviation over the choice of the test set; it says nothing of other "
            f"seeds. {about}"
        )
    yield Figure(drawn, about)
    yield Table(
        ["", "validation", "test"],
        [[ARMS[a], shown(s["validation"], record), shown(s["test"], record)]
         for a, s in record.scores.items()],
        f"{what[0].upper()}{what[1:]}, as the observer of the simulation measures it",
    )  # fmt: skip
    split = record.result.split
    if split:
        kind = "edges" if record.link else "labelled devices"
        yield Text(
            f"Of the {kind}, {split['train']:,} train, {split['validation']:,} validate and "
            f"{split['test']:,} test. "
            + (
                "Trees, releases and training see training edges only."
                if record.link
                else "The split is public."
            )
        )
    said = []
    if record.result.choice:
        options = {
            "own": "the answer of a device's own encoder, so neighbours did not count",
            "evidence": "the own answer together with the evidence of the neighbours' symbols",
            "backbone": "the own answer together with the tree network",
        }
        choice = record.result.choice
        said.append(f"Validation devices chose {choice}: {options.get(choice, choice)}.")
    if record.result.caution:
        said.append(f"Note: {record.result.caution}.")
    said += [f"Note on the graph: {note}." for note in record.result.notes]
    if said:
        yield Text("\n\n".join(said))


def _training(record: Record) -> Iterator[Block]:
    history = {ARMS[arm]: epochs for arm, epochs in record.history.items() if epochs}
    if not history:
        yield Text("The run folder holds no history.")
        return
    longest = max(history.values(), key=len)
    x = [float(epoch.epoch) for epoch in longest]

    def padded(values: Sequence[float | None]) -> list[float | None]:
        return [*values, *[None] * (len(x) - len(values))]

    losses = {
        name: (padded([_finite(epoch.loss) for epoch in epochs]), None)
        for name, epochs in history.items()
    }
    rules = _stages(record, longest)
    noisy = record.strict and record.config.strict.protect == "noise"
    about = "Mean training loss after each epoch, as all devices learn it from a sum"
    about += ", with the noise that protects the sum." if noisy else "."
    if rules:
        about += " Dashed lines: here another part of the model begins to learn."
    chosen = {}
    if not record.strict and record.config.train.select == "validation":
        chosen = {f"weights of epoch {record.result.best_epoch}": record.result.best_epoch}
    yield Figure(
        lines(x, losses, title="Training loss", x_title="epoch", rules=rules | chosen), about
    )
    scores = {
        name: (padded([_finite(epoch.score) for epoch in epochs]), None)
        for name, epochs in history.items()
        if any(epoch.score is not None for epoch in epochs)
    }
    if scores:
        sign, name = (-1, "Validation loss") if record.link else (100, "Validation accuracy")
        turned = {
            arm: ([None if y is None else sign * y for y in values], None)
            for arm, (values, _) in scores.items()
        }
        yield Figure(
            lines(
                x, turned, unit="" if record.link else "%", title=name, x_title="epoch",
                rules=chosen,
            ),
            "Of the weights that each epoch started with. "
            + ("Lower is better." if record.link else "Higher is better."),
        )  # fmt: skip


def _stages(record: Record, epochs: Sequence[Epoch]) -> dict[str, float]:
    """Where another part of a strict model begins to learn."""
    if not record.strict:
        return {}
    from lumos.strict.plan import Plan

    plan = Plan(record.config, record.result.devices, record.result.split.get("train", 0))
    stages = [plan.stage(number) for number in range(len(epochs))]
    names = {"trust": "evidence", "backbone": "tree network"}
    return {
        names.get(stage, stage): float(number + 1)
        for number, stage in enumerate(stages)
        if number and stage != stages[number - 1]
    }


def _ledger(record: Record) -> Iterator[Block]:
    ledgers = (record.result.tree_ledger, record.result.ledger)
    topics = [(n, line) for ledger in ledgers for n, line in ledger.topics.items()]
    open_ones = "shut" if record.strict else 0
    yield Text(
        "Every message that leaves a device passes one of five doors, and the ledger counts it "
        "there. A door says what protects the message."
    )
    yield Table(
        ["door", "what passes", "what protects it", "messages", "bytes"],
        [
            [
                door.value,
                *words,
                messages(record, door) or (open_ones if door is Door.OPEN else 0),
                sum(line.bytes for _, line in topics if line.door == door)
                or (open_ones if door is Door.OPEN else 0),
            ]
            for door, words in _DOORS.items()
        ],
        "The doors",
        stacked=True,
    )
    order = list(_DOORS)
    topics.sort(key=lambda topic: order.index(Door(topic[1].door)))
    booked = any(line.ideal for _, line in topics)
    yield Table(
        ["topic", "door", "messages", "bytes", "who learns what"],
        [[n, line.door, line.messages, line.bytes, line.learns] for n, line in topics],
        "The ledger: every kind of message, before and in training",
        stacked=True,
    )
    if booked:
        yield Text(
            "Topics whose name ends in `ideal` were not sent: the simulation computed their "
            "outcome in the clear and booked, by formula, what the real protocol would have sent."
        )
    if record.result.tree_ledger.comparisons:
        ledger = record.result.tree_ledger
        yield Text(
            f"{ledger.comparisons:,} secret comparisons balanced the trees; their answers could "
            f"tell {ledger.comparison_bits:,.0f} bits."
        )


def _protection(record: Record) -> Section:
    blocks: list[Block] = []
    promises = record.result.promises
    if promises:
        who = [name for name in promises[0] if name != "about"]
        alike: dict[tuple[str, ...], list[str]] = {}
        for row in promises:  # what is promised alike is told once
            alike.setdefault(tuple(row[name] for name in who), []).append(row["about"])
        blocks.append(
            Table(
                ["about", *who],
                [[", ".join(about), *cells] for cells, about in alike.items()],
                "What is promised about whom a device is, by adversary: (ε, δ) or words",
                stacked=True,
            )
        )
        blocks.append(
            Text(
                "The smaller ε and δ, the less anyone can tell; an ε of 10 is weak protection for "
                "one who knows everything else. Adversaries follow the protocol and are curious; "
                "up to 10 % of the devices may collude with the coordinator."
            )
        )
    blocks.append(Text(record.result.exposed))
    return Section("What is promised" if promises else "What was exposed", blocks)


def _workload(record: Record) -> Iterator[Block]:
    result, workload = record.result, record.workload
    carried = result.balancer != "none"
    name = f"after {result.balancer}" if carried else "every neighbour kept"
    series = {name: workload}
    if carried and record.degree is not None:
        series = {"every neighbour kept": record.degree, **series}
    largest = {key: int(values.max(initial=0)) for key, values in series.items()}
    named = {f"{key} (largest {largest[key]:,})": values for key, values in series.items()}
    if record.strict:
        text = (
            "A device's workload is the number of branches of its tree. In the strict profile "
            "nobody carries an edge for another: a device builds one branch for each neighbour at "
            "home, so its workload is its degree, and no device compares it with another."
        )
    else:
        text = (
            "A device's workload is the number of neighbours that it keeps in its tree. Every edge "
            "is kept by at least one of its two ends, and the busiest device sets the pace."
        )
        if carried and record.degree is not None and int(record.degree.sum()):
            saved = 100 * (1 - workload.sum() / record.degree.sum())
            text += f" Trimming saves {saved:.1f} % of the leaf messages of an epoch."
    yield Text(text)
    yield Figure(
        cdf(named, title="Workload of the devices", x_title="workload: branches of a tree"),
        f"From the observer of the simulation; no device and no coordinator sees it. Mean "
        f"{workload.mean():.2f}, largest {workload.max(initial=0):,}.",
    )


def _tree(record: Record) -> Iterator[Block]:
    branches, same = typical(record.workload)
    strict, stars = record.strict, not record.config.train.virtual_nodes
    own = "the symbol it released" if strict else "its own features"
    noisy = record.config.encoder.noisy
    other = (
        "the symbol heard from it"
        if strict
        else "its features, with noise"
        if noisy
        else "its features, as they are"
    )
    place = "the device itself, at home" if strict else "the device that carries these edges"
    yield Figure(
        tree(branches, own, other, virtual_nodes=not stars),
        f"A tree with {branches:,} branches: {same:,} of {record.result.devices:,} devices have "
        f"one of this size. It is built by {place}. The observer of the simulation drew it from "
        "the workloads; which device it is, and who its neighbours are, is left out on purpose, "
        "and no participant sees this picture.",
    )
    if not stars:
        yield Text(
            "The network runs along the lines. Each branch joins a leaf of the device and a leaf "
            "of one neighbour; parents and root stand for nobody and begin empty. Afterwards the "
            "leaves that stand for one device are pooled into its embedding."
        )


def typical(workload: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> tuple[int, int]:
    """Branches of a moderate tree that some device has, and how many devices have as many.

    The one nearest to the median of devices with a branch, but to 5 at most, so that it can be
    drawn; of two as near, the smaller.
    """
    busy = workload[workload > 0]
    if not len(busy):
        return 0, len(workload)
    sizes, counts = np.unique(busy, return_counts=True)
    wanted = min(float(np.median(busy)), _TYPICAL)
    nearest = int(np.argmin(np.abs(sizes - wanted)))
    return int(sizes[nearest]), int(counts[nearest])


def _cost(record: Record) -> Iterator[Block]:
    result, each = record.result, record.result.per_epoch
    yield Table(
        ["per device and epoch", "mean", "largest"],
        [
            [f"{kind} {way}", f"{each[f'{kind}_{way}_mean']:,.1f}",
             f"{each[f'{kind}_{way}_largest']:,.0f}"]
            for kind in ("messages", "bytes")
            for way in ("sent", "received")
        ],
        "What an epoch costs a device",
    )  # fmt: skip
    yield Text(
        f"{result.epochs:,} epochs of {each['rounds']:,.0f} rounds; {result.weights:,} weights. "
        f"The simulation of all devices took {result.seconds:,.1f} seconds, "
        f"{result.seconds_per_epoch:.3f} per epoch, and {result.peak_rss_mb:,.0f} MB at its peak. "
        "Bytes are those of message bodies; nearly always most of them are masked vectors."
    )


def _settings(record: Record) -> Iterator[Block]:
    groups: list[type] = [TrainSettings, EncoderSettings, ModelSettings, TreeSettings]
    hidden = _NOT_STRICT if record.strict else set()
    if record.strict:
        groups.append(StrictSettings)
    flat, different = record.config.flat(), changed(record)
    rows = []
    for group in groups:
        words = {part.arg_name: part.description for part in parse_from_object(group).params}
        for item in dataclasses.fields(group):
            if item.name not in hidden:
                value = flat[item.name]
                shown_value = "–" if value is None else _yes(value)
                rows.append(
                    [item.name.replace("_", "-"), shown_value,
                     "yes" if item.name in different else "",
                     " ".join((words.get(item.name) or "").split())]
                )  # fmt: skip
    yield Table(
        ["setting", "value", "changed", "meaning"],
        rows,
        "Settings; those marked as changed differ from the defaults of this profile and task",
        stacked=True,
    )
    if record.result.improvements:
        yield Text("Beyond the letter of the paper: " + "; ".join(record.result.improvements) + ".")


def _again(record: Record) -> Iterator[Block]:
    result, about = record.result, record.about
    command = rerun(record)
    if command is None:
        yield Text(
            "This run was made from Python with a graph in memory; `lumos.train(graph, …)` with "
            "the settings above makes it again."
        )
    else:
        yield Code(
            command,
            "The exact command. `DIR` is a new folder; `lumos report DIR` makes this page there. "
            "A graph that is named, not a path, is looked for in `LUMOS_DATA` or `--data-dir`.",
        )
    rows: list[tuple[str, str | int]] = [
        ("seed", str(result.seed)),
        ("shards", str(result.shards)),
        ("fingerprint of the graph", about.fingerprint),
        ("features of a device", about.features),
        ("Lumos", about.lumos),
        *about.versions.items(),
    ]
    yield Table(["", "this run"], rows, "What the figures depend on, beside the settings")
    if result.coins == "system":
        yield Text(
            "Coins came from the operating system, so another run gives other figures, as it must."
        )


def _yes(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else written(value)


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None
