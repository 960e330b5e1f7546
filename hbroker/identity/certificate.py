"""The certificate of a node: what it says, and how it is read (RFC 5280; ADR 35).

    version                 3
    serialNumber            random, 159 bits
    issuer                  the subject of the authority's certificate
    validity                one year by default, and one day back, for clocks that are slow
    subject                 the name of the node, as common name
    subjectPublicKeyInfo    Ed25519 (RFC 8410)
    authorityKeyIdentifier  that of the authority's key
    keyUsage                digitalSignature; critical
    extendedKeyUsage        serverAuth and clientAuth: a node accepts and initiates handshakes
    subjectAltName          the DNS name `node.hbroker`, and a URI for each subtree that the node may own
                            (`hbroker.identity.subtree_uri`)

Every node has the DNS name `node.hbroker`. An initiator asks for any node of the network, and so that is the
name that `rustls` verifies. Which node it is, the subject says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import NameOID

from hbroker.config import NAME
from hbroker.errors import HBrokerError
from hbroker.identity.subtree_uri import has_scheme, parse_uri
from hbroker.subtree import is_within

__all__ = ["NODE_NAME", "InvalidCertificate", "NodeCertificate", "common_name"]

NODE_NAME: Final = "node.hbroker"
"""The DNS name in the certificates of all nodes: NODE_NAME of `native/src/association/credentials.rs`."""


class InvalidCertificate(HBrokerError):
    """The certificate is malformed, is not a node's, is not valid now, or was not signed by the authority."""


@dataclass(frozen=True, slots=True)
class NodeCertificate:
    """What the certificate of a node says. Times are seconds since the Unix epoch.

    `name`: the name of the node. `subtrees`: the node may own these, and all subtrees within them; the empty
    one is the whole hierarchy. `not_before`, `not_after`: the certificate is valid from the first to the last
    of these seconds (RFC 5280 §4.1.2.5). `serial`: its number, unique at its authority (§4.1.2.2).
    """

    name: str
    subtrees: tuple[str, ...]
    not_before: int
    not_after: int
    serial: int

    @classmethod
    def read(cls, der: bytes) -> Self:
        """Reads a certificate in DER. Verifies neither the signature nor the time: TLS or `Authority.verify`
        does.

        Raises InvalidCertificate, and nothing else, whatever the bytes are.
        """
        try:
            certificate = x509.load_der_x509_certificate(der)
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            if NODE_NAME not in names.get_values_for_type(x509.DNSName):
                raise ValueError(f"it does not have the DNS name {NODE_NAME}")
            uris = names.get_values_for_type(x509.UniformResourceIdentifier)
            name = common_name(certificate)
            if not NAME.fullmatch(name):
                raise ValueError(f"{name[:80]!r} is not the name of a node")
            if not isinstance(certificate.public_key(), Ed25519PublicKey):
                raise ValueError("its key is not an Ed25519 key")
            if certificate.serial_number <= 0:
                raise ValueError("its serial number is not positive")
            return cls(
                name=name,
                subtrees=tuple(parse_uri(uri) for uri in uris if has_scheme(uri)),
                not_before=int(certificate.not_valid_before_utc.timestamp()),
                not_after=int(certificate.not_valid_after_utc.timestamp()),
                serial=certificate.serial_number,
            )
        except Exception as error:  # The errors of the parser have no other class in common.
            raise InvalidCertificate(f"not a certificate of a node: {error}") from None

    def may_own(self, subtree: str) -> bool:
        """Whether one of the certificate's subtrees contains this one, or is equal to it."""
        return any(is_within(subtree, own) for own in self.subtrees)

    def is_valid(self, now: float) -> bool:
        """Whether `now` is within the certificate's validity."""
        return self.not_before <= now <= self.not_after

    def needs_renewal(self, now: float) -> bool:
        """Whether less than a third of the certificate's validity is left."""
        return (self.not_after - now) * 3 < self.not_after - self.not_before


def common_name(certificate: x509.Certificate) -> str:
    """The one common name of the subject. Raises ValueError if there is none, or more than one."""
    found = [attribute.value for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(found) != 1 or not isinstance(found[0], str):
        raise ValueError(f"its subject has {len(found)} common names, not one")
    return found[0]
