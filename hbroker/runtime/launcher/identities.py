"""The authority of a network, and the identities of its nodes, in the network's folder (ADR 35).

`hbroker up` makes the authority when a network with security starts for the first time. At each start it
issues the certificates that are missing, and renews those that have little time left. For that it needs the
key of the authority, which may be kept elsewhere in between.
"""

from __future__ import annotations

from hbroker.config import NodeSettings, SecuritySettings
from hbroker.errors import ConfigError
from hbroker.identity.authority import Authority, AuthorityCertificate
from hbroker.identity.certificate import InvalidCertificate
from hbroker.identity.node_identity import Identity
from hbroker.runtime.launcher.run_directory import RunDirectory
from hbroker.topology import Topology

__all__ = ["provide"]


def provide(network: Topology, directory: RunDirectory, now: float) -> SecuritySettings:
    """The authority of the network and an identity for each of its nodes. Makes what is missing.

    If the key of the authority is kept elsewhere, the certificates have to suffice until it is put back.

    `now`: seconds since the Unix epoch. Raises ConfigError if a file is not usable, or the key is needed and
    not here; and OSError if a file cannot be read or written.
    """
    authority = _authority(network.name, directory, now)
    for node in network.nodes:
        _provide_identity(node, authority, directory, now)
    return SecuritySettings(
        authority=str((directory.authority / "authority.crt").absolute()),
        identity=str(directory.identities.absolute()),
    )


def _authority(network: str, directory: RunDirectory, now: float) -> AuthorityCertificate:
    try:
        return Authority.load(directory.authority)
    except FileNotFoundError:
        # A certificate that has signed something is not replaced: its key is kept elsewhere.
        if (directory.authority / "authority.crt").exists() and any(directory.identities.glob("*.crt")):
            return AuthorityCertificate.load(directory.authority)
        authority = Authority.create(network, now)
        authority.save(directory.authority)
        return authority


def _provide_identity(
    node: NodeSettings, authority: AuthorityCertificate, directory: RunDirectory, now: float
) -> None:
    """Sees to it that a node has a certificate that is valid, names its subtrees, and has time left."""
    try:
        identity = Identity.load(directory.identities, node.name)
    except FileNotFoundError:
        identity = None
    try:
        found = None if identity is None else authority.verify(identity.chain[0], now)
    except InvalidCertificate:
        found = None
    is_usable = found is not None and all(map(found.may_own, node.subtrees))
    if isinstance(authority, Authority):
        if found is None or not is_usable or found.needs_renewal(now):
            key = None if identity is None else identity.key
            authority.issue(node.name, node.subtrees, now, key=key).save(directory.identities)
    elif not is_usable:
        raise ConfigError(
            f"the node {node.name} needs a new certificate, and the key of the authority is not here",
            file=str(directory.authority / "authority.key"),
            remedy="put the key back. (To make another authority, remove authority.crt, too)",
        )
