"""Extended oblivious transfers: 128 base transfers become one for each word, by symmetric means.

Ishai, Kilian, Nissim and Petrank 2003, section 3. R has a choice b_f for each of F words, S draws
s ∈ {0,1}^128. In the base transfers, with the roles reversed, R offers two seeds k_i^0, k_i^1 for
each i < 128 and S takes k_i^{s_i}. With G = ChaCha20 and columns of F bits,

    R:  t_i = G(k_i^0)       u_i = t_i ⊕ G(k_i^1) ⊕ b          sends all u_i
    S:  q_i = G(k_i^{s_i}) ⊕ s_i u_i

so that the rows, [F, 128], satisfy q_f = t_f ⊕ b_f s. Pads are hashes of rows: S knows
P_f^0 = H(q_f) and P_f^1 = H(q_f ⊕ s), R knows H(t_f) = P_f^{b_f} and, as long as H is correlation
robust, nothing of the other; S knows nothing of b, which u_i hides under G(k_i^{1-s_i}).

*Correlated transfers.* For numbers z_k in the ring of 2^(8 word) elements

    S:  c_fk = P^0_fk - P^1_fk + z_k      share  -P^0_fk
    R:                                    share  H(t_f)_k + b_f c_fk

and the two shares add up to b_f z_k.
"""

from hashlib import blake2b

import numpy as np

from lumos.aggregate.fixed_point import RingWords
from lumos.crypto import chacha
from lumos.typing import Bytes, Flags

BASE = 128
"""κ, base transfers of one direction."""
SEED = 32
_NONCE = bytes(12)  # each seed is stretched once
_ROW = BASE // 8
_DIGEST = 64


def column_bytes(words: int) -> int:
    """Bytes of one column of the matrix."""
    return -(-words // 8)


def stretch(seeds: Bytes, words: int) -> Bytes:
    """[128, 32] seeds → [128, ⌈words/8⌉] columns of pseudo-random bits."""
    size = column_bytes(words)
    keys = np.ascontiguousarray(seeds).view("<u4").astype(np.uint32)
    stream = np.ascontiguousarray(chacha.blocks(keys, _NONCE, -(-size // 64)), "<u4")
    return stream.view(np.uint8)[:, :size]


def masked_columns(one: Bytes, other: Bytes, chosen: Flags) -> Bytes:
    """u: [128, ⌈words/8⌉] what R sends, from the columns of both seeds and its choices."""
    masked: Bytes = one ^ other ^ np.packbits(chosen, bitorder="little")
    return masked


def transposed(columns: Bytes, words: int) -> Bytes:
    """[128, ⌈words/8⌉] columns → [words, 16] rows."""
    bits = np.unpackbits(columns, axis=1, count=words, bitorder="little")
    return np.packbits(bits.T, axis=1, bitorder="little")


def pads(rows: Bytes, label: bytes, width: int, ring: "np.dtype[np.unsignedinteger]") -> RingWords:
    """[words, width] one pad for each number of each row: H(label, part, f, row f).

    Args:
        rows: [words, 16].
        label: names session, direction, step and attempt; pads under one label are used once.
        width: numbers of each pad.
        ring: type of one number.
    """
    numbered = np.empty((len(rows), 4 + _ROW), np.uint8)
    numbered[:, :4] = np.arange(len(rows), dtype="<u4")[:, None].view(np.uint8)
    numbered[:, 4:] = rows
    data, step = numbered.tobytes(), 4 + _ROW
    pieces = [data[place : place + step] for place in range(0, len(data), step)]
    size = width * ring.itemsize
    hashed = np.empty((len(rows), size), np.uint8)
    for part in range(-(-size // _DIGEST)):
        first = part * _DIGEST
        digest = min(_DIGEST, size - first)
        start = blake2b(
            label + part.to_bytes(4, "little"), digest_size=digest, person=b"lumos.product.1"
        )
        digests = []
        for piece in pieces:
            state = start.copy()
            state.update(piece)
            digests.append(state.digest())
        hashed[:, first : first + digest] = np.frombuffer(b"".join(digests), np.uint8).reshape(
            len(rows), digest
        )
    return hashed.view(ring)
