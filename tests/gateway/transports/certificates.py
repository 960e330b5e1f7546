"""Certificates for tests, made anew in each run: an authority, the certificates that it issues, and TLS
contexts for clients."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trustme

_YEAR = timedelta(days=365)


@dataclass(frozen=True)
class Pair:
    """Two files in PEM: a certificate with its chain to the authority, and its key."""

    certificate: str
    key: str

    @property
    def tls(self) -> dict[str, Any]:
        """The TLS settings of a listener with this certificate."""
        return {"certificate": self.certificate, "key": self.key}


class Authority:
    """Issues certificates into a directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self._ca = trustme.CA(organization_name=name)
        self._directory = directory
        self._name = name
        self._issued = 0
        self.file = str(directory / f"{name}.pem")
        self._ca.cert_pem.write_to_path(self.file)

    def server(self) -> Pair:
        """A certificate for a server at this host."""
        return self._issue("localhost", "127.0.0.1", "::1", common_name="localhost")

    def asking(self, server: Pair, client_certificate: str) -> dict[str, Any]:
        """The TLS settings of a listener that asks for client certificates of this authority, which name
        users. `client_certificate`: required or optional."""
        return {
            **server.tls,
            "client_ca": self.file,
            "client_certificate": client_certificate,
            "names_user": True,
        }

    def client(self, common_name: str | None, *, until: datetime | None = None) -> Pair:
        """A certificate for a client of that name. `until`: the end of its validity, by default far away."""
        return self._issue("client.test", common_name=common_name, not_after=until)

    def expired(self, common_name: str) -> Pair:
        """A certificate that was valid for a year and expired yesterday."""
        return self.client(common_name, until=datetime.now(UTC) - timedelta(days=1))

    def context(self, own: Pair | None = None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        """A client that trusts only this authority. `version`: the only TLS version that it offers."""
        context = ssl.create_default_context(cafile=self.file)
        if own is not None:
            context.load_cert_chain(own.certificate, own.key)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context

    def _issue(self, *names: str, common_name: str | None, not_after: datetime | None = None) -> Pair:
        self._issued += 1
        stem = self._directory / f"{self._name}-{self._issued}"
        pair = Pair(f"{stem}.pem", f"{stem}.key")
        before = datetime.now(UTC) - _YEAR
        issued = self._ca.issue_cert(*names, common_name=common_name, not_before=before, not_after=not_after)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        Path(pair.certificate).write_bytes(chain)
        issued.private_key_pem.write_to_path(pair.key)
        return pair
