"""Writes a topology as the text of a file, from which `parse` makes the same topology."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import yaml

from hbroker.addresses import format_address
from hbroker.config import (
    AccessSettings,
    GatewayLimits,
    GatewaySettings,
    LeasePolicy,
    Limits,
    ListenerSettings,
    NodeSettings,
    TelemetrySettings,
    TlsSettings,
)
from hbroker.topology.model import Topology


def render(topology: Topology) -> str:
    """The text of a file. It has the join key inline, and the resolved addresses in place of host names."""
    document: dict[str, Any] = {"nodes": [_node(node) for node in topology.nodes]}
    root = topology.root
    if topology.gateways:
        document["gateways"] = [_gateway(gateway) for gateway in topology.gateways]
    auth = {"join_key": root.join_key.decode()} if root.join_key else {}
    auth |= _access(topology.gateways[0].access) if topology.gateways else {}
    if auth:
        document["auth"] = auth
    if root.limits != Limits():
        document["limits"] = asdict(root.limits)
    telemetry = _telemetry(topology.telemetry)
    if telemetry:
        document["telemetry"] = telemetry
    if topology.plan:
        document["plan"] = asdict(topology.plan) | {"predicted": dict(topology.plan.predicted)}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _telemetry(telemetry: TelemetrySettings) -> dict[str, Any]:
    usual = asdict(TelemetrySettings())
    return {key: value for key, value in asdict(telemetry).items() if value != usual[key]}


def _access(access: AccessSettings) -> dict[str, Any]:
    return {key: value for key, value in asdict(access).items() if value not in ("", None)}


def _gateway(gateway: GatewaySettings) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": gateway.name,
        "listeners": [_listener(listener) for listener in gateway.listeners],
    }
    if gateway.listen:
        values["listen"] = format_address(gateway.listen)
    if gateway.workers:
        values["workers"] = gateway.workers
    if gateway.server_reference:
        values["server_reference"] = gateway.server_reference
    if gateway.limits != GatewayLimits():
        values["limits"] = asdict(gateway.limits)
    return values


def _listener(listener: ListenerSettings) -> dict[str, Any]:
    usual = asdict(ListenerSettings(listener.address))
    values = {key: value for key, value in asdict(listener).items() if value != usual[key]}
    values.pop("tls", None)
    if listener.tls is not None:
        values["tls"] = _tls(listener.tls)
    if values.pop("is_distributed", False):
        values["acknowledge"] = "distributed"
    return {"address": format_address(listener.address), **values}


def _tls(tls: TlsSettings) -> dict[str, Any]:
    values: dict[str, Any] = {"certificate": tls.certificate, "key": tls.key}
    if tls.client_ca:
        values["client_ca"] = tls.client_ca
        values["client_certificate"] = "required" if tls.needs_certificate else "optional"
    if tls.names_user:
        values["names_user"] = True
    return values


def _node(node: NodeSettings) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": node.name,
        "subtree": node.subtree,
        "listen": format_address(node.listen),
    }
    if node.also:
        values["also"] = list(node.also)
    if node.advertise:
        host, port = node.advertise
        values["advertise"] = format_address((host, port)) if port or ":" in host else host
    if node.workers != 1:
        values["workers"] = node.workers
    if node.policy is not LeasePolicy.FENCE:
        values["policy"] = node.policy.value
    return values
