"""Public randomness from the run seed, private randomness from a secret that a device has alone.

Guarantee: whoever knows the run seed and all ids, but not a device's secret, cannot tell its
private randomness from uniform numbers (ChaCha20 as a pseudo-random function). A simulation derives
all secrets from the run seed, so that a run can be repeated; such a run is labelled `randomness:
seeded`, because there the guarantee holds only against those who do not know the seed.

Private keys of devices are fresh, or follow from a secret that a device keeps (`DeviceKeys`).
"""

from hashlib import blake2b
from struct import unpack_from
from typing import Literal

import numpy as np
import numpy.typing as npt

from lumos.crypto import entropy
from lumos.crypto.entropy import KEY_BYTES, Expanded, InMemoryOnly
from lumos.errors import typed
from lumos.graph.arrays import spans
from lumos.typing import Doubles, Ints, Words

RandomnessSource = Literal["seeded", "system"]
"""The source of device secrets: the run seed (a run can be repeated), or the operating system."""


_BLOCKS = 1 << 13  # drawn at a time: three times as fast in the cache as outside


def system_secrets(devices: Ints) -> Words:
    """Fresh secrets from the operating system: [devices, 8] words. They never leave the device."""
    raw = entropy.draw(32 * len(devices))
    return np.frombuffer(raw, "<u4").astype(np.uint32).reshape(len(devices), 8)


def simulated_secrets(seed: int, devices: Ints, variant: str = "") -> Words:
    """Secrets of simulated devices: [devices, 8] words, a function of run seed and id.

    Args:
        variant: name of an experiment beside the run, which has secrets of its own.
    """
    key = blake2b(f"lumos simulated secrets {seed}{variant}".encode(), digest_size=32).digest()
    master = np.frombuffer(key, "<u4").astype(np.uint32)
    # Two ids share a block of 64 bytes; blocks are made in runs to bound the memory.
    wanted = np.asarray(devices, np.int64)
    if not len(wanted):
        return np.empty((0, 8), np.uint32)
    run = 1 << 16
    secrets = np.empty((len(wanted), 8), np.uint32)
    for number in np.unique(wanted // run):
        nonce = blake2b(str(number).encode(), digest_size=12).digest()
        here = wanted // run == number
        places = wanted[here] % run
        blocks = int(places.max()) // 2 + 1  # of a small federation, few
        secrets[here] = entropy.blocks(master[None, :], nonce, blocks).reshape(-1, 8)[places]
    return secrets


class PrivateRandomness:
    """The private randomness of the devices of one shard, as streams named by purpose and step.

    The same (purpose, step) gives the same randomness, so each is used once in a run. Secrets
    belong to one run: a device that kept its secret would repeat its randomness.
    """

    def __init__(self, secrets: Words) -> None:
        self._secrets = secrets
        self._streams: dict[int, entropy.KeyStream] = {}

    def __repr__(self) -> str:
        return f"PrivateCoins(devices={len(self._secrets)})"

    def words(self, rows: Ints, purpose: str, step: int, count: int) -> Words:
        """[rows, count] uniform 32-bit words for the hosted devices `rows` (local indices)."""
        nonce, blocks = _nonce(purpose, step), -(-count // 16)
        if len(rows) * blocks <= _BLOCKS:
            return entropy.blocks(self._secrets[rows], nonce, blocks)[:, :count]
        words = np.empty((len(rows), count), np.uint32)
        some = max(1, _BLOCKS // blocks)
        for start in range(0, len(rows), some):
            keys = self._secrets[rows[start : start + some]]
            words[start : start + some] = entropy.blocks(keys, nonce, blocks)[:, :count]
        return words

    def uniform(self, rows: Ints, purpose: str, step: int, count: int = 1) -> Doubles:
        """[rows, count] numbers strictly between 0 and 1, 52 bits each."""
        return _uniform(self.words(rows, purpose, step, 2 * count))

    def uniform_each(self, counts: Ints, purpose: str, step: int) -> Doubles:
        """[sum of counts] numbers between 0 and 1: `counts[i]` for hosted device i, in order."""
        return _uniform(self.words_each(np.arange(len(counts)), 2 * counts, purpose, step))

    def words_each(self, rows: Ints, counts: Ints, purpose: str, step: int) -> Words:
        """[sum of counts] uniform 32-bit words: `counts[i]` for hosted device `rows[i]`, in order.

        Devices that need about as many are drawn together, so little is drawn in vain.
        """
        drawn = np.empty(int(counts.sum()), np.uint32)
        starts = np.cumsum(counts) - counts
        size = 1
        while size < 2 * counts.max(initial=0):
            some = np.flatnonzero((counts > size // 2) & (counts <= size))
            if len(some):
                words = self.words(rows[some], purpose, step, size)
                wanted = np.arange(size) < counts[some, None]
                drawn[spans(starts[some], counts[some])] = words[wanted]
            size *= 2
        return drawn

    def uniform_of(self, row: int, purpose: str, step: int, count: int) -> list[float]:
        """`uniform` of one hosted device that draws often, a few numbers each time."""
        stream = self._streams.get(row)
        if stream is None:
            stream = self._streams[row] = entropy.KeyStream(self._secrets[row])
        words = unpack_from(f"<{2 * count}I", stream.blocks(_nonce(purpose, step), -(-count // 8)))
        return [
            ((high << 20 | low >> 12) + 0.5) * 2.0**-52
            for high, low in zip(words[0::2], words[1::2], strict=True)
        ]


def _uniform(words: Words) -> Doubles:
    """[…, count] numbers strictly between 0 and 1, from two words each."""
    wide = words.astype(np.uint64)
    high, low = wide[..., 0::2], wide[..., 1::2]
    # Not 53 bits: the largest of them and a half would be rounded up to 1.
    bits = (high << np.uint64(20)) | (low >> np.uint64(12))
    uniform: Doubles = (bits.astype(np.float64) + 0.5) * 2.0**-52
    return uniform


def _nonce(purpose: str, step: int) -> bytes:
    return blake2b(f"{purpose}/{step}".encode(), digest_size=12).digest()


class PublicRandomness:
    """Randomness that everyone can recompute from the run seed.

    Args:
        seed: run seed.
        plan: digest of the plan of real devices, which enters the draw of the mask graph; empty in
            a simulation.
    """

    def __init__(self, seed: int, plan: bytes = b"") -> None:
        self.seed: int = typed("seed", seed, int)
        self.plan = plan

    def generator(self, purpose: str, step: int = 0) -> np.random.Generator:
        """A generator of its own for each purpose and step."""
        key = blake2b(f"{self.seed}/{purpose}/{step}".encode(), digest_size=16).digest()
        return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))

    def for_pairs(self, purpose: str, first: Ints, second: Ints) -> npt.NDArray[np.bool_]:
        """One fair random bit for each unordered pair of ids: both ends toss the same one."""
        key = blake2b(f"{self.seed}/{purpose}".encode(), digest_size=8).digest()
        low = np.minimum(first, second).astype(np.uint64)
        high = np.maximum(first, second).astype(np.uint64)
        mixed = mix(mix(low + np.uint64(int.from_bytes(key, "little"))) ^ high)
        return (mixed >> np.uint64(63)).astype(np.bool_)


def mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a step of SplitMix64: each bit of the output depends on every bit of the input."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


# Private keys of devices: fresh from the operating system, or of a secret that a device keeps.
#
# A simulation, and a rank of one, draws them fresh and keeps them in memory. A real device that
# must come back after a restart computes them again from a secret on its disk. The secret is drawn
# from the operating system for one run and readable by its owner only (`lumos.deploy`).
#
# **What that costs.** Whoever seizes the disk of a device during the run can compute the masks that
# it shared with its mask neighbours, also of earlier sums, as if it had colluded with them from the
# start. Its own data are on the same disk. Of sessions of two devices it has what the device itself
# had, that is, one end's view: what the other end put in is hidden from that. When the run is over
# the secret is deleted.


class DeviceKeys(InMemoryOnly):
    """The private keys of one device that keeps a secret.

    Args:
        secret: 32 bytes from the operating system, of one run.
        plan: digest of the run's plan. It enters all keys: with a changed plan no noise, mask or
            nonce is drawn again.
    """

    def __init__(self, secret: bytes, plan: bytes = b"") -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(f"a device secret has {KEY_BYTES} bytes")
        self._secret = blake2b(
            plan, key=secret, digest_size=KEY_BYTES, person=b"lumos plan"
        ).digest()

    def key(self, purpose: str, run: bytes) -> bytes:
        """32 bytes: the same for the same purpose and run, and independent of all others."""
        return blake2b(
            purpose.encode() + b"\0" + run, key=self._secret, digest_size=KEY_BYTES
        ).digest()

    def expanded(self, purpose: str, run: bytes) -> Expanded:
        """Bytes to draw from, the same again for the same purpose and run."""
        return Expanded(self.key(purpose, run))


def fresh_key() -> bytes:
    """32 bytes that nobody can compute again."""
    return entropy.draw(KEY_BYTES)
