"""A launcher whose nodes are stand-ins: `python stand_in.py FILE STATE_DIR BEHAVIOUR`.

They need no network, and misbehave on request: the tests are about how the launcher treats processes.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from hbroker import topology
from hbroker.cli.network.launcher_events import tell_json
from hbroker.config import GatewaySettings, NodeSettings
from hbroker.runtime.launcher.launcher import Launcher
from hbroker.runtime.launcher.run_directory import RunDirectory
from hbroker.runtime.launcher.spawn import Bodies, Listening, Ready


def well(settings: NodeSettings, ready: Ready) -> int:
    """Serves until it is asked to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"hello from {settings.name}", flush=True)
    ready(settings.listen)
    _idle()


def stubborn(settings: NodeSettings, ready: Ready) -> int:
    """Serves, and ignores a request to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready(settings.listen)
    _idle()


def hearing(settings: NodeSettings, ready: Ready) -> int:
    """Logs each SIGHUP."""
    signal.signal(signal.SIGHUP, lambda *_: print("SIGHUP", flush=True))
    return well(settings, ready)


def failing(settings: NodeSettings, ready: Ready) -> int:
    """Raises before it serves, except in the root."""
    if settings.is_root:
        return well(settings, ready)
    raise OSError(f"{settings.name} has no luck")


def inspecting(settings: NodeSettings, ready: Ready) -> int:
    """Prints its descriptors and whether it leads its session."""
    descriptors = sorted(int(entry) for entry in os.listdir("/proc/self/fd"))
    open_ones = [number for number in descriptors if Path(f"/proc/self/fd/{number}").exists()]
    print(f"descriptors {open_ones} leader {os.getsid(0) == os.getpid()}", flush=True)
    return well(settings, ready)


def gateway(settings: GatewaySettings, listening: Listening) -> int:
    """Listens on its configured port, or on a free one."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listening(settings.on_ports([listener.address[1] or 4_242 for listener in settings.listeners]).urls)
    _idle()


def absent(*_: object) -> int:
    """No process of this kind is in the topology."""
    raise AssertionError("it is not started")


def _idle() -> NoReturn:
    """Waits until a signal ends this process."""
    while True:
        signal.pause()


if __name__ == "__main__":
    file, state, behaviour = sys.argv[1:]
    network = replace(topology.load(file), admin=None)
    directory = RunDirectory(Path(state), network.name)
    lock = directory.acquire()
    body = {
        "well": well,
        "gateways": well,
        "stubborn": stubborn,
        "failing": failing,
        "hearing": hearing,
        "inspecting": inspecting,
    }[behaviour]
    Launcher(network, file, directory, Bodies(body, gateway, absent, absent), tell_json).run()
