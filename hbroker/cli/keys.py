"""`hbroker keys`: makes the authority of a network, and certificates of nodes. It starts nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE
from hbroker.cli.flags import PATH, WHOLE, state_dir_flag
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.runtime.launcher.run_directory import RunDirectory

_TEXT: Final = """\
`hbroker up` makes the keys of a network at its first start. This command makes them where nodes
start by themselves (`hbroker node`), and for nodes on other hosts.

  init FILE               makes the authority of the network in this topology file, its join key,
                          and the keys and certificates of its nodes, as `hbroker up` does. What
                          is there is kept; certificates with little time left are renewed
  issue NAME SUBTREE...   writes what one node needs into the folder --out: NAME.crt, NAME.key
                          (a secret) and authority.crt. If the folder has the node's key already,
                          the certificate is renewed for the same key

examples:
  hbroker keys init topologies/home.yaml
  hbroker keys issue kitchen home/kitchen --out kitchen
  scp -r kitchen kitchen-host:     there, `hbroker node` takes the folder: see its help

exit codes: 0 done, 1 a file cannot be written, 2 wrong flags or topology, or no authority here
"""

_YEAR_DAYS: Final = 365


@command("keys", _TEXT)
@click.argument("action", type=click.Choice(["init", "issue"]))
@click.argument("arguments", metavar="...", nargs=-1, required=True)
@click.option("--out", type=PATH, metavar="DIR", help="issue: the folder to write")
@click.option("--days", type=WHOLE, metavar="N", help=f"issue: how long it is valid (default: {_YEAR_DAYS})")
@click.option("--network", metavar="NAME", help="issue: whose authority signs, if there are several")
@state_dir_flag
def keys(
    action: str,
    arguments: tuple[str, ...],
    out: Path | None,
    days: int | None,
    network: str | None,
    state_dir: Path,
) -> int:
    """Returns when the files are written. Raises UsageError, ConfigErrors, HBrokerError and OSError."""
    if action == "init":
        if len(arguments) != 1 or out or days or network:
            raise click.UsageError("init is followed by one topology file, and takes --state-dir only")
        return _init(arguments[0], state_dir)
    name, *subtrees = arguments
    if not subtrees or out is None:
        raise click.UsageError("issue is followed by a name and its subtrees, and needs --out")
    return _issue(name, subtrees, out, days or _YEAR_DAYS, _with_authority(state_dir, network))


def _init(file: str, state_dir: Path) -> int:
    from hbroker import topology
    from hbroker.runtime.launcher.identities import provide
    from hbroker.runtime.launcher.network_key import own_key
    from hbroker.runtime.launcher.run_directory import RunDirectory

    network = topology.load(file)
    if not network.is_secure:
        raise ConfigError("the network's security is off", file=file, remedy="remove `security: off`")
    directory = RunDirectory(state_dir, network.name)
    lock = directory.acquire()
    try:
        provided = provide(network, directory, time.time())
        if not network.root.join_key:
            own_key(directory)
            print(f"{directory.join_key_file}: the join key, for all nodes and gateways (a secret)")
    finally:
        os.close(lock)
    print(f"{provided.authority}: the certificate of the authority, for all nodes, gateways and clients")
    names = ", ".join(node.name for node in network.nodes)
    print(f"{provided.identity}: the keys (secrets) and certificates of the nodes {names}")
    return DONE


def _issue(name: str, subtrees: list[str], out: Path, days: int, directory: RunDirectory) -> int:
    from hbroker.identity.authority import Authority
    from hbroker.identity.node_identity import Identity
    from hbroker.storage.disk import replace_file

    try:
        authority = Authority.load(directory.authority)
    except FileNotFoundError:
        file = str(directory.authority / "authority.key")
        raise ConfigError("the key of the authority is not here", file=file, remedy="put it back") from None
    try:
        key = Identity.load(out, name).key
    except FileNotFoundError:
        key = None
    identity = authority.issue(name, subtrees, time.time(), validity_s=days * 86_400, key=key)
    identity.save(out)
    replace_file(out / "authority.crt", [(directory.authority / "authority.crt").read_bytes()])
    print(f"{out}: {name} may own {', '.join(subtrees)} in {authority.network} for {days} days")
    return DONE


def _with_authority(base: Path, network: str | None) -> RunDirectory:
    """The folder of the network, which has an authority. Raises ConfigError."""
    from hbroker.runtime.launcher.run_directory import RunDirectory

    names = [file.parent.parent.name for file in sorted(base.glob("*/authority/authority.crt"))]
    if network is not None and network not in names:
        remedy = "make it with `hbroker keys init FILE`, or name another with --network"
        raise ConfigError(f"the network {network!r} has no authority here", file=str(base), remedy=remedy)
    if network is None and not names:
        remedy = "make it with `hbroker keys init FILE`, or give --state-dir"
        raise ConfigError("no network has an authority here", file=str(base), remedy=remedy)
    if network is None and len(names) > 1:
        remedy = f"name one of {', '.join(names)} with --network"
        raise ConfigError("several networks have an authority here", file=str(base), remedy=remedy)
    return RunDirectory(base, network or names[0])
