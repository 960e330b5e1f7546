"""`hbroker apply`: changes a running network into that of a topology file, by handovers, while it is in
use."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
)
from hbroker.cli.output import duration, print_json, print_table
from hbroker.cli.progress import Progress, progress
from hbroker.errors import HBrokerError, LocalError
from hbroker.operations.orders import Orders

if TYPE_CHECKING:
    from hbroker.operations.node_statuses import Status
    from hbroker.topology import Plan, Topology
    from hbroker.topology.moves import Move

_TEXT = """\
Compares the subtrees that running nodes own with those that FILE gives them, and moves what
differs, one after the other, each as `hbroker move` does: nothing is lost, and publishers of
that subtree wait for less than a second. A subtree that a node of FILE owns and FILE does not
name goes back to the node around it. FILE names nodes that run: addresses and settings in it
change nothing. If a move fails, those before it stand: run it again to go on.

`hbroker analyze` writes such files, with a section `plan`: then what each node was predicted to
carry is shown beside what it carries, measured for a while after the last move.

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


@dataclass(frozen=True, slots=True)
class _MoveResult:
    """A move and its result. `done`: None: it was not tried."""

    subtree: str
    source: str | None
    target: str | None
    done: bool | None = None
    seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _NodeLoad:
    """The load of one node, per second. `predicted`: None: the plan has no prediction."""

    name: str
    predicted: float | None
    load: float
    cpu: float
    messages_in: float
    messages_out: float


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
@json_flag
def apply(
    file: Path,
    dry_run: bool,
    measure: float,
    root: str | None,
    timeout: float,
    join_key_file: Path | None,
    state_dir: Path,
    as_json: bool,
) -> int:
    """Returns when the network is as the file says, or a move has failed.

    Raises Unreachable, LocalError, ConfigErrors.
    """
    from hbroker import topology
    from hbroker.operations.node_statuses import read_statuses
    from hbroker.topology.moves import moves

    wanted = topology.load(file)
    root = root or format_address(wanted.root.address)
    network = RunningNetwork(root, timeout, join_key_file, state_dir)
    key = wanted.root.join_key if join_key_file is None else b""
    key = key or network.join_key()
    statuses, silent = read_statuses(root, timeout, network.authority(), network.token())
    _require_all(wanted, statuses, silent)
    claimed = {status["name"]: _claims(status) for status in statuses}
    steps = moves(wanted, claimed)
    measured = None
    if dry_run:
        done = [_MoveResult(**asdict(step)) for step in steps]
    else:
        with progress(is_silent=as_json, parts=len(steps)) as shown:
            with network.connect() as client:
                orders = Orders(client, key, network.credentials(), timeout, shown.say)
                done = _carry_out(orders, steps, shown)
            if wanted.plan and measure and all(step.done for step in done):
                shown.say(f"measuring for {duration(measure)}")
                measured = _measure(network, wanted.plan, measure)
    if as_json:
        print_json({"dry_run": dry_run, **_as_json(done, measured)})
    else:
        _print(done, measured, dry_run=dry_run)
    return DONE if dry_run or all(step.done for step in done) else FAILED


def _require_all(wanted: Topology, statuses: Sequence[Status], silent: Sequence[str]) -> None:
    there = {status["name"] for status in statuses}
    missing = [node.name for node in wanted.nodes if node.name not in there]
    if missing:
        why = "does not tell its status" if missing[0] in silent else "does not run"
        raise LocalError(f"node {missing[0]!r} {why}: start it, or leave it out of the file")


def _claims(status: Status) -> list[str]:
    subtrees = status.get("subtrees")
    return [str(subtree) for subtree in subtrees] if isinstance(subtrees, list) else []


def _carry_out(orders: Orders, steps: Sequence[Move], shown: Progress) -> list[_MoveResult]:
    """Makes the moves one after the other, up to the first that fails."""
    done: list[_MoveResult] = []
    for number, step in enumerate(steps, 1):
        shown.say(f"[{number}/{len(steps)}] {_described(step)}")
        began = time.monotonic()
        error = _carry_out_one(orders, step)
        seconds = round(time.monotonic() - began, 3)
        why = None if error is None else str(error)
        done.append(_MoveResult(**asdict(step), done=error is None, seconds=seconds, error=why))
        if error is not None:
            break
        shown.advance()
    return done + [_MoveResult(**asdict(step)) for step in steps[len(done) :]]


def _carry_out_one(orders: Orders, step: Move) -> HBrokerError | None:
    try:
        if step.target is None:
            assert step.source is not None, "what nobody holds is not handed back"
            orders.take_subtree(step.subtree, step.source)
            return None
        return orders.give_subtree(step.subtree, step.target)[1]
    except HBrokerError as error:
        return error


def _measure(network: RunningNetwork, plan: Plan, duration_s: float) -> tuple[float, list[_NodeLoad]]:
    """Measures the load of every node. Returns the seconds of the measurement, and the loads."""
    began = time.monotonic()
    before = {status["name"]: status for status in _statuses(network)}
    time.sleep(duration_s)
    seconds = time.monotonic() - began
    after = _statuses(network)
    predicted = dict(plan.predicted)
    return seconds, [
        _load(status["name"], before[status["name"]], status, seconds, plan, predicted)
        for status in after
        if status["name"] in before
    ]


def _statuses(network: RunningNetwork) -> list[Status]:
    from hbroker.operations.node_statuses import read_statuses

    return read_statuses(network.root, network.timeout, network.authority(), network.token())[0]


def _load(
    name: str, before: Status, after: Status, seconds: float, plan: Plan, predicted: Mapping[str, float]
) -> _NodeLoad:
    def rate(key: str) -> float:
        return float(max(after.get(key, 0) - before.get(key, 0), 0)) / seconds

    messages_in, messages_out = rate("messages_in"), rate("messages_out")
    load = plan.load(messages_in, messages_out)
    return _NodeLoad(name, predicted.get(name), load, rate("cpu_s"), messages_in, messages_out)


def _max_mean(loads: Sequence[float]) -> float | None:
    return max(loads) * len(loads) / sum(loads) if sum(loads) else None


def _print(
    done: Sequence[_MoveResult], measured: tuple[float, list[_NodeLoad]] | None, *, dry_run: bool
) -> None:
    if not done:
        print("nothing to move: the network is as the file says")
    else:
        rows = [(step.subtree, step.source or "-", step.target or "(merged)", _result(step)) for step in done]
        print_table(("SUBTREE", "FROM", "TO", "" if dry_run else "TOOK"), rows)
    if measured is not None:
        print()
        _print_loads(measured[1])


def _result(step: _MoveResult) -> str:
    if step.error is not None:
        return f"failed: {step.error}"
    return "" if step.seconds is None else duration(step.seconds)


def _print_loads(loads: Sequence[_NodeLoad]) -> None:
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
    predicted = _max_mean([load.predicted or 0.0 for load in loads])
    found = _max_mean([load.load for load in loads])
    if predicted is not None and found is not None:
        print(f"largest load over the mean: predicted {predicted:.2f}, measured {found:.2f}")
    expected, carried = sum(load.predicted or 0.0 for load in loads), sum(load.load for load in loads)
    if not is_alike(expected, carried):
        print(f"the traffic is not that which was analysed: {carried:.1%} of a processor, not {expected:.1%}")


def _as_json(done: Sequence[_MoveResult], measured: tuple[float, list[_NodeLoad]] | None) -> dict[str, Any]:
    reported = None
    if measured is not None:
        seconds, loads = measured
        reported = {
            "seconds": round(seconds, 3),
            "nodes": [asdict(load) for load in loads],
            "predicted_max_mean": _max_mean([load.predicted or 0.0 for load in loads]),
            "max_mean": _max_mean([load.load for load in loads]),
        }
    return {"moves": [asdict(step) for step in done], "measured": reported}


def _described(step: Move) -> str:
    to = "back to the node around it" if step.target is None else f"to {step.target}"
    return f"{step.subtree}: {'' if step.source is None else f'from {step.source} '}{to}"
