"""A finished run: one object, whether it was just trained or read from its folder."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from lumos.device.coins import PublicCoins
from lumos.display import DISPLAYS
from lumos.errors import InputError, UsageError
from lumos.exchange.ledger_report import LedgerReport
from lumos.graph import Graph, load
from lumos.graph.fingerprint import fingerprint
from lumos.graph.ids import IdTexts
from lumos.graph.parts import PartsFolder, is_parts_folder
from lumos.registry import Registry
from lumos.runs import run_frames
from lumos.runs.events import EpochEvent
from lumos.runs.folder import DEVICES, RunFolder, keeps_device_values
from lumos.runs.run_text import run_text
from lumos.runs.schema import About, PerEpoch, RankCost, Result, Split, plain
from lumos.runs.tree_summary import TreeSummary
from lumos.storage import write_arrays, write_json
from lumos.training.config import Config
from lumos.training.link_questions import ANSWERS, AskedPairs, OnAnswers, TrainedLinks
from lumos.training.metrics import Scores
from lumos.training.outcome import CONTROL, MAIN, OWN
from lumos.training.split import DataSplit, EdgeSplit, edges_left, only_edges, split_edges
from lumos.training.weights_digest import weights_digest
from lumos.typing import Arrays, Doubles, Flags, Floats, Ints

if TYPE_CHECKING:
    import pandas

REPORTS: Registry[Any] = Registry("report", {"html": "lumos.report.run_page:write_page"})
"""Pages of a run by format: a function `(run, path) -> Path`."""

RELATION = (
    "each row of promises names its own: 'this or another' is replacement, a value against any "
    "other in its place; 'in the sums or zeros', 'left out' and 'there or not' are in or out"
)
"""Which two worlds the (ε, δ) of a row tell apart."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """What was trained, and what predictions need beside it."""

    weights: Arrays = field(repr=False)
    """The trained weights by name."""
    embeddings: Floats | None = field(repr=False)
    """[devices, width], in the order of the ids; the logits where a profile has no embeddings; None
    where the run was read from a folder that does not keep them."""
    logits: Floats | None = field(repr=False)
    """[devices, classes], for classify."""
    kept: Arrays = field(repr=False)
    """What else a prediction needs, as the profile keeps it."""


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """How training went."""

    split: Split
    best_epoch: int
    """Whose weights were kept."""
    choice: str
    """Which of several candidates validation devices chose; empty where there is no choice."""
    cautions: list[str]
    """What a reader of the scores should know and what would help, one sentence each. Those that
    compare scores on the test set are the observer's; all others follow from public numbers and
    noisy sums."""
    estimates: dict[str, float]
    """Scores that the run measured by itself, without any true label: `voted_accuracy` from the
    validation devices' noisy vote, its standard error `voted_accuracy_error`, and both for own
    features; empty in profiles that measure none."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What the run took."""

    seconds: float
    """From the graph to the result."""
    seconds_per_epoch: float
    peak_rss_mb: float
    """Of rank 0."""
    ranks: list[RankCost]
    """What each process took, in the order of the ranks."""
    per_epoch: PerEpoch
    """Messages, bytes and rounds of a device in one epoch."""


class Privacy(msgspec.Struct, frozen=True, kw_only=True):
    """What the run promises, and what it exposed."""

    exposed: str
    """What left the devices unprotected, to whom, in words."""
    promises: list[dict[str, str]]
    """The table of promises, row by row; empty where none is made."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkPredictions:
    """Predictions about pairs, as the first device of each pair has them."""

    probability: Doubles = field(repr=False)
    """[pairs] of an edge."""
    answered: Flags = field(repr=False)
    """[pairs] whether the second device answered."""
    ledger: LedgerReport | None = field(repr=False)
    """What passed; None where nothing did."""

    def __repr__(self) -> str:
        return (
            f"LinkPredictions({len(self.probability):,} pairs, {int(self.answered.sum()):,} "
            "answered by the second device)"
        )

    def _repr_html_(self) -> str:
        """For notebooks."""
        shown: str = DISPLAYS["links"](self)
        return shown


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A finished run. Scores, trees and workloads are the observer's.

    run = lumos.train("demo", epsilon=2.0)
    run.metrics, run.own, run.promises
    run.predict([17, 18]), run.predict_proba([17, 18])
    run.save("runs/demo")
    run = lumos.load_run("runs/demo")
    """

    about: About = field(repr=False)
    """What was asked for: graph, seed, shards, settings, versions."""
    config: Config
    scores: dict[str, Scores]
    """By arm: `run`, and as far as they were trained `own` and `control`."""
    histories: dict[str, list[EpochEvent]] = field(repr=False)
    """By arm, one event per epoch."""
    training: Training
    cost: Cost = field(repr=False)
    privacy: Privacy = field(repr=False)
    model: TrainedModel = field(repr=False)
    trees: TreeSummary = field(repr=False)
    ledger: LedgerReport = field(repr=False)
    """What passed in training; `trees.ledger` has what passed before. Counts of single devices are
    in it where the run was just trained, and in the paper profile."""
    ids: Sequence[str] = field(repr=False)
    """Original ids of the devices, as text, in the order of all arrays."""
    graph: Graph | None = field(default=None, repr=False)
    """The graph, where the run was just trained or read together with it."""
    folder: Path | None = field(default=None, repr=False)
    """Where the run lies, if it was written or read."""
    _split: DataSplit | None = field(default=None, repr=False)
    """The split, where it was just made, or is of devices."""
    _held_out: tuple[Ints, Ints] | None = field(default=None, repr=False)
    """Validation and test edges that were given, of a run that was read from its folder."""
    _memory: dict[str, Any] = field(default_factory=dict, repr=False)
    """What was computed for earlier questions, and without a folder what devices answered."""

    def __repr__(self) -> str:
        return run_text(self)

    def _repr_html_(self) -> str:
        """For notebooks: scores of all arms, what was learnt, the promise."""
        shown: str = DISPLAYS["run"](self)
        return shown

    @property
    def metrics(self) -> Scores:
        """Scores of the run itself."""
        return self.scores[MAIN]

    @property
    def own(self) -> Scores | None:
        """Scores by own features only."""
        return self.scores.get(OWN)

    @property
    def control(self) -> Scores | None:
        """Scores of a run whose releases carry no information."""
        return self.scores.get(CONTROL)

    @property
    def history(self) -> list[EpochEvent]:
        """One event per epoch of the run itself."""
        return self.histories[MAIN]

    @property
    def promises(self) -> list[dict[str, str]]:
        """The table of promises, row by row; empty where none is made."""
        return self.privacy.promises

    @property
    def split(self) -> DataSplit:
        """Who or what trains, validates and tests.

        `train`, `validation` and `test` are rows of devices, as in `ids` and in all arrays; for
        links they are edges, [edges, 2] of rows. `origin` says in one sentence where the split
        comes from.
        """
        return self.split_of(None)

    def split_of(self, data_dir: Path | None) -> DataSplit:
        """The same; a run of links that was read from its folder splits its graph again.

        Args:
            data_dir: where named graphs lie.
        """
        if self._split is not None:
            return self._split
        origin = self.about.split.origin
        if self._held_out is None:
            return self._drawn_again(data_dir).edges(origin)
        validation, test = self._held_out
        train = self._training_graph(data_dir).edge_list()
        return DataSplit(train=train, validation=validation, test=test, origin=origin)

    def _drawn_again(self, data_dir: Path | None) -> EdgeSplit:
        """A random split of edges, by seed and shares."""
        shares = self.about.split.shares
        if shares is None:
            raise InputError("run.json does not say how edges were split; train again")
        return split_edges(self.whole_graph(data_dir), PublicCoins(self.about.seed), shares)

    def _training_graph(self, data_dir: Path | None) -> Graph:
        """The graph with its training edges only, for links."""
        if self._split is not None:
            return only_edges(self.whole_graph(data_dir), self._split.train)
        if self._held_out is None:
            return self._drawn_again(data_dir).training
        graph = self.whole_graph(data_dir)
        return only_edges(graph, edges_left(graph, *self._held_out))

    @property
    def embeddings(self) -> Floats:
        """[devices, width], in the order of `ids`.

        Raises:
            UsageError: the run was read from a folder that does not keep them.
        """
        if self.model.embeddings is None:
            raise UsageError(
                "the folder of this run keeps no embeddings: they are made of devices' own "
                "features and edges; use them right after training, or ask about pairs"
            )
        return self.model.embeddings

    @property
    def classes(self) -> list[str]:
        """Names of the classes; none for link."""
        return self.about.classes

    def scores_frame(self) -> "pandas.DataFrame":
        """Scores as a frame: `arm` (`run`, `own`, `control`), `score` (as `metrics` has it),
        `value`."""
        return run_frames.scores_frame(self)

    def history_frame(self) -> "pandas.DataFrame":
        """Epochs as a frame: `arm`, `epoch`, `loss`, `score`, `seconds`, as in `EpochEvent`; NaN
        where an epoch has no loss or score."""
        return run_frames.history_frame(self)

    def predictions_frame(self) -> "pandas.DataFrame":
        """Devices as a frame: `device` (original id, as text), `predicted` (a class), and `p(…)`
        for the probability of each class.

        Raises:
            UsageError: the run predicts links.
        """
        return run_frames.predictions_frame(self)

    def promises_frame(self) -> "pandas.DataFrame":
        """The table of promises as a frame: `about`, and a column for each of those it is against;
        empty where none is made."""
        return run_frames.promises_frame(self)

    def predict(self, ids: Iterable[int | str] | None = None) -> list[str]:
        """The most likely class of each device, unlabelled ones too.

        Args:
            ids: original ids; all devices in the order of `self.ids` by default.
        """
        best = self.predict_proba(ids).argmax(axis=1)
        return [self.classes[label] for label in best.tolist()]

    def predict_proba(self, ids: Iterable[int | str] | None = None) -> Floats:
        """[devices, classes] what the model believes of each device.

        Args:
            ids: original ids; all devices in the order of `self.ids` by default.
        """
        if self.model.logits is None:
            raise UsageError("this run predicts links and has no classes; use predict_links")
        logits = self.model.logits
        return probabilities(logits if ids is None else logits[self.rows_of(ids)])

    def predict_links(self, pairs: Sequence[tuple[int | str, int | str]], **how: Any) -> Doubles:
        """[pairs] probability of an edge between the two devices of each pair.

        Where a profile scores a pair at one of its ends, that is the first.

        Args:
            pairs: original ids.
            how: keywords of `ask_links`.
        """
        return self.ask_links(pairs, **how).probability

    def ask_links(
        self,
        pairs: Sequence[tuple[int | str, int | str]],
        *,
        secure: bool = False,
        workers: int | None = None,
        progress: OnAnswers | None = None,
        data_dir: Path | None = None,
    ) -> LinkPredictions:
        """Let the first device of each pair ask the second, and score the pair.

        In the strict profile a device gives a limited number of answers in its life. They are
        counted, and kept: in the book, in the run folder, or with this object. A pair beyond the
        limit is scored by what the first device knows alone.

        Args:
            pairs: original ids.
            secure: real cryptography between the two devices; otherwise computed in the clear.
            workers: processes for the cryptography; None: one per core.
            progress: callback `(answered, asked)`.
            data_dir: where named graphs lie. In the strict profile devices compute their vectors
                anew from the graph, because no file keeps them.
        """
        if self.model.logits is not None:
            raise UsageError("this run classifies; train one with `task='link'` for links")
        ends = self.rows_of([end for pair in pairs for end in pair]).reshape(-1, 2)
        if (ends[:, 0] == ends[:, 1]).any():
            raise UsageError("a pair has twice the same device; a device has no link with itself")
        model = self.trained_links(data_dir)
        asked = AskedPairs(pairs=ends, secure=secure, workers=workers, progress=progress)
        answers = self.config.profile.predict_pairs(model, asked)
        return LinkPredictions(
            probability=1 / (1 + np.exp(-answers.scores)),
            answered=answers.answered,
            ledger=answers.ledger,
        )

    def trained_links(self, data_dir: Path | None = None) -> TrainedLinks:
        """What a profile needs to answer questions about pairs.

        Args:
            data_dir: where named graphs lie.
        """
        return TrainedLinks(
            config=self.config,
            seed=self.about.seed,
            weights=self.model.weights,
            embeddings=self.model.embeddings,
            kept=self.model.kept,
            graph=lambda: self._training_graph(data_dir),
            split=self.about.split.name,
            ids=self.ids,
            folder=self.folder,
            memory=self._memory,
        )

    def suggest(
        self, device: int | str, candidates: Sequence[int | str], most: int = 10, **how: Any
    ) -> list[tuple[str, float]]:
        """The candidates that the device is most likely linked with, and the probability of each.

        The device asks every candidate, as far as its answers go; those that did not answer come
        last, because nothing is known of them.

        Args:
            device: original id.
            candidates: original ids.
            most: how many are returned.
            how: keywords of `ask_links`.
        """
        if most < 1:
            raise UsageError(f"`most` must be 1 or more, got {most}")
        names = [str(name) for name in dict.fromkeys(candidates) if str(name) != str(device)]
        found = self.ask_links([(device, name) for name in names], **how)
        order = np.lexsort((-found.probability, ~found.answered))[:most]
        return [(names[place], float(found.probability[place])) for place in order]

    def embedding(self, original_id: int | str) -> Floats:
        """[width] of one device."""
        row: Floats = self.embeddings[self.rows_of([original_id])[0]]
        return row

    def rows_of(self, ids: Iterable[int | str]) -> Ints:
        """Positions of devices by their original ids."""
        try:
            return np.array([self._position[str(name)] for name in ids], np.int64)
        except KeyError as error:
            raise InputError(f"{error.args[0]!r} is not the id of any device of this run") from None

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.ids)}

    def whole_graph(self, data_dir: Path | None = None) -> Graph:
        """The graph of the run; read again by its name or path where the run was loaded.

        Args:
            data_dir: where named graphs lie.

        Raises:
            UsageError: the graph was in memory only.
            InputError: there is another graph at its place now.
        """
        if self.graph is not None:
            return self.graph
        if not self.about.source:
            raise UsageError(
                "this run was made from a graph in memory; pass that graph to `load_run` in Python"
            )
        graph = _found(self.about.source, data_dir)
        spec = Path(str(self.about.source.get("spec", "")))
        parts = PartsFolder.open(spec) if is_parts_folder(spec) else None
        # Roles of a split that parts were given are in the digest of the graph, not in theirs.
        known = fingerprint(graph) if parts is None else parts.manifest.graph.simulated.fingerprint
        if self.about.fingerprint not in ("", known):
            raise InputError(f"the run is of another graph than {graph!r}")
        return graph

    def export(self, path: Path | str, *, simulated: bool = False) -> None:
        """Write the weights and what is needed to use them as an npz (docs/training.md).

        The file has the weights, the table of promises, and settings without any path. It has no
        id, no degree and no array over devices.

        Args:
            simulated: also where coins were simulated, or sums computed in the clear: such weights
                keep none of the promises.

        Raises:
            UsageError: the run was a simulation, and `simulated` is not given.
        """
        path = Path(path)
        if path.suffix != ".npz":
            raise UsageError(f"`export` writes .npz, not {path.name!r}")
        if (reason := self._simulation()) and not simulated:
            raise UsageError(
                f"these weights are of a simulation and not exported: {reason}; train with "
                "`coins='system'` and `aggregate='secure'`, or give `simulated=True`"
            )
        if self._needs(path):
            raise UsageError(f"{path}: is a file of the run itself; choose another `export`")
        try:
            write_arrays(path, {**self.model.weights, "about": json.dumps(self._exported())})
        except OSError as error:
            raise UsageError(f"{path}: cannot be written ({error.strerror})") from None

    def _needs(self, path: Path) -> bool:
        """Whether this is a file of the run's folder, or its book."""
        settings = self.config.flat()
        own = [] if self.folder is None else list(self.folder.iterdir())
        own += [settings[name] for name in self.config.paths() if settings[name] is not None]
        return path.exists() and any(file.exists() and path.samefile(file) for file in own)

    def _simulation(self) -> str:
        """Why the weights keep no promise; empty where devices were as they must be."""
        if self.config.train.coins == "simulated":
            return (
                "its coins come from the run seed, so whoever trains again with each candidate "
                "label of one device sees which one matches bit by bit"
            )
        if self.config.train.aggregate == "ideal":
            return "its sums were computed in the clear, where every device's part was in sight"
        return ""

    def _exported(self) -> dict[str, Any]:
        """`about` of an exported file."""
        config = self.config
        return {
            "lumos": self.about.lumos,
            "task": config.train.task,
            "profile": config.train.profile,
            "aggregate": config.train.aggregate,
            "coins": config.train.coins,
            "simulated": bool(self._simulation()),
            "promises": self.privacy.promises,
            "relation": RELATION if self.privacy.promises else "none: nothing is promised",
            "settings": plain(
                {name: value for name, value in config.flat().items() if name not in config.paths()}
            ),
            "classes": self.about.classes,
            "features": self.about.features,
        }

    def report(self, path: Path | str | None = None, *, format: str = "html") -> Path:
        """Write one self-contained page of the run.

        Args:
            path: the file; `lumos-report.html` in the working folder by default.
            format: as `REPORTS` has it.
        """
        written: Path = REPORTS[format](self, Path(path or "lumos-report.html"))
        return written

    def save(self, path: Path | str) -> Path:
        """Write a run folder, as `lumos.train(out=…)` does.

        Raises:
            UsageError: there is a run already.
        """
        folder = RunFolder.create(Path(path), self.about)
        folder.save_trees(self.trees, per_device=keeps_device_values(self.config))
        self.write_split(folder)
        for arm, events in self.histories.items():
            folder.arm(arm).write_metrics(events)
        self.write_result(folder)
        if ANSWERS in self._memory:
            self._memory[ANSWERS] = self._memory[ANSWERS].moved(folder.path)
        return folder.path

    def write_split(self, folder: RunFolder) -> None:
        """Write who trains, validates and tests; drawn edges are drawn again when needed."""
        about = self.about.split
        if self._held_out is not None:
            validation, test = self._held_out
            none = np.empty((0, 2), np.int64)
            held = DataSplit(train=none, validation=validation, test=test, origin=about.origin)
            folder.save_split(about, held, len(self.ids))
        elif self._split is not None or self.classes or about.shares is None:
            folder.save_split(about, self.split, len(self.ids))

    def write_result(self, folder: RunFolder) -> None:
        """Write what is known once training is over."""
        model, per_device = self.model, keeps_device_values(self.config)
        write_arrays(folder.path / "model.npz", model.weights, private=True)
        arrays: Arrays = {"ids": _ids_array(self.ids), **model.kept}
        if per_device:
            arrays["embeddings"] = self.embeddings
        if model.logits is not None:
            arrays["logits"] = model.logits
        write_arrays(folder.path / DEVICES, arrays, private=True)
        folder.save_ledger(self.ledger, per_device=per_device)
        write_json(folder.path / "result.json", self.summary(), private=True)

    def summary(self) -> dict[str, Any]:
        """Everything that `lumos train --json` prints."""
        scores = {
            name if arm == MAIN else f"{arm}_{name}": value
            for arm in (MAIN, OWN, CONTROL)
            for name, value in self.scores.get(arm, {}).items()
        }
        about, config = self.about, self.config
        result = Result(
            graph=about.graph,
            devices=about.devices,
            edges=about.edges,
            task=config.train.task,
            profile=config.train.profile,
            backbone=config.model.backbone,
            epsilon=None
            if config.profile.ignores("epsilon", config)
            else plain(config.profile_settings.epsilon),
            settings=about.settings,
            split=self.training.split,
            split_origin=about.split.origin,
            epochs=len(self.history),
            best_epoch=self.training.best_epoch,
            final_loss=self.history[-1].loss,
            improvements=config.improvements(),
            balancer=config.trees.balancer,
            compare=self.trees.compare,
            aggregate=config.train.aggregate,
            coins=config.train.coins,
            seed=about.seed,
            shards=about.shards,
            max_workload=self.trees.max_workload,
            weights=sum(array.size for array in self.model.weights.values()),
            weights_sha256=weights_digest(self.model.weights),
            seconds=self.cost.seconds,
            seconds_per_epoch=self.cost.seconds_per_epoch,
            peak_rss_mb=self.cost.peak_rss_mb,
            ranks=self.cost.ranks,
            per_epoch=self.cost.per_epoch,
            ledger=plain(self.ledger.totals()),
            tree_ledger=plain(self.trees.ledger.totals()),
            exposed=self.privacy.exposed,
            promises=self.privacy.promises,
            choice=self.training.choice,
            cautions=self.training.cautions,
            estimates=self.training.estimates,
            notes=about.notes,
        )
        return {**scores, **msgspec.to_builtins(result)}


def _found(source: dict[str, Any], data_dir: Path | None) -> Graph:
    """The graph that `run.json` names.

    Raises:
        InputError: what it says there are no arguments of `load`.
    """
    try:
        return load(**{**source, "data_dir": data_dir})
    except TypeError:
        raise InputError("run.json does not say where the graph lies; train again") from None


def _ids_array(ids: Sequence[str]) -> "np.ndarray[Any, Any]":
    """Whole numbers where all ids are written as such, text otherwise."""
    if (
        isinstance(ids, IdTexts)
        and isinstance(ids.values, np.ndarray)
        and ids.values.dtype.kind == "i"
    ):
        return ids.values
    text = np.array(ids, np.str_)
    try:
        numbers = text.astype(np.int64)
    except (ValueError, OverflowError):
        return text
    return numbers if np.array_equal(numbers.astype(np.str_), text) else text


def probabilities(logits: Floats) -> Floats:
    """[devices, classes] by softmax."""
    chances: Floats = torch.softmax(torch.from_numpy(np.ascontiguousarray(logits)), dim=1).numpy()
    return chances
