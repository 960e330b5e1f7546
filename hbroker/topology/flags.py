"""A node described by command-line flags: the keys and the rules of a file's node, without a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from hbroker.config import Address, NodeSettings
from hbroker.hostnames import Resolver, resolve_host
from hbroker.topology.document import Report
from hbroker.topology.sections import LIMIT_KEYS, read_address, read_auth, read_limits, read_node

COMMAND_LINE = "command line"

FILE_KEYS = (
    "subtree",
    "listen",
    "advertise",
    "workers",
    "policy",
    "join_key_file",
    "sessions",
    "queue_bytes",
    "session_expiry",
    "subscriptions",
    "delegations",
)
"""What a topology file says of a node that is named: these flags are for a node without a file."""

_NUMBERS = frozenset({"workers", *LIMIT_KEYS})
"""Keys whose values are numbers. (A file tells by the quotes.)"""


def node_from_flags(
    *,
    node: Mapping[str, str | None],
    auth: Mapping[str, str | None],
    limits: Mapping[str, str | None],
    root: str | None,
    resolve: Resolver = resolve_host,
) -> NodeSettings:
    """The settings of one node. The mappings hold the keys of a file, None for a flag that was not given.

    `root`: where to join; None with the empty subtree alone. Raises ConfigErrors with all that is wrong.
    """
    report = Report(COMMAND_LINE)
    entry = read_node(_mapping(node), 1, report, resolve)
    join_key = read_auth(_mapping(auth), report, Path()) if any(auth.values()) else b""
    bounds = read_limits(_mapping(limits), report)
    address = _root(root, entry.subtree, report, resolve)
    report.raise_if_any()
    assert entry.name is not None, "a node without a name was reported"
    assert entry.subtree is not None, "a node without a subtree was reported"
    assert entry.listen is not None, "a node without an address was reported"
    return NodeSettings(
        name=entry.name,
        subtree=entry.subtree,
        listen=entry.listen,
        root=address,
        advertise=entry.advertise,
        workers=entry.workers,
        policy=entry.policy,
        join_key=join_key,
        limits=bounds,
    )


def root_from_flag(text: str, resolve: Resolver = resolve_host) -> Address:
    """The address of a network's root. Raises ConfigErrors."""
    report = Report(COMMAND_LINE)
    address = read_address(_scalar(text), "root", report, resolve, None)
    report.raise_if_any()
    assert address is not None, "an address that cannot be read was reported"
    return address


def join_key_from_file(path: Path) -> bytes:
    """The join key that a file holds. Raises ConfigErrors."""
    report = Report(COMMAND_LINE)
    key = read_auth(_mapping({"join_key_file": str(path)}), report, Path())
    report.raise_if_any()
    return key


def _root(text: str | None, subtree: str | None, report: Report, resolve: Resolver) -> Address | None:
    if text is not None and subtree == "":
        report.error(None, "the root of a network joins nobody", "leave out --root, or give a --subtree")
    if text is None and subtree:
        report.error(None, f"no root to join for the subtree {subtree!r}", "add --root <address>:<port>")
    return read_address(_scalar(text), "root", report, resolve, None) if text is not None else None


def _mapping(values: Mapping[str, str | None]) -> yaml.MappingNode:
    given = {key: value for key, value in values.items() if value is not None}
    pairs = [
        (_scalar(key), _scalar(value, "int" if key in _NUMBERS else "str")) for key, value in given.items()
    ]
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs)


def _scalar(text: str, kind: str = "str") -> yaml.ScalarNode:
    return yaml.ScalarNode(f"tag:yaml.org,2002:{kind}", text)
