"""`hbroker doctor`: checks whether this host can run its part of a network."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import FILE, json_flag, state_dir_flag
from hbroker.cli.output import Style, print_json, styled

if TYPE_CHECKING:
    from hbroker.config import GatewaySettings, NodeSettings
    from hbroker.runtime.hosts.checks.finding import Finding

_TEXT: Final = """\
Each line is a check: ok, warning (it works, and could be better) or error (it does not work). Below
a warning or an error stands the command that mends it. Nothing is changed. Run it as the user who
runs the node: what others may do says little.

Without a file it checks the host: versions, buffers of sockets, UDP GSO and GRO, the clock, open
files, the disk. With the file of a node, or a topology, also ports, certificates, modes of secret
files, the MTU towards the root, and whether the root answers.

examples:
  hbroker doctor
  hbroker doctor --config /var/lib/hbroker/kitchen/node.yaml
  hbroker doctor topologies/home.yaml --json

--json prints {ok, findings: [{check, level, what, remedy}]}

exit codes: 0 no error was found, 1 there is one, 2 wrong flags or files
"""
_PATIENCE_S: Final = 3.0
_STYLES: Final = {"ok": Style.GOOD, "warning": Style.STRONG, "error": Style.BAD}


@command("doctor", _TEXT)
@click.argument("topology", required=False, type=FILE, help="a topology file: check its nodes, too")
@click.option("--config", type=FILE, metavar="FILE", help="the file of a node: check that node, too")
@state_dir_flag
@json_flag
def doctor(topology: str | None, config: str | None, state_dir: Path, as_json: bool) -> int:
    """Returns 0 if no check found an error. Raises ConfigErrors if a file is wrong."""
    from hbroker.runtime.hosts.checks.finding import Level

    if topology and config:
        raise click.UsageError("give a topology file, or --config FILE")
    nodes, gateways, folder = _checked(topology, config, state_dir)
    findings = []
    for finding in _findings(nodes, gateways, folder):
        findings.append(finding)
        if not as_json:
            _print(finding)
    is_ok = all(finding.level is not Level.ERROR for finding in findings)
    if as_json:
        shown = [
            {"check": each.check, "level": each.level.value, "what": each.what, "remedy": each.remedy}
            for each in findings
        ]
        print_json({"ok": is_ok, "findings": shown})
    return DONE if is_ok else FAILED


def _checked(
    topology: str | None, config: str | None, state_dir: Path
) -> tuple[tuple[NodeSettings, ...], tuple[GatewaySettings, ...], Path]:
    """The nodes and gateways to check, and the folder of their state. Raises ConfigErrors."""
    if config:
        from hbroker.topology.node_file import load_node

        file = load_node(config, {})
        return (file.settings,), (), file.memory.parent if file.memory else Path()
    if topology is None:
        return (), (), state_dir
    from hbroker.config import SecuritySettings
    from hbroker.runtime.launcher.run_directory import RunDirectory
    from hbroker.topology import load

    network = load(topology)
    directory = RunDirectory(state_dir, network.name)
    authority = directory.authority / "authority.crt"
    if network.is_secure and authority.exists():
        network = network.with_security(SecuritySettings(str(authority), str(directory.identities)))
    return network.nodes, network.gateways, directory.path


def _findings(
    nodes: tuple[NodeSettings, ...], gateways: tuple[GatewaySettings, ...], folder: Path
) -> Iterator[Finding]:
    import hbroker
    from hbroker.runtime.hosts.checks import disk, network, secrets, system

    yield system.check_versions(hbroker.__version__)
    yield system.check_buffers()
    yield system.check_segmentation()
    yield system.check_clock()
    yield system.check_open_files(has_gateway=bool(gateways))
    yield disk.check_space(folder)
    yield disk.check_sync(folder)
    names = {node.name for node in nodes if node.is_root}
    for node in nodes:
        yield network.check_port(node)
        if node.security.is_on or len(nodes) == 1:
            yield secrets.check_certificate(node, time.time())
        if node.security.is_on:
            yield secrets.check_mode(Path(node.security.identity, f"{node.name}.key"))
    for gateway in gateways:
        for listener in gateway.listeners:
            yield network.check_listener(gateway.name, listener)
    if nodes and (folder / "join.key").exists():
        yield secrets.check_mode(folder / "join.key")
    roots = {node.root: node.security.authority for node in nodes if node.root and not names}
    for root, authority in roots.items():
        yield network.check_path(root)
        yield network.check_root(root, partial(_ask, authority))


def _ask(authority: str, root: str) -> None:
    """Sends the root a request. Raises the errors of a client. `authority`: empty: security is off."""
    from hbroker import sync

    with sync.connect(root, timeout=_PATIENCE_S, authority=authority or None) as client:
        client.resolve("$SYS/nodes", timeout=_PATIENCE_S)


def _print(finding: Finding) -> None:
    level = finding.level.value
    print(f"{styled(f'{level:<7}', _STYLES[level])}  {finding.check:<12}  {finding.what}", flush=True)
    if finding.remedy:
        print(f"{'':<7}  {'':<12}  -> {finding.remedy}", flush=True)
