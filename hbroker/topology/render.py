"""Writes a topology as the text of a file, from which `parse` makes the same topology."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import yaml

from hbroker.addresses import format_address
from hbroker.config import (
    AccessSettings,
    AdminSettings,
    BridgeSettings,
    BridgeTls,
    BridgeTopic,
    GatewayLimits,
    GatewaySettings,
    LeasePolicy,
    Limits,
    ListenerSettings,
    NodeSettings,
    TelemetrySettings,
    TlsSettings,
    WorkspaceQuotas,
)
from hbroker.topology.model import Topology

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def render(topology: Topology) -> str:
    """The text of a file. It has the join key inline, and the resolved addresses in place of host names."""
    root, plan = topology.root, topology.plan
    access = topology.gateways[0].access if topology.gateways else AccessSettings()
    document = _filled(
        nodes=[_node(node) for node in topology.nodes],
        gateways=[_gateway(gateway) for gateway in topology.gateways],
        bridges=[_bridge(bridge) for bridge in topology.bridges],
        auth=_filled(join_key=root.join_key.decode()) | _changed(access, AccessSettings()),
    )
    if topology.admin is None or topology.admin.is_required:
        document["admin"] = _admin(topology.admin)
    if not topology.is_secure:
        document["security"] = False
    if topology.is_secure and not topology.requires_tokens:
        document["tokens"] = "off"
    document |= _filled(
        limits=_changed(root.limits, Limits()),
        workspaces={each.name: _changed(each, WorkspaceQuotas(each.name)) for each in root.workspaces},
        telemetry=_changed(topology.telemetry, TelemetrySettings()),
        traces=topology.root.traces,
        plan=plan and asdict(plan) | {"predicted": dict(plan.predicted)},
    )
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _filled(**values: Any) -> dict[str, Any]:
    """The values that are there, and not empty or 0."""
    return {key: value for key, value in values.items() if value}


def _changed(settings: DataclassInstance, defaults: DataclassInstance) -> dict[str, Any]:
    """The fields of settings that are not as usual."""
    before = asdict(defaults)
    return {key: value for key, value in asdict(settings).items() if value != before[key]}


def _gateway(gateway: GatewaySettings) -> dict[str, Any]:
    return _filled(
        name=gateway.name,
        listeners=[_listener(listener) for listener in gateway.listeners],
        listen=gateway.listen and format_address(gateway.listen),
        workers=gateway.workers,
        server_reference=gateway.server_reference,
        limits=_changed(gateway.limits, GatewayLimits()),
        metrics=gateway.metrics and format_address(gateway.metrics),
    )


def _listener(listener: ListenerSettings) -> dict[str, Any]:
    values = _changed(listener, ListenerSettings(listener.address))
    if listener.tls is not None:
        values["tls"] = _tls(listener.tls)
    if values.pop("is_distributed", False):
        values["acknowledge"] = "distributed"
    return {"address": format_address(listener.address), **values}


def _tls(tls: TlsSettings) -> dict[str, Any]:
    wanted = "required" if tls.needs_certificate else "optional"
    return _filled(
        certificate=tls.certificate,
        key=tls.key,
        client_ca=tls.client_ca,
        client_certificate=tls.client_ca and wanted,
        names_user=tls.names_user,
        names_client=tls.names_client,
    )


def _admin(admin: AdminSettings | None) -> dict[str, Any] | bool:
    if admin is None:
        return False
    return _filled(
        listen=format_address(admin.listen),
        hosts=list(admin.hosts),
        tls=_filled(certificate=admin.certificate, key=admin.key),
    )


def _bridge(bridge: BridgeSettings) -> dict[str, Any]:
    plain = BridgeSettings(bridge.name, bridge.root, (), ())
    values = _changed(replace(bridge, join_key=b"", security=plain.security), plain)
    values |= {
        "addresses": [format_address(address) for address in bridge.addresses],
        "topics": [_bridge_topic(topic) for topic in bridge.topics],
    }
    if bridge.tls is not None:
        values["tls"] = _changed(bridge.tls, BridgeTls())
    return {"name": bridge.name, **values}


def _bridge_topic(topic: BridgeTopic) -> dict[str, Any]:
    values = _changed(topic, BridgeTopic(topic.filter))
    return {"filter": topic.filter, **values, "direction": topic.direction.value}


def _node(node: NodeSettings) -> dict[str, Any]:
    host, port = node.advertise or ("", 0)
    advertise = format_address((host, port)) if port or ":" in host else host
    more = _filled(
        also=list(node.also),
        advertise=advertise,
        workers=0 if node.workers == 1 else node.workers,
        policy="" if node.policy is LeasePolicy.FENCE else node.policy.value,
        durability="" if node.durability is None else node.durability.value,
        metrics=node.metrics and format_address(node.metrics),
    )
    return {"name": node.name, "subtree": node.subtree, "listen": format_address(node.listen), **more}
