"""Prints the events of a launcher: lines for a person, or JSON lines for a program."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hbroker.addresses import format_address
from hbroker.cli.output import Style, discard_output, duration, print_json_line, styled
from hbroker.cli.progress import StartBar
from hbroker.config import NodeSettings
from hbroker.runtime.launcher import events
from hbroker.runtime.launcher.events import LauncherEvent
from hbroker.topology import Topology


def unbreakable(tell: Callable[[LauncherEvent], None]) -> Callable[[LauncherEvent], None]:
    """Makes `tell` ignore errors of its output: the network goes on without the terminal or the pipe."""

    def tell_or_discard(launcher_event: LauncherEvent) -> None:
        try:
            tell(launcher_event)
        except BrokenPipeError:
            discard_output()
        except OSError:
            pass  # The output is a file on a disk that is full.

    return tell_or_discard


class Console:
    """Prints events for a person."""

    def __init__(self, network: Topology, logs: Path, bar: StartBar) -> None:
        self._network = network
        self._print = bar.print
        self._bar = bar
        telemetry = f", telemetry in {_near(network.telemetry.directory)}" if network.telemetry.is_on else ""
        self._print(f"starting {_count(network)} of {network.name}; logs in {logs}{telemetry}")

    def tell(self, launcher_event: LauncherEvent) -> None:
        """Prints one line for an event, or shows it in the bar."""
        match launcher_event:
            case events.Starting(serving=serving):
                self._bar.show(serving)
            case events.Ready(topology=network, seconds=seconds, listeners=listeners, admin=admin):
                root = format_address(network.root.address)
                urls = "".join(f", {url}" for gateway in listeners.values() for url in gateway)
                urls += f", dashboard {admin}" if admin else ""
                text = f"{network.name}: {_count(network)}, root {root}{urls}, in {duration(seconds)}"
                self._bar.end()
                self._print(f"{styled('ready', Style.GOOD)} {text}")
            case events.Waiting(names=names, seconds=seconds):
                self._print(f"waiting since {duration(seconds)} for {', '.join(names)} to join; see the logs")
            case events.Ended(name=name, how=how, last_line=line, restart_in=pause):
                ended = styled(f"{name} ended", Style.BAD)
                suffix = f": {line}" if line else ""
                self._print(f"{ended} ({how}), starting it again in {pause:.1f} s{suffix}")
            case events.Recovered(name=name, seconds=seconds):
                self._print(f"{styled(f'{name} is back', Style.GOOD)} after {duration(seconds)}")
            case events.Left(name=name):
                self._print(f"{name} has left, as it was ordered to; it is not started again")
            case events.StorageFailed(name=name, error=error):
                self._print(
                    f"{styled(f'storage of {name} fails', Style.BAD)}: {error}; it goes on, and tries again"
                )
            case events.StorageRecovered(name=name):
                self._print(f"{styled(f'storage of {name} works again', Style.GOOD)}")
            case events.Stopped(seconds=seconds):
                self._bar.end()
                self._print(f"stopped {self._network.name} in {duration(seconds)}")


def tell_json(launcher_event: LauncherEvent) -> None:
    """Prints an event as one JSON line. One that shows only progress has none."""
    entry: dict[str, Any]
    match launcher_event:
        case events.Starting():
            return
        case events.Ready(topology=network, seconds=seconds, listeners=listeners, admin=admin):
            nodes = [_node_json(node) for node in network.nodes]
            root = format_address(network.root.address)
            entry = {
                "event": "ready",
                "network": network.name,
                "root": root,
                "seconds": seconds,
                "nodes": nodes,
                "gateways": [{"name": name, "listeners": urls} for name, urls in listeners.items()],
                "admin": admin,
                "telemetry": network.telemetry.directory if network.telemetry.is_on else None,
            }
        case events.Waiting(names=names, seconds=seconds):
            entry = {"event": "waiting", "nodes": names, "seconds": seconds}
        case events.Ended(name=name, how=how, last_line=line, restart_in=pause):
            entry = {"event": "ended", "node": name, "how": how, "last_line": line, "restart_in_s": pause}
        case events.Recovered(name=name, seconds=seconds):
            entry = {"event": "back", "node": name, "seconds": seconds}
        case events.Left(name=name):
            entry = {"event": "left", "node": name}
        case events.StorageFailed(name=name, error=error):
            entry = {"event": "storage_failed", "process": name, "error": error}
        case events.StorageRecovered(name=name):
            entry = {"event": "storage_recovered", "process": name}
        case events.Stopped(seconds=seconds):
            entry = {"event": "stopped", "seconds": seconds}
    print_json_line(entry)


def _node_json(node: NodeSettings) -> dict[str, str]:
    return {"name": node.name, "subtree": node.subtree, "address": format_address(node.address)}


def _near(directory: str) -> str:
    """The path relative to this directory, if that is shorter."""
    return min(directory, os.path.relpath(directory), key=len)


def _count(network: Topology) -> str:
    nodes = f"{len(network.nodes)} node{'s' if len(network.nodes) > 1 else ''}"
    others = ((len(network.gateways), "gateway"), (len(network.bridges), "bridge"))
    return ", ".join([nodes, *(f"{n} {name}{'s' if n > 1 else ''}" for n, name in others if n)])
