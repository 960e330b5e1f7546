"""Reads the section `admin` of a topology file: the process with the HTTP API."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from hbroker.config import AdminSettings
from hbroker.hostnames import Resolver
from hbroker.topology.document import Report, line_of, optional
from hbroker.topology.sections import read_address

__all__ = ["ADMIN_KEYS", "ADMIN_TLS_KEYS", "ParsedAdmin", "read_admin"]

ADMIN_KEYS: Final = ("listen", "hosts", "tls")
ADMIN_TLS_KEYS: Final = ("certificate", "key")


@dataclass(frozen=True, slots=True)
class ParsedAdmin:
    """The section. `line`: where it begins; None: the file has none. `settings`: None: the network has no
    such process."""

    line: int | None
    settings: AdminSettings | None


def read_admin(node: yaml.Node, report: Report, resolve: Resolver, directory: Path) -> ParsedAdmin:
    """Reads the section: `off`, `on` or a mapping. Paths in it are relative to `directory`, the
    topology's."""
    if isinstance(node, yaml.ScalarNode):
        is_wanted = report.truth(node, "admin")
        return ParsedAdmin(line_of(node), AdminSettings(is_required=True) if is_wanted else None)
    values = report.mapping(node, "admin", ADMIN_KEYS)
    hosts = report.items(values["hosts"], "hosts", "- ops.example.org") if "hosts" in values else []
    tls = report.mapping(values["tls"], "tls", ADMIN_TLS_KEYS) if "tls" in values else {}
    if "tls" in values:
        report.require(values["tls"], "tls", tls, {key: f"add `{key}: <file>`" for key in ADMIN_TLS_KEYS})
    certificate, key = (optional(tls, name, report.text) for name in ADMIN_TLS_KEYS)
    read = [report.text(host, "a host") for host in hosts]
    listen = optional(values, "listen", lambda value, key: read_address(value, key, report, resolve, None))
    settings = AdminSettings(
        hosts=tuple(host for host in read if host),
        certificate=str(directory / certificate) if certificate else "",
        key=str(directory / key) if key else "",
        is_required=True,
    )
    if listen is not None:
        settings = settings.on_address(listen)
    return ParsedAdmin(line_of(node), settings)
