"""`hbroker gateway`: one gateway for MQTT clients, in this process."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from hbroker.cli.flags import (
    add_logs,
    add_state_directory,
    add_telemetry,
    command,
    refuse_beside_config,
    telemetry_in,
    with_key_of_this_host,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hbroker.cli.flags import Commands
    from hbroker.config import GatewaySettings

DEFAULT_LISTENERS = ("127.0.0.1:1883", "address=127.0.0.1:8083,websocket=/mqtt")

_LIMITS = {
    "connections": "clients at most",
    "in_flight": "messages that one client has not answered at most",
    "queue_messages": "messages that wait for one client at most",
    "queue_bytes": "bytes that wait for one client at most",
    "unfinished_bytes": "bytes of packets that are not whole yet, of all clients, at most",
    "rate": "messages a second that are read from one client",
    "subscriptions": "filters of one client at most",
    "session_expiry": "seconds for which a session is kept at most without its client",
    "keep_alive": "the longest keep-alive, in seconds",
}

_TEXT = """\
MQTT clients of every version attach to the network here. Any number of gateways may run, on any
hosts: a client id is connected at one of them, and its session is known at all. With nothing but
--root it takes clients of this host alone, on ports 1883 (MQTT) and 8083 (WebSocket) of 127.0.0.1.
A listener for other hosts needs --passwords or client certificates; without them it is refused,
unless --anonymous true says that everybody may come.
A `ready` line comes once it takes clients. SIGHUP reads passwords, rules, limits and
certificates again.
Ctrl-C or SIGTERM: it says goodbye to its clients and ends.

A listener is HOST:PORT, or the keys of a topology file's as key=value, with commas between them:
  --listener 192.0.2.7:1883
  --listener address=0.0.0.0:8883,tls.certificate=host.pem,tls.key=host.key
  --listener address=0.0.0.0:8084,websocket=/mqtt,tls.certificate=host.pem,tls.key=host.key

examples:
  hbroker gateway --root 192.0.2.1:7700
  hbroker gateway --root 192.0.2.1:7700 --join-key-file site.key --passwords users --acl rules \\
    --listener 0.0.0.0:1883
  hbroker gateway --config site.yaml --name gateway-2

exit codes: 0 ended as asked, 1 it could not run, or not go on, 2 wrong flags or files
"""


def add(commands: Commands) -> None:
    """Declares the command."""
    parser = command(commands, "gateway", run, "run one gateway for MQTT clients in this process", _TEXT)
    parser.add_argument("--config", metavar="FILE", help="take the gateway --name from this topology")
    parser.add_argument("--name", help="unique among the gateways (default: gateway- and this host's name)")
    parser.add_argument(
        "--root", metavar="HOST:PORT", help="of the network (with --config: in place of the file's)"
    )
    parser.add_argument(
        "--policy", default="", metavar="MODULE:NAME", help="who may do what, by a class of your own"
    )
    flags = parser.add_argument_group("in place of --config")
    flags.add_argument("--listener", action="append", metavar="LISTENER", help="where clients come")
    flags.add_argument("--listen", metavar="HOST:PORT", help="its UDP socket towards the network")
    flags.add_argument("--workers", metavar="N", help="threads (default: one for each processor)")
    flags.add_argument("--server-reference", metavar="TEXT", help="told to clients when it ends")
    flags.add_argument("--passwords", metavar="FILE", help="users, as `hbroker passwd` writes them")
    flags.add_argument("--acl", metavar="FILE", help="who may read and write what, as mosquitto has it")
    flags.add_argument("--anonymous", metavar="true|false", help="whether clients without a user name may")
    flags.add_argument("--join-key-file", metavar="FILE", help="holds the network's secret")
    for key, text in _LIMITS.items():
        flags.add_argument(f"--{key.replace('_', '-')}", metavar="N", help=text)
    add_state_directory(parser)
    add_telemetry(parser)
    add_logs(parser)


def run(options: argparse.Namespace) -> int:
    """Returns when the gateway has stopped. Raises ConfigError and ConfigErrors for wrong flags or files."""
    read: Callable[[], GatewaySettings] = lambda: _settings(options)  # noqa: E731
    settings = read()

    import hbroker
    from hbroker.cli.output import print_ready
    from hbroker.runtime import logs
    from hbroker.runtime.gateway.process import run_gateway

    logs.configure(node=settings.name, style=options.log_format, level=options.log_level)
    return run_gateway(
        settings,
        ready=lambda urls: print_ready(settings.name, " ".join(urls)),
        version=hbroker.__version__,
        policy=options.policy,
        reload=read,
    )


def _settings(options: argparse.Namespace) -> GatewaySettings:
    from dataclasses import replace

    settings = with_key_of_this_host(_from_file(options) if options.config else _from_flags(options), options)
    return replace(settings, telemetry=telemetry_in(settings.telemetry, options))


def _from_file(options: argparse.Namespace) -> GatewaySettings:
    from dataclasses import replace

    from hbroker import topology
    from hbroker.errors import ConfigError
    from hbroker.topology.flags import GATEWAY_FILE_KEYS, root_from_flag

    refuse_beside_config(options, GATEWAY_FILE_KEYS)
    network = topology.load(options.config, has_policy=bool(options.policy))
    settings = network.gateway(options.name or "")
    if settings is None:
        names = ", ".join(gateway.name for gateway in network.gateways) or "none: the file has no gateways"
        raise ConfigError(
            f"no gateway is called {options.name!r}",
            file=options.config,
            line=None,
            remedy=f"give --name one of {names}",
        )
    if options.root:
        return replace(settings, root=root_from_flag(options.root))
    return settings


def _from_flags(options: argparse.Namespace) -> GatewaySettings:
    from hbroker.addresses import DEFAULT_ROOT, format_address
    from hbroker.topology.flags import gateway_from_flags

    return gateway_from_flags(
        gateway={
            "name": options.name or _default_name(),
            "listen": options.listen,
            "workers": options.workers,
            "server_reference": options.server_reference,
        },
        listeners=options.listener or DEFAULT_LISTENERS,
        auth={
            "join_key_file": options.join_key_file,
            "passwords": options.passwords,
            "acl": options.acl,
            "anonymous": options.anonymous,
        },
        limits={key: getattr(options, key) for key in _LIMITS},
        root=options.root or format_address(DEFAULT_ROOT),
        has_policy=bool(options.policy),
    )


def _default_name() -> str:
    import socket

    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())
    return f"gateway-{host}"[:63]
