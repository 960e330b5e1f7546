"""`hbroker node`: runs one node in this process."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from hbroker.cli.commands import command
from hbroker.cli.flags import (
    FILE,
    PATH,
    authority_flag,
    completed,
    given_flags,
    key_flag,
    key_flags,
    log_flags,
    refuse_beside_config,
    state_dir_flag,
    telemetry_flag,
    traces_flag,
)
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.addresses import Address
    from hbroker.config import NodeSettings
    from hbroker.runtime.logs import Style
    from hbroker.topology import Topology
    from hbroker.topology.node_file import NodeFile

_DEFAULT_FILE: Final = "/etc/hbroker/node.yaml"
_PROCESS_FLAGS: Final = ("memory", "authority", "identity", "tokens", "telemetry", "traces")
"""The flags of the process that a node's file has, too."""

_TEXT = """\
For a network over many hosts, each under its own service manager. The node's settings come from

  a file of its own (--config FILE): its keys are the flags below, as in `join_key_file: join.key`.
      A flag beside it replaces the key. `hbroker join` writes it. Without any flag it is
      /etc/hbroker/node.yaml
  a topology file (--config FILE --name NAME)
  flags

A `ready` line comes once it has joined; what it logs goes to stderr. Ctrl-C or SIGTERM:
it gives its subtree back to its parent and ends. SIGHUP: it reads its settings again, and
logs which of them need a restart.

A network of `hbroker up` has a join key, and an authority that signs certificates. A node on the
same host finds them in --state-dir. On another host, `hbroker join` puts them in place
(docs/hosts.md). Without --authority security is off.

examples:
  hbroker node --config kitchen/node.yaml
  hbroker node --config site.yaml --name kitchen
  hbroker node --name root --subtree '' --listen 0.0.0.0:7700 --advertise 192.0.2.1 \\
    --join-key-file join.key --authority root/authority.crt --identity root \\
    --memory /var/lib/hbroker/root.cuts

exit codes: 0 ended as asked, 1 it could not run, or not go on, 2 wrong flags or files
"""


@command("node", _TEXT)
@click.option(
    "--config",
    type=FILE,
    metavar="FILE",
    help=f"the node's file; with --name: a topology (default, without flags: {_DEFAULT_FILE})",
)
@click.option("--name", help="the node's name, unique in its network")
@click.option("--root", metavar="HOST:PORT", help="where to join (with --config: in place of the file's)")
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
    ("--metrics", "HOST:PORT", "serve its metrics for Prometheus here (default: nowhere)"),
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
    type=FILE,
    metavar="FILE",
    help="keep its state on disk, for the next start: in this file, in files beside it, and in FILE.store",
)
@click.option(
    "--pid-file",
    type=PATH,
    metavar="FILE",
    help="write its process id here once it has joined, and remove the file at the end",
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
@traces_flag
@log_flags
def node(
    config: str | None,
    name: str | None,
    pid_file: Path | None,
    state_dir: Path,
    log_format: Style,
    log_level: str,
    **flags: Any,
) -> int:
    """Returns when the node has stopped. Raises ConfigError and ConfigErrors for wrong flags or files."""
    from hbroker.addresses import format_address
    from hbroker.cli.output import print_ready
    from hbroker.runtime import logs
    from hbroker.runtime.hosts.service_manager import tell
    from hbroker.runtime.launcher import ports
    from hbroker.runtime.node.process import run_node
    from hbroker.runtime.node.successor import Predecessor

    predecessor = Predecessor.of_environment()
    given = given_flags()
    if config is None and set(given) <= {"log_format", "log_level", "pid_file", "state_dir"}:
        config = _DEFAULT_FILE
    if config is not None and name is not None:
        refuse_beside_config([key for key in flags if key not in (*_PROCESS_FLAGS, "root")])

    def configure_logs(settings: NodeSettings, file: NodeFile | None) -> None:
        style, level = _log_settings(file, given, log_format, log_level)
        logs.configure(node=settings.name, style=style, level=level)

    def read() -> tuple[NodeSettings, NodeFile | None]:
        return _read(config, name, state_dir, flags)

    def reload() -> NodeSettings:
        settings, file = read()
        configure_logs(settings, file)
        return settings

    settings, file = read()
    memory = file.memory if file else flags["memory"] and Path(flags["memory"])
    if memory is None and settings.has_store:
        raise _no_place(config)
    configure_logs(settings, file)
    sockets = predecessor.sockets_for(settings)
    predecessor.await_end()
    if not sockets:
        ports.require_free(settings.listen)

    def ready(address: Address) -> None:
        if pid_file is not None:
            pid_file.write_text(f"{os.getpid()}\n")
        print_ready(settings.name, f"{settings.subtree!r} on {format_address(address)}")
        tell("READY=1")

    try:
        return run_node(settings, on_ready=ready, state_path=memory, reload=reload, sockets=sockets)
    finally:
        _remove_pid(pid_file)


def _no_place(config: str | None) -> ConfigError:
    from hbroker.topology.document import COMMAND_LINE

    remedy = "add --memory FILE: the store is beside that file"
    return ConfigError("there is no place for messages on disk", file=config or COMMAND_LINE, remedy=remedy)


def _log_settings(
    file: NodeFile | None, given: Container[str], log_format: Style, log_level: str
) -> tuple[Style, str]:
    """How it logs: as the flags say, as far as they were given, and otherwise as the file says."""
    style = file.log_format if file and file.log_format and "log_format" not in given else log_format
    level = file.log_level if file and file.log_level and "log_level" not in given else log_level
    return cast("Style", style), level


def _remove_pid(file: Path | None) -> None:
    """Removes the file, unless it is of the process that has replaced this one."""
    if file is not None and file.exists() and file.read_text() == f"{os.getpid()}\n":
        file.unlink()


def _read(
    config: str | None, name: str | None, state_dir: Path, flags: Mapping[str, Any]
) -> tuple[NodeSettings, NodeFile | None]:
    """The settings of the node, and what its own file says; None: it has none. Raises ConfigError and
    ConfigErrors."""
    from hbroker.config import SecuritySettings

    file: NodeFile | None = None
    network: Topology | None = None
    security = SecuritySettings(flags["authority"] or "", flags["identity"] or "")
    requires_tokens = None if flags["tokens"] is None else flags["tokens"] == "required"
    if config is not None and name is not None:
        found, network = _from_topology(config, name, flags["root"])
    elif config is not None:
        file = _from_file(config, flags)
        found, security, requires_tokens = file.settings, file.settings.security, file.requires_tokens
    else:
        found = _from_flags(name, flags)
    telemetry, traces = (None, None) if file else (flags["telemetry"], flags["traces"])
    return completed(found, state_dir, telemetry, security, network, requires_tokens, traces), file


def _from_file(config: str, flags: Mapping[str, Any]) -> NodeFile:
    """What the node's own file says, with these flags in place of its keys."""
    from hbroker.topology.node_file import load_node

    values = {key: value for key, value in flags.items() if key not in ("also", "workspace")}
    for key in ("join_key_file", *_PROCESS_FLAGS):
        # A path in the file is relative to its folder.
        if key not in ("tokens", "traces") and values[key]:
            values[key] = os.path.abspath(values[key])
    return load_node(config, values, also=flags["also"], workspaces=flags["workspace"])


def _from_topology(config: str, name: str, root: str | None) -> tuple[NodeSettings, Topology]:
    """The settings, and the whole topology."""
    from dataclasses import replace

    from hbroker import topology
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


def _from_flags(name: str | None, flags: Mapping[str, Any]) -> NodeSettings:
    from hbroker.topology.flags import node_from_flags
    from hbroker.topology.sections import LIMIT_KEYS, NODE_KEYS

    if name is None:
        raise ConfigError(
            "the node has no name", file="command line", remedy="add --name NAME, or --config FILE"
        )
    return node_from_flags(
        node={"name": name, **{key: flags[key] for key in NODE_KEYS if key not in ("name", "also")}},
        also=flags["also"],
        workspaces=flags["workspace"],
        auth={"join_key_file": flags["join_key_file"]},
        limits={key: flags[key] for key in LIMIT_KEYS},
        root=flags["root"],
    )
