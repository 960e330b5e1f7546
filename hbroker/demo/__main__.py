"""The demo, from begin to end: `python -m hbroker.demo`."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Final

from rich.console import Console

from hbroker.demo import devices, report
from hbroker.demo.devices import Device
from hbroker.demo.display import progress_display
from hbroker.demo.house import Capture, House, HouseError, run
from hbroker.demo.life import live
from hbroker.errors import HBrokerError

SECONDS: Final = 10.0
TRACED: Final = "home/outside/securitycams/front/motion"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo. Returns the exit code: 0 it went well, 1 it failed, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m hbroker.demo", description="A house of six brokers, live."
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long (default: %(default)g)")
    options = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    try:
        _play(console, options.seconds)
    except KeyboardInterrupt:
        console.print("interrupted; everything is stopped")
        return 130
    except (HouseError, HBrokerError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def _play(console: Console, seconds: float) -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hbroker-demo-")))
        house = stack.enter_context(House(directory))
        capture = stack.enter_context(Capture())
        house.start()
        console.print(f"{len(house.nodes)} brokers are up after {house.seconds:.2f} s:")
        for node in house.nodes:
            console.print(f"  {node.name:<13} {node.subtree or '(all the rest)'}")
        capture.start(house.nodes)
        looks: list[str] = []

        def look() -> None:
            looks.append(run("tree", "--root", house.root))
            looks.append(run("resolve", TRACED, "--trace", "--root", house.root))

        with progress_display(console) as show:
            progress = asyncio.run(live(house.root, _households(), seconds, show, look))
        tree, trace = looks
        _print(console, "What was said", report.on_life(progress))
        _print(console, "hbroker tree", tree.splitlines())
        _print(console, f"hbroker resolve {TRACED} --trace", trace.splitlines())
        packet_counts = capture.stop()
        _print(
            console, "What went over the wire", report.on_capture(packet_counts, house.nodes, capture.refusal)
        )
        ended = house.stop()
        console.print(f"\nEverything is stopped, in {ended:.1f} s.")


def _households() -> list[list[Device]]:
    """The devices of each room, and those of this machine. Each list has one connection."""
    simulated = devices.rooms(random.Random())
    by_room = groupby(simulated, key=lambda device: device.topic.split("/")[1])
    return [*(list(room) for _, room in by_room), list(devices.machine())]


def _print(console: Console, title: str, lines: Iterable[str]) -> None:
    console.print(f"\n[bold]{title}[/bold]")
    for text in lines:
        console.print(text, markup=False)


if __name__ == "__main__":
    sys.exit(main())
