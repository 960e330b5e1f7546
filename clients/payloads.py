"""The source of hpub's payloads: one of `-m`, `-f`, `-s`, `-l`, `-n`.

Standard input is read as bytes. With `-l` each line without its end is a message, and is sent when it is
read. The last line may have no end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from .flags import Flag, UsageError, Values, option, switch
from .formatting import encode_text

__all__ = ["SOURCES", "InputError", "open_payloads"]


class InputError(OSError):
    """A file or standard input cannot be sent. The text is the reason."""


def open_payloads(values: Values) -> tuple[Iterable[bytes], bool]:
    """The payloads to send, and whether there is just one, so that it may be repeated.

    Raises UsageError and InputError.
    """
    chosen = [flag for flag in SOURCES for _ in range(len(values.all(flag)))]
    if len(chosen) > 1:
        raise UsageError("Only one type of message can be sent at once.")
    if not chosen:
        raise UsageError("Both topic and message must be supplied.")
    if LINES in values:
        return _lines(), False
    return (_single(values),), True


def _single(values: Values) -> bytes:
    if FILE in values:
        return _file(values.last(FILE, ""))
    if STDIN in values:
        return _standard_input()
    return encode_text(values.last(MESSAGE, ""))


def _file(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise InputError(f'Unable to open file "{name}": {error.strerror}.') from None


def _standard_input() -> bytes:
    payload = sys.stdin.buffer.read()
    if not payload:
        raise InputError("Zero length input.")
    return payload


def _lines() -> Iterator[bytes]:
    for line in iter(sys.stdin.buffer.readline, b""):
        yield line.removesuffix(b"\n")


MESSAGE: Final = option("-m", "--message", argument="message", parse=str, help="send this text")
FILE: Final = option("-f", "--file", argument="file", parse=str, help="send what is in a file")
STDIN: Final = switch("-s", "--stdin-file", help="send all of standard input as one message")
LINES: Final = switch("-l", "--stdin-line", help="send each line of standard input as a message")
NULL: Final = switch("-n", "--null-message", help="send an empty message; with -r it clears the retained one")

SOURCES: Final[tuple[Flag[Any], ...]] = (MESSAGE, FILE, STDIN, LINES, NULL)
