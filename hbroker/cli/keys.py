"""`hbroker keys`: makes the authority of a network, and certificates of nodes. It starts nothing."""

from __future__ import annotations

import os
import signal
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
  rotate NETWORK          replaces the authority by another one while the network runs. Call it
                          three times: each call does one of three steps, and says what is to be
                          done before the next one
  issue NAME SUBTREE...   writes what one node needs into the folder --out: NAME.crt, NAME.key
                          (a secret) and authority.crt. If the folder has the node's key already,
                          the certificate is renewed for the same key

examples:
  hbroker keys init topologies/home.yaml
  hbroker keys issue kitchen home/kitchen --out kitchen
  scp -r kitchen kitchen-host:     there, `hbroker node` takes the folder: see its help
  hbroker keys rotate home

exit codes: 0 done, 1 a file cannot be written, 2 wrong flags or topology, or no authority here
"""

_YEAR_DAYS: Final = 365


@command("keys", _TEXT)
@click.argument("action", type=click.Choice(["init", "issue", "rotate"]))
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
    if action != "issue":
        if len(arguments) != 1 or out or days or network:
            what = "topology file" if action == "init" else "network"
            raise click.UsageError(f"{action} is followed by one {what}, and takes --state-dir only")
        if action == "init":
            return _init(arguments[0], state_dir)
        return _rotate(_with_authority(state_dir, Path(arguments[0]).stem))
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


def _rotate(directory: RunDirectory) -> int:
    from hbroker.identity.rotation import rotate

    try:
        step = rotate(directory.authority, directory.identities, time.time())
    except FileNotFoundError as missing:
        raise ConfigError("it is needed, and not here", file=missing.filename, remedy="put it back") from None
    launcher = directory.launcher()
    if launcher is not None:
        os.kill(launcher, signal.SIGHUP)
        print(f"`hbroker up` and its nodes and gateways have been told (SIGHUP to {launcher})")
    print(_NEXT_STEPS[step.value].format(network=directory.network, folder=directory.authority))
    return DONE


_NEXT_STEPS: Final = {
    "prepared": """\
step 1 of 3 is done: there is another authority, and it has signed nothing yet.
Copy {folder}/authority.crt to all other hosts with nodes, gateways and clients, and send SIGHUP
to those nodes and gateways. (Clients notice it by themselves.) Then: hbroker keys rotate {network}""",
    "switched": """\
step 2 of 3 is done: certificates are from now on signed by the other authority.
Issue new ones for nodes on other hosts (hbroker keys issue), copy them there, and send SIGHUP to
those nodes. Then: hbroker keys rotate {network}""",
    "finished": """\
step 3 of 3 is done: nobody on this host believes the old authority any more.
Copy {folder}/authority.crt to all other hosts once more, and send SIGHUP there.""",
}


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
