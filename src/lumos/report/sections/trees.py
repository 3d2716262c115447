"""How work is spread over devices, and what one device's tree looks like."""

from lumos.experiments.reported import LARGEST, claim
from lumos.graph.catalog import entry_of
from lumos.report.distribution import cdf
from lumos.report.page import Block, Figure, Section, Text
from lumos.report.record import Record
from lumos.report.tree_drawing import moderate, tree


def section(record: Record) -> Section:
    """Words, the distribution of the workload, a tree."""
    blocks: list[Block] = [Text(_words(record)), _workload(record), _tree(record)]
    if record.config.train.virtual_nodes:
        blocks.append(
            Text(
                "The network runs along the lines of the tree. Each branch joins a leaf of the "
                "device and a leaf of one neighbour; parents and root stand for nobody and begin "
                "empty. Afterwards the leaves that stand for one device are pooled into its "
                "embedding."
            )
        )
    return Section("Workload and trees", blocks)


def _words(record: Record) -> str:
    if record.strict:
        return (
            "A device's workload is the number of branches of its tree. In the strict profile "
            "nobody carries an edge for another: a device builds one branch for each neighbour at "
            "home, so its workload is its degree, and no device compares it with another."
        )
    text = (
        "A device's workload is the number of neighbours that it keeps in its tree. Every edge is "
        "kept by at least one of its two ends, and the busiest device sets the pace."
    )
    if record.result.balancer != "none" and record.degree is not None and record.degree.any():
        saved = 100 * (1 - record.workload.sum() / record.degree.sum())
        text += f" Trimming saves {saved:.1f} % of the leaf messages of an epoch."
    return text


def _workload(record: Record) -> Figure:
    balancer = record.result.balancer
    series = {"every neighbour kept": record.workload}
    if balancer != "none":
        series = {f"after {balancer}": record.workload}
        if record.degree is not None:
            series = {"every neighbour kept": record.degree, **series}
    named = {f"{name}, largest {w.max(initial=0):,}": w for name, w in series.items()}
    return Figure(
        cdf(
            named,
            title="Workload of the devices",
            x_title="workload: branches of a tree",
            marks=_papers(record),
        ),
        f"Mean {record.workload.mean():.2f}, largest {record.result.max_workload:,}. The observer "
        "of the simulation counted; no device and no coordinator sees this.",
    )


def _papers(record: Record) -> dict[str, float] | None:
    """The paper's largest workload, where it trained on this graph as this run did."""
    entry = entry_of(str(record.about.source.get("spec", "")))
    number = claim("workload", LARGEST)
    value = number.of(entry.name) if entry and number else None
    if value is None or record.strict or record.result.balancer == "none":
        return None
    return {f"paper: largest {value:g}": value}


def _tree(record: Record) -> Figure:
    branches, alike = moderate(record.workload)
    own, other = "its own features", "its features, as they are"
    if record.config.encoder.noisy:
        other = "its features, with noise"
    if record.strict:
        own, other = "the symbol it released", "the symbol it heard"
    place = "the device itself, at home" if record.strict else "the device that keeps these edges"
    return Figure(
        tree(branches, own, other, virtual_nodes=record.config.train.virtual_nodes),
        f"A tree of moderate size: {alike:,} of {record.result.devices:,} devices have one of "
        f"{branches:,} branches, built by {place}. The observer of the simulation drew it from the "
        "workloads; which device it is and who its neighbours are is left out on purpose.",
    )
