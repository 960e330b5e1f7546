"""From the name of a host to its address. Apart from `hbroker.config`, because it asks the system."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Resolver", "resolve_host"]

Resolver: TypeAlias = Callable[[str], str]
"""A host name to an IP address as text; raises OSError where there is none."""


def resolve_host(host: str) -> str:
    """The first IP address of a name; an IP address is its own. Raises OSError where there is none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except UnicodeError as error:
        raise OSError(f"not a host name: {error}") from None
    return str(found[0][4][0])
