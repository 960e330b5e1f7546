"""`hbroker keys`: makes the authority of a network, and certificates of nodes. It starts nothing."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE
from hbroker.cli.flags import ADDRESS, PATH, WHOLE, authority_of, state_dir_flag, with_authority
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.runtime.launcher.run_directory import RunDirectory

_TEXT: Final = """\
`hbroker up` makes the keys of a network at its first start. This command makes them where nodes
start by themselves (`hbroker node`), and for nodes on other hosts.

  init FILE               makes the authority of the network in this topology file, its join key,
                          the keys and certificates of its nodes, and the operator's token if it
                          requires tokens, as `hbroker up` does. Existing keys are kept; what has
                          little time left is renewed
  rotate NETWORK STEP     replaces the authority by another one while the network runs, in the
                          steps 1, 2 and 3. Each says what is to be done before the next one. A
                          step can be done again
  issue NAME SUBTREE...   writes a join token (a secret): one file with all that `hbroker join`
                          needs on another host. If the file is a join token of this node already,
                          the certificate is renewed for the same key

examples:
  hbroker keys init topologies/home.yaml
  hbroker keys issue kitchen home/kitchen --root 192.0.2.1:7700
  scp kitchen.join kitchen-host:   there, `hbroker join` takes the file: see its help
  hbroker keys rotate home 1

exit codes: 0 done, 1 a file cannot be written, 2 wrong flags or topology, or no authority here
"""

_YEAR_DAYS: Final = 365
_LOOPBACK: Final = ("127.", "[::1]")
"""What addresses begin with that no other host reaches."""
_CLIENTS_LOOK_S: Final = 6.0
"""Clients look every five seconds whether their files have changed."""


@command("keys", _TEXT)
@click.argument("action", type=click.Choice(["init", "issue", "rotate"]))
@click.argument("arguments", metavar="...", nargs=-1, required=True)
@click.option("--out", type=PATH, metavar="FILE", help="issue: the file to write (default: NAME.join)")
@click.option(
    "--root",
    type=ADDRESS,
    help="issue: the root, as the other host reaches it (default: as the network last ran)",
)
@click.option("--days", type=WHOLE, metavar="N", help=f"issue: how long it is valid (default: {_YEAR_DAYS})")
@click.option("--network", metavar="NAME", help="issue: whose authority signs, if there are several")
@state_dir_flag
def keys(
    action: str,
    arguments: tuple[str, ...],
    out: Path | None,
    root: str | None,
    days: int | None,
    network: str | None,
    state_dir: Path,
) -> int:
    """Returns when the files are written. Raises UsageError, ConfigErrors, HBrokerError and OSError."""
    if action != "issue" and (out or root or days or network):
        raise click.UsageError(f"{action} takes --state-dir only")
    if action == "init":
        if len(arguments) != 1:
            raise click.UsageError("init is followed by one topology file")
        return _init(arguments[0], state_dir)
    if action == "rotate":
        if len(arguments) != 2 or arguments[1] not in ("1", "2", "3"):
            raise click.UsageError("rotate is followed by the name of a network, and by 1, 2 or 3")
        return _rotate(with_authority(state_dir, arguments[0]), arguments[1])
    name, *subtrees = arguments
    if not subtrees:
        raise click.UsageError("issue is followed by a name and its subtrees")
    file = out or Path(f"{name}.join")
    return _issue(name, subtrees, file, root, days or _YEAR_DAYS, with_authority(state_dir, network))


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
    if provided.token:
        print(f"{provided.token}: the operator's token, for gateways and commands (a secret)")
    print(f"{provided.authority}: the certificate of the authority, for all nodes, gateways and clients")
    names = ", ".join(node.name for node in network.nodes)
    print(f"{provided.identity}: the keys (secrets) and certificates of the nodes {names}")
    return DONE


def _issue(
    name: str, subtrees: list[str], out: Path, root: str | None, days: int, directory: RunDirectory
) -> int:
    from hbroker.runtime.hosts.join_token import JoinToken
    from hbroker.runtime.launcher.network_key import key_of

    authority = authority_of(directory)
    run = directory.read()
    if run is None and not directory.join_key_file.exists():
        remedy = "make it with `hbroker keys init FILE`"
        raise ConfigError("the network has no join key", file=str(directory.path), remedy=remedy)
    join_key = key_of(directory, run)
    if run and not root:
        known = next((node.address for node in run.nodes if not node.subtree), "")
        root = "" if known.startswith(_LOOPBACK) else known
    identity = authority.issue(name, subtrees, time.time(), validity_s=days * 86_400, key=_key_in(out, name))
    requires_tokens = run.token is not None if run else directory.operator_token_file.exists()
    believed = (directory.authority / "authority.crt").read_bytes()
    JoinToken(root or "", requires_tokens, join_key, identity, believed).write(out)
    print(f"{out}: {name} may own {', '.join(subtrees)} in {authority.network} for {days} days (a secret)")
    where = "" if root else " --root HOST:PORT"
    print(f"on the other host: hbroker join --token {out.name}{where}")
    return DONE


def _key_in(file: Path, name: str) -> bytes | None:
    """The key of the node in an earlier join token; None: there is no file. Raises ConfigError and
    ConfigErrors if the file is something else."""
    from hbroker.runtime.hosts.join_token import JoinToken

    if not file.exists():
        return None
    identity = JoinToken.read(file).identity
    if identity.certificate.name != name:
        remedy = "name another file with --out"
        raise ConfigError(f"that is for the node {identity.certificate.name}", file=str(file), remedy=remedy)
    return identity.key


def _rotate(directory: RunDirectory, step: str) -> int:
    from hbroker.identity.rotation import RotationStep, rotate

    number = int(step)
    if number == 3:
        _await_clients(directory.operator_token_file)
    try:
        wanted = RotationStep(number % len(RotationStep))
        rotate(directory.authority, directory.identities, wanted, time.time())
    except FileNotFoundError as missing:
        raise ConfigError("it is needed, and not here", file=missing.filename, remedy="put it back") from None
    launcher = directory.launcher()
    if launcher is not None:
        with suppress(ProcessLookupError):
            os.kill(launcher, signal.SIGHUP)
            print(f"`hbroker up` and its nodes and gateways read their files again (SIGHUP to {launcher})")
    after = _AFTER_STEPS[number - 1].format(network=directory.network, folder=directory.authority)
    print(f"step {number} of 3 is done: {after}")
    return DONE


def _await_clients(token: Path) -> None:
    """Waits until clients of this host have read the operator's token that the next authority has signed."""
    try:
        left_s = token.stat().st_mtime + _CLIENTS_LOOK_S - time.time()
    except FileNotFoundError:
        return
    if 0 < left_s <= _CLIENTS_LOOK_S:
        print(f"waiting {left_s:.0f} s for the clients of this host to read their new token", flush=True)
        time.sleep(left_s)


_AFTER_STEPS: Final = (
    """\
there is another authority, which has signed nothing yet.
Copy {folder}/authority.crt to all other hosts with nodes, gateways and clients, and send SIGHUP
to all nodes and gateways that `hbroker up` does not run. Clients notice within five seconds.
Then: hbroker keys rotate {network} 2""",
    """\
the other authority signs from now on.
If `hbroker up` does not run the nodes of this host, call `hbroker keys init FILE`, and send them
SIGHUP. For each node on another host call `hbroker keys issue`, and there `hbroker join --token
FILE --no-start`, and send it SIGHUP. Make all tokens anew, too, with `hbroker token create`.
Then: hbroker keys rotate {network} 3""",
    """\
the old authority is not believed any more.
Copy {folder}/authority.crt to all other hosts once more, and send SIGHUP to all nodes and
gateways that `hbroker up` does not run.""",
)
