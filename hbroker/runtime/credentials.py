"""What the native core seals datagrams with, and the tokens that clients show, from files (ADR 35, 36)."""

from __future__ import annotations

import os
import re
from base64 import b64decode, urlsafe_b64encode
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from hbroker._native import Credentials, NativeError
from hbroker.addresses import Address
from hbroker.config import SecuritySettings
from hbroker.errors import ConfigError, LocalError
from hbroker.runtime import contexts
from hbroker.workspace import Workspace

if TYPE_CHECKING:
    from hbroker.identity.certificate import NodeCertificate

__all__ = [
    "CredentialFiles",
    "PathLike",
    "authority_at",
    "authority_for",
    "client_security",
    "credentials_at",
    "credentials_of",
    "credentials_with_token",
    "key_log_file",
    "known_authority",
    "known_token",
    "node_certificate",
    "token_at",
    "token_for",
    "workspace_for",
]

PathLike = str | os.PathLike[str]

_STATE_DIR: Final = Path(".hbroker")
"""Where `hbroker up` keeps the folders of its networks, if nobody says otherwise."""
_Stamp: TypeAlias = tuple[int, int, int]
_LOOK_US: Final = 5_000_000
_MOST_READ: Final = 16_384
"""The bytes of a file with a token that are read. The longest token has 5,464 characters."""
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
"""RFC 7468 §5. There may be text before and between them."""


def credentials_of(security: SecuritySettings, name: str = "") -> Credentials | None:
    """The credentials of a process; None: security is off. `name`: the node's; empty: it is no node.

    A process that is no node has its token, if the settings name one. The secrets of its associations are
    appended to the file that `HBROKER_KEYLOG` names, if it does. Raises ConfigError if a file is malformed,
    and OSError if it cannot be read.
    """
    if not security.is_on:
        return None
    authorities = _certificates(Path(security.authority))
    key_log = key_log_file() or None
    try:
        if not name:
            token = _token(Path(security.token)) if security.token else None
            return Credentials(authorities, key_log=key_log, token=token)
        from hbroker.identity.node_identity import Identity

        identity = Identity.load(Path(security.identity), name)
        return Credentials(authorities, (identity.chain, identity.key), key_log)
    except NativeError as error:
        raise _unusable(security.authority, str(error)) from None


def credentials_with_token(authority: PathLike, token: str) -> tuple[Credentials, Workspace]:
    """The credentials of a client that has a token of which this is the text, and the workspace of the token.
    Raises as `credentials_of`."""
    data = _decoded(token.encode(), Path("token"))
    try:
        credentials = Credentials(_certificates(Path(authority)), key_log=key_log_file() or None, token=data)
    except NativeError as error:
        raise _unusable(os.fspath(authority), str(error)) from None
    return credentials, Workspace(_workspace_in(data))


def key_log_file() -> str:
    """The file to which the secrets of associations are appended (`hbroker.runtime.key_log`); empty: none."""
    return os.environ.get("HBROKER_KEYLOG", "")


def credentials_at(
    root: Address, authority: PathLike | None = None, token: PathLike | None = None
) -> Credentials | None:
    """The credentials of a client of the network with this root; None: its security is off, as far as is
    known. `authority`: as in `authority_for`. `token`: as in `token_for`. Raises ConfigError and OSError as
    `credentials_of`.
    """
    return credentials_of(client_security(root, authority, token))


def client_security(
    root: Address, authority: PathLike | None = None, token: PathLike | None = None
) -> SecuritySettings:
    """The security of a client of the network with this root. `authority`: as in `authority_for`. `token`: as
    in `token_for`. A client without an authority has no token, either."""
    known = authority_for(root, authority)
    return SecuritySettings(known, token=token_for(root, token)) if known else SecuritySettings()


def authority_for(root: Address, authority: PathLike | None = None) -> str:
    """The path of the file with the certificate of the authority of the network with this root, in PEM.
    Empty: its security is off, as far as is known.

    `authority`: None: the file that the environment's `HBROKER_AUTHORITY` names, or else that of the context
    of this network (`hbroker.runtime.contexts`), or else that of the network which runs on this host with its
    root at this address.
    """
    return os.fspath(authority or known_authority(root))


def token_for(root: Address, token: PathLike | None = None) -> str:
    """The path of the file with the token of a client of the network with this root. Empty: it has none.

    `token`: None: the file that the environment's `HBROKER_TOKEN` names, or else that of the context of this
    network, or else the operator's token of the network which runs on this host with its root at this
    address.
    """
    return os.fspath(token or known_token(root))


def workspace_for(security: SecuritySettings, name: str | None) -> Workspace:
    """The workspace of a client. `name`: None: that of its token; empty: the default one.

    Raises ConfigError if its token is of another one, or is malformed, OSError if the token cannot be read,
    and ValueError if no workspace may have that name.
    """
    token = _workspace_of_token(Path(security.token)) if security.token else ""
    if name is not None and token and name != token:
        other = f"the workspace {name}" if name else "no workspace"
        remedy = "take another token, or leave the workspace out"
        raise ConfigError(
            f"the token is of the workspace {token}, and the client of {other}",
            file=security.token,
            remedy=remedy,
        )
    return Workspace(token if name is None else name)


def _workspace_of_token(path: Path) -> str:
    return _workspace_in(_token(path))


def _workspace_in(data: bytes) -> str:
    """The workspace that a token names; empty: none, or nodes will refuse the token."""
    from hbroker.rights.wire import read_blocks

    try:
        return read_blocks(data)[0].block.workspace or ""
    except (ValueError, LocalError):
        return ""


class CredentialFiles:
    """The files with the certificate of the authority and with the token of a client. While the client runs
    they may be replaced, because the network gets another authority, or the client another token.

    `security`: of a client whose security is on.
    """

    def __init__(self, security: SecuritySettings) -> None:
        token = security.token and os.path.abspath(security.token)
        self._security = SecuritySettings(os.path.abspath(security.authority), token=token)
        self._stamps: list[_Stamp] = []
        self.next_look = 0
        """When `credentials_if_changed` looks at the files again."""

    def read(self) -> Credentials | None:
        """The credentials of the client. Raises as `credentials_of`."""
        stamps = self._read_stamps()
        credentials = credentials_of(self._security)
        self._stamps = stamps  # As they were before: what changed since is read again.
        return credentials

    def credentials_if_changed(self, now: int) -> Credentials | None:
        """The credentials of the client, if a file has changed and all can be used. Looks every five seconds
        at the most. `now`: microseconds of any monotonic clock."""
        if now < self.next_look:
            return None
        self.next_look = now + _LOOK_US
        stamps = self._read_stamps()
        if not stamps or stamps == self._stamps:
            return None
        try:
            return self.read()
        except (ConfigError, OSError):
            return None  # It may be written just now.

    def _read_stamps(self) -> list[_Stamp]:
        """The stamp of each file. Empty: a file is not there."""
        try:
            found = [os.stat(path) for path in (self._security.authority, self._security.token) if path]
        except OSError:
            return []
        return [(each.st_mtime_ns, each.st_size, each.st_ino) for each in found]


def known_authority(root: Address, base: Path = _STATE_DIR) -> str:
    """The path of the certificate of the authority: what `HBROKER_AUTHORITY` says, or else the context of the
    network with this root, or else `authority_at`. Raises ConfigError and ConfigErrors as `contexts.load`."""
    return os.environ.get("HBROKER_AUTHORITY") or _of_context(root, "authority") or authority_at(base, root)


def known_token(root: Address, base: Path = _STATE_DIR) -> str:
    """The path of a token: what `HBROKER_TOKEN` says, or else the context of the network with this root, or
    else `token_at`. Raises as `known_authority`."""
    return os.environ.get("HBROKER_TOKEN") or _of_context(root, "token") or token_at(base, root)


def _of_context(root: Address, field: Literal["authority", "token"]) -> str:
    context = contexts.chosen_for(root)
    return getattr(context, field, "")


def authority_at(base: Path, root: Address) -> str:
    """The path of the certificate of the authority of the network that `hbroker up` runs on this host with
    its root at this address. Empty: no such network runs, or its security is off.

    `base`: the folder with the folders of networks, of any user. Networks of this user are found anywhere.
    """
    from hbroker.runtime.launcher.run_directory import running_at

    return next((run.authority for _, run in running_at(base, root) if run.authority), "")


def token_at(base: Path, root: Address) -> str:
    """The path of the operator's token of the network that `hbroker up` runs on this host with its root at
    this address. Empty: no such network runs, or it requires no tokens. `base`: as in `authority_at`."""
    from hbroker.runtime.launcher.run_directory import running_at

    return next((run.token for _, run in running_at(base, root) if run.token), "")


@lru_cache(maxsize=1_024)
def node_certificate(der: bytes) -> NodeCertificate | None:
    """What the certificate of a node says; None: it is not the certificate of a node.

    Children renew their leases every few seconds, and each time their parent looks at their certificates.
    """
    from hbroker.identity.certificate import InvalidCertificate, NodeCertificate

    try:
        return NodeCertificate.read(der)
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


def _token(path: Path) -> bytes:
    """The token in a file with its text: base64 for URLs, in one line."""
    with path.open("rb") as file:
        return _decoded(file.read(_MOST_READ).strip(), path)


def _decoded(text: bytes, path: Path) -> bytes:
    """The token with this text, from this file."""
    # Not with `hbroker.rights.token`, which loads `cryptography`, too.
    from hbroker.rights.wire import MOST_BYTES

    if not text:
        raise _no_token(path, "the file is empty")
    try:
        data = b64decode(text, altchars=b"-_", validate=True)
    except ValueError:
        data = b""
    if max(len(text) * 3 // 4 - 2, len(data)) > MOST_BYTES:
        raise _no_token(path, f"it has over {MOST_BYTES} bytes")
    if urlsafe_b64encode(data) != text:
        raise _no_token(path, "it is not base64 for URLs, in one line")
    return data


def _no_token(path: Path, why: str) -> ConfigError:
    remedy = "make another one with `hbroker token create --out FILE`"
    return ConfigError(f"not a token: {why}", file=str(path), remedy=remedy)


def _unusable(file: str, why: str) -> ConfigError:
    remedy = "take the authority.crt that the network has"
    return ConfigError(f"not a certificate of an authority: {why}", file=file, remedy=remedy)
