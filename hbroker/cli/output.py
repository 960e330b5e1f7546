"""The output of commands: aligned columns for a person, JSON for a program.

Two spaces separate columns, without lines around them, so that the output suits a terminal and `grep`. Output
has colour only on a terminal, and only if NO_COLOR is not set.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from enum import Enum


class Style(Enum):
    """Emphasis on a terminal."""

    STRONG = "1"
    BAD = "31"
    GOOD = "32"


def print_json(value: object) -> None:
    """Prints one JSON document."""
    print(json.dumps(value, indent=2, default=str), flush=True)


def print_json_line(value: object) -> None:
    """Prints one line of a stream of JSON documents."""
    print(json.dumps(value, default=str), flush=True)


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Sequence[str] = ()
) -> None:
    """Prints aligned columns under their names. Those named in `numbers` are aligned to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(header), *cells]) for i in range(len(header))]

    def aligned(line: Sequence[str]) -> str:
        fields = zip(line, widths, header, strict=True)
        texts = [cell.rjust(w) if name in numbers else cell.ljust(w) for cell, w, name in fields]
        return "  ".join(texts).rstrip()

    print(styled(aligned(header), Style.STRONG))
    for row in cells:
        print(aligned(row))


def styled(text: str, style: Style) -> str:
    """The text with emphasis if stdout is a terminal and NO_COLOR is not set; otherwise the text."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{style.value}m{text}\x1b[0m"


def narrator(*, is_silent: bool) -> Callable[[str], None]:
    """The function to call with a line of progress, which goes to standard error, or nowhere."""

    def say(line: str) -> None:
        if not is_silent:
            print(line, file=sys.stderr, flush=True)

    return say


def print_ready(name: str, text: str) -> None:
    """Prints the line that reports that this process serves. A closed pipe is no error."""
    try:
        print(f"ready {name}: {text}", flush=True)
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Redirects stdout to /dev/null, because its reader has gone. Otherwise the interpreter would fail at its
    end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def duration(seconds: float) -> str:
    """A duration with two units at most: `0.42 s`, `3 min 7 s`, `2 d 4 h`."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    total = int(seconds)
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    index = next(i for i, (size, _) in enumerate(units) if total >= size)
    (size, name), (below, below_name) = units[index], units[index + 1]
    return f"{total // size} {name} {total % size // below} {below_name}"
