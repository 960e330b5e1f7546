"""Makes a listener of a gateway of a section of mosquitto.conf."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hbroker.addresses import format_address, parse_address
from hbroker.mosquitto.conf_file import Configuration, Line, Section
from hbroker.mosquitto.outcome import Report

__all__ = ["default_listener", "listener", "local_listener"]

_PACKET_BYTES: Final = (256, 268_435_460)
_ROOM: Final = 1_024
"""What a packet has besides the payload, in bytes: the topic and the properties of most messages."""


def local_listener() -> dict[str, Any]:
    """The listener of a configuration that names none: clients of this host alone."""
    return {"address": "127.0.0.1:1883"}


def default_listener(configuration: Configuration, report: Report, *, has_ipv6: bool) -> dict[str, Any]:
    """The default listener, of `port` and `bind_address`. Raises ConfigError."""
    section = configuration.default
    port_line = section.last("port")
    port = 1883 if port_line is None else port_line.whole(1)
    place = _address(section.value("bind_address"), port, section.lines[0], section, has_ipv6)
    for option in ("port", "bind_address", "socket_domain"):
        report.converted(section.last(option), f"listener {place}")
    return {"address": place, **_options(section, configuration, report)}


def listener(
    section: Section, configuration: Configuration, report: Report, *, has_ipv6: bool
) -> dict[str, Any] | None:
    """A further listener; None: it is a Unix socket. Raises ConfigError."""
    line = section.lines[0]
    port, _, host = line.value.partition(" ")
    if host.startswith("/") or port == "0":
        text = "there are no Unix sockets: let clients of this host use a listener on 127.0.0.1"
        for each in section.lines:
            report.missing(each, text)
        return None
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536):
        raise line.error(f"{port[:40]!r} is not a port", "`listener <port> [address]`")
    place = _address(host.strip(), int(port), line, section, has_ipv6)
    report.converted(line, f"listener {place}")
    report.converted(section.last("socket_domain"), f"listener {place}")
    return {"address": place, **_options(section, configuration, report)}


def _address(host: str, port: int, line: Line, section: Section, has_ipv6: bool) -> str:
    if not host:
        domain = section.value("socket_domain")
        host = "::" if domain == "ipv6" or (domain != "ipv4" and has_ipv6) else "0.0.0.0"
    address = format_address((host, port))
    try:
        parse_address(address)
    except ValueError as error:
        raise line.error(f"not an address: {error}", "the address of an interface") from None
    return address


def _options(section: Section, configuration: Configuration, report: Report) -> dict[str, Any]:
    values: dict[str, Any] = {}
    protocol = section.last("protocol")
    if protocol is not None:
        if protocol.value == "websockets":
            values["websocket"] = "/mqtt"
            report.missing(
                protocol,
                "converted for the path /mqtt alone, while mosquitto takes every path: change `websocket` "
                "if clients use another one",
            )
        elif protocol.value == "mqtt":
            report.same(protocol, "MQTT is what a listener speaks")
        else:
            raise protocol.error(f"{protocol.value[:40]!r} is no protocol", "mqtt or websockets")
    proxy = section.last("enable_proxy_protocol")
    if proxy is not None and proxy.value == "2":
        values["proxy_protocol"] = True
        report.converted(proxy, "proxy_protocol: true")
    else:
        report.missing(proxy, "the PROXY protocol is off, or has version 2: configure the balancer for that")
    tls = _tls(section, report)
    if tls:
        values["tls"] = tls
    most = section.last("max_connections")
    if most is not None:
        if most.whole(-1) > 0:
            values["connections"] = values["connections_per_address"] = most.whole(-1)
            report.converted(most, f"connections: {most.value}")
        else:
            report.same(most, "100,000 connections unless the file says another number")
    return values | _size(configuration, report)


def _tls(section: Section, report: Report) -> Mapping[str, Any] | None:
    certificate, key, authority = (section.last(name) for name in ("certfile", "keyfile", "cafile"))
    if certificate is None or key is None:
        for line in (certificate, key, authority):
            report.missing(line, "without both `certfile` and `keyfile` mosquitto uses no TLS, either")
        return None
    values: dict[str, Any] = {"certificate": _absolute(certificate), "key": _absolute(key)}
    for line in (certificate, key):
        report.converted(line, "tls")
    asks = section.is_true("require_certificate")
    names_user = section.is_true("use_identity_as_username")
    directory = section.last("capath")
    if not asks:
        report.same(authority, "clients are not asked for certificates, so no CA is needed")
        report.same(directory, "clients are not asked for certificates, so no CA is needed")
        report.same(
            section.last("require_certificate"), "clients are asked for none unless `client_ca` is there"
        )
        report.same(section.last("use_identity_as_username"), "it counts only if certificates are required")
        return values
    if authority is None:
        line = section.last("require_certificate")
        assert line is not None, "it is true"
        remedy = "`cafile` with all CA certificates in one file: there are no directories of them here"
        raise line.error("certificates are required, and there is no `cafile`", remedy)
    values |= {"client_ca": _absolute(authority), "client_certificate": "required"}
    report.converted(authority, "client_ca")
    report.missing(directory, "`client_ca` is one file: append the certificates of the directory to it")
    report.converted(section.last("require_certificate"), "client_certificate: required")
    if names_user:
        values["names_user"] = True
    report.converted(section.last("use_identity_as_username"), f"names_user: {str(names_user).lower()}")
    return values


def _absolute(line: Line) -> str:
    """The path that a line names. The topology file may be in another directory."""
    return str(Path(line.value).absolute())


def _size(configuration: Configuration, report: Report) -> dict[str, Any]:
    packet = configuration.general.last("max_packet_size")
    payload = configuration.general.last("message_size_limit")
    if payload is not None and payload.whole() > 0:
        size = payload.whole() + _ROOM
        report.converted(payload, f"packet_bytes: {size}, which is the whole packet with its topic")
    elif packet is not None and packet.whole() > 0:
        size = packet.whole()
    else:
        report.same(payload, "messages of up to 256 MiB are accepted")
        report.same(packet, "messages of up to 256 MiB are accepted")
        return {}
    low, high = _PACKET_BYTES
    size = min(max(size, low), high)
    report.converted(packet, f"packet_bytes: {size}")
    return {"packet_bytes": size}
