"""A cell: one run of one system on one graph, and the key by which its result is found again."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

Kind = Literal["train", "baseline", "trees", "cost"]
SOURCE = Path(__file__).parents[1]
"""The folder of the package `lumos`."""

_TRAINING = (
    "aggregate",
    "compare",
    "device",
    "encode",
    "exchange",
    "graph",
    "model",
    "training",
    "trees",
)
_PARTS: dict[Kind, tuple[str, ...]] = {
    "train": _TRAINING,
    "baseline": (
        "aggregate/noise.py",
        "baselines",
        "device",
        "encode",
        "graph",
        "model",
        "training/metrics.py",
        "training/private_data.py",
        "training/split.py",
    ),
    "trees": ("compare", "device", "exchange", "graph", "trees", "experiments/structure.py"),
    "cost": (*_TRAINING, "experiments/cost.py"),
}
"""Sources that can change the result of a cell of each kind; `strict` comes in with its profile."""
_SYMBOLS = "encode/mechanisms"
"""Which the paper's profile does not use."""


@dataclass(frozen=True)
class Cell:
    """One run: what, on which graph, with which settings and seed."""

    kind: Kind
    graph: str
    """What the user calls the graph."""
    seed: int
    settings: tuple[tuple[str, Any], ...]
    """Sorted by name."""

    @staticmethod
    def of(kind: Kind, graph: str, seed: int = 0, **settings: Any) -> "Cell":
        """A cell; the order of the settings does not matter, nor whether 2 is written 2.0."""
        plain = {name: _number(value) for name, value in settings.items()}
        return Cell(kind, graph, seed, tuple(sorted(plain.items())))

    def __getitem__(self, name: str) -> Any:
        return dict(self.settings).get(name)

    def words(self) -> str:
        """What people call it."""
        what = self["system"] or self["profile"] or self["balancer"] or ""
        parts = [str(what), *(str(self[name]) for name in ("task", "backbone") if self[name])]
        if self["epsilon"] is not None:
            parts.append(f"ε {_shown(self['epsilon'])}")
        if self["recovery"]:
            parts.append(f"recovery {self['recovery']}")
        if self["virtual_nodes"] is False:
            parts.append("no virtual nodes")
        if self.kind == "train" and self["balancer"]:
            parts.append(f"balancer {self['balancer']}")
        if self["control"]:
            parts.append("with control")
        return f"{self.kind} {self.graph}: {' '.join(parts)}, seed {self.seed}"


@dataclass(frozen=True)
class Key:
    """Where a result is found: the run, and the code that made it."""

    run: str
    """Of kind, settings, seed and graph."""
    code: str
    """Of the sources that can change the result."""

    def __str__(self) -> str:
        return f"{self.run}-{self.code}"


def key_of(cell: Cell, fingerprint: str, source: Path = SOURCE) -> Key:
    """The key of a cell on the graph with this fingerprint."""
    what = {
        "kind": cell.kind,
        "seed": cell.seed,
        "settings": plain(dict(cell.settings)),
        "graph": fingerprint,
    }
    text = json.dumps(what, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return Key(_digest(text.encode()), code_version(cell.kind, cell["profile"] == "strict", source))


@cache
def code_version(kind: Kind, strict: bool = False, source: Path = SOURCE) -> str:
    """16 digits that change with every source that can change a result of this kind."""
    parts = _PARTS[kind] + (("strict",) if strict else ())
    digest = blake2b(digest_size=8)
    files = {file for part in parts for file in _files(source / part)}
    if kind in ("train", "cost") and not strict:
        files -= set(_files(source / _SYMBOLS))
    for path in sorted(files):
        name, content = path.relative_to(source).as_posix(), path.read_bytes()
        digest.update(f"{name}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON can carry them: infinity as text."""
    return {name: _shown(v) if v == math.inf else v for name, v in settings.items()}


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else list(path.rglob("*.py"))


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    whole = isinstance(value, float) and math.isfinite(value) and value == int(value)
    return int(value) if whole else value


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
