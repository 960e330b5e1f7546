"""A topology as the text of a file: what `parse` makes the same topology of."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import yaml

from hbroker.config import LeasePolicy, Limits, NodeSettings, format_address
from hbroker.topology.model import Topology


def render(topology: Topology) -> str:
    """The text of a file. The join key is written inline, and host names as the addresses that they had."""
    document: dict[str, Any] = {"nodes": [_node(node) for node in topology.nodes]}
    root = topology.root
    if root.join_key:
        document["auth"] = {"join_key": root.join_key.decode()}
    if root.limits != Limits():
        document["limits"] = asdict(root.limits)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _node(node: NodeSettings) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": node.name,
        "subtree": node.subtree,
        "listen": format_address(node.listen),
    }
    if node.advertise:
        host, port = node.advertise
        values["advertise"] = format_address((host, port)) if port or ":" in host else host
    if node.workers != 1:
        values["workers"] = node.workers
    if node.policy is not LeasePolicy.FENCE:
        values["policy"] = node.policy.value
    return values
