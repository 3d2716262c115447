"""The one tap of cryptographic randomness: scalars, nonces, masks.

It is the operating system's generator and nothing else, in simulations too. The known-answer
tests replace ``draw`` from outside; no argument, setting or variable of ours does.
"""

import secrets


def draw(count: int) -> bytes:
    """Fresh bytes from the operating system."""
    return secrets.token_bytes(count)


def bits(count: int) -> list[int]:
    """Fresh uniform bits, each 0 or 1."""
    pool = int.from_bytes(draw((count + 7) // 8), "little")
    return [pool >> position & 1 for position in range(count)]
