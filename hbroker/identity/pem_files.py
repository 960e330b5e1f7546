"""Certificates and private keys as files in PEM (RFC 7468; PKCS#8: RFC 5958).

Only its owner can read the file of a private key (mode 0600). Everybody may read a certificate (mode 0644).
Each file is replaced atomically, and survives a loss of power (`hbroker.storage.disk`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from hbroker.errors import ConfigError
from hbroker.storage.disk import replace_file

__all__ = [
    "parse_certificates",
    "parse_key",
    "read_certificates",
    "read_key",
    "to_pem",
    "write_certificates",
    "write_key",
]

_CERTIFICATE_MODE: Final = 0o644
_REMEDY: Final = "put back the file as hbroker wrote it"


def write_certificates(path: Path, chain: Iterable[x509.Certificate]) -> None:
    """Replaces a file by these certificates. Raises OSError."""
    replace_file(path, [certificate.public_bytes(Encoding.PEM) for certificate in chain])
    path.chmod(_CERTIFICATE_MODE)


def write_key(path: Path, key: Ed25519PrivateKey) -> None:
    """Replaces a file by this private key, which is not encrypted. Raises OSError."""
    replace_file(path, [to_pem(key)])


def to_pem(key: Ed25519PrivateKey) -> bytes:
    """A private key as PKCS#8 in PEM, not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_certificates(path: Path) -> list[x509.Certificate]:
    """The certificates in a file, at least one. Raises OSError, and ConfigError if the file is malformed."""
    return parse_certificates(path.read_bytes(), str(path))


def read_key(path: Path) -> Ed25519PrivateKey:
    """The private key in a file. Raises OSError, and ConfigError if the file has no Ed25519 key without a
    password."""
    return parse_key(path.read_bytes(), str(path))


def parse_certificates(data: bytes, file: str) -> list[x509.Certificate]:
    """The certificates in a text of PEM, at least one. `file` stands in the error. Raises ConfigError."""
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise ConfigError(f"no certificates in PEM: {error}", file=file, remedy=_REMEDY) from None


def parse_key(data: bytes, file: str) -> Ed25519PrivateKey:
    """The private key in a text of PEM. `file` stands in the error. Raises ConfigError if it has no Ed25519
    key without a password."""
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"no private key in PEM: {error}", file=file, remedy=_REMEDY) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError("the private key is not an Ed25519 key", file=file, remedy=_REMEDY)
    return key
