"""Signatures on messages of sums, so that a lie can be shown to others.

A device signs what it sends in a sum with proofs (`lumos.secagg.bounded`) with the key of its
certificate. Who signs, and who knows the public keys, is decided outside of programs: `within` sets
it while a program runs, as `lumos.crypto.entropy.within` sets what is drawn from.

A simulation has no certificates: everything is in one process, and `SIMULATED` signatures prove
nothing to anybody. They have the size of real ones.
"""

from contextvars import ContextVar
from hashlib import blake2b
from typing import Protocol

from lumos.crypto.entropy import Meanwhile

SIGNATURE = 64
"""Bytes of a signature (Ed25519)."""


class Signatures(Protocol):
    """Signs for hosted devices, and checks signatures of all devices."""

    def sign(self, device: int, digest: bytes) -> bytes:
        """Return the signature of a hosted device, `SIGNATURE` bytes."""
        ...

    def check(self, device: int, digest: bytes, signature: bytes) -> bool:
        """Return whether a device has signed a digest."""
        ...


class SimulatedSignatures:
    """Hashes in place of signatures: for participants that share a process."""

    def sign(self, device: int, digest: bytes) -> bytes:
        """Return a hash of both."""
        name = device.to_bytes(8, "little")
        return blake2b(name + digest, digest_size=SIGNATURE, person=b"lumos simulated").digest()

    def check(self, device: int, digest: bytes, signature: bytes) -> bool:
        """Return whether it is that hash."""
        return self.sign(device, digest) == signature


SIMULATED = SimulatedSignatures()
PRESENT: ContextVar[Signatures] = ContextVar("signatures", default=SIMULATED)


def present() -> Signatures:
    """Return the signatures of the program that runs."""
    return PRESENT.get()


def within(signatures: Signatures) -> Meanwhile:
    """Meanwhile programs sign and check with these."""
    return Meanwhile((PRESENT, signatures))
