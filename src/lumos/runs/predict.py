"""Predictions for devices that were not there in training.

A newcomer carries all its edges itself. What its neighbours release to it is up to the profile: in
the paper's, their features once more (and they pay ε for that); in the strict one, the symbol that
they have for life, which tells those who have received it nothing new.
"""

import json
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from lumos.errors import InputError, UsageError
from lumos.exchange.ledger_report import LedgerReport
from lumos.graph import Graph
from lumos.runs.federation import Federation
from lumos.runs.run import Run, probabilities
from lumos.storage import read_json
from lumos.training.problem import Problem, features_of
from lumos.training.split import Role
from lumos.typing import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Newcomer:
    """A device that joins after training."""

    id: str
    features: Floats = field(repr=False)
    """[d]"""
    neighbours: tuple[str, ...] = field(repr=False)
    """Original ids of its neighbours."""


def predict_newcomers(
    run: Run,
    newcomers: list[Newcomer],
    *,
    graph: Graph | None = None,
    data_dir: Path | None = None,
    carrier: str = "loopback",
) -> tuple[Floats, LedgerReport]:
    """[newcomers, classes] probabilities, and the ledger of what it took.

    Args:
        run: a run that classifies.
        graph: the graph of the run; found by its name or path otherwise.
        data_dir: where named graphs lie.
        carrier: what moves the messages, a name of `lumos.exchange.CARRIERS`.
    """
    if not run.classes:
        raise UsageError("newcomers are for runs that classify; this one predicts links")
    config = run.config.profile.for_newcomers(run.config)
    graph = graph or run.whole_graph(data_dir)
    federation: Federation[Any] = Federation(
        _with_newcomers(run, graph, newcomers),
        config,
        step=_release_number(newcomers),
        carrier=carrier,
    )
    for trainer in federation.trainers:
        trainer.load(run.model.weights, run.model.kept)
    logits = federation.welcome()[graph.devices :]
    return probabilities(logits), federation.ledger()


def read_newcomers(path: Path, width: int) -> list[Newcomer]:
    """Newcomers from JSON: a list of {"id": …, "features": …, "neighbours": […]}.

    Features are a list of `width` numbers, or an object {"index": value} of those that are not 0.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    content = read_json(path)
    if not isinstance(content, list) or not content:
        raise InputError(
            f"{path}: a list of newcomers is needed, each with features and neighbours"
        )
    return [
        _newcomer(entry, place, f"{path}: newcomer {place}", width)
        for place, entry in enumerate(content)
    ]


def _newcomer(entry: Any, place: int, where: str, width: int) -> Newcomer:
    if not isinstance(entry, dict) or not {"features", "neighbours"} <= entry.keys():
        raise InputError(f"{where}: an object with features and neighbours is needed")
    try:
        given = entry["features"]
        features = np.zeros(width, np.float32)
        if isinstance(given, dict):
            for index, value in given.items():
                if not 0 <= int(index) < width:
                    raise InputError(f"{where}: feature {index} is not in 0 … {width - 1}")
                features[int(index)] = value
        else:
            features = np.asarray(given, np.float32)
        if not isinstance(entry["neighbours"], list):
            raise InputError(f"{where}: its neighbours are not a list")
        neighbours = tuple(dict.fromkeys(str(name) for name in entry["neighbours"]))
    except (TypeError, ValueError):
        raise InputError(f"{where}: its features are not numbers") from None
    name = str(entry.get("id", f"newcomer {place}"))
    return Newcomer(id=name, features=features, neighbours=neighbours)


def _with_newcomers(run: Run, graph: Graph, newcomers: list[Newcomer]) -> Problem:
    """The graph with the newcomers in it; only they have trees."""
    width, devices = graph.feature_count, graph.devices
    number = {name: place for place, name in enumerate(run.ids)}
    pairs, seen = [], set(run.ids)
    for place, newcomer in enumerate(newcomers, start=devices):
        if newcomer.id in seen:
            raise InputError(
                f"newcomer {newcomer.id!r}: there is a device or another newcomer with this id; "
                "ask for devices of the run by `ids`, and give each newcomer an id of its own"
            )
        seen.add(newcomer.id)
        if newcomer.features.shape != (width,):
            raise InputError(
                f"newcomer {newcomer.id!r}: {newcomer.features.size} features, "
                f"the model has {width}"
            )
        for name in newcomer.neighbours:
            if name not in number:
                raise InputError(
                    f"newcomer {newcomer.id!r}: its neighbour {name!r} is no device of the run"
                )
            pairs.append((number[name], place))
    rows = np.stack([newcomer.features for newcomer in newcomers]).astype(np.float32)
    old = features_of(graph)
    total = devices + len(newcomers)
    joined = Graph.from_edges(
        np.array(pairs, np.int64).reshape(-1, 2),
        devices=total,
        features=vstack([csr_array(old), csr_array(rows)]).tocsr()
        if issparse(old)
        else np.concatenate([np.asarray(old), rows]),
    )
    carrier = np.repeat(np.arange(total), joined.degrees)
    return Problem.of(
        graph=joined,
        keep=carrier >= devices,
        roles=np.full(total, Role.NOBODY, np.int64),
        held_back=np.empty((0, 2), np.int64),
        classes=len(run.classes),
        seed=run.about.seed,
        shards=1,
    )


def _release_number(newcomers: list[Newcomer]) -> int:
    """A number of its own for the releases to these newcomers, so that no coin is used twice."""
    text = json.dumps([[newcomer.id, *newcomer.neighbours] for newcomer in newcomers])
    return 1 + int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "little")
