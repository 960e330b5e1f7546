"""The output of commands: aligned columns for a person, JSON for a program.

Two spaces separate columns, without lines around them, so that the output suits a terminal and `grep`. Output
has colour only on a terminal, and only if NO_COLOR is not set. rich is imported only for a table or a colour.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from enum import Enum


class Style(Enum):
    """Emphasis on a terminal, as rich names it."""

    STRONG = "bold"
    BAD = "red"
    GOOD = "green"


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
    from rich.cells import cell_len
    from rich.control import strip_control_codes

    lines = [[strip_control_codes(str(value)).replace("\n", " ") for value in row] for row in (header, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]

    def aligned(line: Sequence[str]) -> str:
        fields = []
        for text, width, name in zip(line, widths, header, strict=True):
            space = " " * (width - cell_len(text))
            fields.append(space + text if name in numbers else text + space)
        return "  ".join(fields).rstrip()

    print(styled(aligned(lines[0]), Style.STRONG))
    for line in lines[1:]:
        print(aligned(line))


def styled(text: str, style: Style) -> str:
    """The text with emphasis if stdout is a terminal and NO_COLOR is not set; otherwise the text."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    from rich import style as rich

    return rich.Style.parse(style.value).render(text)


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
