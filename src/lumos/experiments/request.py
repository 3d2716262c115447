"""What `lumos reproduce` is to reproduce."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lumos.errors import UsageError
from lumos.experiments.dataset import Dataset
from lumos.experiments.figures import FIGURES
from lumos.experiments.settings import EvaluationSettings


@dataclass(frozen=True, kw_only=True)
class Request:
    """Figures, graphs, profiles and settings."""

    figures: tuple[str, ...]
    datasets: tuple[Dataset, ...]
    profiles: tuple[str, ...]
    settings: EvaluationSettings
    data_dir: Path | None
    command: str
    """The command line, for whoever wants to repeat it."""


def chosen_figures(names: Sequence[str]) -> tuple[str, ...]:
    """The named figures in the paper's order; all of them where none is named."""
    for name in names:
        if name not in FIGURES:
            raise UsageError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
    return tuple(figure for figure in FIGURES if figure in names or not names)
