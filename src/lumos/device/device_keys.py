"""Private keys of devices: fresh from the operating system, or of a secret that a device keeps.

A simulation, and a rank of one, draws them fresh and keeps them in memory. A real device that must
come back after a restart computes them again from a secret on its disk. The secret is drawn from
the operating system for one run and readable by its owner only (`lumos.deploy`).

**What that costs.** Whoever seizes the disk of a device during the run can compute the masks that
it shared with its mask neighbours, also of earlier sums, as if it had colluded with them from the
start. Its own data are on the same disk. Of sessions of two devices it has what the device itself
had, that is, one end's view: what the other end put in is hidden from that. When the run is over
the secret is deleted.
"""

from hashlib import blake2b

from lumos.crypto import entropy
from lumos.crypto.entropy import KEY_BYTES, Expanded
from lumos.crypto.in_memory import InMemoryOnly


class DeviceKeys(InMemoryOnly):
    """The private keys of one device that keeps a secret.

    Args:
        secret: 32 bytes from the operating system, of one run.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(f"a device secret has {KEY_BYTES} bytes")
        self._secret = secret

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
