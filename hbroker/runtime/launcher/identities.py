"""The authority of a network, and what it has signed, in the network's folder (ADR 35): the identities of the
nodes, and the operator's token.

`hbroker up` makes the authority when a network with security starts for the first time. At each start it
issues the certificates that are missing, and renews those that have little time left. For that it needs the
key of the authority, which may be kept elsewhere in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from hbroker.config import NodeSettings, SecuritySettings
from hbroker.errors import ConfigError
from hbroker.identity.authority import Authority, AuthorityCertificate
from hbroker.identity.certificate import InvalidCertificate, NodeCertificate
from hbroker.identity.node_identity import Identity
from hbroker.runtime.launcher.operator_token import provide_operator_token
from hbroker.runtime.launcher.run_directory import RunDirectory
from hbroker.topology import Topology

__all__ = ["provide"]


def provide(network: Topology, directory: RunDirectory, now: float) -> SecuritySettings:
    """The authority of the network, an identity for each of its nodes, and the operator's token if the
    network requires tokens. Makes what is missing.

    If the key of the authority is kept elsewhere, the certificates and the token have to suffice until it is
    put back.

    `now`: seconds since the Unix epoch. Raises ConfigError if a file is not usable, or the key is needed and
    not here; and OSError if a file cannot be read or written.
    """
    signer = _signer(network.name, directory, now)
    believed: Sequence[AuthorityCertificate] = (
        [signer] if signer else AuthorityCertificate.load_all(directory.authority)
    )
    for node in network.nodes:
        _provide_identity(node, believed, signer, directory, now)
    token = ""
    if network.requires_tokens:
        token = str(provide_operator_token(directory, believed, signer, now).absolute())
    return SecuritySettings(
        authority=str((directory.authority / "authority.crt").absolute()),
        identity=str(directory.identities.absolute()),
        token=token,
        requires_tokens=network.requires_tokens,
    )


def _signer(network: str, directory: RunDirectory, now: float) -> Authority | None:
    """The authority. Makes one if there is none. None: its key is kept elsewhere."""
    try:
        return Authority.load(directory.authority)
    except FileNotFoundError:
        if (directory.authority / "authority.crt").exists():
            return None
    authority = Authority.create(network, now)
    authority.save(directory.authority)
    return authority


def _provide_identity(
    node: NodeSettings,
    believed: Iterable[AuthorityCertificate],
    signer: Authority | None,
    directory: RunDirectory,
    now: float,
) -> None:
    """Sees to it that a node has a certificate that is valid, lets it own any subtree, and has time left. For
    orders (`hbroker move`) and edited files give it others than it began with."""
    try:
        identity = Identity.load(directory.identities, node.name)
    except FileNotFoundError:
        identity = None
    found = None if identity is None else _verified(identity.chain[0], believed, now)
    is_usable = found is not None and found.may_own("")
    if signer is not None:
        if found is None or not is_usable or found.needs_renewal(now):
            key = None if identity is None else identity.key
            signer.issue(node.name, [""], now, key=key).save(directory.identities)
    elif not is_usable:
        raise ConfigError(
            f"the node {node.name} needs a new certificate, and the key of the authority is not here",
            file=str(directory.authority / "authority.key"),
            remedy="put the key back",
        )


def _verified(der: bytes, believed: Iterable[AuthorityCertificate], now: float) -> NodeCertificate | None:
    for authority in believed:
        with suppress(InvalidCertificate):
            return authority.verify(der, now)
    return None
