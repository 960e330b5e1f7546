"""`hbroker join`: makes this host's node part of a network, with a join token."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE
from hbroker.cli.flags import ADDRESS, PATH
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.identity.certificate import NodeCertificate
    from hbroker.runtime.hosts.join_token import JoinToken
    from hbroker.runtime.hosts.node_folder import Place

_TEXT: Final = """\
The token is one file, which `hbroker keys issue` writes on the host with the network's authority.
This command writes the folder of the node (--dir): node.yaml, its key and certificate, that of the
authority, and the join key. Then it runs the node, as `hbroker node --config DIR/node.yaml` does.

Joined already? A further token for the same node replaces its keys and certificates, and leaves
node.yaml as it is. Change that file by hand, and send SIGHUP to a node that runs.

examples:
  hbroker join --token kitchen.join
  hbroker join --root 192.0.2.1:7700 --token kitchen.join --name kitchen --subtree home/kitchen
  sudo hbroker join --token kitchen.join --no-start && sudo systemctl start hbroker-node@kitchen

exit codes: 0 done, or ended as asked, 1 it could not run, 2 wrong flags or token
"""
_OTHERS_READ: Final = 0o004
_ISSUE: Final = "have `hbroker keys issue` make a token for it"


@command("join", _TEXT)
@click.option("--token", type=PATH, metavar="FILE", required=True, help="the join token")
@click.option("--root", type=ADDRESS, help="where to join (default: as the token says)")
@click.option("--name", metavar="NAME", help="the node's name: must be that of the token")
@click.option(
    "--subtree",
    "subtrees",
    metavar="SUBTREE",
    multiple=True,
    help="what to own, within what the token allows (default: all of that); several: repeat",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="the address to bind (default: that of this host towards the root, with port 7700)",
)
@click.option("--advertise", metavar="HOST[:PORT]", help="the address that others are told")
@click.option(
    "--dir",
    "folder",
    type=PATH,
    metavar="DIR",
    help="the node's folder (default: /var/lib/hbroker/NAME for root, else in ~/.local/state/hbroker)",
)
@click.option("--no-start", is_flag=True, help="write the files, and run nothing")
@click.option("--detach", is_flag=True, help="run in the background, and return once the node has joined")
def join(
    token: Path,
    root: str | None,
    name: str | None,
    subtrees: tuple[str, ...],
    listen: str | None,
    advertise: str | None,
    folder: Path | None,
    no_start: bool,
    detach: bool,
) -> int:
    """Does not return if it runs the node in this process. Raises ConfigError, ConfigErrors and OSError."""
    from hbroker.runtime.hosts.join_token import JoinToken
    from hbroker.runtime.hosts.node_folder import NODE_FILE, default_folder, fill

    if no_start and detach:
        raise click.UsageError("--no-start and --detach exclude each other")
    found = JoinToken.read(token)
    certificate = found.check(str(token), time.time())
    if name is not None and name != certificate.name:
        raise ConfigError(f"the token is for the node {certificate.name}", file=str(token), remedy=_ISSUE)
    folder = (folder or default_folder(certificate.name)).absolute()
    file = folder / NODE_FILE
    has_joined = file.exists()
    if has_joined:
        _require_same(file, root, subtrees, listen, advertise)
    place = None
    if not has_joined:
        place = _place(str(token), found, certificate, root, subtrees, listen, advertise)
    if token.stat().st_mode & _OTHERS_READ:
        print(f"hbroker: everybody on this host can read {token}: chmod 600 {token}", file=sys.stderr)
    fill(folder, found, place)
    print(f"{folder}: {'new keys and certificates of ' if has_joined else ''}the node {certificate.name}")
    if no_start:
        again = "if it runs, send it SIGHUP: it reads them again"
        print(again if has_joined else f"run it: hbroker node --config {file}")
        return DONE
    arguments = ["node", "--config", str(file)]
    if detach:
        from hbroker.cli.network.detach import launch

        return launch([*arguments, "--pid-file", str(folder / "node.pid")], folder / "node.log")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "hbroker", *arguments])


def _require_same(
    file: Path, root: str | None, subtrees: tuple[str, ...], listen: str | None, advertise: str | None
) -> None:
    """Raises ConfigError if a flag says something else than the node's file, and ConfigErrors if that is
    wrong."""
    from hbroker.topology.node_file import load_node

    before = load_node(file, {}).settings
    given = {"root": root, "listen": listen, "advertise": advertise}
    wrong = [key for key, value in given.items() if load_node(file, {key: value}).settings != before]
    if subtrees and set(subtrees) != set(before.subtrees):
        wrong.append("subtree")
    if wrong:
        remedy = f"change the file, or leave out {', '.join(f'--{name}' for name in wrong)}"
        raise ConfigError(
            "this node has joined already, and keeps its settings", file=str(file), remedy=remedy
        )


def _place(
    file: str,
    token: JoinToken,
    certificate: NodeCertificate,
    root: str | None,
    subtrees: tuple[str, ...],
    listen: str | None,
    advertise: str | None,
) -> Place:
    """The place of the node, by flags and the token. Raises ConfigError if they contradict each other, or say
    too little."""
    from hbroker.addresses import DEFAULT_PORT, format_address
    from hbroker.runtime.hosts.node_folder import Place

    for subtree in subtrees:
        if not certificate.may_own(subtree):
            allowed = ", ".join(certificate.subtrees)
            raise ConfigError(f"the token allows {allowed}, and not {subtree}", file=file, remedy=_ISSUE)
    owned = subtrees or certificate.subtrees
    if not owned or "" in owned:
        remedy = "name its subtree with --subtree"
        raise ConfigError("the token allows everything, and only a part can join", file=file, remedy=remedy)
    root = root or token.root
    if not root:
        raise ConfigError(
            "the token does not say where the root is", file=file, remedy="add --root HOST:PORT"
        )
    listen = listen or format_address((_own_address(root), DEFAULT_PORT))
    return Place(certificate.name, owned, listen, advertise or "", root)


def _own_address(root: str) -> str:
    """The address of this host from which it would send to the root. Raises OSError if there is no route."""
    from hbroker.runtime.address import parse_place, resolve

    address = resolve(*parse_place(root))
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # Sends nothing.
        own: str = probe.getsockname()[0]
    return own
