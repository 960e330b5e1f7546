"""The command line itself: what it loads, and what it refuses."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest

from hbroker.cli import main
from hbroker.cli.commands import COMMANDS, Command, Commands
from hbroker.cli.exits import DONE, USAGE

PATIENCE_S = 60.0

Capture = pytest.CaptureFixture[str]


def loaded_by(code: str) -> set[str]:
    """The modules that a new interpreter has loaded after this code."""
    program = f"import sys\n{code}\nprint('loaded:', *sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    return set(ran.stdout.rpartition("loaded: ")[2].split())


def test_help_lists_every_command_in_order(capsys: Capture) -> None:
    assert main(["--help"]) == DONE
    text = capsys.readouterr().out
    listed = re.findall(r"^  ([a-z]+) {2,}(.+)$", text.partition("Commands:\n")[2], re.MULTILINE)
    assert listed[: len(COMMANDS)] == [(name, summary) for name, (_, summary) in COMMANDS.items()]


def test_help_of_all_loads_no_command() -> None:
    loaded = loaded_by("from hbroker.cli import main; main(['--help']); main([]); main(['fly'])")
    assert "hbroker.cli.commands" in loaded
    assert not loaded & {f"hbroker.cli.{module}" for module, _ in COMMANDS.values()}


def test_a_command_loads_no_other() -> None:
    loaded = loaded_by("from hbroker.cli import main; main(['tree', '--help'])")
    assert loaded & {f"hbroker.cli.{module}" for module, _ in COMMANDS.values()} == {
        "hbroker.cli.network.tree"
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_declared_under_its_name(name: str) -> None:
    with click.Context(Commands("hbroker")) as context:
        command = Commands("hbroker").get_command(context, name)
    assert isinstance(command, Command)
    assert command.name == name
    assert command.epilog


@pytest.mark.parametrize("name", COMMANDS)
def test_unknown_flags_are_refused(name: str, capsys: Capture) -> None:
    assert main([name, "--fly"]) == USAGE
    assert "No such option '--fly'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--vers"], ["tree", "--js"], ["tree", "--time", "1"], ["up", "--any", "x"], ["tr"]]
)
def test_nothing_is_abbreviated(arguments: list[str], capsys: Capture) -> None:
    assert main(arguments) == USAGE
    assert "No such " in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_has_a_short_flag(flag: str, capsys: Capture) -> None:
    assert main(["status", flag]) == DONE
    assert capsys.readouterr().out.startswith("Usage: hbroker status [OPTIONS] [NETWORK]\n")
