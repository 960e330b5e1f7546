"""`hbroker apply`: changes a running network into that of a topology file, by handovers, while it is in
use."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbroker.addresses import format_address
from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import (
    ADDRESS,
    ORDER_TIMEOUT_S,
    PATH,
    RunningNetwork,
    Value,
    join_key_file_flag,
    json_flag,
    not_negative,
    state_dir_flag,
    timeout_flag,
    url_flag,
)
from hbroker.cli.output import duration, print_json, print_table
from hbroker.cli.progress import Progress, progress
from hbroker.operations.orders import Orders

if TYPE_CHECKING:
    from hbroker.operations.node_statuses import Status
    from hbroker.operations.plans import MoveResult, NodeLoad
    from hbroker.topology import Plan
    from hbroker.topology.moves import Move

_TEXT = """\
Compares the subtrees that running nodes own with those that FILE gives them, and moves what
differs, one after the other, each as `hbroker move` does: nothing is lost, and publishers of
that subtree wait for less than a second. A subtree that a node of FILE owns and FILE does not
name goes back to the node around it. FILE names nodes that run: addresses and settings in it
change nothing. If a move fails, those before it stand: run it again to go on.

`hbroker analyze` writes such files, with a section `plan`: then what each node was predicted to
carry is shown beside what it carries, measured for a while after the last move. With --url it is
what the API has measured of each node in about ten seconds before the end of that while.

examples:
  hbroker apply plan.yaml --dry-run        what would move
  hbroker apply plan.yaml                  move it, and measure for 10 seconds
  hbroker apply topologies/home.yaml       back to how it began

--json prints {dry_run, moves: [{subtree, source, target, done, seconds, error}], measured:
  {seconds, nodes: [{name, predicted, load, cpu, messages_in, messages_out}], predicted_max_mean,
  max_mean}}; loads are CPU-seconds a second, messages are for each second, target null: to the
  node around it; measured is null where FILE has no plan

exit codes: 0 it is as FILE says, 1 a move failed, or a node of FILE does not run, 2 FILE is
wrong, 3 no answer
"""


@command("apply", _TEXT)
@click.argument("file", type=PATH, help="a topology file")
@click.option("--dry-run", is_flag=True, help="tell what would move, and move nothing")
@click.option(
    "--measure",
    type=Value("seconds", not_negative),
    default=10.0,
    show_default=True,
    help="how long to measure the loads afterwards; 0: not at all",
)
@click.option("--root", type=ADDRESS, help="the root of the network (default: where FILE has it)")
@timeout_flag(ORDER_TIMEOUT_S, "for each step")
@join_key_file_flag
@state_dir_flag
@url_flag
@json_flag
def apply(
    file: Path,
    dry_run: bool,
    measure: float,
    root: str | None,
    timeout: float,
    join_key_file: Path | None,
    state_dir: Path,
    url: str | None,
    as_json: bool,
) -> int:
    """Returns when the network is as the file says, or a move has failed.

    Raises Unreachable, Refused, LocalError, ConfigErrors.
    """
    from hbroker import topology
    from hbroker.operations.plans import MoveResult, planned_moves

    wanted = topology.load(file)
    root = root or format_address(wanted.root.address)
    network = RunningNetwork(root, timeout, join_key_file, state_dir, url)
    api = network.api()
    text = file.read_text("utf-8")
    steps = planned_moves(wanted, *_statuses(network)) if api is None else api.planned_moves(text)
    measured = None
    if dry_run:
        done = [MoveResult(**asdict(step)) for step in steps]
    else:
        with progress(is_silent=as_json, parts=len(steps)) as shown:
            if api is not None:
                done = api.carry_out(text, *_shown(shown, len(steps))) if steps else []
            else:
                key = wanted.root.join_key if join_key_file is None else b""
                done = _carry_out(network, key or network.join_key(), steps, shown)
            if wanted.plan and measure and all(step.done for step in done):
                shown.say(f"measuring for {duration(measure)}")
                measured = (
                    _measure(network, wanted.plan, measure) if api is None else api.loads(text, measure)
                )
    if as_json:
        print_json({"dry_run": dry_run, **_as_json(done, measured)})
    else:
        _print(done, measured, dry_run=dry_run)
    return DONE if dry_run or all(step.done for step in done) else FAILED


def _statuses(network: RunningNetwork) -> tuple[list[Status], list[str]]:
    from hbroker.operations.node_statuses import read_statuses

    return read_statuses(network.root, network.timeout, network.authority(), network.token())


def _carry_out(
    network: RunningNetwork, key: bytes, steps: Sequence[Move], shown: Progress
) -> list[MoveResult]:
    from hbroker.operations.plans import carry_out

    with network.connect() as client:
        orders = Orders(client, key, network.credentials(), network.timeout, shown.say)
        return carry_out(orders, steps, *_shown(shown, len(steps)))


def _shown(
    shown: Progress, parts: int
) -> tuple[Callable[[int, Move], None], Callable[[int, MoveResult], None]]:
    """What shows that a move begins, and that it has ended."""
    from hbroker.operations.plans import described

    return (
        lambda number, step: shown.say(f"[{number + 1}/{parts}] {described(step)}"),
        lambda _, result: shown.advance() if result.done else None,
    )


def _measure(network: RunningNetwork, plan: Plan, duration_s: float) -> tuple[float, list[NodeLoad]]:
    """Measures the load of every node. Returns the seconds of the measurement, and the loads."""
    from hbroker.operations.plans import load_of

    began = time.monotonic()
    before = {status["name"]: status for status in _statuses(network)[0]}
    time.sleep(duration_s)
    seconds = time.monotonic() - began
    return seconds, [
        load_of(status["name"], _rates(before[status["name"]], status, seconds), plan)
        for status in _statuses(network)[0]
        if status["name"] in before
    ]


def _rates(before: Status, after: Status, seconds: float) -> dict[str, float]:
    counters = ("messages_in", "messages_out", "cpu_s")
    return {name: max(after.get(name, 0) - before.get(name, 0), 0) / seconds for name in counters}


def _print(
    done: Sequence[MoveResult], measured: tuple[float, list[NodeLoad]] | None, *, dry_run: bool
) -> None:
    if not done:
        print("nothing to move: the network is as the file says")
    else:
        rows = [(step.subtree, step.source or "-", step.target or "(merged)", _result(step)) for step in done]
        print_table(("SUBTREE", "FROM", "TO", "" if dry_run else "TOOK"), rows)
    if measured is not None:
        print()
        _print_loads(measured[1])


def _result(step: MoveResult) -> str:
    if step.error is not None:
        return f"failed: {step.error}"
    return "" if step.seconds is None else duration(step.seconds)


def _print_loads(loads: Sequence[NodeLoad]) -> None:
    from hbroker.operations.plans import max_mean
    from hbroker.topology.plan import is_alike

    header = ("NODE", "PREDICTED", "MEASURED", "CPU", "IN/s", "OUT/s")
    rows = [
        (
            load.name,
            "-" if load.predicted is None else f"{load.predicted:.1%}",
            f"{load.load:.1%}",
            f"{load.cpu:.1%}",
            f"{load.messages_in:.0f}",
            f"{load.messages_out:.0f}",
        )
        for load in loads
    ]
    print_table(header, rows, numbers=header[1:])
    predicted = max_mean([load.predicted or 0.0 for load in loads])
    found = max_mean([load.load for load in loads])
    if predicted is not None and found is not None:
        print(f"largest load over the mean: predicted {predicted:.2f}, measured {found:.2f}")
    expected, carried = sum(load.predicted or 0.0 for load in loads), sum(load.load for load in loads)
    if not is_alike(expected, carried):
        print(f"the traffic is not that which was analysed: {carried:.1%} of a processor, not {expected:.1%}")


def _as_json(done: Sequence[MoveResult], measured: tuple[float, list[NodeLoad]] | None) -> dict[str, Any]:
    from hbroker.operations.plans import max_mean

    reported = None
    if measured is not None:
        seconds, loads = measured
        reported = {
            "seconds": round(seconds, 3),
            "nodes": [asdict(load) for load in loads],
            "predicted_max_mean": max_mean([load.predicted or 0.0 for load in loads]),
            "max_mean": max_mean([load.load for load in loads]),
        }
    return {"moves": [asdict(step) for step in done], "measured": reported}
