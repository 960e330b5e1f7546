"""Checks of certificates and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hbroker.config import NodeSettings
from hbroker.errors import ConfigError
from hbroker.identity.authority import AuthorityCertificate
from hbroker.identity.certificate import InvalidCertificate, NodeCertificate
from hbroker.identity.node_identity import Identity
from hbroker.runtime.hosts.checks.finding import Finding, error, ok, warning

__all__ = ["check_certificate", "check_mode"]

_OTHERS: Final = 0o077
_DAY_S: Final = 86_400


def check_certificate(node: NodeSettings, now: float) -> Finding:
    """Whether the node's certificate is of its key, of the authority, valid, and for its subtrees. `now`:
    seconds since the Unix epoch."""
    security = node.security
    if not security.is_on:
        return warning(
            "certificate", f"the security of {node.name} is off: nothing is encrypted", "docs/security.md"
        )
    subtrees = " ".join(subtree or "''" for subtree in node.subtrees)
    renew = f"hbroker keys issue {node.name} {subtrees}; then hbroker join --token {node.name}.join"
    try:
        identity = Identity.load(Path(security.identity), node.name)
        found = _verified(identity, Path(security.authority), now)
    except OSError as missing:
        return error("certificate", f"{missing.filename}: {missing.strerror}", renew)
    except (ConfigError, InvalidCertificate) as wrong:
        return error("certificate", str(wrong), renew)
    outside = [subtree for subtree in node.subtrees if not found.may_own(subtree)]
    if outside:
        return error("certificate", f"that of {node.name} does not allow {', '.join(outside)}", renew)
    days = int((found.not_after - now) / _DAY_S)
    if found.needs_renewal(now):
        return warning("certificate", f"that of {node.name} expires in {days} days", renew)
    return ok("certificate", f"that of {node.name} is valid for {days} days")


def check_mode(path: Path) -> Finding:
    """Whether only its owner can read a secret file."""
    try:
        mode = path.stat().st_mode & 0o777
    except OSError as missing:
        return error("secrets", f"{path}: {missing.strerror}", "hbroker join --token FILE writes it")
    if mode & _OTHERS:
        return error("secrets", f"{path} has mode {mode:04o}: others can read it", f"chmod 600 {path}")
    return ok("secrets", f"{path} has mode {mode:04o}")


def _verified(identity: Identity, authority: Path, now: float) -> NodeCertificate:
    """Raises InvalidCertificate, ConfigError and OSError."""
    refusal: InvalidCertificate | None = None
    for each in AuthorityCertificate.load_file(authority):
        try:
            return each.verify(identity.chain[0], now)
        except InvalidCertificate as invalid:
            refusal = invalid
    assert refusal is not None, "the file has a certificate, or loading it fails"
    raise refusal
