"""Sums of the products of matched devices: both ends of a pair are in a sum, or neither.

A share alone is uniform: a sum with one share of a pair is uniform too, and worthless. So

1. *before masking* partners confirm to each other that they hold their shares (`ready`); a device
   whose partner did not confirm sends zero for its pair;
2. *after the coordinator said who is lost, and before anything is opened,* partners tell each other
   that they are in the sum with their share (`present`); a device that is, and does not hear it
   from its partner, objects (`lumos.aggregate.objections`);
3. on an objection the attempt is called off unopened and made again without that pair: with fresh
   shares and masks, the same vectors and the same noise; after `ATTEMPTS` of them it is an error;
4. of all attempts of a step at most one is opened: see `lumos.aggregate.attempts` for the rule of
   the holders and the counting argument.

**A lying coordinator** can spoil a sum, not read a product. Within one attempt there is one sum
(`lumos.aggregate.secure`). If it ignores objections, or tells each end that the other is lost, that
sum has one share of the pair: uniform. In another attempt the shares are fresh, so shares of
different attempts of one pair say nothing together; and two attempts with the same vectors, whose
difference would be a pair's product, are not both opened.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from lumos.aggregate import (
    IdealAggregator,
    IdealCoordinator,
    SecureAggregator,
    SecureCoordinator,
)
from lumos.aggregate.fixed_point import FixedPoint
from lumos.aggregate.noise import DrawnNoise
from lumos.crypto.ed25519 import ED25519
from lumos.crypto.group import Group
from lumos.device.shard import Shard
from lumos.errors import InputError, ProtocolError, UsageError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.products.ideal import IdealProducts
from lumos.products.secure import SecureProducts
from lumos.products.topics import PRESENT, READY, STEP_ROUNDS
from lumos.typing import Doubles, Flags, Ints

ATTEMPTS = 4
"""Attempts at one sum before it is an error."""
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

        Args:
            vectors: [hosted, width] Z of each device, -127 to 127.
            noise_shares: [hosted, words · width] each device's share of noise; None for none, or
                where the ideal coordinator adds it.
            step: number of the sum, larger than of those before.

        Raises:
            ProtocolError: the sum could not be opened.
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
        for attempt in range(ATTEMPTS):
            shares = yield from self._products.multiply(vectors, step, attempt, paired)
            words = shares.words
            ready = yield from self._products.say(READY, b"ready", shares.held, step, attempt)
            words[~ready] = 0
            noise = _noise(noise_shares, words.shape, self._aggregator.fixed)
            alone = np.zeros(self._hosted, np.bool_)

            def objections(
                opening: Flags, ready: Flags = ready, alone: Flags = alone, attempt: int = attempt
            ) -> Program[Flags]:
                present = opening & ready
                heard = yield from self._products.say(PRESENT, b"present", present, step, attempt)
                alone[:] = present & ~heard
                return alone

            ended = yield from self._aggregator.attempt(noise, words, step, attempt, objections)
            if not ended.called_off:
                return _opened(ended.total)
            paired &= ~alone
        raise _too_many()


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
        words = fixed.encode_sum(products)
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
        raise _too_many()


def paired_sums(
    shard: Shard, endpoint: Endpoint, aggregator: SecureAggregator | IdealAggregator
) -> PairedSums:
    """The sums over pairs that go with the masked sums of a run."""
    if isinstance(aggregator, SecureAggregator):
        return SecurePairedSums(shard, endpoint, aggregator)
    return IdealPairedSums(shard, endpoint, aggregator)


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


def _too_many() -> ProtocolError:
    return ProtocolError(
        f"a sum over pairs was called off {ATTEMPTS} times: devices fell silent in each attempt, "
        "or too few were present; run again"
    )
