"""`hbroker passwd`: sets or removes a gateway's users and passwords in a file."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import command

if TYPE_CHECKING:
    from hbroker.cli.flags import Commands

_TEXT = """\
Sets the password of a user, or removes the user. The file is made where it does not exist, and
only its owner can read it then. It holds a hash of each password (argon2id), one `user:hash` a
line. Where stdin is a terminal the password is asked for, twice; else its first line is taken.
A gateway reads the file when it starts, and at SIGHUP.

examples:
  hbroker passwd users alice
  echo "$PASSWORD" | hbroker passwd users alice
  hbroker passwd -D users alice

exit codes: 0 done, 1 no such user, or the passwords differ, 2 the file is wrong
"""


def add(commands: Commands) -> None:
    """Declares the command."""
    parser = command(commands, "passwd", run, "set passwords of MQTT clients", _TEXT)
    parser.add_argument("-D", "--delete", action="store_true", help="remove the user")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("user", metavar="USER")


def run(options: argparse.Namespace) -> int:
    """Returns 0 once the file is written. Raises ConfigErrors for a wrong file, and OSError."""
    from hbroker.gateway.access.password_file import hash_password, parse, with_user, without_user

    if ":" in options.user or not options.user.isprintable() or not options.user.strip():
        return _fail(f"{options.user!r} cannot be a user name: it is empty, or holds `:`")
    text = options.file.read_text("utf-8") if options.file.exists() else ""
    parse(text, str(options.file))
    if options.delete:
        changed = without_user(text, options.user)
        if changed is None:
            return _fail(f"{options.file} has no user {options.user!r}")
    else:
        password = _password()
        if password is None:
            return _fail("the two passwords differ, or are empty")
        changed = with_user(text, options.user, hash_password(password))
    _replace(options.file, changed)
    return DONE


def _password() -> str | None:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n") or None
    from getpass import getpass

    first, second = getpass("password: "), getpass("again: ")
    return first if first and first == second else None


def _replace(path: Path, text: str) -> None:
    """Replaces the file at once: a reader sees either the old file or the new one, whole."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(fresh, mode)
    fresh.replace(path)


def _fail(message: str) -> int:
    print(f"hbroker: {message}", file=sys.stderr)
    return FAILED
