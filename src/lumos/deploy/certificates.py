"""Certificates of a federation: what one says of a party, and how it is signed.

All keys of TLS are Ed25519: Go's TLS (the NATS server) and OpenSSL (Python) both take them, and
signing needs no randomness. A party's certificate binds three things: its number, as a URI that the
broker maps to a user; its TLS key; and its sealing key (X25519), as a second URI. A broker's
certificate names hosts, and no party. Certificates of parties are for clients and those of
brokers for servers, so neither can take the other's place.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lumos.crypto import entropy
from lumos.deploy.parties import folder_name, user_name
from lumos.errors import UsageError

YEAR = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)
"""A certificate begins so much before it is issued: clocks of devices differ."""
SEAL = re.compile(r"lumos://seal/([0-9a-f]{64})")
"""The URI with the sealing key of a party."""
_ORGANISATION = "lumos"
_BROKER = "broker"


@dataclass(frozen=True)
class Validity:
    """From when to when a certificate is valid."""

    begin: datetime
    end: datetime

    @classmethod
    def lasting(cls, duration: timedelta = YEAR) -> "Validity":
        """From now on, with an allowance for clocks that differ.

        Raises:
            UsageError: nothing would be left of it.
        """
        if duration <= timedelta(0):
            raise UsageError("`valid` must be longer than 0, as 365d or 12h")
        now = datetime.now(UTC).replace(microsecond=0)
        try:
            return cls(now - CLOCK_SKEW, now + duration)
        except OverflowError:
            raise UsageError("`valid` ends after the last year of the calendar") from None


class PartyKeys(NamedTuple):
    """What the certificate of a party says of it."""

    party: int
    seal: bytes
    """X25519 public key, 32 bytes."""


def new_tls_key() -> Ed25519PrivateKey:
    """Draw a private key of TLS."""
    return Ed25519PrivateKey.from_private_bytes(entropy.draw(32))


def authority_certificate(key: Ed25519PrivateKey, validity: Validity) -> x509.Certificate:
    """Sign the certificate of a new federation authority with its own key."""
    name = _name(f"authority {entropy.draw(8).hex()}")
    builder = _builder(name, name, key.public_key(), validity)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    return builder.sign(key, None)


def party_certificate(
    keys: PartyKeys,
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
        validity: from when to when.
    """
    return _leaf(
        folder_name(keys.party),
        party_uris(keys),
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


def party_uris(keys: PartyKeys) -> list[x509.GeneralName]:
    """Return the two URIs of a party's certificate: its user name, and its sealing key."""
    return [
        x509.UniformResourceIdentifier(user_name(keys.party)),
        x509.UniformResourceIdentifier(f"lumos://seal/{keys.seal.hex()}"),
    ]


def party_name_of(party: int) -> x509.Name:
    """Return the subject of a party's certificate, for people; the broker reads the URI."""
    return _name(folder_name(party))


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
    builder = _builder(_name(common_name), authority.subject, public, validity)
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


def _name(common_name: str) -> x509.Name:
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
