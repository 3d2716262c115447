"""The only source of cryptographic randomness: scalars, nonces, masks, device secrets.

It is the operating system's generator, in simulations too: no seed, argument or setting replaces
it. (Known-answer tests patch `draw`.)
"""

import secrets


def draw(count: int) -> bytes:
    """`count` fresh bytes from the operating system."""
    return secrets.token_bytes(count)


def bits(count: int) -> list[int]:
    """`count` fresh uniform bits, each 0 or 1."""
    pool = int.from_bytes(draw((count + 7) // 8), "little")
    return [pool >> position & 1 for position in range(count)]
