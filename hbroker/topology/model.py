"""What a topology file means: the settings of each process, and the place of each node in the hierarchy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hbroker.config import (
    AdminSettings,
    BridgeSettings,
    GatewaySettings,
    NodeSettings,
    SecuritySettings,
    TelemetrySettings,
)
from hbroker.subtree import depth, is_within
from hbroker.topology.plan import Plan


@dataclass(frozen=True, slots=True)
class Topology:
    """A valid topology.

    `name`: the network's name, which is the file's name without its suffix. `nodes`: parents before their
    children. `plan`: what the load analysis expects of the network. `is_secure`: all datagrams are sealed,
    with what `with_security` sets, unless the file says `security: off`. `requires_tokens`: native clients
    and gateways have to show tokens. `admin`: the process with the HTTP API; None: there is none.
    """

    name: str
    nodes: tuple[NodeSettings, ...]
    gateways: tuple[GatewaySettings, ...] = ()
    plan: Plan | None = None
    is_secure: bool = True
    requires_tokens: bool = False
    bridges: tuple[BridgeSettings, ...] = ()
    admin: AdminSettings | None = None

    @property
    def root(self) -> NodeSettings:
        """The root: it owns the whole hierarchy, less its cuts."""
        return self.nodes[0]

    def node(self, name: str) -> NodeSettings | None:
        """The node of that name, or None."""
        return next((node for node in self.nodes if node.name == name), None)

    def gateway(self, name: str) -> GatewaySettings | None:
        """The gateway of that name, or None."""
        return next((gateway for gateway in self.gateways if gateway.name == name), None)

    def bridge(self, name: str) -> BridgeSettings | None:
        """The bridge of that name, or None."""
        return next((bridge for bridge in self.bridges if bridge.name == name), None)

    def parent(self, node: NodeSettings) -> NodeSettings | None:
        """The node whose main subtree is the longest that contains this node's main subtree; None for the
        root. Further subtrees (`also`) do not count, because by them each of two nodes may be above the
        other."""
        ancestors = [other for other in self.nodes if contains(other.subtree, node.subtree)]
        return max(ancestors, key=lambda other: len(other.subtree), default=None)

    @property
    def telemetry(self) -> TelemetrySettings:
        """The telemetry settings, which are the same for all processes."""
        return self.root.telemetry

    def with_telemetry(self, settings: TelemetrySettings) -> Topology:
        """The same network, with these telemetry settings for all processes."""
        return replace(
            self,
            nodes=tuple(replace(node, telemetry=settings) for node in self.nodes),
            gateways=tuple(replace(gateway, telemetry=settings) for gateway in self.gateways),
        )

    def with_traces(self, endpoint: str) -> Topology:
        """The same network, whose nodes and gateways send spans to this collector; empty: to none."""
        return replace(
            self,
            nodes=tuple(replace(node, traces=endpoint) for node in self.nodes),
            gateways=tuple(replace(gateway, traces=endpoint) for gateway in self.gateways),
        )

    def with_join_key(self, key: bytes) -> Topology:
        """The same network, with this join key for all its processes."""
        return replace(
            self,
            nodes=tuple(replace(node, join_key=key) for node in self.nodes),
            gateways=tuple(replace(gateway, join_key=key) for gateway in self.gateways),
            bridges=tuple(replace(bridge, join_key=key) for bridge in self.bridges),
            admin=self.admin and replace(self.admin, join_key=key),
        )

    def with_security(self, security: SecuritySettings) -> Topology:
        """The same network, with this authority for all its processes, these identities for nodes, and this
        token for all others. Nodes require tokens if the network does."""
        of_nodes = replace(security, token="", requires_tokens=self.requires_tokens)
        of_gateways = replace(security, identity="", requires_tokens=False)
        return replace(
            self,
            nodes=tuple(replace(node, security=of_nodes) for node in self.nodes),
            gateways=tuple(replace(gateway, security=of_gateways) for gateway in self.gateways),
            bridges=tuple(replace(bridge, security=of_gateways) for bridge in self.bridges),
            admin=self.admin and replace(self.admin, security=of_gateways),
        )

    def on_ports(self, ports: Mapping[str, int]) -> Topology:
        """The same network, with other ports for these nodes (by name). All processes get the root's new
        address."""
        nodes = [node.on_port(ports[node.name]) if node.name in ports else node for node in self.nodes]
        ordered = with_root(nodes)
        root = ordered[0].address
        gateways = tuple(replace(gateway, root=root) for gateway in self.gateways)
        bridges = tuple(replace(bridge, root=root) for bridge in self.bridges)
        admin = self.admin and replace(self.admin, root=root)
        return replace(self, nodes=ordered, gateways=gateways, bridges=bridges, admin=admin)


def with_root(nodes: list[NodeSettings]) -> tuple[NodeSettings, ...]:
    """The nodes with parents first. Every node but the root gets the root's address."""
    ordered = sorted(nodes, key=lambda node: (depth(node.subtree), node.subtree))
    root, *others = ordered
    return (root, *(replace(node, root=root.address) for node in others))


def contains(subtree: str, other: str) -> bool:
    """Whether `other` lies below `subtree`, by whole levels, and is not equal to it."""
    return subtree != other and is_within(other, subtree)
