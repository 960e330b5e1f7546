"""The folder of a node that joined with a join token (`hbroker.runtime.hosts.join_token`).

    node.yaml               its settings (`hbroker.topology.node_file`): written once, and then the operator's
    NAME.key, NAME.crt      what it proves itself with
    authority.crt           the certificate of the network's authority
    join.key                the join key of the network
    NAME.cuts               its delegations, with its other state files and its store beside it

Only its owner can enter it. A further token for the same node replaces keys and certificates, and nothing
else.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hbroker.errors import ConfigError
from hbroker.runtime.hosts.join_token import JoinToken
from hbroker.storage.disk import make_folder, replace_file

__all__ = ["NODE_FILE", "Place", "default_folder", "fill"]

NODE_FILE: Final = "node.yaml"


@dataclass(frozen=True, slots=True)
class Place:
    """A node's place in the network. Addresses are texts, as in its file. `advertise`: empty: the address to
    which it binds."""

    name: str
    subtrees: tuple[str, ...]
    listen: str
    advertise: str
    root: str


def default_folder(name: str) -> Path:
    """The folder of a node: of the system for root, and otherwise of the user (XDG base directories)."""
    if os.geteuid() == 0:
        return Path("/var/lib/hbroker", name)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "hbroker", "nodes", name)


def fill(folder: Path, token: JoinToken, place: Place | None) -> None:
    """Writes the files. `place`: None: `node.yaml` stays as it is. Raises ConfigError if the folder is that
    of another node, and OSError."""
    name = token.identity.certificate.name
    others = [key.stem for key in folder.glob("*.key") if key.stem not in (name, "join")]
    if others:
        raise ConfigError(
            f"the folder is that of the node {others[0]}", file=str(folder), remedy="name another with --dir"
        )
    make_folder(folder)
    token.identity.save(folder)
    replace_file(folder / "authority.crt", [token.authority])
    replace_file(folder / "join.key", [token.join_key, b"\n"])
    if place is not None:
        replace_file(folder / NODE_FILE, [_text(token, place).encode()])
    _give_to_owner(folder)


def _give_to_owner(folder: Path) -> None:
    """Gives the files to the owner of their folder: root renews the keys of a service that runs as another
    user. Raises OSError."""
    owner = folder.stat()
    if owner.st_uid != os.geteuid():
        for file in folder.iterdir():
            os.chown(file, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _text(token: JoinToken, place: Place) -> str:
    import yaml

    keys = {
        "name": place.name,
        "subtree": place.subtrees[0],
        "also": list(place.subtrees[1:]),
        "listen": place.listen,
        "advertise": place.advertise,
        "root": place.root,
        "join_key_file": "join.key",
        "authority": "authority.crt",
        "identity": ".",
        "memory": f"{place.name}.cuts",
        "log_level": "info",
    }
    given = {key: value for key, value in keys.items() if value}
    text: str = yaml.safe_dump(given, sort_keys=False, allow_unicode=True)
    # YAML would read a bare `off` as a truth value, which `tokens` takes, too.
    return f"{text}tokens: {'required' if token.requires_tokens else 'off'}\n"
