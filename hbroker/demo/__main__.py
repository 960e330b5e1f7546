"""The demo, from begin to end: `python -m hbroker.demo`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from hbroker.demo.house import Capture, House, HouseError, run
from hbroker.demo.report import on_capture

SECONDS: Final = 10.0
TRACED: Final = "home/outside/securitycams/front/motion"


@click.command
@click.option("--seconds", default=SECONDS, show_default=True, help="How long.")
def main(seconds: float) -> None:
    """A house of six brokers, live. Exit codes: 0 it went well, 1 it failed, 130 interrupted."""
    console = Console(highlight=False, soft_wrap=True)
    try:
        _play(console, seconds)
    except KeyboardInterrupt:
        console.print("interrupted; everything is stopped")
        sys.exit(130)
    except (HouseError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(1)


def _play(console: Console, seconds: float) -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hbroker-demo-")))
        house, capture = House(directory), Capture()
        stack.callback(house.stop)
        stack.callback(capture.stop)
        house.start()
        console.print(f"{len(house.nodes)} brokers are up after {house.seconds:.2f} s:")
        for node in house.nodes:
            console.print(f"  {node.name:<13} {node.subtree or '(all the rest)'}")
        capture.start(house)
        _print(console, "hbroker sim home", ())
        house.simulate(seconds)
        _print(console, "hbroker tree", run("tree", "--root", house.root))
        trace = run("resolve", TRACED, "--trace", "--root", house.root)
        _print(console, f"hbroker resolve {TRACED} --trace", trace)
        packet_counts = capture.stop()
        _print(console, "What went over the wire", on_capture(packet_counts, house.nodes, capture.refusal))
        ended = house.stop()
        console.print(f"\nEverything is stopped, in {ended:.1f} s.")


def _print(console: Console, title: str, lines: Iterable[str]) -> None:
    console.print(f"\n[bold]{title}[/bold]")
    for text in lines:
        console.print(text, markup=False)


if __name__ == "__main__":
    main()
