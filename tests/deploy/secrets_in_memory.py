"""Every secret that exists in memory during a run, and a search for their bytes in files."""

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from lumos.crypto import entropy
from lumos.crypto import entropy as chacha
from lumos.device.randomness import DeviceKeys
from lumos.secagg import device as secure
from lumos.secagg import masks
from lumos.secagg.device import SecureAggregator
from lumos.secagg.masks import PairKeys
from lumos.secagg.shares import ShareVault

_PREFIX = 8


class SecretsInMemory:
    """Hooks that keep a copy of each secret of all devices, by what it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kinds: dict[bytes, str] = {}
        self.seen: set[str] = set()
        self.vectors: dict[bytes, int] = {}
        """What devices bring to sums, before it is masked, and whose it is."""
        self.chains: list[bytes] = []
        self.public_keys: set[bytes] = set()
        self._private: set[bytes] = set()

        def hook(place: Any, name: str, note: Callable[..., object]) -> None:
            call = getattr(place, name)

            def noted(*given: Any, **named: Any) -> Any:
                result = call(*given, **named)
                note(result, *given)
                return result

            monkeypatch.setattr(place, name, noted)

        hook(entropy, "draw", lambda drawn, _count: self._bytes("draw", drawn))
        hook(DeviceKeys, "__init__", self._keys)
        hook(DeviceKeys, "key", lambda key, *_given: self._bytes("device key", key))
        hook(PairKeys, "public_keys", self._agreeing)
        hook(PairKeys, "agree", lambda _none, pairs, _received: self._chain(pairs))
        hook(PairKeys, "_turn", lambda _none, pairs: self._chain(pairs))
        hook(PairKeys, "ratchet", self._ratchet)
        hook(ShareVault, "__init__", lambda _none, _vault, values: self._rows("share", values))
        hook(secure, "secrets_of", lambda secrets, *_given: self._rows("shared", secrets[0]))
        hook(masks, "keys_of", lambda keys, *_given: self._rows("mask key", keys))
        hook(masks, "pair_keys_of", lambda keys, *_given: self._rows("mask key", keys))
        hook(masks, "add_masks", lambda _none, _vectors, keys, *_rows: self._masks(keys))
        # A program: what it is given is noted when it is made.
        hook(
            SecureAggregator,
            "_collect",
            lambda _program, sums, vectors, *_: self._vector(int(sums._shard.devices[0]), vectors),
        )

    def patterns(self) -> dict[bytes, str]:
        """How each secret could be written: as it is, as wide numbers, or as text."""
        return {
            pattern: kind
            for secret, kind in {**self.kinds, **self._agreements()}.items()
            for pattern in written(secret)
        }

    def _agreements(self) -> dict[bytes, str]:
        pairs = combinations(sorted(self._private), 2)
        return {
            X25519PrivateKey.from_private_bytes(one).exchange(
                X25519PublicKey.from_public_bytes(
                    X25519PrivateKey.from_private_bytes(other).public_key().public_bytes_raw()
                )
            ): "agreement"
            for one, other in pairs
        }

    def _keys(self, _none: None, keys: DeviceKeys, secret: bytes, *_plan: bytes) -> None:
        self._bytes("secret", secret)
        self._bytes("secret", keys._secret)

    def _agreeing(self, public: npt.NDArray[Any], pairs: PairKeys, private: list[bytes]) -> None:
        self.public_keys.update(row.tobytes() for row in public)
        self._private.update(private)

    def _chain(self, pairs: PairKeys) -> None:
        self._rows("chain", pairs._chain)
        self.chains.append(pairs._chain[0].tobytes())

    def _ratchet(self, keys: Any, *_given: Any) -> None:
        for name, rows in keys._asdict().items():
            self._rows(name, rows)

    def _masks(self, keys: npt.NDArray[np.uint32]) -> None:
        if len(keys):
            self._rows("mask", chacha.blocks(keys, masks.NONCE, 1))

    def _vector(self, device: int, vectors: npt.NDArray[Any]) -> None:
        for row in vectors:
            for start in range(0, row.size, 16):
                part = np.ascontiguousarray(row[start : start + 16])
                if len(np.unique(part)) >= 4:  # zeros and the like are anybody's
                    self.vectors[part.tobytes()] = device

    def _rows(self, kind: str, array: npt.NDArray[Any]) -> None:
        width = array.shape[-1] * array.itemsize
        whole = np.ascontiguousarray(array).tobytes()
        for start in range(0, len(whole), width):
            self._bytes(kind, whole[start : start + width])

    def _bytes(self, kind: str, secret: bytes) -> None:
        if len(secret) >= _PREFIX and any(secret):
            self.seen.add(kind)
            self.kinds.setdefault(bytes(secret), kind)


class Search:
    """Finds patterns at any place of files. The patterns are sorted once, for many files."""

    def __init__(self, patterns: Iterable[bytes]) -> None:
        self._patterns = frozenset(patterns)
        self._lengths: dict[int, set[int]] = {}
        for pattern in self._patterns:
            prefix = int.from_bytes(pattern[:_PREFIX], "little")
            self._lengths.setdefault(prefix, set()).add(len(pattern))
        self._prefixes = np.array(sorted(self._lengths), np.uint64)

    def found(self, content: bytes) -> set[bytes]:
        """The patterns that occur anywhere in the content."""
        whole = np.frombuffer(content, np.uint8)
        if len(whole) < _PREFIX:
            return set()
        windows = np.lib.stride_tricks.sliding_window_view(whole, _PREFIX).copy()
        prefixes = windows.view("<u8").ravel()
        places = np.flatnonzero(np.isin(prefixes, self._prefixes))
        return {
            pattern
            for place, prefix in zip(places.tolist(), prefixes[places].tolist(), strict=True)
            for length in self._lengths[prefix]
            if (pattern := content[place : place + length]) in self._patterns
        }


def written(secret: bytes) -> Iterator[bytes]:
    """The forms in which a file could hold a secret."""
    yield secret
    yield secret.hex().encode()
    for narrow in ("<u1", "<u2", "<u4"):
        if len(secret) % np.dtype(narrow).itemsize == 0:
            yield np.frombuffer(secret, narrow).astype("<i8").tobytes()
