"""The settings of one process: frozen, already checked. `hbroker.topology` and the command line make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import IPv6Address

Address = tuple[str, int]
"""An IP address as text, and a UDP port."""

DEFAULT_PORT = 7700
DEFAULT_ROOT: Address = ("127.0.0.1", DEFAULT_PORT)
ANY_ADDRESS = frozenset({"0.0.0.0", "::"})
"""Listening there means: on every address of the host. It can be told to nobody."""

MAX_WORKERS = 64


class LeasePolicy(Enum):
    """What a node does with its subtree when its lease runs out (docs/protocol.md §5.6)."""

    FENCE = "fence"
    """It stops, and the parent takes the subtree back."""
    SERVE = "serve"
    """It goes on, and the parent never takes back by itself."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one node takes at most."""

    sessions: int = 1_000_000
    sessions_per_address: int = 100_000
    """Of clients and children at one IPv4 address, or in one IPv6 network of 64 bits."""
    queue_bytes: int = 16 * 1024 * 1024
    """Bytes that wait for one session."""
    subscriptions: int = 100_000
    """Filters of one session; a filter counts once more for every 64 bytes of its length."""
    session_expiry: int = 7 * 86_400
    """Seconds for which a persistent session may be without its client, whatever it asks for."""
    delegations: int = 10_000
    """Subtrees that it hands on. A child of the root has two of the root's: its own, and its status's."""


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """What one process writes of its load (docs/telemetry.md). `directory`: empty: where `hbroker up` keeps
    the network's state; a process that runs without it writes nothing then."""

    enabled: bool = True
    interval: int = 1
    """Seconds that one row is about."""
    file: int = 10
    """Seconds that one file is about."""
    keep_bytes: int = 1 << 30
    """Of all files of one process."""
    keep_hours: int = 168
    directory: str = ""

    @property
    def is_on(self) -> bool:
        """Whether something is to be written, and it is known where."""
        return self.enabled and bool(self.directory)

    def inside(self, directory: str) -> TelemetrySettings:
        """The same, in this directory unless another one is set."""
        return self if self.directory else replace(self, directory=directory)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of one listener: files in PEM. `client_ca`: signs client certificates; empty: none is asked for.
    `needs_certificate`: a client without one is turned away. `names_user`: its common name is its user
    name, and no password is asked."""

    certificate: str
    key: str
    client_ca: str = ""
    needs_certificate: bool = False
    names_user: bool = False


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where a gateway takes MQTT connections.

    `websocket`: the path at which WebSocket is spoken; empty: plain MQTT. `proxy_protocol`: each connection
    begins with a header of the PROXY protocol. `gives_way`: where its port is taken it has another free one.
    `connections`: at most; `connections_per_address`: of one IPv4 address, or IPv6 network of 64 bits (not
    with `proxy_protocol`). `connect_rate`: new ones a second; 0: any. `packet_bytes`: the largest packet.
    `is_distributed`: PUBACK waits until a message is distributed, and not only queued at its owner.
    """

    address: Address
    tls: TlsSettings | None = None
    websocket: str = ""
    proxy_protocol: bool = False
    gives_way: bool = False
    connections: int = 100_000
    connections_per_address: int = 50_000
    connect_rate: int = 0
    packet_bytes: int = 268_435_460
    is_distributed: bool = False

    @property
    def url(self) -> str:
        """As people write it: `mqtt://127.0.0.1:1883`, `wss://[::1]:8084/mqtt`."""
        scheme = ("ws" if self.websocket else "mqtt") + ("s" if self.tls else "")
        return f"{scheme}://{format_address(self.address)}{self.websocket}"


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """What one gateway grants its clients at most."""

    connections: int = 1_000_000
    in_flight: int = 1_000
    """Messages of QoS 1 and 2 that one client has not answered."""
    queue_messages: int = 10_000
    """Messages that wait for one client, here, and at each owner while it is away."""
    queue_bytes: int = 16 * 1024 * 1024
    unfinished_bytes: int = 512 * 1024 * 1024
    """Bytes of packets that are not whole yet, of all clients together; one address has half at most."""
    rate: int = 0
    """Messages a second that are read from one client; 0: as many as come."""
    subscriptions: int = 10_000
    """Filters of one client."""
    session_expiry: int = 7 * 86_400
    """Seconds for which a session may be without its client, whatever that asks for."""
    keep_alive: int = 0
    """The longest keep-alive, in seconds; 0: any, and none."""


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Who may use a gateway: files, as paths; empty: none. `anonymous`: clients without a user name may;
    None: they may where there is no file of passwords."""

    passwords: str = ""
    acl: str = ""
    anonymous: bool | None = None


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """One gateway process.

    `root`: of the network. `listen`: its UDP socket towards the network; None: any free port. `join_key`:
    of the network; it seals what gateways tell each other. `server_reference`: told to clients when it ends
    (MQTT 5 §4.11).
    """

    name: str
    root: Address
    listeners: tuple[ListenerSettings, ...]
    listen: Address | None = None
    workers: int = 0
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    access: AccessSettings = field(default_factory=AccessSettings)
    join_key: bytes = field(default=b"", repr=False)
    server_reference: str = ""
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)

    @property
    def urls(self) -> tuple[str, ...]:
        """Where its clients find it."""
        return tuple(listener.url for listener in self.listeners)

    def on_ports(self, ports: Sequence[int]) -> GatewaySettings:
        """The same gateway, each listener on this port. One that was given another than it asked for, or
        asked for any, gives way again where that is taken."""
        listeners = (
            replace(
                listener,
                address=(listener.address[0], port),
                gives_way=listener.gives_way or port != listener.address[1],
            )
            for listener, port in zip(self.listeners, ports, strict=True)
        )
        return replace(self, listeners=tuple(listeners))


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One node process.

    `subtree`: the empty string is the root's. `also`: further subtrees that it claims; the root has none.
    `root`: where to join; None in the root itself. `advertise`: the address that others are told, with port 0
    for the port it listens on; None: the one it listens on. `join_key`: the secret that a JOIN must prove
    (docs/protocol.md §5.5); empty: none is asked.
    """

    name: str
    subtree: str
    listen: Address
    root: Address | None = None
    advertise: Address | None = None
    workers: int = 1
    policy: LeasePolicy = LeasePolicy.FENCE
    join_key: bytes = field(default=b"", repr=False)
    limits: Limits = field(default_factory=Limits)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    also: tuple[str, ...] = ()

    @property
    def subtrees(self) -> tuple[str, ...]:
        """All that it claims, the main one first."""
        return self.subtree, *self.also

    @property
    def is_root(self) -> bool:
        """Whether this node owns the whole hierarchy, less its cuts."""
        return self.root is None

    @property
    def address(self) -> Address:
        """Where others reach this node: as advertised, else where it listens."""
        host, port = self.advertise or self.listen
        return host, port or self.listen[1]

    def on_port(self, port: int) -> NodeSettings:
        """The same node, listening on another port, and told to others with that one."""
        advertise = self.advertise and (self.advertise[0], 0)
        return replace(self, listen=(self.listen[0], port), advertise=advertise)


def parse_address(text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """Host and port of `host:port`, `[v6]:port` or, with a default port, of a host or an IPv6 address alone.

    The host may still be a name. Raises ValueError, which says what is wrong.
    """
    host, port = _split(text, default_port)
    if not host or any(c.isspace() or c in "/@[]" for c in host):
        raise ValueError(f"{text!r} names no host")
    if not (port.isascii() and port.isdigit()):
        raise ValueError(f"{port!r} is not a port number")
    if int(port[:6]) > 65_535:
        raise ValueError(f"port {port} is over 65535")
    return host, int(port)


def format_address(address: Address) -> str:
    """`ip:port`, and `[ip]:port` for IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split(text: str, default_port: int | None) -> tuple[str, str]:
    port = "" if default_port is None else str(default_port)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not an address")
        return host, rest[1:] if rest else port
    if text.count(":") > 1:
        if default_port is not None and _is_ipv6(text):
            return text, port
        raise ValueError(f"{text!r}: an IPv6 address goes into square brackets, as in '[::1]:7700'")
    host, colon, given = text.partition(":")
    if not colon and default_port is None:
        raise ValueError(f"{text!r} has no port")
    return host, given if colon else port


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
