"""`hbroker gateway`: one gateway for MQTT clients, in this process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbroker.cli.commands import command
from hbroker.cli.flags import (
    FILE,
    authority_flag,
    completed,
    key_flag,
    key_flags,
    log_flags,
    refuse_beside_config,
    state_dir_flag,
    telemetry_flag,
    token_flag,
    traces_flag,
)

if TYPE_CHECKING:
    from hbroker.config import GatewaySettings
    from hbroker.runtime.logs import Style
    from hbroker.topology import Topology

DEFAULT_LISTENERS = ("127.0.0.1:1883", "address=127.0.0.1:8083,websocket=/mqtt")

_TEXT = """\
MQTT clients of every version attach to the network here. Any number of gateways may run, on any
hosts: a client id is connected at one of them, and its session is known at all. With nothing but
--root it takes clients of this host alone, on ports 1883 (MQTT) and 8083 (WebSocket) of 127.0.0.1.
A listener for other hosts needs --passwords, --jwt-keys or client certificates, or it is refused,
unless --anonymous true says that everybody may come.
A `ready` line comes once it takes clients. SIGHUP reads passwords, rules and certificates again,
and with --config the limits, too.
Ctrl-C or SIGTERM: it says goodbye to its clients and ends.

A listener is HOST:PORT, or the keys of a topology file's as key=value, with commas between them:
  --listener 192.0.2.7:1883
  --listener address=0.0.0.0:8883,tls.certificate=host.pem,tls.key=host.key
  --listener address=0.0.0.0:8084,websocket=/mqtt,tls.certificate=host.pem,tls.key=host.key

examples:
  hbroker gateway --root 192.0.2.1:7700
  hbroker gateway --root 192.0.2.1:7700 --join-key-file join.key --authority authority.crt \\
    --passwords users --acl rules --listener 0.0.0.0:1883
  hbroker gateway --config site.yaml --name gateway-2

exit codes: 0 ended as asked, 1 it could not run, or not go on, 2 wrong flags or files
"""


@command("gateway", _TEXT)
@click.option("--config", type=FILE, metavar="FILE", help="take the gateway --name from this topology")
@click.option("--name", help="unique among the gateways (default: gateway- and this host's name)")
@click.option("--root", metavar="HOST:PORT", help="of the network (with --config: in place of the file's)")
@click.option("--policy", default="", metavar="MODULE:NAME", help="who may do what, by a class of your own")
@key_flag("--listener", metavar="LISTENER", multiple=True, help="where clients come")
@key_flag("--workspace", metavar="NAME,KEY=N,…", multiple=True, help="quotas of a workspace; several: repeat")
@key_flags(
    ("--listen", "HOST:PORT", "its UDP socket towards the network"),
    ("--workers", "N", "threads (default: one for each processor)"),
    ("--server-reference", "TEXT", "told to clients when it ends"),
    ("--metrics", "HOST:PORT", "serve its metrics for Prometheus here (default: nowhere)"),
    ("--passwords", "FILE", "users, as `hbroker passwd` writes them"),
    ("--acl", "FILE", "who may read and write what, as mosquitto has it"),
    ("--jwt-keys", "FILE|URL", "the key set that verifies tokens, which clients send as passwords"),
    ("--jwt-issuer", "TEXT", "the `iss` that tokens must have"),
    ("--jwt-audience", "TEXT", "the `aud` that tokens must have"),
    ("--anonymous", "true|false", "whether clients without a user name may"),
    ("--join-key-file", "FILE", "holds the network's secret"),
    ("--connections", "N", "clients at most"),
    ("--in-flight", "N", "messages that one client has not answered at most"),
    ("--queue-messages", "N", "messages that wait for one client at most"),
    ("--queue-bytes", "N", "bytes that wait for one client at most"),
    ("--unfinished-bytes", "N", "bytes of packets that are not whole yet, of all clients, at most"),
    ("--rate", "N", "messages a second that are read from one client"),
    ("--subscriptions", "N", "filters of one client at most"),
    ("--session-expiry", "N", "seconds for which a session is kept at most without its client"),
    ("--keep-alive", "N", "the longest keep-alive, in seconds"),
)
@authority_flag
@token_flag
@state_dir_flag
@telemetry_flag
@traces_flag
@log_flags
def gateway(
    config: str | None,
    name: str | None,
    root: str | None,
    policy: str,
    listener: tuple[str, ...],
    workspace: tuple[str, ...],
    authority: str | None,
    token: str | None,
    state_dir: Path,
    telemetry: str | None,
    traces: str | None,
    log_format: Style,
    log_level: str,
    **keys: str | None,
) -> int:
    """Returns when the gateway has stopped. Raises ConfigError and ConfigErrors for wrong flags or files."""
    if config:
        refuse_beside_config(("listener", "workspace", *keys))

    from hbroker.config import SecuritySettings

    security = SecuritySettings(authority or "", token=token or "")

    def read() -> GatewaySettings:
        network: Topology | None = None
        if config:
            found, network = _from_file(config, name, root, has_policy=bool(policy))
        else:
            found = _from_flags(name, root, listener, workspace, keys, has_policy=bool(policy))
        return completed(found, state_dir, telemetry, security, network, traces=traces)

    settings = read()

    import hbroker
    from hbroker.cli.output import print_ready
    from hbroker.runtime import logs
    from hbroker.runtime.gateway.process import run_gateway
    from hbroker.runtime.hosts.service_manager import tell

    logs.configure(node=settings.name, style=log_format, level=log_level)

    def ready(urls: tuple[str, ...]) -> None:
        print_ready(settings.name, " ".join(urls))
        tell("READY=1")

    return run_gateway(
        settings,
        on_ready=ready,
        version=hbroker.__version__,
        policy=policy,
        reload=read,
    )


def _from_file(
    config: str, name: str | None, root: str | None, *, has_policy: bool
) -> tuple[GatewaySettings, Topology]:
    """The settings, and the whole topology."""
    from dataclasses import replace

    from hbroker import topology
    from hbroker.errors import ConfigError
    from hbroker.topology.flags import root_from_flag

    network = topology.load(config, has_policy=has_policy)
    settings = network.gateway(name or "")
    if settings is None:
        names = ", ".join(gateway.name for gateway in network.gateways) or "none: the file has no gateways"
        remedy = f"give --name one of {names}"
        raise ConfigError(f"no gateway is called {name!r}", file=config, remedy=remedy)
    return (replace(settings, root=root_from_flag(root)) if root else settings), network


def _from_flags(
    name: str | None,
    root: str | None,
    listeners: tuple[str, ...],
    workspaces: tuple[str, ...],
    keys: Mapping[str, str | None],
    *,
    has_policy: bool,
) -> GatewaySettings:
    from hbroker.addresses import DEFAULT_ROOT, format_address
    from hbroker.topology.flags import gateway_from_flags
    from hbroker.topology.gateways import GATEWAY_LIMIT_RANGES

    def those(*names: str) -> dict[str, str | None]:
        return {key: keys[key] for key in names}

    return gateway_from_flags(
        gateway={
            "name": name or _default_name(),
            **those("listen", "workers", "server_reference", "metrics"),
        },
        listeners=listeners or DEFAULT_LISTENERS,
        auth=those(
            "join_key_file", "passwords", "acl", "jwt_keys", "jwt_issuer", "jwt_audience", "anonymous"
        ),
        limits=those(*GATEWAY_LIMIT_RANGES),
        root=root or format_address(DEFAULT_ROOT),
        workspaces=workspaces,
        has_policy=has_policy,
    )


def _default_name() -> str:
    import socket

    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())
    return f"gateway-{host}"[:63]
