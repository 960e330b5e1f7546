"""TLS for measurements: a certificate made for the run."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme

AUTHORITY: Final = "authority.pem"
"""The authority's certificate, beside those that it issued."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Files in PEM: a certificate (ECDSA, P-256) and its key."""

    certificate: Path
    key: Path


def issue(directory: Path) -> Pair:
    """Makes a certificate for a server on this host, in files that any user can read."""
    pair = Pair(directory / "host.pem", directory / "host.key")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / AUTHORITY)
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.cert_chain_pems[0].write_to_path(pair.certificate)
    issued.private_key_pem.write_to_path(pair.key)
    return pair


def client_context() -> ssl.SSLContext:
    """The context of clients that accept any certificate. Checking it would cost only the client; the
    server's cost is the same."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
