"""The replacement of a network's authority by another one, while the network runs.

It has three steps, so that all peers believe both authorities before a node has a certificate of the second:

    after           authority.crt   authority.key   next.key   nodes have certificates of
                    old             old                        the old one
    PREPARED        old, next       old             next       the old one
    SWITCHED        old, next       next                       the next one, once they are renewed
    FINISHED        next            next                       the next one

After each step, everybody needs the new `authority.crt` before the following one. The files tell which step
is next. A step that was interrupted can be done again.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Final

from cryptography import x509

from hbroker.errors import ConfigError
from hbroker.identity.authority import Authority
from hbroker.identity.certificate import InvalidCertificate
from hbroker.identity.node_identity import Identity
from hbroker.identity.pem_files import read_certificates, read_key, write_certificates, write_key

__all__ = ["RotationStep", "rotate"]

_NEXT_KEY: Final = "next.key"


class RotationStep(Enum):
    """What was done last."""

    PREPARED = "prepared"
    SWITCHED = "switched"
    FINISHED = "finished"


def rotate(folder: Path, identities: Path, now: float) -> RotationStep:
    """Does the next step. `folder`: of the authority. `identities`: the folder with the nodes' identities.
    `now`: seconds since the Unix epoch.

    Raises ConfigError if a file is malformed, or a node has no certificate of the next authority before the
    last step; and OSError, also if there is no authority or its key is not here.
    """
    authority = Authority.load(folder)
    believed = read_certificates(folder / "authority.crt")
    if len(believed) == 1:
        return _prepare(folder, authority, believed[0], now)
    if (folder / _NEXT_KEY).exists():
        return _switch(folder, believed)
    return _finish(folder, authority, believed, identities, now)


def _prepare(folder: Path, authority: Authority, old: x509.Certificate, now: float) -> RotationStep:
    following = Authority.create(authority.network, now)
    # Without its certificate beside it the key has no effect, so after a crash another one may replace it.
    write_key(folder / _NEXT_KEY, following.key)
    write_certificates(folder / "authority.crt", [old, following.parsed])
    return RotationStep.PREPARED


def _switch(folder: Path, believed: list[x509.Certificate]) -> RotationStep:
    key = read_key(folder / _NEXT_KEY)
    if all(certificate.public_key() != key.public_key() for certificate in believed):
        raise ConfigError(
            "authority.crt has no certificate of this key",
            file=str(folder / _NEXT_KEY),
            remedy="put both files back from a backup of the same time",
        )
    write_key(folder / "authority.key", key)
    os.unlink(folder / _NEXT_KEY)
    return RotationStep.SWITCHED


def _finish(
    folder: Path, authority: Authority, believed: list[x509.Certificate], identities: Path, now: float
) -> RotationStep:
    for file in sorted(identities.glob("*.crt")):
        try:
            authority.verify(Identity.load(identities, file.stem).chain[0], now)
        except InvalidCertificate as wrong:
            raise ConfigError(
                str(wrong),
                file=str(file),
                remedy="`hbroker up` renews it when it gets SIGHUP; remove the files of a node that is gone",
            ) from None
    write_certificates(folder / "authority.crt", [authority.parsed])
    return RotationStep.FINISHED
