"""A request for a certificate, of a device that made its keys itself: they never leave it.

The file has a standard signing request (PKCS #10), which the TLS key signs and which names the
party and its sealing key. X25519 keys cannot sign; the sealing key is therefore drawn as an Ed25519
key, signs the request once and is kept in its X25519 form only. So nobody can have another's
sealing key certified as its own.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from lumos.crypto import entropy
from lumos.crypto.in_memory import InMemoryOnly
from lumos.deploy.certificate_checks import read_party_uris
from lumos.deploy.certificates import PartyKeys, new_tls_key, party_name_of, party_uris
from lumos.deploy.key_files import KEY, SEAL_KEY, read_small, write_tls_key
from lumos.deploy.parties import party_name
from lumos.errors import InputError, LumosError, UsageError
from lumos.storage import private_folder, write_bytes

REQUEST = "request.json"
_PURPOSE = b"lumos sealing key 1\0"


class NewKeys(InMemoryOnly):
    """The private keys of a party, just drawn."""

    __slots__ = ("_signing", "party", "tls")

    def __init__(self, party: int) -> None:
        party_name(party)  # refuses what is no party
        self.party = party
        self.tls: Ed25519PrivateKey = new_tls_key()
        self._signing = SigningKey(entropy.draw(32))

    @property
    def public(self) -> PartyKeys:
        """Who it is, and its public sealing key."""
        return PartyKeys(self.party, bytes(self._signing.verify_key.to_curve25519_public_key()))

    def write(self, folder: Path) -> None:
        """Write both keys, for their owner only."""
        private_folder(folder)
        write_tls_key(folder / KEY, self.tls)
        seal = bytes(self._signing.to_curve25519_private_key())
        write_bytes(folder / SEAL_KEY, seal, private=True)

    def request(self) -> bytes:
        """Return a request for a certificate of these keys, with proof that they are ours."""
        builder = x509.CertificateSigningRequestBuilder(party_name_of(self.party))
        names = x509.SubjectAlternativeName(party_uris(self.public))
        signed = builder.add_extension(names, critical=False).sign(self.tls, None)
        proof = self._signing.sign(_PURPOSE + signed.public_bytes(Encoding.DER)).signature
        return msgspec.json.encode(
            _Request(
                pkcs10=signed.public_bytes(Encoding.PEM).decode(),
                seal=bytes(self._signing.verify_key).hex(),
                proof=proof.hex(),
            )
        )


class CheckedRequest(NamedTuple):
    """A request whose sender has the private keys."""

    keys: PartyKeys
    tls: Ed25519PublicKey
    fingerprint: str
    """SHA-256 of the file: compare it with what the device printed."""


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pkcs10: str
    seal: str
    """The sealing key as an Ed25519 public key, in hex."""
    proof: str
    """Its signature of the request, in hex."""


def request_certificate(folder: Path, party: int) -> Path:
    """Draw the keys of a party in a folder, and write a request for its certificate beside them.

    The request is all that goes to the authority; `certificate.pem` and `authority.pem`, which it
    returns, belong into the same folder.

    Args:
        folder: a new folder, or one without keys.
        party: who asks.

    Returns:
        The file of the request.

    Raises:
        UsageError: there are keys already.
    """
    for name in (KEY, SEAL_KEY):
        if (folder / name).exists():
            raise UsageError(f"{folder / name} is there already; choose a new folder")
    keys = NewKeys(party)
    keys.write(folder)
    write_bytes(folder / REQUEST, keys.request() + b"\n")
    return folder / REQUEST


def read_request(path: Path) -> CheckedRequest:
    """Read a request, and check that its sender has the private keys.

    Raises:
        InputError: the file cannot be read, or a proof is wrong.
    """
    content = read_small(path)
    try:
        keys, tls = _checked(content)
    except LumosError as error:
        raise InputError(f"{path}: {error}") from None
    return CheckedRequest(keys, tls, hashlib.sha256(content).hexdigest())


def _checked(content: bytes) -> tuple[PartyKeys, Ed25519PublicKey]:
    wrong = "is not a request for a certificate; write it with: lumos pki request"
    try:
        request = msgspec.json.decode(content, type=_Request)
        signed = x509.load_pem_x509_csr(request.pkcs10.encode())
        tls, valid = signed.public_key(), signed.is_signature_valid
        signer, proof = VerifyKey(bytes.fromhex(request.seal)), bytes.fromhex(request.proof)
        seal = bytes(signer.to_curve25519_public_key())
        keys = read_party_uris(signed.extensions)
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature, CryptoError):
        raise InputError(wrong) from None
    if not valid or not isinstance(tls, Ed25519PublicKey):
        raise InputError("its sender has not shown to have the TLS key")
    try:
        signer.verify(_PURPOSE + signed.public_bytes(Encoding.DER), proof)
    except (ValueError, CryptoError):
        raise InputError("its sender has not shown to have the sealing key") from None
    if keys.seal != seal:
        raise InputError("names another sealing key than the one that it proves")
    return keys, tls
