"""The settings of one process: frozen, and already checked. `hbroker.topology` and the commands make them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from hbroker.addresses import Address, format_address

MAX_WORKERS = 64
DEFAULT_ADMIN_ADDRESS: Address = ("127.0.0.1", 7780)
"""Where the HTTP API listens."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""The name of a node, gateway or bridge. It is one topic level ($SYS/nodes/<name>), the name of files, and
the common name of a certificate."""


class LeasePolicy(Enum):
    """What a node does with its subtree when its lease ends (docs/protocol.md §5.6)."""

    FENCE = "fence"
    """The node stops serving the subtree, and the parent takes it back."""
    SERVE = "serve"
    """The node goes on serving, and the parent never takes the subtree back by itself."""


class Durability(Enum):
    """What a node keeps of retained messages, of wills, and of messages that wait for sessions
    (docs/guarantees.md, Durability)."""

    FSYNC = "fsync"
    """They survive a loss of power."""
    OS = "os"
    """They survive the end of the process."""
    NONE = "none"
    """They are in memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one node (docs/protocol.md §9)."""

    sessions: int = 1_000_000
    sessions_per_address: int = 100_000
    """Sessions of clients and children at one IPv4 address, or in one IPv6 network of 64 bits."""
    queue_messages: int = 10_000
    """Messages that are queued for one session."""
    queue_bytes: int = 16 * 1024 * 1024
    """The bytes of these, with the cost of keeping them."""
    store_bytes: int = 1 << 40
    """The bytes of the log of the node's store. With more, it takes over no message that has to be stored."""
    subscriptions: int = 100_000
    """Filters of one session. Each 64 bytes of a filter's length count as one filter more."""
    session_expiry: int = 7 * 86_400
    """The longest time, in seconds, that a persistent session stays without a link (docs/protocol.md
    §6.4)."""
    delegations: int = 10_000
    """Subtrees that the node delegates. A child of the root has two of the root's: its own, and its
    status's."""


@dataclass(frozen=True, slots=True)
class WorkspaceQuotas:
    """What one workspace may use at each node, and at each gateway (docs/workspaces.md). 0: no bound.

    `sessions`: at a node, sessions with a subscription in it; at a gateway, clients that are connected.
    `subscriptions`: filters of its topics, over all sessions of a node. `messages_per_second`: that a node
    takes for its topics, with as many at once.
    """

    name: str
    sessions: int = 0
    subscriptions: int = 0
    messages_per_second: int = 0


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """How one process writes its load (docs/telemetry.md). `directory`: where; empty: in the folder where
    `hbroker up` keeps the network's state. A process that runs without `hbroker up` then writes nothing."""

    enabled: bool = True
    interval: int = 1
    """Seconds that one row covers."""
    file: int = 10
    """Seconds that one file covers."""
    keep_bytes: int = 1 << 30
    """The largest total size of all files of one process."""
    keep_hours: int = 168
    directory: str = ""

    @property
    def is_on(self) -> bool:
        """Whether the process writes telemetry: it is enabled, and the directory is known."""
        return self.enabled and bool(self.directory)

    def inside(self, directory: str) -> TelemetrySettings:
        """The same settings, with this directory unless another one is set."""
        return self if self.directory else replace(self, directory=directory)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of one listener. All files are PEM.

    `client_ca`: the certificates that sign client certificates; empty: the gateway asks for no client
    certificate. `needs_certificate`: the gateway refuses a client without a certificate. `names_user`:
    the certificate's common name is the user name, and no password is needed. `names_client`: it is the
    only client id that the client may have.
    """

    certificate: str
    key: str
    client_ca: str = ""
    needs_certificate: bool = False
    names_user: bool = False
    names_client: bool = False


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """One address at which a gateway accepts MQTT connections.

    `websocket`: the path of the WebSocket; empty: plain MQTT. `proxy_protocol`: each connection begins with a
    header of the PROXY protocol. `gives_way`: if the port is taken, the gateway uses any free port.
    `connections`: the most connections. `connections_per_address`: the most connections of one IPv4 address,
    or IPv6 network of 64 bits (not with `proxy_protocol`). `connect_rate`: the most new connections per
    second; 0: no limit. `packet_bytes`: the largest packet (MQTT 5 §3.1.2.11.4). `is_distributed`: the
    gateway sends PUBACK once every subscriber has the message, and not already when its owner has queued it
    (docs/protocol.md §7.3). `workspace`: of which its clients are; empty: of the default one, unless the
    policy says another.
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
    workspace: str = ""

    @property
    def url(self) -> str:
        """The listener's URL: `mqtt://127.0.0.1:1883`, `wss://[::1]:8084/mqtt`."""
        scheme = ("ws" if self.websocket else "mqtt") + ("s" if self.tls else "")
        return f"{scheme}://{format_address(self.address)}{self.websocket}"


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """The bounds of one gateway, and of each of its MQTT clients."""

    connections: int = 1_000_000
    in_flight: int = 1_000
    """Messages of QoS 1 and 2 that one client may have in flight (MQTT 5 §4.9)."""
    queue_messages: int = 10_000
    """Messages that are queued for one client: at the gateway, and at each owner while the client is
    offline."""
    queue_bytes: int = 16 * 1024 * 1024
    unfinished_bytes: int = 512 * 1024 * 1024
    """Bytes of incomplete packets, of all clients together. One address has at most half of them."""
    rate: int = 0
    """Messages per second that the gateway reads from one client; 0: no limit."""
    subscriptions: int = 10_000
    """Filters of one client."""
    session_expiry: int = 7 * 86_400
    """The longest time, in seconds, that a session stays without a connection (MQTT 5 §3.1.2.11.2)."""
    keep_alive: int = 0
    """The longest keep-alive, in seconds (MQTT 5 §3.1.2.10); 0: no limit, and a client may turn it off."""


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Which clients may use a gateway.

    `passwords`, `acl`: paths of files; empty: no file. `jwt_keys`: the path or the URL of the JSON Web Key
    Set that verifies tokens, which clients send as passwords; empty: there are no tokens. `jwt_issuer`,
    `jwt_audience`: the `iss` and `aud` that tokens must have; empty: any. `anonymous`: whether clients
    may connect without a user name; None: they may if there are neither passwords nor tokens.
    """

    passwords: str = ""
    acl: str = ""
    jwt_keys: str = ""
    jwt_issuer: str = ""
    jwt_audience: str = ""
    anonymous: bool | None = None

    @property
    def proves_clients(self) -> bool:
        """Whether clients must prove their names."""
        return bool(self.passwords or self.jwt_keys)


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """With what a process seals its datagrams (ADR 35), and tokens (ADR 36).

    `authority`: the path of the certificate of the network's authority, in PEM; empty: security is off, and
    nothing is sealed. The file has several certificates while an authority is replaced. `identity`: the
    folder with the certificate and the key of the node, `NAME.crt` and `NAME.key`; a gateway has none.
    `token`: the path of the file with the token of a client or gateway; empty: it has none. Without security
    the token is shown to nobody. `requires_tokens`: clients of this node have to show a token.
    """

    authority: str = ""
    identity: str = ""
    token: str = ""
    requires_tokens: bool = False

    @property
    def is_on(self) -> bool:
        """Whether datagrams are sealed."""
        return bool(self.authority)


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The settings of one gateway process.

    `root`: the address of the network's root. `listen`: the address of the gateway's UDP socket; None: any
    free port. `workers`: threads for MQTT connections; 0: one for each CPU. `join_key`: the network's join
    key, which authenticates what gateways send each other. `server_reference`: sent to clients when the
    gateway ends (MQTT 5 §4.11). `metrics`, `traces`: as in `NodeSettings`.
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
    security: SecuritySettings = field(default_factory=SecuritySettings)
    workspaces: tuple[WorkspaceQuotas, ...] = ()
    metrics: Address | None = None
    traces: str = ""

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the listeners."""
        return tuple(listener.url for listener in self.listeners)

    def on_ports(self, ports: Sequence[int]) -> GatewaySettings:
        """The same gateway, with one port for each listener. A listener gives way at its next start, too, if
        its port now differs from the one that was configured."""
        listeners = (
            replace(
                listener,
                address=(listener.address[0], port),
                gives_way=listener.gives_way or port != listener.address[1],
            )
            for listener, port in zip(self.listeners, ports, strict=True)
        )
        return replace(self, listeners=tuple(listeners))


class Direction(Enum):
    """Where a bridge carries the messages of a topic."""

    IN = "in"
    """From the other broker to this network."""
    OUT = "out"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class BridgeTopic:
    """What a bridge carries. `filter`: without the prefixes, one of which stands before it on each side;
    empty: the two prefixes are two topics, one on each side. `qos`: the highest, 0 or 1."""

    filter: str
    direction: Direction = Direction.OUT
    qos: int = 1
    local_prefix: str = ""
    remote_prefix: str = ""

    @property
    def local(self) -> str:
        """The filter in this network."""
        return self.local_prefix + self.filter

    @property
    def remote(self) -> str:
        """The filter at the other broker."""
        return self.remote_prefix + self.filter


@dataclass(frozen=True, slots=True)
class BridgeTls:
    """TLS between a bridge and the other broker. All files are PEM. `ca`: the certificates that sign the
    broker's; empty: those of the system. `certificate`, `key`: of the bridge; empty: it has none.
    `checks_host`: whether the broker's certificate must have its host name."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    checks_host: bool = True


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """The settings of one bridge to another MQTT broker (docs/bridges.md).

    `root`: as in `GatewaySettings`. `addresses`: of the other broker, in the order in which they are tried;
    hosts are resolved at each try. `client_id`: at the other broker; empty: the bridge's name and this
    host's. `password_file`: a path; empty: `password` counts. `tls`: None: plain TCP. `keep_alive`: in
    seconds. `clean_start`: neither side keeps messages while the bridge is not connected. `version`: of MQTT,
    `5` or `3.1.1`; empty: the first of these that the broker accepts. `notifies`: where the bridge publishes
    whether it is connected, `both`, `local` or `none`. `pause`, `longest_pause`: seconds before the bridge
    connects again. `in_flight`: the most messages in each direction that are not acknowledged yet.
    """

    name: str
    root: Address
    addresses: tuple[Address, ...]
    topics: tuple[BridgeTopic, ...]
    client_id: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    tls: BridgeTls | None = None
    keep_alive: int = 60
    clean_start: bool = False
    version: str = ""
    notifies: str = "both"
    pause: int = 5
    longest_pause: int = 30
    in_flight: int = 100
    join_key: bytes = field(default=b"", repr=False)
    security: SecuritySettings = field(default_factory=SecuritySettings)


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """The settings of the process with the HTTP API of a network (docs/http-api.md).

    `root`: as in `GatewaySettings`. `listen`: the TCP address. `hosts`: the names under which the API is
    called, beside those of this host. `certificate`, `key`: paths of files in PEM, for HTTPS; empty: HTTP.
    `is_required`: False: a network starts without it if its libraries are not installed, and with another
    port if the port of `listen` is taken. `security`: as of a gateway.
    """

    name: str = "admin"
    root: Address = ("", 0)
    listen: Address = DEFAULT_ADMIN_ADDRESS
    hosts: tuple[str, ...] = ()
    certificate: str = ""
    key: str = ""
    is_required: bool = False
    join_key: bytes = field(default=b"", repr=False)
    security: SecuritySettings = field(default_factory=SecuritySettings)

    def on_address(self, address: Address) -> AdminSettings:
        """The same settings, with this address to listen on."""
        return replace(self, listen=address)

    def url(self, address: Address) -> str:
        """The URL of the API that listens on this address."""
        return f"{'https' if self.certificate else 'http'}://{format_address(address)}"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings of one node process.

    `subtree`: the empty string makes the node the root. `also`: further subtrees that the node claims; the
    root has none. `root`: where the node joins; None at the root itself. `advertise`: the address that the
    node sends to others; port 0: the port to which it binds; None: the address to which it binds. `join_key`:
    the secret that a JOIN must prove (docs/protocol.md §5.5); empty: nothing is proved. `durability`: whether
    messages that wait for sessions, and retained ones, are stored on disk; None: they are, synced, if the
    node has a place for its state files. `metrics`: where it serves its metrics (TCP); None: nowhere.
    `traces`: the URL of a collector to which it sends spans of messages (docs/traces.md); empty: to none.
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
    durability: Durability | None = None
    security: SecuritySettings = field(default_factory=SecuritySettings)
    workspaces: tuple[WorkspaceQuotas, ...] = ()
    metrics: Address | None = None
    traces: str = ""

    @property
    def subtrees(self) -> tuple[str, ...]:
        """All subtrees that the node claims, the main one first."""
        return self.subtree, *self.also

    @property
    def has_store(self) -> bool:
        """Whether the node has a store. Its durability is not None."""
        return self.durability not in (None, Durability.NONE)

    @property
    def is_root(self) -> bool:
        """Whether this node is the root."""
        return self.root is None

    @property
    def address(self) -> Address:
        """The address at which others reach this node: the advertised one, else the one to which it binds."""
        host, port = self.advertise or self.listen
        return host, port or self.listen[1]

    def on_port(self, port: int) -> NodeSettings:
        """The same node, with this port both to bind to and to advertise."""
        advertise = self.advertise and (self.advertise[0], 0)
        return replace(self, listen=(self.listen[0], port), advertise=advertise)
