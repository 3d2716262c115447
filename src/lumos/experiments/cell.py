"""A cell: one run of one system on one graph with one seed."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

Kind = Literal["train", "baseline", "trees", "cost"]


@dataclass(frozen=True)
class Cell:
    """One run: its kind, graph, settings and seed."""

    kind: Kind
    graph: str
    """What the user calls the graph."""
    seed: int
    settings: tuple[tuple[str, Any], ...]
    """Sorted by name."""

    @staticmethod
    def of(kind: Kind, graph: str, seed: int = 0, **settings: Any) -> "Cell":
        """A cell; the order of the settings does not matter, nor whether 2 is written 2.0."""
        plain = {name: _canonical(value) for name, value in settings.items()}
        return Cell(kind, graph, seed, tuple(sorted(plain.items())))

    def __getitem__(self, name: str) -> Any:
        return dict(self.settings).get(name)

    def describe(self) -> str:
        """A line for people."""
        what = self["system"] or self["profile"] or self["balancer"] or ""
        parts = [str(what), *(str(self[name]) for name in ("task", "backbone") if self[name])]
        if self["epsilon"] is not None:
            parts.append(f"ε {_text(self['epsilon'])}")
        if self.kind == "train" and self["label_epsilon"] is not None:
            parts.append(f"label ε {_text(self['label_epsilon'])}")
        if self["recovery"]:
            parts.append(f"recovery {self['recovery']}")
        if self["virtual_nodes"] is False:
            parts.append("no virtual nodes")
        if self.kind == "train" and self["balancer"]:
            parts.append(f"balancer {self['balancer']}")
        if self["control"]:
            parts.append("with control")
        return f"{self.kind} {self.graph}: {' '.join(parts)}, seed {self.seed}"


def run_id(cell: Cell, fingerprint: str) -> str:
    """16 hexadecimal digits of kind, settings, seed and the fingerprint of the graph."""
    content = {
        "kind": cell.kind,
        "seed": cell.seed,
        "settings": json_settings(dict(cell.settings)),
        "graph": fingerprint,
    }
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=8).hexdigest()


def json_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON can carry them: infinity as text."""
    return {name: _text(v) if v == math.inf else v for name, v in settings.items()}


def _canonical(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    whole = isinstance(value, float) and math.isfinite(value) and value == int(value)
    return int(value) if whole else value


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
