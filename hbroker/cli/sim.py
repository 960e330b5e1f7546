"""`hbroker sim`: simulated rooms of devices on a running network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED, INTERRUPTED
from hbroker.cli.flags import (
    ADDRESS,
    FILE,
    SECONDS,
    Value,
    json_flag,
    positive,
    root_flag,
    state_dir_flag,
    timeout_flag,
)
from hbroker.cli.output import Style, print_json, print_table, styled

if TYPE_CHECKING:
    from hbroker.operations.node_statuses import Status
    from hbroker.sim.rooms.plan import Plan
    from hbroker.sim.rooms.play import PlayOptions, Result
    from hbroker.sim.rooms.scenario import Scenario
    from hbroker.sim.rooms.summary import Summary

_TEXT = """\
Devices, their rooms' controllers and dashboards connect to a network that runs, each as a client of
its own: by UDP to the owners, or by MQTT to a gateway, in the share that the scenario sets. They say
what such devices say, and everything that is received is counted: what was lost, what came twice,
how long it took. At the end there is a table of rooms, and one of nodes.

SCENARIO is home, office, campus, factory, city, or a file of yours (docs/simulation.md). The same
scenario and seed give the same events. Ctrl-C ends a run early, with its tables.

examples:
  hbroker up topologies/home.yaml                        in another terminal
  hbroker sim home --duration 60
  hbroker sim city --devices 5000 --duration 60          on topologies/city.yaml
  hbroker sim home --speed 60 --duration 120             two hours of a house in two minutes
  hbroker sim home --skew outside/garden=0.8             a garden with 80% of the traffic
  hbroker sim office --mqtt 1 --gateway 192.0.2.1:1883   every device over that gateway
  hbroker sim my.yaml --dry-run                          what there would be; nothing connects

--json prints {scenario, seed, devices, connected, clients, native, streams, expected_per_s,
  asked_per_s, achieved_per_s, seconds, connect_s, busy, loop_busy, starved, lateness, interrupted,
  lost_connections, retried_connections, refusals, failed, foreign, is_clean, total,
  rooms: [{room, devices, …}],
  nodes: [{node, subtree, messages_in, messages_out, others, drops, cpu_s, …}]}; total, each room and
  each node have asked, published, bytes, unsent, acknowledged, rejected, unanswered, expected,
  received, lost, duplicates, disordered, broken, latency

exit codes: 0 all that is promised was kept, 1 something promised was lost or doubled, or a client
  could not connect, 2 wrong flags or scenario, 3 no answer from the root, 130 interrupted
"""


def _share(text: str) -> float:
    """A number from 0 to 1. Raises ValueError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r} is not a number from 0 to 1")
    return value


def _skew(text: str) -> tuple[str, float]:
    """A room and a share. Raises ValueError."""
    room, equals, share = text.rpartition("=")
    value = _share(share) if equals else 0.0
    if not room or not 0 < value < 1:
        raise ValueError(f"{text!r} is not as in kitchen=0.8")
    return room, value


_COUNT = click.IntRange(0, 9_999_999)


@command("sim", _TEXT)
@click.argument("scenario", type=FILE, metavar="SCENARIO", help="a scenario's name, or a file")
@click.option("--duration", type=SECONDS, default=60.0, show_default=True, help="of real time")
@click.option("--devices", type=_COUNT, metavar="N", help="scale the scenario to so many devices")
@click.option(
    "--mqtt",
    type=Value("share", _share),
    help="of the devices, over MQTT; 0: no client at all; 1: all but those that must be native",
)
@click.option(
    "--speed",
    type=Value("factor", positive),
    help="simulated seconds to a real one (default: the scenario's)",
)
@click.option("--seed", type=_COUNT, metavar="N", help="default: the scenario's")
@click.option("--skew", type=Value("room=share", _skew), help="give a room this share of all traffic; 0 to 1")
@click.option(
    "--gateway",
    type=ADDRESS,
    multiple=True,
    help="where MQTT clients connect; several take turns (default: those that `hbroker up` runs here)",
)
@click.option("--dry-run", is_flag=True, help="tell what would be, and connect nobody")
@root_flag
@timeout_flag()
@state_dir_flag
@json_flag
def sim(
    scenario: str,
    duration: float,
    devices: int | None,
    mqtt: float | None,
    speed: float | None,
    seed: int | None,
    skew: tuple[str, float] | None,
    gateway: tuple[str, ...],
    dry_run: bool,
    root: str,
    timeout: float,
    state_dir: Path,
    as_json: bool,
) -> int:
    """Returns 0 only if no message was lost or doubled against its QoS, and every client could connect."""
    from hbroker.sim.rooms.plan import plan
    from hbroker.sim.rooms.play import PlayOptions

    planned = plan(_scenario(scenario, devices, skew, mqtt=mqtt, speed=speed, seed=seed))
    if dry_run:
        _print_plan(planned, as_json=as_json)
        return DONE
    gateways = _gateways(gateway, root, state_dir) if _connections(planned) else ()
    play_options = PlayOptions(root, gateways, duration, planned.scenario.speed)
    summary = _played(planned, play_options, root, timeout)
    if as_json:
        print_json(summary.to_json())
    else:
        _print(summary)
    return _code(summary)


def node_statuses(root: str, timeout: float) -> list[Status]:
    """The status of each node that answers in time, with the id of the status message.

    The difference of two such ids is the number of its own messages that a node took in between. Raises
    Unreachable.
    """
    from hbroker.operations.node_statuses import read_statuses

    return read_statuses(root, timeout, with_ids=True)[0]


def _scenario(
    name: str, devices: int | None, skew: tuple[str, float] | None, **given: float | None
) -> Scenario:
    """The scenario with the changes of the flags; `given`: its settings, None: as it says. Raises
    ConfigError."""
    from dataclasses import replace

    from hbroker.errors import ConfigError
    from hbroker.sim.rooms.scaling import scale, without_mqtt
    from hbroker.sim.rooms.scenario import load
    from hbroker.sim.rooms.scenario.settings import Skew

    scenario = load(name)
    if skew is not None:
        room, share = skew
        names = [room.path for room in scenario.rooms]
        if room not in names:
            remedy = f"name one of {', '.join(names[:8])}{' …' if len(names) > 8 else ''}"
            raise ConfigError(f"--skew: there is no room {room!r}", file="command line", remedy=remedy)
        scenario = replace(scenario, skew=Skew(room, share))
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    scenario = replace(scenario, **settings)
    if given["mqtt"] == 0:
        scenario = without_mqtt(scenario)
    return scenario if devices is None else scale(scenario, devices)


def _connections(planned: Plan) -> int:
    return sum(not client.is_native for client in planned.clients)


def _played(planned: Plan, play_options: PlayOptions, root: str, timeout: float) -> Summary:
    """Runs the plan, and reads the nodes' statuses before and after it."""
    import asyncio

    from hbroker.errors import Unreachable
    from hbroker.sim.rooms.files import allow
    from hbroker.sim.rooms.summary import summarise

    allow(_connections(planned))
    before = node_statuses(root, timeout)
    result = asyncio.run(_run(planned, play_options))
    try:
        after = node_statuses(root, timeout)
    except Unreachable:
        after = []  # The counts of the devices are reported all the same.
    return summarise(result, before, after)


async def _run(planned: Plan, play_options: PlayOptions) -> Result:
    import asyncio
    import signal

    from hbroker.sim.rooms.display import progress_display
    from hbroker.sim.rooms.play import Play

    with progress_display(f"{planned.scenario.name}, {planned.devices} devices") as show:
        play = Play(planned, play_options, show)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, play.stop)
        return await play.run()


def _gateways(given: tuple[str, ...], root: str, state_dir: Path) -> tuple[tuple[str, int], ...]:
    """The addresses to which MQTT clients connect. Raises ConfigError if no gateway is known."""
    from hbroker.addresses import parse_address
    from hbroker.errors import ConfigError
    from hbroker.runtime.launcher.run_directory import running

    if given:
        return tuple(parse_address(text) for text in given)
    found = []
    for directory in running(state_dir):
        network = directory.read()
        roots = [node.address for node in network.nodes if not node.subtree] if network else []
        if network is not None and root in roots:
            found += [urlsplit(url) for gateway in network.gateways for url in gateway.listeners]
    plain = tuple((url.hostname or "", url.port or 0) for url in found if url.scheme == "mqtt")
    if not plain:
        raise ConfigError(
            "some devices are MQTT clients, and no gateway is known",
            file="command line",
            remedy="name one by --gateway HOST:PORT, or have none by --mqtt 0",
        )
    return plain


def _code(summary: Summary) -> int:
    from hbroker.sim.rooms.summary import is_clean

    if not is_clean(summary):
        return FAILED
    return INTERRUPTED if summary.result.was_interrupted else DONE


def _print(summary: Summary) -> None:
    from hbroker.metrics.families import LOSSES
    from hbroker.sim.rooms.report import nodes_table, rooms_table, summary_lines, verdict
    from hbroker.sim.rooms.summary import is_clean

    for table in (rooms_table(summary), nodes_table(summary, LOSSES)):
        header, rows, numbers = table
        print_table(header, rows, numbers=numbers)
        print()
    for text in summary_lines(summary):
        print(text)
    sys.stdout.flush()
    for text in verdict(summary):
        print(styled(text, Style.GOOD if is_clean(summary) else Style.BAD))


def _print_plan(planned: Plan, *, as_json: bool) -> None:
    reported = {
        "scenario": planned.scenario.name,
        "about": planned.scenario.about,
        "devices": planned.devices,
        "clients": len(planned.clients),
        "native": sum(client.is_native for client in planned.clients),
        "streams": len(planned.streams),
        "expected_per_s": planned.rate * planned.scenario.speed,
        "rooms": len(planned.scenario.rooms),
    }
    if as_json:
        print_json(reported)
        return
    for key, value in reported.items():
        print(f"{key.replace('_', ' '):<16}{value:.1f}" if isinstance(value, float) else f"{key:<16}{value}")
