"""How hsub prints a message: its payload, topic and payload (`-v`), or a format (`-F`).

A format is compiled once into a tuple of renderers, each of which makes the bytes of one part. So every error
of a format is found before a message is received, and payloads are printed as their bytes. The language is
mosquitto_sub's: `%` and a letter for a field of the message, with `-`, `0`, a least width and a precision
before the letter; `@` and one character for strftime(3), and `@N` for nanoseconds; `\\` for control
characters.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from .flags import encode_text
from .received import Received

if TYPE_CHECKING:
    from hbroker import Message

__all__ = ["Format", "compile_format", "payload_only", "topic_and_payload"]


Format: TypeAlias = Callable[[Received], bytes]
"""Makes what is printed of a message, without the end of line."""


@dataclass(frozen=True, slots=True)
class _Field:
    """The flags of one `%` sequence. `precision`: None: the whole text."""

    is_left: bool
    pad: str
    width: int
    precision: int | None

    def text(self, text: str) -> bytes:
        """A text, truncated to the precision."""
        return self._justify(encode_text(text[: self.precision]), b" ")

    def number(self, number: int | None) -> bytes:
        """A number; None is blank."""
        return self._justify(b"" if number is None else b"%d" % number, self.pad.encode())

    def raw(self, data: bytes) -> bytes:
        """Bytes, unchanged."""
        return self._justify(data, self.pad.encode())

    def _justify(self, data: bytes, pad: bytes) -> bytes:
        return data.ljust(self.width, b" ") if self.is_left else data.rjust(self.width, pad)


_FIELD: Final = re.compile(r"(-?)(0*)([1-9]\d{0,5})?(?:\.(\d{0,6}))?")
_ESCAPES: Final = {
    "\\": b"\\",
    "0": b"\0",
    "a": b"\a",
    "e": b"\033",
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "v": b"\v",
}

_FIELDS: Final[dict[str, Callable[[_Field, Received], bytes]]] = {
    "%": lambda field, received: b"%",
    "A": lambda field, received: field.number(None),
    "C": lambda field, received: field.text(received.message.content_type),
    "D": lambda field, received: received.message.correlation_data,
    "E": lambda field, received: field.number(received.message.expiry_s),
    "F": lambda field, received: field.number(received.message.payload_format),
    "I": lambda field, received: field.text(_strftime("%Y-%m-%dT%H:%M:%S%z", received)),
    "P": lambda field, received: _user_properties(received.message),
    "R": lambda field, received: _present(field, received.message.response_topic),
    "S": lambda field, received: field.number(None),
    "U": lambda field, received: b"%d.%09d" % divmod(received.at_ns, 1_000_000_000),
    "X": lambda field, received: field.raw(received.message.payload.hex().upper().encode()),
    "l": lambda field, received: field.number(len(received.message.payload)),
    "m": lambda field, received: field.number(received.number),
    "p": lambda field, received: field.raw(received.message.payload),
    "q": lambda field, received: b"%d" % received.message.qos,
    "r": lambda field, received: b"%d" % received.is_retained,
    "t": lambda field, received: field.text(received.message.topic),
    "x": lambda field, received: field.raw(received.message.payload.hex().encode()),
}


def payload_only(received: Received) -> bytes:
    """The payload."""
    return received.message.payload


def topic_and_payload(received: Received) -> bytes:
    """`-v`: the topic, a space, and the payload, or `(null)` if it is empty."""
    return encode_text(received.message.topic) + b" " + (received.message.payload or b"(null)")


def compile_format(text: str, *, pretty: bool = False) -> Format:
    """Compiles a format. `pretty`: JSON over several lines. Raises UsageError."""
    parts = tuple(_parts(text, pretty))

    def render(received: Received) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(received) for part in parts)

    return render


def _parts(text: str, pretty: bool) -> Iterator[bytes | Format]:
    position = 0
    for start in re.finditer(r"[%@\\]", text):
        if start.start() < position:
            continue  # inside the previous sequence: "%%", "@@", "\\\\"
        yield encode_text(text[position : start.start()])
        position = start.end()
        part: bytes | Format
        match start[0]:
            case "%":
                part, position = _percent(text, position, pretty)
            case "@":
                part, position = _at(_letter(text, position)), position + 1
            case _:
                part, position = _escape(_letter(text, position, "escape")), position + 1
        yield part
    yield encode_text(text[position:])


def _percent(text: str, position: int, pretty: bool) -> tuple[Format, int]:
    flags = _FIELD.match(text, position)
    assert flags is not None, "every part of it may be empty"
    letter, end = _letter(text, flags.end()), flags.end() + 1
    if letter in "jJ":
        return (lambda received: _json(received, letter == "J", pretty)), end
    if letter not in _FIELDS:
        raise click.UsageError(f"Invalid format specifier '{letter}'.")
    left, zeros, width, precision = flags.groups()
    field = _Field(
        is_left=bool(left),
        pad="0" if zeros and not left else " ",
        width=int(width or 0),
        precision=None if precision is None else int(precision or 0),
    )
    render = _FIELDS[letter]
    return (lambda received: render(field, received)), end


def _at(letter: str) -> Format:
    if letter == "@":
        return lambda received: b"@"
    if letter == "N":
        return lambda received: b"%09d" % (received.at_ns % 1_000_000_000)
    return lambda received: encode_text(_strftime(f"%{letter}", received))


def _escape(letter: str) -> bytes:
    if letter not in _ESCAPES:
        raise click.UsageError(f"Invalid escape specifier '{letter}'.")
    return _ESCAPES[letter]


def _letter(text: str, position: int, kind: str = "format") -> str:
    if position >= len(text):
        raise click.UsageError(f"Incomplete {kind} specifier.")
    return text[position]


def _strftime(form: str, received: Received) -> str:
    return time.strftime(form, time.localtime(received.at_ns // 1_000_000_000))


def _present(field: _Field, text: str) -> bytes:
    return field.text(text) if text else b""


def _user_properties(message: Message) -> bytes:
    return encode_text(" ".join(f"{name}:{value}" for name, value in message.user_properties))


def _json(received: Received, is_nested: bool, pretty: bool) -> bytes:
    from .json_output import render  # few formats need it, and json takes time to load

    return render(received, is_nested=is_nested, pretty=pretty)
