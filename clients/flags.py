"""Reads a command line as mosquitto's programs do.

Arguments are read one after the other. A flag is an argument with exactly its spelling. It takes the
arguments that follow it, whatever they look like (`-m -x` sends "-x"). Flags are data: a program's table of
flags drives the parser and the help, and each flag is the typed key of its values. The first error ends the
reading, as in mosquitto's programs. `argparse` has other rules, and would take a fifth of the time that a
short publish may take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_HELP_COLUMN: Final = 32


class UsageError(Exception):
    """The command line is wrong. The text is the error."""


@dataclass(frozen=True, slots=True, eq=False)
class Flag(Generic[T]):
    """One flag. `names`: its spellings. `argument`: the name of its argument in the help."""

    names: tuple[str, ...]
    read: Callable[[Iterator[str]], T]
    help: str
    argument: str = ""


class Values:
    """The values of a command line, by flag."""

    def __init__(self) -> None:
        self._values: dict[Flag[Any], list[Any]] = {}

    def add(self, flag: Flag[T], value: T) -> None:
        """Adds the value of one occurrence."""
        self._values.setdefault(flag, []).append(value)

    def all(self, flag: Flag[T]) -> tuple[T, ...]:
        """The values of every occurrence."""
        return tuple(self._values.get(flag, ()))

    def last(self, flag: Flag[T], default: T) -> T:
        """The value of the last occurrence, which counts; `default` if there is none."""
        found = self._values.get(flag)
        return default if found is None else found[-1]

    def __contains__(self, flag: Flag[Any]) -> bool:
        return flag in self._values


def switch(*names: str, help: str) -> Flag[bool]:
    """A flag that takes no argument."""
    return Flag(names, lambda _: True, help)


def option(
    *names: str,
    argument: str,
    parse: Callable[[str], T],
    help: str,
    named: str | None = None,
    shown: str | None = None,
) -> Flag[T]:
    """A flag with one argument. `parse` raises UsageError.

    `named`: the flag's name in errors, if not its first name. `shown`: the argument's name in the help, if
    not as in errors.
    """
    missing = f"{named or names[0]} argument given but no {argument} specified."

    def read(arguments: Iterator[str]) -> T:
        text = next(arguments, None)
        if text is None:
            raise UsageError(missing)
        return parse(text)

    return Flag(names, read, help, shown or argument.upper())


def parse(flags: Iterable[Flag[Any]], unsupported: Mapping[str, str], arguments: Sequence[str]) -> Values:
    """Parses a command line without the program's name. Raises UsageError.

    `unsupported`: flags of mosquitto's programs that have no meaning here, and the reasons.
    """
    by_name = {name: flag for flag in flags for name in flag.names}
    values = Values()
    remaining = iter(arguments)
    for name in remaining:
        flag = by_name.get(name)
        if flag is not None:
            values.add(flag, flag.read(remaining))
        elif name in unsupported:
            raise UsageError(f"Option '{name}' is not supported: {unsupported[name]}.")
        else:
            raise UsageError(f"Unknown option '{name}'.")
    return values


def whole_number(text: str) -> int | None:
    """A decimal number, or None. (`int` also accepts "1_0" and digits of other scripts.)"""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def describe(flags: Iterable[Flag[Any]]) -> str:
    """The table of flags for `--help`. A spelling that is too long has a line of its own."""
    lines = []
    for flag in flags:
        spelling = f" {', '.join(flag.names)} {flag.argument}".rstrip()
        if len(spelling) + 2 > _HELP_COLUMN:
            lines.append(spelling)
            spelling = ""
        lines.append(f"{spelling:{_HELP_COLUMN}}{flag.help}")
    return "\n".join(lines)
