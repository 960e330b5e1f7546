"""A join token: all that one node needs to join a network from another host, in one file (ADR 40).

    version: 1
    root: 192.0.2.1:7700      where to join; without it, `hbroker join --root` says so
    tokens: required          whether clients of the network have to show tokens
    join_key: …               in base64
    key: |                    the private key of the node (PEM, PKCS#8)
    certificate: |            with its name, and the subtrees that it may own
    authority: |              the certificate of the network's authority; two while it is replaced

Whoever has the file can be the node. The private key is made where the authority is, and travels in the file:
one file goes one way, and the other host needs nothing before.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from hbroker.addresses import DEFAULT_PORT, parse_address
from hbroker.errors import ConfigError
from hbroker.identity.authority import AuthorityCertificate
from hbroker.identity.certificate import InvalidCertificate, NodeCertificate
from hbroker.identity.node_identity import Identity, private_key, to_pkcs8
from hbroker.identity.pem_files import parse_certificates, parse_key, to_pem
from hbroker.storage.disk import replace_file
from hbroker.topology.document import Report, compose, read_text
from hbroker.topology.sections import read_tokens

__all__ = ["JoinToken"]

_VERSION: Final = "1"
_REMEDY: Final = "make another one with `hbroker keys issue`"
_NEEDED: Final = ("version", "tokens", "join_key", "key", "certificate", "authority")
_KEYS: Final = (*_NEEDED, "root")


@dataclass(frozen=True, slots=True)
class JoinToken:
    """What a node needs to join. `root`: `host:port`; empty: the token does not say. `authority`: the
    certificates of the authority, in PEM."""

    root: str
    requires_tokens: bool
    join_key: bytes = field(repr=False)
    identity: Identity
    authority: bytes

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads the file. Raises ConfigError and ConfigErrors if it cannot be read, or is malformed."""
        report = Report(str(path))
        document = compose(read_text(path), report)
        report.raise_if_any()
        assert document is not None, "a file without a document was reported"
        values = report.mapping(document, "the join token", _KEYS)
        report.require(document, "the join token", values, dict.fromkeys(_NEEDED, _REMEDY))
        report.raise_if_any()
        if str(values["version"].value) != _VERSION:
            remedy = "make another one with the version of hbroker that this host has"
            report.error(values["version"], "this version does not know such join tokens", remedy)
        texts = {key: report.text(values[key], key) or "" for key in ("key", "certificate", "authority")}
        root = (report.text(values["root"], "root") or "") if "root" in values else ""
        try:
            parse_address(root or "localhost", default_port=DEFAULT_PORT)
        except ValueError as error:
            report.error(values["root"], f"root is no address: {error}", _REMEDY)
        requires_tokens = read_tokens(values["tokens"], report)
        try:
            join_key = b64decode(report.text(values["join_key"], "join_key") or "", validate=True)
        except ValueError:
            report.error(values["join_key"], "join_key is not base64", _REMEDY)
        report.raise_if_any()
        chain = parse_certificates(texts["certificate"].encode(), str(path))
        identity = Identity(
            tuple(each.public_bytes(Encoding.DER) for each in chain),
            to_pkcs8(parse_key(texts["key"].encode(), str(path))),
        )
        return cls(root, requires_tokens, join_key, identity, texts["authority"].encode())

    def write(self, path: Path) -> None:
        """Replaces the file, which only its owner can read. Raises OSError."""
        blocks = {
            "key": to_pem(private_key(self.identity.key)),
            "certificate": b"".join(
                x509.load_der_x509_certificate(each).public_bytes(Encoding.PEM)
                for each in self.identity.chain
            ),
            "authority": self.authority,
        }
        lines = [
            f"# A secret: whoever has this file can be the node {self.identity.certificate.name}.",
            f"version: {_VERSION}",
            *([f'root: "{self.root}"'] if self.root else []),
            f"tokens: {'required' if self.requires_tokens else 'off'}",
            f'join_key: "{b64encode(self.join_key).decode()}"',
            *(f"{key}: |\n{indent(pem.decode().rstrip(), '  ')}" for key, pem in blocks.items()),
        ]
        replace_file(path, ["\n".join(lines).encode(), b"\n"])

    def check(self, file: str, now: float) -> NodeCertificate:
        """What the node's certificate says. `file` stands in the errors. `now`: seconds since the Unix epoch.

        Raises ConfigError if the certificate is not of the key, was not signed by the authority, or is not
        valid now.
        """
        authorities = map(AuthorityCertificate, parse_certificates(self.authority, file))
        why = "it has no certificate of an authority"
        for authority in authorities:
            try:
                found = authority.verify(self.identity.chain[0], now)
                break
            except InvalidCertificate as invalid:
                why = str(invalid)
        else:
            raise ConfigError(why, file=file, remedy=_REMEDY)
        own = x509.load_der_x509_certificate(self.identity.chain[0]).public_key()
        if own != private_key(self.identity.key).public_key():
            raise ConfigError("the certificate is not that of the key", file=file, remedy=_REMEDY)
        return found
