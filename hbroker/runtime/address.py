"""The address of a network: `host:port` as users write it, and the IP address that it resolves to."""

from __future__ import annotations

import os
from typing import TypeAlias

from hbroker.addresses import DEFAULT_PORT, DEFAULT_ROOT, Address, format_address, parse_address
from hbroker.hostnames import resolve_host
from hbroker.runtime import contexts

__all__ = ["AddressLike", "listen_for", "parse_place", "resolve", "resolve_both"]

AddressLike: TypeAlias = "str | tuple[str, int] | None"
"""`"host"`, `"host:port"`, `"[ipv6]:port"`, `"ipv6"` or `(host, port)`. None: the environment's
`HBROKER_ROOT`, or else the root of the context (`hbroker.runtime.contexts`), or else `127.0.0.1:7700`."""


def parse_place(place: AddressLike) -> tuple[str, int]:
    """The host and port, not resolved. Raises ValueError if the text is no address, or the port is out of
    range; and ConfigError or ConfigErrors if there is no usable context of the name that was chosen."""
    if place is None:
        place = os.environ.get("HBROKER_ROOT") or _root_of_context() or format_address(DEFAULT_ROOT)
    text = format_address(place) if isinstance(place, tuple) else place
    try:
        return parse_address(text, default_port=DEFAULT_PORT)
    except ValueError as error:
        raise ValueError(f"not an address: {error}") from None


def resolve(host: str, port: int) -> Address:
    """The first IP address of a host, and the port. Raises OSError if the host has no address."""
    return resolve_host(host), port


def resolve_both(root: tuple[str, int], listen: AddressLike) -> tuple[Address, Address]:
    """The address of the root, and that to which a client binds. `listen`: None: as `listen_for`. Raises
    ValueError and OSError."""
    address = resolve(*root)
    return address, listen_for(address) if listen is None else resolve(*parse_place(listen))


def listen_for(root: Address) -> Address:
    """The address to which a client binds: every local address, of the root's address family, and any free
    port."""
    return ("::" if ":" in root[0] else "0.0.0.0", 0)


def _root_of_context() -> str:
    context = contexts.chosen()
    return context.root if context else ""
