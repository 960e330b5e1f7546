"""Checks of a node's port, and of the way to its root."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from hbroker.addresses import Address, format_address
from hbroker.config import ListenerSettings, NodeSettings
from hbroker.errors import HBrokerError, Unreachable
from hbroker.runtime.hosts.checks.finding import Finding, error, ok, warning
from hbroker.runtime.launcher.ports import PortTaken, is_tcp_free, require_free

__all__ = ["check_listener", "check_path", "check_port", "check_root"]

LEAST_MTU: Final = 1_280
"""Bytes (RFC 8200 §5). Nodes send datagrams of 1,200 bytes before they have found the MTU (RFC 9000 §14)."""
_IP_MTU: Final = 14
_IPV6_MTU: Final = 24


def check_port(node: NodeSettings) -> Finding:
    """Whether the node can bind to its address."""
    at = format_address(node.listen)
    if not node.listen[1]:
        return warning("port", f"{node.name} binds to any free port of {node.listen[0]}", "give it a port")
    try:
        require_free(node.listen)
    except PortTaken as taken:
        if "in use" in str(taken):
            what = f"{at} is in use: good if {node.name} runs"
            return warning("port", what, f"ss -ulpn 'sport = :{node.listen[1]}'")
        return error("port", str(taken), "ip address: name one of these with `listen`")
    return ok("port", f"{at} is free for {node.name}")


def check_listener(gateway: str, listener: ListenerSettings) -> Finding:
    """Whether the gateway can listen there."""
    at = format_address(listener.address)
    try:
        is_free = is_tcp_free(listener.address)
    except PortTaken as taken:
        return error("port", str(taken), "ip address: name one of these with `address`")
    if is_free:
        return ok("port", f"{at} is free for {gateway}")
    what = f"{at} is in use: good if {gateway} runs"
    return warning("port", what, f"ss -ltnp 'sport = :{listener.address[1]}'")


def check_path(root: Address) -> Finding:
    """The MTU of the way to the root, as far as this host knows it."""
    is_ipv6 = ":" in root[0]
    level, option = (socket.IPPROTO_IPV6, _IPV6_MTU) if is_ipv6 else (socket.IPPROTO_IP, _IP_MTU)
    try:
        with socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(root)  # Sends nothing.
            mtu = probe.getsockopt(level, option)
            own = probe.getsockname()[0]
    except OSError as wrong:
        return error("path", f"no way to {root[0]}: {wrong.strerror}", f"ip route get {root[0]}")
    if mtu < LEAST_MTU:
        what = f"the MTU towards {root[0]} is {mtu}, below {LEAST_MTU}"
        return error("path", what, f"ip route get {root[0]}, then ip link set DEVICE mtu {LEAST_MTU}")
    return ok("path", f"from {own} to {root[0]}, MTU {mtu:,}")


def check_root(root: Address, ask: Callable[[str], object]) -> Finding:
    """Whether the root answers. `ask(address)` sends it a request, and raises the errors of a client."""
    at = format_address(root)
    try:
        ask(at)
    except Unreachable:
        what = f"{at} does not answer: it does not run, a firewall is between, or it has another authority"
        return warning("root", what, f"hbroker doctor, at the root; ss -ulpn 'sport = :{root[1]}'")
    except HBrokerError:
        pass  # It has answered: without a token nothing is allowed.
    return ok("root", f"{at} answers")
