"""`lumos data`: list graphs, download them, verify them."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import App, Parameter
from rich.table import Table

from lumos.cli.common import (
    Common,
    as_options,
    console,
    facts_table,
    placed,
    print_json,
    report,
    say,
)
from lumos.cli.options import AS_IT_IS, Reading, given
from lumos.display import displayed
from lumos.errors import LumosError, MissingData
from lumos.graph import Graph, load
from lumos.graph.catalog import (
    CATALOG,
    Entry,
    Status,
    checksums,
    entry_of,
    fetch,
    find_entry,
    refuse_different,
    require_entry,
)
from lumos.graph.demo import DEVICES
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.manifest import equal_bounds
from lumos.graph.parts.parts_folder import refuse_taken
from lumos.graph.sources import data_directory
from lumos.machine import peak_rss_mb
from lumos.training.given_split import reading_of
from lumos.training.write_parts import write_parts

app = App(name="data", help="List, fetch and check graphs.", help_format="plaintext")

COMMON = Common()


@app.command(name="list", sort_key=0)
def list_graphs(*, common: Common = COMMON) -> None:
    """List the graphs that Lumos knows by name, and whether their files are here."""
    folder = data_directory(common.data_dir)
    rows: list[dict[str, Any]] = [
        {
            "name": "demo",
            "title": "generated; demo:60, demo:1000000",
            "devices": DEVICES,
            "edges": None,
            "path": "embedded",
            "url": None,
        }
    ]
    for entry in CATALOG.values():
        rows.append(
            {
                "name": entry.name,
                "title": entry.title,
                "devices": entry.devices,
                "edges": entry.edge_count,
                "path": _path_of(entry, folder),
                "url": entry.url,
            }
        )
    if common.json:
        print_json({"data_dir": str(folder), "graphs": rows})
        return
    table = Table("graph", "devices", "edges", "here", "what", box=None)
    for row in rows:
        edges = "" if row["edges"] is None else f"{row['edges']:,}"
        here = "yes" if row["path"] else "–"
        table.add_row(row["name"], f"{row['devices']:,}", edges, here, row["title"])
    console().print(table)
    say(f"Data directory: {folder}. To download one, type: lumos data fetch NAME")


def _path_of(entry: Entry, folder: Path) -> str | None:
    try:
        return find_entry(entry, folder).file("")
    except MissingData:
        return None
    except LumosError as error:
        return f"unreadable: {error}"


@app.command(name="fetch", sort_key=1)
def fetch_graph(
    name: Annotated[str, placed("name")],
    /,
    *,
    common: Common = COMMON,
) -> None:
    """Download a graph from SNAP and verify the files inside.

    Parameters
    ----------
    name
        A graph of `lumos data list`; `demo` is embedded and needs no download.
    """
    if name.casefold().split(":")[0] == "demo":
        report(
            {"name": name, "path": None, "fetched": False, "checksums": {}},
            common,
            f"{name} is embedded: nothing to fetch",
        )
        return
    entry = require_entry(name)
    data_dir = data_directory(common.data_dir)
    if (here := _verified(entry, data_dir)) is not None:
        path, status = here
        result = {"name": entry.name, "path": path, "fetched": False, "checksums": status}
        report(result, common, f"{entry.name} is here: {path}")
        return
    with displayed(True, f"fetch {entry.archive}") as bar:
        target, status = fetch(entry, data_dir, progress=bar)
    result = {"name": entry.name, "path": str(target), "fetched": True, "checksums": status}
    verified = sum(state == "ok" for state in status.values())
    line = f"{target}: {verified} of {len(status)} files inside have their known SHA-256"
    report(result, common, f"{line} (SNAP publishes none for the archive itself)")


def _verified(entry: Entry, data_dir: Path) -> tuple[str, dict[str, Status]] | None:
    """Return where a graph lies, if it is here with nothing missing or different."""
    try:
        folder = find_entry(entry, data_dir)
        status = checksums(entry, folder)
    except LumosError:
        return None
    if {"differs", "absent"} & set(status.values()):
        return None
    return folder.file(""), status


@app.command(name="check", sort_key=2)
def check(
    graph: Annotated[str, placed("graph")],
    /,
    *,
    reading: Annotated[Reading, Parameter(name="*")] = AS_IT_IS,
    common: Common = COMMON,
) -> None:
    """Read a graph, print what is in it, and verify its checksums where they are known.

    Parameters
    ----------
    graph
        A name of `lumos data list`, or the path of a SNAP folder or zip, npz, or edge list.
    """
    loaded = load(graph, data_dir=common.data_dir, **given(reading))
    result = summary(loaded)
    entry = entry_of(graph)
    if entry is not None:
        folder = find_entry(entry, data_directory(common.data_dir))
        result["checksums"] = checksums(entry, folder)
    else:
        result["checksums"] = {}
    if common.json:
        print_json(result)
    else:
        _print(result)
    if entry is not None:
        refuse_different(entry, folder, result["checksums"])


def summary(graph: Graph) -> dict[str, Any]:
    """Return the counts of a graph; nothing about a single device."""
    labelled = 0 if graph.labels is None else int(np.count_nonzero(graph.labels >= 0))
    parts = {}
    if graph.roles is not None:
        train, validation, test = (int(np.count_nonzero(graph.roles == role)) for role in range(3))
        parts = {"train": train, "validation": validation, "test": test}
    return {
        "name": graph.name,
        "devices": graph.devices,
        "edges": graph.edges,
        "features": graph.feature_count,
        "classes": graph.class_count,
        "dropped_self_loops": graph.dropped_self_loops,
        "dropped_duplicates": graph.dropped_duplicates,
        "isolated": int(np.count_nonzero(graph.degrees == 0)),
        "max_degree": int(graph.degrees.max()),
        "labelled": labelled,
        **parts,
        "notes": list(graph.notes),
    }


def _print(result: dict[str, Any]) -> None:
    rows = []
    for key, value in result.items():
        if key == "checksums":
            shown = ", ".join(f"{file} {state}" for file, state in value.items()) or "none known"
        elif key == "notes":
            shown = as_options("; ".join(value)) or "–"
        else:
            shown = f"{value:,}" if isinstance(value, int) else str(value)
        rows.append((key.replace("_", " "), shown))
    console().print(facts_table(rows))


# `lumos split`: a graph in parts on disk.


def split(
    graph: Annotated[str, placed("graph")],
    folder: Annotated[Path, placed("folder")],
    /,
    *,
    parts: Annotated[int, placed("parts")],
    task: Annotated[Literal["classify", "link"] | None, placed("task")] = None,
    split: Annotated[str | None, placed("split")] = None,
    reading: Annotated[Reading, Parameter(name="*")] = AS_IT_IS,
    common: Common = COMMON,
) -> None:
    """Write a graph in parts: what each of several processes, or each device, holds.

    A part has its devices' own features, labels, roles and neighbours, and nothing of others; a
    manifest has what is public. Training from parts is the same run as training on the graph.

    Parameters
    ----------
    graph
        demo, demo:60, facebook, lastfm, twitch-ENGB, …, or a path.
    folder
        A new folder to write.
    parts
        Number of parts: contiguous ranges of devices. As many as there are devices: one for each.
    task
        The only task that the parts are for; by default both, where the graph allows them.
    split
        As lumos train takes it: a file, shares as 60/20/20, or random.
    """
    refuse_taken(folder)
    loaded = load(graph, data_dir=common.data_dir, **{**reading_of(split), **given(reading)})
    bounds = equal_bounds(loaded.devices, parts)
    with displayed(True, "parts") as bar:
        written = write_parts(
            loaded, folder, bounds, seed=common.seed, split=split, task=task, progress=bar
        )
    result = parts_summary(written)
    if common.json:
        print_json(result)
    else:
        _show(result)


def parts_summary(folder: PartsFolder) -> dict[str, Any]:
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
