"""Sums of the products of matched devices, in rounds.

    sums = paired_sums(shard, endpoint, aggregator)      # aggregator: masked sums, after its setup
    yield from sums.setup(partner, chosen)               # once per run: [hosted], [hosted, words]
    total = yield from sums.sum(vectors, noise, step)    # vectors: int8 [hosted, width]

    coordinator = PairedCoordinator(masked_sums)         # in the coordinator's program
    total = yield from coordinator.sum(words * width)

The total is Σ (b_u ⊗ Z_v + b_v ⊗ Z_u) / 128 over all pairs (u, v). In the order of the file: checks
of arguments, the topics, the backends of products (`IdealProducts`, `SecureProducts`), and the sums
over pairs with the rule for who is in a sum.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from lumos.crypto.entropy import InMemoryOnly
from lumos.crypto.groups import ED25519, Group
from lumos.device.shard import Shard, within
from lumos.errors import InputError, ProtocolError, UsageError
from lumos.exchange.counts import Booking
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.messages import Door, Topic
from lumos.secagg import IdealAggregator, IdealCoordinator, SecureAggregator
from lumos.secagg.coordinator import SecureCoordinator
from lumos.secagg.noise import DrawnNoise
from lumos.secagg.parameters import FixedPoint, RingWords
from lumos.twoparty.products import (
    CHECK,
    OPENING,
    POINTS_MESSAGE,
    SCALE_BITS,
    PairSession,
    columns_message,
    correction_message,
)
from lumos.typing import Doubles, Flags, Ints


def check_pairs(shard: Shard, partner: Ints, chosen: csr_array) -> None:
    """Raise `UsageError` or `InputError` unless these are partners and choices of the devices."""
    if partner.shape != (len(shard),) or not within(partner, -1, shard.total):
        raise UsageError(f"`partner` must be [{len(shard)}] ids, or -1 for no partner")
    if (partner == shard.devices).any():
        raise UsageError("`partner`: a device is matched with itself")
    if chosen.ndim != 2 or len(shard) != chosen.shape[0] or not chosen.shape[1]:
        raise UsageError(f"`chosen` must be [{len(shard)}, words], got {list(chosen.shape)}")
    if not chosen.has_canonical_format or (chosen.data != 1).any():
        raise InputError("`chosen` must hold ones, each stored once")


def check_vectors(shard: Shard, vectors: npt.NDArray[np.int8]) -> None:
    """Raise `UsageError` or `InputError` unless these are the devices' vectors."""
    if vectors.ndim != 2 or len(vectors) != len(shard) or vectors.dtype != np.int8:
        raise UsageError(
            f"vectors must be int8[{len(shard)}, width], got {vectors.dtype}{list(vectors.shape)}"
        )
    if (vectors == -128).any():
        raise InputError("a number of a product lies beyond ±127")


# The messages between the two devices of a pair.
#
# | round | when | bytes, each way |
# |---|---|---|
# | opening, points, columns | once per run | 80; 4,112; 128 ⌈F/8⌉ + 2,112 |
# | correction | each attempt of each step | F K word + 16 |
# | ready | each attempt, before masking | 16: "I hold my share" |
# | present | each attempt, before anything is opened | 16: "I am in the sum with my share" |

SETUP_ROUNDS = 3
STEP_ROUNDS = 3
"""Rounds of one attempt beside those of `lumos.secagg.topics`."""

OPEN_PAIR = Topic(
    name="products/opening",
    door=Door.AGGREGATE,
    shape=(OPENING,),
    learns="fresh public keys, told to the partner",
)
BASE_POINTS = Topic(
    name="products/points",
    door=Door.AGGREGATE,
    shape=(POINTS_MESSAGE,),
    learns="points of oblivious transfers; the partner learns nothing",
)
COLUMNS = Topic(
    name="products/columns",
    door=Door.AGGREGATE,
    shape=None,
    learns="a device's chosen words under one-time masks; the partner learns nothing",
)
CORRECTION = Topic(
    name="products/correction",
    door=Door.AGGREGATE,
    shape=None,
    learns="a device's numbers under one-time masks; the partner gets a random share of a product",
)
READY = Topic(
    name="products/ready",
    door=Door.AGGREGATE,
    shape=(CHECK,),
    learns="the partner learns that the sender holds its share",
)
PRESENT = Topic(
    name="products/present",
    door=Door.AGGREGATE,
    shape=(CHECK,),
    learns="the partner learns that the sender is in the sum with its share",
)


# The ideal products: partners exchange their numbers in the clear, booked as the secure ones.
#
# For simulations only. Device u then adds b_u ⊗ Z_v itself, and nobody holds a share.

CLEAR = Topic(
    name="products/ideal",
    door=Door.AGGREGATE,
    shape=None,
    learns="partners get random shares (a simulation exchanged their numbers in the clear)",
)
BOOKED = {
    topic: replace(topic, name=f"{topic.name}/ideal")
    for topic in (OPEN_PAIR, BASE_POINTS, COLUMNS, CORRECTION, READY, PRESENT)
}
"""The topics of the secure products, as the ideal ones book them."""
IDEAL_TOPICS = frozenset({CLEAR, *BOOKED.values()})
"""The topics that a transport has to permit for this backend."""


class IdealProducts:
    """The backend `ideal` of one shard; nobody falls silent.

    Args:
        shard: the hosted devices.
        endpoint: whose ledger is booked.
        fixed: the fixed point of the sum that the products enter.
    """

    label = "ideal"

    def __init__(self, shard: Shard, endpoint: Endpoint, fixed: FixedPoint) -> None:
        self._shard = shard
        self._ledger = endpoint.ledger
        self._ledger.require_permission(CLEAR)
        self._fixed = fixed
        self._partner: Ints = np.empty(0, np.int64)
        self._paired: Ints = np.empty(0, np.int64)
        self._by_word: csr_array | None = None

    def setup(self, partner: Ints, chosen: csr_array) -> Program[None]:
        """Book the sessions of all pairs; arguments as in the secure backend."""
        yield from ()
        check_pairs(self._shard, partner, chosen)
        self._partner = partner.copy()
        self._paired = np.flatnonzero(partner >= 0)
        self._by_word = chosen.T.astype(np.float64).tocsr()
        words = chosen.shape[1]
        self.book(OPEN_PAIR, OPEN_PAIR.size)
        self.book(BASE_POINTS, BASE_POINTS.size)
        self.book(COLUMNS, columns_message(words))
        self._ledger.round += SETUP_ROUNDS

    def multiply(self, vectors: npt.NDArray[np.int8], step: int, attempt: int) -> Program[Doubles]:
        """[words · width] Σ b_u ⊗ Z_v / 128 over hosted devices u with a partner v.

        Over all shards it adds up to what the shares of the secure backend add up to.
        """
        check_vectors(self._shard, vectors)
        if self._by_word is None:
            raise UsageError("the first product of a run needs setup() before it")
        rows, width = self._paired, vectors.shape[1]
        body = np.ascontiguousarray(vectors[rows]).view(np.uint8).reshape(len(rows), width)
        lengths = CLEAR.whole_rows(body)
        inbox = yield CLEAR.send(
            self._shard.devices[rows], self._partner[rows], body, lengths=lengths
        )
        # Sorted by receiver, as the hosted devices are, one each.
        if not np.array_equal(inbox.receiver, self._shard.devices[rows]) or not np.array_equal(
            inbox.sender, self._partner[rows]
        ):
            raise ProtocolError("a partner did not send the message that is due; run again")
        self.book(CORRECTION, correction_message(self._by_word.shape[0], width, self._fixed.word))
        received = np.zeros(vectors.shape)
        received[rows] = inbox.body.reshape(len(rows), width).view(np.int8)
        return self._summed(self._by_word, received)

    def own(self, vectors: npt.NDArray[np.int8]) -> Doubles:
        """[words · width] Σ b_u ⊗ half of Z_u / 128 over hosted devices u without a partner."""
        if self._by_word is None:
            raise UsageError("the first product of a run needs setup() before it")
        halves = halved(vectors).astype(np.float64)
        halves[self._paired] = 0
        return self._summed(self._by_word, halves)

    @staticmethod
    def _summed(by_word: csr_array, factors: Doubles) -> Doubles:
        # Sums of whole numbers, exact in float64.
        scaled: Doubles = np.asarray(by_word @ factors).ravel() * 2.0**-SCALE_BITS
        return scaled

    def book(self, topic: Topic, size: int) -> None:
        """Book one message of `size` bytes each way for every pair, and its round."""
        if len(self._paired):
            self._ledger.book(BOOKED[topic], self._paired, Booking(1, 1, size, size))
            self._ledger.book_rounds(self._paired, 1)


# Products of matched devices in rounds: real messages through the exchange, a session per end.

Taken = TypeVar("Taken")


class PairShares(NamedTuple):
    """The hosted devices' shares of the products of their pairs."""

    words: RingWords
    """[hosted, words · width] zero where there is none."""
    held: Flags
    """[hosted] who holds a share."""


class SecureProducts(InMemoryOnly):
    """The backend `secure` of one shard. Its sessions live in memory: after a restart, a new setup.
    A device that keeps its secret draws the same again in it.

    Guarantee: also against a lying partner, whatever passes here is independent of a device's
    words and numbers; each share is uniform, and only both together are the product.

    A partner that falls silent, or whose message is not what it should be, costs the pair its
    product and nothing else: its session is closed, and nobody but the two ends learns of it. A
    third device that sends something is ignored.

    Args:
        shard: the hosted devices.
        endpoint: unused; for the same signature as the ideal backend.
        fixed: the fixed point of the sum that the shares enter.
    """

    label = "secure"

    def __init__(
        self, shard: Shard, endpoint: Endpoint, fixed: FixedPoint, *, group: Group = ED25519
    ) -> None:
        self._shard = shard
        self._fixed = fixed
        self._group = group
        self._sessions: dict[int, PairSession] = {}
        self._partner: Ints | None = None
        self._chosen = csr_array((0, 0))

    def setup(self, partner: Ints, chosen: csr_array) -> Program[None]:
        """Open the sessions of all pairs: base transfers and their extension, once per run.

        Args:
            partner: [hosted] id of each device's partner, or -1.
            chosen: [hosted, words] 1 where a device chose the word, else 0.
        """
        check_pairs(self._shard, partner, chosen)
        self._partner, self._chosen = partner.copy(), chosen
        words = chosen.shape[1]
        for session in self._sessions.values():
            session.close()
        self._sessions = {}
        for row in np.flatnonzero(partner >= 0).tolist():
            bits = np.zeros(words, np.bool_)
            bits[chosen.indices[chosen.indptr[row] : chosen.indptr[row + 1]]] = True
            me, peer = int(self._shard.devices[row]), int(partner[row])
            self._sessions[row] = PairSession(me, peer, bits, self._fixed, group=self._group)
        bodies = {row: session.opening() for row, session in self._sessions.items()}
        received = yield from self._swap(OPEN_PAIR, bodies, OPENING)
        bodies = self._taken(received, PairSession.points)
        received = yield from self._swap(BASE_POINTS, bodies, POINTS_MESSAGE)
        bodies = self._taken(received, PairSession.columns)
        received = yield from self._swap(COLUMNS, bodies, columns_message(words))
        self._taken(received, PairSession.extend)
        for row in [row for row, session in self._sessions.items() if not session.ready]:
            self._sessions.pop(row).close()  # its partner fell silent

    def multiply(
        self,
        vectors: npt.NDArray[np.int8],
        step: int,
        attempt: int,
        taking_part: Flags | None = None,
    ) -> Program[PairShares]:
        """The shares of b_u ⊗ Z_v + b_v ⊗ Z_u of all pairs (u, v).

        Args:
            vectors: [hosted, width] Z of each device, -127 to 127.
            step: number of the sum.
            attempt: number of the attempt; (step, attempt) grows from call to call.
            taking_part: [hosted] whose pairs are multiplied; None: all.
        """
        check_vectors(self._shard, vectors)
        width = vectors.shape[1]
        bodies = {
            row: session.correction(vectors[row], step, attempt)
            for row, session in self._sessions.items()
            if taking_part is None or taking_part[row]
        }
        tokens = self._chosen.shape[1]
        size = correction_message(tokens, width, self._fixed.word)
        received = yield from self._swap(CORRECTION, bodies, size)
        words = np.zeros((len(self._shard), tokens * width), self._fixed.dtype)
        held = np.zeros(len(self._shard), np.bool_)
        shares = self._taken(received, lambda own, body: own.share(body, step, attempt))
        for row, share in shares.items():
            words[row] = share.ravel()
            held[row] = True
        return PairShares(words, held)

    def own(self, vectors: npt.NDArray[np.int8]) -> RingWords:
        """[hosted, words · width] b_u ⊗ half of Z_u of devices without a partner; others: zero."""
        words = np.zeros((len(self._shard), self._chosen.shape[1] * vectors.shape[1]))
        factors = halved(vectors)
        rows = words.reshape(len(words), *self._chosen.shape[1:], vectors.shape[1])
        for row in np.flatnonzero(self._partner_of() < 0).tolist():
            held = self._chosen.indices[self._chosen.indptr[row] : self._chosen.indptr[row + 1]]
            rows[row, held] = factors[row] * 2.0**-SCALE_BITS
        return self._fixed.encode(words)

    def confirm(
        self, topic: Topic, purpose: bytes, sending: Flags, step: int, attempt: int
    ) -> Program[Flags]:
        """Send the partner a word that proves its sender.

        Args:
            purpose: the meaning of the word.
            sending: [hosted] who sends it.

        Returns:
            [hosted] who sent it, and received it from its partner.
        """
        bodies = {
            row: self._sessions[row].word(purpose, step, attempt, mine=True)
            for row in np.flatnonzero(sending).tolist()
        }
        received = yield from self._swap(topic, bodies, CHECK)
        confirmed = np.zeros(len(self._shard), np.bool_)
        proved = self._taken(
            received, lambda own, word: own.check_word(word, purpose, step, attempt)
        )
        confirmed[list(proved)] = True
        return confirmed

    def _taken(
        self, received: dict[int, bytes], take: Callable[[PairSession, bytes], Taken]
    ) -> dict[int, Taken]:
        """Have each session take its partner's message; drop the partner where it refuses.

        Such a fault is not reported: that two devices have a session is private.
        """
        results: dict[int, Taken] = {}
        for row, body in received.items():
            try:
                results[row] = take(self._sessions[row], body)
            except ProtocolError:
                self._sessions.pop(row).close()
        return results

    def _swap(self, topic: Topic, bodies: dict[int, bytes], size: int) -> Program[dict[int, bytes]]:
        """Send a message of `size` bytes from each row to its partner, who may be silent.

        Args:
            bodies: by row, what is sent; all of `size` bytes.

        Returns:
            By row, what its partner sent, for the rows that sent something themselves. What anybody
            else sends is ignored, and so are several messages of one partner.
        """
        shard, partner = self._shard, self._partner_of()
        rows = np.array(sorted(bodies), np.int64)
        joined = b"".join(bodies[row] for row in rows.tolist())
        body = np.frombuffer(joined, np.uint8).reshape(len(rows), size)
        lengths = topic.whole_rows(body)
        inbox = yield topic.send(shard.devices[rows], partner[rows], body, lengths=lengths)
        to = shard.local(inbox.receiver)
        places = np.flatnonzero(partner[to] == inbox.sender)
        many = np.bincount(to[places], minlength=len(shard))
        sizes = inbox.batch.lengths
        received = {}
        for place, row in zip(places.tolist(), to[places].tolist(), strict=True):
            if row in bodies and many[row] == 1:
                length = size if sizes is None else int(sizes[place])
                received[row] = inbox.body[place, :length].tobytes()
        return received

    def _partner_of(self) -> Ints:
        if self._partner is None:
            raise UsageError("the first product of a run needs setup() before it")
        return self._partner


# Sums of the products of matched devices: both ends of a pair are in a sum, or neither.
#
# A share alone is uniform: a sum with one share of a pair is uniform too, and worthless. So
#
# 1. *before masking* partners confirm to each other that they hold their shares (`ready`); a device
#    whose partner did not confirm sends zero for its pair;
# 2. *after the coordinator named the lost devices, and before anything is opened,* partners confirm
#    to each other that they are in the sum with their share (`present`); a device that is, and does
#    not receive it from its partner, objects (`lumos.secagg.openings`);
# 3. on an objection the attempt is called off unopened and made again without that pair: with fresh
#    shares and masks, the same vectors and the same noise; after `ATTEMPTS` of them everybody gets
#    NaN, which the strict trainer leaves out. One device can bring this about by objecting each
#    time, and nobody knows which: objections are masked, because they would name an edge;
# 4. of all attempts of a step at most one is opened: see `lumos.secagg.openings` for the rule of
#    the holders and the counting argument.
#
# **A lying coordinator** can spoil a sum, not read a product. Within one attempt there is one sum
# (`lumos.secagg.device`). If it ignores objections, or reports to each end that the other is lost,
# that sum has one share of the pair: uniform. In another attempt the shares are fresh, so shares of
# different attempts of one pair reveal nothing together; and two attempts with the same vectors,
# whose difference would be a pair's product, are not both opened.

ATTEMPTS = 4
"""Attempts at one sum before it is given up."""
_LARGEST = 1.0  # |b Z| / 128 of one device is below this


class PairedSums(Protocol):
    """The hosted devices' part in sums over pairs."""

    def setup(self, partner: Ints, chosen: csr_array) -> Program[None]:
        """Open the sessions of all pairs, once per run.

        Args:
            partner: [hosted] id of each device's partner, or -1.
            chosen: [hosted, words] 1 where a device chose the word, else 0.
        """
        ...

    def sum(
        self, vectors: npt.NDArray[np.int8], noise_shares: Doubles | None, step: int
    ) -> Program[Doubles]:
        """[words · width] Σ (b_u ⊗ Z_v + b_v ⊗ Z_u) / 128 over all pairs, with noise.

        A device u without a partner adds b_u ⊗ Z_u / 256, its numbers rounded towards 0.

        Args:
            vectors: [hosted, width] Z of each device, -127 to 127.
            noise_shares: [hosted, words · width] each device's share of noise; None for none, or
                where the ideal coordinator adds it.
            step: number of the sum, larger than of those before.

        Returns:
            NaN everywhere if every attempt was called off: the sum is unknown to everybody.

        Raises:
            ProtocolError: too few devices were present.
        """
        ...


class SecurePairedSums:
    """The backend `secure`.

    Args:
        shard: the hosted devices.
        endpoint: for the same signature as the ideal backend.
        aggregator: the masked sums of the run; its `setup` comes first.
    """

    label = "secure"

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        aggregator: SecureAggregator,
        *,
        group: Group = ED25519,
    ) -> None:
        self._hosted = len(shard)
        self._aggregator = aggregator
        self._products = SecureProducts(shard, endpoint, aggregator.fixed, group=group)

    def setup(self, partner: Ints, chosen: csr_array) -> Program[None]:
        """Open the sessions of all pairs; see `PairedSums`."""
        yield from self._products.setup(partner, chosen)

    def sum(
        self, vectors: npt.NDArray[np.int8], noise_shares: Doubles | None, step: int
    ) -> Program[Doubles]:
        """Σ (b_u ⊗ Z_v + b_v ⊗ Z_u) / 128 over all pairs, with noise; see `PairedSums`."""
        paired = np.ones(self._hosted, np.bool_)
        own = self._products.own(vectors)
        for attempt in range(ATTEMPTS):
            shares = yield from self._products.multiply(vectors, step, attempt, paired)
            words = shares.words
            ready = yield from self._products.confirm(READY, b"ready", shares.held, step, attempt)
            words[~ready] = 0
            words += own
            noise = _noise(noise_shares, words.shape, self._aggregator.fixed)
            alone = np.zeros(self._hosted, np.bool_)

            def objections(
                opening: Flags, ready: Flags = ready, alone: Flags = alone, attempt: int = attempt
            ) -> Program[Flags]:
                present = opening & ready
                confirmed = yield from self._products.confirm(
                    PRESENT, b"present", present, step, attempt
                )
                alone[:] = present & ~confirmed
                return alone

            ended = yield from self._aggregator.attempt(noise, words, step, attempt, objections)
            if not ended.called_off:
                return _opened(ended.total)
            paired &= ~alone
        return np.full(own.shape[1], np.nan)


class IdealPairedSums:
    """The backend `ideal`: nobody falls silent. Arguments as in the secure one."""

    label = "ideal"

    def __init__(self, shard: Shard, endpoint: Endpoint, aggregator: IdealAggregator) -> None:
        self._aggregator = aggregator
        self._hosted = len(shard)
        self._ledger = endpoint.ledger
        self._products = IdealProducts(shard, endpoint, aggregator.fixed)

    def setup(self, partner: Ints, chosen: csr_array) -> Program[None]:
        """Book the sessions of all pairs; see `PairedSums`."""
        yield from self._products.setup(partner, chosen)

    def sum(
        self, vectors: npt.NDArray[np.int8], noise_shares: Doubles | None, step: int
    ) -> Program[Doubles]:
        """Σ (b_u ⊗ Z_v + b_v ⊗ Z_u) / 128 over all pairs, with noise; see `PairedSums`."""
        fixed = self._aggregator.fixed
        products = yield from self._products.multiply(vectors, step, 0)
        words = fixed.encode_sum(products + self._products.own(vectors))
        if noise_shares is not None:
            noise = _noise(noise_shares, (self._hosted, len(words)), fixed)
            words += fixed.encode(noise).sum(axis=0, dtype=fixed.dtype)
        self._products.book(READY, READY.size)
        self._products.book(PRESENT, PRESENT.size)
        self._ledger.round += STEP_ROUNDS - 1  # the swap stood for the correction's round
        ended = yield from self._aggregator.attempt(words)
        return _opened(ended.total)


class PairedCoordinator:
    """The coordinator's part of both backends.

    Args:
        sums: the coordinator of the masked sums of the run.
    """

    def __init__(self, sums: SecureCoordinator | IdealCoordinator) -> None:
        self._sums = sums

    def sum(self, width: int, noise: DrawnNoise | None = None) -> Program[Doubles]:
        """One sum over all pairs.

        Args:
            width: words · width of the devices' vectors.
            noise: as the coordinator of the sums takes it.
        """
        for _ in range(ATTEMPTS):
            ended = yield from self._sums.attempt(width, noise)
            if not ended.called_off:
                return _opened(ended.total)
        return np.full(width, np.nan)


def paired_sums(
    shard: Shard, endpoint: Endpoint, aggregator: SecureAggregator | IdealAggregator
) -> PairedSums:
    """The sums over pairs that go with the masked sums of a run."""
    if isinstance(aggregator, SecureAggregator):
        return SecurePairedSums(shard, endpoint, aggregator)
    return IdealPairedSums(shard, endpoint, aggregator)


def halved(vectors: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Half of each number, rounded towards 0: the weight of a device without a partner."""
    return np.trunc(vectors / 2).astype(np.int8)


def _noise(shares: Doubles | None, shape: tuple[int, ...], fixed: FixedPoint) -> Doubles:
    """[hosted, width] the shares of noise, with room for a product beside them."""
    room = fixed.limit - _LARGEST
    if room < 0:
        raise UsageError(f"sums over pairs need a `limit` of at least 1, got {fixed.limit:g}")
    if shares is None:
        return np.zeros(shape)
    if shares.shape != shape:
        raise UsageError(f"noise_shares must be {list(shape)}, got {list(shares.shape)}")
    if fixed.clip:
        return np.clip(shares, -room, room)
    if shares.size and not max(float(shares.max()), -float(shares.min())) <= room:
        raise InputError(f"a share of noise lies beyond ±{room:g}; raise `limit`, or set `clip`")
    return shares


def _opened(total: Doubles | None) -> Doubles:
    if total is None:
        raise ProtocolError("a sum over pairs was not opened: too few devices were present")
    return total
