"""Scoring pairs: what an asker knows, what a teller tells, and the public weights between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from lumos.model import ModelSettings
from lumos.strict.likeness import Heard, likeness
from lumos.strict.scorer import Linear, Pairs, Tree
from lumos.training.folder import Arrays

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]

CANDIDATES = ("own", "evidence", "backbone")
IDS = "ids"
"""The score by colours alone: told beside the others, and never chosen."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scorer:
    """Everything public that a score depends on."""

    settings: ModelSettings
    devices: int
    """Number of devices in the federation."""
    usual: list[Doubles] = field(repr=False)
    """For each kind of symbol [hops, size]: shares among all that is heard."""
    trust: Doubles = field(repr=False)
    backbone: Doubles = field(repr=False)

    @staticmethod
    def linear(hops: int, kinds: int) -> Linear:
        """The regressions on likeness: by own features, with colours by ids, and by evidence."""
        every = (hops + 1) ** 2
        return Linear([(0, 1), *[(every, 2 * every)] * (kinds > 1), (0, kinds * every)])

    @property
    def symbols(self) -> int:
        """k."""
        return int(self.usual[0].shape[1])

    def tree(self) -> Tree:
        """The tree network, with its weights."""
        tree = Tree(self.settings, self.symbols, np.random.default_rng(0))
        tree.load(self.backbone)
        return tree

    def pairs(
        self,
        heard: list[Heard],
        entries: Ints,
        rows: Ints,
        told: Bits,
        left_out: list[Bits] | None = None,
    ) -> Pairs:
        """What askers know of pairs.

        Args:
            heard: for each kind of symbol.
            entries: [devices] the devices' own entries of the codebook.
            rows: [pairs] the askers, not decreasing.
            told: [pairs, kinds · (1 + hops · many)] what the tellers told, kind by kind.
            left_out: for each kind [pairs, hops] what came from the teller itself.
        """
        parts = np.split(told, len(heard), axis=1)
        without: Sequence[Bits | None] = left_out or [None] * len(heard)
        alike = [
            likeness(ear, usual, rows, part, out)
            for ear, usual, part, out in zip(heard, self.usual, parts, without, strict=True)
        ]
        first, symbols = heard[0], parts[0].astype(np.int64)
        many = (symbols.shape[1] - 1) // first.hops
        degree, counts = first.degree[rows], first.counts_at(1)[rows]
        if left_out is not None:
            degree = degree - 1
            counts[np.arange(len(rows)), left_out[0][:, 0]] -= 1
        return Pairs(
            rows=rows,
            likeness=np.concatenate(alike, axis=1),
            own=entries[rows],
            shares=counts / np.maximum(degree, 1)[:, None],
            theirs=symbols[:, 0],
            their_shares=np.eye(first.size)[symbols[:, 1 : 1 + many]].mean(axis=1),
            prior=np.log((degree + 1) / self.devices),
        )

    def scores(self, pairs: Pairs) -> dict[str, Doubles]:
        """[pairs] by every candidate, and by ids: logits of being an edge."""
        hops, kinds = len(self.usual[0]), len(self.usual)
        own, *ids, evidence = self.linear(hops, kinds).scores(self.trust, pairs.likeness)
        found = {"own": own, "evidence": evidence, "backbone": evidence + self.tree().scores(pairs)}
        if ids:
            found[IDS] = ids[0]
        return {name: score + pairs.prior for name, score in found.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Linked:
    """What the observer of a finished run has: every asker's knowledge, every teller's answer."""

    scorer: Scorer
    choice: str
    """The candidate that validation chose."""
    embeddings: npt.NDArray[np.float32] = field(repr=False)
    """[devices, width] h."""
    heard: list[Heard] = field(repr=False)
    entries: Ints = field(repr=False)
    """[devices]"""
    answers: Bits = field(repr=False)
    """[devices, kinds · (1 + hops · many)] what whoever asks is told."""

    @staticmethod
    def gathered(parts: list["Linked"], order: Ints) -> "Linked":
        """Of all shards, in the order of the devices."""
        kinds = zip(*(part.heard for part in parts), strict=True)
        return Linked(
            scorer=parts[0].scorer,
            choice=parts[0].choice,
            embeddings=np.concatenate([part.embeddings for part in parts])[order],
            heard=[Heard.joined(list(kind), order) for kind in kinds],
            entries=np.concatenate([part.entries for part in parts])[order],
            answers=np.concatenate([part.answers for part in parts])[order],
        )

    def scores(self, asker: Ints, teller: Ints) -> dict[str, Doubles]:
        """[pairs] as the asker scores them: by every candidate, and by ids."""
        order = np.argsort(asker, kind="stable")
        pairs = self.scorer.pairs(
            self.heard, self.entries, asker[order], self.answers[teller[order]]
        )
        back = np.argsort(order, kind="stable")
        return {name: score[back] for name, score in self.scorer.scores(pairs).items()}

    def at_both_ends(self, name: str, pairs: Ints) -> Doubles:
        """[2 · pairs] the scores of one candidate: as the first ends see it, then the second."""
        ends = (pairs[:, 0], pairs[:, 1]), (pairs[:, 1], pairs[:, 0])
        return np.concatenate([self.scores(*asked)[name] for asked in ends])

    def arrays(self) -> Arrays:
        """What `of` needs beside the weights."""
        found: Arrays = {"entries": self.entries, "answers": self.answers}
        for number, heard in enumerate(self.heard):
            found |= {
                f"heard/{number}/own": heard.own,
                f"heard/{number}/degree": heard.degree,
                f"heard/{number}/counts": heard.counts.data,
                f"heard/{number}/columns": heard.counts.indices,
                f"heard/{number}/offsets": heard.counts.indptr,
            }
        return found

    @staticmethod
    def of(settings: ModelSettings, weights: Arrays, known: Arrays) -> "Linked":
        """From the files of a run folder."""
        kinds = sum(name.startswith("usual") for name in weights)
        usual = [weights[f"usual/{number}"] for number in range(kinds)]
        heard = []
        for number in range(kinds):
            own, degree, data, columns, offsets = (
                known[f"heard/{number}/{part}"]
                for part in ("own", "degree", "counts", "columns", "offsets")
            )
            shape = (len(own), usual[number].size)
            heard.append(Heard(own, csr_array((data, columns, offsets), shape), degree))
        return Linked(
            scorer=Scorer(
                settings=settings,
                devices=len(known["entries"]),
                usual=usual,
                trust=weights["trust"],
                backbone=weights["backbone"],
            ),
            choice=CANDIDATES[int(weights["choice"])],
            embeddings=known["embeddings"],
            heard=heard,
            entries=known["entries"],
            answers=known["answers"],
        )
