"""What the native core seals datagrams with, from files (ADR 35)."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from hbroker._native import Credentials, NativeError
from hbroker.addresses import Address
from hbroker.config import SecuritySettings
from hbroker.errors import ConfigError

__all__ = [
    "AuthorityFile",
    "PathLike",
    "authority_at",
    "authority_for",
    "credentials_at",
    "credentials_of",
    "key_log_file",
    "known_authority",
    "name_in",
]

PathLike = str | os.PathLike[str]

_STATE_DIR: Final = Path(".hbroker")
"""Where `hbroker up` keeps the folders of its networks, if nobody says otherwise."""
_Stamp: TypeAlias = tuple[int, int, int]
_LOOK_US: Final = 5_000_000
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
"""RFC 7468 §5. There may be text before and between them."""


def credentials_of(security: SecuritySettings, name: str = "") -> Credentials | None:
    """The credentials of a process; None: security is off. `name`: the node's; empty: it is no node.

    The secrets of its associations are appended to the file that `HBROKER_KEYLOG` names, if it does. Raises
    ConfigError if a file is malformed, and OSError if it cannot be read.
    """
    if not security.is_on:
        return None
    authorities = _certificates(Path(security.authority))
    key_log = key_log_file() or None
    try:
        if not name:
            return Credentials(authorities, key_log=key_log)
        from hbroker.identity.node_identity import Identity

        identity = Identity.load(Path(security.identity), name)
        return Credentials(authorities, (identity.chain, identity.key), key_log)
    except NativeError as error:
        raise _unusable(security.authority, str(error)) from None


def key_log_file() -> str:
    """The file to which the secrets of associations are appended (`hbroker.runtime.key_log`); empty: none."""
    return os.environ.get("HBROKER_KEYLOG", "")


def credentials_at(root: Address, authority: PathLike | None = None) -> Credentials | None:
    """The credentials of a client of the network with this root; None: its security is off, as far as is
    known. `authority`: as in `authority_for`. Raises ConfigError and OSError as `credentials_of`.
    """
    return credentials_of(SecuritySettings(authority=authority_for(root, authority)))


def authority_for(root: Address, authority: PathLike | None = None) -> str:
    """The path of the file with the certificate of the authority of the network with this root, in PEM.
    Empty: its security is off, as far as is known.

    `authority`: None: the file that the environment's `HBROKER_AUTHORITY` names, or else that of the network
    which runs on this host with its root at this address.
    """
    return os.fspath(authority or known_authority(root))


class AuthorityFile:
    """The file with the certificate of the authority. While a client runs it may be replaced, because the
    network gets another authority."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._stamp: _Stamp | None = None
        self.next_look = 0
        """When `credentials_if_changed` looks at the file again."""

    def read(self) -> Credentials | None:
        """The credentials of a client. Raises as `credentials_of`."""
        stamp = self._read_stamp()
        credentials = credentials_of(SecuritySettings(authority=self._path))
        self._stamp = stamp  # As it was before: what changed since is read again.
        return credentials

    def credentials_if_changed(self, now: int) -> Credentials | None:
        """The credentials of a client, if the file has changed and can be used. Looks every five seconds at
        the most. `now`: microseconds of any monotonic clock."""
        if now < self.next_look:
            return None
        self.next_look = now + _LOOK_US
        stamp = self._read_stamp()
        if stamp is None or stamp == self._stamp:
            return None
        try:
            return self.read()
        except (ConfigError, OSError):
            return None  # It may be written just now.

    def _read_stamp(self) -> _Stamp | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def known_authority(root: Address, base: Path = _STATE_DIR) -> str:
    """The path of the certificate of the authority: what `HBROKER_AUTHORITY` says, or else `authority_at`."""
    return os.environ.get("HBROKER_AUTHORITY") or authority_at(base, root)


def authority_at(base: Path, root: Address) -> str:
    """The path of the certificate of the authority of the network that `hbroker up` runs on this host with
    its root at this address. Empty: no such network runs, or its security is off.

    `base`: the folder with the folders of networks, of any user. Networks of this user are found anywhere.
    """
    from hbroker.runtime.launcher.run_directory import running_at

    return next((run.authority for _, run in running_at(base, root) if run.authority), "")


@lru_cache(maxsize=1_024)
def name_in(certificate: bytes) -> str | None:
    """The name of the node in its certificate, as DER; None: it is not the certificate of a node.

    Children renew their leases every few seconds, and each time their parent looks at their certificates.
    """
    from hbroker.identity.certificate import InvalidCertificate, NodeCertificate

    try:
        return NodeCertificate.read(certificate).name
    except InvalidCertificate:
        return None


def _certificates(path: Path) -> list[bytes]:
    """The certificates in a file, as DER."""
    # Not with `cryptography`: a client would be longer loading that than doing all else that it does.
    import ssl

    try:
        texts = _CERTIFICATE.findall(path.read_text())
        certificates = [ssl.PEM_cert_to_DER_cert(f"{text}\n") for text in texts]
    except ValueError as error:
        raise _unusable(str(path), str(error)) from None
    if not certificates:
        raise _unusable(str(path), "it has no certificate")
    return certificates


def _unusable(file: str, why: str) -> ConfigError:
    remedy = "take the authority.crt that the network has"
    return ConfigError(f"not a certificate of an authority: {why}", file=file, remedy=remedy)
