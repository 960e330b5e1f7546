"""The source of hpub's payloads: one of `-m`, `-f`, `-s`, `-l`, `-n`.

Standard input is read as bytes. With `-l` each line without its end is a message, and is sent when it is
read. The last line may have no end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from .flags import Flag, Values, encode_text

__all__ = ["SOURCES", "open_payloads"]


def open_payloads(values: Values) -> tuple[Iterable[bytes], bool]:
    """The payloads to send, and whether there is just one, so that it may be repeated.

    Raises UsageError and OSError.
    """
    chosen = [flag for flag in values.given if flag in SOURCES]
    if len(chosen) > 1:
        raise click.UsageError("Only one type of message can be sent at once.")
    if not chosen:
        raise click.UsageError("Both topic and message must be supplied.")
    if values[LINES]:
        return _lines(), False
    return (_single(values),), True


def _single(values: Values) -> bytes:
    file = values[FILE]
    if file is not None:
        return _file(file)
    if values[STDIN]:
        return _standard_input()
    return encode_text(values[MESSAGE])


def _file(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError as error:
        raise OSError(f'Unable to open file "{name}": {error.strerror}.') from None


def _standard_input() -> bytes:
    payload = sys.stdin.buffer.read()
    if not payload:
        raise OSError("Zero length input.")
    return payload


def _lines() -> Iterator[bytes]:
    for line in iter(sys.stdin.buffer.readline, b""):
        yield line.removesuffix(b"\n")


MESSAGE: Final = Flag[str]("-m", "--message", argument="message", type=str, default="", help="send this text")
FILE: Final = Flag[str | None](
    "-f", "--file", argument="file", type=click.Path(readable=False), help="send what is in a file"
)
STDIN: Final = Flag[bool]("-s", "--stdin-file", help="send all of standard input as one message")
LINES: Final = Flag[bool]("-l", "--stdin-line", help="send each line of standard input as a message")
NULL: Final = Flag[bool](
    "-n", "--null-message", help="send an empty message; with -r it clears the retained one"
)

SOURCES: Final[tuple[Flag[Any], ...]] = (MESSAGE, FILE, STDIN, LINES, NULL)
