"""What runs in each kind of process of `hbroker up`.

What a node needs is imported before the launcher forks, so that its processes share the memory. The HTTP API
needs many libraries, so only its own process imports them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hbroker.cli.exits import FAILED, USAGE

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from hbroker.config import AdminSettings, BridgeSettings, GatewaySettings, NodeSettings
    from hbroker.runtime.launcher.run_directory import RunDirectory
    from hbroker.runtime.launcher.spawn import (
        AdminBody,
        Bodies,
        Body,
        BridgeBody,
        GatewayBody,
        Listening,
        Ready,
        RemoteChanged,
    )
    from hbroker.runtime.logs import Style
    from hbroker.topology import Topology


def bodies_of(network: Topology, directory: RunDirectory, log_format: Style, log_level: str) -> Bodies:
    """The main functions of the processes of a network. Each returns USAGE if a file was made unusable after
    the start of the network."""
    from hbroker.runtime.launcher.spawn import Bodies

    return Bodies(
        _node_body(directory, log_format, log_level),
        _gateway_body(log_format, log_level) if network.gateways else _absent,
        _bridge_body(log_format, log_level) if network.bridges else _absent,
        _admin_body(log_format, log_level),
    )


def _absent(*_: object) -> int:
    raise AssertionError("the topology has no process of this kind")


def _gateway_body(log_format: Style, log_level: str) -> GatewayBody:
    """The main function of a gateway's process. It returns USAGE if a file was made unusable after the start
    of the network."""
    import hbroker
    from hbroker.errors import ConfigError, ConfigErrors
    from hbroker.runtime import logs
    from hbroker.runtime.gateway.process import run_gateway
    from hbroker.runtime.launcher.ports import PortTaken

    version = hbroker.__version__

    def body(settings: GatewaySettings, listening: Listening) -> int:
        logs.configure(node=settings.name, style=log_format, level=log_level)
        log = logs.EventLog("gateway")
        try:
            return run_gateway(settings, on_ready=listening, version=version)
        except (ConfigError, ConfigErrors) as wrong:
            log.error("cannot_start", errors=str(wrong))
            return USAGE
        except PortTaken as taken:
            log.error("cannot_start", errors=str(taken))
            return FAILED

    return body


def _bridge_body(log_format: Style, log_level: str) -> BridgeBody:
    """The main function of a bridge's process. It returns USAGE if a file was made unusable after the start
    of the network."""
    from hbroker.errors import ConfigErrors
    from hbroker.runtime import logs
    from hbroker.runtime.bridge.process import run_bridge

    def body(settings: BridgeSettings, registered: Callable[[], None], remote: RemoteChanged) -> int:
        logs.configure(node=settings.name, style=log_format, level=log_level)
        for name in ("HBROKER_AUTHORITY", "HBROKER_TOKEN"):
            os.environ.pop(name, None)  # They are for other networks: this one's are in the settings.
        try:
            return run_bridge(settings, on_ready=registered, on_remote=remote)
        except ConfigErrors as wrong:
            logs.EventLog("bridge").error("cannot_start", errors=str(wrong))
            return USAGE

    return body


def _node_body(directory: RunDirectory, log_format: Style, log_level: str) -> Body:
    """The main function of a node's process. All that it needs is imported before the launcher forks it. It
    returns USAGE if a file was made unusable after the start of the network."""
    from hbroker.errors import ConfigError
    from hbroker.runtime import logs
    from hbroker.runtime.launcher.spawn import report_left, report_storage
    from hbroker.runtime.node.process import run_node

    def body(settings: NodeSettings, ready: Ready) -> int:
        logs.configure(node=settings.name, style=log_format, level=log_level)
        memory = directory.state_file_of(settings.name)
        try:
            return run_node(
                settings, on_ready=ready, on_left=report_left, state_path=memory, on_disk_fault=report_storage
            )
        except ConfigError as wrong:
            logs.EventLog("node").error("cannot_start", errors=str(wrong))
            return USAGE

    return body


def _admin_body(log_format: Style, log_level: str) -> AdminBody:
    def body(settings: AdminSettings, listener: socket.socket, answering: Callable[[], None]) -> int:
        from pathlib import Path

        import hbroker
        from hbroker.errors import ConfigError, ConfigErrors
        from hbroker.http_api.context import NetworkAccess
        from hbroker.http_api.server import ServerSettings, serve
        from hbroker.runtime import logs

        logs.configure(node=settings.name, style=log_format, level=log_level)
        for name in ("HBROKER_AUTHORITY", "HBROKER_TOKEN"):
            os.environ.pop(name, None)  # They are for other networks: this one's are in the settings.
        authority, token, certificate, key = (
            Path(path) if path else None
            for path in (
                settings.security.authority,
                settings.security.token,
                settings.certificate,
                settings.key,
            )
        )
        access = NetworkAccess(settings.root, authority, token, settings.join_key)
        server = ServerSettings(listener.getsockname()[:2], access, settings.hosts, certificate, key)
        try:
            return serve(server, hbroker.__version__, lambda _: answering(), listener)
        except (ConfigError, ConfigErrors) as wrong:
            logs.EventLog("admin").error("cannot_start", errors=str(wrong))
            return USAGE

    return body
