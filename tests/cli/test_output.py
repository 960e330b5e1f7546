"""Tables and progress, on a terminal and elsewhere."""

from __future__ import annotations

import io
import subprocess
import sys
import threading

import pytest

from hbroker.cli.output import Style, print_table, styled
from hbroker.cli.progress import StartBar, progress
from tests.waiting import until

Capture = pytest.CaptureFixture[str]

HEADER = ("NAME", "STATE", "OUT")
ROWS = [
    ("root", "up", 5),
    ("├─ [bold]kitchen[/bold] :smile:", "joining", 12_345),
    ("│  └─ a\nb", "", ""),
    ("   └─ c", "-", 0),
    ("", "-", 0),
]
TABLE = """\
NAME                             STATE      OUT
root                             up           5
├─ [bold]kitchen[/bold] :smile:  joining  12345
│  └─ a b
   └─ c                          -            0
                                 -            0
"""
STRONG, BAD, END = "\x1b[1m", "\x1b[31m", "\x1b[0m"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        """Claims it."""
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard output and standard error, replaced by a terminal of 60 columns with colours.

    It is no fixture: pytest sets both again when the test begins.
    """
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    for variable, value in (("TERM", "xterm-256color"), ("COLUMNS", "60"), ("LINES", "20")):
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return stream


def test_a_table_is_aligned_and_taken_word_for_word(capsys: Capture) -> None:
    print_table(HEADER, ROWS, numbers=["OUT"])
    assert capsys.readouterr().out == TABLE


def test_no_line_ends_with_spaces(capsys: Capture) -> None:
    print_table(("A", ""), [("long value", "x"), ("", "long value")])
    assert capsys.readouterr().out == "A\nlong value  x\n            long value\n"


def test_a_table_without_rows_is_its_header(capsys: Capture) -> None:
    print_table(HEADER, [], numbers=["OUT"])
    assert capsys.readouterr().out == "NAME  STATE  OUT\n"


def test_a_wide_table_is_whole_and_plain_where_there_is_no_terminal(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in (("COLUMNS", "20"), ("FORCE_COLOR", "1"), ("TTY_COMPATIBLE", "1")):
        monkeypatch.setenv(variable, value)
    print_table(("WIDE", "NUMBER"), [("x" * 3_000, 7)], numbers=["NUMBER"])
    header, row = capsys.readouterr().out.splitlines()
    assert header == "WIDE".ljust(3_002) + "NUMBER"
    assert row == "x" * 3_000 + "       7"


def test_on_a_terminal_the_header_is_strong(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    print_table(HEADER, ROWS, numbers=["OUT"])
    first, rest = TABLE.split("\n", 1)
    assert terminal.getvalue() == f"{STRONG}{first}{END}\n{rest}"


def test_a_narrow_terminal_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    print_table(("WIDE", "NUMBER"), [("x" * 100, 7)], numbers=["NUMBER"])
    assert terminal.getvalue().split("\n")[1] == "x" * 100 + "       7"


def test_no_color_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    assert styled("lost", Style.BAD) == f"{BAD}lost{END}"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("lost", Style.BAD) == "lost"
    print_table(HEADER, ROWS, numbers=["OUT"])
    assert terminal.getvalue() == TABLE


def test_progress_is_a_line_for_each_step(capsys: Capture) -> None:
    with progress(is_silent=False, parts=2) as shown:
        shown.say("[1/2] home/kitchen: to bedroom")
        shown.advance()
    with progress(is_silent=True) as shown:
        shown.say("nothing")
    captured = capsys.readouterr()
    assert captured.err == "[1/2] home/kitchen: to bedroom\n"
    assert captured.out == ""


def test_on_a_terminal_the_last_step_is_live(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "120")
    with progress(is_silent=False, parts=2) as shown:
        shown.say("[1/2] home/[kitchen]: to bedroom")
        shown.advance()
        until(lambda: "━" in terminal.getvalue(), "it is drawn", 10.0)
    drawn = terminal.getvalue()
    assert drawn.startswith(HIDE_CURSOR)
    assert drawn.count("[1/2] home/[kitchen]: to bedroom\n") == 1
    assert SHOW_CURSOR in drawn


def test_while_a_network_starts_a_terminal_shows_how_many_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    threads = threading.active_count()
    with StartBar(3, is_silent=False) as bar:
        bar.show(2)
        assert "2/3" in terminal.getvalue()
        assert threading.active_count() == threads, "the launcher forks"
        bar.print("kitchen ended")
        bar.end()
        terminal.truncate(0)
        bar.print("ready")
        assert terminal.getvalue().lstrip("\0") == "ready\n"


def test_where_there_is_no_terminal_there_is_no_bar(capsys: Capture) -> None:
    with StartBar(3, is_silent=False) as bar:
        bar.show(2)
        bar.print("ready")
    assert capsys.readouterr().out == "ready\n"


def test_rich_is_loaded_only_for_a_table_or_a_terminal() -> None:
    code = (
        "import sys\nfrom hbroker.cli import main\nfrom hbroker.cli.output import print_table\n"
        "main(['--help']); main(['status']); main(['check'])\n"
        "assert 'rich' not in sys.modules\nprint_table(['A'], [])\nassert 'rich' in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
