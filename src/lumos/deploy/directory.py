"""The public directory of a federation: every party's sealing key, signed by the authority.

The file is one JSON object, `{"signature": …, "body": …}`. The signature is over the bytes of the
body as they stand in the file, so nothing is parsed before it has been checked.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from lumos.deploy.certificate_checks import (
    check_authority_certificate,
    fingerprint,
    refuse_expired,
)
from lumos.deploy.certificates import PartyKeys
from lumos.deploy.parties import described, party_name
from lumos.errors import InputError, LumosError
from lumos.storage import write_bytes

DIRECTORY = "directory.json"
_PURPOSE = b"lumos directory 1\0"
"""Signed in front of the body: a signature of the authority's for anything else is none here."""


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the directory says of one party."""

    party: int
    seal: str
    """X25519 public key, in hex."""
    certificate: str
    """SHA-256 of its certificate, in hex."""
    tls_key: str
    """SHA-256 of its TLS key (SubjectPublicKeyInfo), in hex, as NATS pins it."""
    ends: int
    """When its certificate ends, in seconds since 1970."""

    @classmethod
    def of(cls, keys: PartyKeys, certificate: x509.Certificate) -> "Listed":
        """List a certificate that the authority has signed."""
        key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return cls(
            party=keys.party,
            seal=keys.seal.hex(),
            certificate=fingerprint(certificate),
            tls_key=hashlib.sha256(key).hexdigest(),
            ends=int(certificate.not_valid_after_utc.timestamp()),
        )


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    serial: int
    """Grows with every change."""
    parties: list[Listed]


class _Signed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signature: str
    body: msgspec.Raw


@dataclass(frozen=True)
class Directory:
    """The parties of a federation."""

    parties: Mapping[int, Listed] = field(default_factory=dict)
    serial: int = 0
    """Number of the change that made it: of two directories, the larger one is newer."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what is signed, in hex: equal where two parties have the same directory."""
        return hashlib.sha256(self._body()).hexdigest()

    @classmethod
    def load(cls, path: Path, authority: x509.Certificate) -> "Directory":
        """Read a directory, once the signature of the authority is found right.

        Args:
            path: the file.
            authority: certificate of the authority, as `Identity.authority` has it.

        Raises:
            InputError: the file cannot be read, the authority did not sign it or is not valid now,
                or two parties have the same number or key.
        """
        try:
            return cls._read(path.read_bytes(), authority)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        except LumosError as error:
            raise InputError(f"{path}: {error}") from None

    @classmethod
    def _read(cls, content: bytes, authority: x509.Certificate) -> "Directory":
        key = check_authority_certificate(authority)
        try:
            signed = msgspec.json.decode(content, type=_Signed)
            body = bytes(signed.body)
            key.verify(bytes.fromhex(signed.signature), _PURPOSE + body)
        except InvalidSignature:
            raise InputError("is not signed by this authority; fetch the directory again") from None
        except ValueError:  # so are the errors of msgspec
            raise InputError("is not a directory of parties; fetch it again") from None
        try:
            read = msgspec.json.decode(body, type=_Body)
        except ValueError:
            raise InputError("is of another version of Lumos") from None
        parties = {listed.party: listed for listed in read.parties}
        for what in ("party", "seal", "certificate", "tls_key"):
            if len({getattr(listed, what) for listed in read.parties}) < len(read.parties):
                raise InputError(f"lists two parties with the same {what}; issue them again")
        return cls(parties, read.serial)

    def write(self, path: Path, signer: Ed25519PrivateKey) -> None:
        """Sign the directory with the authority's key, and write it."""
        body = self._body()
        signature = signer.sign(_PURPOSE + body).hex()
        write_bytes(path, msgspec.json.encode(_Signed(signature, msgspec.Raw(body))) + b"\n")

    def _body(self) -> bytes:
        listed = sorted(self.parties.values(), key=lambda listed: listed.party)
        return msgspec.json.encode(_Body(self.serial, listed))

    def replaced(self, new: Mapping[int, Listed]) -> "Directory":
        """Return the next directory, in which some parties are new or have new keys."""
        return Directory({**self.parties, **new}, self.serial + 1)

    def listed(self, party: int) -> Listed:
        """Return what is known of a party.

        Raises:
            InputError: nobody has this number, or its certificate has ended.
        """
        if party not in self.parties:
            raise InputError(
                f"the directory has no {party_name(party)!r}; issue a certificate for "
                f"{described(party)}, or fetch the directory again"
            )
        listed = self.parties[party]
        refuse_expired(datetime.fromtimestamp(listed.ends, UTC), described(party))
        return listed

    def sealing_key(self, party: int) -> bytes:
        """Return the public sealing key of a party, 32 bytes.

        Raises:
            InputError: nobody has this number, or its certificate has ended.
        """
        return bytes.fromhex(self.listed(party).seal)
