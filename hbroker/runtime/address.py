"""Where the network is: `host:port` as people write it, and the address that it stands for."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from hbroker.protocol.packets import Address

__all__ = ["DEFAULT_ROOT", "Place", "first_address", "listen_for", "place_of", "resolve"]

DEFAULT_ROOT: Final = "127.0.0.1:7700"
_DEFAULT_PORT: Final = 7700
_PLACE: Final = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")

Place: TypeAlias = "str | tuple[str, int] | None"
"""`"host"`, `"host:port"`, `"[ipv6]:port"` or `(host, port)`; None: `HBROKER_ROOT`, or else
`127.0.0.1:7700`."""


def place_of(place: Place) -> tuple[str, int]:
    """Host and port. Raises ValueError for text that is neither, or a port out of range."""
    if place is None:
        place = os.environ.get("HBROKER_ROOT") or DEFAULT_ROOT
    host, port = place if isinstance(place, tuple) else _split(place)
    if not host or not 0 <= port < 65_536:
        raise ValueError(f"not an address: {place!r} (expected host, host:port or [ipv6]:port)")
    return host, port


def resolve(host: str, port: int) -> Address:
    """The first address of a host. Raises OSError."""
    return first_address(socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM))


def first_address(found: Sequence[tuple[Any, ...]]) -> Address:
    """The first address in an answer of `getaddrinfo`, which never is empty."""
    ip, port = found[0][4][:2]
    return ip, port


def listen_for(root: Address) -> Address:
    """Any free port, of the root's address family."""
    return ("::" if ":" in root[0] else "0.0.0.0", 0)


def _split(text: str) -> tuple[str, int]:
    if text.count(":") > 1 and not text.startswith("["):  # an IPv6 address alone
        return text, _DEFAULT_PORT
    match = _PLACE.fullmatch(text)
    if match is None:
        return "", 0
    return match["ipv6"] or match["host"], int(match["port"] or _DEFAULT_PORT)
