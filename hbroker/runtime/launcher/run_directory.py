"""The folder of one network, `.hbroker/<network>/`, which `hbroker up` writes and other commands read.

    lock          locked (flock) by the launcher while it lives, so no stale file can claim that it runs;
                  contains its process id and the faults of the disk, and is overwritten in place, which
                  needs no free space on a full disk
    state.json    the launcher and its processes; replaced by rename, so a reader sees the old or the new one
    join.key      the join key of a network whose topology has none (`hbroker.runtime.launcher.network_key`)
    authority/    the authority of a network with security: authority.crt, authority.key
    identities/   what its nodes prove themselves with: <node>.crt, <node>.key
                  (`hbroker.runtime.launcher.identities`)
    operator.token  the token of gateways, and of commands on this host, if the network requires tokens
                  (`hbroker.runtime.launcher.operator_token`)
    <node>.log    the log of the process; renamed to <node>.log.1 at the next start if it is large
    telemetry/    the telemetry of the processes (docs/telemetry.md)
    <node>.cuts   the delegations of the node, with its other state files beside it
                  (`hbroker.runtime.node.state_files`)

Readers need no lock for `state.json`.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from hbroker.addresses import Address, format_address, parse_address
from hbroker.errors import LocalError
from hbroker.storage.disk import FILE_MODE, make_folder, replace_file

LOG_BYTES: Final = 8 * 1024 * 1024
"""A log larger than this is renamed when its process starts."""
_LOOPBACK: Final = ("127.", "::1")
_LOCK_BYTES: Final = 4096
"""The size of the lock's file, in bytes: one block, written at the first start."""


class AlreadyRunning(LocalError):
    """Another launcher runs this network."""


@dataclass(frozen=True, slots=True)
class NodeRun:
    """The process of one node. `state`: a value of `supervisor.State`. Times are seconds since the Unix
    epoch."""

    name: str
    subtree: str
    address: str
    state: str
    pid: int | None
    started_at: float | None
    restarts: int


@dataclass(frozen=True, slots=True)
class GatewayRun:
    """The process of one gateway. `listeners`: its URLs, once it accepts clients. The other fields as in
    `NodeRun`."""

    name: str
    listeners: tuple[str, ...]
    state: str
    pid: int | None
    started_at: float | None
    restarts: int


@dataclass(frozen=True, slots=True)
class BridgeRun:
    """The process of one bridge. `broker`: the address of the other broker; empty: it is not connected. The
    other fields as in `NodeRun`."""

    name: str
    broker: str
    state: str
    pid: int | None
    started_at: float | None
    restarts: int


@dataclass(frozen=True, slots=True)
class AdminRun:
    """The process with the HTTP API. `url`: where it listens. The other fields as in `NodeRun`."""

    name: str
    url: str
    state: str
    pid: int | None
    started_at: float | None
    restarts: int


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """A launcher and its processes. `topology`: the absolute path of the file. `telemetry`:
    the absolute path of the folder of telemetry; None: the processes write none. `authority`: the absolute
    path of the certificate of the network's authority; None: security is off. `token`: the absolute path of
    the operator's token; None: the network requires no tokens."""

    name: str
    topology: str
    pid: int
    started_at: float
    nodes: tuple[NodeRun, ...]
    gateways: tuple[GatewayRun, ...] = ()
    telemetry: str | None = None
    authority: str | None = None
    token: str | None = None
    bridges: tuple[BridgeRun, ...] = ()
    admin: AdminRun | None = None

    def has_root_at(self, address: Address) -> bool:
        """Whether its root advertises this address, or this is a loopback address with the root's port."""
        host, port = address
        roots = [parse_address(node.address) for node in self.nodes if not node.subtree]
        return any(port == own[1] and (host == own[0] or host.startswith(_LOOPBACK)) for own in roots)

    @property
    def is_up(self) -> bool:
        """Whether every node, gateway and bridge serves, except nodes that left because of an order. A bridge
        need not be connected to the other broker. The HTTP API does not count: messages pass without it."""
        processes: tuple[NodeRun | GatewayRun | BridgeRun, ...] = (*self.nodes, *self.gateways, *self.bridges)
        return all(process.state in ("up", "left") for process in processes)

    def to_json(self) -> dict[str, Any]:
        """The object as `json.dumps` takes it."""
        return asdict(self)

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> Self:
        """The inverse of `to_json`. Raises KeyError or TypeError for anything else."""
        nodes = tuple(NodeRun(**node) for node in entry["nodes"])
        gateways = tuple(
            GatewayRun(**{**gateway, "listeners": tuple(gateway["listeners"])})
            for gateway in entry["gateways"]
        )
        bridges = tuple(BridgeRun(**bridge) for bridge in entry.get("bridges", ()))
        admin = AdminRun(**entry["admin"]) if entry.get("admin") else None
        return cls(**{**entry, "nodes": nodes, "gateways": gateways, "bridges": bridges, "admin": admin})


class RunDirectory:
    """The folder of one network."""

    def __init__(self, base: Path, network: str) -> None:
        self.network = network
        self.path = base / network
        self._lock: int | None = None

    @property
    def state_file(self) -> Path:
        """Contains the `NetworkRun` as JSON."""
        return self.path / "state.json"

    @property
    def join_key_file(self) -> Path:
        """Contains the join key of a network whose topology has none."""
        return self.path / "join.key"

    @property
    def authority(self) -> Path:
        """The folder of the authority of a network with security."""
        return self.path / "authority"

    @property
    def identities(self) -> Path:
        """The folder of the identities of its nodes."""
        return self.path / "identities"

    @property
    def operator_token_file(self) -> Path:
        """Contains the operator's token of a network that requires tokens."""
        return self.path / "operator.token"

    def log_file(self, node: str) -> Path:
        """Contains stdout and stderr of the process."""
        return self.path / f"{node}.log"

    def state_file_of(self, node: str) -> Path:
        """The first state file of a node (`hbroker.runtime.node.state_files`)."""
        return self.path / f"{node}.cuts"

    @property
    def telemetry(self) -> Path:
        """The folder of telemetry, unless the settings name another."""
        return self.path / "telemetry"

    def acquire(self) -> int:
        """Creates the folder and locks it, until the returned descriptor is closed.

        Raises AlreadyRunning and OSError.
        """
        make_folder(self.path)
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise AlreadyRunning(
                f"the network {self.network!r} runs already: `hbroker down {self.network}` ends it"
            ) from None
        self._lock = lock
        try:
            self.write_faults({})
        except OSError:
            os.close(lock)
            raise
        return lock

    def announce(self, root: Address) -> None:
        """Lets commands of this user on this host find the network, in whatever folder they run, until
        `withdraw`. If that is not possible they find it as before, by `--state-dir`."""
        folder = _networks_of_user()
        if folder is None:
            return
        with suppress(OSError):
            make_folder(folder)
            for link in folder.iterdir():
                if link.readlink() == self.path.absolute() or not _linked(link).launcher():
                    link.unlink()
            (folder / format_address(root)).symlink_to(self.path.absolute())

    def withdraw(self) -> None:
        """Undoes `announce`."""
        folder = _networks_of_user()
        with suppress(OSError):
            for link in () if folder is None else folder.iterdir():
                if link.readlink() == self.path.absolute():
                    link.unlink()

    def launcher(self) -> int | None:
        """The process id of the launcher that holds the lock; None: this network does not run."""
        try:
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.read(lock, 32).partition(b"\n")[0] or b"0") or None
        finally:
            os.close(lock)
        return None

    def faults(self) -> dict[str, str]:
        """The faults of the disk that the last launcher noted, by the name of the process that met them.
        Empty: there are none."""
        try:
            written = json.loads(
                (self.path / "lock").read_bytes().rstrip(b" \n").partition(b"\n")[2] or b"{}"
            )
            return {str(name): str(fault) for name, fault in written.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def write_faults(self, faults: Mapping[str, str]) -> None:
        """Replaces the noted faults. Raises OSError. Only the launcher that holds the lock may call this."""
        assert self._lock is not None, "only a launcher notes faults, and it has the lock"
        kept = dict(faults)
        while len(text := b"%d\n%s\n" % (os.getpid(), json.dumps(kept).encode())) > _LOCK_BYTES:
            kept.popitem()
        os.pwrite(self._lock, text.ljust(_LOCK_BYTES), 0)

    def await_end(self, timeout: float) -> bool:
        """Waits until no launcher holds the lock. False: `timeout` seconds are over."""
        deadline = time.monotonic() + timeout
        while self.launcher() is not None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True

    def write(self, run: NetworkRun) -> None:
        """Replaces the state file. Raises OSError; the file is then unchanged."""
        text = json.dumps(run.to_json(), indent=1) + "\n"
        replace_file(self.state_file, [text.encode()], is_lasting=False)

    def read(self) -> NetworkRun | None:
        """The state that the last launcher wrote; None: there is none, or it cannot be read."""
        try:
            return NetworkRun.from_json(json.loads(self.state_file.read_text()))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def open_log(self, node: str) -> int:
        """Opens the log of a process for appending, and returns the descriptor. Renames a large log first.
        Raises OSError."""
        path = self.log_file(node)
        if path.exists() and path.stat().st_size > LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)

    def last_line(self, node: str) -> str:
        """The last line of the log, which most likely explains why the process ended. Empty: there is
        none."""
        try:
            with self.log_file(node).open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(file.tell() - 4096, 0))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def running(base: Path) -> list[RunDirectory]:
    """The networks below a base folder that run now."""
    try:
        names = sorted(entry.name for entry in base.iterdir() if entry.is_dir())
    except OSError:
        return []
    return [directory for name in names if (directory := RunDirectory(base, name)).launcher()]


def running_at(base: Path, root: Address) -> list[tuple[RunDirectory, NetworkRun]]:
    """The networks that run now with their root at this address: those below a base folder, then others of
    this user on this host. Mostly there is one, or none."""
    states = ((directory, directory.read()) for directory in (*running(base), *_running_of_user()))
    return [(directory, run) for directory, run in states if run is not None and run.has_root_at(root)]


def _running_of_user() -> list[RunDirectory]:
    """The networks that were announced, and run now."""
    folder = _networks_of_user()
    try:
        links = [] if folder is None else sorted(folder.iterdir())
    except OSError:
        return []
    return [directory for link in links if (directory := _linked(link)).launcher()]


def _networks_of_user() -> Path | None:
    """The folder with a link to the folder of each network of this user on this host (XDG base directories);
    None: the user has no home. A home may be shared by hosts."""
    state, home = os.environ.get("XDG_STATE_HOME"), os.environ.get("HOME")
    if not state and not home:
        return None
    return Path(state or f"{home}/.local/state") / "hbroker" / "networks" / os.uname().nodename


def _linked(link: Path) -> RunDirectory:
    path = Path(os.path.realpath(link))
    return RunDirectory(path.parent, path.name)
