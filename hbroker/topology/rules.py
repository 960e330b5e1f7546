"""The rules that hold between the nodes and gateways of a topology.

Subtrees are prefixes by whole levels. So of two different subtrees, either one contains the other, or they
share no topic. Nested subtrees are allowed (docs/protocol.md §5.1). The rules are: exactly one root, no
subtree, node name or address twice, no node with a store below one without, and no listener that other hosts
reach without authentication.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from ipaddress import IPv6Address, ip_address

from hbroker.addresses import ANY_ADDRESS, Address, format_address
from hbroker.config import AccessSettings, Durability, ListenerSettings
from hbroker.subtree import is_within
from hbroker.topology.admin import ParsedAdmin
from hbroker.topology.bridges import ParsedBridge
from hbroker.topology.document import Report
from hbroker.topology.gateways import ParsedGateway
from hbroker.topology.sections import ParsedNode


def check(parsed_nodes: Sequence[ParsedNode], report: Report) -> None:
    """Notes an error for each rule that the nodes break. Values that could not be read break no rule."""
    _unique(parsed_nodes, lambda parsed: parsed.name, _same_name, report)
    _unique_subtrees(parsed_nodes, report)
    for parsed in parsed_nodes:
        check_node(parsed, report)
    _unique(parsed_nodes, lambda parsed: _fixed(parsed.listen), _same_address, report)
    _unique(parsed_nodes, lambda parsed: _fixed(parsed.advertise), _same_advertised, report)
    _any_address_clash(parsed_nodes, report)
    _stored_below_unstored(parsed_nodes, report)
    if parsed_nodes and all(parsed.subtree for parsed in parsed_nodes):
        report.error(
            parsed_nodes[0].line, "no node is the root", 'give one node `subtree: ""`, the whole hierarchy'
        )


def check_node(parsed: ParsedNode, report: Report) -> None:
    """Notes the errors of a single node."""
    if parsed.subtree == "" and parsed.also:
        remedy = "leave out `also`: the root has all that no other node has"
        report.error(parsed.line, f"{_label(parsed)} is the root, and can claim nothing more", remedy)


def check_gateways(gateways: Sequence[ParsedGateway], nodes: Sequence[ParsedNode], report: Report) -> None:
    """Notes an error for each gateway name, and each listener address, that is already taken."""
    names = {node.name: f"the node on line {node.line}" for node in nodes if node.name}
    listening: dict[Address, int | None] = {}
    for gateway in gateways:
        if gateway.name in names:
            message = f"the name {gateway.name!r} is taken by {names[gateway.name]}"
            report.error(gateway.line, message, "give each gateway a name of its own")
        elif gateway.name:
            names[gateway.name] = f"the gateway on line {gateway.line}"
        for line, listener in gateway.listeners:
            address = _fixed(listener.address)
            if address is not None and address in listening:
                message = (
                    f"the listener on line {listening[address]} listens on {format_address(address)} already"
                )
                report.error(line, message, "choose another port, or 0 for any free one")
            elif address is not None:
                listening[address] = line


def check_bridges(
    bridges: Sequence[ParsedBridge],
    gateways: Sequence[ParsedGateway],
    nodes: Sequence[ParsedNode],
    report: Report,
) -> None:
    """Notes an error for each name of a bridge that is already taken."""
    others: list[ParsedNode | ParsedGateway] = [*nodes, *gateways]
    names = {parsed.name: parsed.line for parsed in others if parsed.name}
    for bridge in bridges:
        if bridge.name in names:
            message = f"the name {bridge.name!r} is taken on line {names[bridge.name]}"
            report.error(bridge.line, message, "give each bridge a name of its own")
        elif bridge.name:
            names[bridge.name] = bridge.line


def check_admin(
    admin: ParsedAdmin,
    others: Sequence[ParsedNode | ParsedGateway | ParsedBridge],
    report: Report,
    *,
    requires_tokens: bool,
) -> None:
    """Notes an error if the name of the process with the HTTP API is taken, or if other hosts could reach the
    API without encryption or without a token."""
    settings = admin.settings
    if settings is None:
        return
    for parsed in others:
        if parsed.name == settings.name:
            message = f"the name {parsed.name!r} is that of the process with the HTTP API"
            report.error(parsed.line, message, "give it another one, or write `admin: off`")
    if _is_loopback(settings.listen[0]):
        return
    where = f"the HTTP API listens on {format_address(settings.listen)}, for other hosts, too"
    if not requires_tokens:
        remedy = "listen on 127.0.0.1, or have the network require tokens"
        report.error(admin.line, f"{where}, and no token is required", remedy)
    if not settings.certificate:
        remedy = (
            "add `tls: {certificate: <file>, key: <file>}`, or listen on 127.0.0.1 behind a proxy with TLS"
        )
        report.error(admin.line, f"{where}, and tokens would not be encrypted", remedy)


def check_open(gateways: Sequence[ParsedGateway], access: AccessSettings, report: Report) -> None:
    """Notes an error for each listener that other hosts can reach and at which clients prove nothing, unless
    `anonymous: true` allows it."""
    if access.anonymous:
        return
    for gateway in gateways:
        for line, listener in gateway.listeners:
            if _is_open(listener, access) and not _is_loopback(listener.address[0]):
                at = format_address(listener.address)
                message = f"the listener {at} takes everybody who reaches it: there are no passwords"
                report.error(line, message, _CLOSE_IT)


_CLOSE_IT = (
    "name a file of `passwords` (`hbroker passwd`) or `jwt_keys`, ask for client certificates, listen on "
    "127.0.0.1, or say "
    "`anonymous: true`"
)


def _is_open(listener: ListenerSettings, access: AccessSettings) -> bool:
    tls = listener.tls
    if access.proves_clients or (tls is not None and tls.needs_certificate):
        return False
    is_named = tls is not None and tls.names_user and access.anonymous is False
    return not is_named  # Without passwords, the gateway accepts any user name.


def _is_loopback(host: str) -> bool:
    address = ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


Explain = Callable[[ParsedNode, ParsedNode], tuple[str, str]]
"""The message and the remedy for two entries of which the second repeats a value of the first."""


def _unique(
    parsed_nodes: Sequence[ParsedNode],
    key: Callable[[ParsedNode], Hashable],
    explain: Explain,
    report: Report,
) -> None:
    first: dict[Hashable, ParsedNode] = {}
    for parsed in parsed_nodes:
        value = key(parsed)
        if value is None:
            continue
        if value in first:
            report.error(parsed.line, *explain(first[value], parsed))
        else:
            first[value] = parsed


def _unique_subtrees(parsed_nodes: Sequence[ParsedNode], report: Report) -> None:
    first: dict[str, ParsedNode] = {}
    for parsed in parsed_nodes:
        for subtree in (parsed.subtree, *parsed.also):
            if subtree is None:
                continue
            if subtree in first:
                report.error(parsed.line, *_same_subtree(first[subtree], parsed, subtree))
            first.setdefault(subtree, parsed)


def _stored_below_unstored(parsed_nodes: Sequence[ParsedNode], report: Report) -> None:
    """A node that stops hands what waits to its parent. If that one has no store, it is lost when the parent
    stops, too."""
    by_subtree = {parsed.subtree: parsed for parsed in parsed_nodes if parsed.subtree is not None}
    for subtree, parsed in by_subtree.items():
        above = [other for other in by_subtree if other != subtree and is_within(subtree, other)]
        parent = by_subtree[max(above, key=len)] if above else None
        has_store = parsed.durability is not Durability.NONE
        if has_store and parent is not None and parent.durability is Durability.NONE:
            message = f"{_label(parsed)} keeps messages on disk, and its parent {_label(parent)} does not"
            report.error(parsed.line, message, "write `durability: none` here, too, or remove it there")


def _same_name(first: ParsedNode, second: ParsedNode) -> tuple[str, str]:
    return (
        f"the name {second.name!r} is taken by the node on line {first.line}",
        "give each node a name of its own",
    )


def _same_subtree(first: ParsedNode, second: ParsedNode, subtree: str) -> tuple[str, str]:
    if subtree == "":
        return (
            f"there are two roots: {_label(second)} and {_label(first)}, line {first.line}",
            "keep one, and give the other a subtree",
        )
    return (
        f"the subtree {subtree!r} is held by {_label(first)}, line {first.line}",
        "every topic has one owner: choose another subtree, or one below it",
    )


def _same_address(first: ParsedNode, second: ParsedNode) -> tuple[str, str]:
    at = format_address(second.listen or ("", 0))
    return (
        f"{_label(first)}, line {first.line}, listens on {at} already",
        "choose another port, or 0 for any free one",
    )


def _same_advertised(first: ParsedNode, second: ParsedNode) -> tuple[str, str]:
    at = format_address(second.advertise or ("", 0))
    return (
        f"{_label(first)}, line {first.line}, advertises {at} already",
        "advertise each node at an address of its own",
    )


def _any_address_clash(parsed_nodes: Sequence[ParsedNode], report: Report) -> None:
    """Notes an error for each node whose port is taken by a node that listens on every address."""
    everywhere = {
        parsed.listen[1]: parsed
        for parsed in parsed_nodes
        if parsed.listen and parsed.listen[0] in ANY_ADDRESS and parsed.listen[1]
    }
    for parsed in parsed_nodes:
        if parsed.listen is None or parsed.listen[0] in ANY_ADDRESS:
            continue
        other = everywhere.get(parsed.listen[1])
        if other:
            message = (
                f"{_label(other)}, line {other.line}, listens on port {parsed.listen[1]} of every address"
            )
            report.error(parsed.line, message, "choose another port")


def _fixed(address: Address | None) -> Address | None:
    return address if address and address[1] else None


def _label(parsed: ParsedNode) -> str:
    return f"node {parsed.name!r}" if parsed.name else "a node"
