"""What an epoch costs a device, and what the simulation cost."""

from lumos.report.page import Block, Section, Table, Text
from lumos.report.stages import stages_of
from lumos.runs.run import Run


def section(run: Run) -> Section:
    """A table per device and epoch, and the simulation in a sentence."""
    cost, per_epoch = run.cost, run.cost.per_epoch
    rows = []
    for name in ("messages_sent", "messages_received", "bytes_sent", "bytes_received"):
        mean, largest = (getattr(per_epoch, f"{name}_{which}") for which in ("mean", "largest"))
        rows.append([name.replace("_", " "), f"{mean:,.1f}", f"{largest:,.1f}"])
    weights = sum(array.size for array in run.model.weights.values())
    simulation = (
        f"{len(run.history):,} epochs of {per_epoch.rounds:,.0f} rounds on average; {weights:,} "
        f"weights. The simulation of all devices took {cost.seconds:,.1f} seconds, "
        f"{cost.seconds_per_epoch:.3f} per epoch, and {cost.peak_rss_mb:,.0f} MB at its peak."
    )
    table = Table(["", "mean", "largest"], rows, "What a device sends and receives in one epoch")
    blocks: list[Block] = [table, Text(_widths(run)), Text(simulation)]
    return Section("Cost", blocks)


def _widths(run: Run) -> str:
    """How wide sums are, from which the bytes follow."""
    about = run.about
    stages = [stage for stage in stages_of(run) if stage.numbers]
    text = f"A device has {about.features:,} features."
    if not stages:
        return text
    widest = max(stages, key=lambda stage: stage.numbers)
    total = sum((stage.last - stage.first + 1) * stage.numbers for stage in stages)
    sums = sum(stage.last - stage.first + 1 for stage in stages)
    where = f", in the stage {widest.name}" if len(stages) > 1 else ""
    return (
        f"{text} The widest sum has {widest.numbers:,} numbers{where}; all {sums:,} sums of the "
        f"run have {total:,}."
    )
