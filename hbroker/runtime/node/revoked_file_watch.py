"""Watches the list of revoked tokens on this host, beside the certificate of the authority (§5.11).

The host where tokens are revoked has it. Another host need not have it, because lists travel down the tree.
"""

from __future__ import annotations

from pathlib import Path

from hbroker.config import SecuritySettings
from hbroker.identity.revoked_file import FILE_NAME, RevokedFile, read_revoked

__all__ = ["RevokedFileWatch"]


class RevokedFileWatch:
    """Reads the file when it has changed. `security`: of a node."""

    def __init__(self, security: SecuritySettings) -> None:
        self._file = Path(security.authority).with_name(FILE_NAME) if security.requires_tokens else None
        self._stamp: tuple[int, int, int] | None = None
        """Of the file as it was read last; None: it is to be read."""

    def read_if_changed(self) -> RevokedFile | None:
        """The content of the file; None: it is as before, or there is none. Raises as `read_revoked`, once
        for each change."""
        if self._file is None:
            return None
        try:
            found = self._file.stat()
        except OSError:
            return None
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
        if stamp == self._stamp:
            return None
        self._stamp = stamp  # As it was before: what changes now is read again.
        return read_revoked(self._file)

    def read_again(self) -> None:
        """The file is read again although it may not have changed."""
        self._stamp = None
