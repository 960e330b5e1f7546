"""The join key of a network whose topology has none (docs/protocol.md §5.5).

`hbroker up` makes a key when a network starts for the first time, and keeps it in the network's folder, where
only its user can read it. Each later `up` uses the same key, because nodes and gateways on other hosts have
copies of it. Commands on the same host find the key of a running network by the address of its root.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from hbroker.addresses import Address
from hbroker.errors import ConfigErrors
from hbroker.runtime.launcher.run_directory import NetworkRun, RunDirectory, running_at
from hbroker.storage.disk import make_folder, replace_file
from hbroker.topology import load
from hbroker.topology.flags import join_key_from_file

__all__ = ["key_at", "key_of", "own_key"]

_RANDOM_BYTES: Final = 32


def own_key(directory: RunDirectory) -> bytes:
    """The join key in this network's folder. Makes the key if there is none.

    Raises ConfigErrors if the file cannot be read or has no valid key, and OSError if it cannot be written.
    """
    file = directory.join_key_file
    if not file.exists():
        make_folder(directory.path)
        replace_file(file, [secrets.token_hex(_RANDOM_BYTES).encode(), b"\n"])
    return join_key_from_file(file)


def key_at(base: Path, root: Address) -> bytes:
    """The join key of the network that `hbroker up` runs on this host with its root at this address. Empty:
    no such network runs, or this user cannot read its key.

    `base`: the folder with the folders of all networks.
    """
    for directory, run in running_at(base, root):
        try:
            return key_of(directory, run)
        except ConfigErrors:
            return b""
    return b""


def key_of(directory: RunDirectory, run: NetworkRun | None) -> bytes:
    """The join key of the network in this folder. `run`: the last one; None: there was none. Raises
    ConfigErrors if a file cannot be read, or there is no key."""
    named = load(run.topology).root.join_key if run is not None else b""
    return named or join_key_from_file(directory.join_key_file)
