"""`hbroker status`: lists the processes that a launcher runs on this host."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import json_flag, network_argument, state_dir_flag
from hbroker.cli.output import duration, print_json, print_table

if TYPE_CHECKING:
    from hbroker.runtime.launcher.run_directory import (
        AdminRun,
        BridgeRun,
        GatewayRun,
        NetworkRun,
        NodeRun,
    )

_TEXT = """\
The processes, as their launcher sees them. What the nodes themselves say: `hbroker tree`.

states: up, joining, pending (its parent has not joined), waiting (for its next start),
  left (by `hbroker leave`: it is not started again), leaving (once its children have ended),
  stopping, down

examples:
  hbroker status
  hbroker status --json | jq -r '.nodes[] | select(.state != "up").name'

--json prints {network, up, pid, topology, started_at,
  nodes: [{name, subtree, address, state, pid, started_at, restarts}],
  gateways: [{name, listeners: [url], state, pid, started_at, restarts}],
  bridges: [{name, broker: address, or "" without it, state, pid, started_at, restarts}],
  admin: {name, url, state, pid, started_at, restarts} of the HTTP API, or null,
  telemetry: the directory of what they write of their load, or null,
  storage: {process: what is wrong with its disk, and since when}}
Times are seconds since the Unix epoch.

exit codes: 0 every node is up, or left by order; 1 one is not, a disk fails, or nothing runs
"""


@command("status", _TEXT)
@network_argument
@state_dir_flag
@json_flag
def status(network: str | None, state_dir: Path, as_json: bool) -> int:
    """Returns 0 only if every process is up (or has left by order) and no disk fails."""
    from hbroker.cli.network.running import named

    directory = named(state_dir, network)
    running = directory.read() if directory and directory.launcher() is not None else None
    faults = directory.faults() if directory and running else {}
    if as_json:
        print_json(_as_json(running, network, faults))
    elif running is None:
        print(f"{network} does not run" if network else "no network runs")
    else:
        _print(running)
        for process, fault in faults.items():
            print(f"storage: {process}: {fault}")
    return DONE if running is not None and running.is_up and not faults else FAILED


def _as_json(running: NetworkRun | None, network: str | None, faults: dict[str, str]) -> dict[str, Any]:
    if running is None:
        return {"network": network, "up": False, "nodes": [], "gateways": [], "bridges": [], "admin": None}
    entry = running.to_json()
    return {"network": entry.pop("name"), "up": running.is_up, **entry, "storage": faults}


def _print(running: NetworkRun) -> None:
    now = time.time()
    up = sum(node.state == "up" for node in running.nodes)
    print(f"{running.name}: {up} of {len(running.nodes)} nodes up, launcher {running.pid}")

    def row(
        process: NodeRun | GatewayRun | BridgeRun | AdminRun, subtree: str, address: str
    ) -> tuple[object, ...]:
        runs_for = duration(max(now - process.started_at, 0.0)) if process.started_at else "-"
        pid = process.pid or "-"
        return process.name, subtree, address, process.state, pid, runs_for, process.restarts

    rows = [row(node, node.subtree or '""', node.address) for node in running.nodes]
    rows += [row(gateway, "-", " ".join(gateway.listeners) or "-") for gateway in running.gateways]
    rows += [row(bridge, "-", f"bridge to {bridge.broker or 'nobody now'}") for bridge in running.bridges]
    if running.admin is not None:
        rows.append(row(running.admin, "-", running.admin.url))
    header = ("NODE", "SUBTREE", "ADDRESS", "STATE", "PID", "RUNS FOR", "RESTARTS")
    print_table(header, rows, numbers=("PID", "RESTARTS"))
