"""The authority of a network, and the identities of its nodes, in the network's folder (ADR 35).

`hbroker up` makes the authority when a network with security starts for the first time. At each start it
issues the certificates that are missing, and renews those that have little time left.
"""

from __future__ import annotations

from pathlib import Path

from hbroker.config import NodeSettings, SecuritySettings
from hbroker.identity.authority import Authority
from hbroker.identity.certificate import InvalidCertificate
from hbroker.identity.node_identity import Identity
from hbroker.runtime.launcher.run_directory import RunDirectory
from hbroker.topology import Topology

__all__ = ["provide"]


def provide(network: Topology, directory: RunDirectory, now: float) -> SecuritySettings:
    """The authority of the network and an identity for each of its nodes. Makes what is missing.

    `now`: seconds since the Unix epoch. Raises ConfigError if a file is not usable, and OSError if one cannot
    be read or written.
    """
    authority = _authority(network.name, directory.authority, now)
    for node in network.nodes:
        _provide_identity(node, authority, directory.identities, now)
    return SecuritySettings(
        authority=str((directory.authority / "authority.crt").absolute()),
        identity=str(directory.identities.absolute()),
    )


def _authority(network: str, folder: Path, now: float) -> Authority:
    try:
        return Authority.load(folder)
    except FileNotFoundError:
        authority = Authority.create(network, now)
        authority.save(folder)
        return authority


def _provide_identity(node: NodeSettings, authority: Authority, folder: Path, now: float) -> None:
    """Sees to it that a node has a certificate that is valid, names its subtrees, and has time left."""
    try:
        identity = Identity.load(folder, node.name)
    except FileNotFoundError:
        authority.issue(node.name, node.subtrees, now).save(folder)
        return
    try:
        found = authority.verify(identity.chain[0], now)
        is_good = not found.needs_renewal(now) and all(map(found.may_own, node.subtrees))
    except InvalidCertificate:
        is_good = False
    if not is_good:
        authority.issue(node.name, node.subtrees, now, key=identity.key).save(folder)
