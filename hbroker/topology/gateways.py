"""Reads the section `gateways` of a topology file, and what `auth` says about MQTT clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

from hbroker.addresses import Address
from hbroker.config import (
    MAX_WORKERS,
    AccessSettings,
    GatewayLimits,
    GatewaySettings,
    ListenerSettings,
    TlsSettings,
    WorkspaceQuotas,
)
from hbroker.hostnames import Resolver
from hbroker.topology.document import Report, line_of, optional
from hbroker.topology.sections import read_address, read_name, read_workspace

__all__ = [
    "GATEWAY_KEYS",
    "GATEWAY_LIMIT_RANGES",
    "LISTENER_KEYS",
    "LISTENER_RANGES",
    "TLS_KEYS",
    "ParsedGateway",
    "read_access",
    "read_gateway",
    "read_gateway_limits",
    "read_listener",
    "settings_of",
]

GATEWAY_KEYS: Final = ("name", "listeners", "listen", "workers", "server_reference", "limits", "metrics")
LISTENER_KEYS: Final = (
    "address",
    "gives_way",
    "websocket",
    "tls",
    "proxy_protocol",
    "workspace",
    "acknowledge",
    "connections",
    "connections_per_address",
    "connect_rate",
    "packet_bytes",
)
TLS_KEYS: Final = ("certificate", "key", "client_ca", "client_certificate", "names_user", "names_client")
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


@dataclass(frozen=True, slots=True)
class ParsedGateway:
    """One item of `gateways`. None: the key is absent, or its value is wrong and was noted as an error."""

    line: int | None
    name: str | None
    listeners: tuple[tuple[int | None, ListenerSettings], ...]
    """Each listener with its line."""
    listen: Address | None
    workers: int
    server_reference: str
    limits: GatewayLimits
    metrics: Address | None = None


def read_gateway(
    node: yaml.Node, index: int, report: Report, resolve: Resolver, directory: Path
) -> ParsedGateway:
    """Reads one item of `gateways`. Paths in it are relative to `directory`, the topology's."""
    label = f"gateway {index}"
    values = report.mapping(node, label, GATEWAY_KEYS)
    name = read_name(values["name"], report) if "name" in values else None
    label = f"gateway {name!r}" if name else label
    report.require(node, label, values, _NEEDED)
    listeners = report.items(values["listeners"], "listeners", _EXAMPLE) if "listeners" in values else []
    read = ((line_of(item), read_listener(item, report, resolve, directory)) for item in listeners)
    return ParsedGateway(
        line=line_of(node),
        name=name,
        listeners=tuple((line, listener) for line, listener in read if listener is not None),
        listen=optional(values, "listen", lambda value, key: read_address(value, key, report, resolve, None)),
        workers=report.numbers(values, {"workers": (1, MAX_WORKERS)}).get("workers", 0),
        server_reference=optional(values, "server_reference", report.text) or "",
        limits=optional(values, "limits", lambda value, _: read_gateway_limits(value, report))
        or GatewayLimits(),
        metrics=optional(
            values, "metrics", lambda value, key: read_address(value, key, report, resolve, None)
        ),
    )


def read_listener(
    node: yaml.Node, report: Report, resolve: Resolver, directory: Path
) -> ListenerSettings | None:
    """Reads one item of `listeners`. Paths in it are relative to `directory`. None: it has no valid
    address."""
    values = report.mapping(node, "a listener", LISTENER_KEYS)
    report.require(node, "a listener", values, {"address": "add `address: 127.0.0.1:1883`"})
    address = optional(
        values, "address", lambda value, label: read_address(value, label, report, resolve, None)
    )
    acknowledge = _choice(values, "acknowledge", ("queued", "distributed"), report)
    listener = ListenerSettings(
        address=address or ("", 0),
        tls=optional(values, "tls", lambda value, _: _read_tls(value, report, directory)),
        websocket=optional(values, "websocket", lambda value, _: _path_of_url(value, report)) or "",
        proxy_protocol=optional(values, "proxy_protocol", report.truth) or False,
        gives_way=optional(values, "gives_way", report.truth) or False,
        workspace=optional(values, "workspace", lambda value, _: read_workspace(value, report)) or "",
        is_distributed=acknowledge == "distributed",
        **report.numbers(values, LISTENER_RANGES),
    )
    return None if address is None else listener


def read_access(values: Mapping[str, yaml.Node], report: Report, directory: Path) -> AccessSettings:
    """Reads what `auth` says about MQTT clients. `runtime/gateway/files.py` reads the files that it names."""
    return AccessSettings(
        **_files(values, ("passwords", "acl"), report, directory),
        **_tokens(values, report, directory),
        anonymous=optional(values, "anonymous", report.truth),
    )


def read_gateway_limits(node: yaml.Node, report: Report) -> GatewayLimits:
    """Reads the section `limits` of a gateway."""
    values = report.mapping(node, "limits", tuple(GATEWAY_LIMIT_RANGES))
    return GatewayLimits(**report.numbers(values, GATEWAY_LIMIT_RANGES))


def settings_of(
    parsed: ParsedGateway,
    root: Address,
    join_key: bytes,
    access: AccessSettings,
    workspaces: tuple[WorkspaceQuotas, ...] = (),
) -> GatewaySettings:
    """The settings of an entry that was read without an error."""
    assert parsed.name is not None, "a gateway without a name was reported"
    return GatewaySettings(
        name=parsed.name,
        root=root,
        listeners=tuple(listener for _, listener in parsed.listeners),
        listen=parsed.listen,
        workers=parsed.workers,
        limits=parsed.limits,
        access=access,
        join_key=join_key,
        server_reference=parsed.server_reference,
        workspaces=workspaces,
        metrics=parsed.metrics,
    )


_EXAMPLE: Final = '- {address: "127.0.0.1:1883"}'
_NEEDED: Final = {
    "name": "add `name: <name>`, one for each gateway",
    "listeners": f"add `listeners:` and below it `{_EXAMPLE}`",
}


def _read_tls(node: yaml.Node, report: Report, directory: Path) -> TlsSettings | None:
    values = report.mapping(node, "tls", TLS_KEYS)
    report.require(
        node, "tls", values, {key: f"add `{key}: <file>`, in PEM" for key in ("certificate", "key")}
    )
    client_certificate = _choice(values, "client_certificate", ("optional", "required"), report)
    names_user = optional(values, "names_user", report.truth) or False
    names_client = optional(values, "names_client", report.truth) or False
    if names_client and client_certificate != "required":
        message = "without a certificate a client could have the client id of another"
        report.error(values["names_client"], message, "add `client_certificate: required`")
    if (client_certificate or names_user) and "client_ca" not in values:
        remedy = "add `client_ca: <file>`, the certificates that sign those of clients"
        report.error(node, "tls asks for client certificates, and has no `client_ca`", remedy)
    files = _files(values, ("certificate", "key", "client_ca"), report, directory)
    return TlsSettings(
        **{"certificate": "", "key": "", **files},
        needs_certificate=client_certificate == "required",
        names_user=names_user,
        names_client=names_client,
    )


def _files(
    values: Mapping[str, yaml.Node], keys: tuple[str, ...], report: Report, directory: Path
) -> dict[str, str]:
    """The paths under these keys, as far as they are there. Notes an error for an empty one."""
    names = {key: report.text(values[key], key) for key in keys if key in values}
    for key, name in names.items():
        if name == "":
            report.error(values[key], f"{key} names no file", "write the file's path, or remove the key")
    return {key: str(directory / name) if name else "" for key, name in names.items()}


def _tokens(values: Mapping[str, yaml.Node], report: Report, directory: Path) -> dict[str, str]:
    """What is said of tokens. Notes an error for a URL without TLS, and for keys without `jwt_keys`."""
    found = {key: report.text(values[key], key) or "" for key in _JWT_KEYS if key in values}
    keys = found.get("jwt_keys", "")
    if found and not keys:
        (node, *_) = (values[key] for key in _JWT_KEYS if key in values)
        report.error(node, "jwt_keys names no file and no URL", "add `jwt_keys: <file>`")
    url = urlsplit(keys)
    if url.scheme in ("http", "https"):
        if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
            report.error(values["jwt_keys"], "whoever changes what comes over http gets in", "use https")
    elif keys:
        found["jwt_keys"] = str(directory / keys)
    return found


_JWT_KEYS: Final = ("jwt_keys", "jwt_issuer", "jwt_audience")


def _path_of_url(node: yaml.Node, report: Report) -> str | None:
    text = report.text(node, "websocket")
    if text is None or (text.startswith("/") and text.isprintable() and " " not in text):
        return text
    report.error(node, f"{text[:80]!r} is not the path of a URL", "write `websocket: /mqtt`")
    return None


def _choice(
    values: Mapping[str, yaml.Node], key: str, choices: tuple[str, ...], report: Report
) -> str | None:
    text = optional(values, key, report.text)
    if text is None or text in choices:
        return text
    remedy = f"write {' or '.join(f'`{name}`' for name in choices)}"
    report.error(values[key], f"{key} is {text[:40]!r}", remedy)
    return None
