"""The join key of a network whose topology names none (docs/protocol.md §5.5).

`hbroker up` makes one at the first start of a network and keeps it in the network's state folder, where its
user alone can read it. The next `up` of that network takes the same key: nodes and gateways on other hosts
were given a copy of it. Commands on the same host find the key of the network that runs there by the address
of its root.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from hbroker.config import Address, parse_address
from hbroker.errors import ConfigErrors
from hbroker.runtime.launcher.run_directory import RunDirectory, running
from hbroker.storage import whole_file
from hbroker.storage.disk import make_folder
from hbroker.topology import load
from hbroker.topology.flags import join_key_from_file

__all__ = ["key_at", "own_key"]

_RANDOM_BYTES: Final = 32
_LOOPBACK: Final = ("127.", "::1")


def own_key(directory: RunDirectory) -> bytes:
    """The key of the network whose state folder this is; it is made where there is none yet.

    Raises ConfigErrors where the file cannot be read or holds no key, and OSError where it cannot be written.
    """
    file = directory.join_key_file
    if not file.exists():
        make_folder(directory.path)
        whole_file.replace(file, [secrets.token_hex(_RANDOM_BYTES).encode(), b"\n"])
    return join_key_from_file(file)


def key_at(base: Path, root: Address) -> bytes:
    """The key of the network that `hbroker up` runs on this host with its root at this address; empty: no
    network runs there, or its key cannot be read by this user.

    `base`: the folder with the state of all networks.
    """
    for directory in running(base):
        run = directory.read()
        if run is None or not any(_is_at(node.address, root) for node in run.nodes if not node.subtree):
            continue
        try:
            return load(run.topology).root.join_key or join_key_from_file(directory.join_key_file)
        except ConfigErrors:
            return b""
    return b""


def _is_at(stored: str, root: Address) -> bool:
    """Whether a root that tells others this address is meant. It is reached at a loopback address, too."""
    host, port = parse_address(stored)
    return port == root[1] and (host == root[0] or root[0].startswith(_LOOPBACK))
