"""The authority of a federation: it signs certificates, and keeps the directory.

    authority.pem  authority.key  directory.json
    coordinator/   device-0/  device-1/  …   each with certificate, private keys and authority.pem
    broker/                                  certificate and TLS key of the NATS server

A participant's folder goes to the participant. `authority.key` stays: its holder can take the
place of anybody.

A device may make its keys itself, so that they never leave it, and request a certificate. The file
has a standard signing request (PKCS #10), which the TLS key signs and which names the participant
and its sealing key. X25519 keys cannot sign; the sealing key is therefore drawn as an Ed25519 key,
signs the request once and is kept in its X25519 form only. So nobody can have another's sealing key
certified as its own.
"""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import timedelta
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
from lumos.crypto.entropy import InMemoryOnly
from lumos.deploy.identity import (
    AUTHORITY,
    CERTIFICATE,
    DIRECTORY,
    KEY,
    SEAL_KEY,
    YEAR,
    Directory,
    Listed,
    ParticipantKeys,
    Validity,
    authority_certificate,
    broker_certificate,
    certificate_name,
    described,
    folder_name,
    new_tls_key,
    participant_certificate,
    participant_name,
    participant_uris,
    read_authority,
    read_participant_uris,
    read_small,
    read_tls_key,
    signed,
    write_certificate,
    write_tls_key,
)
from lumos.device.shard import COORDINATOR
from lumos.errors import InputError, LumosError, UsageError
from lumos.storage import locked, private_folder, write_bytes

REQUEST = "request.json"
_PURPOSE = b"lumos sealing key 1\0"


class NewKeys(InMemoryOnly):
    """The private keys of a participant, just drawn."""

    __slots__ = ("_signing", "participant", "tls")

    def __init__(self, participant: int) -> None:
        participant_name(participant)  # refuses what is no participant
        self.participant = participant
        self.tls: Ed25519PrivateKey = new_tls_key()
        self._signing = SigningKey(entropy.draw(32))

    @property
    def public(self) -> ParticipantKeys:
        """The participant and its public sealing key."""
        return ParticipantKeys(
            self.participant, bytes(self._signing.verify_key.to_curve25519_public_key())
        )

    def write(self, folder: Path) -> None:
        """Write both keys, for their owner only."""
        private_folder(folder)
        write_tls_key(folder / KEY, self.tls)
        seal = bytes(self._signing.to_curve25519_private_key())
        write_bytes(folder / SEAL_KEY, seal, private=True)

    def request(self) -> bytes:
        """Return a request for a certificate of these keys, with proof that they are ours."""
        builder = x509.CertificateSigningRequestBuilder(
            certificate_name(folder_name(self.participant))
        )
        names = x509.SubjectAlternativeName(participant_uris(self.public))
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

    keys: ParticipantKeys
    tls: Ed25519PublicKey
    fingerprint: str
    """SHA-256 of the file: compare it with what the device printed."""


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pkcs10: str
    seal: str
    """The sealing key as an Ed25519 public key, in hex."""
    proof: str
    """Its signature of the request, in hex."""


def request_certificate(folder: Path, participant: int) -> Path:
    """Draw the keys of a participant in a folder, and write a request for its certificate beside
    them.

    The request is all that goes to the authority; `certificate.pem` and `authority.pem`, which it
    returns, belong into the same folder.

    Args:
        folder: a new folder, or one without keys.
        participant: number of the device, or `COORDINATOR`.

    Returns:
        The file of the request.

    Raises:
        UsageError: there are keys already.
    """
    for name in (KEY, SEAL_KEY):
        if (folder / name).exists():
            raise UsageError(f"{folder / name} is there already; choose a new folder")
    keys = NewKeys(participant)
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


def _checked(content: bytes) -> tuple[ParticipantKeys, Ed25519PublicKey]:
    wrong = "is not a request for a certificate; write it with: lumos pki request"
    try:
        request = msgspec.json.decode(content, type=_Request)
        signed = x509.load_pem_x509_csr(request.pkcs10.encode())
        tls, valid = signed.public_key(), signed.is_signature_valid
        signer, proof = VerifyKey(bytes.fromhex(request.seal)), bytes.fromhex(request.proof)
        seal = bytes(signer.to_curve25519_public_key())
        keys = read_participant_uris(signed.extensions)
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature, CryptoError):
        raise InputError(wrong) from None
    if not valid or not isinstance(tls, Ed25519PublicKey):
        raise InputError("does not prove possession of the TLS key")
    try:
        signer.verify(_PURPOSE + signed.public_bytes(Encoding.DER), proof)
    except (ValueError, CryptoError):
        raise InputError("does not prove possession of the sealing key") from None
    if keys.seal != seal:
        raise InputError("names another sealing key than the one that it proves")
    return keys, tls


AUTHORITY_KEY = "authority.key"
BROKER = "broker"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
AUTHORITY_LASTS = 10 * YEAR


class FederationAuthority(InMemoryOnly):
    """The signing authority of a federation; `create` and `open` make one."""

    __slots__ = ("_key", "certificate", "folder")

    def __init__(self, folder: Path, certificate: x509.Certificate, key: Ed25519PrivateKey) -> None:
        self.folder, self.certificate, self._key = folder, certificate, key

    @classmethod
    def create(cls, folder: Path, duration: timedelta = AUTHORITY_LASTS) -> "FederationAuthority":
        """Make a new authority, with an empty directory.

        Args:
            folder: a new or empty one.
            duration: time for which it is valid.

        Raises:
            UsageError: the folder is not empty, or the duration not positive.
        """
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise UsageError(f"{folder}: is there already; choose a new folder")
        key = new_tls_key()
        certificate = authority_certificate(key, Validity.lasting(duration))
        private_folder(folder)
        write_tls_key(folder / AUTHORITY_KEY, key)
        Directory().write(folder / DIRECTORY, key)
        write_certificate(folder / AUTHORITY, certificate)
        return cls(folder, certificate, key)

    @classmethod
    def open(cls, folder: Path) -> "FederationAuthority":
        """Open the folder of an authority.

        Raises:
            UsageError: there is none.
            InputError: a file is damaged, others may read the key, or the authority has ended.
        """
        if not (folder / AUTHORITY).is_file():
            raise UsageError(f"{folder}: has no authority; make one with: lumos pki init {folder}")
        certificate, public = read_authority(folder)
        key = read_tls_key(folder / AUTHORITY_KEY)
        if public != key.public_key():
            raise InputError(f"{folder / AUTHORITY_KEY}: is not the key of {AUTHORITY}")
        return cls(folder, certificate, key)

    @property
    def directory(self) -> Directory:
        """The directory as it is on disk."""
        return Directory.load(self.folder / DIRECTORY, self.certificate)

    def sign(self, purpose: bytes, body: bytes) -> bytes:
        """Return a signed file; arguments as in `signed`."""
        return signed(purpose, body, self._key)

    def issue(self, participants: Iterable[int], validity: Validity | None = None) -> list[Path]:
        """Draw keys for participants and sign their certificates; all join the directory at once.

        A participant that has a certificate gets new keys, which replace the old ones in the
        directory.

        Args:
            participants: numbers of devices, and `COORDINATOR`.
            validity: by default a year from now.

        Returns:
            Their folders.

        Raises:
            UsageError: a number is no participant's, or given twice; the authority ends before.
        """
        chosen = list(participants)
        if len(set(chosen)) < len(chosen):
            raise UsageError("a participant is named twice; name each once")
        drawn = [NewKeys(participant) for participant in chosen]
        validity = validity or Validity.lasting()
        signed = [self._signed(keys.public, keys.tls.public_key(), validity) for keys in drawn]
        with locked(self.folder / DIRECTORY):
            directory = self.directory
            new: dict[int, Listed] = {}
            for keys, certificate in zip(drawn, signed, strict=True):
                keys.write(self._place(keys.participant))
                self._write(keys.participant, certificate)
                new[keys.participant] = Listed.of(keys.public, certificate)
            directory.replaced(new).write(self.folder / DIRECTORY, self._key)
        return [self._place(participant) for participant in chosen]

    def issue_requested(
        self, request: Path, validity: Validity | None = None
    ) -> tuple[CheckedRequest, Path]:
        """Sign the certificate that a participant asks for, which keeps its private keys itself.

        The operator must check that the request is that participant's: compare the fingerprint with
        the one that the device printed.

        Args:
            request: a file of `request_certificate`.
            validity: by default a year from now.

        Returns:
            The request, and a folder with `certificate.pem` and `authority.pem`, for the
            participant to copy beside its keys.

        Raises:
            InputError: the request is damaged, lacks a proof, or has a key of another participant.
        """
        asked = read_request(request)
        participant = asked.keys.participant
        certificate = self._signed(asked.keys, asked.tls, validity or Validity.lasting())
        listed = Listed.of(asked.keys, certificate)
        with locked(self.folder / DIRECTORY):
            directory = self.directory
            for other in directory.participants.values():
                taken = other.seal == listed.seal or other.tls_key == listed.tls_key
                if taken and other.participant != participant:
                    raise InputError(f"{request}: has a key of {described(other.participant)}")
            place = self._place(participant)
            private_folder(place)
            for stale in (KEY, SEAL_KEY):  # of an earlier certificate
                (place / stale).unlink(missing_ok=True)
            self._write(participant, certificate)
            directory.replaced({participant: listed}).write(self.folder / DIRECTORY, self._key)
        return asked, place

    def issue_broker(
        self, hosts: Sequence[str] = LOOPBACK, validity: Validity | None = None
    ) -> Path:
        """Draw a key for the broker and sign its certificate.

        Args:
            hosts: names and addresses by which participants reach it.
            validity: by default a year from now.

        Returns:
            Its folder.

        Raises:
            UsageError: a host is none; the authority ends before.
        """
        key, validity = new_tls_key(), validity or Validity.lasting()
        certificate = broker_certificate(
            hosts, key.public_key(), self.certificate, self._key, validity
        )
        place = self.folder / BROKER
        private_folder(place)
        write_tls_key(place / KEY, key)
        write_certificate(place / CERTIFICATE, certificate)
        write_certificate(place / AUTHORITY, self.certificate)
        return place

    def _signed(
        self, keys: ParticipantKeys, public: Ed25519PublicKey, validity: Validity
    ) -> x509.Certificate:
        return participant_certificate(keys, public, self.certificate, self._key, validity)

    def _place(self, participant: int) -> Path:
        return self.folder / folder_name(participant)

    def _write(self, participant: int, certificate: x509.Certificate) -> None:
        write_certificate(self._place(participant) / CERTIFICATE, certificate)
        write_certificate(self._place(participant) / AUTHORITY, self.certificate)


def make_federation(
    folder: Path, devices: int, hosts: Sequence[str] = LOOPBACK
) -> FederationAuthority:
    """Make an authority with a broker, the coordinator and devices 0, 1, …, all on this machine.

    Args:
        folder: a new or empty one.
        devices: number of devices.
        hosts: names and addresses of the broker.
    """
    authority = FederationAuthority.create(folder)
    authority.issue_broker(hosts)
    authority.issue([COORDINATOR, *range(devices)])
    return authority
