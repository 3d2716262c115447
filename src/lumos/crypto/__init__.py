"""Cryptographic primitives, below everything that uses them.

| module | what it provides | used for |
|---|---|---|
| `entropy` | bytes from the operating system's generator | scalars, nonces, masks, secrets |
| `entropy` | ChaCha20 key streams, many keys at once | private randomness, masks of secure sums |
| `entropy` | a base class that refuses pickling and copying | sessions, keys, shares |
| `groups` | edwards25519, in constant time | comparisons and scores of real devices |
| `groups` | secp256k1, twice as quick | comparisons and scores of simulations |

Assumptions: the operating system's generator is sound, ChaCha20 is a pseudo-random function, and
Diffie-Hellman is hard in the group that is used. Arithmetic of edwards25519 is libsodium's
(constant time), of secp256k1 libsecp256k1's (not constant time), ChaCha20 is OpenSSL's for few keys
and numpy's for many. Nothing here knows a device, a message or a transport.
"""
