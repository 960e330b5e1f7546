"""TLS for what is measured and for the load: a certificate of the moment, and a socket that the load can use.

The load does not check the certificate. That would be a cost of its own, and the server's is the same.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import trustme

__all__ = ["Pair", "SecureSocket", "client_context", "issue"]


@dataclass(frozen=True, slots=True)
class Pair:
    """Files in PEM: a certificate (ECDSA, P-256) and its key."""

    certificate: Path
    key: Path


def issue(directory: Path) -> Pair:
    """A certificate for a server on this host, in files that whoever the server becomes can read."""
    pair = Pair(directory / "host.pem", directory / "host.key")
    issued = trustme.CA().issue_cert("127.0.0.1", "localhost")
    issued.cert_chain_pems[0].write_to_path(pair.certificate)
    issued.private_key_pem.write_to_path(pair.key)
    return pair


def client_context() -> ssl.SSLContext:
    """Makes `SecureSocket`s."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.sslsocket_class = SecureSocket
    return context


class SecureSocket(ssl.SSLSocket):
    """TLS with the two flags of `recv` that the load uses, and no bytes left where `select` does not see
    them."""

    @classmethod
    def over(cls, connection: socket.socket) -> Self:
        """After the handshake."""
        made = client_context().wrap_socket(connection)
        assert isinstance(made, cls), "the context says so"
        return made

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """What there is, up to `buflen`; as `socket.recv`."""
        timeout = self.gettimeout()
        if flags & socket.MSG_DONTWAIT:
            self.settimeout(0.0)
        try:
            data = super().recv(buflen)
            while data and len(data) < buflen and (self.pending() or flags & socket.MSG_WAITALL):
                more = super().recv(buflen - len(data))
                if not more:
                    break
                data += more
        except ssl.SSLWantReadError as error:
            raise BlockingIOError from error
        finally:
            self.settimeout(timeout)
        return data
