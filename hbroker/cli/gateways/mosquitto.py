"""`hbroker import`: makes a topology file of a configuration of mosquitto."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import PATH, json_flag
from hbroker.cli.output import print_json, print_table
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.mosquitto.conversion import Conversion

_TEXT = """\
FILE is a mosquitto.conf (version 2), with the files that it includes. The new files are written to
DIR: FILE's name with .yaml, a topology file with one node, one gateway, and the bridges; `users` and
`rules`, if FILE has passwords or access rules; and the passwords of bridges. Passwords stay as they
are: mosquitto's hashes are accepted.
FILE and mosquitto's data are not changed, and messages that wait there are not taken over.

Every line of FILE is accounted for: converted, not needed (hbroker does the same), not converted
(the table says what to do), or unknown. So read the table to its end before devices move.

examples:
  hbroker import /etc/mosquitto/mosquitto.conf --out site
  hbroker check site/mosquitto.yaml && hbroker up site/mosquitto.yaml

--json prints {topology, files, remarks, lines: [{place, option, outcome, text}]}

exit codes: 0 written, and nothing is left to do, 1 written, and some lines were not converted,
  2 a file cannot be read, or is wrong; nothing was written
"""
_MODE: Final = 0o600


@command("import", _TEXT)
@click.option(
    "--out", type=PATH, default=".", metavar="DIR", show_default=True, help="where files are written"
)
@click.option("--force", is_flag=True, help="replace files that are there")
@click.argument("file", type=PATH)
@json_flag
def import_(file: Path, out: Path, force: bool, as_json: bool) -> int:
    """Returns 0 if every line was converted or is not needed, else 1. Raises ConfigError and ConfigErrors for
    what cannot be read, and OSError for what cannot be written."""
    from hbroker.mosquitto.conf_file import read
    from hbroker.mosquitto.conversion import convert

    conversion = convert(read(file), _name_of(file), has_ipv6=_has_ipv6())
    paths = {out / name: text for name, text in conversion.files.items()}
    for path in () if force else paths:
        if path.exists():
            remedy = "name another directory by --out, or add --force"
            raise ConfigError("the file is there already", file=str(path), remedy=remedy)
    out.mkdir(parents=True, exist_ok=True)
    for path, text in paths.items():
        _write(path, text)
    topology = out / conversion.topology
    if as_json:
        _print_json(conversion, topology, [str(path) for path in paths])
    else:
        _print(conversion, topology, [str(path) for path in paths])
    return DONE if conversion.report.is_complete else FAILED


def _name_of(file: Path) -> str:
    """The name of the network. Raises ConfigError if it may not have the name of the file."""
    from hbroker.config import NAME

    if not NAME.fullmatch(file.stem):
        remedy = "copy the file to another name: letters, digits, `-`, `_` and `.`"
        raise ConfigError("the network would have an invalid name", file=str(file), remedy=remedy)
    return file.stem


def _has_ipv6() -> bool:
    """Whether this host can listen on `::`."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


def _write(path: Path, text: str) -> None:
    """Writes a file that no other user may read: it may hold hashes of passwords."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _print_json(conversion: Conversion, topology: Path, paths: list[str]) -> None:
    lines = [
        {"place": o.place, "option": o.option, "outcome": o.fate.value, "text": o.text}
        for o in conversion.report.outcomes
    ]
    remarks = conversion.report.remarks
    print_json({"topology": str(topology), "files": paths, "remarks": remarks, "lines": lines})


def _print(conversion: Conversion, topology: Path, paths: list[str]) -> None:
    from hbroker.mosquitto.outcome import Fate

    order = list(Fate)
    outcomes = sorted(conversion.report.outcomes, key=lambda outcome: order.index(outcome.fate))
    rows = [(o.fate.value, o.place, o.option, o.text) for o in outcomes]
    if rows:
        print_table(("outcome", "line", "option", "what became of it"), rows)
    for remark in conversion.report.remarks:
        print(f"note: {remark}")
    print(f"wrote {', '.join(paths)}")
    left = sum(o.fate in (Fate.MISSING, Fate.UNKNOWN) for o in outcomes)
    if left:
        print(f"{left} line{'s' if left > 1 else ''} to look at: not converted, or unknown")
    print(f"next: hbroker check {topology}")
