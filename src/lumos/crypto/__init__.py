"""Cryptographic primitives, below everything that uses them.

| module | what it provides | used for |
|---|---|---|
| `entropy` | bytes from the operating system's generator | scalars, nonces, masks, device secrets |
| `chacha` | ChaCha20 key streams, many keys at once | private coins, masks of secure sums |
| `group` | the prime-order group of edwards25519 | oblivious transfer of the secret comparison |
| `in_memory` | a base class that refuses pickling and copying | sessions, keys, shares |

Assumptions: the operating system's generator is sound, ChaCha20 is a pseudo-random function, and
Diffie-Hellman is hard in edwards25519. Curve arithmetic is libsodium's (constant time), ChaCha20 is
OpenSSL's for few keys and numpy's for many. Nothing here knows a device, a message or a carrier.
"""
