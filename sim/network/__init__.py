"""A whole network of nodes and clients in one process, in virtual time, over faulty paths, from one seed.

The nodes and clients are the real ones, without sockets and clocks: `hbroker.protocol` over
`hbroker._native.Engine`. All randomness comes from the seed, so that a run can be repeated exactly.

    trial, stage, fleet                one run; its actions; its processes by name
    plan, actions, drawing/            the plan of a run, its actions, and how a seed determines it
    deliveries, invariants             what must hold of messages, and of the network
    absences, expiries, losses, ...    one rule of `deliveries` each: also accounts, lapses, owed, paces,
    retention, sharing, wills          successions
    applications                       what each client process asked for and received
    operators, attacker, impostors     hosts that give orders, replay packets, publish under other ids
    hosts, files, disk                 one engine with its control; a node's files, on a disk with faults
    world, paths                       virtual time, and datagrams on their way; the faults of a path
    line, relay                        publishers that share a line; the faults for packets of real hosts

Imports go downwards: `trial` to `stage`, to `deliveries`, to the rules, to `applications`, to `hosts` and
`world`. A § without a document is one of docs/protocol.md, in the whole package.
"""

from .hosts import ClientHost, Host, NodeHost
from .paths import CLEAR, Bottleneck, Faults
from .world import Datagram, World

__all__ = ["CLEAR", "Bottleneck", "ClientHost", "Datagram", "Faults", "Host", "NodeHost", "World"]
