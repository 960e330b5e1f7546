"""The shell completes the command lines of hpub and hsub, by click's mechanism."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from hbroker.clients import hpub, hsub
from hbroker.clients.flags import Flag
from tests.clients.programs import ENVIRONMENT
from tests.product.network import PROJECT


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hpub --re", {"--retain", "--repeat", "--repeat-delay"}),
        ("hpub -t a -m --retain --ret", {"--retain"}),
        ("hpub -D publish user-property a b -t a --ret", {"--retain"}),
        ("hpub -r --re", {"--repeat", "--repeat-delay"}),
        ("hpub --unheard-of --re", {"--retain", "--repeat", "--repeat-delay"}),
        ("hpub -q ''", {"0", "1", "2"}),
        ("hpub -q 9 -V mqttv3", {"mqttv311", "mqttv31"}),
        ("hpub -f LIC", {"LIC"}),
        ("hpub --ca", {"--cafile"}),
        ("hsub -t a --to", {"--token", "--topic"}),
        ("hsub --retai", {"--retained-only", "--retain-as-published"}),
    ],
)
def test_bash_completes(line: str, expected: set[str]) -> None:
    words = shlex.split(line)
    shown = _asked(words[0], "bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    assert {answer.partition(",")[2] for answer in shown.split()} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("program", ["hpub", "hsub"])
def test_each_shell_gets_its_script(program: str, shell: str) -> None:
    assert f"_{program.upper()}_COMPLETE={shell}_complete" in _asked(program, f"{shell}_source")


@pytest.mark.parametrize("flags", [hpub.FLAGS, hsub.FLAGS])
def test_no_two_flags_of_a_program_share_a_name(flags: tuple[Flag[object], ...]) -> None:
    names = [flag.name for flag in flags]
    assert len(set(names)) == len(names)


def _asked(program: str, instruction: str, **line: str) -> str:
    environment = {**ENVIRONMENT, f"_{program.upper()}_COMPLETE": instruction, **line}
    command = [sys.executable, "-m", f"hbroker.clients.{program}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=PROJECT, check=True)
    assert done.stderr == ""
    return done.stdout
