"""Predictions by a finished run: links between devices, and new devices that were not there.

A new device carries all its edges itself. What its neighbours release to it is up to the profile:
in the paper's, their features once more (and they pay ε for that); in the strict one, the
randomized label that they have for life, which tells those who have received it nothing new.
"""

import json
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
from scipy.sparse import csr_array, issparse, vstack

from lumos.errors import InputError, UsageError
from lumos.exchange.observer import LedgerReport
from lumos.graph import Graph
from lumos.graph.arrays import as_array, positions
from lumos.runs.loop import Federation
from lumos.storage import read_json
from lumos.training.problem import Problem, features_of
from lumos.training.split import Role
from lumos.training.trainer import AskedPairs, LinkPredictions, OnAnswers, TrainedLinks
from lumos.typing import Floats, Ints

if TYPE_CHECKING:
    from lumos.runs.run import Run


def probabilities(logits: Floats) -> Floats:
    """[devices, classes] by softmax."""
    chances: Floats = torch.softmax(torch.from_numpy(np.ascontiguousarray(logits)), dim=1).numpy()
    return chances


class AskOptions(TypedDict, total=False):
    """Keywords of questions about pairs."""

    secure: bool
    """Real cryptography between the two devices; otherwise computed in the clear."""
    workers: int | None
    """Processes for the cryptography; None: one per core."""
    progress: OnAnswers | None
    """Callback `(answered, asked)`."""
    data_dir: Path | None
    """Folder of named graphs."""


def pairs_of(edge_index: Any, devices: int) -> Ints:
    """[pairs, 2] positions of devices, from [2, pairs] as PyG has them.

    Raises:
        UsageError: the shape is another one, or there is no such position.
    """
    if isinstance(edge_index, list | tuple) and isinstance(next(iter(edge_index), None), tuple):
        raise UsageError(
            "`edge_index` is a tensor or an array [2, pairs]; a list of pairs of ids goes to `ids`"
        )
    index = as_array(edge_index)
    if index.ndim != 2 or index.shape[0] != 2:
        raise UsageError(
            f"`edge_index` has the shape {list(index.shape)}; [2, pairs] is needed, the first ends "
            "in one row and the second ends in the other"
        )
    if index.dtype == np.bool_:
        raise UsageError("`edge_index` holds truth values; use positions of devices")
    return np.stack([positions(ends, devices) for ends in index], axis=1)


def ask_links(
    run: "Run",
    pairs: Ints,
    *,
    secure: bool = False,
    workers: int | None = None,
    progress: OnAnswers | None = None,
    data_dir: Path | None = None,
) -> LinkPredictions:
    """Score pairs as `Run.ask_links` does, which describes the keywords.

    Args:
        pairs: [pairs, 2] positions of devices.
    """
    if run.class_names:
        raise UsageError("this run classifies; train one with `task='link'` for links")
    if run.about.deployed:
        raise UsageError(
            "real devices trained this run, and two of them score their pair together: lumos up "
            "--stay, then lumos predict FOLDER/device-17 --with 3"
        )
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise UsageError("a pair has twice the same device; a device has no link with itself")
    model = trained_links(run, data_dir)
    asked = AskedPairs(pairs=pairs, secure=secure, workers=workers, progress=progress)
    return run.config.profile.predict_pairs(model, asked)


def trained_links(run: "Run", data_dir: Path | None = None) -> TrainedLinks:
    """Return what a profile needs to answer questions about pairs.

    Args:
        data_dir: where named graphs lie.
    """
    return TrainedLinks(
        config=run.config,
        seed=run.about.seed,
        weights=run.model.weights,
        embeddings=run.model.embeddings,
        kept=run.model.kept,
        graph=lambda: run.data.training_graph(data_dir),
        split=run.about.split.name,
        ids=run.ids,
        folder=run.folder,
        memory=run.memory,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class NewDevice:
    """A device that joins after training."""

    id: str
    features: Floats = field(repr=False)
    """[d]"""
    neighbours: tuple[str, ...] = field(repr=False)
    """Original ids of its neighbours."""


def predict_new_devices(
    run: "Run",
    new_devices: list[NewDevice],
    *,
    graph: Graph | None = None,
    data_dir: Path | None = None,
    transport: str = "loopback",
) -> tuple[Floats, LedgerReport]:
    """[new devices, classes] probabilities, and the ledger of what it took.

    Args:
        run: a run that classifies.
        graph: the graph of the run; found by its name or path otherwise.
        data_dir: where named graphs lie.
        transport: what moves the messages, a name of `lumos.exchange.TRANSPORTS`.
    """
    if not run.class_names:
        raise UsageError("new devices are for runs that classify; this one predicts links")
    config = run.config.profile.for_new_devices(run.config)
    graph = graph or (_nobody(run) if run.about.deployed else run.data.whole_graph(data_dir))
    federation: Federation[Any] = Federation(
        _with_new_devices(run, graph, new_devices),
        config,
        step=_release_number(new_devices),
        transport=transport,
    )
    for trainer in federation.trainers:
        trainer.load_state_dict(run.model.weights | run.model.kept, "model")
    logits = federation.predict_new_devices()[graph.devices :]
    return probabilities(logits), federation.ledger()


def _nobody(run: "Run") -> Graph:
    """The graph of a run of real devices as its coordinator knows it: their number alone."""
    devices = run.about.devices
    return Graph.from_edges(
        np.empty((0, 2), np.int64),
        features=csr_array((devices, run.about.features), dtype=np.float32),
    )


def read_new_devices(path: Path, width: int) -> list[NewDevice]:
    """New devices from JSON: a list of {"id": …, "features": …, "neighbours": […]}.

    Features are a list of `width` numbers, or an object {"index": value} of those that are not 0.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    content = read_json(path)
    if not isinstance(content, list) or not content:
        raise InputError(
            f"{path}: a list of new devices is needed, each with features and neighbours"
        )
    return [
        _new_device(entry, place, f"{path}: new device {place}", width)
        for place, entry in enumerate(content)
    ]


def _new_device(entry: Any, place: int, where: str, width: int) -> NewDevice:
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
    name = str(entry.get("id", f"new device {place}"))
    return NewDevice(id=name, features=features, neighbours=neighbours)


def _with_new_devices(run: "Run", graph: Graph, new_devices: list[NewDevice]) -> Problem:
    """The graph with the new devices in it; only they have trees."""
    width, devices = graph.feature_count, graph.devices
    number = {name: place for place, name in enumerate(run.ids)}
    pairs, seen = [], set(run.ids)
    for place, new_device in enumerate(new_devices, start=devices):
        if new_device.id in seen:
            raise InputError(
                f"new device {new_device.id!r}: there is a device or another new device with this "
                f"id; "
                "ask for devices of the run by `ids`, and give each new device an id of its own"
            )
        seen.add(new_device.id)
        if new_device.features.shape != (width,):
            raise InputError(
                f"new device {new_device.id!r}: {new_device.features.size} features, "
                f"the model has {width}"
            )
        for name in new_device.neighbours:
            if run.about.deployed:
                raise InputError(
                    f"new device {new_device.id!r}: it has neighbours, and the coordinator of real "
                    "devices has none of their messages; leave neighbours empty, so that features "
                    "alone decide"
                )
            if name not in number:
                raise InputError(
                    f"new device {new_device.id!r}: its neighbour {name!r} is no device of the run"
                )
            pairs.append((number[name], place))
    rows = np.stack([new_device.features for new_device in new_devices]).astype(np.float32)
    old = features_of(graph)
    total = devices + len(new_devices)
    joined = Graph.from_edges(
        np.array(pairs, np.int64).reshape(-1, 2),
        devices=total,
        features=vstack([csr_array(old), csr_array(rows)]).tocsr()
        if issparse(old)
        else np.concatenate([np.asarray(old), rows]),
    )
    transport = np.repeat(np.arange(total), joined.degrees)
    return Problem.of(
        graph=joined,
        keep=transport >= devices,
        roles=np.full(total, Role.NOBODY, np.int64),
        held_back=np.empty((0, 2), np.int64),
        classes=len(run.class_names),
        seed=run.about.seed,
        shards=1,
    )


def _release_number(new_devices: list[NewDevice]) -> int:
    """A number of its own for the releases to these new devices, so that no random bit is used
    twice."""
    text = json.dumps([[new_device.id, *new_device.neighbours] for new_device in new_devices])
    return 1 + int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "little")
