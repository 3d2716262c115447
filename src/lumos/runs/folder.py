"""The run folder: settings, trees, metrics, checkpoints, model. Plain JSON and npz, no pickle.

    run.json            versions, graph, seed, shards, settings
    trees.npz           who carries which edge, workloads, degrees, and what it cost
    metrics.jsonl       one line per epoch
    checkpoint.npz      where the run stands
    model.npz           the selected weights by name
    embeddings.npz      ids and embeddings of all devices
    result.json         what `lumos train --json` printed
    own/, control/      metrics.jsonl and checkpoint.npz of the runs beside it

Files are written beside their place and then moved there, so an interruption leaves the old one.
"""

import dataclasses
import json
import os
import platform
from collections.abc import Mapping
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

import lumos
from lumos.errors import InputError, UsageError
from lumos.exchange.ledger import LedgerReport, TopicLine
from lumos.graph import Graph
from lumos.training.settings import Config
from lumos.trees.balance import Balanced
from lumos.typing import Arrays

FORMAT = 1


def write_json(path: Path, content: Any) -> None:
    """Write JSON, all or nothing."""
    _replace(path, lambda place: place.write_text(json.dumps(content, indent=1) + "\n", "utf-8"))


def write_arrays(path: Path, arrays: Mapping[str, npt.ArrayLike]) -> None:
    """Write an npz, all or nothing."""

    def save(place: Path) -> None:
        with place.open("wb") as file:
            named: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
            np.savez(file, **named)

    _replace(path, save)


def read_json(path: Path) -> Any:
    """Read JSON that this program wrote."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; is this the folder of a run?") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error})") from None


def read_arrays(path: Path) -> Arrays:
    """Read an npz that this program wrote."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; is this the folder of a run?") from None
    except Exception as error:  # zipfile, zlib and numpy have many ways to say "broken"
        raise InputError(f"{path}: is damaged ({type(error).__name__}); start anew") from None


def fingerprint(graph: Graph) -> str:
    """16 hexadecimal digits that tell this graph, features and labels included, from others."""
    digest = blake2b(digest_size=8)
    parts: list[Any] = [graph.offsets, graph.neighbours]
    if graph.labels is not None:
        parts.append(graph.labels)
    if issparse(graph.features):
        matrix = csr_array(graph.features)
        parts += [matrix.indptr, matrix.indices, matrix.data]
        if matrix.shape[1] != int(matrix.indices.max(initial=-1)) + 1:  # nobody has the last ones
            parts.append(np.array(matrix.shape[1]))
    elif graph.features is not None:
        parts.append(graph.features)
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


class RunFolder:
    """The folder of one run, or of one of the runs beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def beside(self, name: str) -> "RunFolder":
        """The folder of a run beside this one, as `own`."""
        (self.path / name).mkdir(parents=True, exist_ok=True)
        return RunFolder(self.path / name)

    @staticmethod
    def open(
        path: Path,
        graph: Graph,
        source: Mapping[str, Any],
        config: Config,
        seed: int,
        shards: int,
        *,
        resume: bool,
    ) -> "RunFolder":
        """Make the folder of a new run, or find that of an interrupted one.

        Raises:
            UsageError: there is a run already, or none to resume, or it is another run.
        """
        folder = RunFolder(path)
        wanted = {
            "format": FORMAT,
            "graph": graph.name,
            "source": dict(source),
            "fingerprint": fingerprint(graph),
            "seed": seed,
            "shards": shards,
            "features": graph.feature_count,
            "classes": list(graph.classes) if config.train.task == "classify" else [],
            "settings": _plain(config.flat()),
        }
        known = path / "run.json"
        if resume:
            if not known.exists():
                raise UsageError(f"{path}: there is no run to resume; leave --resume out")
            _same_run(path, read_json(known), wanted)
            if config.train.coins == "system":
                raise UsageError(
                    f"{path}: a run with --coins system cannot be resumed, because its secrets "
                    "were never written; start anew"
                )
            return folder
        if known.exists() and (folder.started() or "format" not in read_json(known)):
            raise UsageError(
                f"{path}: there is a run already; go on with --resume, or choose another --out"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: cannot be a folder ({error.strerror})") from None
        (path / "trees.npz").unlink(missing_ok=True)  # of a run that never came to an epoch
        write_json(known, {"lumos": lumos.__version__, "versions": _versions(), **wanted})
        return folder

    def started(self) -> bool:
        """Whether the run here, or one beside it, has come to its first epoch."""
        return any(
            (self.path / arm / "metrics.jsonl").exists()
            and (self.path / arm / "metrics.jsonl").stat().st_size > 0
            for arm in ("", "own", "control")
        )

    def add_metrics(self, record: Mapping[str, Any]) -> None:
        """One more line of metrics."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def keep_metrics(self, epochs: int) -> list[dict[str, Any]]:
        """The metrics of the first `epochs` epochs; later lines are removed from the file."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        records = []
        for line in lines[:epochs]:
            try:
                records.append(json.loads(line))
            except ValueError:
                raise InputError(f"{path}: a line is not JSON; start anew") from None
        if len(records) < epochs:
            raise InputError(f"{path}: {len(records)} lines for {epochs} epochs; start anew")
        text = "".join(line + "\n" for line in lines[:epochs])
        _replace(path, lambda place: place.write_text(text, "utf-8"))
        return records

    def checkpoint(self) -> Arrays | None:
        """The last checkpoint, if there is one."""
        path = self.path / "checkpoint.npz"
        return read_arrays(path) if path.exists() else None

    def save_checkpoint(self, arrays: Mapping[str, npt.ArrayLike]) -> None:
        """Replace the checkpoint."""
        write_arrays(self.path / "checkpoint.npz", arrays)

    def save_trees(self, balanced: Balanced) -> None:
        """Keep the trees, and what they cost."""
        ledger = balanced.ledger
        fields = {field.name: getattr(ledger, field.name) for field in dataclasses.fields(ledger)}
        arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
        rest = {name: value for name, value in fields.items() if name not in arrays}
        rest["topics"] = {name: vars(line) for name, line in ledger.topics.items()}
        about = {"ledger": rest, "history": balanced.history, "seconds": balanced.seconds}
        write_arrays(
            self.path / "trees.npz",
            {
                "keep": balanced.keep,
                "workload": balanced.workload,
                "degree": np.diff(balanced.graph.offsets),
                "about": json.dumps(about),
                **{f"ledger/{name}": array for name, array in arrays.items()},
            },
        )

    def trees(self, graph: Graph, config: Config) -> Balanced | None:
        """The trees, if the run got so far."""
        path = self.path / "trees.npz"
        if not path.exists():
            return None
        arrays = read_arrays(path)
        about = json.loads(str(arrays["about"]))
        rest = about["ledger"]
        rest["topics"] = {name: TopicLine(**line) for name, line in rest["topics"].items()}
        rest["comparison_lengths"] = tuple(rest["comparison_lengths"])
        known: dict[str, Any] = {
            name.removeprefix("ledger/"): array
            for name, array in arrays.items()
            if name.startswith("ledger/")
        }
        return Balanced(
            graph=graph,
            settings=config.trees,
            keep=arrays["keep"],
            workload=arrays["workload"],
            ledger=LedgerReport(**rest, **known),
            history=[(int(step), int(largest)) for step, largest in about["history"]],
            compare=config.trees.compare,
            coins=config.train.coins,
            seconds=about["seconds"],
        )


def _same_run(path: Path, found: Any, wanted: Mapping[str, Any]) -> None:
    known = isinstance(found, dict) and found.keys() >= wanted.keys()
    if not known or found["format"] != FORMAT:
        raise InputError(f"{path}: run.json is of another version of Lumos; start anew")
    if found["fingerprint"] != wanted["fingerprint"]:
        raise UsageError(
            f"{path}: the run there is of another graph ({found['graph']}); start anew"
        )
    for name in ("seed", "shards"):
        if found[name] != wanted[name]:
            raise UsageError(
                f"{path}: the run there has --{name} {found[name]}, not {wanted[name]}"
            )
    for name, value in wanted["settings"].items():
        if found["settings"].get(name) != value:
            raise UsageError(
                f"{path}: the run there has {name} = {found['settings'].get(name)!r}, not {value!r}"
            )


def _versions() -> dict[str, str]:
    """What the figures of a run may depend on, beside Lumos."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "scipy")},
    }


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON can carry them: infinity and paths as text."""
    return {
        name: str(value) if value == float("inf") or isinstance(value, Path) else value
        for name, value in settings.items()
    }


def _replace(path: Path, write: Any) -> None:
    place = path.with_name(path.name + ".new")
    write(place)
    os.replace(place, path)
