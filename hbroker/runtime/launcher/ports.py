"""Which ports the nodes and gateways of this host get.

Nodes bind with SO_REUSEPORT, since each of their workers has a socket of its own. So the kernel would let two
networks share a port and split the datagrams between them. That a port is free is therefore asked beforehand,
by a socket without that option. The same holds for the TCP ports of gateways.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace

from hbroker.config import Address, GatewaySettings, ListenerSettings, format_address
from hbroker.errors import LocalError
from hbroker.topology import Topology


class PortTaken(LocalError):
    """Another process has the address, or this host does not."""


def require_free(address: Address) -> None:
    """Raises PortTaken where the address cannot be bound."""
    _bind(address).close()


def is_tcp_free(address: Address) -> bool:
    """Whether nobody listens there. What is left of connections of a process that ended does not count."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise PortTaken(f"cannot listen on {format_address(address)}: {error.strerror}") from None
    return True


def require_listeners(listeners: Iterable[ListenerSettings]) -> tuple[ListenerSettings, ...]:
    """The listeners, those that give way on any free port where theirs is taken. Raises PortTaken."""
    return tuple(_free(listener) for listener in listeners)


def _free(listener: ListenerSettings) -> ListenerSettings:
    if is_tcp_free(listener.address):
        return listener
    if listener.gives_way:
        return replace(listener, address=(listener.address[0], 0))
    raise _taken(listener.address)


def assign(topology: Topology, *, any_port: bool = False) -> Topology:
    """The topology with a port for each node that left it open; `any_port`: for every node, and any free
    one for every listener of a gateway.

    All ports are held together before the first is given up, so no two nodes get the same. Raises PortTaken.
    """
    if any_port:
        topology = replace(topology, gateways=tuple(map(_on_any_port, topology.gateways)))
    for gateway in topology.gateways:
        require_listeners(gateway.listeners)
    ports: dict[str, int] = {}
    with ExitStack() as held:
        for node in topology.nodes:
            host, port = node.listen
            bound = held.enter_context(_bind((host, 0 if any_port else port)))
            if any_port or port == 0:
                ports[node.name] = bound.getsockname()[1]
    return topology.on_ports(ports)


def _on_any_port(gateway: GatewaySettings) -> GatewaySettings:
    listeners = (replace(listener, address=(listener.address[0], 0)) for listener in gateway.listeners)
    return replace(gateway, listeners=tuple(listeners))


def _bind(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise _taken(address) from None
        raise PortTaken(f"cannot listen on {format_address(address)}: {error.strerror}") from None
    return bound


def _taken(address: Address) -> PortTaken:
    at = format_address(address)
    return PortTaken(f"{at} is in use by another process: end that, or choose another port")
