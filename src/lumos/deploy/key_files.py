"""The files of a party's folder; private keys are for their owner only, and refused otherwise."""

import os
import stat
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from lumos.errors import InputError
from lumos.storage import write_bytes

CERTIFICATE, KEY, SEAL_KEY, AUTHORITY = "certificate.pem", "key.pem", "seal.key", "authority.pem"
"""What a party's folder holds; the last one is public, and the same for all parties."""
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
    content = read_private(path)
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path}: is not an Ed25519 private key in PEM form, without password")
    return key


def read_private(path: Path) -> bytes:
    """Read a small file that only its owner may read.

    Raises:
        InputError: there is no such file, or others may read it.
    """
    return read_small(path, private=True)


def read_small(path: Path, *, private: bool = False) -> bytes:
    """Read a small file.

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
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > _LARGEST:
        raise InputError(f"{path}: is larger than a key or a certificate can be")
    return content
