"""Reading a command line as mosquitto's programs read theirs.

One argument after the other: a flag is an argument that is spelt exactly so, and takes the arguments that
follow it, whatever they look like (`-m -x` sends "-x"). Flags are data: a program's table of them drives
the reading and the help, and is the typed key to what was read. The first fault ends the reading, as in
mosquitto's programs; `argparse` has other rules, and would take a fifth of the time that a short publish
may take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_HELP_COLUMN: Final = 32


class UsageError(Exception):
    """The command line is wrong: the text says how."""


@dataclass(frozen=True, slots=True, eq=False)
class Flag(Generic[T]):
    """One flag. `names`: its spellings. `argument`: what its help calls what follows it."""

    names: tuple[str, ...]
    read: Callable[[Iterator[str]], T]
    help: str
    argument: str = ""


class Values:
    """What was read, by flag."""

    def __init__(self) -> None:
        self._values: dict[Flag[Any], list[Any]] = {}

    def add(self, flag: Flag[T], value: T) -> None:
        """Notes one occurrence."""
        self._values.setdefault(flag, []).append(value)

    def all(self, flag: Flag[T]) -> tuple[T, ...]:
        """The values of every occurrence."""
        return tuple(self._values.get(flag, ()))

    def last(self, flag: Flag[T], default: T) -> T:
        """The value of the last occurrence, as the last one counts."""
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
    """A flag with one argument. `parse` raises UsageError. `named`: how errors name it, if not by its first
    name. `shown`: what the help calls the argument, if not as errors do.
    """
    missing = f"{named or names[0]} argument given but no {argument} specified."

    def read(arguments: Iterator[str]) -> T:
        text = next(arguments, None)
        if text is None:
            raise UsageError(missing)
        return parse(text)

    return Flag(names, read, help, shown or argument.upper())


def parse(flags: Iterable[Flag[Any]], unsupported: Mapping[str, str], arguments: Sequence[str]) -> Values:
    """Reads a command line (without the program's name).

    `unsupported`: flags of mosquitto's programs that mean nothing here, and why. Raises UsageError.
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
    """A decimal number, or None. (`int` would take "1_0" and digits of other scripts, too.)"""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def describe(flags: Iterable[Flag[Any]]) -> str:
    """The table for `--help`. What does not fit beside its flag stands below it."""
    lines = []
    for flag in flags:
        spelling = f" {', '.join(flag.names)} {flag.argument}".rstrip()
        if len(spelling) + 2 > _HELP_COLUMN:
            lines.append(spelling)
            spelling = ""
        lines.append(f"{spelling:{_HELP_COLUMN}}{flag.help}")
    return "\n".join(lines)
