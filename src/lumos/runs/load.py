"""`lumos.load_run`: a finished run from its folder, every file checked."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import msgspec
import numpy as np

from lumos.errors import InputError
from lumos.exchange.observer import LedgerReport
from lumos.graph import Graph
from lumos.graph.arrays import IdTexts
from lumos.graph.facts import fingerprint
from lumos.graph.io import ReadKeywords
from lumos.registry import part_name
from lumos.runs.folder import DEVICES, LEDGER_ARRAYS, VARIANTS, RunFolder, keeps_device_values
from lumos.runs.run import Cost, Run, RunData
from lumos.runs.schema import (
    About,
    Result,
    TreeSummary,
    config_of,
    decode,
    plain,
    score_types,
)
from lumos.runs.train import read_input
from lumos.storage import one_line, read_arrays, read_json
from lumos.training.config import Config
from lumos.training.metrics import Scores
from lumos.training.split import DataSplit
from lumos.training.trainer import CONTROL, MAIN, OWN, EpochEvent, Outcome
from lumos.typing import Arrays


def load_run(
    path: Path | str,
    graph: Any = None,
    *,
    data_dir: Path | None = None,
    backbone: Any = None,
    model: Any = None,
    **reading: Unpack[ReadKeywords],
) -> Run:
    """Read the folder of a finished run.

    In a profile whose door `open` is shut the run that is read has no embeddings, workloads,
    degrees, or counts of single devices in its ledgers: the folder does not keep them.

    Args:
        graph: the graph of the run, as `train` takes it, where it was in memory only; found by its
            name or path otherwise, when it is needed.
        data_dir: where named graphs lie.
        backbone: the layer that the run was trained with, where it is one of your own. No file has
            its code; predictions about new devices need it.
        model: the same of a whole model.
        reading: how the graph is read; by default as for the run.

    Raises:
        InputError: it is none, the run is not finished, a file is damaged, the graph is another, or
            the weights do not match the layer or model.
    """
    folder = RunFolder(Path(path))
    if not (folder.path / "run.json").exists():
        raise InputError(f"{path}: not a run folder; train with `out` to make one")
    about = decode(folder.path / "run.json", About)
    parts = {"backbone": backbone, "model": model}
    parts = {name: part for name, part in parts.items() if part is not None}
    config = _with_parts(folder.path, config_of(folder.path, about), parts)
    whole = None
    if graph is not None:
        whole = _given_graph(graph, data_dir, about, dict(reading))
        if about.fingerprint not in ("", fingerprint(whole)):
            raise InputError(f"{path}: the run is of another graph than {whole!r}")
    if not folder.finished():
        raise InputError(f"{path}: the run is not finished; continue with lumos train … --resume")
    result = decode(folder.path / "result.json", Result)
    trees, ledger = folder.trees(), folder.ledger()
    if trees is None:
        raise InputError(f"{folder.path / 'trees.npz'}: there is no such file; train again")
    histories = {
        variant: RunFolder(folder.path / place).metrics(variant)
        for variant, place in VARIANTS.items()
    }
    keeps = keeps_device_values(config, deployed=about.deployed)
    per_device = about.devices if keeps else 0
    _check_same_run(folder, about, result, trees, ledger, histories[MAIN], per_device)
    known = read_arrays(folder.path / DEVICES)
    if not _fit(known, about, config):
        raise InputError(f"{folder.path / DEVICES}: is damaged; train again")
    kept = {name: known[name] for name in known.keys() - {"ids", "embeddings", "logits"}}
    logits = known.get("logits")
    links = config.train.task == "link"
    weights = read_arrays(folder.path / "model.npz")
    if parts:
        try:
            profile, classes = config.profile, len(about.classes)
            profile.check_weights(config, about.features, classes, weights | kept)
        except InputError as error:
            raise InputError(f"{folder.path / 'model.npz'}: {error}") from None
    return Run(
        about=about,
        config=config,
        scores=_scores(
            folder.path / "result.json", config, len(about.classes), deployed=about.deployed
        ),
        histories={variant: events for variant, events in histories.items() if events},
        split_sizes=result.split,
        cost=Cost(
            seconds=result.seconds,
            seconds_per_epoch=result.seconds_per_epoch,
            peak_rss_mb=result.peak_rss_mb,
            ranks=result.ranks,
            per_epoch=result.per_epoch,
        ),
        model=Outcome(
            weights=weights,
            embeddings=known.get("embeddings", logits),
            logits=logits,
            kept=kept,
            best_epoch=result.best_epoch,
            choice=result.choice,
            warnings=result.warnings,
            estimates=result.estimates,
            exposed=result.exposed,
            guarantees=result.guarantees,
            ledger=ledger,
        ),
        trees=trees,
        ids=IdTexts(tuple(known["ids"].astype(np.str_).tolist())),
        data=RunData(
            about=about,
            graph=whole,
            drawn=None
            if links or about.deployed
            else DataSplit.of_roles(folder.roles(about), about.split.origin),
            held_out=folder.held_out(about) if links and not about.deployed else None,
        ),
        folder=folder.path,
    )


def _with_parts(path: Path, config: Config, parts: dict[str, Any]) -> Config:
    """The settings with the layer or model itself in the place of its recorded name.

    Raises:
        InputError: the run was trained with another one.
    """
    for name, part in parts.items():
        recorded = getattr(config.model, name)
        # Not the module: what `__main__` defined is imported from elsewhere later.
        if recorded is None or _class_name(recorded) != _class_name(part):
            trained = f"`{name}` {recorded}" if recorded else f"no `{name}` of its own"
            raise InputError(f"{path}: was trained with {trained}, not {part_name(part)}")
    return replace(config, model=replace(config.model, **parts))


def _class_name(part: Any) -> str:
    return part_name(part).split(":", 1)[-1]


def _given_graph(
    graph: Any, data_dir: Path | None, about: About, reading: Mapping[str, Any]
) -> Graph:
    """Read the graph of a run again: as it was read for the run, but for what `reading` says."""
    if isinstance(graph, Graph):
        before: dict[str, Any] = {}
    else:
        before = {name: value for name, value in about.source.items() if name != "spec"}
    given = read_input(graph, data_dir=data_dir, reading={**before, **reading}, whole=True).graph
    if not isinstance(given, Graph):
        raise TypeError("parts were not read as one graph")
    return given


def _scores(
    path: Path, config: Config, classes: int, *, deployed: bool = False
) -> dict[str, Scores]:
    """Scores stand in result.json by names such as own_test_accuracy; none of real devices.

    Raises:
        InputError: those of the run itself are not all there, or some are no scores.
    """
    numbers = read_json(path)
    wanted = score_types(config.train.task, classes)
    scores: dict[str, Scores] = {}
    if deployed:
        return scores
    for variant in (MAIN, OWN, CONTROL):
        prefix = "" if variant == MAIN else f"{variant}_"
        missing = [name for name in wanted if f"{prefix}{name}" not in numbers]
        if missing and variant == MAIN:
            raise InputError(f"{path}: has no {missing[0]}; train again")
        if not missing:
            scores[variant] = {
                name: _score(path, f"{prefix}{name}", numbers, kind)
                for name, kind in wanted.items()
            }
    return scores


def _score(path: Path, name: str, numbers: dict[str, Any], kind: Any) -> Any:
    try:
        return msgspec.to_builtins(msgspec.convert(numbers[name], kind))
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: {name} is damaged ({one_line(error)}); train again") from None


def _check_same_run(
    folder: RunFolder,
    about: About,
    result: Result,
    trees: TreeSummary,
    ledger: LedgerReport,
    history: list[EpochEvent] | None,
    per_device: int,
) -> None:
    """Refuse a folder whose files are of different runs.

    Raises:
        InputError: a file is missing, or disagrees with `run.json` or `result.json`.
    """
    same = {
        "result.json": all(
            getattr(result, name) == getattr(about, name)
            for name in ("graph", "devices", "edges", "seed", "shards")
        ),
        "trees.npz": len(trees.workload) == len(trees.degree) == per_device
        and len(trees.keep) == trees.degree.sum()
        and bool((trees.workload >= 0).all() and (trees.workload <= trees.degree).all())
        and trees.max_workload == result.max_workload
        and _is_of(trees.ledger, result.tree_ledger, per_device),
        "ledger.npz": _is_of(ledger, result.ledger, per_device),
        "metrics.jsonl": history is not None and 0 < len(history) == result.epochs,
    }
    for name, agrees in same.items():
        if not agrees:
            raise InputError(
                f"{folder.path / name}: is not of the run that the other files describe; train "
                "again"
            )


def _fit(known: Arrays, about: About, config: Config) -> bool:
    """Return True if ids, embeddings and logits have the right types and a row for each device."""
    ids = known.get("ids", np.empty(0))
    distinct = ids.dtype.kind in "iU" and ids.ndim == 1 and len(np.unique(ids)) == about.devices
    wanted = {
        **({"embeddings": None} if keeps_device_values(config) else {}),
        **({"logits": len(about.classes)} if config.train.task == "classify" else {}),
    }
    if about.deployed:
        wanted = {}
    if not distinct or known.keys() & {"embeddings", "logits"} != wanted.keys():
        return False
    return all(
        known[name].dtype.kind == "f"
        and known[name].ndim == 2
        and known[name].shape == (about.devices, known[name].shape[1] if width is None else width)
        for name, width in wanted.items()
    )


def _is_of(ledger: LedgerReport, totals: dict[str, Any], per_device: int) -> bool:
    """Return True if a ledger matches `result.json` and has `per_device` rows in its arrays."""
    sizes = {len(getattr(ledger, name)) for name in LEDGER_ARRAYS if not name.startswith("pair")}
    same_pairs = len(ledger.pairs) == len(ledger.pair_bits)
    as_read = json.loads(json.dumps(plain(ledger.totals())))
    return sizes == {per_device} and same_pairs and as_read == totals
