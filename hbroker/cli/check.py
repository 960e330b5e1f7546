"""`hbroker check`: validates topology files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, USAGE
from hbroker.cli.flags import FILE, json_flag
from hbroker.cli.output import print_json

if TYPE_CHECKING:
    from hbroker.topology import Topology

_TEXT = """\
Tells every error of every file, with its line and what to do about it. The files that gateways
and bridges need (users, rules, passwords, certificates) are read, too.

examples:
  hbroker check topologies/home.yaml
  hbroker check topologies/*.yaml --json

--json prints {valid, files: [{file, valid, nodes, errors: [{file, line, message, remedy}]}]}

exit codes: 0 all are valid, 2 one is not
"""


@command("check", _TEXT)
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@json_flag
def check(files: tuple[str, ...], as_json: bool) -> int:
    """Returns 0 only if every file is valid."""
    results = [_check(file) for file in files]
    valid = all(not result["errors"] for result in results)
    if as_json:
        print_json({"valid": valid, "files": results})
        return DONE if valid else USAGE
    for result in results:
        _print(result)
    return DONE if valid else USAGE


def _check(file: str) -> dict[str, Any]:
    from hbroker import topology
    from hbroker.errors import ConfigErrors
    from hbroker.runtime.gateway.files import require_files

    network: Topology | None = None
    errors: list[dict[str, Any]] = []
    try:
        network = topology.load(file)
        require_files(network.gateways)
        if network.bridges:
            from hbroker.runtime.bridge.files import require_bridges

            require_bridges(network.bridges, file)
    except ConfigErrors as wrong:
        errors = [
            {"file": e.file, "line": e.line, "message": e.message, "remedy": e.remedy} for e in wrong.errors
        ]
    nodes = len(network.nodes) if network else None
    return {"file": file, "valid": not errors, "nodes": nodes, "errors": errors}


def _print(result: dict[str, Any]) -> None:
    file = result["file"]
    for error in result["errors"]:
        where = error["file"] if error["line"] is None else f"{error['file']}:{error['line']}"
        print(f"{where}: {error['message']}; {error['remedy']}", file=sys.stderr)
    if result["valid"]:
        count = result["nodes"]
        print(f"{file}: valid, {count} node{'s' if count > 1 else ''}")
