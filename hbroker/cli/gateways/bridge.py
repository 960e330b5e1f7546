"""`hbroker bridge`: one bridge to another MQTT broker, in this process."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from hbroker.cli.commands import command
from hbroker.cli.flags import FILE, authority_flag, log_flags, token_flag

if TYPE_CHECKING:
    from hbroker.runtime.logs import Style

_TEXT = """\
A bridge carries messages between the network and another MQTT broker. The topology file FILE lists
it under `bridges`: its topics, directions and prefixes, and where the other broker is. `hbroker up`
runs the bridges of its file; this command is for one on another host.
A `ready` line comes once the network has its subscriptions. Whether the other broker can be reached
is in the log, and in the topic $SYS/broker/connection/<client id>/state: 1 or 0.
Ctrl-C or SIGTERM: it disconnects on both sides, and ends. Its sessions keep what waits for it.

A message arrives at least once, unless its topic has `qos: 0`.

examples:
  hbroker bridge --config site.yaml --name cloud
  hbroker bridge --config site.yaml --name cloud --root 192.0.2.1:7700 --authority authority.crt \\
    --token bridge.token

exit codes: 0 ended as asked, 2 wrong flags or files
"""


@command("bridge", _TEXT)
@click.option("--config", type=FILE, metavar="FILE", required=True, help="the topology file")
@click.option("--name", required=True, help="of the bridge")
@click.option("--root", metavar="HOST:PORT", help="of the network, in place of the file's")
@authority_flag
@token_flag
@log_flags
def bridge(
    config: str,
    name: str,
    root: str | None,
    authority: str | None,
    token: str | None,
    log_format: Style,
    log_level: str,
) -> int:
    """Returns when the bridge has ended. Raises ConfigError and ConfigErrors for wrong flags or files."""
    from dataclasses import replace

    from hbroker import topology
    from hbroker.cli.output import print_ready
    from hbroker.config import SecuritySettings
    from hbroker.errors import ConfigError
    from hbroker.runtime import logs
    from hbroker.runtime.bridge.files import require_bridges
    from hbroker.topology.flags import root_from_flag

    network = topology.load(config)
    settings = network.bridge(name)
    if settings is None:
        names = ", ".join(bridge.name for bridge in network.bridges) or "none: the file has no bridges"
        remedy = f"give --name one of {names}"
        raise ConfigError(f"no bridge is called {name!r}", file=config, remedy=remedy)
    settings = replace(settings, root=root_from_flag(root)) if root else settings
    security = SecuritySettings(authority or "", token=token or "")
    settings = replace(settings, security=security)
    require_bridges([settings], config)

    from hbroker.runtime.bridge.process import run_bridge

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logs.configure(node=name, style=log_format, level=log_level)
    return run_bridge(settings, on_ready=lambda: print_ready(name, "subscribed"))
