"""How work is spread over devices, and what one device's tree looks like."""

from lumos.graph.catalog import entry_of
from lumos.report.distribution import cdf
from lumos.report.page import Block, Figure, Section, Text
from lumos.report.tree_drawing import moderate, tree
from lumos.runs.run import Run
from lumos.training.profile import TreeTexts


def section(run: Run) -> Section:
    """Words, the distribution of the workload, a tree."""
    texts = run.config.profile.texts(run.config).trees
    if texts is None:
        raise ValueError("this run builds no trees")
    blocks: list[Block] = [Text(_words(run, texts))]
    if len(run.trees.workload):
        blocks += [_workload(run, texts), _tree(run, texts)]
    else:
        blocks.append(
            Text(
                f"The largest workload is {run.trees.max_workload:,}, as the observer of the "
                "simulation counted. The folder of the run keeps no other: workloads are degrees."
            )
        )
    if texts.virtual_nodes:
        blocks.append(
            Text(
                "The network runs along the lines of the tree. Each branch joins a leaf of the "
                "device and a leaf of one neighbour; parents and root stand for nobody and begin "
                "empty. Afterwards the leaves that stand for one device are pooled into its "
                "embedding."
            )
        )
    return Section("Workload and trees", blocks)


def balanced(run: Run) -> bool:
    """Whether a balancer decided which end of an edge carries it."""
    return run.trees.balancer != "none"


def _words(run: Run, texts: TreeTexts) -> str:
    degree = run.trees.degree
    if not (balanced(run) and degree.any()):
        return texts.workload
    saved = 100 * (1 - run.trees.workload.sum() / degree.sum())
    return f"{texts.workload} Trimming saves {saved:.1f} % of the leaf messages of an epoch."


def _workload(run: Run, texts: TreeTexts) -> Figure:
    trees = run.trees
    series = {"every neighbour kept": trees.degree}
    if balanced(run):
        series[f"after {trees.balancer}"] = trees.workload
    return Figure(
        cdf(
            {f"{name}, largest {load.max(initial=0):,}": load for name, load in series.items()},
            title="Workload of the devices",
            x_title="workload: branches of a tree",
            marks=_reported(run, texts),
        ),
        f"Mean {trees.workload.mean():.2f}, largest {trees.max_workload:,}. The observer "
        "of the simulation counted; no device and no coordinator sees this.",
    )


def _reported(run: Run, texts: TreeTexts) -> dict[str, float] | None:
    """The largest workload that the paper reports for this graph, where one was balanced."""
    entry = entry_of(str(run.about.source.get("spec", "")))
    largest = texts.reported_largest.get(entry.name) if entry and balanced(run) else None
    return None if largest is None else {f"paper: largest {largest:g}": largest}


def _tree(run: Run, texts: TreeTexts) -> Figure:
    branches, alike = moderate(run.trees.workload)
    return Figure(
        tree(branches, texts.own_leaf, texts.other_leaf, virtual_nodes=texts.virtual_nodes),
        f"A tree of moderate size: {alike:,} of {run.about.devices:,} devices have one of "
        f"{branches:,} branches, built by {texts.builder}. The observer of the simulation drew it "
        "from the workloads; which device it is and who its neighbours are is left out on purpose.",
    )
