"""The settings of one process: frozen, already checked. `hbroker.topology` and the command line make them."""

from __future__ import annotations

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
    queue_bytes: int = 16 * 1024 * 1024
    """Bytes that wait for one session."""
    subscriptions: int = 100_000
    """Filters of one session; a filter counts once more for every 64 bytes of its length."""
    session_expiry: int = 7 * 86_400
    """Seconds for which a persistent session may be without its client, whatever it asks for."""
    delegations: int = 10_000
    """Subtrees that it hands on. A child of the root has two of the root's: its own, and its status's."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One node process.

    `subtree`: the empty string is the root's. `root`: where to join; None in the root itself. `advertise`:
    the address that others are told, with port 0 for the port it listens on; None: the one it listens on.
    `join_key`: the secret that a JOIN must prove (docs/protocol.md §5.5); empty: none is asked.
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
