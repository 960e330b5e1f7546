"""What a node proves itself with in a handshake: its certificate chain and its private key (ADR 35).

An identity is in two files, which cannot be replaced at the same moment. So the old certificate is removed
before the key is replaced, and the new one is written last. After a crash in between there is no certificate,
and the authority has to issue another one. But there is never a certificate beside the key of another.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from hbroker.errors import ConfigError
from hbroker.identity.certificate import InvalidCertificate, NodeCertificate
from hbroker.identity.pem_files import read_certificates, read_key, write_certificates, write_key
from hbroker.storage.disk import Disk, make_folder

__all__ = ["Identity", "private_key", "to_pkcs8"]


@dataclass(frozen=True, slots=True)
class Identity:
    """`chain`: certificates in DER, the node's own first. The authority's is not one of them, because peers
    have it (RFC 8446 §4.4.2). `key`: the node's private key as PKCS#8 in DER (RFC 5958, RFC 8410)."""

    chain: tuple[bytes, ...]
    key: bytes = field(repr=False)

    @property
    def certificate(self) -> NodeCertificate:
        """What the node's own certificate says. Raises InvalidCertificate."""
        return NodeCertificate.read(self.chain[0])

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        """Reads `NAME.crt` and `NAME.key`.

        Raises FileNotFoundError if there is no identity, or it was not saved completely; other OSErrors; and
        ConfigError if a file is malformed, or says something else than the other, or than `name`.
        """
        file, key_file = _files(folder, name)
        chain, key = read_certificates(file), read_key(key_file)
        identity = cls(tuple(each.public_bytes(Encoding.DER) for each in chain), to_pkcs8(key))
        remedy = "delete both files, and have the authority issue a new certificate"
        try:
            found = identity.certificate.name
        except InvalidCertificate as error:
            raise ConfigError(str(error), file=str(file), remedy=remedy) from None
        if found != name:
            raise ConfigError(f"the certificate is that of the node {found}", file=str(file), remedy=remedy)
        if chain[0].public_key() != key.public_key():
            raise ConfigError(f"not the certificate of the key in {key_file}", file=str(file), remedy=remedy)
        return identity

    def save(self, folder: Path) -> None:
        """Writes `NAME.crt` (mode 0644) and `NAME.key` (mode 0600), where NAME is the name of the node. Only
        its owner can enter the folder.

        If the key is that of the files already, the certificate is replaced atomically. Raises OSError, and
        InvalidCertificate.
        """
        file, key_file = _files(folder, self.certificate.name)
        make_folder(folder)
        if _saved_key(key_file) != self.key:
            file.unlink(missing_ok=True)
            Disk().sync_folder(folder)
            write_key(key_file, private_key(self.key))
        write_certificates(file, [x509.load_der_x509_certificate(each) for each in self.chain])


def private_key(pkcs8: bytes) -> Ed25519PrivateKey:
    """The inverse of `to_pkcs8`. Raises ValueError if this is not an Ed25519 key."""
    key = load_der_private_key(pkcs8, password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("not an Ed25519 key")
    return key


def to_pkcs8(key: Ed25519PrivateKey) -> bytes:
    """A private key as PKCS#8 in DER, not encrypted."""
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def _files(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.crt", folder / f"{name}.key"


def _saved_key(key_file: Path) -> bytes | None:
    with suppress(OSError, ConfigError):
        return to_pkcs8(read_key(key_file))
    return None
