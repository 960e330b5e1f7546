"""`hbroker passwd`: sets or removes a gateway's users and passwords in a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE
from hbroker.cli.flags import PATH
from hbroker.errors import LocalError

_TEXT = """\
Sets the password of a user, or removes the user. The file is made where it does not exist, and
only its owner can read it then. It holds a hash of each password (argon2id), one `user:hash` a
line. Where stdin is a terminal the password is asked for, twice; else its first line is taken.
A gateway reads the file when it starts, and at SIGHUP. With --scram the user may log in by
SCRAM-SHA-256 (MQTT 5), too, where the password does not travel; its hash is easier to guess from
a stolen file.

examples:
  hbroker passwd users alice
  echo "$PASSWORD" | hbroker passwd users alice
  hbroker passwd --scram users alice
  hbroker passwd -D users alice

exit codes: 0 done, 1 no such user, or the passwords differ, 2 the file is wrong
"""


@command("passwd", _TEXT)
@click.option("-D", "--delete", is_flag=True, help="remove the user")
@click.option("--scram", is_flag=True, help="make a verifier for SCRAM-SHA-256")
@click.argument("file", type=PATH)
@click.argument("user")
def passwd(file: Path, user: str, delete: bool, scram: bool) -> int:
    """Returns 0 once the file is written. Raises LocalError, ConfigErrors for a wrong file, and OSError."""
    from hbroker.gateway.access.password_file import hash_password, parse, with_user, without_user
    from hbroker.gateway.access.scram import ScramVerifier

    if ":" in user or not user.isprintable() or not user.strip():
        raise LocalError(f"{user!r} cannot be a user name: it is empty, or holds `:`")
    text = file.read_text("utf-8") if file.exists() else ""
    parse(text, str(file))
    if delete:
        changed = without_user(text, user)
        if changed is None:
            raise LocalError(f"{file} has no user {user!r}")
    else:
        password = _password()
        if password is None:
            raise LocalError("the two passwords differ, or are empty")
        try:
            hash = str(ScramVerifier.of(password)) if scram else hash_password(password)
        except ValueError as error:
            raise LocalError(f"SCRAM cannot have this password: {error}") from None
        changed = with_user(text, user, hash)
    _replace(file, changed)
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
