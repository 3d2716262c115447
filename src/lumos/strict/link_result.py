"""What the observer of a finished run of `link` holds, and how a run folder keeps it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lumos.strict.answer_budget import AnswerBudget
from lumos.strict.link_answers import scores
from lumos.strict.link_levels import Reading
from lumos.strict.settings import StrictSettings
from lumos.typing import Arrays, Doubles, Floats, Ints, Small


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkResult:
    """The vectors of all devices, and what calibration learnt."""

    reading: Reading
    vectors: Small = field(repr=False)
    """[devices, width] as scores use them."""
    embeddings: Floats = field(repr=False)
    """[devices, width] the same before they became integers."""
    degree: Ints = field(repr=False)
    """[devices]"""
    budget: AnswerBudget = field(repr=False)
    strict: StrictSettings
    seed: int

    @classmethod
    def joined(cls, parts: Sequence["LinkResult"], order: Ints) -> "LinkResult":
        """Of all shards, in the order of the devices."""
        first = parts[0]
        budgets = [part.budget for part in parts]
        return LinkResult(
            reading=first.reading,
            vectors=np.concatenate([part.vectors for part in parts])[order],
            embeddings=np.concatenate([part.embeddings for part in parts])[order],
            degree=np.concatenate([part.degree for part in parts])[order],
            budget=AnswerBudget.joined(budgets, order),
            strict=first.strict,
            seed=first.seed,
        )

    def at_both_ends(self, levels: Ints, pairs: Ints) -> Doubles:
        """[2, pairs] scores: as the first ends have them, then the second.

        Args:
            levels: [pairs, 2] as each end learnt it.
        """
        return np.stack([self.scores(levels[:, end], pairs[:, end]) for end in (0, 1)])

    def scores(self, levels: Ints, askers: Ints) -> Doubles:
        """[pairs] logits of being an edge, as the askers have them."""
        degree = self.degree[askers]
        return scores(levels, self.reading.evidence, degree, len(self.degree))

    def estimates(self) -> dict[str, float]:
        """What calibration measured of each way: the AUC of its levels, and its error."""
        read = self.reading
        measured = {f"levels_auc_{way}": value for way, value in read.separation.items()}
        return measured | {f"levels_auc_{way}_error": value for way, value in read.error.items()}

    def arrays(self) -> Arrays:
        """What `of` needs beside the weights."""
        return {"vectors": self.vectors, "degree": self.degree, **self.budget.arrays()}

    @staticmethod
    def of(strict: StrictSettings, seed: int, weights: Arrays, kept: Arrays) -> "LinkResult":
        """From the files of a run folder."""
        return LinkResult(
            reading=Reading.of(weights),
            vectors=kept["vectors"],
            embeddings=kept["embeddings"],
            degree=kept["degree"],
            budget=AnswerBudget.of(kept),
            strict=strict,
            seed=seed,
        )
