"""The files of a reproduction: tables, rows, workloads, plots and one page with all of it."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lumos.display import duration
from lumos.report import Block, Code, Figure, Page, Section, Table, Text
from lumos.storage import write_json, write_text
from reproduce import claims, tables
from reproduce.device_model import DeviceModel
from reproduce.evaluation import PaperEvaluation, Row
from reproduce.figures import distributions
from reproduce.plots import Plots, draw
from reproduce.reported import CAPTIONS
from reproduce.settings import EPOCHS, PATIENCE, Settings


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A finished reproduction."""

    evaluations: list[PaperEvaluation] = field(repr=False)
    """One for each graph."""
    rows: dict[str, list[Row]]
    """By figure."""
    settings: Settings
    command: str
    """The command without folders, for whoever wants to repeat it."""
    ran: int
    """Runs that were computed now."""
    known: int
    """Runs that the folder had before."""
    committed: int
    """Runs whose committed result was read."""
    failed: list[str]
    """One line for each run that failed."""
    seconds: float

    def sentences(self) -> list[str]:
        """Return what a reader of any table must know."""
        epochs = (
            f"Up to {EPOCHS} epochs, as in the paper; a run of the paper profile or of a baseline "
            f"ends after {PATIENCE} epochs without a better validation score."
        )
        if self.settings.epochs is not None and self.settings.epochs < EPOCHS:
            epochs = (
                f"Shortened to {self.settings.epochs} epochs of the paper profile and of "
                "baselines: this shows that everything runs, and no score is comparable."
            )
        found = [
            f"Command: {self.command}.",
            epochs,
            "ours: mean and standard deviation over seeds; control: the same run with releases "
            "that carry no information; over control: the run's gain over it, on the seeds that "
            "have one.",
        ]
        if self.committed:
            found.append(
                f"{self.committed} runs are committed results, computed by the version of Lumos "
                "that they name; --results none computes them anew."
            )
        return found

    def work(self) -> str:
        """Return what was computed, in a sentence."""
        return (
            f"{self.ran + self.known + self.committed + len(self.failed)} runs: {self.ran} "
            f"computed now in {duration(self.seconds)}, {self.known} known from before, "
            f"{self.committed} committed, {len(self.failed)} failed."
        )

    def write(self, out: Path) -> None:
        """Write tables.md, rows.json, claims.json, workload.json, figures and report.html."""
        sections = [
            tables.markdown(
                some,
                f"{figure} on {name}",
                [f"The paper: {CAPTIONS[figure]}.", *self.sentences(), *about_figure(figure)],
            )
            for figure, of in self.rows.items()
            for name, some in tables.by_graph(of).items()
        ]
        write_text(out / "tables.md", "\n".join(sections))
        every = [row.as_json() for of in self.rows.values() for row in of]
        write_json(out / "rows.json", every)
        write_json(out / "claims.json", [line.as_json() for line in self.claims()])
        if "workload" in self.rows:
            workloads = {one.dataset.name: distributions(one) for one in self.evaluations}
            write_text(out / "workload.json", json.dumps(workloads) + "\n")
        (out / "figures").mkdir(exist_ok=True)
        plots = {figure: self._plots(figure) for figure in self.rows}
        for of_figure in plots.values():
            for name, plot in of_figure.items():
                write_text(out / "figures" / f"{name}.svg", plot.svg)
        self._page(plots).write(out / "report.html")

    def _plots(self, figure: str) -> Plots:
        by_graph = tables.by_graph(self.rows[figure])
        return {
            name: plot
            for one in self.evaluations
            for name, plot in draw(figure, one, by_graph.get(one.dataset.name, [])).items()
        }

    def claims(self) -> list[claims.Line]:
        """Return the claims about the paper's graphs."""
        return [line for one in self.evaluations for line in claims.lines_of(one)]

    def _claims(self) -> list[Section]:
        found = self.claims()
        if not found:
            return []
        body = [(line.graph, *line.cells()) for line in found]
        plain = [tuple(cell.replace("`", "") for cell in line) for line in body]
        text = f"{claims.RULE} {claims.BRACKETS} {claims.LITERAL_COLUMN}".replace("*", "")
        table = Table(("graph", *claims.HEADINGS), plain, "Claims of the paper", stacked=True)
        return [Section("The paper, claim by claim", [Text(text), table])]

    def _page(self, plots: dict[str, Plots]) -> Page:
        datasets = [one.dataset for one in self.evaluations]
        graphs = ", ".join(
            f"{one.name} ({one.devices:,} devices, {one.edges:,} edges)" for one in datasets
        )
        sections = [*self._claims()]
        sections += [_figure_section(figure, of, plots[figure]) for figure, of in self.rows.items()]
        if self.failed:
            sections.append(Section("What is missing", [Text("\n\n".join(self.failed))]))
        lines = [
            *self.settings.as_text().items(),
            *((f"graph {one.name}", f"fingerprint {one.whole}") for one in datasets),
            *(
                (f"device: {name}", f"{value:g}")
                for name, value in dataclasses.asdict(DeviceModel()).items()
            ),
        ]
        table = Table(("setting", "value"), lines, "Settings", stacked=True)
        sections.append(Section("Settings, and how to run it again", [Code(self.command), table]))
        return Page(
            title="Lumos: the paper's evaluation, reproduced",
            subtitle=", ".join(one.name for one in datasets),
            summary=[
                f"The evaluation of the paper on {graphs}, beside the paper's numbers.",
                *headlines(self.rows),
                *self.sentences()[1:],
                self.work(),
            ],
            sections=sections,
        )


def about_figure(figure: str) -> list[str]:
    """Return what a reader of one figure must know besides."""
    if figure != "cost":
        return []
    device = DeviceModel()
    return [
        f"Simulated time: every round lasts {1000 * device.latency:g} ms and as long as its "
        f"slowest device, which sends {8e-6 * device.upload:g} Mbit/s, receives "
        f"{8e-6 * device.download:g} Mbit/s, adds {device.header} bytes to each message and "
        f"computes {device.flops / 1e9:g} GFLOP/s; messages and bytes of each device are the "
        "ledger's, work is counted on its own tree (two-layer GCN)."
    ]


def headlines(rows: dict[str, list[Row]]) -> list[str]:
    """Return the scores of every graph in a sentence each, and what trimming saves."""
    sentences = []
    kinds = (
        ("classification", "accuracy, %", "correctly classified devices, in %"),
        ("link-prediction", "ROC-AUC", "how well edges are separated from other pairs, ROC-AUC"),
    )
    for figure, measure, what in kinds:
        for name, some in tables.by_graph(rows.get(figure, [])).items():
            scored = [
                row
                for row in some
                if row.measure == measure and row.ours is not None and row.backbone in ("gcn", "")
            ]
            if scored:
                scores = ", ".join(_score(row) for row in scored)
                sentences.append(f"On {name}, {what}, with GCN at ε = 2: {scores}.")
    for name, some in tables.by_graph(rows.get("workload", [])).items():
        largest = [f"{tables.ours(row)} ({row.system})" for row in some if row.ours is not None]
        if largest:
            sentences.append(
                f"On {name}, most edges that one device carries: {', '.join(largest)}."
            )
    return sentences


def _score(row: Row) -> str:
    text = f"{row.system} {tables.number(row.ours, row)}"
    if row.over_control is not None:
        text += f" ({row.over_control:+.{row.digits}f} over its control)"
    return text


def _figure_section(figure: str, rows: Sequence[Row], plots: Plots) -> Section:
    notes = tables.Notes()
    bodies = {
        f"{name}. The paper: {CAPTIONS[figure]}.": tables.body(some, notes)
        for name, some in tables.by_graph(rows).items()
    }
    sentences = [f"{number}. {sentence}" for sentence, number in notes.numbers.items()]
    text = "\n\n".join([*about_figure(figure), *sentences])
    blocks: list[Block] = [
        *(Figure(plot.svg, plot.caption) for plot in plots.values()),
        *(Table(*body, words, stacked=True) for words, body in bodies.items()),
        *([Text(text)] if text else []),
    ]
    return Section(figure.replace("-", " ").capitalize(), blocks)
