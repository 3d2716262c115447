"""Two devices learn the level of the dot product of two small vectors, and nothing else.

S (``ScoreSender``) holds s, R (``ScoreReceiver``) holds v, both of ``width`` signed integers of at
most 4 bits. The level is the number of public thresholds that ⟨s, v⟩ has reached. The protocol is
pure: bytes in, bytes out, in the sessions of `lumos.twoparty`:

    spec = LevelSpec(width=24, bits=4, ring_bits=10, thresholds=(20, 60, 120))
    sender, receiver = ScoreSender(me=3, peer=8), ScoreReceiver(me=8, peer=3)
    sender.begin([(spec, s)])
    receiver.begin([(spec, v)])
    message = sender.step()              # the session's opening, once
    message = receiver.step(message)     # one point per coordinate
    message = sender.step(message)       # a table of products per coordinate
    message = receiver.step(message)     # one point per digit of R's share
    message = sender.step(message)       # the table of levels
    message = receiver.step(message)     # the level
    sender.step(message)
    sender.results, receiver.results     # both [0], [1], [2] or [3]

For coordinate i, S masks the table v ↦ s_i·v + r_i mod 2^ring_bits with a fresh r_i, and R reads
the entry of its v_i. What R reads sums to ⟨s, v⟩ + Σ r_i, its share, a uniform number; S's share is
-Σ r_i. A second table has the level of j - Σ r_i for each share j that R could hold.

A point has P bytes: 32 in the group `ed25519`, the default, and 33 in `secp256k1`.

| message | from | bytes (24 coordinates, ring of 10 bits, 4 levels, P = 32) |
|---|---|---|
| opening, once per session | S | nonce 16 ‖ A P |
| points (before them, once per session, R's nonce 16) | R | P per coordinate (768) |
| products | S | ⌈2^bits/8⌉ per coordinate and bit of the ring (480); then check 1 |
| share | R | P per digit of at most 4 bits (96) |
| levels | S | ⌈2^ring_bits/8⌉ per bit of the level (256); then check 1 |
| answer | R | 1 per score |

``messages(specs, first=...)`` gives the list for any batch. Binding, check, repeats and errors are
those of the comparison (`lumos.twoparty.comparison`); a spec's code is a hash of all its fields.

*Range.* A vector whose squared norm is above 2^(ring_bits-1) - 1 is refused, so by Cauchy-Schwarz
every product lies in the ring and none wraps around.
*Shift.* An end may give ``Shifted(v, shift)``: the other then learns (level + shift) mod levels. A
shift drawn at random makes the answer a randomized response towards the other end. S adds its shift
in the table of levels, R in its answer, and S takes its own shift off again.
*Answer.* One word of a code of 8 bits XOR the check: distance 5 up to four levels, else 4.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from lumos.crypto import entropy
from lumos.crypto.entropy import InMemoryOnly
from lumos.crypto.groups import ED25519, ED25519_POINT, Group
from lumos.device.shard import Shard
from lumos.errors import BadValue, UsageError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.ledger import Ledger
from lumos.exchange.messages import Door, Topic
from lumos.twoparty.lookup import MAX_PAD, Lookup, Query, digit_widths, pad_bytes, unmask
from lumos.twoparty.session import (
    CHECK,
    NONCE,
    LookupReceiver,
    LookupSender,
    Message,
    Rules,
    decode_answer,
    encode_answer,
    words_for,
)
from lumos.twoparty.workers import (
    NO_RESULT,
    BatchBooking,
    ComparedPairs,
    OnSteps,
    PartyBatch,
    Workers,
    count_answers,
    swap_in_clear,
)
from lumos.typing import Bytes, Ints, Small

# The spec of a score, and the public list of messages that follows from it.
#
# Everything here is public and fixed before the first byte is sent. The ideal backend books from
# it, the secure one is checked against it.

MAX_WIDTH = 1024
MAX_BITS = 4
MAX_RING_BITS = 12
MAX_LEVELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSpec:
    """The level of the dot product of two vectors: how many thresholds it has reached.

    Args:
        width: coordinates of each vector.
        bits: of each coordinate, a signed integer from -2^(bits-1) to 2^(bits-1) - 1.
        ring_bits: products are computed modulo 2^ring_bits. The squared norm of a vector is at
            most 2^(ring_bits-1) - 1, so that by Cauchy-Schwarz no product leaves the ring.
        thresholds: increasing integers t; the level is the number of t ≤ product.
    """

    width: int = 24
    bits: int = 4
    ring_bits: int = 10
    thresholds: tuple[int, ...]
    #: Sixteen bytes that name the score in every pad and in the check.
    code: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_range("width", self.width, 1, MAX_WIDTH)
        _check_range("bits", self.bits, 1, MAX_BITS)
        _check_range("ring_bits", self.ring_bits, 2, MAX_RING_BITS)
        object.__setattr__(self, "thresholds", tuple(self.thresholds))
        _check_range("number of thresholds", len(self.thresholds), 1, MAX_LEVELS - 1)
        half = 1 << (self.ring_bits - 1)
        for threshold in self.thresholds:
            _check_range("threshold", threshold, -half, half - 1)
        if any(low >= high for low, high in pairwise(self.thresholds)):
            raise UsageError(f"thresholds must increase, not {self.thresholds}")
        widest = min(self.level_lookup.widths)
        if pad_bytes(self.level_lookup, self.level_lookup.widths.index(widest)) > MAX_PAD:
            raise UsageError(
                f"{self.levels} levels in a ring of {self.ring_bits} bits need pads of more than "
                f"{MAX_PAD} bytes; use a smaller ring, or fewer levels"
            )
        public = (self.width, self.bits, self.ring_bits, self.thresholds)
        encoded = msgspec.msgpack.encode(public)
        code = blake2b(encoded, digest_size=16, person=b"lumos.level.1").digest()
        object.__setattr__(self, "code", code)

    @property
    def levels(self) -> int:
        """Number of possible levels."""
        return len(self.thresholds) + 1

    @property
    def largest_norm(self) -> int:
        """The largest squared norm of a vector."""
        return (1 << (self.ring_bits - 1)) - 1

    @property
    def coordinate_lookup(self) -> Lookup:
        """The table of one coordinate: s·v + r in the ring, for every v."""
        return Lookup((self.bits,), self.ring_bits)

    @property
    def level_lookup(self) -> Lookup:
        """The table of the level, for every share of R."""
        return Lookup(digit_widths(self.ring_bits), (self.levels - 1).bit_length())

    @property
    def digits(self) -> int:
        """Points that R sends."""
        return self.width + len(self.level_lookup.widths)


def _check_range(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise UsageError(f"{name} must be an integer from {least} to {most}, not {value!r}")


def fitting_vectors(vectors: npt.ArrayLike, spec: LevelSpec) -> Ints:
    """[…, width] the vectors as int64, if they are integers in range and short enough.

    Raises:
        BadValue: they are not; the message carries no value.
    """
    given = np.asarray(vectors)
    if given.dtype.kind not in "iu":
        raise BadValue("a vector has a coordinate that is not an integer")
    if given.ndim == 0 or given.shape[-1] != spec.width:
        raise BadValue(f"a vector does not have the {spec.width} coordinates of its score")
    half = 1 << (spec.bits - 1)
    if given.size and not (given.min() >= -half and given.max() < half):
        raise BadValue(f"a coordinate does not fit the {spec.bits} bits of its score")
    plain: Ints = given.astype(np.int64)
    if np.count_nonzero((plain * plain).sum(axis=-1) > spec.largest_norm):
        raise BadValue(
            f"the squared norm of a vector is above {spec.largest_norm}, the largest that a ring "
            f"of {spec.ring_bits} bits can hold"
        )
    return plain


def levels_of(products: Ints, spec: LevelSpec) -> Ints:
    """The number of thresholds that each product has reached."""
    return np.searchsorted(np.array(spec.thresholds), products, side="right").astype(np.int64)


def messages(
    specs: Sequence[LevelSpec], *, first: bool, point: int = ED25519_POINT
) -> tuple[Message, ...]:
    """List the messages of a batch: sender and bytes.

    Args:
        specs: of its items, in order.
        first: whether it opens the session.
        point: bytes of a point of the session's group; by default those of `ed25519`.
    """
    return _messages(tuple(specs), first, point)


@lru_cache(maxsize=256)
def _messages(specs: tuple[LevelSpec, ...], first: bool, point: int) -> tuple[Message, ...]:
    opening = (Message(False, NONCE + point),) if first else ()
    coordinates = sum(spec.width for spec in specs)
    products = sum(spec.width * spec.coordinate_lookup.table_bytes for spec in specs)
    shares = sum(len(spec.level_lookup.widths) for spec in specs)
    levels = sum(spec.level_lookup.table_bytes for spec in specs)
    return (
        *opening,
        Message(True, NONCE * first + point * coordinates),
        Message(False, products + CHECK),
        Message(True, point * shares),
        Message(False, levels + CHECK),
        Message(True, len(specs)),
    )


# One score of a batch at one end.

VERSION = b"lumos.score.1"

# Positions of a batch's messages.
PRODUCT_POINTS, PRODUCT_TABLES, SHARE_POINTS, LEVEL_TABLES, ANSWERS = range(5)


@dataclass(frozen=True, slots=True, repr=False)  # private
class Shifted:
    """An input with a shift: the other end learns (level + shift) mod levels.

    Each end learns the level with the other's shift alone: S takes its own off R's answer.
    """

    vector: npt.ArrayLike
    shift: int


class Score(InMemoryOnly):
    """One score of the current batch, as one party sees it.

    vector: this party's own. share: its share of the product, modulo 2^ring_bits.
    """

    __slots__ = ("coordinates", "kept", "level", "level_query", "share", "shift", "spec", "vector")

    def __init__(self, spec: LevelSpec, value: npt.ArrayLike | Shifted, idx: int) -> None:
        vector, shift = (value.vector, value.shift) if isinstance(value, Shifted) else (value, 0)
        if type(shift) is not int or not 0 <= shift < spec.levels:
            raise BadValue(f"a shift is not one of the {spec.levels} levels")
        self.spec = spec
        self.vector = fitting_vectors(vector, spec)
        if self.vector.ndim != 1:
            raise BadValue("a score takes one vector")
        self.shift = shift
        lookup = spec.coordinate_lookup
        self.coordinates = [Query(lookup, spec.code, idx + place) for place in range(spec.width)]
        self.level_query = Query(spec.level_lookup, spec.code, idx + spec.width)
        self.kept: list[list[bytes]] = []
        self.share = 0
        self.level = 0

    @property
    def digits(self) -> int:
        """Points that R sends."""
        return self.spec.digits

    def is_checked(self, position: int) -> bool:
        """Return whether this part holds tables."""
        return position in (PRODUCT_TABLES, LEVEL_TABLES)

    def learn(self, level: int) -> None:
        """Take the level.

        Only a liar's table has one above the highest, which is then the highest: an error would
        tell the liar one more outcome.
        """
        self.level = min(level, self.spec.levels - 1)

    def answer(self) -> int:
        """Return what R sends S: the level that it read, with its own shift."""
        return (self.level + self.shift) % self.spec.levels

    def result(self) -> int:
        """The level, with the other end's shift."""
        return self.level


def product_tables(spec: LevelSpec, vector: Ints, masks: Ints) -> Bytes:
    """[width, ring_bits, 2^bits] bits of (s_i·v + r_i) mod 2^ring_bits.

    Args:
        vector: [width] s.
        masks: [width] r.
    """
    # Digit d stands for v = d, or d - 2^bits where that is negative.
    digit = np.arange(1 << spec.bits)
    value = np.where(digit < 1 << (spec.bits - 1), digit, digit - (1 << spec.bits))
    entries = (vector[:, None] * value + masks[:, None]) & ((1 << spec.ring_bits) - 1)
    return _bits(entries, spec.ring_bits)


def level_table(spec: LevelSpec, share: int, shift: int) -> Bytes:
    """[outputs, 2^ring_bits] bits of the level, for each share that R may hold.

    Args:
        share: S's own.
        shift: added to the level, modulo the number of levels.
    """
    of_product = _levels_of_ring(spec)
    of_share = np.roll(of_product, -share)  # entry j is that of product j + share
    return _bits((of_share + shift) % spec.levels, spec.level_lookup.outputs)


@lru_cache(maxsize=16)
def _levels_of_ring(spec: LevelSpec) -> Ints:
    """[2^ring_bits] the level of each element of the ring, read as a signed integer."""
    size = 1 << spec.ring_bits
    element = np.arange(size)
    levels = levels_of(np.where(element < size // 2, element, element - size), spec)
    levels.flags.writeable = False
    return levels


def _bits(entries: Ints, count: int) -> Bytes:
    """[…, count, entries] the bits of [… , entries], the lowest first."""
    places = np.arange(count)[:, None]
    return (entries[..., None, :] >> places & 1).astype(np.uint8)


# S: opens the session, answers R's digits with tables of products, then with one of levels.

_RULES = Rules(VERSION, messages, Score)


class ScoreSender(LookupSender[LevelSpec, npt.ArrayLike | Shifted, Score]):
    """The end with the tables. Its items are (spec, vector) or (spec, `Shifted`)."""

    _rules = _RULES

    def _compose_tasks(self, position: int) -> bytes:
        if position == PRODUCT_TABLES:
            plain = [table for score in self._tasks for table in _share(score)]
            asked = [query for score in self._tasks for query in score.coordinates]
        else:
            plain = [level_table(own.spec, own.share, own.shift) for own in self._tasks]
            asked = [score.level_query for score in self._tasks]
        return b"".join(self._live().tables(asked, self._points, plain))

    def _take_tasks(self, position: int, message: bytes, check: int) -> None:
        if position != ANSWERS:
            self._points = message
            return
        for score, byte in zip(self._tasks, message, strict=True):
            answer = decode_answer(byte, check, words_for(score.spec.levels))
            score.learn(answer)
            score.level = (answer - score.shift) % score.spec.levels


def _share(score: Score) -> Bytes:
    """Tables of the products under fresh masks r; S's share is -Σ r."""
    spec = score.spec
    masks = _masks(spec)
    score.share = -int(masks.sum()) % (1 << spec.ring_bits)
    return product_tables(spec, score.vector, masks)


def _masks(spec: LevelSpec) -> Ints:
    """[width] fresh uniform elements of the ring; 2^ring_bits divides 2^16."""
    drawn = np.frombuffer(entropy.draw(2 * spec.width), "<u2").astype(np.int64)
    masks: Ints = drawn & ((1 << spec.ring_bits) - 1)
    return masks


# R: asks for its coordinates' products, then for the level at the sum of what it read.


class ScoreReceiver(LookupReceiver[LevelSpec, npt.ArrayLike | Shifted, Score]):
    """The end that reads the tables. Its items are (spec, vector) or (spec, `Shifted`)."""

    _rules = _RULES

    def _compose_tasks(self, position: int) -> bytes:
        if position == PRODUCT_POINTS:
            return b"".join(self._ask_products(score) for score in self._tasks)
        if position == SHARE_POINTS:
            return b"".join(self._ask_level(score) for score in self._tasks)
        check = self._check
        return b"".join(
            encode_answer(score.answer(), check, words_for(score.spec.levels))
            for score in self._tasks
        )

    def _ask_products(self, score: Score) -> bytes:
        chosen = [
            self._live().choose(query, digit)
            for query, digit in zip(score.coordinates, _digits(score), strict=True)
        ]
        score.kept = [pads for _, pads in chosen]
        return b"".join(points for points, _ in chosen)

    def _ask_level(self, score: Score) -> bytes:
        points, pads = self._live().choose(score.level_query, score.share)
        score.kept = [pads]
        return points

    def _take_tasks(self, position: int, message: bytes, check: int) -> None:
        read = _read_products if position == PRODUCT_TABLES else _read_level
        offset = 0
        for score in self._tasks:
            offset += read(score, message[offset:])
            score.kept = []


def _digits(score: Score) -> list[int]:
    """[width] the coordinates in two's complement."""
    digits: list[int] = (score.vector & ((1 << score.spec.bits) - 1)).tolist()
    return digits


def _read_products(score: Score, tables: bytes) -> int:
    """R's share is the sum of the entries; returns the bytes read."""
    lookup, share = score.spec.coordinate_lookup, 0
    size = lookup.table_bytes
    for place, (pads, digit) in enumerate(zip(score.kept, _digits(score), strict=True)):
        share += unmask(lookup, tables[place * size : place * size + size], pads, digit)
    score.share = share & ((1 << score.spec.ring_bits) - 1)
    return size * score.spec.width


def _read_level(score: Score, tables: bytes) -> int:
    """The entry of R's share is the level; returns the bytes read."""
    lookup = score.spec.level_lookup
    score.learn(unmask(lookup, tables[: lookup.table_bytes], score.kept[0], score.share))
    return lookup.table_bytes


# Scores as workers serve them: a vector and a shift for each party, a byte each.


class ScoreProtocol:
    """Opens senders and receivers."""

    def open(
        self, me: int, peer: int, group: Group, *, sender: bool
    ) -> ScoreSender | ScoreReceiver:
        """A party of a new session."""
        return (ScoreSender if sender else ScoreReceiver)(me, peer, group=group)

    def encode(self, spec: LevelSpec, vectors: Ints, shifts: Ints) -> tuple[bytes, bytes]:
        """A spec, and inputs as `items` reads them.

        Args:
            spec: of all parties.
            vectors: [parties, width].
            shifts: [parties].
        """
        public = (spec.width, spec.bits, spec.ring_bits, spec.thresholds)
        rows = np.hstack([vectors, shifts[:, None]]).astype(np.int8)
        return msgspec.msgpack.encode(public), rows.tobytes()

    def items(
        self, spec: bytes, values: bytes, count: int
    ) -> Iterator[tuple[LevelSpec, npt.ArrayLike | Shifted]]:
        """(spec, own vector) of each party, shifted where it shifts."""
        width, bits, ring_bits, thresholds = msgspec.msgpack.decode(
            spec, type=tuple[int, int, int, tuple[int, ...]]
        )
        decoded = LevelSpec(width=width, bits=bits, ring_bits=ring_bits, thresholds=thresholds)
        for row in np.frombuffer(values, np.int8).reshape(count, width + 1):
            vector, shift = row[:-1], int(row[-1])
            yield decoded, Shifted(vector, shift) if shift else vector


PROTOCOL = ScoreProtocol()


# Scores in rounds: what a trainer asks, whichever backend answers.
#
# Both ends of a pair take part, each on behalf of its own device, in the same rounds. The pairs say
# which end is the sender S of the protocol (`ComparedPairs.first`). S can fill its tables as it
# likes, so whoever asks for a score is R: an asker learns buckets of products and nothing else.


UNANSWERED = -1
"""In place of a level that was not learnt."""


class Scorer(Protocol):
    """A backend: `secure` runs the protocol, `ideal` computes in the clear and is labelled so."""

    def levels(
        self,
        pairs: ComparedPairs,
        vectors: Small,
        spec: LevelSpec,
        shifts: Ints | None = None,
    ) -> Program[Ints]:
        """[pairs] the level of each pair, which both ends learn; `UNANSWERED` if the peer failed.

        Each pair opens a session for its score and closes it. A call keeps the sessions of all its
        pairs in memory: ask for a few thousand at a time.

        Args:
            pairs: who scores with whom, neighbours or non-neighbours.
            vectors: [hosted, width] own vectors.
            spec: what is scored, the same for all.
            shifts: [pairs] what the other end learns is higher by this, modulo the number of
                levels. None for no shift.
        """
        ...


def own_inputs(
    pairs: ComparedPairs, vectors: Small, spec: LevelSpec, shifts: Ints | None
) -> tuple[Ints, Ints]:
    """[pairs, width] own vectors and [pairs] shifts.

    Raises:
        BadValue: a vector is out of range or too long; nothing was sent.
    """
    own = fitting_vectors(vectors, spec)[pairs.rows]
    if shifts is None:
        return own, np.zeros(len(pairs), np.int64)
    if shifts.shape != (len(pairs),) or shifts.dtype.kind not in "iu":
        raise UsageError("shifts are one integer for each pair")
    if np.count_nonzero((shifts < 0) | (shifts >= spec.levels)):
        raise UsageError(f"shifts must be from 0 to {spec.levels - 1}")
    return own, shifts


def count_scores(ledger: Ledger, pairs: ComparedPairs, spec: LevelSpec, group: Group) -> None:
    """Count what the levels of all pairs reveal."""
    count_answers(ledger, pairs, spec.levels)
    if len(pairs):
        ledger.groups.add(group.name)
    ledger.scores += len(pairs)


# The ideal score: computed in the clear, booked as the secret one, labelled `ideal`.
#
# For simulations only. The two vectors meet in one swap; the ledger books, by formula, the
# messages, bytes and rounds that the secret score would have needed.

CLEAR = Topic(
    name="score/ideal",
    door=Door.COMPARE,
    shape=None,
    learns="both ends learn the level of the product (a simulation computed it in the clear)",
)
IDEAL_TOPICS = frozenset({CLEAR})
"""The topics that a transport has to permit for this backend."""


class IdealScorer:
    """The backend `ideal` of one shard. It books the secret score of `group`."""

    def __init__(self, shard: Shard, endpoint: Endpoint, group: Group = ED25519) -> None:
        self._shard = shard
        self._group = group
        self._ledger = endpoint.ledger
        self._ledger.require_permission(CLEAR)

    def levels(
        self,
        pairs: ComparedPairs,
        vectors: Small,
        spec: LevelSpec,
        shifts: Ints | None = None,
    ) -> Program[Ints]:
        """[pairs] the level of each pair; both ends learn it."""
        own, own_shifts = own_inputs(pairs, vectors, spec, shifts)
        count_scores(self._ledger, pairs, spec, self._group)
        # [pairs, width + 1] bytes: the vector, and the shift.
        mine = np.hstack([own, own_shifts[:, None]]).astype(np.int8).view(np.uint8)
        body = yield from swap_in_clear(CLEAR, self._shard, pairs, mine)
        point, every = self._group.point_bytes, np.ones(len(pairs), np.bool_)
        plan = messages((spec,), first=False, point=point)
        BatchBooking.of(plan, point).book(self._ledger, CLEAR, pairs, every)
        if not len(pairs):
            return np.empty(0, np.int64)
        theirs = body.view(np.int8).astype(np.int64)
        products = np.einsum("ij,ij->i", own, theirs[:, :-1])
        return (levels_of(products, spec) + theirs[:, -1]) % spec.levels


# The secret score in rounds: real messages through the exchange, one party for each end.

SECRET = Topic(
    name="score",
    door=Door.COMPARE,
    shape=None,
    learns="both ends learn the level of the product, and nothing else of the other's vector",
)


class SecureScorer:
    """The backend `secure` of one shard.

    Guarantee: against a semi-honest peer, what a device receives here is a function of its own
    vector and the level (see docs/protocols.md for the assumptions).
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        workers: Workers,
        on_steps: OnSteps | None = None,
        group: Group = ED25519,
    ) -> None:
        self._shard = shard
        self._ledger = endpoint.ledger
        self._workers = workers
        self._on_steps = on_steps
        self._group = group

    def levels(
        self,
        pairs: ComparedPairs,
        vectors: Small,
        spec: LevelSpec,
        shifts: Ints | None = None,
    ) -> Program[Ints]:
        """[pairs] the level of each pair; both ends learn it."""
        own, own_shifts = own_inputs(pairs, vectors, spec, shifts)
        count_scores(self._ledger, pairs, spec, self._group)
        batch = PartyBatch(
            SECRET, "score", self._group, self._shard, self._workers, self._on_steps, pairs
        )
        batch.begin(*PROTOCOL.encode(spec, own, own_shifts))
        point = self._group.point_bytes
        opening, *_ = messages((spec,), first=True, point=point)
        plan = messages((spec,), first=False, point=point)
        learned = yield from batch.run(opening, plan, np.ones(len(pairs), np.bool_), close=True)
        learned[learned == NO_RESULT] = UNANSWERED
        return learned


def make_scorer(
    shard: Shard, endpoint: Endpoint, workers: Workers | None, group: Group = ED25519
) -> Scorer:
    """The secure backend with these workers; the ideal one where there are none."""
    if workers is None:
        return IdealScorer(shard, endpoint, group=group)
    return SecureScorer(shard, endpoint, workers, group=group)
