"""`hbroker node`: runs one node in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbroker.cli.commands import command
from hbroker.cli.flags import (
    FILE,
    PATH,
    authority_flag,
    completed,
    key_flag,
    key_flags,
    log_flags,
    refuse_beside_config,
    state_dir_flag,
    telemetry_flag,
)

if TYPE_CHECKING:
    from hbroker.addresses import Address
    from hbroker.config import NodeSettings
    from hbroker.runtime.logs import Style
    from hbroker.topology import Topology

_NODE_KEYS = ("subtree", "listen", "advertise", "workers", "policy", "durability")

_TEXT = """\
For a network over many hosts, each under its own service manager. The node's place comes
from a topology file (--config, --name), or from flags with the names of the file's keys.
A `ready` line comes once it has joined; what it logs goes to stderr. Ctrl-C or SIGTERM:
it gives its subtree back to its parent and ends. SIGHUP: it reads its settings again, and
logs which of them need a restart.

A network of `hbroker up` has a join key, and an authority that signs certificates. A node on the
same host finds them in --state-dir. One on another host needs copies: .hbroker/<network>/join.key,
and what `hbroker keys issue` writes (docs/security.md). Without --authority security is off.

examples:
  hbroker node --config site.yaml --name kitchen
  hbroker node --name root --subtree '' --listen 0.0.0.0:7700 --advertise 192.0.2.1 \\
    --join-key-file join.key --authority root/authority.crt --identity root \\
    --memory /var/lib/hbroker/root.cuts
  hbroker node --name kitchen --subtree home/kitchen --listen 192.0.2.7:7701 \\
    --root 192.0.2.1:7700 --join-key-file join.key --authority kitchen/authority.crt \\
    --identity kitchen --memory /var/lib/hbroker/kitchen.cuts

exit codes: 0 ended as asked, 1 it could not run, or not go on, 2 wrong flags or topology
"""


@command("node", _TEXT)
@click.option("--config", type=FILE, metavar="FILE", help="take the node --name from this topology")
@click.option("--name", required=True, help="the node's name, unique in its network")
@click.option(
    "--root", metavar="HOST:PORT", help="where to join (with --config: in place of the file's root)"
)
@key_flag("--also", metavar="SUBTREE", multiple=True, help="a further subtree; may be given several times")
@key_flag(
    "--workspace",
    metavar="NAME,KEY=N,…",
    multiple=True,
    help="quotas of a workspace: sessions, subscriptions, messages_per_second; several: repeat",
)
@key_flags(
    ("--subtree", "SUBTREE", "the topics it owns, as a prefix; empty for the root"),
    ("--listen", "HOST:PORT", "port 0: any free one"),
    ("--advertise", "HOST[:PORT]", "the address that others are told"),
    ("--workers", "N", "threads that move messages (default: 1)"),
    ("--policy", "fence|serve", "when its lease runs out (default: fence)"),
    ("--durability", "fsync|os|none", "how messages are kept on disk (default: fsync with --memory)"),
    ("--join-key-file", "FILE", "holds the secret that a join must prove: the network's"),
    ("--sessions", "N", "clients and children at most"),
    ("--sessions-per-address", "N", "clients and children of one address at most"),
    ("--queue-messages", "N", "messages that wait for one session at most"),
    ("--queue-bytes", "N", "bytes that wait for one session at most"),
    ("--store-bytes", "N", "bytes of the log of its store at most"),
    ("--session-expiry", "SECONDS", "how long a session is kept at most without its client"),
    ("--subscriptions", "N", "filters of one session at most"),
    ("--delegations", "N", "subtrees that it hands on at most"),
)
@click.option(
    "--memory",
    type=PATH,
    metavar="FILE",
    help="keep its state on disk, for the next start: in this file, in files beside it, and in FILE.store",
)
@authority_flag
@click.option(
    "--identity",
    type=FILE,
    metavar="DIR",
    help="the folder with its certificate NAME.crt and its key NAME.key, if security is on",
)
@click.option(
    "--tokens",
    type=click.Choice(["required", "off"]),
    help="whether clients have to show a token (default: required, if security is on)",
)
@state_dir_flag
@telemetry_flag
@log_flags
def node(
    config: str | None,
    name: str,
    root: str | None,
    also: tuple[str, ...],
    workspace: tuple[str, ...],
    memory: Path | None,
    authority: str | None,
    identity: str | None,
    tokens: str | None,
    state_dir: Path,
    telemetry: str | None,
    log_format: Style,
    log_level: str,
    **keys: str | None,
) -> int:
    """Returns when the node has stopped. Raises ConfigError and ConfigErrors for wrong flags or files."""
    from hbroker.config import SecuritySettings
    from hbroker.errors import ConfigError
    from hbroker.topology.flags import COMMAND_LINE

    if config:
        refuse_beside_config(("also", "workspace", *keys))

    security = SecuritySettings(authority or "", identity or "")
    requires_tokens = None if tokens is None else tokens == "required"

    def read() -> NodeSettings:
        network: Topology | None = None
        if config:
            found, network = _from_file(config, name, root)
        else:
            found = _from_flags(name, root, also, workspace, keys)
        return completed(found, state_dir, telemetry, security, network, requires_tokens)

    settings = read()
    if memory is None and settings.has_store:
        raise ConfigError(
            "there is no place for messages on disk",
            file=config or COMMAND_LINE,
            remedy="add --memory FILE: the store is beside that file",
        )

    from hbroker.addresses import format_address
    from hbroker.cli.output import print_ready
    from hbroker.runtime import logs
    from hbroker.runtime.launcher import ports
    from hbroker.runtime.node.process import run_node

    logs.configure(node=settings.name, style=log_format, level=log_level)
    ports.require_free(settings.listen)

    def ready(address: Address) -> None:
        print_ready(settings.name, f"{settings.subtree!r} on {format_address(address)}")

    return run_node(settings, on_ready=ready, state_path=memory, reload=read)


def _from_file(config: str, name: str, root: str | None) -> tuple[NodeSettings, Topology]:
    """The settings, and the whole topology."""
    from dataclasses import replace

    from hbroker import topology
    from hbroker.errors import ConfigError
    from hbroker.topology.flags import root_from_flag

    network = topology.load(config)
    node = network.node(name)
    if node is None:
        names = ", ".join(node.name for node in network.nodes)
        remedy = f"name one of {names}"
        raise ConfigError(f"no node is called {name!r}", file=config, remedy=remedy)
    if root and not node.is_root:
        return replace(node, root=root_from_flag(root)), network
    if node.root and node.root[1] == 0:
        remedy = "give the root a port, or add --root <address>:<port>"
        raise ConfigError("the root may listen on any port", file=config, remedy=remedy)
    return node, network


def _from_flags(
    name: str,
    root: str | None,
    also: tuple[str, ...],
    workspaces: tuple[str, ...],
    keys: Mapping[str, str | None],
) -> NodeSettings:
    from hbroker.topology.flags import node_from_flags
    from hbroker.topology.sections import LIMIT_KEYS

    return node_from_flags(
        node={
            "name": name,
            **{key: keys[key] for key in _NODE_KEYS},
        },
        also=also,
        workspaces=workspaces,
        auth={"join_key_file": keys["join_key_file"]},
        limits={key: keys[key] for key in LIMIT_KEYS},
        root=root,
    )
