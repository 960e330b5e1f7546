"""Checks and assigns the ports of the nodes and gateways of this host.

A node binds with SO_REUSEPORT, because each of its workers has a socket. So the kernel would let two networks
bind the same port, and would divide the datagrams between them. Therefore a socket without this option checks
beforehand whether the port is free. The TCP ports of gateways are checked in the same way. The TCP port of
the HTTP API stays bound while the network runs, so it is known before the API has loaded.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from hbroker.addresses import Address, format_address
from hbroker.config import AdminSettings, GatewaySettings, ListenerSettings
from hbroker.errors import LocalError
from hbroker.topology import Topology

_BACKLOG: Final = 1024


class PortTaken(LocalError):
    """Another process has bound the address, or this host does not have it."""


def require_free(address: Address) -> None:
    """Raises PortTaken if the address cannot be bound."""
    _bind(address).close()


def is_tcp_free(address: Address) -> bool:
    """Whether no process listens at the address. Connections that a process left in TIME-WAIT do not count.
    Raises PortTaken if the address cannot be bound for another reason."""
    with socket.socket(_family(address), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise PortTaken(f"cannot listen on {format_address(address)}: {error.strerror}") from None
    return True


def require_listeners(listeners: Iterable[ListenerSettings]) -> tuple[ListenerSettings, ...]:
    """The listeners. One that gives way gets port 0 (any free port) if its port is taken. Raises
    PortTaken."""
    return tuple(_free(listener) for listener in listeners)


def _free(listener: ListenerSettings) -> ListenerSettings:
    if is_tcp_free(listener.address):
        return listener
    if listener.gives_way:
        return replace(listener, address=(listener.address[0], 0))
    raise _port_in_use(listener.address)


def listen_for_admin(settings: AdminSettings, *, any_port: bool = False) -> socket.socket:
    """A socket that listens for the HTTP API. `any_port`: on any free port. Raises PortTaken."""
    host, port = settings.listen
    ports = (0,) if any_port else (port,) if settings.is_required else (port, 0)
    for port in ports:
        listener = socket.socket(_family(settings.listen), socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(_BACKLOG)
            return listener
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise PortTaken(
                    f"cannot listen on {format_address((host, port))}: {error.strerror}"
                ) from None
    raise _port_in_use(settings.listen)


def assign(topology: Topology, *, any_port: bool = False) -> Topology:
    """The topology with a port for each node that has port 0. `any_port`: all nodes, all listeners of
    gateways, and all that serve metrics, get any free port.

    All ports are bound at the same time before the first is released, so no two nodes get the same. Raises
    PortTaken.
    """
    if any_port:
        nodes = tuple(replace(node, metrics=_any_port_of(node.metrics)) for node in topology.nodes)
        topology = replace(topology, nodes=nodes, gateways=tuple(map(_on_any_port, topology.gateways)))
    for gateway in topology.gateways:
        require_listeners(gateway.listeners)
    serving = [each.metrics for each in topology.nodes] + [each.metrics for each in topology.gateways]
    for address in serving:
        if address is not None and not is_tcp_free(address):
            raise _port_in_use(address)
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
    return replace(gateway, listeners=tuple(listeners), metrics=_any_port_of(gateway.metrics))


def _any_port_of(address: Address | None) -> Address | None:
    return None if address is None else (address[0], 0)


def _bind(address: Address) -> socket.socket:
    bound = socket.socket(_family(address), socket.SOCK_DGRAM)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise _port_in_use(address) from None
        raise PortTaken(f"cannot listen on {format_address(address)}: {error.strerror}") from None
    return bound


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


def _port_in_use(address: Address) -> PortTaken:
    at = format_address(address)
    return PortTaken(f"{at} is in use by another process: end that, or choose another port")
