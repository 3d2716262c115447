"""Scoring pairs: from the asker's received symbols, the answer and the public weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from lumos.model.settings import ModelSettings
from lumos.strict.link_schedule import CANDIDATES
from lumos.strict.score_models import LinearScore, ScoredPairs, TreeScore
from lumos.strict.similarity import ReceivedByHop, similarity
from lumos.training.outcome import IDS
from lumos.typing import Arrays, Bytes, Doubles, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class PairScorer:
    """Everything public that a score depends on."""

    settings: ModelSettings
    devices: int
    """Number of devices in the federation."""
    frequencies: list[Doubles] = field(repr=False)
    """For each kind of symbol [hops, size]: its frequency in all messages of a hop."""
    trust: Doubles = field(repr=False)
    backbone: Doubles = field(repr=False)

    @staticmethod
    def linear(hops: int, kinds: int) -> LinearScore:
        """The regressions on similarities: own, ids (where there are colours), evidence."""
        every = (hops + 1) ** 2
        return LinearScore([(0, 1), *[(every, 2 * every)] * (kinds > 1), (0, kinds * every)])

    @property
    def symbols(self) -> int:
        """k."""
        return int(self.frequencies[0].shape[1])

    def tree(self) -> TreeScore:
        """The tree network, with its weights."""
        tree = TreeScore(self.settings, self.symbols, np.random.default_rng(0))
        tree.load(self.backbone)
        return tree

    def pairs(
        self,
        received: list[ReceivedByHop],
        entries: Ints,
        rows: Ints,
        answers: Bytes,
        excluded: list[Bytes] | None = None,
    ) -> ScoredPairs:
        """The inputs of the scores of some pairs.

        Args:
            received: for each kind of symbol.
            entries: [devices] the devices' own entries of the codebook.
            rows: [pairs] the askers, not decreasing.
            answers: [pairs, kinds · (1 + hops · many)] of the answerers, kind by kind.
            excluded: for each kind [pairs, hops] the answerer's own messages to the asker.
        """
        parts = np.split(answers, len(received), axis=1)
        without: Sequence[Bytes | None] = excluded or [None] * len(received)
        kinds = zip(received, self.frequencies, parts, without, strict=True)
        similarities = [
            similarity(symbols, frequencies, rows, part, own)
            for symbols, frequencies, part, own in kinds
        ]
        first, symbols = received[0], parts[0].astype(np.int64)
        many = (symbols.shape[1] - 1) // first.hops
        degree, counts = first.degree[rows], first.counts_at(1)[rows]
        if excluded is not None:
            degree = degree - 1
            counts[np.arange(len(rows)), excluded[0][:, 0]] -= 1
        return ScoredPairs(
            rows=rows,
            similarity=np.concatenate(similarities, axis=1),
            own=entries[rows],
            frequencies=counts / np.maximum(degree, 1)[:, None],
            theirs=symbols[:, 0],
            their_frequencies=np.eye(first.size)[symbols[:, 1 : 1 + many]].mean(axis=1),
            prior=np.log((degree + 1) / self.devices),
        )

    def scores(self, pairs: ScoredPairs) -> dict[str, Doubles]:
        """[pairs] by every candidate, and by ids: logits of being an edge."""
        hops, kinds = len(self.frequencies[0]), len(self.frequencies)
        own, *ids, every = self.linear(hops, kinds).scores(self.trust, pairs.similarity)
        scores = dict(zip(CANDIDATES, (own, every, every + self.tree().scores(pairs)), strict=True))
        if ids:  # by colours alone: shown beside the others, and never chosen
            scores[IDS] = ids[0]
        return {name: score + pairs.prior for name, score in scores.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkResult:
    """What the observer of a finished run collects: all received symbols and all answers."""

    scorer: PairScorer
    choice: str
    """The candidate that validation chose."""
    embeddings: npt.NDArray[np.float32] = field(repr=False)
    """[devices, width] h."""
    received: list[ReceivedByHop] = field(repr=False)
    """For each kind of symbol."""
    entries: Ints = field(repr=False)
    """[devices]"""
    answers: Bytes = field(repr=False)
    """[devices, kinds · (1 + hops · many)] what every asker gets."""

    @classmethod
    def joined(cls, parts: Sequence["LinkResult"], order: Ints) -> "LinkResult":
        """Of all shards, in the order of the devices."""
        kinds = zip(*(part.received for part in parts), strict=True)
        return LinkResult(
            scorer=parts[0].scorer,
            choice=parts[0].choice,
            embeddings=np.concatenate([part.embeddings for part in parts])[order],
            received=[ReceivedByHop.joined(list(kind), order) for kind in kinds],
            entries=np.concatenate([part.entries for part in parts])[order],
            answers=np.concatenate([part.answers for part in parts])[order],
        )

    def scores(self, asker: Ints, answerer: Ints) -> dict[str, Doubles]:
        """[pairs] as the asker scores them: by every candidate, and by ids."""
        order = np.argsort(asker, kind="stable")
        answers = self.answers[answerer[order]]
        pairs = self.scorer.pairs(self.received, self.entries, asker[order], answers)
        back = np.argsort(order, kind="stable")
        return {name: score[back] for name, score in self.scorer.scores(pairs).items()}

    def at_both_ends(self, name: str, pairs: Ints) -> Doubles:
        """[2 · pairs] scores by one candidate: the first ends ask, then the second ends."""
        ends = (pairs[:, 0], pairs[:, 1]), (pairs[:, 1], pairs[:, 0])
        return np.concatenate([self.scores(*asked)[name] for asked in ends])

    def arrays(self) -> Arrays:
        """What `of` needs beside the weights."""
        arrays: Arrays = {"entries": self.entries, "answers": self.answers}
        for number, received in enumerate(self.received):
            arrays |= {
                f"heard/{number}/own": received.own,
                f"heard/{number}/degree": received.degree,
                f"heard/{number}/counts": received.counts.data,
                f"heard/{number}/columns": received.counts.indices,
                f"heard/{number}/offsets": received.counts.indptr,
            }
        return arrays

    @staticmethod
    def of(settings: ModelSettings, weights: Arrays, kept: Arrays) -> "LinkResult":
        """From the files of a run folder."""
        kinds = sum(name.startswith("usual") for name in weights)
        frequencies = [weights[f"usual/{number}"] for number in range(kinds)]
        received = []
        for number in range(kinds):
            own, degree, data, columns, offsets = (
                kept[f"heard/{number}/{part}"]
                for part in ("own", "degree", "counts", "columns", "offsets")
            )
            shape = (len(own), frequencies[number].size)
            received.append(ReceivedByHop(own, csr_array((data, columns, offsets), shape), degree))
        return LinkResult(
            scorer=PairScorer(
                settings=settings,
                devices=len(kept["entries"]),
                frequencies=frequencies,
                trust=weights["trust"],
                backbone=weights["backbone"],
            ),
            choice=CANDIDATES[int(weights["choice"])],
            embeddings=kept["embeddings"],
            received=received,
            entries=kept["entries"],
            answers=kept["answers"],
        )
