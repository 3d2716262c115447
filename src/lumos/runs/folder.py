"""The run folder: settings, trees, metrics, checkpoints, model. Plain JSON and npz, no pickle.

run.json            versions, graph, seed, shards, settings
split.npz           who trains, validates and tests; held-out edges that were given
trees.npz           who carries which edge, workloads, degrees, and the ledger of balancing
metrics.jsonl       one line per epoch
checkpoint.npz      where the run stands
model.npz           the selected weights by name
devices.npz         ids of all devices, predictions, and what else predictions need
ledger.npz          the ledger of training
result.json         what `lumos train --json` printed
own/, control/      metrics.jsonl and checkpoint.npz of the variants beside the run

Guarantee, against whoever else uses this machine: the folder is made for its owner only, and so is
every file in it. Guarantee, against whoever reads the folder of a finished run in a profile whose
door `open` is shut: beside ids and predictions it has what devices sent, and nothing else of a
single device. Workloads, degrees and counts of messages stay out, of which only totals, means and
the largest are kept; a checkpoint has such counts, and is removed when the run is finished. Edges
that were given as held out for `link` are in the folder: without them it could not be used again.
"""

import dataclasses
import functools
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

import lumos
from lumos.errors import InputError, UsageError
from lumos.exchange.messages import Door
from lumos.exchange.observer import LedgerReport
from lumos.graph import Graph
from lumos.graph.arrays import IdTexts
from lumos.graph.labels import Role, checked_roles
from lumos.runs.schema import (
    FORMAT,
    About,
    AboutSplit,
    KeptTrees,
    LabelValues,
    Result,
    TreeSummary,
    decode,
    plain,
)
from lumos.storage import (
    append_text,
    one_line,
    private_folder,
    read_arrays,
    write_arrays,
    write_json,
    write_text,
)
from lumos.training.config import Config
from lumos.training.guarantees import guarantees_something
from lumos.training.problem import Problem
from lumos.training.split import DataSplit
from lumos.training.trainer import CONTROL, MAIN, OWN, EpochEvent, weights_digest
from lumos.typing import Arrays, Ints

if TYPE_CHECKING:
    from lumos.runs.run import Run

VARIANTS = {MAIN: "", OWN: "own", CONTROL: "control"}
"""Subfolder of each variant's metrics and checkpoints."""
TREE_ARRAYS: dict[str, type[np.generic]] = {
    "keep": np.bool_,
    "workload": np.int64,
    "degree": np.int64,
}
LEDGER_ARRAYS: dict[str, tuple[Any, ...]] = {
    "messages_sent": (np.int64,),
    "messages_received": (np.int64,),
    "bytes_sent": (np.int64,),
    "bytes_received": (np.int64,),
    "device_rounds": (np.int64,),
    "device_comparison_bits": (np.float64,),
    "pairs": (np.int64, 2),
    "pair_bits": (np.float64,),
    "device_epsilon": (np.float64,),
    "device_epsilon_collusion": (np.float64,),
    "device_edge_epsilon": (np.float64,),
}
"""Arrays of single devices and pairs in a ledger: type, and width where there is one."""
DEVICES, SPLIT = "devices.npz", "split.npz"
CHECKPOINT = "checkpoint.npz"


def keeps_device_values(config: Config, *, deployed: bool = False) -> bool:
    """Return True if the folder keeps values of single devices.

    It does not if door `open` is disabled, or if it is of the coordinator of real devices.
    """
    return Door.OPEN in config.profile.doors and not deployed


@contextmanager
def _undamaged(path: Path, advice: str) -> Iterator[None]:
    """Raise `InputError` where a file that is read inside has wrong contents."""
    wrong = (InputError, KeyError, TypeError, ValueError, RecursionError, msgspec.MsgspecError)
    try:
        yield
    except wrong as error:
        raise InputError(f"{path}: is damaged ({one_line(error)}); {advice}") from None


class RunFolder:
    """The folder of one run, or of one of the variants beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def variant(self, name: str) -> "RunFolder":
        """Return the folder of a variant: this one for the run itself."""
        folder = RunFolder(self.path / VARIANTS[name])
        private_folder(folder.path)
        return folder

    @staticmethod
    def create(path: Path, about: About) -> "RunFolder":
        """Make the folder of a new run.

        Raises:
            UsageError: there is a run already, or this cannot be a folder.
        """
        folder = RunFolder(path)
        known = path / "run.json"
        if known.exists() and (folder.started() or not _is_run_file(known)):
            raise UsageError(
                f"{path}: there is a run already; go on with `resume`, or choose another `out`"
            )
        try:
            private_folder(path)
        except OSError as error:
            raise UsageError(f"{path}: cannot be a folder ({error.strerror})") from None
        (path / "trees.npz").unlink(missing_ok=True)  # of a run that never came to an epoch
        write_json(known, msgspec.to_builtins(about), private=True)
        return folder

    @staticmethod
    def resume(path: Path, about: About, *, repeatable: bool) -> "RunFolder":
        """Find the folder of an interrupted run.

        Args:
            about: the run that is to go on.
            repeatable: whether its randomness can be tossed again.

        Raises:
            UsageError: there is none to resume, or it is another run.
        """
        known = path / "run.json"
        if not known.exists():
            raise UsageError(f"{path}: there is no run to resume; leave `resume` out")
        there = decode(known, About)
        _same_run(path, there, about)
        if not repeatable:
            raise UsageError(
                f"{path}: a run with `randomness='system'` cannot be resumed, because its secrets "
                "were never written; start a new one"
            )
        if there.shards != about.shards:  # it goes on over as many as there are now
            write_json(known, msgspec.to_builtins(about), private=True)
        return RunFolder(path)

    def started(self) -> bool:
        """Return True if the run here, or a variant beside it, has finished its first epoch."""
        metrics = (self.path / place / "metrics.jsonl" for place in VARIANTS.values())
        return any(file.exists() and file.stat().st_size > 0 for file in metrics)

    def finished(self) -> bool:
        """Return True if the run is finished."""
        return (self.path / "result.json").exists()

    def add_metrics(self, event: EpochEvent) -> None:
        """One more line of metrics."""
        append_text(self.path / "metrics.jsonl", _line(event))

    def write_metrics(self, events: list[EpochEvent]) -> None:
        """All lines of metrics."""
        write_text(self.path / "metrics.jsonl", "".join(map(_line, events)), private=True)

    def metrics(self, variant: str) -> list[EpochEvent] | None:
        """All epochs, or None where no metrics were written.

        Raises:
            InputError: a line is damaged.
        """
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return None
        try:
            return [_event(line, variant) for line in path.read_bytes().splitlines()]
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InputError(f"{path}: a line is damaged ({one_line(error)})") from None

    def truncate_metrics(self, epochs: int, variant: str = MAIN) -> list[EpochEvent]:
        """The metrics of the first `epochs` epochs; later lines are removed from the file."""
        path = self.path / "metrics.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        if len(lines) < epochs:
            raise InputError(
                f"{path}: has {len(lines)} lines for {epochs} epochs; restart without `resume`"
            )
        try:
            events = [_event(line, variant) for line in lines[:epochs]]
        except (ValueError, RecursionError, msgspec.MsgspecError):
            raise InputError(f"{path}: a line is damaged; restart without `resume`") from None
        self.write_metrics(events)
        return events

    def checkpoint(self) -> Arrays | None:
        """The last checkpoint, if there is one."""
        path = self.path / CHECKPOINT
        return read_arrays(path) if path.exists() else None

    def save_checkpoint(self, arrays: Mapping[str, npt.ArrayLike]) -> None:
        """Replace the checkpoint."""
        write_arrays(self.path / CHECKPOINT, arrays, private=True)

    def remove_checkpoints(self) -> None:
        """Remove the checkpoints of all variants: they count messages by device."""
        for place in VARIANTS.values():
            (self.path / place / CHECKPOINT).unlink(missing_ok=True)

    def save_trees(self, trees: TreeSummary, *, per_device: bool) -> None:
        """Keep the trees, and what they cost.

        Args:
            per_device: also who carries which edge, workloads, degrees, messages of each device.
        """
        about = KeptTrees(**{name: getattr(trees, name) for name in KeptTrees.__struct_fields__})
        arrays = {name: getattr(trees, name) for name in TREE_ARRAYS} if per_device else {}
        write_arrays(
            self.path / "trees.npz",
            {
                **arrays,
                "about": json.dumps(msgspec.to_builtins(about)),
                **_ledger_arrays(trees.ledger, per_device=per_device),
            },
            private=True,
        )

    def trees(self) -> TreeSummary | None:
        """The trees, if the run got so far.

        Raises:
            InputError: the file is damaged.
        """
        path = self.path / "trees.npz"
        if not path.exists():
            return None
        arrays = read_arrays(path)
        with _undamaged(path, "restart without `resume`"):
            about = msgspec.convert(json.loads(str(arrays["about"])), KeptTrees)
            kept: dict[str, Any] = {
                name: _array(arrays.get(name, np.empty(0, kind)), kind)
                for name, kind in TREE_ARRAYS.items()
            }
            return TreeSummary(**msgspec.structs.asdict(about), ledger=_ledger(arrays), **kept)

    def save_split(self, about: AboutSplit, split: DataSplit, devices: int) -> None:
        """Keep roles of devices, which are public; of edges only those that cannot be drawn again.

        Args:
            devices: number of all devices.
        """
        if split.train.ndim == 1:
            roles = np.full(devices, Role.NOBODY, np.int8)
            roles[split.train] = Role.TRAIN
            roles[split.validation] = Role.VALIDATION
            roles[split.test] = Role.TEST
            write_arrays(self.path / SPLIT, {"roles": roles}, private=True)
        elif about.shares is None:
            held = {"validation": split.validation, "test": split.test}
            write_arrays(self.path / SPLIT, held, private=True)

    def roles(self, about: About) -> Ints:
        """[devices] roles of a run that classifies.

        Raises:
            InputError: the file is missing or damaged.
        """
        arrays = read_arrays(self.path / SPLIT)
        with _undamaged(self.path / SPLIT, "train again"):
            return checked_roles(_array(arrays["roles"], np.int8), about.devices)

    def held_out(self, about: About) -> tuple[Ints, Ints] | None:
        """Validation and test edges that were given, [edges, 2] each; None if they were drawn.

        Raises:
            InputError: the file is missing or damaged.
        """
        if about.split.shares is not None:
            return None
        arrays = read_arrays(self.path / SPLIT)
        with _undamaged(self.path / SPLIT, "train again"):
            validation, test = (
                _array(arrays[name], np.int64, 2) for name in ("validation", "test")
            )
            both = np.concatenate([validation, test])
            if len(both) == 0 or not 0 <= both.min() <= both.max() < about.devices:
                raise ValueError("an edge is of no device")
            return validation, test

    def save_ledger(self, ledger: LedgerReport, *, per_device: bool) -> None:
        """Keep the ledger of training; `per_device` as in `save_trees`."""
        arrays = _ledger_arrays(ledger, per_device=per_device)
        write_arrays(self.path / "ledger.npz", arrays, private=True)

    def ledger(self) -> LedgerReport:
        """The ledger of training.

        Raises:
            InputError: the file is missing or damaged.
        """
        arrays = read_arrays(path := self.path / "ledger.npz")
        with _undamaged(path, "train again"):
            return _ledger(arrays)

    def save_run(self, run: "Run") -> None:
        """Write what is known once training is over; edges that were drawn are drawn again."""
        about, model = run.about.split, run.model
        per_device = keeps_device_values(run.config, deployed=run.about.deployed)
        if run.about.deployed:
            pass  # which device does what is in its own folder
        elif run.data.held_out is not None:
            validation, test = run.data.held_out
            none = np.empty((0, 2), np.int64)
            held = DataSplit(train=none, validation=validation, test=test, origin=about.origin)
            self.save_split(about, held, len(run.ids))
        elif run.data.drawn is not None or run.class_names or about.shares is None:
            self.save_split(about, run.split, len(run.ids))
        write_arrays(self.path / "model.npz", model.weights, private=True)
        arrays: Arrays = {"ids": _ids_array(run.ids), **model.kept}
        if per_device:
            arrays["embeddings"] = run.embeddings
        if model.logits is not None:
            arrays["logits"] = model.logits
        write_arrays(self.path / DEVICES, arrays, private=True)
        self.save_ledger(run.ledger, per_device=per_device)
        write_json(self.path / "result.json", summary(run), private=True)


@functools.cache
def installed() -> dict[str, str]:
    """Return the versions of Python and of the packages that the numbers of a run depend on."""
    packages = {name: version(name) for name in ("torch", "numpy", "scipy")}
    return {"python": platform.python_version(), **packages}


def describe(problem: Problem, source: Mapping[str, Any], config: Config, shards: int) -> About:
    """Return the content of `run.json`."""
    facts, classify = problem.whole or problem.facts, config.train.task == "classify"
    return About(
        lumos=lumos.__version__,
        versions=installed(),
        graph=facts.name,
        source=plain(dict(source)),
        fingerprint=facts.simulated.fingerprint,
        seed=problem.seed,
        shards=shards,
        devices=facts.devices,
        edges=facts.simulated.edges,
        features=facts.feature_count,
        classes=list(facts.classes) if classify else [],
        labels=_label_values(problem.whole_graph) if classify else None,
        notes=list(facts.notes),
        settings=plain(config.flat()),
        split=AboutSplit(origin=problem.origin, name=problem.split, shares=problem.shares),
    )


def _label_values(graph: Graph | None) -> LabelValues | None:
    """Return the labels of the classes of a graph; None where they are the names."""
    values = None if graph is None else graph.class_values
    if values is None or values.dtype.kind == "U":
        return None
    return msgspec.convert({"type": values.dtype.name, "values": values.tolist()}, LabelValues)


def _same_run(path: Path, there: About, wanted: About) -> None:
    if there.format != FORMAT:
        raise InputError(f"{path}: run.json is of another version of Lumos; start a new run")
    if there.fingerprint != wanted.fingerprint:
        raise UsageError(
            f"{path}: the run there is of another graph ({there.graph}); start a new one"
        )
    if there.seed != wanted.seed:
        raise UsageError(f"{path}: the run there has `seed={there.seed}`, not {wanted.seed}")
    for name, value in wanted.settings.items():
        if there.settings.get(name) != value:
            raise UsageError(
                f"{path}: the run there has `{name}={there.settings.get(name)!r}`, not {value!r}"
            )
    if there.split.name != wanted.split.name:
        raise UsageError(f"{path}: the run there has another `split`: {there.split.origin}")
    if there.classes != wanted.classes:
        raise UsageError(f"{path}: the classes of the run there have other names; start a new one")


def _is_run_file(path: Path) -> bool:
    """Return True if a `run.json` is one of ours, of any version."""
    try:
        return "format" in json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _line(event: EpochEvent) -> str:
    record = msgspec.to_builtins(event)
    del record["variant"]  # the folder says which it is
    return json.dumps(record) + "\n"


def _event(line: bytes, variant: str) -> EpochEvent:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    return msgspec.convert({**record, "variant": variant}, EpochEvent)


def _ledger_arrays(ledger: LedgerReport, *, per_device: bool) -> dict[str, npt.ArrayLike]:
    fields = {field.name: getattr(ledger, field.name) for field in dataclasses.fields(ledger)}
    arrays = {name: fields.pop(name) for name in LEDGER_ARRAYS}
    fields["topics"] = {name: vars(line) for name, line in ledger.topics.items()}
    kept = {f"ledger/{name}": array for name, array in arrays.items()} if per_device else {}
    return {"ledger": json.dumps(fields), **kept}


def _ledger(arrays: Arrays) -> LedgerReport:
    """A ledger; without messages by device where the file has none."""
    of_devices = {
        name: _array(arrays.get(f"ledger/{name}", np.empty((0, *width), kind)), kind, *width)
        for name, (kind, *width) in LEDGER_ARRAYS.items()
    }
    totals = json.loads(str(arrays["ledger"]))
    return msgspec.convert({**totals, **of_devices}, LedgerReport, dec_hook=lambda _, array: array)


def _array(array: npt.NDArray[Any], kind: type[np.generic], *width: int) -> npt.NDArray[Any]:
    """[any number, …width] of this kind; everything else is refused."""
    if array.dtype != kind or array.shape[1:] != width or array.ndim != 1 + len(width):
        raise ValueError(f"an array is {array.dtype} {list(array.shape)}")
    return array


def summary(run: "Run") -> dict[str, Any]:
    """Return everything that `lumos train --json` prints."""
    scores = {
        name if variant == MAIN else f"{variant}_{name}": value
        for variant in (MAIN, OWN, CONTROL)
        for name, value in run.scores.get(variant, {}).items()
    }
    about, config = run.about, run.config
    result = Result(
        graph=about.graph,
        devices=about.devices,
        edges=about.edges,
        task=config.train.task,
        profile=config.train.profile,
        backbone=config.model.network,
        epsilon=None
        if config.profile.ignores("label_epsilon", config)
        else plain(config.profile_settings.epsilon),
        settings=about.settings,
        split=run.split_sizes,
        split_origin=about.split.origin,
        epochs=len(run.history),
        best_epoch=run.model.best_epoch,
        final_loss=run.history[-1].loss,
        improvements=config.improvements(),
        balancer=config.trees.balancer,
        compare=run.trees.compare,
        aggregate=config.train.aggregate,
        randomness=config.train.randomness,
        seed=about.seed,
        shards=about.shards,
        max_workload=run.trees.max_workload,
        weights=sum(array.size for array in run.model.weights.values()),
        weights_sha256=weights_digest(run.model.weights),
        seconds=run.cost.seconds,
        seconds_per_epoch=run.cost.seconds_per_epoch,
        peak_rss_mb=run.cost.peak_rss_mb,
        ranks=run.cost.ranks,
        per_epoch=run.cost.per_epoch,
        ledger=plain(run.ledger.totals()),
        tree_ledger=plain(run.trees.ledger.totals()),
        exposed=run.model.exposed,
        guarantees=run.model.guarantees,
        choice=run.model.choice,
        warnings=run.model.warnings,
        estimates=run.model.estimates,
        notes=about.notes,
    )
    return {**scores, **msgspec.to_builtins(result)}


RELATION = (
    "each row of guarantees names its own: 'replaced' is replacement, a value against any other in "
    "its place; 'zeroed', 'absent' and 'added or removed' are in or out"
)
"""Neighbouring relation of the (ε, δ) of each row."""


def export_weights(run: "Run", path: Path, *, simulated: bool) -> None:
    """Write the weights of a run as an npz, as `Run.export` says."""
    if path.suffix != ".npz":
        raise UsageError(f"`export` writes .npz, not {path.name!r}")
    if (reason := _simulation(run)) and not simulated:
        raise UsageError(
            f"these weights are of a simulation and not exported: {reason}; train with "
            "`randomness='system'` and `aggregate='secure'`, or give `simulated=True`"
        )
    if _needs(run, path):
        raise UsageError(f"{path}: is a file of the run itself; choose another `export`")
    try:
        write_arrays(path, {**run.model.weights, "about": json.dumps(_exported(run))})
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})") from None


def _needs(run: "Run", path: Path) -> bool:
    """Return True if this is a file of the run's folder, or of its privacy account."""
    settings = run.config.flat()
    folders = [run.folder, *(settings[name] for name in run.config.paths())]
    own = [file for folder in folders if folder is not None for file in folder.glob("*")]
    return path.exists() and any(path.samefile(file) for file in own)


def _simulation(run: "Run") -> str:
    """Why the weights keep no guarantee; empty where devices were as they must be."""
    if run.config.train.randomness == "seeded":
        return (
            "its randomness comes from the run seed, so whoever trains again with each candidate "
            "label of one device sees which one matches bit by bit"
        )
    if run.config.train.aggregate == "ideal":
        return "its sums were computed in the clear, where every device's part was in sight"
    return ""


def _exported(run: "Run") -> dict[str, Any]:
    """`about` of an exported file."""
    config = run.config
    return {
        "lumos": run.about.lumos,
        "task": config.train.task,
        "profile": config.train.profile,
        "aggregate": config.train.aggregate,
        "randomness": config.train.randomness,
        "simulated": bool(_simulation(run)),
        "guarantees": run.model.guarantees,
        "relation": RELATION
        if guarantees_something(run.model.guarantees)
        else "none: nothing is guaranteed",
        "settings": plain(
            {name: value for name, value in config.flat().items() if name not in config.paths()}
        ),
        "classes": run.about.classes,
        "features": run.about.features,
    }


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
