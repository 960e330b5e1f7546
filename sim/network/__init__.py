"""A whole network of nodes and clients in one process, in virtual time, over faulty paths, from one seed.

The nodes and clients are the real ones, without sockets and clocks: `hbroker.protocol` over
`hbroker._native.Engine`. All randomness comes from the seed, so that a run can be repeated exactly.

    trial, stage, processes            one run; its actions; its processes by name
    plan, actions, drawing/            the plan of a run, its actions, and how a seed determines it
    checks/                            what must hold of messages
    invariants                         the names of all that must hold, and what must hold of the network
    operators, attacker, impostors     hosts that give orders, replay packets, publish under other ids
    hosts, storage/                    one engine with its control; a node's files, on a disk with faults
    world, paths                       virtual time, and datagrams on their way; the faults of a path
    security                           certificates and the log of keys, if datagrams are sealed
    line, relay                        publishers that share a line; the faults for packets of real hosts

Imports go downwards: `trial` to `stage`, to `checks`, to `hosts` and `world`. A § without a document is one
of docs/protocol.md, in the whole package.
"""

from .hosts import ClientHost, Host, NodeHost
from .paths import CLEAR, Bottleneck, Faults
from .world import Datagram, World

__all__ = ["CLEAR", "Bottleneck", "ClientHost", "Datagram", "Faults", "Host", "NodeHost", "World"]
