"""Contexts: named settings of how to reach a network, in files of the user.

    $XDG_CONFIG_HOME/hbroker/       or ~/.config/hbroker/
        contexts/NAME.yaml          one context: the keys are the fields of `Context`
        context                     the name of the context that commands use

Commands use the context of `--context`, of the environment's `HBROKER_CONTEXT`, or that which `use` noted, in
this order. Other programs use only that of `HBROKER_CONTEXT`: `hbroker context use` changes no service.

A context speaks of one network. Its authority and its token are used for that network's root alone, so a
token is shown to no other network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from hbroker.addresses import DEFAULT_PORT, Address, parse_address
from hbroker.errors import ConfigError
from hbroker.storage.disk import make_folder, replace_file
from hbroker.workspace import name_is_valid

__all__ = [
    "Context",
    "add",
    "chosen",
    "chosen_for",
    "chosen_name",
    "file_of",
    "load",
    "names",
    "of_command",
    "remove",
    "use",
]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_USED: Final = "context"
_MOST_READ: Final = 1_024

_is_command = False
_flag: str | None = None
"""What `of_command` set. A command is one process, and it may have threads."""


@dataclass(frozen=True, slots=True)
class Context:
    """How to reach a network. `root`: `host:port`. `authority`, `token`: absolute paths of files, as in
    `hbroker.connect`; empty: as if there were no context. The secret is in its file alone.
    `workspace`: empty: that of the token."""

    root: str
    authority: str = ""
    token: str = ""
    workspace: str = ""
    description: str = ""


@contextmanager
def of_command(flag: str | None) -> Iterator[None]:
    """While a command runs, its contexts are chosen as those of commands are. `flag`: the name that its
    `--context` gave. Raises ConfigError and ConfigErrors if there is no such context, or it is malformed."""
    global _is_command, _flag
    before = _is_command, _flag
    if flag is not None:
        load(flag)  # Also a command that needs no context says that the name is wrong.
    _is_command, _flag = True, flag
    try:
        yield
    finally:
        _is_command, _flag = before


def chosen_name() -> str | None:
    """The name of the context that this process uses; None: none. Raises ConfigError."""
    name = _flag or os.environ.get("HBROKER_CONTEXT")
    folder = _folder() if _is_command and not name else None
    return name or (_used_in(folder) if folder else "") or None


def chosen() -> Context | None:
    """The context that this process uses; None: none. Raises ConfigError and ConfigErrors as `load`."""
    name = chosen_name()
    return None if name is None else load(name)


def chosen_for(root: Address) -> Context | None:
    """The context that this process uses, if it is one of the network with this root. Raises as `chosen`."""
    context = chosen()
    if context is None:
        return None
    host, port = parse_address(context.root, default_port=DEFAULT_PORT)
    if port != root[1]:
        return None
    return context if host == root[0] or root[0] in _addresses(host) else None


def load(name: str) -> Context:
    """The context of this name. Raises ConfigError if there is none, and ConfigErrors if its file is
    malformed or cannot be read."""
    from hbroker.topology.document import Report, compose, read_text

    file = file_of(name)
    if not file.exists():
        known = names()
        remedy = (
            f"known here: {', '.join(known)}" if known else f"make it: `hbroker context add {name} --root …`"
        )
        raise ConfigError(f"there is no context {name!r}", file=str(file), remedy=remedy)
    report = Report(str(file))
    document = compose(read_text(file), report)
    report.raise_if_any()
    assert document is not None, "a file without a document was reported"
    keys = tuple(field.name for field in fields(Context))
    values = report.mapping(document, "the context", keys)
    report.require(document, "the context", values, {"root": "name the network's root: `root: host:port`"})
    read = {key: text for key, value in values.items() if (text := report.text(value, key)) is not None}
    if "root" in read:
        try:
            parse_address(read["root"], default_port=DEFAULT_PORT)
        except ValueError as error:
            report.error(values["root"], f"root is no address: {error}", "write it as host:port")
    for key in ("authority", "token"):
        if read.get(key) and not os.path.isabs(read[key]):
            report.error(values[key], f"{key} is a relative path", "write an absolute path")
    if (workspace := read.get("workspace")) and not name_is_valid(workspace):
        report.error(values["workspace"], f"{workspace!r} is no name of a workspace", "use a-z, 0-9 and `-`")
    report.raise_if_any()
    return Context(**read)


def add(name: str, context: Context) -> Path:
    """Writes a new context, and returns its file. Its paths must be absolute. Raises ConfigError if there is
    one of this name, and OSError."""
    import yaml

    file = file_of(name)
    if file.exists():
        remedy = f"take another name, or call `hbroker context remove {name}` first"
        raise ConfigError(f"there is a context {name!r} already", file=str(file), remedy=remedy)
    make_folder(_folder_of_user())
    make_folder(file.parent)
    given = {key: value for key, value in asdict(context).items() if value}
    text = yaml.safe_dump(given, sort_keys=False, allow_unicode=True)
    replace_file(file, [text.encode()])
    return file


def use(name: str | None) -> None:
    """Has commands use this context from now on; None: none. Raises ConfigError, ConfigErrors, OSError."""
    used = _folder_of_user() / _USED
    if name is None:
        used.unlink(missing_ok=True)
        return
    load(name)
    replace_file(used, [f"{name}\n".encode()])


def remove(name: str) -> None:
    """Removes a context. If commands use it, they use none from now on. A file that is malformed is removed,
    too. Raises ConfigError if there is none, and OSError."""
    file = file_of(name)
    if not file.exists():
        load(name)
    file.unlink()
    if _used_in(_folder_of_user()) == name:
        use(None)


def names() -> list[str]:
    """The names of all contexts, in order."""
    folder = _folder()
    found = (file.stem for file in (folder / "contexts").glob("*.yaml")) if folder else ()
    return sorted(name for name in found if _NAME.fullmatch(name))


def file_of(name: str) -> Path:
    """The file of the context of this name. Raises ConfigError if no context can have the name."""
    if not _NAME.fullmatch(name):
        remedy = "a name has 1 to 64 letters, digits, `.`, `_` and `-`, and begins with a letter or a digit"
        raise ConfigError(f"{name!r} is no name of a context", file="command line", remedy=remedy)
    return _folder_of_user() / "contexts" / f"{name}.yaml"


def _used_in(folder: Path) -> str:
    """The name that `use` noted; empty: none. Raises ConfigError."""
    try:
        with (folder / _USED).open(errors="replace") as file:
            return file.read(_MOST_READ).strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        remedy = "check your permission to read it, or call `hbroker context use --none`"
        raise ConfigError(
            f"cannot be read: {error.strerror}", file=str(folder / _USED), remedy=remedy
        ) from None


def _folder() -> Path | None:
    """The folder of the user's configuration of hbroker (XDG base directories: a relative path is ignored);
    None: the user has no home."""
    base, home = os.environ.get("XDG_CONFIG_HOME", ""), os.environ.get("HOME")
    if os.path.isabs(base):
        return Path(base) / "hbroker"
    return Path(home) / ".config" / "hbroker" if home else None


def _folder_of_user() -> Path:
    folder = _folder()
    if folder is None:
        raise ConfigError("the user has no home", file="command line", remedy="set HOME or XDG_CONFIG_HOME")
    return folder


def _addresses(host: str) -> set[str]:
    import socket

    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)}
    except (OSError, UnicodeError):
        return set()
