"""The files of a reproduction: tables, rows, workloads, plots and the page."""

import json
from pathlib import Path

from lumos.experiments import row_tables
from lumos.experiments.evaluation_page import page
from lumos.experiments.figures import FIGURES
from lumos.experiments.figures.plots import Plots
from lumos.experiments.figures.row import Row
from lumos.experiments.figures.workload import distributions
from lumos.experiments.plan import RunPlan
from lumos.experiments.reproduction import Reproduction
from lumos.experiments.sentences import about_figure, caption, duration, introduction
from lumos.storage import write_json, write_text


def write_files(plan: RunPlan, rows: dict[str, list[Row]], outcome: Reproduction) -> list[Path]:
    """Write everything into the folder of the cache; returns the files."""
    out, datasets = plan.cache.out, plan.request.datasets
    about = introduction(plan.request, outcome)
    sections = [
        row_tables.markdown(
            some,
            f"{figure} on {name}",
            [caption(figure), *about, *about_figure(figure), *row_tables.left_out(of)],
        )
        for figure, of in rows.items()
        for name, some in row_tables.tables(of).items()
    ]
    if outcome.left_out:
        lines = [f"- {run}: {duration(time)}" for run, time in outcome.left_out.items()]
        sections.append("\n".join(["### left out, expected time on one core", "", *lines, ""]))
    write_text(out / "tables.md", "\n".join(sections))
    write_json(out / "rows.json", [row.as_json() for row in outcome.rows])
    files = [out / "report.html", out / "tables.md", out / "rows.json"]
    if "workload" in rows:
        files.append(out / "workload.json")
        workloads = {one.name: distributions(plan.evaluation(one)) for one in datasets}
        write_text(files[-1], json.dumps(workloads) + "\n")
    (out / "figures").mkdir(exist_ok=True)
    plots = {figure: draw(plan, figure, of) for figure, of in rows.items()}
    for of_figure in plots.values():
        for name, plot in of_figure.items():
            files.append(out / "figures" / f"{name}.svg")
            write_text(files[-1], plot.svg)
    page(plan, rows, plots, outcome, about).write(out / "report.html")
    return files


def draw(plan: RunPlan, figure: str, rows: list[Row]) -> Plots:
    """The plots of a figure for every graph."""
    return {
        name: plot
        for dataset in plan.request.datasets
        for name, plot in FIGURES[figure]
        .plots(plan.evaluation(dataset), [row for row in rows if row.dataset == dataset.name])
        .items()
    }
