"""Reads the section `gateways` of a topology file, and what `auth` says about MQTT clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import yaml

from hbroker.addresses import Address
from hbroker.config import (
    MAX_WORKERS,
    AccessSettings,
    GatewayLimits,
    GatewaySettings,
    ListenerSettings,
    TlsSettings,
)
from hbroker.hostnames import Resolver
from hbroker.topology.document import Report, line_of
from hbroker.topology.sections import read_address, read_listen, read_name

__all__ = [
    "GATEWAY_KEYS",
    "GATEWAY_LIMIT_RANGES",
    "LISTENER_KEYS",
    "LISTENER_RANGES",
    "TLS_KEYS",
    "GatewayEntry",
    "read_access",
    "read_gateway",
    "read_gateway_limits",
    "read_listener",
    "settings_of",
]

GATEWAY_KEYS: Final = ("name", "listeners", "listen", "workers", "server_reference", "limits")
LISTENER_KEYS: Final = (
    "address",
    "gives_way",
    "websocket",
    "tls",
    "proxy_protocol",
    "acknowledge",
    "connections",
    "connections_per_address",
    "connect_rate",
    "packet_bytes",
)
TLS_KEYS: Final = ("certificate", "key", "client_ca", "client_certificate", "names_user")
_FILE_KEYS: Final = ("passwords", "acl")
GATEWAY_LIMIT_RANGES: Final = {
    "connections": (1, 10_000_000),
    "in_flight": (1, 65_535),
    "queue_messages": (1, 10_000_000),
    "queue_bytes": (1_024, 1 << 32),
    "unfinished_bytes": (65_536, 1 << 40),
    "rate": (0, 10_000_000),
    "subscriptions": (1, 1_000_000),
    "session_expiry": (1, 0xFFFF_FFFF),
    "keep_alive": (0, 65_535),
}
"""The fields of `GatewayLimits`, each with its smallest and largest value."""

LISTENER_RANGES: Final = {
    "connections": (1, 10_000_000),
    "connections_per_address": (1, 10_000_000),
    "connect_rate": (0, 10_000_000),
    "packet_bytes": (256, 268_435_460),
}
"""The numbers of `ListenerSettings`, each with its smallest and largest value."""
_ACKNOWLEDGE: Final = ("queued", "distributed")
_CLIENT_CERTIFICATE: Final = ("optional", "required")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GatewayEntry:
    """One item of `gateways`. None: the key is absent, or its value is wrong and was noted as an error."""

    line: int | None
    name: str | None
    listeners: tuple[tuple[int | None, ListenerSettings], ...]
    """Each listener with its line."""
    listen: Address | None
    workers: int
    server_reference: str
    limits: GatewayLimits


def read_gateway(
    node: yaml.Node, index: int, report: Report, resolve: Resolver, directory: Path
) -> GatewayEntry:
    """Reads one item of `gateways`. Paths in it are relative to `directory`, the topology's."""
    what = f"gateway {index}"
    values = report.mapping(node, what, GATEWAY_KEYS)
    name = read_name(values["name"], report) if "name" in values else None
    what = f"gateway {name!r}" if name else what
    if isinstance(node, yaml.MappingNode):
        _require(values, node, what, report)
    listeners = report.items(values["listeners"], "listeners", _EXAMPLE) if "listeners" in values else []
    read = ((line_of(item), read_listener(item, report, resolve, directory)) for item in listeners)
    return GatewayEntry(
        line=line_of(node),
        name=name,
        listeners=tuple((line, listener) for line, listener in read if listener is not None),
        listen=_optional(values, "listen", lambda value: read_listen(value, report, resolve)),
        workers=_optional(values, "workers", lambda v: report.integer(v, "workers", 1, MAX_WORKERS)) or 0,
        server_reference=_optional(values, "server_reference", lambda v: report.text(v, "server_reference"))
        or "",
        limits=_optional(values, "limits", lambda value: read_gateway_limits(value, report))
        or GatewayLimits(),
    )


def read_listener(
    node: yaml.Node, report: Report, resolve: Resolver, directory: Path
) -> ListenerSettings | None:
    """Reads one item of `listeners`. Paths in it are relative to `directory`. None: it has no valid
    address."""
    values = report.mapping(node, "a listener", LISTENER_KEYS)
    if "address" not in values:
        if isinstance(node, yaml.MappingNode):
            report.error(node, "a listener has no `address`", "add `address: 127.0.0.1:1883`")
        return None
    address = read_address(values["address"], "address", report, resolve, None)
    websocket = _optional(values, "websocket", lambda value: _path_of_url(value, report))
    numbers = {
        key: report.integer(values[key], key, *limits)
        for key, limits in LISTENER_RANGES.items()
        if key in values
    }
    acknowledge = _optional(values, "acknowledge", lambda v: _choice(v, "acknowledge", _ACKNOWLEDGE, report))
    if address is None:
        return None
    return ListenerSettings(
        address=address,
        tls=_optional(values, "tls", lambda value: _read_tls(value, report, directory)),
        websocket=websocket or "",
        proxy_protocol=_optional(values, "proxy_protocol", lambda v: report.truth(v, "proxy_protocol"))
        or False,
        gives_way=_optional(values, "gives_way", lambda v: report.truth(v, "gives_way")) or False,
        is_distributed=acknowledge == "distributed",
        **{key: value for key, value in numbers.items() if value is not None},
    )


def read_access(values: Mapping[str, yaml.Node], report: Report, directory: Path) -> AccessSettings:
    """Reads what `auth` says about MQTT clients. `runtime/gateway/files.py` reads the files that it names."""
    files = {key: _file(values[key], key, report, directory) or "" for key in _FILE_KEYS if key in values}
    return AccessSettings(
        **files,
        anonymous=_optional(values, "anonymous", lambda value: report.truth(value, "anonymous")),
    )


def read_gateway_limits(node: yaml.Node, report: Report) -> GatewayLimits:
    """Reads the section `limits` of a gateway."""
    values = report.mapping(node, "limits", tuple(GATEWAY_LIMIT_RANGES))
    read = {key: report.integer(value, key, *GATEWAY_LIMIT_RANGES[key]) for key, value in values.items()}
    return GatewayLimits(**{key: value for key, value in read.items() if value is not None})


def settings_of(
    entry: GatewayEntry, root: Address, join_key: bytes, access: AccessSettings
) -> GatewaySettings:
    """The settings of an entry that was read without an error."""
    assert entry.name is not None, "a gateway without a name was reported"
    return GatewaySettings(
        name=entry.name,
        root=root,
        listeners=tuple(listener for _, listener in entry.listeners),
        listen=entry.listen,
        workers=entry.workers,
        limits=entry.limits,
        access=access,
        join_key=join_key,
        server_reference=entry.server_reference,
    )


_EXAMPLE: Final = '- {address: "127.0.0.1:1883"}'


def _read_tls(node: yaml.Node, report: Report, directory: Path) -> TlsSettings | None:
    values = report.mapping(node, "tls", TLS_KEYS)
    for key in ("certificate", "key"):
        if key not in values and isinstance(node, yaml.MappingNode):
            report.error(node, f"tls has no `{key}`", f"add `{key}: <file>`, in PEM")
    paths = {
        key: _file(values[key], key, report, directory) or ""
        for key in ("certificate", "key", "client_ca")
        if key in values
    }
    wanted = _optional(
        values,
        "client_certificate",
        lambda v: _choice(v, "client_certificate", _CLIENT_CERTIFICATE, report),
    )
    names_user = _optional(values, "names_user", lambda v: report.truth(v, "names_user")) or False
    if (wanted or names_user) and "client_ca" not in values:
        remedy = "add `client_ca: <file>`, the certificates that sign those of clients"
        report.error(node, "tls asks for client certificates, and has no `client_ca`", remedy)
    return TlsSettings(
        certificate=paths.get("certificate", ""),
        key=paths.get("key", ""),
        client_ca=paths.get("client_ca", ""),
        needs_certificate=wanted == "required",
        names_user=names_user,
    )


def _file(node: yaml.Node, what: str, report: Report, directory: Path) -> str | None:
    name = report.text(node, what)
    if name == "":
        report.error(node, f"{what} names no file", "write the file's path, or remove the key")
    return str(directory / name) if name else None


def _path_of_url(node: yaml.Node, report: Report) -> str | None:
    text = report.text(node, "websocket")
    if text is None or (text.startswith("/") and text.isprintable() and " " not in text):
        return text
    report.error(node, f"{text[:80]!r} is not the path of a URL", "write `websocket: /mqtt`")
    return None


def _choice(node: yaml.Node, what: str, choices: tuple[str, ...], report: Report) -> str | None:
    text = report.text(node, what)
    if text is None or text in choices:
        return text
    report.error(node, f"{what} is {text[:40]!r}", f"write {' or '.join(f'`{name}`' for name in choices)}")
    return None


def _optional(values: Mapping[str, yaml.Node], key: str, read: Callable[[yaml.Node], T | None]) -> T | None:
    return read(values[key]) if key in values else None


def _require(values: Mapping[str, yaml.Node], node: yaml.Node, what: str, report: Report) -> None:
    remedies = {
        "name": "add `name: <name>`, one for each gateway",
        "listeners": f"add `listeners:` and below it `{_EXAMPLE}`",
    }
    for key, remedy in remedies.items():
        if key not in values:
            report.error(node, f"{what} has no `{key}`", remedy)
