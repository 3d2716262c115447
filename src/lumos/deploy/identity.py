"""The identity of a participant: names, keys, certificate, and the directory of all public keys.

As in the exchange, a participant is a number: a device's own, or `COORDINATOR`. It has a short name
in subjects, `17` or `c`; a user name for the broker, which its certificate holds,
`lumos://device/17` or `lumos://coordinator`; and a folder, `device-17` or `coordinator`. Private
keys in it are for their owner only, and refused otherwise.

All keys of TLS are Ed25519: Go's TLS (the NATS server) and OpenSSL (Python) both take them, and
signing needs no randomness. A participant's certificate binds three things: its number, as a URI
that the broker maps to a user; its TLS key; and its sealing key (X25519), as a second URI. A
broker's certificate names hosts, and no participant. Certificates of participants are for clients
and those of brokers for servers, so neither can take the other's place.

The public directory has every participant's sealing key, signed by the authority; so is the plan of
a run (`lumos.deploy.plan`). Such a file is one JSON object, `{"signature": …, "body": …}`. The
signature is over the bytes of the body as they stand in the file, so nothing is parsed before it
has been checked.
"""

import hashlib
import ipaddress
import os
import re
import ssl
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from nacl.public import Box, PrivateKey, PublicKey

from lumos.crypto import entropy
from lumos.crypto.entropy import InMemoryOnly
from lumos.device.shard import COORDINATOR
from lumos.errors import InputError, LumosError, UsageError
from lumos.storage import write_bytes

_SHORT = "c"
_COORDINATOR_USER = "lumos://coordinator"
_DEVICE_USER = re.compile(r"lumos://device/(0|[1-9][0-9]{0,17})")


def participant_name(participant: int) -> str:
    """Return a participant's name in subjects: `c`, or the number of the device.

    Raises:
        UsageError: there is no such participant.
    """
    if participant == COORDINATOR:
        return _SHORT
    if not 0 <= participant < 10**18:
        raise UsageError(f"a device has a number from 0 on, got {participant}")
    return str(participant)


def subject(receiver: int, sender: int) -> str:
    """Return the subject of what one participant sends to another: `to.<receiver>.<sender>`."""
    return f"to.{participant_name(receiver)}.{participant_name(sender)}"


def publish_subjects(participant: int) -> str:
    """Return the only subjects on which a participant may publish: from itself, to anybody."""
    return f"to.*.{participant_name(participant)}"


def own_subjects(participant: int) -> str:
    """Return the only subjects to which a participant may subscribe: from anybody, to itself."""
    return f"to.{participant_name(participant)}.*"


def user_name(participant: int) -> str:
    """Return the name under which the broker knows a participant: a URI, in its certificate."""
    return (
        _COORDINATOR_USER
        if participant == COORDINATOR
        else f"lumos://device/{participant_name(participant)}"
    )


def participant_of(user: str) -> int | None:
    """Return the participant with this user name, None where it is nobody's."""
    if user == _COORDINATOR_USER:
        return COORDINATOR
    match = _DEVICE_USER.fullmatch(user)
    return None if match is None else int(match[1])


def described(participant: int) -> str:
    """Return a participant's name for people: `the coordinator`, or `device 17`."""
    return "the coordinator" if participant == COORDINATOR else f"device {participant}"


def folder_name(participant: int) -> str:
    """Return the name of a participant's folder, and the common name of its certificate."""
    return (
        "coordinator" if participant == COORDINATOR else f"device-{participant_name(participant)}"
    )


CERTIFICATE, KEY, SEAL_KEY, AUTHORITY = "certificate.pem", "key.pem", "seal.key", "authority.pem"
"""Files in a participant's folder; the last one is public, and the same for all participants."""
SEAL_BYTES = 32
_LARGEST = 1 << 16


def write_certificate(path: Path, certificate: x509.Certificate) -> None:
    """Write a certificate, which everybody may read."""
    write_bytes(path, certificate.public_bytes(Encoding.PEM))


def write_tls_key(path: Path, key: Ed25519PrivateKey) -> None:
    """Write a private key of TLS."""
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_bytes(path, content, private=True)


def read_certificate(path: Path) -> x509.Certificate:
    """Read one certificate.

    Raises:
        InputError: there is no such file, or it is damaged.
    """
    content = read_small(path)
    try:
        (certificate,) = x509.load_pem_x509_certificates(content)
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(f"{path}: is not one certificate in PEM form") from None
    return certificate


def read_tls_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key of TLS.

    Raises:
        InputError: there is no such file, others may read it, or it is damaged.
    """
    content = read_small(path, private=True)
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path}: is not an Ed25519 private key in PEM form, without password")
    return key


def read_small(path: Path, *, private: bool = False, largest: int = _LARGEST) -> bytes:
    """Read a small file, or one of at most `largest` bytes.

    Raises:
        InputError: it is not there, not readable or too large; or, with `private`, not private.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if private and mode & 0o077:
                raise InputError(
                    f"{path}: others may read this private key (mode {mode:o}); issue a new one, "
                    f"or if nobody had access, type: chmod 600 {path}"
                )
            content = file.read(largest + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > largest:
        raise InputError(f"{path}: is larger than such a file can be")
    return content


YEAR = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)
"""Time by which a certificate begins before it is issued, as clocks of devices differ."""
SEAL = re.compile(r"lumos://seal/([0-9a-f]{64})")
"""The URI with the sealing key of a participant."""
_ORGANISATION = "lumos"
_BROKER = "broker"


@dataclass(frozen=True)
class Validity:
    """The period in which a certificate is valid."""

    begin: datetime
    end: datetime

    @classmethod
    def lasting(cls, duration: timedelta = YEAR) -> "Validity":
        """Return a period that begins now, with an allowance for clocks that differ.

        Raises:
            UsageError: `duration` is not positive, or too long.
        """
        if duration <= timedelta(0):
            raise UsageError("`valid` must be longer than 0, as 365d or 12h")
        now = datetime.now(UTC).replace(microsecond=0)
        try:
            return cls(now - CLOCK_SKEW, now + duration)
        except OverflowError:
            raise UsageError("`valid` ends after the last year of the calendar") from None


class ParticipantKeys(NamedTuple):
    """The content of a participant's certificate."""

    participant: int
    seal: bytes
    """X25519 public key, 32 bytes."""


def new_tls_key() -> Ed25519PrivateKey:
    """Draw a private key of TLS."""
    return Ed25519PrivateKey.from_private_bytes(entropy.draw(32))


def authority_certificate(key: Ed25519PrivateKey, validity: Validity) -> x509.Certificate:
    """Sign the certificate of a new federation authority with its own key."""
    name = certificate_name(f"authority {entropy.draw(8).hex()}")
    builder = _builder(name, name, key.public_key(), validity)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    return builder.sign(key, None)


def participant_certificate(
    keys: ParticipantKeys,
    public: Ed25519PublicKey,
    authority: x509.Certificate,
    signer: Ed25519PrivateKey,
    validity: Validity,
) -> x509.Certificate:
    """Sign the certificate of a device or the coordinator.

    Args:
        keys: who it is, and its sealing key.
        public: its TLS key.
        authority: certificate of the authority.
        signer: key of the authority.
        validity: the period in which it is valid.
    """
    return _leaf(
        folder_name(keys.participant),
        participant_uris(keys),
        ExtendedKeyUsageOID.CLIENT_AUTH,
        public,
        authority,
        signer,
        validity,
    )


def broker_certificate(
    hosts: Sequence[str],
    public: Ed25519PublicKey,
    authority: x509.Certificate,
    signer: Ed25519PrivateKey,
    validity: Validity,
) -> x509.Certificate:
    """Sign the certificate of a broker, for the names and addresses by which it is reached."""
    names = [_host(host) for host in hosts]
    if not names:
        raise UsageError("a broker needs the names or addresses by which it is reached: `host`")
    usage = ExtendedKeyUsageOID.SERVER_AUTH
    return _leaf(_BROKER, names, usage, public, authority, signer, validity)


def participant_uris(keys: ParticipantKeys) -> list[x509.GeneralName]:
    """Return the two URIs of a participant's certificate: its user name, and its sealing key."""
    return [
        x509.UniformResourceIdentifier(user_name(keys.participant)),
        x509.UniformResourceIdentifier(f"lumos://seal/{keys.seal.hex()}"),
    ]


def _leaf(
    common_name: str,
    names: list[x509.GeneralName],
    usage: x509.ObjectIdentifier,
    public: Ed25519PublicKey,
    authority: x509.Certificate,
    signer: Ed25519PrivateKey,
    validity: Validity,
) -> x509.Certificate:
    end = authority.not_valid_after_utc
    if validity.end > end:
        raise UsageError(f"the authority itself ends on {end:%Y-%m-%d}; choose a shorter `valid`")
    builder = _builder(certificate_name(common_name), authority.subject, public, validity)
    for extension, critical in (
        (x509.SubjectAlternativeName(names), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage([usage]), False),
        (x509.SubjectKeyIdentifier.from_public_key(public), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(signer, None)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: Ed25519PublicKey, validity: Validity
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer, subject, public, x509.random_serial_number(), validity.begin, validity.end
    )


def certificate_name(common_name: str) -> x509.Name:
    """Return the subject of a certificate, for people; the broker reads the URI."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANISATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    label = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
    if len(host) > 253 or not re.fullmatch(rf"{label}(\.{label})*", host.lower()):
        raise UsageError(f"`host` must be the name or the address of a machine, got {host!r}")
    return x509.DNSName(host.lower())


def read_participant_uris(extensions: x509.Extensions) -> ParticipantKeys:
    """Read the participant and the sealing key of a certificate, or of a request for one.

    Raises:
        InputError: it is not of a participant.
    """
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        raise InputError("is not of a device or the coordinator: it names nobody") from None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    participants = [participant for uri in uris if (participant := participant_of(uri)) is not None]
    seals = [match[1] for uri in uris if (match := SEAL.fullmatch(uri))]
    if len(list(names)) != 2 or len(participants) != 1 or len(seals) != 1:
        raise InputError("is not of one device, or the coordinator, with one sealing key")
    return ParticipantKeys(participants[0], bytes.fromhex(seals[0]))


def check_participant_certificate(
    certificate: x509.Certificate, authority: x509.Certificate
) -> ParticipantKeys:
    """Check that an authority has certified a participant, and that this is valid now.

    Raises:
        InputError: another authority signed it, it is not valid now, or it is not of a participant.
    """
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise InputError(
            "is not signed by this authority; issue the certificate with its folder"
        ) from None
    keys = read_participant_uris(certificate.extensions)
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    if list(usage) != [ExtendedKeyUsageOID.CLIENT_AUTH]:
        raise InputError("is not a certificate for a client of the broker")
    refuse_outdated(certificate, described(keys.participant))
    return keys


def check_authority_certificate(certificate: x509.Certificate) -> Ed25519PublicKey:
    """Check the certificate of an authority, and return its key.

    Raises:
        InputError: it is no authority of a federation, or not valid now.
    """
    try:
        certificate.verify_directly_issued_by(certificate)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        key = certificate.public_key()
        if not constraints.ca or not isinstance(key, Ed25519PublicKey):
            raise TypeError("no authority, or another kind of key")
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        raise InputError("is not the certificate of a federation authority") from None
    refuse_outdated(certificate, "the authority")
    return key


def read_authority(folder: Path) -> tuple[x509.Certificate, Ed25519PublicKey]:
    """Read and check the authority's certificate in a folder; return it with its key.

    Raises:
        InputError: the file is missing or damaged, no authority's, or not valid now.
    """
    certificate = read_certificate(folder / AUTHORITY)
    try:
        return certificate, check_authority_certificate(certificate)
    except LumosError as error:
        raise InputError(f"{folder / AUTHORITY}: {error}") from None


def refuse_outdated(certificate: x509.Certificate, whose: str) -> None:
    """Refuse a certificate that is not valid now.

    Raises:
        InputError: its time has not begun, or is over.
    """
    refuse_expired(certificate.not_valid_after_utc, whose)
    if datetime.now(UTC) < certificate.not_valid_before_utc:
        begin = certificate.not_valid_before_utc
        raise InputError(f"the certificate of {whose} begins on {_shown(begin)}; check the clock")


def refuse_expired(end: datetime, whose: str) -> None:
    """Refuse what ended before now.

    Raises:
        InputError: it is over.
    """
    if datetime.now(UTC) > end:
        raise InputError(f"the certificate of {whose} ended on {_shown(end)}; issue a new one")


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate, in hex."""
    return certificate.fingerprint(SHA256()).hex()


def _shown(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


class _Signed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signature: str
    body: msgspec.Raw


def signed(purpose: bytes, body: bytes, signer: Ed25519PrivateKey) -> bytes:
    """Return a file with a body in JSON and the authority's signature.

    Args:
        purpose: signed in front of the body; a signature for anything else is none here.
    """
    signature = signer.sign(purpose + body).hex()
    return msgspec.json.encode(_Signed(signature, msgspec.Raw(body))) + b"\n"


def signed_body(purpose: bytes, content: bytes, key: Ed25519PublicKey, what: str) -> bytes:
    """Return the body of a file after checking the authority's signature.

    Args:
        what: the content of the file, for messages.

    Raises:
        InputError: the authority did not sign it.
    """
    try:
        read = msgspec.json.decode(content, type=_Signed)
        body = bytes(read.body)
        key.verify(bytes.fromhex(read.signature), purpose + body)
    except InvalidSignature:
        raise InputError(f"is not signed by this authority; fetch the {what} again") from None
    except ValueError:  # so are the errors of msgspec
        raise InputError(f"is not a signed {what}; fetch it again") from None
    return body


DIRECTORY = "directory.json"
_PURPOSE = b"lumos directory 1\0"


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The directory's entry of one participant."""

    participant: int
    seal: str
    """X25519 public key, in hex."""
    certificate: str
    """SHA-256 of its certificate, in hex."""
    tls_key: str
    """SHA-256 of its TLS key (SubjectPublicKeyInfo), in hex, as NATS pins it."""
    verify: str
    """Its TLS key, Ed25519, in hex: it checks what the participant signs."""
    ends: int
    """The end of its certificate, in seconds since 1970."""

    @classmethod
    def of(cls, keys: ParticipantKeys, certificate: x509.Certificate) -> "Listed":
        """List a certificate that the authority has signed."""
        key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return cls(
            participant=keys.participant,
            seal=keys.seal.hex(),
            certificate=fingerprint(certificate),
            tls_key=hashlib.sha256(key).hexdigest(),
            verify=certificate.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex(),
            ends=int(certificate.not_valid_after_utc.timestamp()),
        )


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    serial: int
    """Grows with every change."""
    participants: list[Listed]


@dataclass(frozen=True)
class Directory:
    """The participants of a federation."""

    participants: Mapping[int, Listed] = field(default_factory=dict)
    serial: int = 0
    """Number of the change that made it: of two directories, the larger one is newer."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the signed body, in hex: equal for participants with the same directory."""
        return hashlib.sha256(self._body()).hexdigest()

    @classmethod
    def load(cls, path: Path, authority: x509.Certificate) -> "Directory":
        """Read a directory after checking the signature of the authority.

        Args:
            path: the file.
            authority: certificate of the authority, as `Identity.authority` has it.

        Raises:
            InputError: the file cannot be read, the authority did not sign it or is not valid now,
                or two participants have the same number or key.
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
        body = signed_body(_PURPOSE, content, key, "directory")
        try:
            read = msgspec.json.decode(body, type=_Body)
        except ValueError:
            raise InputError("is of another version of Lumos") from None
        participants = {listed.participant: listed for listed in read.participants}
        for what in ("participant", "seal", "certificate", "tls_key"):
            distinct = {getattr(listed, what) for listed in read.participants}
            if len(distinct) < len(read.participants):
                raise InputError(f"lists two participants with the same {what}; issue them again")
        return cls(participants, read.serial)

    def write(self, path: Path, signer: Ed25519PrivateKey) -> None:
        """Sign the directory with the authority's key, and write it."""
        write_bytes(path, signed(_PURPOSE, self._body(), signer))

    def _body(self) -> bytes:
        listed = sorted(self.participants.values(), key=lambda listed: listed.participant)
        return msgspec.json.encode(_Body(self.serial, listed))

    def replaced(self, new: Mapping[int, Listed]) -> "Directory":
        """Return the next directory, in which some participants are new or have new keys."""
        return Directory({**self.participants, **new}, self.serial + 1)

    def listed(self, participant: int) -> Listed:
        """Return the entry of a participant.

        Raises:
            InputError: nobody has this number, or its certificate has ended.
        """
        if participant not in self.participants:
            raise InputError(
                f"the directory has no {participant_name(participant)!r}; issue a certificate for "
                f"{described(participant)}, or fetch the directory again"
            )
        listed = self.participants[participant]
        refuse_expired(datetime.fromtimestamp(listed.ends, UTC), described(participant))
        return listed

    def sealing_key(self, participant: int) -> bytes:
        """Return the public sealing key of a participant, 32 bytes.

        Raises:
            InputError: nobody has this number, or its certificate has ended.
        """
        return bytes.fromhex(self.listed(participant).seal)

    def verifies(self, participant: int, message: bytes, signature: bytes) -> bool:
        """Return whether a participant has signed a message."""
        listed = self.participants.get(participant)
        if listed is None:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(listed.verify)).verify(
                signature, message
            )
        except (InvalidSignature, ValueError):
            return False
        return True


class Identity(InMemoryOnly):
    """The identity of a process in a federation; `Identity.load` makes one."""

    __slots__ = ("_boxes", "_folder", "_key", "_seal", "authority", "certificate", "participant")

    def __init__(
        self,
        folder: Path,
        participant: int,
        certificate: x509.Certificate,
        authority: x509.Certificate,
        seal: PrivateKey,
        key: Ed25519PrivateKey,
    ) -> None:
        self._folder, self._seal, self._key = folder, seal, key
        self._boxes: dict[tuple[str, int], Box] = {}
        self.participant = participant
        """Its device's number, or `COORDINATOR`."""
        self.certificate = certificate
        self.authority = authority
        """The certificate of the federation's authority."""

    @classmethod
    def load(cls, folder: Path, participant: int | None = None) -> "Identity":
        """Read a participant's folder, and check everything in it.

        Args:
            folder: with `certificate.pem`, `key.pem`, `seal.key` and `authority.pem`.
            participant: who it must be; None for anybody.

        Raises:
            InputError: a file is missing or damaged, others may read a private key, the certificate
                is not valid now, of another authority, another participant or other keys.
        """
        authority, _ = read_authority(folder)
        certificate = read_certificate(folder / CERTIFICATE)
        try:
            keys = check_participant_certificate(certificate, authority)
        except LumosError as error:
            raise InputError(f"{folder / CERTIFICATE}: {error}") from None
        if participant is not None and participant != keys.participant:
            raise InputError(
                f"{folder}: is of {described(keys.participant)}, not of {described(participant)}"
            )
        key = read_tls_key(folder / KEY)
        if key.public_key() != certificate.public_key():
            raise InputError(f"{folder / KEY}: is not the key of {CERTIFICATE}; issue both")
        seal = read_small(folder / SEAL_KEY, private=True)
        if len(seal) != SEAL_BYTES:
            raise InputError(f"{folder / SEAL_KEY}: has not {SEAL_BYTES} bytes; issue a new one")
        if bytes(PrivateKey(seal).public_key) != keys.seal:
            raise InputError(f"{folder / SEAL_KEY}: is not the key of {CERTIFICATE}; issue both")
        return cls(folder, keys.participant, certificate, authority, PrivateKey(seal), key)

    def tls(self) -> ssl.SSLContext:
        """Make a TLS context: TLS 1.3, this certificate, and brokers of this authority only."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(self._folder / AUTHORITY)
        context.load_cert_chain(self._folder / CERTIFICATE, self._folder / KEY)
        return context

    def sign(self, message: bytes) -> bytes:
        """Return the signature of this participant, 64 bytes: the same for the same message."""
        return self._key.sign(message)

    def require_listed(self, directory: Directory) -> None:
        """Refuse a directory that has another certificate under this participant's number.

        Raises:
            InputError: this participant is not listed, or not with this certificate.
        """
        if directory.listed(self.participant).certificate != fingerprint(self.certificate):
            raise InputError(
                f"the directory has another certificate of {described(self.participant)} than "
                f"{self._folder}; fetch the newest of both"
            )

    def box(self, directory: Directory, other: int) -> Box:
        """Return the box that seals what this participant and another send each other.

        It is made once for each directory and participant; certificates are checked then. Both
        directions have the same key, so a sealed body must say who sends it to whom.

        Raises:
            InputError: one of the two is not in the directory, has another certificate there, or
                one that has ended.
        """
        place = (directory.digest, other)
        if place not in self._boxes:
            self.require_listed(directory)
            if other == self.participant:
                raise InputError(f"{described(other)} cannot seal for itself")
            self._boxes[place] = Box(self._seal, PublicKey(directory.sealing_key(other)))
        return self._boxes[place]


class CertifiedSignatures:
    """Signatures on messages of sums: `lumos.secagg.signing.Signatures`.

    Args:
        identity: of this participant; None for somebody who only checks.
        directory: with the keys of all.
        plan: digest of the signed plan; a signature is of one run.
    """

    def __init__(self, identity: Identity | None, directory: Directory, plan: bytes) -> None:
        self._identity, self._directory = identity, directory
        self._purpose = b"lumos sum 1\0" + plan

    def sign(self, device: int, digest: bytes) -> bytes:
        """Return the signature of this device."""
        if self._identity is None or device != self._identity.participant:
            raise UsageError(f"{described(device)} has a key of its own")
        return self._identity.sign(self._purpose + digest)

    def check(self, device: int, digest: bytes, signature: bytes) -> bool:
        """Return whether a device has signed a digest."""
        return self._directory.verifies(device, self._purpose + digest, signature)
