"""What the observer of a finished run of `link` holds, and how it is made anew from a run folder.

A folder keeps public weights, and the colours and opinions that devices sent: nothing that is made
of raw features, nothing of which neighbours a device has. Vectors and degrees are computed again,
from the graph, when somebody asks about pairs.
"""

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from lumos.crypto.group import Group
from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard, cut
from lumos.errors import InputError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.graph import Graph
from lumos.score import make_scorer
from lumos.session.workers import InProcess
from lumos.strict.answer_budget import AnswerBudget
from lumos.strict.feature_scaling import FeatureScaling
from lumos.strict.link.stages import LinkSchedule
from lumos.strict.link_answers import UNANSWERED, Answerer, AskedOfPeers, scores
from lumos.strict.link_encoder import LinkEncoder
from lumos.strict.link_levels import (
    ALONE,
    BOTH,
    Reading,
    combined,
    integers,
    spec_for,
)
from lumos.strict.settings import StrictSettings
from lumos.strict.surroundings import Surroundings
from lumos.strict.word_rows import WordRows
from lumos.training.private_data import features_of
from lumos.training.profile import Problem
from lumos.training.trainer import PairAnswer
from lumos.typing import Arrays, Bytes, Doubles, Floats, Ints, Small

if TYPE_CHECKING:
    from lumos.training.config import Config


_ROWS = ("vectors", "embeddings", "degree", "sent")


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
    sent: Bytes = field(repr=False)
    """[devices, rounds] colours and opinions, as they were sent."""
    budget: AnswerBudget = field(repr=False)
    strict: StrictSettings
    seed: int

    def rows(self) -> Arrays:
        """What devices have."""
        own = {name: getattr(self, name) for name in _ROWS}
        return {**own, **self.budget.arrays()}

    def with_rows(self, rows: Arrays) -> "LinkResult":
        """Of all devices."""
        own: dict[str, Any] = {name: rows[name] for name in _ROWS}
        return replace(self, **own, budget=AnswerBudget.of(rows))

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

    @property
    def used(self) -> tuple[int, int]:
        """How many questions the devices asked, and how many of others they answered."""
        return int(self.budget.asked.sum()), int(self.budget.answered.sum())

    def resume(self, used: tuple[int, int]) -> None:
        """Count on from `used` of this one device before a restart."""
        for counts, before in zip((self.budget.asked, self.budget.answered), used, strict=True):
            np.maximum(counts, before, out=counts)

    def kept(self) -> Arrays:
        """What a device needs to answer after a restart: its own rows, and what is public."""
        return {**self.rows(), **self.reading.arrays()}

    @staticmethod
    def restored(kept: Arrays, strict: StrictSettings, seed: int) -> "LinkResult":
        """From what `kept` gave.

        Raises:
            InputError: an array is missing, or is of another run.
        """
        try:
            own: dict[str, Any] = {name: kept[name] for name in _ROWS}
            budget, reading = AnswerBudget.of(kept), Reading.of(kept, strict.answer_bits)
        except (KeyError, InputError):
            raise InputError("what the device answers with is not of this run") from None
        return LinkResult(reading=reading, **own, budget=budget, strict=strict, seed=seed)

    def question(
        self,
        shard: Shard,
        endpoint: Endpoint,
        group: Group,
        peer: int,
        *,
        asks: bool,
        willing: bool = True,
    ) -> Program[PairAnswer]:
        """One question at one of its two ends; `lumos.training.trainer.AnswersPairs`.

        Coins are those of the shard: with the same ones, a second answer to the same vector tells
        nothing that the first one did not.
        """
        level = np.array([UNANSWERED])
        if self.reading.way != ALONE and (willing or not asks):
            answerer = Answerer(
                shard=shard,
                scorer=make_scorer(shard, endpoint, InProcess(), group),
                vectors=self.vectors,
                spec=spec_for(self.vectors.shape[1], self.reading.cosines),
                strict=self.strict,
                budget=self.budget,
                willing=willing,
            )
            asked = AskedOfPeers(np.zeros(int(asks), np.int64), np.full(int(asks), peer, np.int64))
            learnt = yield from answerer.ask(asked, 1 + peer, 1)
            level = learnt.levels if asks else np.append(learnt.answered, UNANSWERED)[:1]
        logit = scores(level, self.reading.evidence, self.degree, shard.total)
        return PairAnswer(float(logit[0]), bool(level[0] != UNANSWERED))

    def estimates(self) -> dict[str, float]:
        """What calibration measured of each way: the AUC of its levels, and its error."""
        read = self.reading
        measured = {f"levels_auc_{way}": value for way, value in read.separation.items()}
        return measured | {f"levels_auc_{way}_error": value for way, value in read.error.items()}

    def arrays(self) -> Arrays:
        """What `of` needs beside the weights and the graph: messages, as neighbours have them."""
        return {"sent": self.sent}

    @property
    def name(self) -> str:
        """Names the run in records of answers, by what is public and what was sent.

        Not by vectors: whoever knows all but one could check a guess at it against their digest.
        """
        parts = (self.sent.tobytes(), self.reading.evidence.tobytes(), repr(self.reading.kept))
        named = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
        return blake2b(named, digest_size=16).hexdigest()

    @staticmethod
    def of(
        schedule: LinkSchedule,
        seed: int,
        training: Graph,
        weights: Arrays,
        kept: Arrays,
        *,
        split: str = "",
    ) -> "LinkResult":
        """What the devices of a finished run hold, computed at home once more.

        Bit by bit what they held in training. With `coins='system'` their secrets are gone: one to
        whom several colours were equally likely may take another, the same whenever it is asked.

        Args:
            training: the graph of the run with its training edges.
            weights: as `Trainer.arrays` gave them.
            kept: as `arrays` gave it.
            split: digest of the split, which the coins of the run are named by.

        Raises:
            InputError: weights or messages are of another run.
        """
        strict, public = schedule.strict, PublicCoins(seed)
        (shard,) = cut(training, 1, seed, arm=_coins(training, schedule.config, seed, split))
        features = features_of(training)
        if schedule.first_stages:
            features = FeatureScaling.of(weights, training.feature_count).apply(features)
        words = WordRows(features, signed=schedule.signed)
        _check(schedule, words.width, weights, kept, len(shard))
        encoder = LinkEncoder(words, schedule, public)
        encoder.load(weights)
        surroundings = Surroundings(shard, schedule.opinion_mechanism)
        surroundings.usual = list(weights["usual"])
        for number, sent in enumerate(kept["sent"].T):
            surroundings.repeat(number, sent)
            surroundings.hear(shard.owner, sent[shard.neighbours].astype(np.int64))
        vectors = combined(encoder.embeddings(), surroundings.vectors())
        reading = Reading.of(weights, strict.answer_bits)
        used = vectors[BOTH if reading.way == ALONE else reading.way]
        return LinkResult(
            reading=reading,
            vectors=integers(used),
            embeddings=used.astype(np.float32),
            degree=shard.degree,
            sent=kept["sent"],
            budget=AnswerBudget.calibrated_once(len(shard)),
            strict=strict,
            seed=seed,
        )


def _coins(training: Graph, config: "Config", seed: int, split: str) -> str:
    """The name of the coins that the run tossed, where they were simulated."""
    problem = Problem.of(
        graph=training,
        keep=None,
        roles=np.empty(0, np.int64),
        held_back=np.empty((0, 2), np.int64),
        classes=0,
        seed=seed,
        shards=1,
        split=split,
    )
    return config.profile.coins(problem, config, control=False)


def _check(schedule: LinkSchedule, width: int, weights: Arrays, kept: Arrays, devices: int) -> None:
    """Refuse weights or messages that cannot be of this run.

    Raises:
        InputError: an array is missing, or is of another shape or kind.
    """
    strict = schedule.strict
    rounds, size = 1 + strict.opinions, strict.embedding
    shapes = {
        "weights": (width,),
        "basis": (width, size),
        "mixing": (size, size),
        "usual": (rounds, strict.colours),
    }
    for name, shape in shapes.items():
        array = weights.get(name)
        good = array is not None and array.shape == shape and array.dtype == np.float64
        if array is None or not good or not np.isfinite(array).all():
            raise InputError(f"model.npz: the array {name!r} is not of this run; train again")
    sent = kept.get("sent")
    if sent is None or sent.shape != (devices, rounds) or sent.dtype != np.uint8:
        raise InputError("devices.npz: what devices sent is not of this run; train again")
    if sent.max(initial=0) >= strict.colours:
        raise InputError("devices.npz: a device sent a colour that does not exist; train again")
