"""`hbroker up`: launches a topology, and keeps it running."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE
from hbroker.cli.flags import FILE, log_flags, state_dir_flag
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.config import NodeSettings
    from hbroker.runtime.launcher.run_directory import RunDirectory
    from hbroker.runtime.logs import Style
    from hbroker.topology import Topology

DEFAULT_FILE = "topologies/home.yaml"

_TEXT = """\
Every node, gateway and bridge runs as a process of its own, and so does the HTTP API with its
dashboard. One that dies is started again. A line that begins with `ready` comes once every node
has joined, and every gateway takes clients; it tells where, and the address of the dashboard (port
7780 of this host, or a free one). Ctrl-C stops all of them; a second Ctrl-C does so at once. What
runs is in .hbroker/<network>/state.json, what the processes say in .hbroker/<network>/<name>.log.
Where FILE names no join key the network has one of its own, in .hbroker/<network>/join.key. Nodes
and gateways of other hosts need a copy of it, and certificates: see `hbroker keys --help`.

examples:
  hbroker up                            topologies/home.yaml
  hbroker up topologies/campus.yaml     40 nodes
  hbroker up --detach && hbroker tree   in the background; `hbroker down` stops it
  hbroker up --any-port my.yaml         on free ports; the ready line tells the root

exit codes: 0 stopped as asked (--detach: ready), 1 a port is taken or the network runs already,
  2 the topology is wrong, or a file that it names
"""


@command("up", _TEXT)
@click.argument("file", required=False, type=FILE, help=f"default: {DEFAULT_FILE}")
@click.option("--no-telemetry", is_flag=True, help="write no telemetry, whatever FILE says")
@click.option("--no-admin", is_flag=True, help="run no HTTP API and no dashboard, whatever FILE says")
@click.option(
    "--detach",
    is_flag=True,
    help="go on in the background: return once the network is ready; `hbroker down` stops it",
)
@click.option("--any-port", is_flag=True, help="give every node and listener a free port")
@state_dir_flag
@log_flags
@click.option("--json", "as_json", is_flag=True, help="print every event as one JSON object a line")
def up(
    file: str | None,
    no_telemetry: bool,
    no_admin: bool,
    detach: bool,
    any_port: bool,
    state_dir: Path,
    log_format: Style,
    log_level: str,
    as_json: bool,
) -> int:
    """Returns when the network has stopped. Raises ConfigErrors, OSError."""
    from hbroker import topology
    from hbroker.cli.network.launcher_events import Console, tell_json, unbreakable
    from hbroker.cli.network.processes import bodies_of
    from hbroker.cli.progress import StartBar
    from hbroker.runtime.launcher import ports
    from hbroker.runtime.launcher.launcher import Launcher
    from hbroker.runtime.launcher.run_directory import RunDirectory

    file = file or _default_file()
    wanted = _with_admin(topology.load(file), file, is_wanted=not no_admin)
    _require_files(wanted, file)
    directory = RunDirectory(state_dir, wanted.name)
    if detach:
        from hbroker.cli.network.detach import launch

        switches = (("--no-telemetry", no_telemetry), ("--no-admin", no_admin), ("--any-port", any_port))
        given = [flag for flag, is_given in (*switches, ("--json", as_json)) if is_given]
        values = ("--state-dir", str(state_dir), "--log-format", log_format, "--log-level", log_level)
        return launch(["up", file, *given, *values], directory.path / "launcher.log", is_json=as_json)
    os.environ.pop("NOTIFY_SOCKET", None)  # Nodes and gateways would take it for theirs.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # The launcher handles it, once it runs.
    lock = directory.acquire()
    try:
        wanted = _with_key(_with_telemetry(wanted, directory, is_wanted=not no_telemetry), directory)
        network = ports.assign(_with_security(wanted, directory), any_port=any_port)
        if network.telemetry.is_on:
            # Once, before the forks: they share its memory.
            from hbroker.runtime.telemetry import preload

            preload()
        _forget_the_dead(network, directory)
        admin = network.admin
        listener = None if admin is None else ports.listen_for_admin(admin, any_port=any_port)
        directory.announce(network.root.address)
        bodies = bodies_of(network, directory, log_format, log_level)
        count = len(network.nodes) + len(network.gateways) + len(network.bridges)
        with StartBar(count, is_silent=as_json) as bar:
            tell = tell_json if as_json else Console(network, directory.path, bar).tell
            in_place = [node.name for node in network.nodes if _has_store(node)]
            renew = partial(_renew_certificates, network, directory)
            Launcher(network, file, directory, bodies, unbreakable(tell), in_place, renew, listener).run()
    finally:
        directory.withdraw()
        os.close(lock)
    return DONE


def _require_files(network: Topology, file: str) -> None:
    """Reads the files of gateways and bridges. Raises ConfigErrors."""
    if network.gateways:
        from hbroker.runtime.gateway.files import require_files

        require_files(network.gateways)
    if network.bridges:
        from hbroker.runtime.bridge.files import require_bridges

        require_bridges(network.bridges, file)


def _with_admin(network: Topology, file: str, *, is_wanted: bool) -> Topology:
    """The topology without the HTTP API, if it is not wanted, or its libraries are not installed and the file
    does not ask for it. Raises ConfigError if it does."""
    from dataclasses import replace
    from importlib.util import find_spec

    if network.admin is None or not is_wanted:
        return replace(network, admin=None)
    if all(find_spec(library) for library in ("litestar", "uvicorn")):
        return network
    remedy = "pip install 'hbroker[admin]'"
    if network.admin.is_required:
        message = "the file has `admin`, and the extra `admin` is not installed"
        raise ConfigError(message, file=file, remedy=remedy)
    print(
        f"hbroker: no dashboard and no HTTP API: the extra `admin` is not installed; {remedy}",
        file=sys.stderr,
    )
    return replace(network, admin=None)


def _default_file() -> str:
    """The file of this directory, or the one in the package."""
    from importlib.resources import files

    if os.path.exists(DEFAULT_FILE):
        return DEFAULT_FILE
    brought = files("hbroker") / DEFAULT_FILE
    return str(brought) if brought.is_file() else DEFAULT_FILE


def _with_telemetry(network: Topology, directory: RunDirectory, *, is_wanted: bool) -> Topology:
    """Sets the directory of telemetry: below the network's state, unless the file names another."""
    from dataclasses import replace

    settings = network.telemetry.inside(str(directory.telemetry.absolute()))
    return network.with_telemetry(replace(settings, enabled=settings.enabled and is_wanted))


def _with_key(network: Topology, directory: RunDirectory) -> Topology:
    """The topology with its join key, or with the network's own. Raises ConfigErrors, OSError."""
    from hbroker.runtime.launcher.network_key import own_key

    return network if network.root.join_key else network.with_join_key(own_key(directory))


def _with_security(network: Topology, directory: RunDirectory) -> Topology:
    """The topology with its authority and the identities of its nodes, if it has security. Raises
    ConfigError, OSError."""
    if not network.is_secure:
        return network
    from hbroker.runtime.launcher.identities import provide

    return network.with_security(provide(network, directory, time.time()))


def _renew_certificates(network: Topology, directory: RunDirectory) -> None:
    from hbroker.errors import HBrokerError

    try:
        _with_security(network, directory)
    except (HBrokerError, OSError) as wrong:
        print(f"hbroker: no certificate was renewed: {wrong}", file=sys.stderr)


def _forget_the_dead(network: Topology, directory: RunDirectory) -> None:
    """Removes what is out of date from the nodes' state files: no node of the last run is alive.

    The moves of that run are forgotten, too: a network begins as its file says. But a network in which a node
    has a store goes on as it was, because messages wait where they were stored.
    """
    from hbroker.runtime.node.state_files import NodeStateFiles, forget_stopped_nodes

    memories = {
        node.name: NodeStateFiles(directory.state_file_of(node.name), node.subtrees) for node in network.nodes
    }
    if any(map(_has_store, network.nodes)):
        for files in memories.values():
            files.change_addresses({node.name: node.address for node in network.nodes})
        return
    for damage in forget_stopped_nodes(memories):
        print(f"hbroker: {damage}", file=sys.stderr)


def _has_store(node: NodeSettings) -> bool:
    """Whether a node has a store: each node of this command has a place for it."""
    from hbroker.config import Durability

    return node.durability is not Durability.NONE
