"""The replacement of a network's authority by another one, while the network runs.

It has three steps, so that all peers believe both authorities before a node has a certificate of the second:

    after           authority.crt   authority.key   next.key   nodes have certificates of
                    old             old                        the old one
    PREPARED        old, next       old             next       the old one
    SWITCHED        old, next       next                       the next one, once they are renewed
    FINISHED        next            next                       the next one

After each step, everybody needs the new `authority.crt` before the following one. The files tell which step
was done last. A step that was interrupted, or is done already, can be done again.

The list of revoked tokens is signed again when the next authority signs (`hbroker.identity.revoked_file`).
"""

from __future__ import annotations

import os
from enum import IntEnum
from pathlib import Path
from typing import Final

from cryptography import x509

from hbroker.errors import ConfigError
from hbroker.identity.authority import Authority, locked
from hbroker.identity.certificate import InvalidCertificate
from hbroker.identity.node_identity import Identity
from hbroker.identity.pem_files import read_certificates, read_key, write_certificates, write_key
from hbroker.identity.revoked_file import sign_again
from hbroker.storage.disk import Disk

__all__ = ["RotationStep", "rotate"]

_NEXT_KEY: Final = "next.key"


class RotationStep(IntEnum):
    """What was done last."""

    FINISHED = 0
    """Also before the first rotation."""
    PREPARED = 1
    SWITCHED = 2


def rotate(folder: Path, identities: Path, step: RotationStep, now: float) -> None:
    """Does a step, unless it is done. `folder`: of the authority. `identities`: the folder with the nodes'
    identities. `now`: seconds since the Unix epoch.

    Raises ConfigError if another step is next, a file is malformed or missing, or a node has no certificate
    of the next authority before the last step; and OSError, also if there is no authority or its key is not
    here.
    """
    with locked(folder):
        authority = Authority.load(folder)
        believed = read_certificates(folder / "authority.crt")
        done = _done(authority, believed)
        if done is step:
            if step is RotationStep.SWITCHED:
                sign_again(folder, authority, now)
            return
        if (done + 1) % len(RotationStep) != step:
            raise ConfigError(
                f"step {step or 3} cannot be done now",
                file=str(folder),
                remedy=f"step {done + 1} is next",
            )
        if step is RotationStep.PREPARED:
            _prepare(folder, authority, now)
        elif step is RotationStep.SWITCHED:
            _switch(folder, believed[-1], now)
        else:
            _finish(folder, authority, identities, now)


def _done(authority: Authority, believed: list[x509.Certificate]) -> RotationStep:
    if len(believed) == 1:
        return RotationStep.FINISHED
    is_next = believed[-1].public_key() == authority.key.public_key()
    return RotationStep.SWITCHED if is_next else RotationStep.PREPARED


def _prepare(folder: Path, old: Authority, now: float) -> None:
    following = Authority.create(old.network, now)
    # Without its certificate beside it the key has no effect, so after a crash another one may replace it.
    write_key(folder / _NEXT_KEY, following.key)
    write_certificates(folder / "authority.crt", [old.parsed, following.parsed])


def _switch(folder: Path, following: x509.Certificate, now: float) -> None:
    key_file = folder / _NEXT_KEY
    key = read_key(key_file)
    if following.public_key() != key.public_key():
        raise ConfigError(
            "it is not the key of the second certificate in authority.crt",
            file=str(key_file),
            remedy="put back the key; or leave the first certificate alone in authority.crt, and begin again",
        )
    os.replace(key_file, folder / "authority.key")
    Disk().sync_folder(folder)
    sign_again(folder, Authority.load(folder), now)


def _finish(folder: Path, authority: Authority, identities: Path, now: float) -> None:
    sign_again(folder, authority, now)
    for file in sorted(identities.glob("*.crt")):
        try:
            authority.verify(Identity.load(identities, file.stem).chain[0], now)
        except InvalidCertificate as wrong:
            raise ConfigError(
                str(wrong),
                file=str(file),
                remedy="`hbroker up` renews it on SIGHUP; where that does not run, `hbroker keys init FILE`. "
                "Remove the files of a node that is gone",
            ) from None
    write_certificates(folder / "authority.crt", [authority.parsed])
