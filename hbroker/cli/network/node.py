"""`hbroker node`: runs one node in this process."""

from __future__ import annotations

import argparse
from pathlib import Path
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
    from hbroker.addresses import Address
    from hbroker.cli.flags import Commands
    from hbroker.config import NodeSettings

_TEXT = """\
For a network over many hosts, each under its own service manager. The node's place comes
from a topology file (--config, --name), or from flags with the names of the file's keys.
A `ready` line comes once it has joined; what it logs goes to stderr. Ctrl-C or SIGTERM:
it gives its subtree back to its parent and ends. SIGHUP: it reads its settings again, and
logs which of them need a restart.

A network of `hbroker up` has a join key. A node on the same host finds it in --state-dir; one on
another host needs a copy of .hbroker/<network>/join.key, and --join-key-file.

examples:
  hbroker node --config site.yaml --name kitchen
  hbroker node --name root --subtree '' --listen 0.0.0.0:7700 --advertise 192.0.2.1 \\
    --memory /var/lib/hbroker/root.cuts
  hbroker node --name kitchen --subtree home/kitchen --listen 192.0.2.7:7701 \\
    --root 192.0.2.1:7700 --join-key-file home.key

exit codes: 0 ended as asked, 1 it could not run, or not go on, 2 wrong flags or topology
"""


def add(commands: Commands) -> None:
    """Declares the command."""
    parser = command(commands, "node", run, "run one node in this process", _TEXT)
    parser.add_argument("--config", metavar="FILE", help="take the node --name from this topology")
    parser.add_argument("--name", required=True, help="the node's name, unique in its network")
    parser.add_argument(
        "--root", metavar="HOST:PORT", help="where to join (with --config: in place of the file's root)"
    )
    flags = parser.add_argument_group("in place of --config")
    flags.add_argument("--subtree", help="the topics it owns, as a prefix; empty for the root")
    flags.add_argument(
        "--also", metavar="SUBTREE", action="append", help="a further subtree; may be given several times"
    )
    flags.add_argument("--listen", metavar="HOST:PORT", help="port 0: any free one")
    flags.add_argument("--advertise", metavar="HOST[:PORT]", help="the address that others are told")
    flags.add_argument("--workers", metavar="N", help="threads that move messages (default: 1)")
    flags.add_argument("--policy", metavar="fence|serve", help="when its lease runs out (default: fence)")
    flags.add_argument(
        "--join-key-file", metavar="FILE", help="holds the secret that a join must prove: the network's"
    )
    flags.add_argument("--sessions", metavar="N", help="clients and children at most")
    flags.add_argument(
        "--sessions-per-address", metavar="N", help="clients and children of one address at most"
    )
    flags.add_argument("--queue-bytes", metavar="N", help="bytes that wait for one session at most")
    flags.add_argument(
        "--session-expiry", metavar="SECONDS", help="how long a session is kept at most without its client"
    )
    flags.add_argument("--subscriptions", metavar="N", help="filters of one session at most")
    flags.add_argument("--delegations", metavar="N", help="subtrees that it hands on at most")
    parser.add_argument(
        "--memory",
        type=Path,
        metavar="FILE",
        help="remember there, for the next start, what it delegated, and who had subscribed",
    )
    add_state_directory(parser)
    add_telemetry(parser)
    add_logs(parser)


def run(options: argparse.Namespace) -> int:
    """Returns when the node has stopped. Raises ConfigError and ConfigErrors for wrong flags or files."""
    from dataclasses import replace

    def read() -> NodeSettings:
        reported = _from_file(options) if options.config else _from_flags(options)
        settings = with_key_of_this_host(reported, options)
        return replace(settings, telemetry=telemetry_in(settings.telemetry, options))

    settings = read()

    from hbroker.addresses import format_address
    from hbroker.cli.output import print_ready
    from hbroker.runtime import logs
    from hbroker.runtime.launcher import ports
    from hbroker.runtime.node.process import run_node

    logs.configure(node=settings.name, style=options.log_format, level=options.log_level)
    ports.require_free(settings.listen)

    def ready(address: Address) -> None:
        print_ready(settings.name, f"{settings.subtree!r} on {format_address(address)}")

    return run_node(settings, ready=ready, memory=options.memory, reload=read)


def _from_file(options: argparse.Namespace) -> NodeSettings:
    from dataclasses import replace

    from hbroker import topology
    from hbroker.errors import ConfigError
    from hbroker.topology.flags import FILE_KEYS, root_from_flag

    refuse_beside_config(options, FILE_KEYS)
    network = topology.load(options.config)
    node = network.node(options.name)
    if node is None:
        names = ", ".join(node.name for node in network.nodes)
        remedy = f"name one of {names}"
        raise ConfigError(
            f"no node is called {options.name!r}", file=options.config, line=None, remedy=remedy
        )
    if options.root and not node.is_root:
        return replace(node, root=root_from_flag(options.root))
    if node.root and node.root[1] == 0:
        remedy = "give the root a port, or add --root <address>:<port>"
        raise ConfigError("the root may listen on any port", file=options.config, line=None, remedy=remedy)
    return node


def _from_flags(options: argparse.Namespace) -> NodeSettings:
    from hbroker.topology.flags import node_from_flags
    from hbroker.topology.sections import LIMIT_KEYS

    return node_from_flags(
        node={
            key: getattr(options, key)
            for key in ("name", "subtree", "listen", "advertise", "workers", "policy")
        },
        also=options.also or (),
        auth={"join_key_file": options.join_key_file},
        limits={key: getattr(options, key) for key in LIMIT_KEYS},
        root=options.root,
    )
