"""A whole network of nodes and clients in one process, in virtual time, over faulty paths, from one seed.

The nodes and clients are the real ones: `hbroker.protocol` over `hbroker._native.Engine`, as in production,
less sockets and clocks. `world` carries datagrams from engine to engine at the time that `paths` says, if it
says so at all; `hosts` drives one engine and its control. Everything random comes from the world's seed, so a
run can be repeated to the last bit.
"""

from .hosts import ClientHost, Host, NodeHost
from .paths import CLEAR, Bottleneck, Faults
from .world import Datagram, World

__all__ = ["CLEAR", "Bottleneck", "ClientHost", "Datagram", "Faults", "Host", "NodeHost", "World"]
