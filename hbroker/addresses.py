"""An address of UDP: an IP address or a host, and a port. Its text."""

from __future__ import annotations

from ipaddress import IPv6Address

Address = tuple[str, int]
"""An IP address as text, and a UDP port."""

DEFAULT_PORT = 7700
DEFAULT_ROOT: Address = ("127.0.0.1", DEFAULT_PORT)
ANY_ADDRESS = frozenset({"0.0.0.0", "::"})
"""A process that binds to one of these listens on every address of the host. Others cannot reach it there."""


def parse_address(text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """The host and port of `host:port` or `[ipv6]:port`. With a default port, the text may also be a host or
    an IPv6 address alone.

    The host is not resolved. Raises ValueError with a message that explains the error.
    """
    host, port = _split(text, default_port)
    if not host or any(c.isspace() or c in "/@[]" for c in host):
        raise ValueError(f"{text!r} names no host")
    if not (port.isascii() and port.isdigit()):
        raise ValueError(f"{port!r} is not a port number")
    if int(port[:6]) > 65_535:
        raise ValueError(f"port {port} is over 65535")
    return host, int(port)


def format_address(address: Address) -> str:
    """The address as text: `ip:port`, or `[ip]:port` for IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split(text: str, default_port: int | None) -> tuple[str, str]:
    port = "" if default_port is None else str(default_port)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not an address")
        return host, rest[1:] if rest else port
    if text.count(":") > 1:
        if default_port is not None and _is_ipv6(text):
            return text, port
        raise ValueError(f"{text!r}: an IPv6 address goes into square brackets, as in '[::1]:7700'")
    host, colon, given = text.partition(":")
    if not colon and default_port is None:
        raise ValueError(f"{text!r} has no port")
    return host, given if colon else port


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
