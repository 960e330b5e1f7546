"""Where the network is: `host:port` as people write it, and the address that it stands for."""

from __future__ import annotations

import os
from typing import TypeAlias

from hbroker.config import DEFAULT_PORT, DEFAULT_ROOT, Address, format_address, parse_address
from hbroker.hostnames import resolve_host

__all__ = ["AddressLike", "listen_for", "parse_place", "resolve"]

AddressLike: TypeAlias = "str | tuple[str, int] | None"
"""`"host"`, `"host:port"`, `"[ipv6]:port"`, `"ipv6"` or `(host, port)`; None: `HBROKER_ROOT`, or else
`127.0.0.1:7700`."""


def parse_place(place: AddressLike) -> tuple[str, int]:
    """Host and port. Raises ValueError for text that is neither, or a port out of range."""
    if place is None:
        place = os.environ.get("HBROKER_ROOT") or format_address(DEFAULT_ROOT)
    text = format_address(place) if isinstance(place, tuple) else place
    try:
        return parse_address(text, default_port=DEFAULT_PORT)
    except ValueError as error:
        raise ValueError(f"not an address: {error}") from None


def resolve(host: str, port: int) -> Address:
    """The first address of a host. Raises OSError."""
    return resolve_host(host), port


def listen_for(root: Address) -> Address:
    """Any free port, of the root's address family."""
    return ("::" if ":" in root[0] else "0.0.0.0", 0)
