"""Scoring pairs: what an asker knows, what a teller tells, and the public weights between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from lumos.model.settings import ModelSettings
from lumos.strict.score_models import LinearScore, ScoredPairs, TreeScore
from lumos.strict.similarity import ReceivedByHop, likeness
from lumos.training.outcome import IDS
from lumos.typing import Arrays, Bytes, Doubles, Ints

CANDIDATES = ("own", "evidence", "backbone")


@dataclass(frozen=True, kw_only=True, eq=False)
class PairScorer:
    """Everything public that a score depends on."""

    settings: ModelSettings
    devices: int
    """Number of devices in the federation."""
    usual: list[Doubles] = field(repr=False)
    """For each kind of symbol [hops, size]: shares among all that is heard."""
    trust: Doubles = field(repr=False)
    backbone: Doubles = field(repr=False)

    @staticmethod
    def linear(hops: int, kinds: int) -> LinearScore:
        """The regressions on likeness: by own features, with colours by ids, and by evidence."""
        every = (hops + 1) ** 2
        return LinearScore([(0, 1), *[(every, 2 * every)] * (kinds > 1), (0, kinds * every)])

    @property
    def symbols(self) -> int:
        """k."""
        return int(self.usual[0].shape[1])

    def tree(self) -> TreeScore:
        """The tree network, with its weights."""
        tree = TreeScore(self.settings, self.symbols, np.random.default_rng(0))
        tree.load(self.backbone)
        return tree

    def pairs(
        self,
        heard: list[ReceivedByHop],
        entries: Ints,
        rows: Ints,
        told: Bytes,
        left_out: list[Bytes] | None = None,
    ) -> ScoredPairs:
        """What askers know of pairs.

        Args:
            heard: for each kind of symbol.
            entries: [devices] the devices' own entries of the codebook.
            rows: [pairs] the askers, not decreasing.
            told: [pairs, kinds · (1 + hops · many)] what the tellers told, kind by kind.
            left_out: for each kind [pairs, hops] what came from the teller itself.
        """
        parts = np.split(told, len(heard), axis=1)
        without: Sequence[Bytes | None] = left_out or [None] * len(heard)
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
        return ScoredPairs(
            rows=rows,
            likeness=np.concatenate(alike, axis=1),
            own=entries[rows],
            shares=counts / np.maximum(degree, 1)[:, None],
            theirs=symbols[:, 0],
            their_shares=np.eye(first.size)[symbols[:, 1 : 1 + many]].mean(axis=1),
            prior=np.log((degree + 1) / self.devices),
        )

    def scores(self, pairs: ScoredPairs) -> dict[str, Doubles]:
        """[pairs] by every candidate, and by ids: logits of being an edge."""
        hops, kinds = len(self.usual[0]), len(self.usual)
        own, *ids, evidence = self.linear(hops, kinds).scores(self.trust, pairs.likeness)
        found = {"own": own, "evidence": evidence, "backbone": evidence + self.tree().scores(pairs)}
        if ids:  # by colours alone: shown beside the others, and never chosen
            found[IDS] = ids[0]
        return {name: score + pairs.prior for name, score in found.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkResult:
    """What the observer of a finished run has: every asker's knowledge, every teller's answer."""

    scorer: PairScorer
    choice: str
    """The candidate that validation chose."""
    embeddings: npt.NDArray[np.float32] = field(repr=False)
    """[devices, width] h."""
    heard: list[ReceivedByHop] = field(repr=False)
    entries: Ints = field(repr=False)
    """[devices]"""
    answers: Bytes = field(repr=False)
    """[devices, kinds · (1 + hops · many)] what whoever asks is told."""

    @classmethod
    def joined(cls, parts: Sequence["LinkResult"], order: Ints) -> "LinkResult":
        """Of all shards, in the order of the devices."""
        kinds = zip(*(part.heard for part in parts), strict=True)
        return LinkResult(
            scorer=parts[0].scorer,
            choice=parts[0].choice,
            embeddings=np.concatenate([part.embeddings for part in parts])[order],
            heard=[ReceivedByHop.joined(list(kind), order) for kind in kinds],
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
    def of(settings: ModelSettings, weights: Arrays, known: Arrays) -> "LinkResult":
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
            heard.append(ReceivedByHop(own, csr_array((data, columns, offsets), shape), degree))
        return LinkResult(
            scorer=PairScorer(
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
