"""The authority of a network: a certification authority (CA) with a self-signed certificate (RFC 5280 §3.2).

    version                 3
    serialNumber            random, 159 bits
    issuer, subject         the name of the network, as common name
    validity                ten years, and one day back, for clocks that are slow
    subjectPublicKeyInfo    Ed25519 (RFC 8410)
    basicConstraints        a CA with path length 0: it certifies no other CA; critical
    keyUsage                keyCertSign; critical
    subjectKeyIdentifier    SHA-1 of the key (§4.2.1.2, method 1)

Clients and nodes pin this certificate. The authority signs the certificates of nodes, which
`hbroker.identity.certificate` describes.

No certificate begins before 1970: `webpki`, which verifies certificates for `rustls`, refuses those. A host
without a clock of its own starts there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hbroker.config import NAME
from hbroker.errors import ConfigError, LocalError
from hbroker.identity.certificate import NODE_NAME, InvalidCertificate, NodeCertificate, common_name
from hbroker.identity.node_identity import Identity, private_key, to_pkcs8
from hbroker.identity.pem_files import read_certificates, read_key, write_certificates, write_key
from hbroker.identity.subtree_uri import to_uri
from hbroker.storage.disk import Disk, make_folder

__all__ = [
    "AUTHORITY_VALIDITY_S",
    "MAX_CERTIFICATE_BYTES",
    "NODE_VALIDITY_S",
    "Authority",
    "AuthorityCertificate",
    "locked",
]

NODE_VALIDITY_S: Final = 365 * 86_400
"""How long the certificate of a node is valid, unless the caller says something else. Seconds."""
AUTHORITY_VALIDITY_S: Final = 10 * NODE_VALIDITY_S
"""How long the certificate of an authority is valid. Seconds."""
MAX_CERTIFICATE_BYTES: Final = 16 * 1024
"""The largest certificate of a node. A peer accepts 32 KiB in a handshake: MOST_RECEIVED of
`native/src/association/handshake.rs`."""
_BACKDATED_S: Final = 86_400
_LONGEST_COMMON_NAME: Final = 64
"""Characters (RFC 5280 appendix A.1, ub-common-name)."""


class AuthorityCertificate:
    """The certificate of the authority of one network. It verifies the certificates of nodes."""

    def __init__(self, certificate: x509.Certificate) -> None:
        """Use `load_all`. Raises ValueError if this is not the certificate of a CA with an Ed25519 key."""
        if not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            raise ValueError("it is not the certificate of an authority")
        key = certificate.public_key()
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("its key is not an Ed25519 key")
        self.network: Final = common_name(certificate)
        """The name of the network."""
        self.certificate: Final = certificate.public_bytes(Encoding.DER)
        """The certificate in DER, which clients and nodes pin."""
        self.not_after: Final = int(certificate.not_valid_after_utc.timestamp())
        """The last second of the certificate's validity, since the Unix epoch."""
        self.parsed: Final = certificate
        """The certificate, as it was parsed."""
        self.public_key: Final = key
        """The public key: it verifies certificates of nodes, and tokens of clients."""

    @classmethod
    def load_all(cls, folder: Path) -> list[AuthorityCertificate]:
        """The certificates in `authority.crt` of this folder. Raises as `load_file`."""
        file, _ = _files(folder)
        return cls.load_file(file)

    @staticmethod
    def load_file(file: Path) -> list[AuthorityCertificate]:
        """The certificates in a file: two while the authority is replaced (`hbroker.identity.rotation`).
        Raises OSError, and ConfigError if the file is malformed."""
        try:
            return list(map(AuthorityCertificate, read_certificates(file)))
        except (OSError, ConfigError):
            raise
        except Exception as error:  # The errors of the parser have no other class in common.
            raise ConfigError(
                f"not usable: {error}", file=str(file), remedy="put back the certificate of the authority"
            ) from None

    def verify(self, der: bytes, now: float) -> NodeCertificate:
        """Reads the certificate of a node. Verifies that this authority signed it, and that it is valid now.

        Raises InvalidCertificate, and nothing else, whatever the bytes are. TLS verifies the key usages.
        """
        found = NodeCertificate.read(der)
        try:
            x509.load_der_x509_certificate(der).verify_directly_issued_by(self.parsed)
        except Exception:  # The errors of the verifier have no other class in common.
            raise InvalidCertificate(
                f"the certificate of the node {found.name} was not signed by the authority of {self.network}"
            ) from None
        if not found.is_valid(now):
            raise InvalidCertificate(
                f"the certificate of the node {found.name} is not valid at {_utc(now)}, but from "
                f"{_utc(found.not_before)} to {_utc(found.not_after)}: renew it, or set the clock"
            )
        return found


class Authority(AuthorityCertificate):
    """The authority of one network: its certificate and its private key. It signs certificates of nodes."""

    def __init__(self, certificate: x509.Certificate, key: Ed25519PrivateKey) -> None:
        """Use `create` or `load`. Raises ValueError if this is not the certificate of a CA with this key."""
        super().__init__(certificate)
        if certificate.public_key() != key.public_key():
            raise ValueError("it is not the certificate of this key")
        self.key: Final = key
        """The private key: a secret."""
        key_id = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        self._key_id = key_id.value

    # Construct

    @classmethod
    def create(cls, network: str, now: float) -> Self:
        """Makes a new key and its certificate. Nothing is written: `save` does that.

        Raises LocalError if the name of the network is empty or has over 64 characters.
        """
        if not 0 < len(network) <= _LONGEST_COMMON_NAME or not network.isprintable():
            raise LocalError(
                f"no certificate can have the common name {network[:80]!r}: give the network a name of 1 to "
                f"{_LONGEST_COMMON_NAME} printable characters"
            )
        key = Ed25519PrivateKey.generate()
        subject = _name(network)
        until = int(now) + AUTHORITY_VALIDITY_S
        builder = (
            _builder(subject, subject, key.public_key(), now, until)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(builder.sign(key, algorithm=None), key)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads `authority.key`, and its certificate in `authority.crt`.

        Raises FileNotFoundError if there is no key; other OSErrors; and ConfigError if a file is malformed,
        or the certificate is missing or of another key.
        """
        file, key_file = _files(folder)
        key = read_key(key_file)
        remedy = f"put back the certificate of {key_file}; nodes have copies of it"
        try:
            believed = read_certificates(file)
            own = (each for each in believed if each.public_key() == key.public_key())
            return cls(next(own, believed[0]), key)
        except FileNotFoundError:
            fault = "the certificate of the authority is missing"
        except (OSError, ConfigError):
            raise
        except Exception as error:  # The errors of the parser have no other class in common.
            fault = f"not usable: {error}"
        raise ConfigError(fault, file=str(file), remedy=remedy)

    # Change

    def save(self, folder: Path) -> None:
        """Writes `authority.crt` (mode 0644) and `authority.key` (mode 0600) into a new folder, which only
        its owner can enter. After a loss of power there are both files, or none.

        Never replaces an authority, because the certificates that it signed would be of no use any more:
        raises FileExistsError if there is a file of one. Raises other OSErrors.
        """
        for path in _files(folder):
            if path.exists():
                raise FileExistsError(f"{path} is of an authority already, which is never replaced")
        draft = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(draft, ignore_errors=True)
        make_folder(draft)
        file, key_file = _files(draft)
        write_key(key_file, self.key)
        write_certificates(file, [self.parsed])
        draft.rename(folder)
        Disk().sync_folder(folder.parent)

    def issue(
        self,
        name: str,
        subtrees: Sequence[str],
        now: float,
        *,
        validity_s: int = NODE_VALIDITY_S,
        key: bytes | None = None,
    ) -> Identity:
        """Signs a certificate for the node `name`, which may own these subtrees.

        `validity_s`: for how many seconds after `now` it is valid, at most until the authority's certificate
        expires. `key`: the private key of the node as PKCS#8 in DER, to renew its certificate; None: a new
        key is made.

        Raises LocalError if a name or subtree is not valid, if the certificate would be larger than
        MAX_CERTIFICATE_BYTES, or if it would have expired already; and ValueError if `key` is not an Ed25519
        key.
        """
        node_key = Ed25519PrivateKey.generate() if key is None else private_key(key)
        certificate = self._sign(name, _names(name, subtrees), node_key.public_key(), now, validity_s)
        der = certificate.public_bytes(Encoding.DER)
        if len(der) > MAX_CERTIFICATE_BYTES:
            raise LocalError(
                f"the certificate of the node {name} would have {len(der)} bytes, over "
                f"{MAX_CERTIFICATE_BYTES}: name fewer subtrees, or one that contains them"
            )
        return Identity((der,), to_pkcs8(node_key))

    # Helpers

    def _sign(
        self,
        name: str,
        names: x509.SubjectAlternativeName,
        public_key: Ed25519PublicKey,
        now: float,
        validity_s: int,
    ) -> x509.Certificate:
        until = min(int(now) + validity_s, self.not_after)
        if until <= max(now, 0):
            raise LocalError(
                f"the certificate of the node {name} would have expired at {_utc(until)}: set the clock, or "
                f"replace the authority, whose certificate expires at {_utc(self.not_after)}"
            )
        authority_key_id = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._key_id)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            _builder(self.parsed.subject, _name(name), public_key, now, until)
            .add_extension(authority_key_id, critical=False)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(names, critical=False)
        )
        return builder.sign(self.key, algorithm=None)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Waits until no other process changes the authority in this folder, and keeps others out for the length
    of the block. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _files(folder: Path) -> tuple[Path, Path]:
    return folder / "authority.crt", folder / "authority.key"


def _names(name: str, subtrees: Sequence[str]) -> x509.SubjectAlternativeName:
    """The subjectAltName of the node. Raises LocalError."""
    if not NAME.fullmatch(name):
        raise LocalError(f"{name[:80]!r} is not a valid name of a node")
    try:
        uris = [x509.UniformResourceIdentifier(to_uri(subtree)) for subtree in subtrees]
    except ValueError as error:
        raise LocalError(f"the certificate of the node {name}: {error}") from None
    return x509.SubjectAlternativeName([x509.DNSName(NODE_NAME), *uris])


def _builder(
    issuer: x509.Name, subject: x509.Name, public_key: Ed25519PublicKey, now: float, until: int
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=public_key,
        serial_number=x509.random_serial_number(),
        not_valid_before=_utc(max(int(now) - _BACKDATED_S, 0)),
        not_valid_after=_utc(until),
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
