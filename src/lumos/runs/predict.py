"""Using a trained model: devices of the run (unlabelled ones too), newcomers, pairs; its weights.

A newcomer is a device that was not there in training. In the paper profile it carries all its edges
itself: each of its neighbours releases its features to it once more (and pays ε for that), the
newcomer runs the model on its own tree, and pools its own leaves. In the strict profile its
neighbours say the symbol that they have for life, which tells those who have heard it nothing new,
and the newcomer releases its own.
"""

import json
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, issparse, vstack

from lumos.errors import InputError, UsageError
from lumos.exchange.ledger import LedgerReport
from lumos.graph import Graph, load
from lumos.paper.model import Model
from lumos.runs.federation import Federation, Problem, embeddings_of
from lumos.runs.folder import fingerprint, read_arrays, read_json, write_arrays
from lumos.training.metrics import dot_products
from lumos.training.private_data import features_of
from lumos.training.settings import Config
from lumos.training.split import Role
from lumos.typing import Arrays, Floats, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Newcomer:
    """A device that joins after training."""

    id: str
    features: Floats = field(repr=False)
    """[d]"""
    neighbours: tuple[str, ...] = field(repr=False)
    """Original ids of its neighbours."""


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run, read from its folder."""

    path: Path
    about: dict[str, Any] = field(repr=False)
    config: Config
    ids: tuple[str, ...] = field(repr=False)
    embeddings: Floats = field(repr=False)
    logits: Floats | None = field(repr=False)
    arrays: Arrays = field(repr=False)
    known: Arrays = field(repr=False)
    """What else the run kept: what devices said and heard (strict)."""

    @staticmethod
    def open(path: Path | str) -> "Run":
        """Read the folder that `lumos train --out` wrote.

        Raises:
            InputError: it is no run folder, or the run is not finished.
        """
        path = Path(path)
        about = read_json(path / "run.json")
        if not isinstance(about, dict) or not {"format", "settings", "source"} <= about.keys():
            raise InputError(f"{path}: run.json is not of a run of this version; train anew")
        if not (path / "result.json").exists():
            raise InputError(f"{path}: the run is not finished; go on with lumos train … --resume")
        settings = {
            name: float(value) if value == "inf" else value
            for name, value in about["settings"].items()
            if name != "book"  # a path, and nothing that a prediction needs
        }
        config = Config.of(**settings)
        weights, known = read_arrays(path / "model.npz"), read_arrays(path / "embeddings.npz")
        ids = tuple(str(name) for name in known["ids"].tolist())
        embeddings, logits = known["embeddings"], known.get("logits")
        return Run(path, about, config, ids, embeddings, logits, weights, known)

    @property
    def classes(self) -> list[str]:
        """Names of the classes; none for link."""
        classes: list[str] = self.about["classes"]
        return classes

    def rows(self, ids: list[str] | None = None) -> list[dict[str, Any]]:
        """Predictions for devices of the run: all, or those named.

        classify: id, label, probability of each device. link: id, other, probability of an edge for
        each pair of the named devices; in the strict profile, as the first of them sees it.
        """
        if ids is not None:
            ids = list(dict.fromkeys(ids))
        places = np.arange(len(self.ids)) if ids is None else self._places(ids)
        if self.logits is not None:
            return self._labels([self.ids[place] for place in places], self.logits[places])
        if ids is None or len(ids) < 2:
            raise UsageError("this run predicts links; name at least two devices with --id")
        first, second = (places[ends] for ends in np.triu_indices(len(places), 1))
        chances = 1 / (1 + np.exp(-self._scores(first, second)))
        return [
            {"id": self.ids[one], "other": self.ids[other], "probability": float(chance)}
            for one, other, chance in zip(first, second, chances, strict=True)
        ]

    def _scores(self, first: Ints, second: Ints) -> npt.NDArray[np.float64]:
        """[pairs] logits of being an edge."""
        if self.config.train.profile == "paper":
            return dot_products(self.embeddings, np.stack([first, second], axis=1))
        from lumos.strict.pair_scorer import LinkResult

        linked = LinkResult.of(self.config.model, self.arrays, self.known)
        return linked.scores(first, second)[linked.choice]

    def welcome(
        self, newcomers: list[Newcomer], data_dir: Path | None = None, graph: Graph | None = None
    ) -> tuple[list[dict[str, Any]], LedgerReport]:
        """Predictions for newcomers, and the ledger of what it took.

        Args:
            graph: the graph of the run; found by its name or path otherwise.
        """
        if not self.classes:
            raise UsageError("newcomers are for runs that classify; this one predicts links")
        if graph is None:
            if not self.about["source"]:
                raise UsageError("this run was made from a graph in memory; hand it in")
            graph = load(**self.about["source"], data_dir=data_dir)
        if fingerprint(graph) != self.about["fingerprint"]:
            raise InputError(f"{self.path}: the run is of another graph than {graph!r}")
        problem = self._joined(graph, newcomers)
        names = [newcomer.id for newcomer in newcomers]
        if self.config.train.profile == "strict":
            logits, ledger = self._strict_logits(problem, graph.devices)
            return self._labels(names, logits), ledger
        model = Model(self.config.model, self.about["features"], len(self.classes))
        _load(self.path, model, self.arrays)
        found, ledger = embeddings_of(
            problem, self.config, model.vector(), step=_release_number(newcomers)
        )
        logits = model.logits(torch.from_numpy(found[graph.devices :])).numpy()
        return self._labels(names, logits), ledger

    def _strict_logits(self, problem: Problem, devices: int) -> tuple[Floats, LedgerReport]:
        """Logits of newcomers: neighbours say what they said, newcomers release their symbol."""
        if self.config.strict.relay not in ("auto", "none"):
            raise UsageError(
                "newcomers are for runs without a relay: what it drew was drawn before they came"
            )
        federation = Federation(problem, self.config)
        for worker in federation.trainers:
            worker.load(self.arrays, self.known["said"])
        federation.together(lambda worker: worker.release())
        found = federation.together(lambda worker: worker.answer())
        logits: Floats = federation.gathered(found)
        return logits[devices:], federation.carrier.ledger()

    def export(self, path: Path) -> None:
        """Write the weights and what is needed to use them as an npz; see docs/training.md."""
        if path.suffix != ".npz":
            raise UsageError(f"--export writes .npz, not {path.name!r}")
        about = {key: self.about[key] for key in ("settings", "classes", "features", "lumos")}
        try:
            write_arrays(path, {**self.arrays, "about": json.dumps(about)})
        except OSError as error:
            raise UsageError(f"{path}: cannot be written ({error.strerror})") from None

    def _places(self, ids: list[str]) -> npt.NDArray[np.int64]:
        number = {name: place for place, name in enumerate(self.ids)}
        for name in ids:
            if name not in number:
                raise InputError(f"{name!r} is not the id of any device of {self.path}")
        return np.array([number[name] for name in ids], np.int64)

    def _labels(self, names: list[str], logits: Floats) -> list[dict[str, Any]]:
        chance = torch.softmax(torch.from_numpy(logits), dim=1).numpy()
        best = chance.argmax(axis=1)
        return [
            {
                "id": name,
                "label": self.classes[label],
                "probability": float(chance[row, label]),
            }
            for row, (name, label) in enumerate(zip(names, best.tolist(), strict=True))
        ]

    def _joined(self, graph: Graph, newcomers: list[Newcomer]) -> Problem:
        """The graph with the newcomers in it; only they have trees."""
        width, devices = graph.feature_count, graph.devices
        number = {name: place for place, name in enumerate(self.ids)}
        pairs = []
        for place, newcomer in enumerate(newcomers, start=devices):
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
        new = Graph.from_edges(
            np.array(pairs, np.int64).reshape(-1, 2),
            devices=total,
            features=vstack([csr_array(old), csr_array(rows)]).tocsr()
            if issparse(old)
            else np.concatenate([np.asarray(old), rows]),
        )
        carrier = np.repeat(np.arange(total), new.degrees)
        return Problem(
            graph=new,
            keep=carrier >= devices,
            roles=np.full(total, Role.NOBODY, np.int64),
            held_back=np.empty((0, 2), np.int64),
            classes=len(self.classes),
            seed=self.about["seed"],
            shards=1,
        )


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
    found = []
    for place, entry in enumerate(content):
        where = f"{path}: newcomer {place}"
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
        found.append(Newcomer(id=name, features=features, neighbours=neighbours))
    return found


def _load(path: Path, model: Model, weights: Arrays) -> None:
    names = {name: tuple(value.shape) for name, value in model.named_parameters()}
    if names != {name: array.shape for name, array in weights.items()}:
        raise InputError(f"{path}: model.npz is not of the model that run.json describes")
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.from_numpy(weights[name]))


def _release_number(newcomers: list[Newcomer]) -> int:
    """A number of its own for the releases to these newcomers, so that no coin is used twice."""
    text = json.dumps([[newcomer.id, *newcomer.neighbours] for newcomer in newcomers])
    return 1 + int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "little")
