"""Which UDP ports the nodes of this host get.

Nodes bind with SO_REUSEPORT, since each of their workers has a socket of its own. So the kernel would let two
networks share a port and split the datagrams between them. That a port is free is therefore asked beforehand,
by a socket without that option.
"""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

from hbroker.config import Address, format_address
from hbroker.errors import LocalError
from hbroker.topology import Topology


class PortTaken(LocalError):
    """Another process has the address, or this host does not."""


def require_free(address: Address) -> None:
    """Raises PortTaken where the address cannot be bound."""
    _bind(address).close()


def assign(topology: Topology, *, any_port: bool = False) -> Topology:
    """The topology with a port for each node that left it open; `any_port`: for every node.

    All ports are held together before the first is given up, so no two nodes get the same. Raises PortTaken.
    """
    ports: dict[str, int] = {}
    with ExitStack() as held:
        for node in topology.nodes:
            host, port = node.listen
            bound = held.enter_context(_bind((host, 0 if any_port else port)))
            if any_port or port == 0:
                ports[node.name] = bound.getsockname()[1]
    return topology.on_ports(ports)


def _bind(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        at = format_address(address)
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(f"{at} is in use by another process") from None
        raise PortTaken(f"cannot listen on {at}: {error.strerror}") from None
    return bound
