"""The operator's token of a network that requires tokens (ADR 36).

The gateways that `hbroker up` runs show it to nodes, and so do the commands of its user on the same host. It
lets its holder read and write all topics, also those of the nodes (`$SYS`), of the gateways (`$gateway`) and
of all workspaces (`$workspace`).
Like the certificates of nodes it is valid for a year, and renewed when less than a third of that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hbroker.errors import ConfigError
from hbroker.identity.authority import Authority, AuthorityCertificate
from hbroker.identity.revocation_list import short_id
from hbroker.identity.revoked_file import load_list
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.token import create, verify
from hbroker.rights.verified import InvalidToken
from hbroker.runtime.launcher.run_directory import RunDirectory
from hbroker.storage.disk import make_folder, replace_file
from hbroker.workspace import ROOT

__all__ = ["OPERATOR_RIGHTS", "VALIDITY_S", "provide_operator_token"]

VALIDITY_S: Final = 365 * 86_400
"""How long an operator's token is valid. Seconds."""
_ALL_TOPICS: Final = ("#", "$SYS/#", "$gateway/#", f"{ROOT}/#")
OPERATOR_RIGHTS: Final = BlockRights(read=_ALL_TOPICS, write=_ALL_TOPICS, retain=True, share=True)
"""What the operator's token allows."""


def provide_operator_token(
    directory: RunDirectory, believed: Sequence[AuthorityCertificate], signer: Authority | None, now: float
) -> Path:
    """The file with the operator's token. Makes the token if there is none, and renews it.

    `believed`: the authorities that may have signed it. `signer`: signs a new one; None: the key of the
    authority is kept elsewhere, and the token has to suffice until it is put back. `now`: seconds since the
    Unix epoch. Raises ConfigError if a new token is needed and the key is not here, and OSError if a file
    cannot be read or written.
    """
    file = directory.operator_token_file
    left_s = _left_s(file, directory.authority, believed, now)
    if signer is not None and (left_s is None or left_s * 3 < VALIDITY_S):
        token = create(signer.key, Block(OPERATOR_RIGHTS, expires_at=int(now) + VALIDITY_S))
        make_folder(directory.path)
        replace_file(file, [token.encode("ascii"), b"\n"])
    elif left_s is None:
        raise ConfigError(
            "a new operator's token is needed, and the key of the authority is not here",
            file=str(directory.authority / "authority.key"),
            remedy="put the key back",
        )
    return file


def _left_s(
    file: Path, authority: Path, believed: Sequence[AuthorityCertificate], now: float
) -> float | None:
    """For how many seconds the token in a file is still valid; None: there is none with the rights of an
    operator, or it is revoked. `authority`: the folder of the authority. Raises ConfigError if its list of
    revoked tokens is damaged, and OSError."""
    try:
        text = file.read_bytes().strip().decode("ascii")
        keys = [authority.public_key for authority in believed]
        found = verify(text, keys, now)
    except (FileNotFoundError, UnicodeDecodeError, InvalidToken):
        return None
    revoked = load_list(authority, AuthorityCertificate.load_all(authority))
    if revoked is not None and any(short_id(id) in revoked for id in found.revocation_ids):
        return None
    if found.expires_at is None or found.rights.blocks != (OPERATOR_RIGHTS,):
        return None
    return found.expires_at - now
