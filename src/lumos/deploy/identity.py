"""A party's own folder: who it is, its private keys, and its side of TLS."""

import ssl
from pathlib import Path

from cryptography import x509
from nacl.public import Box, PrivateKey, PublicKey

from lumos.crypto.in_memory import InMemoryOnly
from lumos.deploy.certificate_checks import (
    check_authority_certificate,
    check_party_certificate,
    fingerprint,
)
from lumos.deploy.directory import Directory
from lumos.deploy.key_files import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    SEAL_BYTES,
    SEAL_KEY,
    read_certificate,
    read_private,
    read_tls_key,
)
from lumos.deploy.parties import described
from lumos.errors import InputError, LumosError


class Identity(InMemoryOnly):
    """Who a process is in a federation; `Identity.load` makes one."""

    __slots__ = ("_boxes", "_folder", "_seal", "authority", "certificate", "party")

    def __init__(
        self,
        folder: Path,
        party: int,
        certificate: x509.Certificate,
        authority: x509.Certificate,
        seal: PrivateKey,
    ) -> None:
        self._folder, self._seal = folder, seal
        self._boxes: dict[tuple[str, int], Box] = {}
        self.party = party
        """Its device's number, or `COORDINATOR`."""
        self.certificate = certificate
        self.authority = authority
        """The certificate of the federation's authority."""

    @classmethod
    def load(cls, folder: Path, party: int | None = None) -> "Identity":
        """Read a party's folder, and check everything in it.

        Args:
            folder: with `certificate.pem`, `key.pem`, `seal.key` and `authority.pem`.
            party: who it must be; None for anybody.

        Raises:
            InputError: a file is missing or damaged, others may read a private key, the certificate
                is not valid now, of another authority, another party or other keys.
        """
        authority = read_certificate(folder / AUTHORITY)
        certificate = read_certificate(folder / CERTIFICATE)
        at = AUTHORITY
        try:
            check_authority_certificate(authority)
            at = CERTIFICATE
            keys = check_party_certificate(certificate, authority)
        except LumosError as error:
            raise InputError(f"{folder / at}: {error}") from None
        if party is not None and party != keys.party:
            raise InputError(f"{folder}: is of {described(keys.party)}, not of {described(party)}")
        if read_tls_key(folder / KEY).public_key() != certificate.public_key():
            raise InputError(f"{folder / KEY}: is not the key of {CERTIFICATE}; issue both")
        seal = read_private(folder / SEAL_KEY)
        if len(seal) != SEAL_BYTES:
            raise InputError(f"{folder / SEAL_KEY}: has not {SEAL_BYTES} bytes; issue a new one")
        if bytes(PrivateKey(seal).public_key) != keys.seal:
            raise InputError(f"{folder / SEAL_KEY}: is not the key of {CERTIFICATE}; issue both")
        return cls(folder, keys.party, certificate, authority, PrivateKey(seal))

    def tls(self) -> ssl.SSLContext:
        """Make a TLS context: TLS 1.3, this certificate, and brokers of this authority only."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(self._folder / AUTHORITY)
        context.load_cert_chain(self._folder / CERTIFICATE, self._folder / KEY)
        return context

    def require_listed(self, directory: Directory) -> None:
        """Refuse a directory that has another certificate under this party's number.

        Raises:
            InputError: this party is not listed, or not with this certificate.
        """
        if directory.listed(self.party).certificate != fingerprint(self.certificate):
            raise InputError(
                f"the directory has another certificate of {described(self.party)} than "
                f"{self._folder}; fetch the newest of both"
            )

    def box(self, directory: Directory, other: int) -> Box:
        """Return the box between this party and another; see `seal_box`."""
        place = (directory.digest, other)
        if place not in self._boxes:
            self.require_listed(directory)
            if other == self.party:
                raise InputError(f"{described(other)} cannot seal for itself")
            self._boxes[place] = Box(self._seal, PublicKey(directory.sealing_key(other)))
        return self._boxes[place]


def seal_box(identity: Identity, directory: Directory, other: int) -> Box:
    """Return the box that seals what a party and another send each other.

    It is made once for each directory and party; certificates are checked then. Both directions
    have the same key, so a sealed body must say who sends it to whom.

    Raises:
        InputError: one of the two is not in the directory, has another certificate there, or one
            that has ended.
    """
    return identity.box(directory, other)
