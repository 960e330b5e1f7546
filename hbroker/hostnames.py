"""Resolves host names. It is apart from `hbroker.config`, because it asks the operating system."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Resolver", "resolve_host"]

Resolver: TypeAlias = Callable[[str], str]
"""Returns the IP address of a host name, as text. Raises OSError if there is none."""


def resolve_host(host: str) -> str:
    """The first IP address of a host name. An IP address resolves to itself. Raises OSError if there is
    none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except UnicodeError as error:
        raise OSError(f"not a host name: {error}") from None
    return str(found[0][4][0])
