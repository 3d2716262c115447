"""Checks of certificates: who signed it, whose it is, and whether it is valid now."""

from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID

from lumos.deploy.certificates import SEAL, PartyKeys
from lumos.deploy.parties import described, party_of
from lumos.errors import InputError


def read_party_uris(extensions: x509.Extensions) -> PartyKeys:
    """Read who a certificate, or a request for one, is of, and the sealing key.

    Raises:
        InputError: it is not of a party.
    """
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        raise InputError("is not of a device or the coordinator: it names nobody") from None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    parties = [party for uri in uris if (party := party_of(uri)) is not None]
    seals = [match[1] for uri in uris if (match := SEAL.fullmatch(uri))]
    if len(list(names)) != 2 or len(parties) != 1 or len(seals) != 1:
        raise InputError("is not of one device, or the coordinator, with one sealing key")
    return PartyKeys(parties[0], bytes.fromhex(seals[0]))


def check_party_certificate(
    certificate: x509.Certificate, authority: x509.Certificate
) -> PartyKeys:
    """Check that an authority has certified a party, and that this is valid now.

    Raises:
        InputError: another authority signed it, it is not valid now, or it is not of a party.
    """
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise InputError(
            "is not signed by this authority; issue the certificate with its folder"
        ) from None
    keys = read_party_uris(certificate.extensions)
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    if list(usage) != [ExtendedKeyUsageOID.CLIENT_AUTH]:
        raise InputError("is not a certificate for a client of the broker")
    refuse_outdated(certificate, described(keys.party))
    return keys


def check_authority_certificate(certificate: x509.Certificate) -> Ed25519PublicKey:
    """Check the certificate of an authority, and return its key.

    Raises:
        InputError: it is no authority of a federation, or not valid now.
    """
    try:
        certificate.verify_directly_issued_by(certificate)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        raise InputError("is not the certificate of a federation authority") from None
    key = certificate.public_key()
    if not constraints.ca or not isinstance(key, Ed25519PublicKey):
        raise InputError("is not the certificate of a federation authority")
    refuse_outdated(certificate, "the authority")
    return key


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
