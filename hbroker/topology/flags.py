"""Makes the settings of a node or gateway from command-line flags, with the keys and the rules of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from hbroker.addresses import Address
from hbroker.config import GatewaySettings, NodeSettings
from hbroker.hostnames import resolve_host
from hbroker.topology.document import COMMAND_LINE, Report
from hbroker.topology.gateways import (
    GATEWAY_LIMIT_RANGES,
    LISTENER_RANGES,
    read_access,
    read_gateway,
    read_gateway_limits,
    settings_of,
)
from hbroker.topology.rules import check_node, check_open
from hbroker.topology.sections import (
    LIMIT_KEYS,
    QUOTA_RANGES,
    read_address,
    read_auth,
    read_auth_keys,
    read_join_key,
    read_limits,
    read_node,
    read_traces,
    read_workspaces,
)

_NUMBERS = frozenset({"workers", *LIMIT_KEYS, *GATEWAY_LIMIT_RANGES, *LISTENER_RANGES, *QUOTA_RANGES})
"""Keys whose values are numbers. In a file, a value without quotes shows that it is a number."""

_TRUTHS = frozenset({"gives_way", "proxy_protocol", "names_user", "names_client", "anonymous"})


def node_from_flags(
    *,
    node: Mapping[str, str | None],
    also: Sequence[str] = (),
    auth: Mapping[str, str | None],
    limits: Mapping[str, str | None],
    root: str | None,
    workspaces: Sequence[str] = (),
) -> NodeSettings:
    """The settings of one node. The mappings have the keys of a file; a flag that was not given is None.

    `also`: further subtrees of the node. `workspaces`: each is `<name>,key=value,…` with the keys of a file's
    workspace. `root`: where to join; None only with the empty subtree, which makes
    the node the root. Raises ConfigErrors with all errors.
    """
    report = Report(COMMAND_LINE)
    parsed = read_node(flag_mapping(node, also=also), 1, report, resolve_host)
    check_node(parsed, report)
    join_key = read_auth(_mapping(auth), report, Path()) if any(auth.values()) else b""
    bounds = read_limits(_mapping(limits), report)
    quotas = read_workspaces(_quotas(workspaces), report) if workspaces else ()
    check_root(root, parsed.subtree, report)
    address = None if root is None else read_address(_scalar(root), "root", report, resolve_host, None)
    report.raise_if_any()
    settings = parsed.settings(join_key, bounds, address, quotas)
    assert settings is not None, "a node without a name, a subtree or an address was reported"
    return settings


def gateway_from_flags(
    *,
    gateway: Mapping[str, str | None],
    listeners: Sequence[str],
    auth: Mapping[str, str | None],
    limits: Mapping[str, str | None],
    root: str,
    workspaces: Sequence[str] = (),
    has_policy: bool = False,
) -> GatewaySettings:
    """The settings of one gateway. The mappings and `workspaces` are as in `node_from_flags`, `has_policy` as
    in `load`.

    `listeners`: each is `<address>:<port>` or `key=value,…` with the keys of a file's listener, where those
    of `tls` begin with `tls.`. Raises ConfigErrors with all errors.
    """
    report = Report(COMMAND_LINE)
    here = Path()
    gateway_node = _mapping(gateway)
    items: list[yaml.Node] = [_listener(text) for text in listeners]
    gateway_node.value.append((_scalar("listeners"), _sequence(items)))
    parsed = read_gateway(gateway_node, 1, report, resolve_host, here)
    given = _mapping(auth)
    values = read_auth_keys(given, report) if given.value else {}
    join_key = read_join_key(values, given, report, here)
    access = read_access(values, report, here)
    if not has_policy:
        check_open([parsed], access, report)
    bounds = read_gateway_limits(_mapping(limits), report)
    quotas = read_workspaces(_quotas(workspaces), report) if workspaces else ()
    address = read_address(_scalar(root), "root", report, resolve_host, None)
    report.raise_if_any()
    assert address is not None, "an address that cannot be read was reported"
    return replace(settings_of(parsed, address, join_key, access, quotas), limits=bounds)


def root_from_flag(text: str) -> Address:
    """The address of a network's root. Raises ConfigErrors."""
    report = Report(COMMAND_LINE)
    address = read_address(_scalar(text), "root", report, resolve_host, None)
    report.raise_if_any()
    assert address is not None, "an address that cannot be read was reported"
    return address


def traces_from_flag(text: str) -> str:
    """The URL of a collector of spans. Raises ConfigErrors."""
    report = Report(COMMAND_LINE)
    endpoint = read_traces(_scalar(text), report)
    report.raise_if_any()
    return endpoint


def join_key_from_file(path: Path) -> bytes:
    """The join key in a file. Raises ConfigErrors."""
    report = Report(COMMAND_LINE)
    key = read_auth(_mapping({"join_key_file": str(path)}), report, Path())
    report.raise_if_any()
    return key


def check_root(root: object, subtree: str | None, report: Report) -> None:
    """Notes an error if a node with this subtree has a root to join and must not, or has none and needs it.
    `root`: None: it has none."""
    if root is not None and subtree == "":
        report.error(None, "the root of a network joins nobody", "leave out --root, or give a --subtree")
    if root is None and subtree:
        report.error(None, f"no root to join for the subtree {subtree!r}", "add --root <address>:<port>")


def flag_mapping(
    flags: Mapping[str, str | None], *, also: Sequence[str] = (), workspaces: Sequence[str] = ()
) -> yaml.MappingNode:
    """The flags of a node as the mapping that a file would have. The parameters are as in
    `node_from_flags`."""
    mapping = _mapping(flags)
    if also:
        mapping.value.append((_scalar("also"), _sequence([_scalar(subtree) for subtree in also])))
    if workspaces:
        mapping.value.append((_scalar("workspaces"), _quotas(workspaces)))
    return mapping


def _mapping(values: Mapping[str, str | None]) -> yaml.MappingNode:
    given = {key: value for key, value in values.items() if value is not None}
    pairs = [(_scalar(key), _scalar(value, _kind(key))) for key, value in given.items()]
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs)


def _kind(key: str) -> str:
    return "int" if key in _NUMBERS else "bool" if key in _TRUTHS else "str"


def _listener(text: str) -> yaml.MappingNode:
    if "=" not in text:
        return _mapping({"address": text})
    plain: dict[str, str] = {}
    tls: dict[str, str] = {}
    for pair in text.split(","):
        key, _, value = pair.partition("=")
        part = tls if key.startswith("tls.") else plain
        part[key.removeprefix("tls.")] = value
    node = _mapping(plain)
    if tls:
        node.value.append((_scalar("tls"), _mapping(tls)))
    return node


def _quotas(texts: Sequence[str]) -> yaml.MappingNode:
    pairs: list[tuple[yaml.Node, yaml.Node]] = []
    for text in texts:
        name, *quotas = text.split(",")
        values = {key: value for key, _, value in (quota.partition("=") for quota in quotas)}
        pairs.append((_scalar(name), _mapping(values)))
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs)


def _sequence(items: list[yaml.Node]) -> yaml.SequenceNode:
    return yaml.SequenceNode("tag:yaml.org,2002:seq", items)


def _scalar(text: str, kind: str = "str") -> yaml.ScalarNode:
    return yaml.ScalarNode(f"tag:yaml.org,2002:{kind}", text)
