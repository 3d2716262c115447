"""`lumos split`: a graph in parts on disk."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from lumos.cli.common import Common, console, print_json
from lumos.cli.option_groups import placed
from lumos.cli.options import AS_IT_IS, Reading, given
from lumos.cli.wording import as_options
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.chosen_source import chosen_source
from lumos.graph.parts.partition import Partition, read_assignment, refuse_neither
from lumos.graph.parts.parts_writer import refuse_taken
from lumos.memory import peak_rss_mb
from lumos.progress import displayed
from lumos.training.given_split import reading_of
from lumos.training.write_parts import write_parts

COMMON = Common()


def split(
    graph: Annotated[str, placed("graph")],
    folder: Annotated[Path, placed("folder")],
    /,
    *,
    parts: Annotated[int | None, placed("parts")] = None,
    assign: Annotated[Path | None, placed("assign")] = None,
    task: Annotated[Literal["classify", "link"] | None, placed("task")] = None,
    split: Annotated[str | None, placed("split")] = None,
    features: Annotated[bool, placed("features", show_default=False)] = True,
    reading: Annotated[Reading, Parameter(name="*")] = AS_IT_IS,
    common: Common = COMMON,
) -> None:
    """Write a graph in parts: what each of several processes, or each device, holds.

    A part has its devices' own features, labels, roles and neighbours, and nothing of others; a
    manifest has what is public. Training from parts is the same run as training on the graph.

    Parameters
    ----------
    graph
        demo, demo:60, facebook, lastfm, twitch-ENGB, …, or a path. A demo graph or an edge list of
        integers that is large is read and written part by part, never as a whole.
    folder
        A new folder to write.
    parts
        Number of parts: contiguous ranges of devices. As many as there are devices: one for each.
    assign
        A file that says which device is in which part: CSV id,part, or npy of part numbers.
    task
        The only task that the parts are for; by default both, where the graph allows them. Edges
        are split for link up to 12 million, more only if asked: that needs all of them in memory.
    split
        As lumos train takes it: a file, shares as 60/20/20, or random.
    features
        With --no-features, only structure and labels are written.
    """
    common.refuse("shards", because="parts are for any number of processes")
    refuse_neither(parts, assign)
    refuse_taken(folder)
    opened = chosen_source(
        graph,
        data_dir=common.data_dir,
        features=features,
        whole=assign is not None,
        scratch=folder,
        options={**reading_of(split), **given(reading)},
    )
    with displayed(True, "parts") as bar, opened as source:
        ids = source.about.ids
        if assign is not None:
            partition = read_assignment(assign, ids, parts)
        else:
            partition = Partition.equal(len(ids), parts or 0)
        written = write_parts(
            source, folder, partition, seed=common.seed, split=split, task=task, progress=bar
        )
    result = summary(written)
    if common.json:
        print_json(result)
    else:
        _show(result)


def summary(folder: PartsFolder) -> dict[str, Any]:
    """Everything that `--json` prints: what is public of the parts."""
    manifest, facts = folder.manifest, folder.manifest.graph
    return {
        "graph": facts.name,
        "path": str(folder.path),
        "parts": folder.parts,
        "devices": facts.devices,
        "edges": facts.simulated.edges,
        "features": facts.feature_count,
        "classes": facts.class_count,
        "bytes": sum(file.stat().st_size for file in folder.path.iterdir()),
        "seed": manifest.seed,
        "splits": {task: split.origin for task, split in manifest.splits.items()},
        "left_out": dict(manifest.left_out),
        "peak_rss_mb": peak_rss_mb(),
        "notes": list(facts.notes),
    }


def _show(result: dict[str, Any]) -> None:
    screen = console()
    size = result["bytes"] / 1e6
    screen.print(
        f"{result['graph']}: {result['devices']:,} devices and {result['edges']:,} edges in "
        f"{result['parts']:,} parts, {size:,.{1 if size >= 1 else 3}f} MB, in {result['path']}"
    )
    for task, origin in result["splits"].items():
        screen.print(f"{task}: {origin}")
    for task, reason in result["left_out"].items():
        screen.print(as_options(f"{task}: left out; {reason}"))
    for note in result["notes"]:
        screen.print(as_options(f"note: {note}"))
