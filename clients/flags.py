"""The flags of a command line, and their values.

A flag is an option of click, and the typed key of its value: `values[QOS]`. click checks the value by the
flag's type. The flag takes its argument from the command line, and tells errors in mosquitto's words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import click

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Flag(click.Option, Generic[T_co]):
    """One flag, whose value is a T_co.

    `names`: its spellings. `argument`: the name of its argument in errors; a flag without one is a switch.
    `metavar`: the argument's name in the help, if not as in errors. `named`: the flag's name in errors, if
    not its first name. `refusal`: the error if the type refuses the argument, with `{}` for the argument.
    """

    def __init__(
        self,
        *names: str,
        argument: str = "",
        metavar: str = "",
        named: str = "",
        refusal: str = "",
        **attributes: Any,
    ) -> None:
        attributes.setdefault("default", None if argument else False)
        super().__init__(names, is_flag=not argument, metavar=metavar or argument.upper(), **attributes)
        self._missing = f"{named or names[0]} argument given but no {argument} specified."
        self._refusal = refusal

    def read(self, arguments: Iterator[str]) -> Any:
        """The value of an occurrence before these arguments, of which it takes its own. Raises UsageError."""
        if self.is_flag:
            return True
        text = next(arguments, None)
        if text is None:
            raise click.UsageError(self._missing)
        return self.check(text)

    def check(self, text: str) -> Any:
        """The value of an argument. Raises UsageError."""
        try:
            return self.type(text)
        except click.BadParameter:
            raise click.UsageError(self._refusal.format(text)) from None


class Values(click.Context):
    """The values of a command line. `given`: the flags as they came."""

    given: tuple[Flag[Any], ...] = ()

    def __getitem__(self, flag: Flag[T]) -> T:
        """The value of the last occurrence, or of all if the flag is `multiple`; else the flag's default."""
        value: T = self.params[flag.name]
        return value


def whole(least: float = -math.inf, most: float = math.inf) -> Callable[[str], int]:
    """The type of decimal numbers in these bounds. (`int` also accepts "1_0" and digits of other scripts.)"""

    def number(text: str) -> int:
        digits = text.removeprefix("-")
        is_number = digits.isascii() and digits.isdigit() and len(digits) < 19
        if not is_number or not least <= int(text) <= most:
            raise ValueError(f"{text} is not a number from {least} to {most}")
        return int(text)

    return number


def literal_topic(text: str) -> str:
    """The type of topics without wildcards."""
    if "+" in text or "#" in text:
        raise ValueError(text)
    return text


def encode_text(text: str) -> bytes:
    """The bytes of a text, also of an argument that was not UTF-8."""
    return text.encode("utf-8", "surrogateescape")
