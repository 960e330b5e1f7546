"""What commands print: aligned columns for a person, JSON for a program.

Columns are parted by two spaces and nothing is drawn around them, so that a terminal and `grep` read the
same. Colour only on a terminal, and not where NO_COLOR is set.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from enum import Enum


class Style(Enum):
    """Emphasis on a terminal."""

    STRONG = "1"
    BAD = "31"
    GOOD = "32"


def print_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2, default=str), flush=True)


def print_json_line(value: object) -> None:
    """One line of a stream of JSON documents."""
    print(json.dumps(value, default=str), flush=True)


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Sequence[str] = ()
) -> None:
    """Aligned columns under their names; those named in `numbers` to the right."""
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
    """The text with emphasis, where stdout shows it."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{style.value}m{text}\x1b[0m"


def print_ready(name: str, text: str) -> None:
    """The line by which whoever started this process knows that it serves. Nobody need be reading."""
    try:
        print(f"ready {name}: {text}", flush=True)
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Lets go of stdout, which nobody reads any more, before the interpreter finds that out at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def duration(seconds: float) -> str:
    """A length of time at the precision that a person wants: `0.42 s`, `3 min 7 s`, `2 d 4 h`."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    total = int(seconds)
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    index = next(i for i, (size, _) in enumerate(units) if total >= size)
    (size, name), (below, below_name) = units[index], units[index + 1]
    return f"{total // size} {name} {total % size // below} {below_name}"
