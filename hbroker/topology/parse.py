"""Reads a topology file: from its text to a valid `Topology`, or to all of its errors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import yaml

from hbroker.config import AccessSettings, AdminSettings, Limits, TelemetrySettings
from hbroker.hostnames import Resolver, resolve_host
from hbroker.topology import rules
from hbroker.topology.admin import ParsedAdmin, read_admin
from hbroker.topology.bridges import ParsedBridge, bridge_settings, read_bridge
from hbroker.topology.document import Report, compose, kind, line_of, listed, optional, read_text
from hbroker.topology.gateways import ParsedGateway, read_access, read_gateway, settings_of
from hbroker.topology.model import Topology, with_root
from hbroker.topology.plan import read_plan
from hbroker.topology.sections import (
    SECTIONS,
    ParsedNode,
    read_auth_keys,
    read_join_key,
    read_limits,
    read_node,
    read_telemetry,
    read_tokens,
    read_traces,
    read_workspaces,
)


def load(path: str | Path, *, resolve: Resolver = resolve_host, has_policy: bool = False) -> Topology:
    """Reads a topology file. Raises ConfigErrors with all errors of the file, and no other exception.

    `has_policy`: the caller decides which MQTT clients may use the gateways, so open listeners are no error.
    """
    return parse(read_text(Path(path)), file=str(path), resolve=resolve, has_policy=has_policy)


def parse(
    text: str,
    *,
    file: str = "topology.yaml",
    resolve: Resolver = resolve_host,
    has_policy: bool = False,
    only: Collection[str] = SECTIONS,
) -> Topology:
    """Parses the text of a topology file; otherwise as `load`. `file` gives the network's name and the
    directory of relative paths, and stands in the errors. `only`: the sections that are read; others may be
    there."""
    report = Report(file)
    document = compose(text, report)
    report.raise_if_any()
    assert document is not None, "compose notes an error or returns a node"
    sections = {name: node for name, node in _sections(document, report).items() if name in only}
    directory = Path(file).parent
    join_key, access = b"", AccessSettings()
    if "auth" in sections:
        auth = read_auth_keys(sections["auth"], report)
        join_key = read_join_key(auth, sections["auth"], report, directory)
        access = read_access(auth, report, directory)
    limits = read_limits(sections["limits"], report) if "limits" in sections else Limits()
    workspaces = read_workspaces(sections["workspaces"], report) if "workspaces" in sections else ()
    telemetry, traces = _telemetry(sections, report, directory)
    parsed_nodes: list[ParsedNode] = []
    if "nodes" in sections:
        items = report.items(sections["nodes"], "nodes")
        parsed_nodes = [read_node(item, index, report, resolve) for index, item in enumerate(items, 1)]
    gateways = _gateways(sections, report, resolve, directory)
    bridges = _bridges(sections, report, directory)
    admin = _admin(sections, report, resolve, directory)
    is_secure, requires_tokens = _read_security(sections, report)
    plan = None
    if "plan" in sections:
        plan = read_plan(sections["plan"], [parsed.name for parsed in parsed_nodes if parsed.name], report)
    rules.check(parsed_nodes, report)
    rules.check_gateways(gateways, parsed_nodes, report)
    rules.check_bridges(bridges, gateways, parsed_nodes, report)
    rules.check_admin(admin, (*parsed_nodes, *gateways, *bridges), report, requires_tokens=requires_tokens)
    if not has_policy:
        rules.check_open(gateways, access, report)
    report.raise_if_any()
    read = (parsed.settings(join_key, limits, workspaces=workspaces) for parsed in parsed_nodes)
    nodes = with_root([settings for settings in read if settings is not None])
    root = nodes[0].address
    network = Topology(
        Path(file).stem,
        nodes,
        tuple(settings_of(gateway, root, join_key, access, workspaces) for gateway in gateways),
        plan,
        is_secure=is_secure,
        requires_tokens=requires_tokens,
        bridges=tuple(bridge_settings(bridge, root, join_key) for bridge in bridges),
        admin=admin.settings and replace(admin.settings, root=root, join_key=join_key),
    )
    return network.with_telemetry(telemetry).with_traces(traces)


def _gateways(
    sections: dict[str, yaml.Node], report: Report, resolve: Resolver, directory: Path
) -> list[ParsedGateway]:
    if "gateways" not in sections:
        return []
    items = report.items(sections["gateways"], "gateways", "- {name: …, listeners: …}")
    return [read_gateway(item, index, report, resolve, directory) for index, item in enumerate(items, 1)]


def _bridges(sections: dict[str, yaml.Node], report: Report, directory: Path) -> list[ParsedBridge]:
    if "bridges" not in sections:
        return []
    items = report.items(sections["bridges"], "bridges", "- {name: …, addresses: …, topics: …}")
    return [read_bridge(item, index, report, directory) for index, item in enumerate(items, 1)]


def _telemetry(
    sections: dict[str, yaml.Node], report: Report, directory: Path
) -> tuple[TelemetrySettings, str]:
    """How all processes write their load, and where they send spans."""
    telemetry = optional(sections, "telemetry", lambda value, _: read_telemetry(value, report, directory))
    traces = optional(sections, "traces", lambda value, _: read_traces(value, report))
    return telemetry or TelemetrySettings(), traces or ""


def _admin(sections: dict[str, yaml.Node], report: Report, resolve: Resolver, directory: Path) -> ParsedAdmin:
    if "admin" not in sections:
        return ParsedAdmin(None, AdminSettings())
    return read_admin(sections["admin"], report, resolve, directory)


def _read_security(sections: dict[str, yaml.Node], report: Report) -> tuple[bool, bool]:
    """Whether datagrams are sealed, and whether clients have to show tokens."""
    is_secure = optional(sections, "security", report.truth) is not False
    if "tokens" not in sections:
        return is_secure, is_secure
    requires_tokens = read_tokens(sections["tokens"], report)
    if requires_tokens and not is_secure:
        report.error(
            sections["tokens"],
            "tokens are required and security is off, so no token can be shown",
            "remove `security: off`, or `tokens`",
        )
    return is_secure, requires_tokens


def _sections(document: yaml.Node, report: Report) -> dict[str, yaml.Node]:
    if not isinstance(document, yaml.MappingNode):
        report.error(
            document,
            f"the file holds {kind(document)}, not a mapping",
            f"write the sections {listed(SECTIONS)}",
        )
        return {}
    sections = report.mapping(document, "the file", SECTIONS)
    if "nodes" not in sections:
        report.error(line_of(document), "the file has no `nodes`", "list at least one node under `nodes:`")
    return sections
