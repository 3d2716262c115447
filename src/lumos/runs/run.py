"""A finished run: one object, whether it was just trained or read from its folder."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
import numpy as np
from numpy.typing import NDArray

from lumos.device.randomness import PublicRandomness
from lumos.display import DISPLAYS, frame, frame_of_rows
from lumos.errors import InputError, UsageError
from lumos.exchange.observer import LedgerReport
from lumos.graph import Graph, load
from lumos.graph.arrays import IdTexts, Rows, positions
from lumos.graph.facts import fingerprint
from lumos.graph.parts import PartsFolder, is_parts_folder
from lumos.registry import Registry
from lumos.runs import predict as predictions
from lumos.runs.folder import RunFolder, export_weights, keeps_device_values
from lumos.runs.folder import summary as run_summary
from lumos.runs.schema import (
    About,
    PerEpoch,
    RankCost,
    Split,
    TreeSummary,
)
from lumos.runs.text import run_text
from lumos.training.config import Config
from lumos.training.metrics import Scores
from lumos.training.split import DataSplit, EdgeSplit, edges_left, only_edges, split_edges
from lumos.training.trainer import ANSWERS, CONTROL, MAIN, OWN, EpochEvent, LinkPredictions, Outcome
from lumos.typing import Doubles, Floats, Ints

if TYPE_CHECKING:
    import pandas

REPORTS: Registry[Any] = Registry("report", {"html": "lumos.report.run_page:write_page"})
"""Pages of a run by format: a function `(run, path) -> Path`."""


DEPLOYED = (
    "real devices trained this run, and what a device predicts is known to itself alone: ask it "
    "(lumos up --stay, then lumos predict FOLDER/device-17), or predict for new devices from their "
    "features (`new_device`)"
)
"""Message for questions that only a real device itself can answer."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a run."""

    seconds: float
    """From the graph to the result."""
    seconds_per_epoch: float
    peak_rss_mb: float
    """Peak memory of rank 0."""
    ranks: list[RankCost]
    """Cost of each process, in the order of the ranks."""
    per_epoch: PerEpoch
    """Messages, bytes and rounds of a device in one epoch."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunData:
    """The graph of a run and its split, as far as they are at hand; both are found again by name.

    Args:
        about: names the graph and the split.
        graph: the graph, where the run was just trained or read together with it.
        drawn: the split, where it was just made, or is of devices.
        held_out: validation and test edges that were given, of a run that was read from its folder.
    """

    about: About
    graph: Graph | None = None
    drawn: DataSplit | None = None
    held_out: tuple[Ints, Ints] | None = None

    def split(self, data_dir: Path | None = None) -> DataSplit:
        """The split; one of links that was read from its folder is drawn again.

        Args:
            data_dir: folder of named graphs.
        """
        if self.drawn is not None:
            return self.drawn
        if self.about.deployed:
            raise UsageError(
                "real devices trained this run, and each knows its own part of the split"
            )
        origin = self.about.split.origin
        if self.held_out is None:
            return self._drawn_again(data_dir).edges(origin)
        validation, test = self.held_out
        train = self.training_graph(data_dir).edge_list()
        return DataSplit(train=train, validation=validation, test=test, origin=origin)

    def training_graph(self, data_dir: Path | None = None) -> Graph:
        """The graph of a run of links with its training edges only."""
        if self.drawn is None and self.held_out is None:
            return self._drawn_again(data_dir).training
        graph = self.whole_graph(data_dir)
        if self.drawn is not None:
            return only_edges(graph, self.drawn.train)
        return only_edges(graph, edges_left(graph, *(self.held_out or ())))

    def _drawn_again(self, data_dir: Path | None) -> EdgeSplit:
        shares = self.about.split.shares
        if shares is None:
            raise InputError("run.json does not say how edges were split; train again")
        return split_edges(self.whole_graph(data_dir), PublicRandomness(self.about.seed), shares)

    def whole_graph(self, data_dir: Path | None = None) -> Graph:
        """The graph of the run; read again by its name or path where the run was loaded.

        Args:
            data_dir: where named graphs lie.

        Raises:
            UsageError: the graph was in memory only.
            InputError: there is another graph at its place now.
        """
        if self.about.deployed:
            raise UsageError(DEPLOYED)
        if self.graph is not None:
            return self.graph
        if "spec" not in self.about.source:
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


def _found(source: dict[str, Any], data_dir: Path | None) -> Graph:
    """The graph that `run.json` names.

    Raises:
        InputError: what it says there are no arguments of `load`.
    """
    try:
        return load(**{**source, "data_dir": data_dir})
    except TypeError:
        raise InputError("run.json does not say where the graph lies; train again") from None


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A finished run. Scores, trees and workloads are the observer's.

    run = lumos.train("demo", label_epsilon=2.0)
    run.metrics, run.own, run.guarantees
    run.predict(run.split.test), run.predict_proba(run.split.test), run.predict(ids=[17, 18])
    run.save("runs/demo")
    run = lumos.load_run("runs/demo")
    """

    about: About = field(repr=False)
    """Description of the run: graph, seed, shards, settings, versions."""
    config: Config
    scores: dict[str, Scores]
    """By variant: `run`, and as far as they were trained `own` and `control`."""
    histories: dict[str, list[EpochEvent]] = field(repr=False)
    """By variant, one event per epoch."""
    split_sizes: Split
    """Numbers of devices, or of edges, that train, validate and test."""
    model: Outcome = field(repr=False)
    """Weights, embeddings and what else was trained; warnings, estimates, guarantees, exposure."""
    cost: Cost = field(repr=False)
    trees: TreeSummary = field(repr=False)
    ids: IdTexts = field(repr=False)
    """Original ids of the devices, as text, in the order of all arrays."""
    data: RunData = field(repr=False)
    folder: Path | None = field(default=None, repr=False)
    """Folder of the run, if it was written or read."""
    memory: dict[str, Any] = field(default_factory=dict, repr=False)
    """Results of earlier questions, and without a folder the answers of devices."""

    def __repr__(self) -> str:
        return run_text(self)

    def _repr_html_(self) -> str:
        """For notebooks: scores of all variants, what was learnt, the guarantee."""
        shown: str = DISPLAYS["run"](self)
        return shown

    @property
    def metrics(self) -> Scores:
        """Scores of the run itself.

        Raises:
            UsageError: real devices trained, and nobody knows their scores.
        """
        if self.about.deployed:
            raise UsageError(
                "real devices trained this run, and nobody knows its scores; `model.estimates` "
                "has what their noisy sums tell"
            )
        return self.scores[MAIN]

    @property
    def own(self) -> Scores | None:
        """Scores of the local model (no neighbours)."""
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
    def ledger(self) -> LedgerReport:
        """Counts of what passed in training; `trees.ledger` has what passed before."""
        return self.model.ledger

    @property
    def warnings(self) -> list[str]:
        """Reasons why scores mean less than they seem to, one sentence each; the worst first."""
        return self.model.warnings

    @property
    def guarantees(self) -> list[dict[str, Any]]:
        """The table of guarantees, row by row; empty where none is made."""
        return self.model.guarantees

    @property
    def split(self) -> DataSplit:
        """The split: devices or edges that train, validate and test.

        `train`, `validation` and `test` are rows of devices, as in `ids` and in all arrays; for
        links they are edges, [edges, 2] of rows. `origin` says in one sentence where the split
        comes from.
        """
        return self.data.split()

    @property
    def graph(self) -> Graph | None:
        """The graph, where the run was just trained or read together with it."""
        return self.data.graph

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
    def classes(self) -> NDArray[Any]:
        """[classes] the labels in the type of the graph's: the columns of `predict_proba`.

        Labels of a file are text. None for link.
        """
        if self.graph is not None and self.graph.class_values is not None and self.class_names:
            return self.graph.class_values
        return self.about.class_values()

    @property
    def class_names(self) -> list[str]:
        """Names of the classes as reports write them, in the order of `classes`; none for link."""
        return self.about.classes

    def frame(self, what: str) -> "pandas.DataFrame":
        """Scores, history, predictions or guarantees as a frame of pandas.

        Args:
            what: `scores`: `variant` (`run`, `own`, `control`), `score` (as `metrics` has it),
                `value`. `history`: the fields of `EpochEvent`, NaN where an epoch has no loss or
                score. `predictions`: `device` (original id, as text), `predicted` (one of
                `classes`), and `p(…)` for the probability of each class, by name. `guarantees`:
                `about`, a column for each role or way out, and the numbers of
                `lumos.training.guarantees`; empty where none is made.

        Raises:
            UsageError: there is no such frame, or the run predicts links.
        """
        if what == "scores":
            rows = [
                {"variant": variant, "score": name, "value": value}
                for variant, scores in self.scores.items()
                for name, value in scores.items()
                if isinstance(value, int | float)
            ]
            return frame_of_rows(rows, ("variant", "score", "value"))
        if what == "history":
            events = [event for history in self.histories.values() for event in history]
            rows = [msgspec.to_builtins(event) for event in events]
            found = frame_of_rows(rows, EpochEvent.__struct_fields__)
            return found.astype({"loss": float, "score": float})
        if what == "predictions":
            chances = self.predict_proba()
            named = {f"p({name})": chances[:, at] for at, name in enumerate(self.class_names)}
            return frame({"device": list(self.ids), "predicted": self.predict(), **named})
        if what == "guarantees":
            columns = list(self.guarantees[0]) if self.guarantees else ["about"]
            return frame_of_rows(self.guarantees, columns)
        raise UsageError(
            f"there is no frame of {what!r}; choose scores, history, predictions or guarantees"
        )

    def predict(self, rows: Rows = None, *, ids: Iterable[int | str] | None = None) -> NDArray[Any]:
        """[devices] the most likely class of each device, unlabelled ones too.

        The result has the type of the graph's labels: whole numbers where `data.y` has some, text
        where labels are text.

        Args:
            rows: positions of devices, as in all arrays: whole numbers, a mask over all devices, a
                slice; a tensor or an array. By default all devices.
            ids: original ids, in place of positions.
        """
        found: NDArray[Any] = self.classes[self.predict_proba(rows, ids=ids).argmax(axis=1)]
        return found

    def predict_proba(self, rows: Rows = None, *, ids: Iterable[int | str] | None = None) -> Floats:
        """[devices, classes] what the model believes of each device; columns as in `classes`.

        Args:
            rows: positions of devices, as `predict` takes them.
            ids: original ids, in place of positions.
        """
        if self.model.logits is None:
            raise UsageError(
                DEPLOYED
                if self.about.deployed
                else "this run predicts links and has no classes; use predict_links"
            )
        if ids is None:
            return predictions.probabilities(self.model.logits[positions(rows, len(self.ids))])
        if rows is not None:
            raise UsageError("give positions or `ids`, not both")
        return predictions.probabilities(self.model.logits[self.ids.rows(ids)])

    def predict_links(
        self,
        edge_index: Any = None,
        *,
        ids: Sequence[tuple[int | str, int | str]] | None = None,
        **how: Unpack[predictions.AskOptions],
    ) -> Doubles:
        """[pairs] probability of an edge between the two devices of each pair.

        Where a profile scores a pair at one of its ends, that is the first.

        Args:
            edge_index: [2, pairs] positions of devices, as PyG has them: a tensor or an array.
            ids: pairs of original ids, in place of positions.
            how: `secure`, `workers`, `progress` and `data_dir`, as `ask_links` takes them.
        """
        return self.ask_links(edge_index, ids=ids, **how).probability

    def ask_links(
        self,
        edge_index: Any = None,
        *,
        ids: Sequence[tuple[int | str, int | str]] | None = None,
        **how: Unpack[predictions.AskOptions],
    ) -> LinkPredictions:
        """Let the first device of each pair ask the second, and score the pair.

        In the strict profile a device gives a limited number of answers in its life. They are
        counted, and kept: in the run folder, or with this object. A pair beyond the
        limit is scored by what the first device knows alone.

        Args:
            edge_index: [2, pairs] positions of devices, as PyG has them: a tensor or an array.
            ids: pairs of original ids, in place of positions.
            how: `secure=True` for real cryptography between the two devices, otherwise computed in
                the clear; `workers`, processes for it (by default one per core); `progress`, a
                callback `(answered, asked)`; `data_dir`, where named graphs lie: in the strict
                profile devices compute their vectors anew from the graph, since no file keeps them.
        """
        if (edge_index is None) == (ids is None):
            raise UsageError("name pairs by `edge_index`, [2, pairs] positions, or by `ids`")
        if ids is None:
            pairs = predictions.pairs_of(edge_index, len(self.ids))
        else:
            pairs = self.ids.rows([end for pair in ids for end in pair]).reshape(-1, 2)
        return predictions.ask_links(self, pairs, **how)

    def suggest(
        self,
        device: int | str,
        candidates: Sequence[int | str],
        most: int = 10,
        **how: Unpack[predictions.AskOptions],
    ) -> list[tuple[str, float]]:
        """Return the candidates that the device is most likely linked with, with probabilities.

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
        found = self.ask_links(ids=[(str(device), name) for name in names], **how)
        order = np.lexsort((-found.probability, ~found.answered))[:most]
        return [(names[place], float(found.probability[place])) for place in order]

    def export(self, path: Path | str, *, simulated: bool = False) -> None:
        """Write the weights and what is needed to use them as an npz (docs/run-folder.md).

        The file has the weights, the table of guarantees, and settings without any path. It has no
        id, no degree and no array over devices.

        Args:
            simulated: also where randomness came from the seed, or sums computed in the clear: such
                weights keep none of the guarantees.

        Raises:
            UsageError: the run was a simulation, and `simulated` is not given.
        """
        export_weights(self, Path(path), simulated=simulated)

    def report(self, path: Path | str | None = None, *, format: str = "html") -> Path:
        """Write one self-contained page of the run.

        Args:
            path: the file; `lumos-report.html` in the working folder by default.
            format: as `REPORTS` has it.
        """
        written: Path = REPORTS[format](self, Path(path or "lumos-report.html"))
        return written

    def summary(self) -> dict[str, Any]:
        """Return everything that `lumos train --json` prints."""
        return run_summary(self)

    def save(self, path: Path | str) -> Path:
        """Write a run folder, as `lumos.train(out=…)` does.

        Raises:
            UsageError: there is a run already.
        """
        folder = RunFolder.create(Path(path), self.about)
        per_device = keeps_device_values(self.config, deployed=self.about.deployed)
        folder.save_trees(self.trees, per_device=per_device)
        for variant, events in self.histories.items():
            folder.variant(variant).write_metrics(events)
        folder.save_run(self)
        if ANSWERS in self.memory:
            self.memory[ANSWERS] = self.memory[ANSWERS].moved(folder.path)
        return folder.path
