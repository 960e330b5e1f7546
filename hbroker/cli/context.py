"""`hbroker context`: contexts, which name how to reach a network. It asks no node."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import ADDRESS, FILE, json_flag
from hbroker.errors import ConfigError, ConfigErrors

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hbroker.runtime.contexts import Context

_TEXT: Final = """\
A context says how to reach a network: its root, the certificate of its authority, the file with a
token. Commands that talk to a network, hpub and hsub use it for what no flag and no variable of the
environment says.

  add NAME      makes a context
  use NAME      has all commands of this user use it from now on; use --none: none
  list          lists all contexts; * marks the one that commands use
  show [NAME]   shows a context, without NAME the one that commands use
  remove NAME   removes a context, and none of the files that it names

hbroker --context NAME COMMAND … and HBROKER_CONTEXT=NAME take another one for one command.

Its authority and token are for its own root: a command with another --root does not use them. A
token stays in its file, and the context has the file's path.

examples:
  hbroker context add home --root 192.0.2.1:7700 --authority home.crt --token home.token
  hbroker context use home
  hbroker tree
  hbroker --context office tree

exit codes: 0 done, 1 a context in the list is malformed, 2 wrong flags, or no such context
"""

_ACTIONS: Final = {
    "add": {"root", "authority", "token", "workspace", "description"},
    "use": {"none"},
    "list": {"as_json"},
    "show": {"as_json"},
    "remove": set[str](),
}
"""The flags of each action."""


def _names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from hbroker.runtime import contexts

    return [CompletionItem(name) for name in contexts.names() if name.startswith(incomplete)]


@command("context", _TEXT)
@click.argument("action", type=click.Choice(list(_ACTIONS)))
@click.argument("name", required=False, shell_complete=_names)
@click.option("--root", type=ADDRESS, help="add: the root of the network")
@click.option(
    "--authority", type=FILE, metavar="FILE", help="add: the certificate of the network's authority"
)
@click.option("--token", type=FILE, metavar="FILE", help="add: the file with the token to show")
@click.option("--workspace", metavar="NAME", help="add: the workspace of hpub and hsub")
@click.option("--description", metavar="TEXT", help="add: what the list says of it")
@click.option("--none", is_flag=True, help="use: no context")
@json_flag
def context(action: str, name: str | None, **given: Any) -> int:
    """Returns when the context is made, noted, shown or removed. Raises UsageError, ConfigError, ConfigErrors
    and OSError."""
    from hbroker.runtime import contexts

    _check(action, name, given)
    match action:
        case "add":
            return _add(name or "", **given)
        case "use":
            contexts.use(name)
            print("commands use no context" if name is None else f"commands use the context {name}")
            return DONE
        case "list":
            return _list(as_json=given["as_json"])
        case "show":
            return _show(name or contexts.chosen_name(), as_json=given["as_json"])
    contexts.remove(name or "")
    print(f"removed the context {name}")
    return DONE


def _check(action: str, name: str | None, given: dict[str, Any]) -> None:
    for flag, value in given.items():
        if value and flag not in _ACTIONS[action]:
            spelt = "--json" if flag == "as_json" else f"--{flag}"
            raise click.UsageError(f"{action} does not take {spelt}")
    if action == "list" and name is not None:
        raise click.UsageError("list takes no name: `hbroker context show` shows one context")
    if action == "use" and (name is None) != given["none"]:
        raise click.UsageError("use takes the name of a context, or --none")
    if action in ("add", "remove") and name is None:
        raise click.UsageError(f"{action} needs the name of the context")
    if action == "add" and given["root"] is None:
        raise click.UsageError("add needs --root: the address of the network's root")


def _add(name: str, *, root: str, workspace: str | None, description: str | None, **files: Any) -> int:
    """Makes a context. Raises ConfigError if a file of it cannot be used."""
    from hbroker.config import SecuritySettings
    from hbroker.runtime import contexts
    from hbroker.runtime.credentials import credentials_of
    from hbroker.workspace import name_is_valid

    if workspace and not name_is_valid(workspace):
        remedy = "use 1 to 64 of a-z, 0-9 and `-`"
        raise ConfigError(f"{workspace!r} is no name of a workspace", file="command line", remedy=remedy)
    paths = {key: os.path.abspath(files[key]) if files[key] else "" for key in ("authority", "token")}
    for path in filter(None, paths.values()):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            remedy = "name a file that is there, and that you may read"
            raise ConfigError(f"cannot be read: {error.strerror}", file=path, remedy=remedy) from None
    credentials_of(SecuritySettings(paths["authority"], token=paths["token"]))
    made = contexts.Context(root, workspace=workspace or "", description=description or "", **paths)
    print(f"{contexts.add(name, made)}: the context {name}. `hbroker context use {name}` has commands use it")
    return DONE


def _list(*, as_json: bool) -> int:
    """Lists all contexts that are not malformed, and tells of the others."""
    from hbroker.cli.output import print_json, print_table
    from hbroker.runtime import contexts

    used, code = contexts.chosen_name(), DONE
    found: dict[str, Context] = {}
    for name in contexts.names():
        try:
            found[name] = contexts.load(name)
        except (ConfigError, ConfigErrors) as error:
            print(error, file=sys.stderr)
            code = FAILED
    if as_json:
        print_json([{"name": name, **asdict(each), "used": name == used} for name, each in found.items()])
        return code
    header = ("", "NAME", "ROOT", "AUTHORITY", "TOKEN", "DESCRIPTION")
    rows = [
        (
            "*" if name == used else "",
            name,
            each.root,
            each.authority or "-",
            each.token or "-",
            each.description,
        )
        for name, each in found.items()
    ]
    print_table(header, rows)
    return code


def _show(name: str | None, *, as_json: bool) -> int:
    """Shows one context. Raises ConfigError if commands use none."""
    from hbroker.cli.output import print_json
    from hbroker.runtime import contexts

    if name is None:
        known = ", ".join(contexts.names()) or "none yet"
        remedy = f"name one; known here: {known}"
        raise ConfigError("commands use no context", file="command line", remedy=remedy)
    found = {"name": name, **asdict(contexts.load(name)), "used": name == contexts.chosen_name()}
    if as_json:
        print_json(found)
        return DONE
    for key, value in {**found, "used": "yes" if found["used"] else "no"}.items():
        print(f"{key:<12} {value or '-'}")
    print(f"{'file':<12} {contexts.file_of(name)}")
    return DONE
