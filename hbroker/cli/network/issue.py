"""`hbroker issue`: issues the certificate of a node that runs on another host."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE
from hbroker.cli.flags import PATH, WHOLE, state_dir_flag
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.runtime.launcher.run_directory import RunDirectory

_TEXT = """\
Nodes of `hbroker up` get their certificates by themselves. A node on another host needs a folder
that this command writes: NAME.crt, NAME.key (a secret) and authority.crt. If the folder has the
node's key already, the certificate is renewed for the same key.

examples:
  hbroker issue kitchen home/kitchen --out kitchen
  scp -r kitchen kitchen-host:     there, `hbroker node` takes the folder: see its help

exit codes: 0 issued, 1 a file cannot be written, 2 wrong flags, or no network with security here
"""


@command("issue", _TEXT)
@click.argument("name")
@click.argument("subtree", nargs=-1, required=True)
@click.option("--out", type=PATH, required=True, metavar="DIR", help="the folder to write")
@click.option("--days", type=WHOLE, default=365, show_default=True, help="how long it is valid")
@click.option("--network", metavar="NAME", help="whose authority signs; needed only where there are several")
@state_dir_flag
def issue(
    name: str, subtree: tuple[str, ...], out: Path, days: int, network: str | None, state_dir: Path
) -> int:
    """Returns when the files are written. Raises ConfigError, LocalError and OSError."""
    from hbroker.identity.authority import Authority
    from hbroker.identity.node_identity import Identity
    from hbroker.storage.disk import replace_file

    directory = _with_authority(state_dir, network)
    authority = Authority.load(directory.authority)
    try:
        key = Identity.load(out, name).key
    except FileNotFoundError:
        key = None
    identity = authority.issue(name, subtree, time.time(), validity_s=days * 86_400, key=key)
    identity.save(out)
    replace_file(out / "authority.crt", [(directory.authority / "authority.crt").read_bytes()])
    print(f"{out}: {name} may own {', '.join(subtree)} in {authority.network} for {days} days")
    return DONE


def _with_authority(base: Path, network: str | None) -> RunDirectory:
    """The folder of the network, which has an authority. Raises ConfigError."""
    from hbroker.runtime.launcher.run_directory import RunDirectory

    names = [file.parent.parent.name for file in sorted(base.glob("*/authority/authority.key"))]
    if network is not None and network not in names:
        remedy = "start it with `hbroker up`, or name another with --network"
        raise ConfigError(f"the network {network!r} has no authority here", file=str(base), remedy=remedy)
    if network is None and not names:
        remedy = "start one with `hbroker up`, or give --state-dir"
        raise ConfigError("no network has an authority here", file=str(base), remedy=remedy)
    if network is None and len(names) > 1:
        remedy = f"name one of {', '.join(names)} with --network"
        raise ConfigError("several networks have an authority here", file=str(base), remedy=remedy)
    return RunDirectory(base, network or names[0])
